"""What a proof carries: the circuit that the heads compute, and the stretches of it that are known as a whole.

A **region** is a stretch of the circuit with one output that stands for a reference node: `stands_for`, a node of the
same graph that nobody computes, with exact semantics. (It is no output of a region: would its sum be meant, or what it
stands for?) The arguments of the reference node are the region's arguments, and the nodes between them and the output
are its inside. With a margin, a region restarts the comparison: inside, what its arguments are off by does not count,
because the inside is compared with what it should be at the arguments as they are; and that the reference node moves
with its arguments, by its own slopes, is counted at the output. So nothing inside may be read from outside.

Why the output is what it stands for:   either it is the same, by normal forms (same.py), given what the regions inside
of it stand for; or it is a circuit of one variable that is close to a named function (chord.py): then `ends` are the
ends of the cells on which they are compared.

A **table** is an expression that a table or gate head computes: `cells` are the cells on which it is compared with its
program (table.py), and what it reads may be off by its margin.

An **exchange** is a region that stands for an exchange of a value x with the one m that is moved from another token:
x - relu(x - m - c) + relu(m - x - d) with constants c, d of the tokens that are not negative. At most one of the gates
is open, so the output lies between x and m, whatever c and d are; and if x is off by at most D at every token, so is
the output, up to what is committed inside: it is off by (1 - s) D_i + s D_p with s in [0, 1].

The margin of an attend node, which is kept as that of a table without cells, says how far its queries may be off.

In **blocks**, the model has one token for each affine piece: it takes the inputs x of the target at every token, in a
block of its own; token j holds x in block j and zeros in the others. Every token then returns the target.

A **step** is a node that is known to be one of gradient descent, or a soft threshold, of another node (steps.py),
and a **power** one of Newton's iteration (steps.py). For layers of gates a proof carries the diagonals of **norms**
(norms.py).

A **view** says that a node equals a reference node, by normal forms, whose range is easier to see; `alike` says the
same of a node of the target and one of the circuit. A **bend** says that a node is a piecewise linear function of
another one, with the places where its slope may change. For the **linear** bounds of a node (ranges.py) a proof carries
slopes of the gates before it.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

from .arithmetic import Array, Upper
from .errors import Refused, refuse, spend
from .graph import Graph, needed, read_graph
from .norms import Carried
from .reading import Tensors, field, flag, items, mapping, numbers, real, text, whole

MOST_HALVINGS, MOST_BLOCKS, MOST_LISTED, MOST_ENDS = 16, 1 << 10, 1 << 12, 1 << 19


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
class Table:
    """How one expression is compared with the table or gate heads that compute it."""

    margin: float
    cells: str


@dataclass(frozen=True, eq=False)
class Proof:
    """All that a proof carries; `halvings` says into how many cells the domain is cut for ranges, `blocks` how many
    blocks the inputs come in (0: they come as they are), `beyond` how far the target is from what it approximates."""

    circuit: Graph
    regions: dict[int, Region]
    tables: dict[int, Table]
    views: dict[int, list[int]]
    steps: dict[int, Any]
    powers: dict[int, Any]
    norms: dict[int, Carried]
    alike: dict[int, int]
    bends: dict[int, tuple[int, Array]]
    linear: dict[int, Array]
    halvings: int
    blocks: int
    beyond: Upper | None = None

    def meant(self, but: int = -1) -> Graph:
        """The circuit, in which the outputs of regions, `but` for one of them, are what they stand for."""
        nodes = list(self.circuit.nodes)
        for region in (region for region in self.regions.values() if region.output != but):
            nodes[region.output] = nodes[region.stands_for]
        return Graph(tuple(nodes), self.circuit.output)

    @cached_property
    def margins_of_reads(self) -> dict[int, dict[int, float]]:
        """For all nodes inside of regions that compare themselves anew: through which arguments nothing arrives, and
        how much wider they see them."""
        found: dict[int, dict[int, float]] = {}
        for region in (region for region in self.regions.values() if region.margin is not None):
            arguments = {*region.arguments}
            for reader in region.inside:
                seen = found.setdefault(reader, {})
                for argument in arguments.intersection(self.circuit.nodes[reader].arguments):
                    seen[argument] = max(seen.get(argument, 0.0), region.margin or 0.0)
        return found


def read_proof(stored: Any, tensors: Tensors, target: Graph) -> Proof:
    """The proof of a file."""
    circuit = read_graph(field(stored, "circuit"), tensors, target)
    last = len(circuit.nodes) - 1

    def listed(name: str) -> list[Any]:
        return items(mapping(stored).get(name, []), MOST_LISTED)

    def node(each: Any, name: str = "node", most: int = last, least: int = 0) -> int:
        return whole(field(each, name), least, most)

    def array(each: Any, name: str, dimensions: int = 1) -> Array:
        return numbers(tensors, field(each, name), dimensions)

    regions = {region.output: region for region in (_region(each, tensors, circuit) for each in listed("regions"))}
    known = len(regions) == len(listed("regions")) and not any(each.stands_for in regions for each in regions.values())
    refuse(not known, "a node is the output of two regions, or of one, and another region stands for it")
    tables = {
        node(each): Table(_margin(field(each, "margin")), text(field(each, "cells"))) for each in listed("tables")
    }
    if {circuit.nodes[number].kind for number in tables} - {"expression", "attend", "sampled"}:
        raise Refused("a node has a margin, but is neither expression nor attention, nor sampled")
    views: dict[int, list[int]] = {}
    for each in listed("views"):
        views.setdefault(node(each), []).append(node(each, "as", node(each) - 1))
    alike = {node(each, "node", len(target.nodes) - 1): node(each, "as") for each in listed("alike")}
    bends = {node(each): (node(each, "argument", node(each) - 1), array(each, "kinks")) for each in listed("bends")}
    linear = {node(each, least=1): array(each, "slopes", 2) for each in listed("linear")}
    norms = {node(each): Carried(array(each, "diagonal"), flag(field(each, "flat"))) for each in listed("norms")}
    compared: list[Any] = [region.ends for region in regions.values() if region.ends is not None]
    compared += [*(kinks for _, kinks in bends.values()), *(table.cells for table in tables.values())]
    refuse(sum(map(len, compared)) > MOST_ENDS, "the cells of regions and tables are more than this kernel looks at")
    numbered = [sorted(whole(each, 0, last) for each in listed(name)) for name in ("steps", "powers")]
    steps, powers = dict[int, Any](), dict[int, Any]()
    if any(numbered):
        from ..rules.steps import power_of, step_of

        steps = {number: step_of(circuit, regions, number) for number in numbered[0]}
        for number in numbered[1]:
            powers[number] = power_of(circuit, regions, number, powers)
    refuse(any(region.inside & {*steps, *powers} for region in regions.values()), "a step lies inside of a region")
    halvings, blocks = node(stored, "halvings", MOST_HALVINGS), node(stored, "blocks", MOST_BLOCKS)
    return Proof(circuit, regions, tables, views, steps, powers, norms, alike, bends, linear, halvings, blocks)


def _margin(value: Any) -> float:
    margin = real(value)
    refuse(margin < 0.0, f"a margin is {margin}: it must not be negative")
    return margin


def _region(stored: Any, tensors: Tensors, circuit: Graph) -> Region:
    output, stands_for = (whole(field(stored, name), 0, len(circuit.nodes) - 1) for name in ("output", "stands_for"))
    ends, margin = mapping(stored).get("ends"), mapping(stored).get("margin")
    node, reference = circuit.nodes[output], circuit.nodes[stands_for]
    arguments = reference.arguments
    if not stands_for < output or node.kind != "affine" or node.size != reference.size:
        raise Refused(f"node {output} is no sum, or comes before node {stands_for} that it stands for, or is larger")
    if reference.kind == "exchange":
        arguments, constants = arguments[:1], needed(circuit, arguments[1:])
        kinds = {circuit.nodes[number].kind for number in constants}
        if arguments[0] in constants or not kinds <= {"positional", "affine"}:
            raise Refused(f"the exchange at node {output} has constants that are none")
    if reference.kind in ("input", "positional") or len({*arguments}) < len(arguments):
        raise Refused(f"node {output} stands for node {stands_for}, which reads nothing, or another one twice")
    # Inside is what the output depends on, without the arguments and what is only reached through them; constants of
    # the tokens depend on nothing, and may be read by everybody.
    between = {*needed(circuit, [output], reference.arguments)} - {*reference.arguments}
    spend(4000.0 * len(between))
    inside = frozenset(number for number in between if circuit.nodes[number].kind != "positional")
    cells = None if ends is None else numbers(tensors, ends, 1)
    return Region(output, stands_for, arguments, inside, None if margin is None else _margin(margin), cells)


def refuse_open(proof: Proof, places: Iterable[int]) -> None:
    """Nothing inside of a region is read from outside, its output aside, by what the output and heads (at `places`)
    need. Of two regions that meet, one lies inside of the other with its arguments, and the other is not compared cell
    by cell. Nothing that depends on an inside, but through the output of the region, has a view."""
    nodes, readers = proof.circuit.nodes, defaultdict[int, set[int]](set)
    for number in needed(proof.circuit, [proof.circuit.output, *places]):
        for argument in nodes[number].arguments:
            readers[argument].add(number)
    owners = defaultdict[int, list[Region]](list)
    for region in sorted(proof.regions.values(), key=lambda each: len(each.inside)):
        for number in region.inside:
            owners[number].append(region)
            if number != region.output and (number == proof.circuit.output or not readers[number] <= region.inside):
                raise Refused(f"node {number} lies inside of the region of node {region.output}, and is read outside")
    outer = {output for output in proof.regions if len(owners[output]) == 1}
    deep = owners.keys() - outer
    for number, node in enumerate(nodes):
        if number not in outer and not deep.isdisjoint(node.arguments):
            deep.add(number)
    if any(number in owners or number in deep for number in (*proof.views, *proof.bends)):
        raise Refused("a node inside of a region has a view or bends, which do not know of the margin")
    for small, large in {pair for mine in owners.values() for pair in pairwise(mine)}:
        if not {*small.inside, *small.arguments} < large.inside or large.ends is not None:
            raise Refused(f"the region of node {large.output} meets another one that does not lie inside of it")
