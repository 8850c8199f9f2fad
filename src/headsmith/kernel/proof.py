"""What a proof carries: the circuit that the heads compute, and the stretches of it that are known as a whole.

A **region** is a stretch of the circuit with one output that stands for a reference node: `stands_for`, a node of the
same graph that nobody computes, with exact semantics. The arguments of the reference node are the region's arguments,
and the nodes between them and the output are its inside. With a margin, a region restarts the comparison: inside, what
its arguments are off by does not count, because the inside is compared with what it should be at the arguments as they
are; and that the reference node moves with its arguments, by its own slopes, is counted at the output. So nothing
inside may be read from outside.

Why the output is what it stands for:   either it is the same, by normal forms (same.py), given what the regions inside
of it stand for; or it is a circuit of one variable that is close to a named function (chord.py): then `ends` are the
ends of the cells on which they are compared.

A **table** is an expression that a table or gate head computes: `cells` are the cells on which it is compared with its
program (table.py), and what it reads may be off by its margin.

An **exchange** is a region that compares a value x with the one m that it moves from another token: its output is
x - relu(x - m - c) + relu(m - x - d) with constants c, d of the tokens that are not negative. At most one of the gates
is open, so the output lies between x and m, whatever c and d are; and if x is off by at most D at every token, so is
the output, up to what is committed inside: it is off by (1 - s) D_i + s D_p with s in [0, 1].

A **margin** of an attend node says how far its queries may be off.

A **view** says that a node equals a reference node, by normal forms, whose range is easier to see.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .arithmetic import Array
from .errors import Refused
from .graph import Graph, needed, read_graph
from .reading import Tensors, field, items, mapping, numbers, real, text, whole

MOST_HALVINGS = 16


@dataclass(frozen=True, eq=False)
class Region:
    """A stretch of the circuit; see above. `margin` is None where errors of the arguments pass through the inside."""

    output: int
    stands_for: int
    arguments: tuple[int, ...]
    inside: frozenset[int]
    margin: float | None
    ends: Array | None


@dataclass(frozen=True, eq=False)
class Exchange:
    """Nodes of an exchange: its output and inside, x, m, c and d."""

    output: int
    inside: frozenset[int]
    value: int
    moved: int
    above: int
    below: int


@dataclass(frozen=True, eq=False)
class Table:
    """How one expression is compared with the table or gate heads that compute it."""

    margin: float
    cells: str


@dataclass(frozen=True, eq=False)
class Proof:
    """All that a proof carries; `halvings` says into how many cells the domain is cut for ranges."""

    circuit: Graph
    regions: dict[int, Region]
    exchanges: dict[int, Exchange]
    tables: dict[int, Table]
    margins: dict[int, float]
    views: dict[int, tuple[int, ...]]
    halvings: int

    @property
    def meanings(self) -> dict[int, int]:
        """What the outputs of regions stand for, where that is no matter of normal forms."""
        return {number: region.stands_for for number, region in self.regions.items() if region.ends is not None}

    @property
    def cut(self) -> set[tuple[int, int]]:
        """Pairs (reader, argument) through which nothing arrives: a region compares itself anew."""
        anew = [(region.inside, region.arguments) for region in self.regions.values() if region.margin is not None]
        anew += [(exchange.inside, (exchange.value,)) for exchange in self.exchanges.values()]
        return {(reader, argument) for inside, arguments in anew for reader in inside for argument in arguments}


def read_proof(stored: Any, tensors: Tensors, target: Graph) -> Proof:
    """The proof of a file."""
    circuit = read_graph(field(stored, "circuit"), tensors, target)
    last = len(circuit.nodes) - 1
    regions = {}
    for each in items(field(stored, "regions")):
        region = _region(each, tensors, circuit, last)
        if region.output in regions:
            raise Refused(f"node {region.output} is the output of two regions")
        regions[region.output] = region
    exchanges = {}
    for each in items(field(stored, "exchanges")):
        names = ("output", "value", "moved", "above", "below")
        output, *others = (whole(field(each, name), 0, last) for name in names)
        inside = frozenset(needed(circuit, [output], [others[0], *others[2:]])) - {others[0], *others[2:]}
        exchanges[output] = Exchange(output, inside, *others)
        if (
            circuit.nodes[others[1]].kind != "move"
            or circuit.nodes[others[1]].arguments != (others[0],)
            or output in regions
        ):
            raise Refused(f"node {output} is no exchange of node {others[0]}")
    margins = {
        whole(field(each, "node"), 0, last): _margin(field(each, "margin")) for each in items(field(stored, "margins"))
    }
    tables = {}
    for each in items(field(stored, "tables")):
        number = whole(field(each, "node"), 0, last)
        if circuit.nodes[number].kind != "expression":
            raise Refused(f"node {number} has cells, but is no expression")
        tables[number] = Table(_margin(field(each, "margin")), text(field(each, "cells")))
    views: dict[int, tuple[int, ...]] = {}
    for each in items(field(stored, "views")):
        number, other = (whole(field(each, name), 0, last) for name in ("node", "as"))
        if not other < number:
            raise Refused(f"node {number} is viewed as node {other}, which does not come before it")
        views[number] = (*views.get(number, ()), other)
    halvings = whole(field(stored, "halvings"), 0, MOST_HALVINGS)
    proof = Proof(circuit, regions, exchanges, tables, margins, views, halvings)
    _refuse_open(proof)
    return proof


def _margin(value: Any) -> float:
    margin = real(value)
    if margin < 0.0:
        raise Refused(f"a margin is {margin}: it must not be negative")
    return margin


def _region(stored: Any, tensors: Tensors, circuit: Graph, last: int) -> Region:
    output, stands_for = (whole(field(stored, name), 0, last) for name in ("output", "stands_for"))
    ends, margin = mapping(stored).get("ends"), mapping(stored).get("margin")
    reference = circuit.nodes[stands_for]
    if (
        not stands_for < output
        or reference.kind in ("input", "positional")
        or reference.size != circuit.nodes[output].size
    ):
        raise Refused(f"node {output} cannot stand for node {stands_for}")
    inside = frozenset(needed(circuit, [output], reference.arguments)) - frozenset(reference.arguments)
    return Region(
        output,
        stands_for,
        reference.arguments,
        inside,
        None if margin is None else _margin(margin),
        None if ends is None else numbers(tensors, ends, 1),
    )


def _refuse_open(proof: Proof) -> None:
    """Nothing inside of a region is read from outside, its output aside, by what the output needs. Of two regions that
    meet, one lies inside of the other, and does not read the other's arguments as its own: it would see them anew."""
    readers: dict[int, set[int]] = {}
    for number in needed(proof.circuit, [proof.circuit.output]):
        for argument in proof.circuit.nodes[number].arguments:
            readers.setdefault(argument, set()).add(number)
    stretches = [(each.output, each.inside, {*each.arguments}) for each in proof.regions.values()]
    stretches += [(each.output, each.inside, {each.value}) for each in proof.exchanges.values()]
    owners: dict[int, list[int]] = {}
    for place, (output, inside, _) in enumerate(stretches):
        for number in inside:
            owners.setdefault(number, []).append(place)
        for number in inside - {output}:
            if readers.get(number, set()) - inside or number == proof.circuit.output:
                raise Refused(f"node {number} lies inside of the region of node {output}, and is read from outside")
    for first, second in {(a, b) for places in owners.values() for a in places for b in places if a < b}:
        (_, small, theirs), (output, large, ours) = sorted((stretches[first], stretches[second]), key=_width)
        if not small < large or theirs & ours:
            raise Refused(f"the region of node {output} meets another one that does not lie inside of it")


def _width(stretch: tuple[int, frozenset[int], set[int]]) -> int:
    return len(stretch[1])
