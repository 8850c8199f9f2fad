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

In **blocks**, the model has one token for each affine piece: it takes the inputs x of the target at every token, in a
block of its own; token j holds x in block j and zeros in the others. Every token then returns the target.

A **view** says that a node equals a reference node, by normal forms, whose range is easier to see.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from .arithmetic import Array
from .errors import Refused
from .graph import Graph, needed, read_graph
from .reading import Tensors, field, items, mapping, numbers, real, text, whole

MOST_HALVINGS, MOST_BLOCKS, MOST_REGIONS, MOST_ENDS = 16, 1 << 10, 1 << 10, 1 << 19


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
    """Nodes of an exchange: its output and inside, x, m, c and d; x may be off by the margin."""

    output: int
    inside: frozenset[int]
    margin: float
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
    """All that a proof carries; `halvings` says into how many cells the domain is cut for ranges, `blocks` how many
    blocks the inputs come in (0: they come as they are)."""

    circuit: Graph
    regions: dict[int, Region]
    exchanges: dict[int, Exchange]
    tables: dict[int, Table]
    margins: dict[int, float]
    views: dict[int, tuple[int, ...]]
    halvings: int
    blocks: int

    @property
    def meanings(self) -> dict[int, int]:
        """What the outputs of regions stand for, where that is no matter of normal forms."""
        return {number: region.stands_for for number, region in self.regions.items() if region.ends is not None}

    @cached_property
    def margins_of_reads(self) -> dict[tuple[int, int], float]:
        """For pairs (reader, argument) through which nothing arrives, because a region compares itself anew: how much
        wider the reader sees the argument."""
        found: dict[tuple[int, int], float] = {}
        anew = [(each.inside, each.arguments, each.margin) for each in self.regions.values() if each.margin is not None]
        anew += [(each.inside, (each.value,), each.margin) for each in self.exchanges.values()]
        for inside, arguments, margin in anew:
            for pair in ((reader, argument) for reader in inside for argument in arguments):
                found[pair] = max(found.get(pair, 0.0), margin)
        return found


def read_proof(stored: Any, tensors: Tensors, target: Graph) -> Proof:
    """The proof of a file."""
    circuit = read_graph(field(stored, "circuit"), tensors, target)
    last = len(circuit.nodes) - 1
    regions = {}
    for each in items(field(stored, "regions"), MOST_REGIONS):
        region = _region(each, tensors, circuit, last)
        if region.output in regions:
            raise Refused(f"node {region.output} is the output of two regions")
        regions[region.output] = region
    exchanges = {}
    for each in items(field(stored, "exchanges"), MOST_REGIONS):
        names = ("output", "value", "moved", "above", "below")
        output, *others = (whole(field(each, name), 0, last) for name in names)
        inside = _inside(circuit, output, (others[0], *others[2:]))
        exchanges[output] = Exchange(output, inside, _margin(field(each, "margin")), *others)
        if (
            circuit.nodes[others[1]].kind != "move"
            or circuit.nodes[others[1]].arguments != (others[0],)
            or output in regions
            or len({circuit.nodes[each].size for each in (output, *others)}) > 1
            or circuit.nodes[output].kind != "affine"
        ):
            raise Refused(f"node {output} is no exchange of node {others[0]}")
    margins = {
        whole(field(each, "node"), 0, last): _margin(field(each, "margin")) for each in items(field(stored, "margins"))
    }
    tables = {}
    for each in items(field(stored, "tables"), MOST_REGIONS):
        number = whole(field(each, "node"), 0, last)
        if circuit.nodes[number].kind != "expression":
            raise Refused(f"node {number} has cells, but is no expression")
        tables[number] = Table(_margin(field(each, "margin")), text(field(each, "cells")))
    views: dict[int, tuple[int, ...]] = {}
    for each in items(field(stored, "views"), 4 * MOST_REGIONS):
        number, other = (whole(field(each, name), 0, last) for name in ("node", "as"))
        if not other < number:
            raise Refused(f"node {number} is viewed as node {other}, which does not come before it")
        views[number] = (*views.get(number, ()), other)
    compared = sum(len(region.ends) for region in regions.values() if region.ends is not None)
    if compared + sum(len(table.cells) for table in tables.values()) > MOST_ENDS:
        raise Refused("the cells of all regions and tables are more than this kernel looks at")
    halvings = whole(field(stored, "halvings"), 0, MOST_HALVINGS)
    blocks = whole(field(stored, "blocks"), 0, MOST_BLOCKS)
    return Proof(circuit, regions, exchanges, tables, margins, views, halvings, blocks)


def _margin(value: Any) -> float:
    margin = real(value)
    if margin < 0.0:
        raise Refused(f"a margin is {margin}: it must not be negative")
    return margin


def _region(stored: Any, tensors: Tensors, circuit: Graph, last: int) -> Region:
    output, stands_for = (whole(field(stored, name), 0, last) for name in ("output", "stands_for"))
    ends, margin = mapping(stored).get("ends"), mapping(stored).get("margin")
    reference = circuit.nodes[stands_for]
    if circuit.nodes[output].kind != "affine" or len({*reference.arguments}) < len(reference.arguments):
        raise Refused(f"node {output} is no sum, or stands for a node that reads another one twice")
    if (
        not stands_for < output
        or reference.kind in ("input", "positional")
        or reference.size != circuit.nodes[output].size
    ):
        raise Refused(f"node {output} cannot stand for node {stands_for}")
    return Region(
        output,
        stands_for,
        reference.arguments,
        _inside(circuit, output, reference.arguments),
        None if margin is None else _margin(margin),
        None if ends is None else numbers(tensors, ends, 1),
    )


def _inside(circuit: Graph, output: int, arguments: tuple[int, ...]) -> frozenset[int]:
    """What the output depends on, without the arguments and what is only reached through them; constants of the tokens
    depend on nothing, and may be read by everybody."""
    found = set(needed(circuit, [output], arguments)) - {*arguments}
    return frozenset(number for number in found if circuit.nodes[number].kind != "positional")


def refuse_open(proof: Proof, places: Iterable[int]) -> None:
    """Nothing inside of a region is read from outside, its output aside, by what the output and heads (at `places`)
    need. Of two regions that meet, one lies inside of the other with its arguments, and the other is not compared cell
    by cell. Nothing that depends on an inside, but through the output of the region, has a view."""
    readers: dict[int, set[int]] = {}
    for number in needed(proof.circuit, [proof.circuit.output, *places]):
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
    anew = {number for _, inside, _ in stretches for number in inside}
    outer = {output for output, _, _ in stretches if len(owners[output]) == 1}
    deep = anew - outer
    for number, node in enumerate(proof.circuit.nodes):
        if number not in outer and not deep.isdisjoint(node.arguments):
            deep.add(number)
    if any(number in anew or number in deep for number in proof.views):
        raise Refused("a node inside of a region has a view, which does not know of the margin")
    for first, second in {(a, b) for mine in owners.values() for a in mine for b in mine if a < b}:
        (_, small, theirs), (output, large, ours) = sorted((stretches[first], stretches[second]), key=_width)
        compared = output in proof.regions and proof.regions[output].ends is not None
        if not small < large or not theirs <= large or theirs & ours or compared:
            raise Refused(f"the region of node {output} meets another one that does not lie inside of it")


def _width(stretch: tuple[int, frozenset[int], set[int]]) -> int:
    return len(stretch[1])
