"""Graph in, transformer out: every gate a sink head, every layer of gates one attention layer. Scales are still one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from headsmith.core.arrays import Array, frozen
from headsmith.core.errors import TargetError
from headsmith.core.intervals import Interval
from headsmith.core.rounding import Dtype
from headsmith.heads.sink import SinkBank
from headsmith.heads.stream import DATA, Link, Register
from headsmith.lower.linear import applied, product
from headsmith.lower.reduce import Reduced, reduce
from headsmith.lower.registers import Allocation, Combination, allocate
from headsmith.source.graph import Graph, Relu
from headsmith.transformer.ir import Layer, Transformer, reserved_registers


def lower(graph: Graph, ranges: Sequence[Interval], *, tokens: int, dtype: Dtype) -> Transformer:
    """The transformer whose sink heads, in the limit of large scales, compute `graph` exactly (up to rounded
    weights)."""
    reduced = reduce(graph, ranges)
    allocation = allocate(reduced.graph)
    names = _names(reduced.graph, allocation)
    registers = [Register(names[register], reduced.graph.nodes[register].size) for register in allocation.writes]
    first = _first_heads(reduced.graph, allocation)
    depth = max((allocation.levels[gate] for gate in first), default=0)
    transformer = Transformer(
        inputs=graph.input.size,
        outputs=graph.nodes[graph.output].size,
        tokens=tokens,
        dtype="float64",
        registers=(*reserved_registers(tokens), *registers),
        embedding=tuple(_writes(allocation, names, {0: 0})),
        initial={
            names[register]: sum((part.constant for part in parts[1:]), parts[0].constant)
            for register, parts in allocation.writes.items()
        },
        layers=tuple(Layer((_bank(reduced, allocation, names, first, level),)) for level in range(1, depth + 1)),
        readout=tuple(_links(allocation, names, allocation.reads[-1], 0)),
        readout_bias=_constant(allocation, allocation.reads[-1]),
    )
    return transformer if dtype == "float64" else _rounded(transformer)


def _first_heads(graph: Graph, allocation: Allocation) -> dict[int, int]:
    """For each gate node, the number of its first head within its layer's bank."""
    used: dict[int, int] = {}
    first: dict[int, int] = {}
    for number, node in enumerate(graph.nodes):
        if isinstance(node, Relu):
            level = allocation.levels[number]
            first[number] = used.get(level, 0)
            used[level] = first[number] + node.size
    return first


def _bank(
    reduced: Reduced, allocation: Allocation, names: dict[int, str], first: dict[int, int], level: int
) -> SinkBank:
    gates = [gate for gate in first if allocation.levels[gate] == level]
    read: list[Link] = []
    for gate in gates:
        combination = allocation.reads[gate]
        read.extend(_links(allocation, names, combination, first[gate]))
        constant = _constant(allocation, combination)
        if constant.any():
            read.append(Link(DATA, constant[:, None], first[gate]))
    heads = sum(reduced.graph.nodes[gate].size for gate in gates)
    return SinkBank(
        node=np.concatenate([np.full(len(reduced.origin[gate][1]), reduced.origin[gate][0]) for gate in gates]),
        component=np.concatenate([reduced.origin[gate][1] for gate in gates]),
        read=tuple(read),
        write=tuple(_writes(allocation, names, {gate: first[gate] for gate in gates})),
        query_scale=np.ones(heads),
        key_scale=np.ones(heads),
        reference_gain=1.0,
        position_gain=1.0,
    )


def _writes(allocation: Allocation, names: dict[int, str], sources: dict[int, int]) -> list[Link]:
    """What the given source nodes (with the number of their first head or input) add to each register."""
    links = []
    for register, combinations in allocation.writes.items():
        for combination in combinations:
            for source, weights in combination.parts.items():
                if source in sources and weights.any():
                    links.append(Link(names[register], weights, sources[source]))
    return links


def _links(allocation: Allocation, names: dict[int, str], combination: Combination, first: int) -> list[Link]:
    """A combination of placed nodes as reads of their registers."""
    links = []
    for number, weights in combination.parts.items():
        home = allocation.homes[number]
        scaled = weights if np.all(home.scale == 1.0) else product(weights, home.scale)
        links.append(Link(names[home.register], scaled, first))
    return links


def _constant(allocation: Allocation, combination: Combination) -> Array:
    constant = np.array(combination.constant)
    for number, weights in combination.parts.items():
        offset = allocation.homes[number].offset
        if offset.any():
            constant = constant + applied(weights, offset)
    return constant


def _names(graph: Graph, allocation: Allocation) -> dict[int, str]:
    """z1, z2, ...: what the gates of layer 1, 2, ... read; out: what the read-out reads; a letter where there are
    several."""
    readers: dict[int, list[int]] = {register: [] for register in allocation.writes}
    for reader, combination in allocation.reads.items():
        for number in combination.parts:
            readers[allocation.homes[number].register].append(allocation.levels.get(reader, len(graph.nodes)))
    names: dict[int, str] = {}
    seen: dict[str, int] = {}
    for register in allocation.writes:
        level = min(readers[register], default=0)
        stem = "out" if level == len(graph.nodes) else f"z{level}"
        seen[stem] = seen.get(stem, 0) + 1
        names[register] = stem if seen[stem] == 1 else f"{stem}.{seen[stem]}"
    return names


def _rounded(transformer: Transformer) -> Transformer:
    """The same model with all weights rounded to float32."""

    def link(value: Link) -> Link:
        return Link(value.register, _single(value.weights, value.register), value.first)

    layers = tuple(
        Layer(
            tuple(
                replace(bank, read=tuple(map(link, bank.read)), write=tuple(map(link, bank.write)))
                for bank in layer.banks
            )
        )
        for layer in transformer.layers
    )
    return replace(
        transformer,
        dtype="float32",
        embedding=tuple(map(link, transformer.embedding)),
        initial={name: _single(value, name) for name, value in transformer.initial.items()},
        layers=layers,
        readout=tuple(map(link, transformer.readout)),
        readout_bias=_single(transformer.readout_bias, "the read-out"),
    )


def _single(values: Array, where: str) -> Array:
    """`values` rounded to float32, refused where they overflow."""
    with np.errstate(over="ignore"):
        result = values.astype(np.float32).astype(np.float64)
    if not np.isfinite(result).all():
        raise TargetError(
            f"a weight at {where} is {np.abs(values).max():.3g}, beyond float32; compile with dtype='float64'"
        )
    return frozen(result)
