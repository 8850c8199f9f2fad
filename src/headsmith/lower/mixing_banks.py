"""The heads of one layer that look at other tokens: one head for all means, one for each pattern of moves, one a
maximum, one for each pair of queries and keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from headsmith.core.arrays import Array, Indices
from headsmith.core.errors import TargetError
from headsmith.lower.links import constant, links, writes
from headsmith.lower.reduce import Reduced
from headsmith.lower.registers import Allocation, Reader
from headsmith.source.graph import Attend, Move, Pool
from headsmith.transformer.heads.attend import AttendBank
from headsmith.transformer.heads.boltzmann import BoltzmannBank
from headsmith.transformer.heads.mean import MeanBank
from headsmith.transformer.heads.move import MoveBank, addresses
from headsmith.transformer.heads.stream import DATA, Link


@dataclass(frozen=True, eq=False)
class Gathered:
    """What heads that compute some nodes, one output a component, claim, read and write."""

    node: Indices
    component: Indices
    read: tuple[Link, ...]
    write: tuple[Link, ...]

    @property
    def outputs(self) -> int:
        return len(self.node)


def gather(
    reduced: Reduced, allocation: Allocation, names: dict[int, str], nodes: Sequence[int], argument: int = 0
) -> Gathered:
    """Nodes whose one argument, or one of whose arguments, has a component for each of theirs, one after the other."""
    read: list[Link] = []
    first: dict[int, int] = {}
    total = 0
    for number in nodes:
        first[number] = total
        read.extend(_read(allocation, names, (number, argument), total))
        total += reduced.graph.nodes[number].size
    return Gathered(
        node=np.concatenate([np.full(len(reduced.origin[n][1]), reduced.origin[n][0]) for n in nodes]),
        component=np.concatenate([reduced.origin[n][1] for n in nodes]),
        read=tuple(read),
        write=tuple(writes(allocation, names, first)),
    )


def _read(allocation: Allocation, names: dict[int, str], reader: Reader, first: int) -> list[Link]:
    """What a node reads as one of its arguments, constants included."""
    combination = allocation.reads[reader]
    read = links(allocation, names, combination, first)
    shift = constant(allocation, combination)
    return [*read, Link(DATA, shift[:, None], first)] if shift.any() else read


def mixing_banks(
    reduced: Reduced, allocation: Allocation, names: dict[int, str], level: int
) -> list[MeanBank | BoltzmannBank | MoveBank | AttendBank]:
    """The banks of one layer."""
    here = [n for n in reduced.origin if allocation.levels[n] == level]
    banks: list[MeanBank | BoltzmannBank | MoveBank | AttendBank] = []
    attends: dict[tuple[int, int], list[int]] = {}
    kinds: dict[str, list[int]] = {}
    moves: dict[tuple[int, ...], list[int]] = {}
    for number in here:
        node = reduced.graph.nodes[number]
        if isinstance(node, Pool):
            kinds.setdefault(node.kind, []).append(number)
        elif isinstance(node, Move):
            moves.setdefault(node.targets, []).append(number)
        elif isinstance(node, Attend):
            attends.setdefault((node.queries, node.keys), []).append(number)
    if "mean" in kinds:
        got = gather(reduced, allocation, names, kinds["mean"])
        banks.append(MeanBank(got.node, got.component, got.read, got.write, 1.0, 1.0))
    if "max" in kinds:
        got = gather(reduced, allocation, names, kinds["max"])
        ones = np.ones(got.outputs)
        banks.append(BoltzmannBank(got.node, got.component, got.read, got.write, ones, ones, 1.0, 1.0))
    for targets, numbers in moves.items():
        got = gather(reduced, allocation, names, numbers)
        banks.append(MoveBank(got.node, got.component, got.read, got.write, address_name(targets), 1.0, 1.0))
    for (queries, _), numbers in attends.items():
        width = reduced.graph.nodes[queries].size
        got = gather(reduced, allocation, names, numbers, argument=2)
        read = [link for side in (0, 1) for link in _read(allocation, names, (numbers[0], side), side * width)]
        read += [replace(link, first=link.first + 2 * width) for link in got.read]
        banks.append(AttendBank(got.node, got.component, tuple(read), got.write, width, 1.0, 1.0))
    return banks


def address_registers(reduced: Reduced, tokens: int) -> dict[str, Array]:
    """The positional registers that move heads take their addresses from."""
    found = {}
    for node in reduced.graph.nodes:
        if isinstance(node, Move):
            if tokens < 2:
                raise TargetError("tokens can only be moved in sequences of two or more")
            found[address_name(node.targets)] = addresses(node.targets, tokens)
    return found


def address_name(targets: tuple[int, ...]) -> str:
    """from+1, from-2: shifts; from[3]: one token; from[2,0,1,...]: any other pattern."""
    places = np.arange(len(targets))
    wanted = np.array(targets)
    offsets = set((wanted - places)[wanted >= 0].tolist())
    inside = {int(o) for o in offsets if np.array_equal(wanted >= 0, (places + o >= 0) & (places + o < len(targets)))}
    if len(offsets) == 1 and inside:
        return f"from{next(iter(inside)):+d}"
    if len(set(targets)) == 1:
        return f"from[{targets[0]}]"
    return f"from[{','.join(map(str, targets))}]"
