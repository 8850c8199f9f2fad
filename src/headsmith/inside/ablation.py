"""A whole transformer whose edges can be cut, from its matrices alone: what circuit discovery does to a model.

An edge leads from a node (the inputs, or a head) to what a head reads as its query, key or value, or to the outputs.
Cut at x by another input x', its reader sees X - a(x) + a(x') in place of the stream X. What is computed here is plain
floating point, for many inputs at once: it searches, and proves nothing. The kernel's rule (kernel/rules/witness.py)
encloses what was found.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from headsmith.core.arrays import Array
from headsmith.core.errors import TargetError
from headsmith.kernel.rules.witness import INPUT as INPUT
from headsmith.kernel.rules.witness import OUTPUT as OUTPUT
from headsmith.kernel.rules.witness import READ_AS
from headsmith.kernel.rules.witness import Edge as Edge

Node = tuple[int, int]
"""A head: its layer, from 0, and its number there; INPUT and OUTPUT are the two others."""

MOST_HELD = 1 << 22
"""How many numbers of a layer are held at once."""


def node_name(node: Node) -> str:
    """As MIB's graphs call it: input, a0.h1, logits."""
    return {INPUT: "input", OUTPUT: "logits"}.get(node, f"a{node[0]}.h{node[1]}")


def edge_name(edge: Edge) -> str:
    """As MIB's graphs call it: a0.h1->a1.h0<q>."""
    return f"{node_name(edge.source)}->{node_name(edge.target)}" + (f"<{edge.read_as}>" if edge.read_as else "")


def node_of(name: str) -> Node:
    """The node of that name."""
    if name in ("input", "logits"):
        return INPUT if name == "input" else OUTPUT
    layer, _, head = name.partition(".h")
    return int(layer.removeprefix("a")), int(head)


def edge_of(name: str) -> Edge:
    """The edge of that name."""
    source, _, rest = name.partition("->")
    target, _, read_as = rest.partition("<")
    return Edge(node_of(source), node_of(target), read_as.rstrip(">"))


@dataclass(frozen=True, eq=False)
class Trace:
    """A run: the stream before each layer and at the end, (batch, token, column), and what the inputs (-1) and the
    heads of each layer add to it, (batch, head, token, column); reference tokens come first. `outputs` are those of
    data tokens."""

    streams: tuple[Array, ...]
    added: Mapping[int, Array]
    outputs: Array

    def part(self, rows: slice) -> Trace:
        """This run, on some of its inputs."""
        added = {layer: each[rows] for layer, each in self.added.items()}
        return Trace(tuple(each[rows] for each in self.streams), added, self.outputs[rows])


@dataclass(frozen=True, eq=False)
class Machine:
    """A transformer as other tools get it: a configuration, and tensors by name (export/plain.py)."""

    config: Mapping[str, Any]
    tensors: Mapping[str, Array]

    def __post_init__(self) -> None:
        other = self.config.get("attention", "softmax") != "softmax" or self.config.get("alone", False)
        if other or self.config["answers"] is not None or any(each.get("neurons") for each in self.config["layers"]):
            raise TargetError("edges are those of layers of softmax heads: this model has others")

    @cached_property
    def layers(self) -> list[tuple[Array, Array, Array, Array]]:
        """W_Q, W_K, W_V (heads, d_model, width) and W_O (heads, width, d_model) of each layer."""
        found = []
        for number, layer in enumerate(self.config["layers"]):
            heads, read = layer["heads"], []
            for name in ("query", "key", "value"):
                weight = self._tensor(f"layers.{number}.{name}.weight")
                read.append(weight.reshape(heads, -1, weight.shape[1]).transpose(0, 2, 1))
            write = self._tensor(f"layers.{number}.output.weight").T
            found.append((read[0], read[1], read[2], write.reshape(heads, -1, write.shape[1])))
        return found

    def _tensor(self, name: str) -> Array:
        return np.asarray(self.tensors[name], dtype=np.float64)

    @property
    def references(self) -> int:
        return int(self.config["reference_tokens"])

    @property
    def heads(self) -> list[Node]:
        """All heads, in order."""
        return [(number, head) for number, layer in enumerate(self.layers) for head in range(len(layer[0]))]

    def edges(self) -> Iterator[Edge]:
        """Every edge that there can be."""
        for target in [*self.heads, OUTPUT]:
            sources = [INPUT, *(head for head in self.heads if head[0] < target[0])]
            for source in sources:
                for read_as in READ_AS if target != OUTPUT else ("",):
                    yield Edge(source, target, read_as)

    def writes(self, node: Node) -> Array:
        """What a node adds to the stream, as rows: those of its W_O, or of W_E."""
        return np.asarray(self._tensor("embed.weight").T if node == INPUT else self.layers[node[0]][3][node[1]])

    def reads(self, node: Node, read_as: str) -> Array:
        """What a node reads of the stream, as columns: (d_model, width)."""
        if node == OUTPUT:
            return np.asarray(self._tensor("unembed.weight").T)
        return np.asarray(self.layers[node[0]][READ_AS.index(read_as)][node[1]])

    def constants(self) -> Array:
        """What tokens hold whatever the inputs are: rows."""
        data = self._tensor("positions") + self._tensor("embed.bias")
        return np.vstack([self._tensor("references"), data])

    def run(self, inputs: Array) -> Trace:
        """A run on inputs (batch, tokens, inputs)."""
        entered = inputs @ self._tensor("embed.weight").T
        data = entered + self._tensor("positions")[: inputs.shape[1]] + self._tensor("embed.bias")
        rows = np.broadcast_to(self._tensor("references"), (len(inputs), self.references, data.shape[2]))
        stream, shown = (np.concatenate(each, axis=1) for each in ((rows, data), (0.0 * rows, entered)))
        return self._on([stream], {-1: shown[:, None]}, (), None)

    def cut(self, mine: Trace, other: Trace, edges: Sequence[Edge]) -> Trace:
        """The run `mine`, with edges cut by what the run `other` has there."""
        first = min(edge.target[0] for edge in edges)
        kept = min(first, len(self.layers))
        added = {layer: mine.added[layer] for layer in range(-1, kept)}
        return self._on(list(mine.streams[: kept + 1]), added, edges, other)

    def without(self, mine: Trace, node: Node, value: Array | float) -> Trace:
        """The run `mine`, in which a head adds something else to the stream."""
        layer, head = node
        added = {place: mine.added[place] for place in range(-1, layer + 1)}
        added[layer] = added[layer].copy()
        added[layer][:, head] = value
        streams = [*mine.streams[: layer + 1], mine.streams[layer] + added[layer].sum(axis=1)]
        return self._on(streams, added, (), None)

    def resumed(self, streams: Sequence[Array], mine: Trace) -> Trace:
        """The run `mine` up to some layer, and on from other streams."""
        kept = {layer: mine.added[layer] for layer in range(-1, len(streams) - 1)}
        return self._on(list(streams), kept, (), None)

    def _on(self, streams: list[Array], added: dict[int, Array], edges: Sequence[Edge], other: Trace | None) -> Trace:
        """A run from where it stands to its end."""
        for layer in range(len(streams) - 1, len(self.layers)):
            query, key, value, write = self.layers[layer]
            seen = [
                self._seen(streams[-1], layer, rho, edges, added, other) @ matrix
                for rho, matrix in zip(READ_AS, (query, key, value), strict=True)
            ]
            added[layer] = self.pattern(seen[0], seen[1]) @ seen[2] @ write
            streams.append(streams[-1] + added[layer].sum(axis=1))
        last = self._seen(streams[-1], OUTPUT[0], "", edges, added, other)[:, 0]
        outputs = last @ self._tensor("unembed.weight").T + self._tensor("unembed.bias")
        return Trace(tuple(streams), added, outputs[:, self.references :])

    def pattern(self, query: Array, key: Array) -> Array:
        """Where heads look, from queries and keys (..., token, width)."""
        scores = query @ key.swapaxes(-1, -2)
        if self.config["causal"]:
            scores = np.where(np.tri(scores.shape[-1], dtype=bool), scores, -np.inf)
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        return np.asarray(weights / weights.sum(axis=-1, keepdims=True))

    def _seen(
        self, stream: Array, layer: int, read_as: str, edges: Sequence[Edge], mine: Mapping[int, Array], other: Any
    ) -> Array:
        cut = [edge for edge in edges if edge.target[0] == layer and edge.read_as == read_as]
        if not cut:
            return stream[:, None]
        heads = len(self.layers[layer][0]) if layer != OUTPUT[0] else 1
        seen = np.repeat(stream[:, None], heads, axis=1)
        for edge in cut:
            (before, head), reader = edge.source, edge.target[1]
            seen[:, reader] += other.added[before][:, head] - mine[before][:, head]
        return seen


def batches(machine: Machine, count: int, tokens: int) -> Iterator[slice]:
    """So many inputs in parts, so that no layer holds too much."""
    heads = max((len(each[0]) for each in machine.layers), default=1)
    width = machine.constants().shape[1] + machine.references + tokens
    rows = max(1, MOST_HELD // max(1, heads * (machine.references + tokens) * width))
    return (slice(start, start + rows) for start in range(0, count, rows))
