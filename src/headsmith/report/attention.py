"""Where the heads look, head by head, with names that lead back to the target.

one data token          a row for each head: where the token looks, along a line through the domain
several                 a square for each head: who looks at whom, in one random sequence
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from headsmith.compile import Compiled
from headsmith.core.arrays import Array
from headsmith.heads.sink import SinkBank
from headsmith.run.numpy_runner import patterns
from headsmith.transformer.ir import Bank

ROWS = 64
"""How many heads are shown when there is one data token."""

LABELS = 24
"""Up to this many rows each is named; beyond, only the first of a layer is."""

PLACES = 161
"""How many inputs along that line are shown; fewer where there are many heads."""

PANELS = 6
"""How many heads are shown when there are several."""

SEQUENCE = 6
"""How many data tokens are shown at most."""


@dataclass(frozen=True, eq=False)
class HeadPattern:
    """Where one head looks: weights[query token, key token]; token 0 is the reference token."""

    layer: int
    head: int
    gate: str
    weights: Array


@dataclass(frozen=True, eq=False)
class HeadPath:
    """Where the data token looks through one head, input by input: 0 is the first reference token, 1 the token
    itself."""

    layer: int
    head: int
    gate: str
    places: Array


def draw_attention(figure: Any, compiled: Compiled, random: np.random.Generator) -> None:
    """Draw where heads look: along a line through the domain, or, with several tokens, in a random sequence."""
    tokens = min(compiled.transformer.tokens, SEQUENCE)
    box = compiled.box
    if not compiled.transformer.layers:
        axes = figure.subplots()
        axes.set_axis_off()
        axes.text(0.5, 0.5, "no heads:\nthe target is affine on this domain", ha="center", va="center", fontsize=12)
    elif tokens == 1:
        _draw_paths(figure, compiled, head_paths(compiled, _path(compiled), ROWS))
    else:
        inputs = np.clip(random.uniform(box.low, box.high, (tokens, box.size)), box.low, box.high)
        _draw_sequence(figure, head_patterns(compiled, inputs, PANELS), compiled.bill.heads)


def head_patterns(compiled: Compiled, inputs: Array, most: int) -> list[HeadPattern]:
    """The patterns of at most `most` heads on `inputs` (tokens, inputs), spread evenly over all heads of all layers."""
    found = [
        HeadPattern(pattern.layer, head, name, weights)
        for pattern, names in zip(patterns(compiled.transformer, inputs), _all_names(compiled), strict=True)
        for head, (name, weights) in enumerate(zip(names, pattern.weights, strict=True))
    ]
    return [found[index] for index in _spread(len(found), most)]


def head_paths(compiled: Compiled, points: Array, most: int) -> list[HeadPath]:
    """Where the data token of each of `points` (points, inputs) looks, for at most `most` heads of all layers."""
    labels = [
        (layer, head, name) for layer, names in enumerate(_all_names(compiled)) for head, name in enumerate(names)
    ]
    chosen = _spread(len(labels), most)
    looks = []
    for point in points:
        weights = np.concatenate([layer.weights[:, -1] for layer in patterns(compiled.transformer, point[None])])
        looks.append(weights[chosen] @ np.linspace(0.0, 1.0, weights.shape[1]))
    return [HeadPath(*labels[index], places) for index, places in zip(chosen, np.array(looks).T, strict=True)]


def _spread(count: int, most: int) -> list[int]:
    """At most `most` of `count` places, evenly spread."""
    return [int(place) for place in np.unique(np.linspace(0, count - 1, min(most, count)).round())]


def _path(compiled: Compiled) -> Array:
    """Inputs along a line through the box: from near its lowest to near its highest corner, for several inputs.

    The diagonal itself would be special: there x = y, and half the gates of x * y stand still.
    """
    count = PLACES if compiled.bill.heads <= 500 else 31
    low, high = compiled.box.low, compiled.box.high
    if compiled.box.size == 1:
        return np.asarray(np.clip(np.linspace(low, high, count), low, high))
    place, width = np.arange(compiled.box.size), high - low
    first, last = 0.3 * (0.618 * place % 1.0), 0.3 * (0.382 * (place + 1.0) % 1.0)
    return np.asarray(np.clip(np.linspace(low + first * width, high - last * width, count), low, high))


def _all_names(compiled: Compiled) -> list[list[str]]:
    """What the heads compute, layer by layer."""
    return [[name for bank in layer.banks for name in _names(bank)] for layer in compiled.transformer.layers]


def _names(bank: Bank) -> list[str]:
    """What each head computes: a gate of the target's circuit, where the bank has one gate a head."""
    if isinstance(bank, SinkBank):
        return [f"gate {node}[{component}]" for node, component in zip(bank.node, bank.component, strict=True)]
    return [bank.kind] * bank.heads


def _draw_paths(figure: Any, compiled: Compiled, shown: list[HeadPath]) -> None:
    """One data token: a row for each head, light where it looks at the reference token, dark where at itself."""
    axes = figure.subplots()
    box, heads = compiled.box, compiled.bill.heads
    ends = (float(box.low[0]), float(box.high[0])) if box.size == 1 and box.low[0] < box.high[0] else (0.0, 1.0)
    image = axes.imshow(
        np.array([path.places for path in shown]),
        extent=(*ends, len(shown) - 0.5, -0.5),
        cmap="Blues",
        vmin=0.0,
        vmax=1.0,
        aspect="auto",
        interpolation="nearest",
    )
    first = [row for row in range(len(shown)) if not row or shown[row].layer != shown[row - 1].layer]
    for row in first[1:]:
        axes.axhline(row - 0.5, color="white", linewidth=1.6)
        axes.axhline(row - 0.5, color="black", linewidth=0.5)
    if len(shown) <= LABELS:
        axes.set_yticks(range(len(shown)), [f"layer {path.layer}  {path.gate}" for path in shown], fontsize=8)
    else:
        named = first[:: -(-len(first) // LABELS)]
        axes.set_yticks(named, [f"layer {shown[row].layer}" for row in named], fontsize=8)
    axes.set_xlabel(box.names[0] if box.size == 1 else "place on a line from a low to a high corner of the domain")
    which = f"all {heads} heads" if heads == len(shown) else f"{len(shown)} of {heads} heads"
    axes.set_title(f"where the data token looks, {which}")
    bar = figure.colorbar(image, ax=axes, shrink=0.6, ticks=[0.0, 1.0])
    bar.ax.set_yticklabels(["reference\n(gate closed)", "itself\n(gate open)"], fontsize=8)


def _draw_sequence(figure: Any, shown: list[HeadPattern], heads: int) -> None:
    """Several data tokens: a square for each head, query tokens down and key tokens across."""
    columns = min(3, len(shown))
    grid = figure.subplots(-(-len(shown) // columns), columns, squeeze=False)
    names = ["ref", *(f"t{number}" for number in range(len(shown[0].weights) - 1))]
    image = None
    for axes in grid.flat[len(shown) :]:
        axes.set_axis_off()
    for axes, pattern in zip(grid.flat, shown, strict=False):
        image = axes.imshow(pattern.weights, cmap="Blues", vmin=0.0, vmax=1.0)
        axes.set_title(f"layer {pattern.layer}  head {pattern.head}\n{pattern.gate}", fontsize=9)
        axes.set_xticks(range(len(names)), names, fontsize=8)
        axes.set_yticks(range(len(names)), names, fontsize=8)
    figure.supxlabel("key token", fontsize=10)
    figure.supylabel("query token", fontsize=10)
    figure.suptitle(f"attention on one random sequence, {len(shown)} of {heads} heads", fontsize=12)
    figure.colorbar(image, ax=grid, label="attention weight", shrink=0.6)
