"""The attention pattern of one input, head by head, with names that lead back to the target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from headsmith.compile import Compiled
from headsmith.core.arrays import Array
from headsmith.heads.sink import SinkBank
from headsmith.run.numpy_runner import patterns
from headsmith.transformer.ir import Bank

ROWS = 28
"""How many heads are shown when there is one data token."""

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


def draw_attention(figure: Any, compiled: Compiled, random: np.random.Generator) -> None:
    """Draw the pattern of a random input (a random sequence, if the model takes several tokens)."""
    tokens = min(compiled.transformer.tokens, SEQUENCE)
    box = compiled.box
    inputs = np.clip(random.uniform(box.low, box.high, (tokens, box.size)), box.low, box.high)
    if not compiled.transformer.layers:
        axes = figure.subplots()
        axes.set_axis_off()
        axes.text(0.5, 0.5, "no heads:\nthe target is affine on this domain", ha="center", va="center", fontsize=12)
    elif tokens == 1:
        _draw_single(figure, head_patterns(compiled, inputs, ROWS), compiled.bill.heads)
    else:
        _draw_sequence(figure, head_patterns(compiled, inputs, PANELS), compiled.bill.heads)


def head_patterns(compiled: Compiled, inputs: Array, most: int) -> list[HeadPattern]:
    """The patterns of at most `most` heads on `inputs` (tokens, inputs), spread evenly over all heads of all layers."""
    found = []
    for pattern, layer in zip(patterns(compiled.transformer, inputs), compiled.transformer.layers, strict=True):
        names = [name for bank in layer.banks for name in _names(bank)]
        found += [HeadPattern(pattern.layer, h, names[h], weights) for h, weights in enumerate(pattern.weights)]
    chosen = np.unique(np.linspace(0, len(found) - 1, min(most, len(found))).round().astype(int))
    return [found[index] for index in chosen]


def _names(bank: Bank) -> list[str]:
    """What each head computes: a gate of the target's circuit, where the bank has one gate a head."""
    if isinstance(bank, SinkBank):
        return [f"gate {node}[{component}]" for node, component in zip(bank.node, bank.component, strict=True)]
    return [bank.kind] * bank.heads


def _draw_single(figure: Any, shown: list[HeadPattern], heads: int) -> None:
    """One data token: a row for each head, how it divides its attention between the reference token and itself."""
    axes = figure.subplots()
    weights = np.array([pattern.weights[1] for pattern in shown])
    image = axes.imshow(weights, cmap="Blues", vmin=0.0, vmax=1.0, aspect="auto")
    axes.set_xticks([0, 1], ["reference token\n(gate closed)", "the token itself\n(gate open)"])
    axes.set_yticks(range(len(shown)), [f"layer {p.layer}  head {p.head}" for p in shown], fontsize=8)
    for row, pattern in enumerate(shown):
        for column, weight in enumerate(pattern.weights[1]):
            colour = "white" if weight > 0.5 else "black"
            axes.text(column, row, f"{weight:.3f}", ha="center", va="center", fontsize=7, color=colour)
        if row and pattern.layer != shown[row - 1].layer:
            axes.axhline(row - 0.5, color="black", linewidth=0.8)
    gates = axes.secondary_yaxis("right")
    gates.set_yticks(range(len(shown)), [pattern.gate for pattern in shown], fontsize=8)
    gates.tick_params(length=0)
    which = f"all {heads} heads" if heads == len(shown) else f"{len(shown)} of {heads} heads"
    axes.set_title(f"attention of the data token, one random input, {which}")
    figure.colorbar(image, ax=axes, label="attention weight", shrink=0.6)


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
