"""Pictures of a compiled model: its error over the domain against the certified bound, and how it attends to one input.

    one input        target and model; their difference inside the certified band
    two inputs       the target and the error as maps
    more             the error along segments through the worst point found; how errors are distributed
    sequences        the worst sequence found, token by token (report/sequence_plots.py)

matplotlib is imported only here, and only when a picture is drawn.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from headsmith.core.arrays import Array
from headsmith.core.errors import TargetError
from headsmith.core.figures import bound, count
from headsmith.core.figures import found as rounded_down
from headsmith.core.pictures import checked_picture, figure_class, save_figure
from headsmith.files import Model, model_of
from headsmith.language.describe import outputs_text
from headsmith.language.evaluation import evaluate
from headsmith.model import Compiled
from headsmith.report.attention import draw_attention
from headsmith.report.falsify import Found, errors_at, falsify
from headsmith.report.kinks import crossings, kinks_of
from headsmith.report.sequence_plots import draw_sequence_model
from headsmith.sequence.approximate import Approximation
from headsmith.sequence.compiled import CompiledSequence
from headsmith.sequence.universal import Universal

SIDE = 240
"""Pixels of a map along each side."""

MOST_OUTPUTS = 6
"""How many outputs fit into a picture."""

TARGET, MODEL, ERROR, BOUND = "#9ecae1", "#08519c", "#d94801", "#444444"


def plot(
    model: Model | Approximation | str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    outputs: int | Sequence[int] | None = None,
    found: Found | None = None,
    effort: int = 2000,
    seed: int = 0,
) -> Found:
    """Draw a model, or the model saved under a path, into the file `output` (.png, .svg or .pdf), completely or not at
    all: target and transformer, their difference beside the certified error, and where the heads look.

    `outputs` says which outputs are drawn, counted from 0: one, or several; without it, the one that errs most. Returns
    the worst input that is shown: `found` is the outcome of an earlier `hs.falsify`, and without it one is made, of
    `effort` runs. Needs matplotlib: pip install "headsmith[plot]".
    """
    path = checked_picture(output)
    drawn = model_of(model)
    chosen = _chosen(outputs, len(drawn.certificate.outputs))
    found = found or falsify(drawn, effort=effort, seed=seed)
    save_figure(draw(drawn, found, np.random.default_rng(seed), chosen), path)
    return found


def _chosen(outputs: int | Sequence[int] | None, count: int) -> tuple[int, ...]:
    """Which outputs are drawn; none stands for the worst one."""
    if outputs is None:
        return ()
    given: list[Any] = list(outputs) if isinstance(outputs, Sequence | np.ndarray) else [outputs]
    for each in given:
        if isinstance(each, bool) or not isinstance(each, int | np.integer) or not 0 <= each < count:
            raise TargetError(f"there is no output {each!r}: the model has {count}, counted from 0")
    if not given or len(given) > MOST_OUTPUTS:
        raise TargetError(f"{len(given)} outputs; choose 1 to {MOST_OUTPUTS} of them")
    return tuple(map(int, given))


def draw(model: Model, found: Found, random: np.random.Generator, outputs: Sequence[int] = ()) -> Any:
    """The picture as a matplotlib figure: of these outputs, or of the worst one."""
    outputs = tuple(outputs) or (found.output,)
    certificate, cost = model.certificate, model.bill
    neurons = f" and {count(cost.neurons, 'neuron')}" if cost.neurons else ""
    sequences = isinstance(model, CompiledSequence | Universal)
    inputs = 0 if sequences or not np.all(model.box.low < model.box.high) else model.box.size
    maps = inputs == 2
    size = (16.5, 0.6 + 4.6 * len(outputs)) if maps else (13.5, 7.0 if sequences else 6.0)
    figure = figure_class()(figsize=size, layout="constrained", dpi=120)
    figure.suptitle(
        f"{_title(model)}\ncertified error {bound(certificate.error)}    worst error found {rounded_down(found.error)}"
        f"    {count(cost.heads, 'head')}{neurons} in {count(cost.layers, 'layer')}, {certificate.dtype}",
        fontsize=12,
    )
    left, right = figure.subfigures(1, 2, width_ratios=(1.0, 0.5) if maps else (1.0, 0.9), wspace=0.03)
    if isinstance(model, CompiledSequence | Universal):
        draw_sequence_model(left, right, model, found, random, outputs)
        return figure
    match inputs:
        case 1:
            _draw_curves(left, model, random, outputs)
        case 2:
            rows = left.subfigures(len(outputs), 1, squeeze=False)[:, 0]
            for row, output in zip(rows, outputs, strict=True):
                _draw_maps(row, model, found, output)
        case _:
            _draw_segments(left, model, found, random, outputs if len(outputs) < len(certificate.outputs) else ())
    draw_attention(right, model, random)
    return figure


def _title(model: Model) -> str:
    """The target as a formula, where it is short."""
    if isinstance(model, Universal):
        return f"a callable of sequences of {count(model.tokens, 'token')}, sampled"
    return outputs_text(model.wanted, 100)


def _output(compiled: Compiled, output: int) -> str:
    return "output" if compiled.transformer.outputs == 1 else f"output {output}"


def _run(compiled: Compiled, points: Array) -> Array:
    """The model's outputs (points, outputs), each point a sequence of one token."""
    sequences = points[:, None] if compiled.transformer.tokens > 1 else points
    return compiled(sequences).reshape(len(points), -1)


def _draw_curves(figure: Any, compiled: Compiled, random: np.random.Generator, outputs: Sequence[int]) -> None:
    """One input: the functions above, their difference below."""
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(1.0, 1.0))
    points = _curve_points(compiled, random)
    targets, models = evaluate(compiled.wanted, points, np.longdouble), _run(compiled, points)
    largest = max(compiled.certificate.outputs[output] for output in outputs)
    for place, output in enumerate(outputs):
        target, model, certified = targets[:, output], models[:, output], compiled.certificate.outputs[output]
        many, which = len(outputs) > 1, f" {output}" if len(outputs) > 1 else ""
        light, dark, error = (f"C{place}",) * 3 if many else (TARGET, MODEL, ERROR)
        alpha = 0.35 if many else 1.0
        above.plot(points[:, 0], target, color=light, alpha=alpha, linewidth=5.0, label=f"target{which}")
        above.plot(points[:, 0], model, color=dark, linewidth=1.2, label=f"transformer{which}")
        if place == 0:
            below.axhspan(-largest, largest, color="#eeeeee", zorder=0)
        below.axhline(
            certified, color=BOUND, linewidth=0.8, linestyle="--", label=f"certified{which}: {bound(certified)}"
        )
        below.axhline(-certified, color=BOUND, linewidth=0.8, linestyle="--")
        shown = f"transformer − target{which}"
        below.plot(points[:, 0], (model - target).astype(float), color=error, linewidth=1.0, label=shown)
    above.set_ylabel(_output(compiled, outputs[0]) if len(outputs) == 1 else "outputs")
    above.legend(framealpha=0.85, edgecolor="none")
    above.set_title("target and transformer")
    below.set_ylim(-1.25 * largest or -1.0, (1.15 + 0.3 * len(outputs)) * largest or 1.0)
    below.set_xlabel(compiled.box.names[0])
    below.legend(frameon=False, loc="upper right", ncols=2)
    below.set_title("error")
    below.ticklabel_format(axis="y", style="sci", scilimits=(-2, 3), useMathText=True)
    for axes in (above, below):
        _plain(axes)


def _curve_points(compiled: Compiled, random: np.random.Generator) -> Array:
    """An even grid, and points around every kink: the error is confined to a width of about one over the scale."""
    low, high = compiled.box.low, compiled.box.high
    grid = np.linspace(low, high, 2001)
    kinks = kinks_of(compiled)
    ends = np.linspace(low, high, 65)
    found = [grid]
    for multiple in (0.0, 0.3, 0.6, 1.0, 1.6, 2.5, 4.0, 7.0) if len(kinks) else ():
        found.append(crossings(kinks, ends[:-1], ends[1:], 1024, random, multiple))
    return np.unique(np.clip(np.concatenate(found), low, high), axis=0)


def _draw_maps(figure: Any, compiled: Compiled, found: Found, worst: int) -> None:
    """Two inputs: the target and the error, as maps."""
    left, right = figure.subplots(1, 2)
    box = compiled.box
    certified = compiled.certificate.outputs[worst]
    points = _grid(box.low, box.high, SIDE, SIDE)
    target = evaluate(compiled.wanted, points.reshape(-1, 2))[:, worst].reshape(SIDE, SIDE)
    shown = left.imshow(target, cmap="viridis", **_placed(box.low, box.high))
    figure.colorbar(shown, ax=left, label=_output(compiled, worst), shrink=0.8)
    left.set_title("target")
    everywhere = compiled.certificate.parts["approximation"] > 0.1 * certified
    low, high = (_window if everywhere else _kink_window)(compiled, found, worst)
    errors = _errors(compiled, _grid(low, high, SIDE, SIDE).reshape(-1, 2), worst).reshape(SIDE, SIDE)
    # Far inside the box all numbers on the axes would look alike: count from the worst point there.
    origin = found.input if np.all(high - low < 1e-2 * (box.high - box.low)) else np.zeros(2)
    if everywhere:
        # Approximation errs everywhere: its sign and size are what there is to see.
        shown = right.imshow(
            errors, cmap="RdBu_r", vmin=-certified, vmax=certified, **_placed(low - origin, high - origin)
        )
        bar = figure.colorbar(shown, ax=right, ticks=[-certified, 0.0, certified], shrink=0.8)
        bar.ax.set_yticklabels([f"−{bound(certified)}\n(certified)", "0", f"{bound(certified)}\n(certified)"])
    else:
        # Softmax errs beside kinks only, and by orders of magnitude less elsewhere.
        share = np.clip(np.abs(errors) / certified, 1e-6, None)
        shown = right.imshow(share, cmap="magma", norm=_log_scale(1e-6, 1.0), **_placed(low - origin, high - origin))
        figure.colorbar(shown, ax=right, label=f"|error| / certified ({bound(certified)})", extend="min", shrink=0.8)
    ring = {"markersize": 9, "fillstyle": "none", "markeredgewidth": 1.4, "clip_on": False, "zorder": 5}
    if np.all((low <= found.input) & (found.input <= high)):
        right.plot(*(found.input - origin), "o", color="black" if everywhere else "white", **ring)
        right.plot(*(found.input - origin), "o", color="white" if everywhere else "black", **{**ring, "markersize": 11})
    times = float(np.max((box.high - box.low) / (high - low)))
    right.set_title(f"error{f', {times:,.0f} times magnified' if times > 1.0 else ''} (ring: worst point found)")
    for axes, start in ((left, np.zeros(2)), (right, origin)):
        axes.set_xlabel(_from(box.names[0], start[0]))
        axes.locator_params(nbins=5)
    left.set_ylabel(box.names[1])
    if origin.any():
        right.set_ylabel(_from(box.names[1], origin[1]))
        right.ticklabel_format(style="sci", scilimits=(-2, 3), useMathText=True)


def _from(name: str, start: float) -> str:
    """The name of an axis that counts from `start`."""
    return name if start == 0.0 else f"{name} {'−' if start > 0.0 else '+'} {abs(start):.6g}"


def _grid(low: Array, high: Array, columns: int, rows: int) -> Array:
    """Points of a rectangle, (rows, columns, 2)."""
    xs, ys = np.linspace(low[0], high[0], columns), np.linspace(low[1], high[1], rows)
    return np.asarray(np.clip(np.stack(np.meshgrid(xs, ys), axis=-1), low, high))


def _placed(low: Array, high: Array) -> dict[str, Any]:
    """How a map is laid over its rectangle; true to shape, where that is not too long."""
    width, height = high - low
    return {
        "extent": (low[0], high[0], low[1], high[1]),
        "origin": "lower",
        "aspect": "equal" if 1 / 3 <= width / height <= 3 else "auto",
    }


def _errors(compiled: Compiled, points: Array, output: int) -> Array:
    """model - target at `points`, for one output."""
    target = evaluate(compiled.wanted, points, np.longdouble)[:, output]
    return np.asarray(_run(compiled, points)[:, output] - target, dtype=np.float64)


def _window(compiled: Compiled, found: Found, output: int) -> tuple[Array, Array]:
    """The whole box, or as much around the worst point as can be seen: where pixels are wider than the error's waves a
    map shows patterns that are not there."""
    low, high = compiled.box.low, compiled.box.high
    for _ in range(5):
        middle = found.input
        across = np.vstack(
            [
                _grid(np.array([low[0], middle[1]]), np.array([high[0], middle[1]]), SIDE, 1)[0],
                _grid(np.array([middle[0], low[1]]), np.array([middle[0], high[1]]), 1, SIDE)[:, 0],
            ]
        )
        steps = np.abs(np.diff(_errors(compiled, across, output).reshape(2, SIDE)))
        if np.mean(steps) <= 0.12 * compiled.certificate.outputs[output]:
            break
        half = 0.125 * (high - low)
        centre = np.clip(middle, low + half, high - half)
        low, high = np.maximum(centre - half, low), np.minimum(centre + half, high)
    return low, high


def _kink_window(compiled: Compiled, found: Found, output: int) -> tuple[Array, Array]:
    """The whole box, or as little around the worst point as makes the error beside kinks visible."""
    low, high = compiled.box.low, compiled.box.high
    certified = compiled.certificate.outputs[output]
    for _ in range(24):
        middle = np.clip(found.input, low, high)
        across = np.vstack(
            [
                _grid(np.array([low[0], middle[1]]), np.array([high[0], middle[1]]), SIDE, 1)[0],
                _grid(np.array([middle[0], low[1]]), np.array([middle[0], high[1]]), 1, SIDE)[:, 0],
            ]
        )
        if np.mean(np.abs(_errors(compiled, across, output)) > 1e-3 * certified) >= 0.04:
            return low, high
        half = 0.125 * (high - low)
        centre = np.clip(found.input, low + half, high - half)
        low, high = np.maximum(centre - half, low), np.minimum(centre + half, high)
    return compiled.box.low, compiled.box.high


def _log_scale(low: float, high: float) -> Any:
    from matplotlib.colors import LogNorm

    return LogNorm(low, high)


def _draw_segments(
    figure: Any, compiled: Compiled, found: Found, random: np.random.Generator, outputs: Sequence[int]
) -> None:
    """Many inputs: the error along segments through the worst point, and its distribution over the box, of some outputs
    or of all."""
    above, below = figure.subplots(2, 1)
    columns = list(outputs) or list(range(compiled.transformer.outputs))
    certified = max(compiled.certificate.outputs[output] for output in columns)
    places = np.union1d(np.linspace(-1.0, 1.0, 51), np.concatenate([-_near(), _near()]))
    floor = certified
    for number_ in range(3):
        ends = random.uniform(compiled.box.low, compiled.box.high, (2, compiled.box.size))
        path = np.where(places[:, None] < 0.0, ends[0], ends[1]) - found.input
        points = np.clip(found.input + np.abs(places)[:, None] * path, compiled.box.low, compiled.box.high)
        errors = np.maximum(errors_at(compiled, points)[:, columns].max(axis=1), 1e-18)
        floor = min(floor, float(np.quantile(errors, 0.02)))
        above.plot(places, errors, linewidth=1.0, color=ERROR, alpha=1.0 - 0.3 * number_)
    above.set_xscale("symlog", linthresh=1e-6, linscale=0.3)
    above.set_xticks([-1, -1e-3, 0, 1e-3, 1])
    above.set_xlabel("place on the segment: 0 is the worst point found, ±1 lie elsewhere in the box")
    above.set_title("largest |error| along three broken lines through the worst point")
    samples = 300 if compiled.bill.heads > 1000 else 2000
    inside = random.uniform(compiled.box.low, compiled.box.high, (samples, compiled.box.size))
    errors = np.maximum(errors_at(compiled, inside)[:, columns].max(axis=1), 1e-18)
    edges = np.geomspace(min(float(errors.min()), floor, 0.1 * certified), certified, 56)
    below.hist(errors, bins=edges, color=TARGET, edgecolor="white", linewidth=0.4)
    below.set_xscale("log")
    below.axvline(found.error, color=ERROR, linewidth=1.4, label=f"worst found: {rounded_down(found.error)}")
    below.axvline(certified, color=BOUND, linewidth=1.2, linestyle="--", label=f"certified: {bound(certified)}")
    below.set_xlabel("largest |error| of an input")
    below.set_ylabel(f"of {samples} random inputs")
    below.legend(loc="upper center", framealpha=1.0, edgecolor="none")
    below.set_title("how errors are distributed over the domain")
    above.set_yscale("log")
    above.axhline(certified, color=BOUND, linewidth=1.0, linestyle="--")
    above.set_ylim(floor / 3.0, 5.0 * certified)
    above.set_ylabel("|error|")
    for axes in (above, below):
        _plain(axes)


def _near() -> Array:
    return np.geomspace(1e-7, 1.0, 50)


def _plain(axes: Any) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.2, linewidth=0.6)
