"""The error of a given network over one input or two, with the cells of its proof."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from headsmith.core.pictures import figure_class
from headsmith.prove.given import Comparison, Outcome, attained

POINTS = 241


def drawn(asked: Comparison, outcome: Outcome, error: float, names: Sequence[str]) -> Any:
    """A figure: a curve under its bound for one input, colours and cells for two; beyond, a slice through the worst."""
    box, figure = asked.box, figure_class()(figsize=(6.4, 4.8), layout="constrained")
    axes = figure.add_subplot()
    wide = [int(place) for place in np.flatnonzero(box.high > box.low)]
    first = wide[0] if wide else 0
    ticks = np.linspace(box.low[first], box.high[first], 1001 if len(wide) < 2 else POINTS)
    if len(wide) < 2:
        points = np.repeat(outcome.place[None], len(ticks), axis=0)
        points[:, first] = ticks
        axes.plot(ticks, attained(asked, points), color="tab:blue", label="error")
        axes.axhline(error, color="tab:red", label=f"proven: {error:.3g}")
        for end in np.unique(outcome.leaves.low[first]):
            axes.axvline(end, color="0.85", linewidth=0.6, zorder=0)
        axes.plot(outcome.place[first], outcome.found, "k.", label=f"found: {outcome.found:.3g}")
        axes.set(xlabel=names[first], ylabel="|network - function|")
        axes.legend()
        return figure
    second = wide[1]
    others = np.linspace(box.low[second], box.high[second], POINTS)
    grid = np.repeat(outcome.place[None], POINTS * POINTS, axis=0)
    grid[:, first], grid[:, second] = np.tile(ticks, POINTS), np.repeat(others, POINTS)
    sizes = np.concatenate([attained(asked, part) for part in np.array_split(grid, 16)]).reshape(POINTS, POINTS)
    shown = axes.pcolormesh(ticks, others, sizes, cmap="viridis", shading="nearest", rasterized=True)
    figure.colorbar(shown, ax=axes, label="|network - function|")
    for low, high in zip(outcome.leaves.low.T, outcome.leaves.high.T, strict=True):
        rest = [place for place in wide if place not in (first, second)]
        if all(low[place] <= outcome.place[place] <= high[place] for place in rest):
            size = high[first] - low[first], high[second] - low[second]
            _rectangle(axes, (low[first], low[second]), size)
    axes.plot(outcome.place[first], outcome.place[second], "r+", markersize=10)
    axes.set(xlabel=names[first], ylabel=names[second])
    axes.set_title(f"proven {error:.3g}, found {outcome.found:.3g} (+)", fontsize=10)
    return figure


def _rectangle(axes: Any, corner: tuple[float, float], size: tuple[float, float]) -> None:
    """The outline of a cell."""
    (x, y), (width, height) = corner, size
    axes.plot([x, x + width, x + width, x, x], [y, y, y + height, y + height, y], color="white", linewidth=0.4)
