"""Three pictures: error against steps, error against size, error against weight. matplotlib is imported only here."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np

from headsmith.core import figures
from headsmith.core.arrays import Array
from headsmith.core.pictures import checked_picture, figure_class, save_figure

if TYPE_CHECKING:
    from headsmith.lab.training.laws import Tables
    from headsmith.lab.training.result import Training

RANDOM, KEPT, NEAR, PROVEN, KNOWN = "#6baed6", "#d94801", "#74c476", "#222222", "#756bb1"


def draw_training(training: Training, file: str | os.PathLike[str]) -> None:
    """Error against steps: runs from random weights, from the built ones and from near them, one panel each, with the
    certified error as a line and the predicted kick as a mark."""
    path = checked_picture(file)
    starts = list(dict.fromkeys(run.start for run in training.runs))
    figure = figure_class()(figsize=(1.0 + 4.4 * len(starts), 4.6), layout="constrained", dpi=120)
    figure.suptitle(f"{training.case.target}: {training.case.parameters} weights, built and trained", fontsize=12)
    axes = figure.subplots(1, len(starts), sharey=True, squeeze=False)[0]
    for axis, start in zip(axes, starts, strict=True):
        _draw_start(axis, training, start)
    axes[0].set_ylabel("largest error on training points (thin: root mean square)")
    save_figure(figure, path)


TITLES = {
    "random": "from random weights",
    "compiled": "from the built weights",
    "perturbed": "from near the built weights",
}


def _draw_start(axis: Any, training: Training, start: str) -> None:
    runs = [run for run in training.runs if run.start == start]
    colours = {"random": RANDOM, "compiled": KEPT, "perturbed": NEAR}
    for place, run in enumerate(runs):
        colour = colours[start] if start != "compiled" else colour_of(place)
        label = f"{run.method}" + (f", rate {run.rate:g}" if run.rate else "") if start == "compiled" else None
        steps = run.curve[:, 0] + 1.0 if start == "compiled" else stretched(run.curve[:, 0], training.settings["steps"])
        axis.plot(steps, run.curve[:, 2], color=colour, linewidth=1.4, label=label)
        axis.plot(steps, run.curve[:, 1], color=colour, linewidth=0.5, alpha=0.6)
    if training.error > 0.0:
        axis.axhline(
            training.error,
            color=PROVEN,
            linestyle="--",
            linewidth=1.2,
            label=f"certified {figures.bound(training.error, 3)}",
        )
    adam = training.settings["steps"]
    if start != "compiled":
        ends = [float(stretched(run.curve[:, 0], adam)[-1]) for run in runs]
        axis.axvspan(adam, max(ends), color="#eeeeee", label="Levenberg-Marquardt, norms")
    elif training.kick is not None:
        for place, move in enumerate(training.kick.moves.values()):
            axis.plot(
                [2.0],
                [move],
                marker="x",
                color=colour_of(place + 1),
                markersize=8,
                markeredgewidth=2,
                linestyle="none",
                label="predicted kick" if place == 0 else None,
            )
    axis.set_yscale("log")
    if start == "compiled":
        axis.set_xscale("log")
    axis.set_title(TITLES[start], fontsize=10)
    axis.set_xlabel("step + 1" if start == "compiled" else "step of Adam, then iterations, drawn wider")
    axis.grid(alpha=0.3, which="major")
    axis.legend(fontsize=7, loc="best")


def stretched(steps: Array, adam: int) -> Array:
    """Steps for an axis on which all iterations after Adam's steps take a third of the room."""
    after = np.maximum(steps - adam, 0.0)
    return np.asarray(np.minimum(steps, adam) + after * (0.5 * adam / max(1.0, float(after[-1]))))


def colour_of(place: int) -> str:
    """The colour of the runs from built weights: the polish, then rates from large to small."""
    return ("#238b45", "#7f2704", "#d94801", "#fdae6b")[place % 4]


def draw_law(tables: Tables, law: float, file: str | os.PathLike[str]) -> None:
    """Error against the range of values along training of x^2 with two tokens, with its law as a line."""
    path = checked_picture(file)
    figure = figure_class()(figsize=(6.4, 4.6), layout="constrained", dpi=120)
    axis = figure.subplots()
    for run in range(tables.path.shape[1]):
        axis.plot(tables.path[:, run, 1], tables.path[:, run, 0], ".-", linewidth=0.6, markersize=3, label=f"run {run}")
    values = np.geomspace(1.0, float(tables.path[..., 1].max()) * 1.5, 50)
    axis.plot(values, law / values, "--", color="#222222", label="law: E V = sqrt(3) / 8")
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xlabel("range of values V")
    axis.set_ylabel("largest error E")
    axis.set_title(
        f"x^2 on [-1, 1], two tokens: {figures.number(tables.path.shape[0])} checkpoints of each run", fontsize=10
    )
    axis.grid(alpha=0.3)
    axis.legend(fontsize=8)
    save_figure(figure, path)
