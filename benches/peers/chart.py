"""The figures that a reader wants first, as an SVG for light and dark pages."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from contenders import CONTENDERS, Contender
from rounds import Key, Rounds

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Readable on white and on GitHub's dark grey alike; the background is left to the page.
TEXT = "#7b828b"
COLOURS = {
    "forebay": "#e8590c", "cuda_async": "#3b8edb", "rmm_pool": "#2f9e6b", "rmm_arena": "#74b816", "rmm_binning": "#0ca5a5",
    "torch": "#9c6ade", "cuda_malloc": "#8a8f98",
}
PAIRS = ("512 B", "64 KiB", "2 MiB", "64 MiB")
THREADS = (1, 2, 4, 8, 16)


def draw(rounds: Rounds, out: Path) -> str | None:
    """Writes the chart; gives the reason if it cannot."""
    if not any(workload == "pairs" for workload, _ in rounds.figures):
        return "no chart: pairs were not measured"
    try:
        import matplotlib

        matplotlib.use("svg")
        import matplotlib.pyplot as plt
        from matplotlib.patches import Patch
    except ImportError as error:
        return f"no chart: {error}"
    plt.rcParams.update({
        "svg.fonttype": "path", "font.size": 9, "text.color": TEXT, "axes.labelcolor": TEXT, "axes.edgecolor": TEXT,
        "xtick.color": TEXT, "ytick.color": TEXT, "axes.titlecolor": TEXT, "grid.color": TEXT, "svg.hashsalt": "peers",
    })
    shown = [c for c in CONTENDERS if c.name in COLOURS]
    figure, (pairs, random, threads) = plt.subplots(1, 3, figsize=(11, 3.6), gridspec_kw={"width_ratios": [4, 2.4, 3]})
    bars(pairs, rounds, shown, [("pairs", f"{size}, own stream") for size in PAIRS], PAIRS)
    pairs.set_title("allocate + free, warm (ns)")
    bars(random, rounds, shown, [("random", "up to 1 MiB"), ("random", "up to 64 MiB")], ("≤ 1 MiB", "≤ 64 MiB"))
    random.set_title("random, per operation (ns)")
    for contender in shown:
        points = [(n, value(rounds, ("threads", f"{n} thread{'s' * (n > 1)}, own stream each"), contender.name)) for n in THREADS]
        points = [(n, v) for n, v in points if v]
        if points:
            threads.plot(*zip(*points), marker="o", markersize=3, color=COLOURS[contender.name],
                         linewidth=2.5 if contender.role == "ours" else 1.3)
    threads.set(xscale="log", yscale="log", xticks=THREADS, xticklabels=[str(n) for n in THREADS])
    threads.set_title("threads (million pairs/s, more is better)")
    threads.minorticks_off()
    for axes in (pairs, random, threads):
        axes.patch.set_alpha(0)
        axes.grid(axis="y", linewidth=0.4, alpha=0.5)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    handles = [Patch(color=COLOURS[c.name]) for c in shown]
    figure.legend(handles, [c.title for c in shown], loc="lower center", ncol=len(shown), frameon=False)
    figure.tight_layout(rect=(0, 0.09, 1, 1))
    figure.savefig(out, transparent=True, metadata={"Date": None})
    return None


def value(rounds: Rounds, key: Key, name: str) -> float | None:
    figure = rounds.figures.get(key, {}).get(name)
    return figure.median if figure else None


def bars(axes: Axes, rounds: Rounds, shown: list[Contender], keys: list[Key], labels: Sequence[str]) -> None:
    width = 0.85 / len(shown)
    for index, contender in enumerate(shown):
        values = [value(rounds, key, contender.name) or 0 for key in keys]
        axes.bar([i + (index - len(shown) / 2 + 0.5) * width for i in range(len(keys))], values, width * 0.92,
                 color=COLOURS[contender.name])
    axes.set_yscale("log")
    axes.set_ylim(bottom=1)  # a bar's length must mean the same in every run
    axes.set_xticks(range(len(keys)), labels)
