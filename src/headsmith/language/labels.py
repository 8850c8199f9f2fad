"""What the heads of a model compute: the circuit of its proof, whose nodes have labels in words of the target.

A proof's circuit also has reference nodes, which no head computes: they say what stretches of it stand for. Here the
circuit is read without them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headsmith.language.builder import moved, taken_apart
from headsmith.language.graph import Graph, Node, Relu, arguments, needed
from headsmith.language.stored import Header, Proof, read_node


@dataclass(frozen=True, eq=False)
class Labels:
    """For nodes of a proof's circuit the node of the target that they stand for. With `apart`, of the target whose
    quotients are products with reciprocals."""

    means: Mapping[int, int] = field(default_factory=dict)
    apart: bool = False

    def words(self, target: Graph) -> Graph:
        """The graph whose nodes the labels name."""
        return taken_apart(target)[0] if self.apart else target


@dataclass(frozen=True, eq=False)
class Circuit:
    """What heads compute. `places` has the numbers that nodes of the proof's circuit have in the graph; `regions` has
    for each node that stands for one of the target, as a whole, the nodes that it is made of, itself included."""

    graph: Graph
    places: Mapping[int, int]
    regions: Mapping[int, frozenset[int]]

    @property
    def parts(self) -> dict[int, int]:
        """Of gates in a region, which node stands for the function that they are a part of."""
        inside = ((gate, output) for output, nodes in self.regions.items() for gate in nodes)
        return {gate: output for gate, output in inside if isinstance(self.graph.nodes[gate], Relu)}


def labels_data(labels: Labels) -> Header:
    """Labels as JSON."""
    return {"means": [list(pair) for pair in sorted(labels.means.items())], "apart": labels.apart}


def read_labels(stored: Header) -> Labels:
    """The labels that `labels_data` stored."""
    return Labels({int(place): int(number) for place, number in stored["means"]}, bool(stored["apart"]))


def circuit_of(proof: Proof, target: Graph) -> Circuit:
    """What heads compute, of a model of the target with this proof."""
    stored, nodes = proof.stored["circuit"], dict[int, Node]()
    waiting = [0, int(stored["output"])]
    while waiting:
        number = waiting.pop()
        if number not in nodes:
            nodes[number] = read_node(stored["nodes"][number], proof.tensors.__getitem__, target)
            waiting += arguments(nodes[number])
    places = {number: place for place, number in enumerate(sorted(nodes))}
    graph = Graph(tuple(moved(nodes[number], places) for number in sorted(nodes)), places[int(stored["output"])])
    return Circuit(graph, places, _regions(proof, graph, places))


def _regions(proof: Proof, graph: Graph, places: Mapping[int, int]) -> dict[int, frozenset[int]]:
    """Those of the proof that lie in no other one, without exchanges."""
    nodes, insides = proof.stored["circuit"]["nodes"], dict[int, frozenset[int]]()
    for region in proof.stored.get("regions", ()):
        reference = nodes[region["stands_for"]]
        if region["output"] in places and reference["kind"] != "exchange":
            output = places[region["output"]]
            ends = {places.get(each, -1) for each in _read(reference)}
            insides[output] = frozenset(each for each in needed(graph, output, ends) if each not in ends)
    inner = {each for output, nodes in insides.items() for each in nodes if each != output}
    return {output: nodes for output, nodes in insides.items() if output not in inner}


def _read(reference: Header) -> tuple[int, ...]:
    """What a reference node reads."""
    return arguments(read_node(reference, lambda _: ()))
