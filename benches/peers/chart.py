"""Charts of labelled dots, as SVG on a background of their own: readable on light and on dark pages.

    python3 benches/peers/chart.py      redraws docs/memory.svg and docs/time.svg from the tables in docs/figures

A table has the columns panel, unit, allocator, value, date and commit. `run.py` writes one for the times that it measured.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable
from html import escape
from itertools import groupby
from pathlib import Path

from contenders import CONTENDERS
from places import ROOT
from rounds import Rounds

FIELDS = ("panel", "unit", "allocator", "value", "date", "commit")
#: What the chart of times shows: its panel, and the workload and case of `run.py`.
TIMES = {
    "512 B, one stream": ("pairs", "512 B, own stream"),
    "64 KiB, one stream": ("pairs", "64 KiB, own stream"),
    "2 MiB, one stream": ("pairs", "2 MiB, own stream"),
    "64 MiB, one stream": ("pairs", "64 MiB, own stream"),
    "random up to 1 MiB": ("random", "up to 1 MiB"),
    "random up to 64 MiB": ("random", "up to 64 MiB"),
    "16 MiB, freed on another stream": ("handed_over", "16 MiB"),
    "8 threads, a stream each": ("threads", "8 threads, own stream each"),
}
SHOWN = ("forebay", "cuda_async", "rmm_pool", "rmm_arena", "rmm_binning", "torch", "cuda_malloc")

LINE, HEAD, NAMES, PLOTS, VALUES, TOP = 17, 40, 150, 500, 70, 50
STYLE = (
    "text{font:12px system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif;fill:#1f2328}"
    ".title{font-size:15px;font-weight:600}.head{font-weight:600}.ours{fill:#bc4c00;font-weight:600}.pale{fill:#59636e}"
    ".value{paint-order:stroke;stroke:#ffffff;stroke-width:5px}"  # the line behind it would cross it out
)

Row = dict[str, str]


def measured(rounds: Rounds, date: str) -> list[Row]:
    """The rows of the chart of times. A pass that was stopped on the way has no figure."""
    titles = {c.name: c.title for c in CONTENDERS}
    rows = []
    for panel, key in TIMES.items():
        found = rounds.figures.get(key, {})
        unit = next((f.unit for f in found.values() if f.unit), "")
        for name in SHOWN:
            figure = found.get(name)
            median = figure.median if figure and "stopped" not in figure.note else None
            value = "" if median is None else f"{median:.0f}" if median >= 100 else f"{median:.3g}"
            rows.append(dict(zip(FIELDS, (panel, unit, titles[name], value, date, ""))))
    return rows


def draw(rows: Iterable[Row], title: str, columns: int, from_one: bool) -> str:
    """The SVG. `from_one`: the axis is linear from 1, else logarithmic. Panels of one unit have one axis."""
    panels = [(key, list(group)) for key, group in groupby(rows, lambda row: (row["panel"], row["unit"]))]
    height = HEAD + LINE * max(len(lines) for _, lines in panels)
    total = TOP + height * math.ceil(len(panels) / columns)
    plot = PLOTS // columns
    column = NAMES + plot + VALUES
    width = column * columns + 20
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {total}" width="{width}" height="{total}" role="img">',
        f"<title>{escape(title)}</title><style>{STYLE}</style>",
        f'<rect width="{width}" height="{total}" rx="8" fill="#ffffff" stroke="#d1d9e0"/>',
        f'<text x="16" y="28" class="title">{escape(title)}</text>',
    ]
    for index, ((panel, unit), lines) in enumerate(panels):
        all_values = [float(r["value"]) for (_, u), group in panels if u == unit for r in group if r["value"]]
        low, high = (1.0, max(all_values)) if from_one else (min(all_values), max(all_values))
        left, top = 16 + column * (index % columns), TOP + height * (index // columns)
        parts.append(f'<text x="{left}" y="{top + 12}"><tspan class="head">{escape(panel)}</tspan>'
                     f'<tspan class="pale">, {escape(unit)}</tspan></text>')
        start = left + NAMES
        for number, row in enumerate(lines):
            y = top + 22 + LINE * number + LINE / 2
            ours = "ours" if row["allocator"] == "Forebay" else ""
            parts.append(f'<text x="{left}" y="{y + 4}" class="{ours}">{escape(row["allocator"])}</text>')
            parts.append(f'<path d="M{start} {y}h{plot}" stroke="#d1d9e0"/>')
            if not row["value"]:
                parts.append(f'<text x="{start + 8}" y="{y + 4}" class="value pale">no figure</text>')
                continue
            value = float(row["value"])
            place = (lambda v: v) if from_one else math.log
            share = (place(value) - place(low)) / ((place(high) - place(low)) or 1)  # 1: there is one value
            x = start + plot * share
            parts.append(f'<circle cx="{x:.1f}" cy="{y}" r="5" fill="{"#bc4c00" if ours else "#6e7781"}"/>')
            parts.append(f'<text x="{x + 9:.1f}" y="{y + 4}" class="value {ours}">{written(row["value"])}</text>')
    return "\n".join([*parts, "</svg>", ""])


def written(value: str) -> str:
    """Large numbers in groups of three digits, others as they stand in the table."""
    return f"{float(value):,.0f}" if float(value) >= 1000 else value


def draw_times(rows: Iterable[Row]) -> str:
    return draw(rows, "Time of an allocation and its free at the C level, warm (logarithmic scale)", 2, from_one=False)


def main() -> None:
    docs = ROOT / "docs"
    tables = {name: list(csv.DictReader((docs / "figures" / f"{name}.csv").open())) for name in ("memory", "time")}
    title = "GPU memory held at the peak, as a multiple of what the program had live"
    (docs / "memory.svg").write_text(draw(tables["memory"], title, 1, from_one=True))
    (docs / "time.svg").write_text(draw_times(tables["time"]))


def write_times(rounds: Rounds, out: Path, date: str) -> None:
    """The table and the chart of what was measured, as `time.csv` and `time.svg` in a folder."""
    rows = measured(rounds, date)
    if not any(row["value"] for row in rows):
        return
    with (out / "time.csv").open("w", newline="") as file:
        table = csv.DictWriter(file, FIELDS, lineterminator="\n")
        table.writeheader()
        table.writerows(rows)
    (out / "time.svg").write_text(draw_times([row for row in rows if row["unit"]]))


if __name__ == "__main__":
    main()
