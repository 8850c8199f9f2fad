"""Witnesses: two inputs at which a model provably does something else once one edge of it is cut.

An edge leads from a node a (the inputs, or a head) to what a head d reads as its query, key or value, or to the
outputs. It is cut at the input x by what a returned at another input x': where d (or the read-out) reads the stream X,
it reads X - a(x) + a(x') instead. Nothing else is changed.

Theorem.  Let [c] and [b] enclose what any floating-point execution returns of the whole model and of the cut one at the
pair (x, x'). If an output has distance d between the two, every execution of the one differs by at least d from every
execution of the other: the edge does d of damage. *Proof*: the first lies in [c], the second in [b].

Enclosure.  A number is a ball: a middle m and a radius r >= |executed - m|. For a product x W of n terms, in any order,
the exact product of what was executed is within r |W| of m W, and both an execution and our own m W are rounded by at
most gamma_n (|m| + r) |W|. Scores enclose weights: w_j lies between l_j / (l_j + sum of the other h) and
h_j / (h_j + sum of the other l), where l and h are powers of e of the lower and upper scores; subtracting a largest
score rounds by 2 u |score|, exp is off by 4 units in the last place, a sum of T terms by T u. Radii are sums and
products of numbers that are not negative: computed ones times 1 + 2^-30, plus the smallest numbers, are upper bounds
for up to 2^20 terms.

The weights are those of an exported model, by the names of its tensors; there is softmax attention alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ..core.arithmetic import FLOAT32, FLOAT64, Array, Precision
from ..core.errors import refuse, spend

READ_AS = ("q", "k", "v")
MOST_TERMS = 1 << 19
INPUT, OUTPUT = (-1, 0), (1 << 20, 0)  # the layer and the number of what is no head


class Ball(NamedTuple):
    """Middles and radii, of the same shape."""

    middle: Array
    radius: Array


@dataclass(frozen=True)
class Edge:
    """From a node to what another one reads: nodes are (layer, head), layers count from 0."""

    source: tuple[int, int]
    target: tuple[int, int]
    read_as: str = ""


def damages(
    tensors: Mapping[str, Array],
    config: Mapping[str, Any],
    cuts: Sequence[Sequence[Edge]],
    bases: Array,
    sources: Array,
) -> Array:
    """For each set of edges with its base and source (sets, tokens, inputs): a lower bound of the damage to every
    output at every token, (sets, tokens, outputs)."""
    model = _Model(tensors, config)
    refuse(not len(cuts) == len(bases) == len(sources), "there is not one pair of inputs for each set of edges")
    refuse(any(len({*cut}) < len(cut) for cut in cuts), "an edge is cut twice")
    other, _ = model.run(sources, [], None)
    whole, cut = (model.run(bases, each, other)[1] for each in ([], cuts))
    apart = np.abs(whole.middle - cut.middle) * (1.0 - 2.0**-40) - model.up(whole.radius + cut.radius)
    found = np.where(np.isfinite(apart), np.maximum(apart, 0.0), 0.0)
    return np.asarray(found[:, model.references :])


class _Model:
    """The matrices by their names, as a textbook multiplies with them."""

    def __init__(self, tensors: Mapping[str, Array], config: Mapping[str, Any]) -> None:
        plain = config.get("attention", "softmax") == "softmax" and config.get("answers") is None
        refuse(not plain or config.get("alone", False), "there are witnesses of softmax attention alone")
        refuse(any(layer.get("neurons") for layer in config["layers"]), "there are no witnesses of neurons")
        refuse(config["dtype"] not in ("float64", "float32"), "there are no witnesses of formats of 16 bits")
        self.precision: Precision = FLOAT64 if config["dtype"] == "float64" else FLOAT32
        refuse(max(max(each.shape) for each in tensors.values()) > MOST_TERMS, "the model is too wide")
        self.tiny = self.precision.smallest_normal * 2.0**20
        self.tensors = {name: np.asarray(each, dtype=np.float64) for name, each in tensors.items()}
        self.references, self.causal = int(config["reference_tokens"]), bool(config["causal"])
        self.heads = [int(layer["heads"]) for layer in config["layers"]]

    def matrices(self, layer: int) -> tuple[Array, ...]:
        """W_Q, W_K, W_V (heads, d_model, width) and W_O (heads, width, d_model)."""
        heads, named = self.heads[layer], ("query", "key", "value")
        read = [self.tensors[f"layers.{layer}.{name}.weight"] for name in named]
        write = self.tensors[f"layers.{layer}.output.weight"].T
        apart = (each.reshape(heads, -1, each.shape[1]).transpose(0, 2, 1) for each in read)
        return (*apart, write.reshape(heads, -1, write.shape[1]))

    def run(self, inputs: Array, cuts: Sequence[Sequence[Edge]], other: Any) -> tuple[dict[int, Ball], Ball]:
        """What the inputs (-1) and the heads of each layer add to the stream, (batch, head, token, column), and the
        outputs; with edges cut, a set for each input, by what `other` returned."""
        entered = self.product(Ball(inputs, np.zeros_like(inputs)), self.tensors["embed.weight"].T)
        place, bias = self.tensors["positions"][: inputs.shape[1]], self.tensors["embed.bias"]
        first = self.plus(entered, place + bias, np.abs(place) + np.abs(bias), inputs.shape[-1])
        rows = np.broadcast_to(self.tensors["references"], (len(inputs), *self.tensors["references"].shape))
        stream = Ball(np.concatenate([rows, first.middle], axis=1), np.concatenate([0.0 * rows, first.radius], axis=1))
        shown = Ball(*(np.concatenate([0.0 * rows, each], axis=1) for each in entered))
        added: dict[int, Ball] = {-1: Ball(*(each[:, None] for each in shown))}
        for layer in range(len(self.heads)):
            spend(1000.0 * stream.middle.size * self.heads[layer])
            *read, write = self.matrices(layer)
            seen = [self.seen(stream, layer, rho, cuts, added, other) for rho in READ_AS]
            query, key, value = (self.product(each, matrix) for each, matrix in zip(seen, read, strict=True))
            scores = self.meeting(query, Ball(*(each.swapaxes(-1, -2) for each in key)))
            terms = write.shape[0] * (write.shape[1] + 1) + 4
            added[layer] = self.product(self.meeting(self.weights(scores), value), write, terms)
            middle, radius = (each.sum(axis=1) for each in added[layer])
            sizes = np.abs(added[layer].middle).sum(axis=1) + radius
            stream = self.plus(Ball(middle, radius), stream.middle, sizes + np.abs(stream.middle), terms, stream.radius)
        seen_last = self.seen(stream, OUTPUT[0], "", cuts, added, other)
        last = Ball(seen_last.middle[:, 0], seen_last.radius[:, 0])
        found, bias = self.product(last, self.tensors["unembed.weight"].T), self.tensors["unembed.bias"]
        return added, self.plus(found, bias, np.abs(bias), last.middle.shape[-1])

    def seen(
        self, stream: Ball, layer: int, read_as: str, cuts: Sequence[Sequence[Edge]], mine: Any, other: Any
    ) -> Ball:
        """What each head of a layer reads as queries, keys or values: (batch, head, token, column)."""
        heads = self.heads[layer] if layer != OUTPUT[0] else 1
        middle, radius = (np.repeat(each[:, None], heads, axis=1) for each in stream)
        for place, edge in ((place, edge) for place, cut in enumerate(cuts) for edge in cut):
            if edge.target[0] == layer and edge.read_as == read_as:
                (before, head), reader = edge.source, edge.target[1]
                refuse(not -1 <= before < layer or head < 0, "an edge leads back, or nowhere")
                refuse(not 0 <= reader < heads, "an edge leads nowhere")
                gone, put = (Ball(*(part[place, head] for part in each[before])) for each in (mine, other))
                sizes = np.abs(gone.middle) + gone.radius + np.abs(put.middle) + put.radius
                sizes = sizes + np.abs(middle[place, reader]) + radius[place, reader]
                radius[place, reader] += gone.radius + put.radius + self.gamma(len(cuts[place]) * 2 + 4) * sizes
                middle[place, reader] += put.middle - gone.middle
        return Ball(middle, self.up(radius))

    def gamma(self, terms: int) -> float:
        """Twice what sums of so many products are off by, as a share: once for them, and once for us."""
        return float(self.precision.gamma(terms + 8, 0).value) * 2.0

    def up(self, radius: Array) -> Array:
        """An upper bound of what was computed of numbers that are not negative, and of what underflows."""
        return np.asarray(radius * (1.0 + 2.0**-30) + self.tiny)

    def plus(self, left: Ball, right: Array, sizes: Array, terms: int, radius: Any = 0.0) -> Ball:
        """A ball, which is a sum of so many terms, and one more term that is off by `radius`; `sizes` bounds what is
        added up."""
        rounded = self.gamma(terms) * (np.abs(left.middle) + left.radius + sizes + radius)
        return Ball(left.middle + right, self.up(left.radius + radius + rounded))

    def product(self, left: Ball, matrix: Array, terms: int = 0) -> Ball:
        """A ball times a matrix of stored numbers."""
        return self.meeting(left, Ball(matrix, np.zeros_like(matrix)), terms)

    def meeting(self, left: Ball, right: Ball, terms: int = 0) -> Ball:
        """A product of two balls, matrices in their last two axes; it may be part of a sum of so many terms."""
        sizes, other = np.abs(left.middle) + left.radius, np.abs(right.middle) + right.radius
        rounded = self.gamma(max(terms, sizes.shape[-1])) * (sizes @ other)
        radius = left.radius @ other + np.abs(left.middle) @ right.radius + rounded
        return Ball(left.middle @ right.middle, self.up(radius))

    def weights(self, scores: Ball) -> Ball:
        """Where queries look, from scores (..., query, key)."""
        tokens, unit = scores.middle.shape[-1], self.precision.unit_roundoff
        visible = np.tri(tokens, dtype=bool) if self.causal else np.ones((tokens, tokens), dtype=bool)
        top = np.where(visible, scores.middle, -np.inf).max(axis=-1, keepdims=True)
        size = np.where(visible, np.abs(scores.middle) + scores.radius, 0.0)
        lift = self.up(scores.radius + 4.0 * unit * (size + size.max(axis=-1, keepdims=True)))
        share, tiny = (8.0 * tokens + 128.0) * unit, self.tiny
        with np.errstate(over="ignore", invalid="ignore"):
            low = np.where(visible, np.exp(scores.middle - top - lift) * (1.0 - share), 0.0)
            high = np.where(visible, np.exp(scores.middle - top + lift) * (1.0 + share) + tiny, 0.0)
            more = np.maximum(high.sum(axis=-1, keepdims=True) * (1.0 + share) - high, 0.0)
            less = np.maximum(low.sum(axis=-1, keepdims=True) * (1.0 - share) - low, 0.0)
            least = low / np.maximum(low + more, tiny) * (1.0 - share)
            most = np.where(visible, np.minimum(high / (high + less), 1.0) * (1.0 + share) + tiny, 0.0)
        known = np.isfinite(least) & np.isfinite(most)
        least, most = np.where(known, least, 0.0), np.where(known, most, np.where(visible, 1.0, 0.0))
        return Ball(0.5 * least + 0.5 * most, self.up(0.5 * (most - least) + unit * most))
