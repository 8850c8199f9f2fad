"""The circuit of a proof: its regions, and which heads compute which of its nodes.

A region is a stretch of the circuit that stands for a reference node, which nobody computes: its output is an affine
node, and its inside is all that the output depends on, up to the arguments of the reference node. With a margin, a
region restarts the comparison: its arguments may be off by that much, and what is inside sees them so much wider.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

import numpy as np

from headsmith.small_kernel.bounds import Array, Outside, require
from headsmith.small_kernel.file import Bank, File, Node, Region

KINDS = {
    "sink": {"relu"},
    "table": {"expression"},
    "gate": {"expression"},
    "mean": {"mean"},
    "boltzmann": {"max"},
    "move": {"move"},
}


@dataclass(frozen=True, eq=False)
class Circuit:
    nodes: list[Node]
    output: int
    regions: dict[int, Region]  # by their outputs
    inside: dict[int, frozenset[int]]
    heads: dict[int, Array]  # for each node that heads compute: which of its components
    needed: frozenset[int]  # what the output or a head depends on

    def between(self, reader: int, argument: int) -> list[float]:
        """The margins of the regions that have the argument as one of theirs, and the reader inside."""
        around = [r for o, r in self.regions.items() if reader in self.inside[o] and r.margin is not None]
        return [r.margin for r in around if r.margin is not None and argument in self.nodes[r.stands_for].reads]

    def margin(self, readers: Iterable[int], argument: int) -> float:
        """By how much wider a node is seen by its readers."""
        return max((m for reader in readers for m in self.between(reader, argument)), default=0.0)

    def sheltered(self, n: int) -> bool:
        """Inside of a region with a margin: what a node holds there is not what its range speaks of."""
        return any(n in self.inside[o] for o, r in self.regions.items() if r.margin is not None)


def reached(nodes: list[Node], start: Iterable[int], stop: Collection[int] = ()) -> frozenset[int]:
    """All nodes that `start` depends on, these included, but not through `stop`."""
    todo, met = list(start), set[int]()
    while todo:
        n = todo.pop()
        if n not in met and n not in stop:
            met.add(n)
            todo += nodes[n].reads
    return frozenset(met)


def circuit_of(file: File) -> Circuit:
    """Refused unless regions are regions, nobody reads an inside from outside, and regions that meet are nested."""
    (nodes, output), regions, heads = file.circuit, file.regions, dict[int, Array]()
    for bank in (bank for layer in file.layers for bank in layer):
        assign(bank, nodes, heads)
    require(
        all(nodes[n].kind == "relu" or computed.all() for n, computed in heads.items()), "a node is computed in part"
    )
    inside = {}
    for o, r in regions.items():
        reference = nodes[r.stands_for]
        require(
            r.stands_for < o and reference.size == nodes[o].size and nodes[o].kind == "affine",
            f"region {o} stands for no smaller node",
        )
        require(
            reference.kind not in ("input", "positional") and r.stands_for not in regions,
            f"region {o} stands for no operation",
        )
        require(
            len(set(reference.reads)) == len(reference.reads), f"region {o} stands for an operation on equal arguments"
        )
        inside[o] = frozenset(n for n in reached(nodes, [o], reference.reads) if nodes[n].kind != "positional")
        require(0 not in inside[o], f"region {o} has the inputs inside")
    circuit = Circuit(nodes, output, regions, inside, heads, reached(nodes, [output, *heads]))
    for o, mine in inside.items():
        read = {a for n in circuit.needed - mine for a in nodes[n].reads} | {output}
        require(not read & (mine - {o}), f"the inside of region {o} is read from outside")
        for other in (k for k, theirs in inside.items() if (k != o and o in theirs) or (k < o and theirs & mine)):
            inner, outer = (o, other) if o in inside[other] else (other, o)
            needs = {
                n for n in (*inside[inner], *nodes[regions[inner].stands_for].reads) if nodes[n].kind != "positional"
            }
            require(needs <= inside[outer] and regions[outer].ends is None, f"regions {o} and {other} overlap")
    return circuit


def assign(bank: Bank, nodes: list[Node], heads: dict[int, Array]) -> None:
    """The roles of a bank: each node is computed by one bank, and each component at most once. All -1: it copies."""
    if (bank.node == -1).all():
        return
    require(bank.node.min() > 0 and bank.component.min() >= 0, "a role names no node")
    for n in np.unique(bank.node).tolist():
        kind = nodes[n].plain[0] if nodes[n].kind == "pool" else nodes[n].kind
        if (bank.kind, kind) == ("table", "relu"):
            raise Outside("gates that are tables")
        require(kind in KINDS[bank.kind] and n not in heads, f"a bank of kind {bank.kind} cannot compute node {n}")
        times = np.bincount(bank.component[bank.node == n], minlength=nodes[n].size)
        require(times.max() == 1 and len(times) == nodes[n].size, f"components of node {n} are not computed once")
        heads[n] = times == 1


def demanded(bank: Bank, nodes: list[Node]) -> list[tuple[int, Array, Array]]:
    """What the forms of a bank should be: for each node that it reads, which forms, and which components of the
    node."""
    pairs: dict[int, list[tuple[int, int]]] = {}
    heads = len(bank.arrays["slope"]) if "slope" in bank.arrays else len(bank.node)
    columns, width = len(bank.node) // heads, bank.forms // heads
    for k, (n, c) in enumerate(zip(bank.node.tolist(), bank.component.tolist(), strict=True)):
        first = k // columns * columns
        require(
            bank.component[first] == c and nodes[bank.node[first]].reads == nodes[n].reads,
            "columns of a head read different arguments",
        )
        require(len(nodes[n].reads) == width, "a head reads another number of arguments")
        if k == first:
            for i, a in enumerate(nodes[n].reads):
                pairs.setdefault(a, []).append((k // columns * width + i, c))
    return [(a, *(np.array(x) for x in zip(*which, strict=True))) for a, which in pairs.items()]  # type: ignore[misc]
