"""How a data token divides its attention, a panel for each head, along a line through the domain.

tables      the share of each reference token, stacked, with what the token holds
products    the weight on the token itself: an affine function of one factor, by which the other one is multiplied
maxima      where there is one token for each affine piece: the share of each piece, stacked
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from headsmith.core.arrays import Array
from headsmith.core.figures import shortened
from headsmith.inside.meanings import Meanings
from headsmith.model import Compiled
from headsmith.plan.circuits.pieces import in_blocks
from headsmith.run.numpy_runner import patterns
from headsmith.transformer.heads.boltzmann import BoltzmannBank
from headsmith.transformer.heads.gate import GateBank

PANELS = 6
"""How many heads get a panel."""

NAMED = 10
"""Up to so many tokens each has a colour with its name."""

ITSELF = "#d94801"


@dataclass(frozen=True, eq=False)
class Shares:
    """One head: weights[point, token], the tokens' names, and what stands above the names."""

    layer: int
    text: str
    weights: Array
    names: tuple[str, ...]
    title: str
    product: bool


def draw_shares(figure: Any, compiled: Compiled, points: Array) -> None:
    """Panels of at most PANELS heads, evenly spread over all that there are."""
    found = list(_shares(compiled, points))
    shown = [found[int(place)] for place in np.linspace(0, len(found) - 1, min(PANELS, len(found))).round()]
    box = compiled.box
    one = box.size == 1 and box.low[0] < box.high[0]
    places = points[:, 0] if one else np.linspace(0.0, 1.0, len(points))
    grid = figure.subplots(len(shown), 1, sharex=True, squeeze=False)[:, 0]
    for axes, head in zip(grid, shown, strict=True):
        axes.set_title(f"layer {head.layer}  {shortened(head.text, 60)}", fontsize=9)
        axes.set_xlim(places[0], places[-1])
        (_draw_product if head.product else _draw_stack)(axes, head, places)
    figure.supxlabel(box.names[0] if one else "place on a line through the domain", fontsize=10)
    figure.supylabel("attention weight", fontsize=10)
    who = "how tokens divide their attention" if compiled.blocks else "where the data token looks"
    total = compiled.bill.heads
    which = "" if total == 1 else f", all {total} heads" if len(shown) == total else f", {len(shown)} of {total} heads"
    figure.suptitle(f"{who}{which}", fontsize=12)


def _shares(compiled: Compiled, points: Array) -> Iterator[Shares]:
    transformer, meanings = compiled.transformer, Meanings(compiled)
    blocks = compiled.blocks
    inputs = in_blocks(points, transformer.tokens) if blocks else points[:, None]
    seen = [patterns(transformer, each) for each in inputs]
    references = [f"ref {token}" for token in range(transformer.reference_tokens)]
    for number, layer in enumerate(transformer.layers):
        texts, first = iter(meanings.heads[number]), 0
        for bank in layer.banks:
            held = bank.held_texts(transformer.sink_tokens)
            for head in range(bank.heads):
                text, names = next(texts), [*references, "itself"]
                weights = np.stack([found[number].weights[first + head, -1] for found in seen])
                if blocks:
                    if not isinstance(bank, BoltzmannBank):
                        continue
                    pieces = meanings.pieces.get((int(bank.node[head]), int(bank.component[head])), [])
                    names = [*references, *(f"t{token}: {shortened(each, 24)}" for token, each in enumerate(pieces))]
                    yield Shares(number + 1, text, weights, tuple(names), "token: its piece", False)
                    continue
                mine = held[head]
                names = [f"{name}: {mine[token]}" if token in mine else name for token, name in enumerate(names)]
                title = "token: what it holds" if mine else ""
                yield Shares(number + 1, text, weights, tuple(names), title, isinstance(bank, GateBank))
            first += bank.heads


def _draw_product(axes: Any, head: Shares, places: Array) -> None:
    """The weight on the token itself, drawn as large as it varies."""
    weight = head.weights[:, -1]
    axes.plot(places, weight, color=ITSELF, linewidth=2.0)
    room = 0.15 * float(np.ptp(weight)) or 0.05
    axes.set_ylim(float(weight.min()) - room, float(weight.max()) + room)
    axes.grid(alpha=0.2, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.text(
        1.02,
        0.5,
        "weight on itself\n(the rest goes to\nreference tokens):\nit multiplies what\nthe token holds",
        transform=axes.transAxes,
        va="center",
        fontsize=8,
    )


def _draw_stack(axes: Any, head: Shares, places: Array) -> None:
    """All tokens' shares, one above the other."""
    from matplotlib.patches import Patch

    shares, tokens = head.weights.T, len(head.names)
    colours = _colours(tokens, head.names[-1] == "itself")
    seen = [token for token in range(tokens) if shares[token].max() > 1e-3]
    axes.stackplot(places, shares[seen], colors=[colours[token] for token in seen], linewidth=0.0)
    axes.set_ylim(0.0, 1.0)
    named = seen if len(seen) <= NAMED else [*seen[: NAMED // 2], *seen[-(NAMED // 2) :]]
    marks = [Patch(color=colours[token], label=head.names[token]) for token in named][::-1]
    others = int((shares.max(axis=1) > 1e-12).sum()) - len(named)
    title = "\n".join(text for text in (head.title, f"and {others} more" if others else "") if text)
    axes.legend(
        handles=marks,
        loc="center left",
        bbox_to_anchor=(1.0, 0.5),
        fontsize=8,
        frameon=False,
        title=title,
        title_fontsize=8,
    )


def _colours(count: int, itself: bool) -> list[Any]:
    """Neighbouring tokens differ, and far ones do too; the token itself stands out."""
    from matplotlib import colormaps

    shades = colormaps["YlGnBu"](np.linspace(0.25, 0.95, max(count - itself, 2)))
    return [*(shades[token] for token in range(count - itself)), *([ITSELF] if itself else [])]
