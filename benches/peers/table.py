"""The figures as Markdown."""

from __future__ import annotations

from contenders import CONTENDERS, WORKLOADS
from rounds import Figure, Key, Rounds
from targets import judge, more_is_better, ratio

SHORT = 20  # a longer note becomes a footnote


def number(value: float) -> str:
    if value >= 99.95:
        return f"{value:,.0f}".replace(",", " ")
    return f"{value:.3g}"


class Notes:
    """Footnotes of one table, each text once."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def mark(self, text: str) -> str:
        if text not in self.texts:
            self.texts.append(text)
        return f" [{self.texts.index(text) + 1}]"


def common_note(row: dict[str, Figure]) -> str:
    """What every figure of a row is noted with, such as how many blocks were live."""
    notes = [f.note for f in row.values() if f.note.endswith("blocks live")]
    return f", {notes[0]}" if notes else ""


def cell(figure: Figure | None, notes: Notes) -> str:
    if figure is None:
        return ""
    if figure.median is None:
        return "–" + (notes.mark(figure.cannot) if figure.cannot else "")
    text = number(figure.median)
    if figure.note and not figure.note.endswith("blocks live"):
        text += f", {figure.note}" if len(figure.note) <= SHORT else notes.mark(figure.note)
    return text


def table(workload: str, rows: dict[Key, dict[str, Figure]], verdicts: dict[Key, tuple[str, str]]) -> list[str]:
    """One workload's rows, over the contenders that have any figure in it."""
    there = [c for c in CONTENDERS if any(c.name in row for row in rows.values())]
    targets = any(key in verdicts for key in rows)
    heads = ["", *(c.title for c in there), "best peer ÷ Forebay", *(["target", ""] if targets else [])]
    lines = [f"### {WORKLOADS[workload]}", "", "| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    notes = Notes()
    for key, row in rows.items():
        unit = next((f.unit for f in row.values() if f.unit), "")
        unit = "" if unit in ("ratio", "x") else f", {unit}"
        cells = [f"{key[1]}{common_note(row)}{unit}", *(cell(row.get(c.name), notes) for c in there)]
        times = ratio(row)
        compared = times is not None and "no allocator" not in key[1]
        cells.append(f"{times:.3g}" if compared else "")
        if targets:
            cells += verdicts.get(key, ("", ""))
        lines.append("| " + " | ".join(cells) + " |")
    below = [f"[{i}] {text}  " for i, text in enumerate(notes.texts, 1)]
    if any(more_is_better(row) for row in rows.values()):
        below.append("More is better; the ratio is Forebay ÷ best peer.")
    return [*lines, "", *below, *([""] if below else [])]


def markdown(rounds: Rounds, head: str) -> str:
    verdicts = judge(rounds)
    lines = [head, ""]
    for workload in WORKLOADS:
        rows = {key: row for key, row in rounds.figures.items() if key[0] == workload}
        if rows:
            lines += table(workload, rows, verdicts)
    if rounds.troubles:
        lines += ["Troubles:", "", *(f"- {text}" for text in rounds.troubles), ""]
    return "\n".join(lines)


def summary(rounds: Rounds) -> str:
    """The targets alone, a line each."""
    verdicts = judge(rounds)
    lines = []
    for (workload, case), (wanted, verdict) in verdicts.items():
        mine = next(f for n, f in rounds.figures[workload, case].items() if n in ("forebay", "forebay_pinned"))
        unit = "" if mine.unit in ("ratio", "x") else f" {mine.unit}"
        lines.append(f"{verdict:<30} {workload}: {case} = {number(mine.median or 0)}{unit} (target {wanted})")
    passed = sum(verdict == "PASS" for _, verdict in verdicts.values())
    return "\n".join([*lines, f"targets: {passed} of {len(verdicts)} passed"])
