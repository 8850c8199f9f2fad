"""The rows of a plan as a picture: heads and layers against the error, and reference tokens against the weights.

matplotlib is imported only when a picture is drawn.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

from headsmith.core.figures import count
from headsmith.core.pictures import figure_class, save_figure
from headsmith.plan.rows import Row

RECIPES = {
    "relu": ("#d94801", "s", "relu recipe: a head for each gate"),
    "native": ("#08519c", "o", "native heads"),
    "ramp": ("#238b45", "^", "ramps on a grid of tokens"),
    "maxout": ("#6a51a3", "D", "one token for each piece"),
    "swiglu": ("#969696", "P", "neurons of SwiGLU blocks"),
}
"""The colour, the mark and the words for each recipe."""

OTHER = ("#444444", "v")
SHADES = ("#fd8d3c", "#41ab5d", "#2171b5", "#6a51a3", "#252525")
MARKERS = ("o", "D", "^", "v", "P", "X")


def draw_plan(rows: Sequence[Row], path: str | os.PathLike[str], title: str = "") -> None:
    """Draw the rows into `path` (.png, .svg or .pdf), completely or not at all."""
    figure = figure_class()(figsize=(12.5, 5.4), layout="constrained", dpi=120)
    figure.suptitle(title or "certified models", fontsize=12)
    left, right = figure.subplots(1, 2)
    _draw_sizes(left, rows)
    _draw_trade(right, rows)
    save_figure(figure, Path(path))


def _draw_sizes(axes: Any, rows: Sequence[Row]) -> None:
    """The cheapest row of each recipe at each error."""
    errors = sorted({row.error for row in rows}, reverse=True)
    for recipe in sorted({row.recipe for row in rows}, key=_rank):
        colour, marker, label = RECIPES.get(recipe, (*OTHER, recipe))
        points = []
        for error in errors:
            best = next((row for row in rows if row.error == error and row.recipe == recipe), None)
            if best is not None:
                points.append((error, max(best.bill.heads * best.bill.layers, 1), best.bill))
        axes.plot([p[0] for p in points], [p[1] for p in points], marker=marker, color=colour, label=label)
        for error, size, bill in points:
            text = f"{bill.layers} x {bill.heads}"
            axes.annotate(text, (error, size), xytext=(0, 7), textcoords="offset points", ha="center", fontsize=8)
    axes.set(xscale="log", yscale="log", xlabel="asked error", ylabel="layers x heads")
    axes.invert_xaxis()
    axes.margins(0.12, 0.18)
    axes.grid(alpha=0.25)
    axes.legend(frameon=False)
    axes.set_title("size against error, the cheapest model of each recipe", fontsize=10)


def _draw_trade(axes: Any, rows: Sequence[Row]) -> None:
    """Reference tokens against the largest weight; filled where nothing beats the row, linked where layers and heads
    are the same."""
    errors = sorted({row.error for row in rows}, reverse=True)
    shown = [row for row in rows if row.recipe != "relu"]
    sizes = sorted({(row.bill.layers, row.bill.heads) for row in shown})
    for index, error in enumerate(errors):
        shade = SHADES[min(index, len(SHADES) - 1)]
        for size, marker in zip(sizes, cycle(MARKERS), strict=False):
            mine = [row for row in shown if row.error == error and (row.bill.layers, row.bill.heads) == size]
            front = sorted((row.bill.reference_tokens, row.bill.max_weight) for row in mine if row.pareto)
            if len(front) > 1:
                axes.plot(*zip(*front, strict=True), color=shade, linewidth=1.0, alpha=0.6)
            for row in sorted(mine, key=lambda row: row.pareto):
                face = shade if row.pareto else "white"
                place = (row.bill.reference_tokens, row.bill.max_weight)
                axes.plot(*place, marker, markersize=7, markerfacecolor=face, markeredgecolor=shade, zorder=3)
        axes.plot([], [], "s", color=shade, label=f"error {error:g}", linestyle="none")
    for size, marker in zip(sizes, cycle(MARKERS), strict=False):
        label = f"{count(size[0], 'layer')}, {count(size[1], 'head')}"
        axes.plot([], [], marker, color="#444444", markerfacecolor="none", linestyle="none", label=label)
    axes.set_title("the others: reference tokens against weights (filled: nothing beats it)", fontsize=10)
    if not shown:
        axes.set_axis_off()
        axes.text(0.5, 0.5, "none: ReLU gates\ndo it all", transform=axes.transAxes, ha="center", va="center")
        return
    axes.set(xscale="log", yscale="log", xlabel="reference tokens", ylabel="largest weight")
    axes.margins(0.12, 0.18)
    tokens = [row.bill.reference_tokens for row in shown]
    if min(tokens):
        _readable(axes.xaxis, tokens)
    else:  # one token for each piece needs none
        axes.set_xscale("symlog")
    _readable(axes.yaxis, [row.bill.max_weight for row in shown])
    axes.grid(alpha=0.25)
    axes.legend(frameon=False, fontsize=9)


def _rank(recipe: str) -> int:
    return list(RECIPES).index(recipe) if recipe in RECIPES else len(RECIPES)


def _readable(axis: Any, values: Sequence[float]) -> None:
    """Plain numbers at 1, 2 and 5 times powers of ten, or at powers of ten alone where there are many."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    wide = bool(values) and max(values) > 300.0 * min(values)
    axis.set_major_locator(LogLocator(subs=(1.0,) if wide else (1.0, 2.0, 5.0)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
