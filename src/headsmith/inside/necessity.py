"""Which edges of a model matter, proven: every edge is true, false, or grey.

    true     a witness: two inputs at which cutting the edge moves an output by more than TRUE certificates, in any
             floating-point execution (kernel/rules/witness.py)
    false    cutting it moves no output by more than one certificate, at any two inputs
    grey     neither is proven; counted neither way

Between the two lies a factor of TRUE, so that no method is judged at the edge. Upper bounds come from theorems:

    Z (weights)     No weight that is not zero carries the inputs from the one to the other. What the source adds to the
                    stream is the same for both inputs in every column that the reader reads, so the cut run is the run.
    K (constant)    The source returns the same whatever the inputs are: then so.

Sufficiency.  If all edges but the true ones are such, the true edges alone, all others being cut by any other input,
are the model: cutting them changes nothing, one after the other.

Irredundant is not unique: of two edges that cancel each one may be necessary, and both together not. The circuit is
*unique* among its subsets if every non-empty set of cuts does damage, one witness for each set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

import numpy as np

from headsmith.core.arrays import Array
from headsmith.inside.ablation import INPUT, Edge, Machine, Node, Trace, batches
from headsmith.kernel.rules.witness import damages

TRUE = 10.0
"""A true edge does so many certificates of damage."""

PAIRS, MORE = 512, 2048
"""How many pairs of inputs are looked at for every edge, and how many for those that were not decided."""

MOST_RUNS = 1 << 19
"""So many runs are made for all edges that are not decided; no search is made that would take more."""

MOST_SETS = 1 << 13
"""So many sets of cuts are looked at, one by one."""

Label = Literal["true", "false", "grey"]
Draw = Callable[[np.random.Generator, int], Array]
"""Draws inputs (count, tokens, inputs) of the domain."""


@dataclass(frozen=True, eq=False)
class Damage:
    """What cutting does at one pair of inputs: proven, and as floating point found it; the share of pairs at which it
    is more than TRUE certificates, an estimate; which output moves, at which data token."""

    proved: float
    found: float
    share: float
    base: Array
    source: Array
    output: int
    token: int


@dataclass(frozen=True, eq=False)
class Judged:
    """An edge, or a head, with its label; `at_most` bounds the damage of a false one, and `why` says by which
    theorem."""

    label: Label
    carries: Literal["input", "constant", "nothing"]
    damage: Damage | None = None
    at_most: float | None = None
    why: str = ""


def joined(machine: Machine, edge: Edge) -> bool:
    """Whether a weight that is not zero joins two ends in a column of the stream."""
    return bool(np.any(np.abs(machine.writes(edge.source)) @ np.abs(machine.reads(edge.target, edge.read_as))))


def outgoing(machine: Machine, head: Node) -> tuple[Edge, ...]:
    """The edges that lead from a head: cut together, they are the head's ablation."""
    return tuple(edge for edge in machine.edges() if edge.source == head and joined(machine, edge))


def varying(machine: Machine) -> set[Node]:
    """The nodes that may return something else for other inputs: paths of weights lead there from the inputs."""
    found = {INPUT}
    for head in machine.heads:
        if any(
            before in found
            and (before == INPUT or before[0] < head[0])
            and joined(machine, Edge(before, head, read_as))
            for before in [INPUT, *machine.heads]
            for read_as in "qkv"
        ):
            found.add(head)
    return found


def by_weights(machine: Machine) -> dict[Edge, Judged]:
    """Every edge, as weights decide it: false by theorem Z or K, else grey."""
    moves, constants = varying(machine), np.abs(machine.constants()).max(axis=0)
    found: dict[Edge, Judged] = {}
    for edge in machine.edges():
        reads = np.abs(machine.reads(edge.target, edge.read_as))
        if joined(machine, edge) and edge.source in moves:
            found[edge] = Judged("grey", "input")
        elif joined(machine, edge):
            found[edge] = Judged("false", "constant", at_most=0.0, why="constant")
        else:
            fixed = edge.source == INPUT and bool(np.any(constants @ reads))
            found[edge] = Judged("false", "constant" if fixed else "nothing", at_most=0.0, why="weights")
    return found


def judged(
    machine: Machine, decided: Mapping[Edge, Judged], error: float, draw: Draw, seed: int = 0, search: bool = True
) -> dict[Edge, Judged]:
    """Every edge of a model whose certificate is `error`; theorems have decided what is not grey. Without a `search`,
    the others stay so."""
    found = dict(decided)
    open_ = [edge for edge, each in found.items() if each.label == "grey"]
    for count in (PAIRS, MORE) if search and open_ else ():
        if len(open_) * count > MOST_RUNS:
            continue
        seen = searched(machine, [(edge,) for edge in open_], error, draw, count, seed)
        for (edge,), damage in seen.items():
            found[edge] = Judged("true" if damage.proved > TRUE * error else "grey", "input", damage)
        open_ = [edge for edge in open_ if found[edge].label == "grey"]
        if not open_:
            break
    return found


def searched(
    machine: Machine, cuts: Sequence[tuple[Edge, ...]], error: float, draw: Draw, count: int, seed: int
) -> dict[tuple[Edge, ...], Damage]:
    """For each set of cuts the pair of inputs where it does most, of so many, enclosed."""
    generator = np.random.default_rng([seed, count])
    bases, sources = draw(generator, count), draw(generator, count)
    worst, places = np.full(len(cuts), -1.0), np.zeros((len(cuts), 3), dtype=int)
    often = np.zeros(len(cuts))
    for rows in batches(machine, count, bases.shape[1]):
        mine, other = machine.run(bases[rows]), machine.run(sources[rows])
        for number, cut in enumerate(cuts):
            moved = moved_by(machine, mine, other, cut)
            each = moved.reshape(len(moved), -1).max(axis=1)
            often[number] += np.count_nonzero(each > TRUE * error)
            if each.max() > worst[number]:
                worst[number] = each.max()
                pair, token, output = np.unravel_index(int(np.argmax(moved)), moved.shape)
                places[number] = rows.start + pair, token, output
    proved = enclosed(machine, cuts, bases[places[:, 0]], sources[places[:, 0]])
    found = {}
    for number, (pair, token, output) in enumerate(places.tolist()):
        least = float(proved[number][token, output])
        share = float(often[number] / count)
        found[cuts[number]] = Damage(least, float(worst[number]), share, bases[pair], sources[pair], output, token)
    return found


def moved_by(machine: Machine, mine: Trace, other: Trace, cut: Sequence[Edge]) -> Array:
    """How far a set of cuts moves the outputs: (pairs, tokens, outputs)."""
    return np.asarray(np.abs(machine.cut(mine, other, cut).outputs - mine.outputs))


def enclosed(machine: Machine, cuts: Sequence[Sequence[Edge]], bases: Array, sources: Array) -> list[Array]:
    """What the kernel's rule proves of so many sets of cuts, each at a pair of inputs."""
    found: list[Array] = []
    for rows in batches(machine, len(cuts), bases.shape[1] if len(cuts) else 1):
        found += list(damages(machine.tensors, machine.config, cuts[rows], bases[rows], sources[rows]))
    return found


def uniqueness(machine: Machine, edges: Mapping[Edge, Judged], error: float, draw: Draw, seed: int = 0) -> str:
    """How much of the circuit is proven to be needed: "all" (every set of cuts of true edges does damage), "order k"
    (every set of at most k), or "irredundant" (every single one)."""
    true = [edge for edge, each in edges.items() if each.label == "true"]
    order = 1
    for size in range(2, len(true) + 1):
        sets = list(combinations(true, size))
        if len(sets) > MOST_SETS:
            break
        if not _all_damaging(machine, sets, error, draw, seed):
            break
        order = size
    if order == len(true):
        return "all"
    return f"order {order}" if order > 1 else "irredundant"


def _all_damaging(machine: Machine, sets: Iterable[tuple[Edge, ...]], error: float, draw: Draw, seed: int) -> bool:
    waiting = list(sets)
    for count in (32, PAIRS):
        seen = searched(machine, waiting, error, draw, count, seed)
        waiting = [cut for cut, each in seen.items() if each.proved <= TRUE * error]
        if not waiting:
            return True
    return False
