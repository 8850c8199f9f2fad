"""Pictures of signal propagation. matplotlib is imported only when something is drawn."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from headsmith.core.errors import HeadsmithError
from headsmith.core.pictures import figure_class, save_figure
from headsmith.lab.signal.estimate import Measured, estimate
from headsmith.lab.signal.gain import Gains
from headsmith.lab.signal.residual import Residual, residual
from headsmith.lab.signal.theory import Propagation, Settings, apjn

COLOURS = ("#08519c", "#d94801", "#238b45", "#6a51a3", "#a50f15", "#525252")
INK = "#1b2a3a"
NAMES = {"layernorm": "LayerNorm", "derf": "Derf", "dyt": "DyT"}


def draw_propagation(found: Propagation, path: str | os.PathLike[str]) -> None:
    """q and p, p/q, and J against the block."""
    save_figure(propagation_figure([found]), Path(path))


def propagation_figure(found: Sequence[Propagation]) -> Any:
    """Three panels: q and p; p/q; J to every block, on a logarithmic scale."""
    figure = _figure((14.0, 4.6))
    stream, alike, gradient = figure.subplots(1, 3)
    # What is beyond float64 is drawn by its logarithm.
    beyond = any(float(np.max(np.abs(each.log_J))) > 600.0 for each in found)
    for (label, q, p, log_J), colour in zip(_curves(found), _colours(), strict=False):
        stream.plot(q, color=colour, label=f"q, {label}")
        stream.plot(p, color=colour, linestyle="--")
        alike.plot(p / q, color=colour, label=label)
        gradient.plot(log_J / np.log(10.0) if beyond else np.exp(log_J), color=colour, label=label)
    stream.plot([], [], "--", color=INK, label="p (dashed)")
    stream.set_title("the stream: mean square q and overlap p", fontsize=10)
    alike.set_title("p / q: how alike tokens are", fontsize=10)
    alike.set_ylim(top=1.02)
    if beyond:
        gradient.set_ylabel("log10 J")
    else:
        gradient.set_yscale("log")
    gradient.set_title("gradients: J = |dh at the block / dh at 0|² / (n d)", fontsize=10)
    for axes in (stream, alike, gradient):
        axes.set_xlabel("block")
        _plain(axes)
    figure.suptitle(_setting(found[0].settings), fontsize=10, color=INK)
    return figure


def _curves(found: Sequence[Propagation]) -> list[tuple[str, Any, Any, Any]]:
    curves = []
    for each in found:
        name = NAMES[each.settings.norm]
        for place, alpha in enumerate(each.alphas):
            label = name if name == "LayerNorm" else f"{name}, α = {alpha:g}"
            several = (each.q, each.p, each.log_J)
            q, p, log_J = (array if array.ndim == 1 else array[:, place] for array in several)
            curves.append((label, q, p, log_J))
    return curves


def draw_measured(found: Sequence[Measured], path: str | os.PathLike[str]) -> None:
    """Estimates from random transformers with bars of two standard errors, on the curves of the theory."""
    save_figure(measured_figure(found), Path(path))


def measured_figure(found: Sequence[Measured]) -> Any:
    """Two panels: J from the input to every block; J from every block to the output."""
    figure = _figure((11.0, 4.8))
    from_input, to_output = figure.subplots(1, 2)
    for each, colour in zip(found, _colours(), strict=False):
        settings = each.settings
        name = NAMES[settings.norm]
        label = name if name == "LayerNorm" else f"{name}, α = {settings.alpha:g}"
        blocks = np.arange(settings.depth + 1)
        pairs = (
            (from_input, each.theory.J, each.J, each.J_standard_error),
            (to_output, each.theory.J_to_output, each.J_to_output, each.J_to_output_standard_error),
        )
        for axes, theory, mean, error in pairs:
            axes.plot(blocks, theory, color=colour, linewidth=1.2, label=f"{label}: theory")
            axes.errorbar(blocks, mean, 2.0 * error, fmt="o", color=colour, markersize=3.5, capsize=2, linewidth=0.9)
    from_input.set_title("J from the input to block k", fontsize=10)
    to_output.set_title("J from block k to the output", fontsize=10)
    for axes in (from_input, to_output):
        axes.plot([], [], "o", color=INK, markersize=3.5, label="measured, ± 2 standard errors")
        axes.set_yscale("log")
        axes.set_xlabel("block k")
        _plain(axes)
    first = found[0]
    figure.suptitle(
        f"{_setting(first.settings)}, width {first.width}, {first.networks} networks with {first.probes} probes each",
        fontsize=10,
        color=INK,
    )
    return figure


def draw_residual(found: Sequence[Residual], path: str | os.PathLike[str]) -> None:
    """(log J)^2 against depth, with a dot where the norm begins to saturate."""
    figure = _figure((7.0, 4.8))
    axes = figure.subplots()
    for each, colour in zip(found, _colours(), strict=False):
        axes.plot(each.log_J**2, color=colour, label=f"{NAMES[each.norm]}, α = {each.alpha:g}")
        if each.saturated is not None:
            axes.plot(each.saturated, each.log_J[each.saturated] ** 2, "o", color=colour, markersize=6)
    axes.plot([], [], "o", color=INK, label="α² q = 1")
    axes.set_xlabel("layer")
    axes.set_ylabel("(log J)²")
    axes.set_title("h += W f(h): a straight line is a stretched exponential", fontsize=10)
    _plain(axes)
    save_figure(figure, Path(path))


def draw_gains(found: Gains, path: str | os.PathLike[str]) -> None:
    """The average gain of every layer beside the bound of the largest, where there is one."""
    figure = _figure((7.6, 4.6))
    axes = figure.subplots()
    places = np.arange(len(found.average))
    axes.bar(places - 0.2, found.average, 0.38, color=COLOURS[0], label="average over the inputs (estimate)")
    axes.bar(places + 0.2, found.largest_found, 0.38, color="#9ecae1", label="largest found (estimate)")
    if found.certified is not None:
        axes.hlines(found.certified, places - 0.42, places + 0.42, COLOURS[1], linewidth=2.4, label="certified bound")
    axes.set_yscale("log")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set_xlabel("layers that the stream has passed")
    axes.set_title("|d output / d stream|² / outputs", fontsize=10)
    _plain(axes)
    save_figure(figure, Path(path))


def draw_figures(folder: str | os.PathLike[str], *, networks: int = 6, seed: int = 0) -> list[str]:
    """Draw the figures of the literature into `folder`, which must exist; return the files' names.

    Stream: q, p and p/q through 128 blocks. Gradients: theory against random transformers. Residual: the smallest
    network that shows the stretched exponential.
    """
    place = Path(folder)
    if not place.is_dir():
        raise HeadsmithError(f"{place}: the folder does not exist")
    paths = [place / name for name in ("stream.png", "gradients.png", "residual.png")]
    common: dict[str, Any] = {"depth": 128, "tokens": 197, "p0": 0.4}
    sigmas: dict[str, Any] = {"sigma_o": 0.64, "sigma_v": 0.64, "sigma_1": 0.64, "sigma_2": 1.28}
    found = [apjn("layernorm", **common, **sigmas), apjn("derf", alpha=(0.5, 1.0, 2.0, 4.0), **common, **sigmas)]
    save_figure(propagation_figure(found), paths[0])
    settings = [Settings("layernorm", depth=24, tokens=16, finite_tokens=True)]
    settings += [Settings("derf", alpha, 24, 16, finite_tokens=True) for alpha in (0.5, 1.0, 1.5)]
    draw_measured([estimate(each, width=128, networks=networks, seed=seed) for each in settings], paths[1])
    draw_residual([residual("derf", alpha=alpha) for alpha in (0.5, 1.0, 1.5, 2.0)], paths[2])
    return [str(path) for path in paths]


def _setting(settings: Settings) -> str:
    return (
        f"{settings.depth} blocks, n = {settings.tokens} tokens, a = {settings.attention:.4g}, "
        f"b = {settings.mlp:.4g}, q0 = {settings.q0:g}, p0 = {settings.p0:g}"
    )


def _figure(size: tuple[float, float]) -> Any:
    return figure_class()(figsize=size, layout="constrained", dpi=120)


def _colours() -> list[str]:
    return list(COLOURS) * 8


def _plain(axes: Any) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(colors=INK, labelsize=9)
    axes.grid(alpha=0.25, linewidth=0.5)
    axes.legend(frameon=False, fontsize=8)
