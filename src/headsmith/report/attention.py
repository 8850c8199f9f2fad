"""Where the heads look, head by head, with names that lead back to the target.

one data token, few heads   a panel for each head: how the token's attention is divided, along a line through the domain
one data token, many        a row for each head: where the token looks, along that line
several                     a map for each head: whom the data tokens look at, in one random sequence
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from headsmith.core.arrays import Array
from headsmith.core.figures import shortened
from headsmith.inside.meanings import Meanings
from headsmith.model import Compiled
from headsmith.report.shares import PANELS, draw_shares
from headsmith.run.numpy_runner import patterns
from headsmith.transformer.heads.sink import SinkBank

ROWS = 64
"""How many heads are shown when there is one data token."""

LABELS = 24
"""Up to this many rows each is named; beyond, only the first of a layer is."""

PLACES = 161
"""How many inputs along that line are shown; fewer where there are many heads."""

WIDE = 40
"""Up to so many tokens all are shown."""

LETTERS = {1: 72, 2: 34, 3: 22}
"""How long a head's name may be above its map, by the number of maps in a row; as many letters fit below it."""

ROW_LETTERS = 34
"""How long a head's name may be beside its row."""

SEQUENCE = 6
"""How many data tokens are shown at most."""


@dataclass(frozen=True, eq=False)
class HeadPattern:
    """Where one head looks: weights[query token, key token]; reference tokens come first."""

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
        draw_text(figure, "no heads:\nan affine map is within the error")
    elif not compiled.bill.heads:
        draw_text(figure, f"no heads:\n{compiled.bill.neurons} neurons in SwiGLU blocks")
    elif compiled.blocks or (tokens == 1 and _few_and_not_gates_alone(compiled)):
        draw_shares(figure, compiled, _path(compiled))
    elif tokens == 1:
        _draw_paths(figure, compiled, head_paths(compiled, _path(compiled), ROWS))
    else:
        inputs = np.clip(random.uniform(box.low, box.high, (tokens, box.size)), box.low, box.high)
        shown = head_patterns(compiled, inputs, PANELS)
        draw_patterns(figure, shown, compiled.transformer.reference_tokens, compiled.bill.heads)


def _few_and_not_gates_alone(compiled: Compiled) -> bool:
    banks = [bank for layer in compiled.transformer.layers for bank in layer.banks]
    return compiled.bill.heads <= PANELS and not all(isinstance(bank, SinkBank) for bank in banks)


def draw_text(figure: Any, text: str) -> None:
    """Words in place of a picture."""
    axes = figure.subplots()
    axes.set_axis_off()
    axes.text(0.5, 0.5, text, ha="center", va="center", fontsize=12)


def head_patterns(compiled: Compiled, inputs: Array, most: int, causal: bool = False) -> list[HeadPattern]:
    """The patterns of at most `most` heads on `inputs` (tokens, inputs), spread evenly over all heads of all layers."""
    seen = patterns(compiled.transformer, inputs, causal=causal)
    found = [
        HeadPattern(pattern.layer, head, name, weights)
        for pattern, names in zip(seen, Meanings(compiled).heads, strict=True)
        for head, (name, weights) in enumerate(zip(names, pattern.weights, strict=True))
    ]
    return [found[index] for index in spread(len(found), most)]


def head_paths(compiled: Compiled, points: Array, most: int) -> list[HeadPath]:
    """Where the data token of each of `points` (points, inputs) looks, for at most `most` heads of all layers."""
    labels = [
        (layer, head, name) for layer, names in enumerate(Meanings(compiled).heads) for head, name in enumerate(names)
    ]
    chosen = spread(len(labels), most)
    looks = []
    for point in points:
        weights = np.concatenate([layer.weights[:, -1] for layer in patterns(compiled.transformer, point[None])])
        looks.append(weights[chosen] @ np.linspace(0.0, 1.0, weights.shape[1]))
    return [HeadPath(*labels[index], places) for index, places in zip(chosen, np.array(looks).T, strict=True)]


def spread(count: int, most: int) -> list[int]:
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


def _all_of(heads: int) -> str:
    return "the only head" if heads == 1 else f"{'both' if heads == 2 else f'all {heads}'} heads"


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
        axes.set_yticks(range(len(shown)), [_row_text(path) for path in shown], fontsize=8)
    else:
        named = first[:: -(-len(first) // LABELS)]
        axes.set_yticks(named, [f"layer {shown[row].layer + 1}" for row in named], fontsize=8)
    axes.set_xlabel(box.names[0] if box.size == 1 else "place on a line through the domain")
    which = _all_of(heads) if heads == len(shown) else f"{len(shown)} of {heads} heads"
    figure.suptitle(f"where the data token looks, {which}", fontsize=12)
    bar = figure.colorbar(image, ax=axes, shrink=0.6, ticks=[0.0, 1.0])
    labels = ["reference\n(gate closed)", "itself\n(gate open)"]
    if compiled.transformer.grid_tokens:
        labels = ["first\nreference", "last, or\nitself"]
    bar.ax.set_yticklabels(labels, fontsize=8)


def _row_text(path: HeadPath) -> str:
    """A head's name, without the function whose circuit it belongs to."""
    return f"layer {path.layer + 1}  {shortened(path.gate.partition(' (part of')[0], ROW_LETTERS)}"


def draw_patterns(figure: Any, shown: list[HeadPattern], references: int, heads: int) -> None:
    """Several data tokens: a map for each head shown of all `heads`, data tokens down and all tokens across; of many
    reference tokens, those that somebody looks at."""
    columns = min(3, len(shown))
    grid = figure.subplots(-(-len(shown) // columns), columns, squeeze=False)
    data = shown[0].weights.shape[1] - references
    rows = [f"t{number}" for number in range(data)]
    across = ["ref" if references == 1 else f"r{number}" for number in range(references)] + rows
    down = range(0, data, -(-data // 20))
    strongest = max(float(pattern.weights[-data:].max()) for pattern in shown)
    image = None
    for axes in grid.flat[len(shown) :]:
        axes.set_axis_off()
    for axes, pattern in zip(grid.flat, shown, strict=False):
        weights = pattern.weights[-data:]
        seen = (weights.max(axis=0) > 1e-3) | (np.arange(len(across)) >= (references if len(across) > WIDE else 0))
        kept = np.flatnonzero(seen)
        image = axes.imshow(weights[:, kept], cmap="Blues", vmin=0.0, vmax=strongest, aspect="auto")
        if references:
            axes.axvline(np.searchsorted(kept, references) - 0.5, color="#d94801", linewidth=0.8)
        name = shortened(pattern.gate, LETTERS[columns])
        axes.set_title(f"layer {pattern.layer + 1}  head {pattern.head}\n{name}", fontsize=9)
        labels = [across[place] for place in kept]
        places = range(0, len(kept), max(1, -(-sum(len(label) + 1 for label in labels) // (LETTERS[columns] + 8))))
        axes.set_xticks(places, [labels[place] for place in places], fontsize=8)
        axes.set_yticks(down, [rows[place] for place in down], fontsize=8)
    figure.supxlabel("token that is looked at" + (" (r: reference)" if references > 1 else ""), fontsize=10)
    figure.supylabel("data token that looks", fontsize=10)
    which = _all_of(heads) if heads == len(shown) else f"{len(shown)} of {heads} heads"
    figure.suptitle(f"attention on one sequence, {which}", fontsize=12)
    figure.colorbar(image, ax=grid, label="attention weight", shrink=0.6)
