"""The proof of a model: what its heads compute, written so that the kernel can check it by local rules.

    circuit     the graph that the heads compute, with reference nodes: what stretches of it stand for
    regions     approximated nodes of the target, each a stretch of the circuit with the margin of its choice
    tables      the cells on which table and gate heads are compared with their expressions

Cells are searched here, by calling the kernel's own rules forwards. Nothing here is trusted: what is wrong is refused.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from headsmith.analysis.exchange import exchange
from headsmith.circuits.assemble import Assembly, Choice, Extremum, assemble, with_own_output
from headsmith.circuits.pieces import Pieces, lay_out
from headsmith.core.arrays import same_weights
from headsmith.core.certificate import Certificate
from headsmith.core.errors import CertificateError, MissingHeadError, ThinMarginError
from headsmith.core.intervals import Box
from headsmith.core.program import Over, Program, Times
from headsmith.export.nodes import node_data, program_data
from headsmith.export.stored import Header, Proof, Tensors, approximated_data, graph_data, proof_of, transformer_data
from headsmith.kernel.arithmetic import FLOAT32, Interval
from headsmith.kernel.check import DAMAGE, box_of, certificate, checked, facts_of, proved
from headsmith.kernel.chord import check_region, curves_of
from headsmith.kernel.errors import NoHead, Refused, ThinMargin
from headsmith.kernel.expressions import comparisons, headed
from headsmith.kernel.graph import Graph as KernelGraph
from headsmith.kernel.graph import read_graph
from headsmith.kernel.model import Model, read_model
from headsmith.kernel.proof import Proof as KernelProof
from headsmith.kernel.proof import Region, read_proof
from headsmith.kernel.ranges import ranges, refuse_undefined
from headsmith.kernel.reading import digest
from headsmith.kernel.same import Forms
from headsmith.kernel.sampled import BEYOND
from headsmith.kernel.slopes import edges_of
from headsmith.kernel.walk import Facts
from headsmith.lower.views import Views
from headsmith.rewrite.fuse import Fusion, fuse
from headsmith.search.cells import chord_ends, table_cells
from headsmith.search.linear import find_linear
from headsmith.search.norms import USUAL, Effort, find_norms
from headsmith.search.steps import find_powers, find_steps
from headsmith.source.graph import (
    Affine,
    Attend,
    Expression,
    Function,
    Graph,
    Hypotenuse,
    Move,
    Node,
    Positional,
    Relu,
    Sampled,
    arguments,
)
from headsmith.transformer.ir import Transformer

HALVINGS = 9
PERSPECTIVE = Program(2, (Times(0, 0), Over(2, 1)))
"""s^2 / V."""
SMALL = 64
"""Weights of at most so many numbers are stored again in the circuit; larger ones are the target's."""


@dataclass(frozen=True, eq=False)
class Draft:
    """The proof of a model, and what the kernel has found to be true of the model whatever its scales are."""

    proof: Proof
    tensors: Tensors
    target: KernelGraph
    box: Interval
    facts: Facts
    digest: str


def drafted(
    target: Graph,
    box: Box,
    choices: Mapping[int, Choice],
    fusion: Fusion | Pieces | None,
    transformer: Transformer,
    error: float = 0.0,
    effort: Effort = USUAL,
) -> Draft:
    """The proof of a model that may be off by `error`, written down and checked up to what depends on scales. Raises
    CertificateError where there is none."""
    tensors: Tensors = {}
    header = _header(target, box, transformer, tensors)
    with refusals(), np.errstate(all="ignore"):
        read = read_graph(_plain(header["source"]), tensors)
        domain = box_of(_plain(header["domain"]), read)

        def facts(effort: Effort) -> Facts:
            header["proof"] = _plain(prove(header, tensors, target, choices, fusion, error, effort))
            model = _model(header["transformer"], header["proof"], tensors)
            return facts_of(read, model, read_proof(header["proof"], tensors, read), domain)

        try:
            found = facts(effort)
        except (NoHead, ThinMargin):
            raise
        except Refused:
            # The norms of wide layers may be a little too small.
            if not any(each["flat"] for each in header.get("proof", {}).get("norms", ())):
                raise
            found = facts(replace(effort, checked=True))
    return Draft(proof_of(header, tensors), tensors, read, domain, found, digest(_plain(header["source"]), tensors))


def certified(draft: Draft, transformer: Transformer) -> Certificate:
    """What the kernel proves of a model of other scales by the same proof. Raises ThinMarginError where something is
    further off than the proof allows for, and CertificateError where nothing is proved."""
    tensors = dict(draft.tensors)
    stored = transformer_data(transformer, tensors)
    with refusals(), np.errstate(all="ignore"):
        facts = replace(draft.facts, model=_model(stored, draft.proof.stored, tensors))
        found = certificate(draft.target, facts, draft.box)
        return Certificate.of(replace(found, target=draft.digest))


def checked_again(
    target: Graph,
    box: Box,
    transformer: Transformer,
    proof: Proof,
    claim: Header | None,
    approximates: Graph | None = None,
) -> Certificate:
    """What the kernel proves of a model by a proof that it carries, from nothing else. Raises CertificateError where
    that is less than is claimed, if something is claimed."""
    tensors: Tensors = {}
    header = {**_header(target, box, transformer, tensors), **approximated_data(approximates, tensors)}
    header = _plain({**header, "proof": proof.stored, "claim": claim})
    with refusals():
        tensors = {**tensors, **proof.tensors}
        return Certificate.of(proved(header, tensors) if claim is None else checked(header, tensors))


def kernel_graph(graph: Graph) -> KernelGraph:
    """A graph as the kernel reads it."""
    tensors: Tensors = {}
    return read_graph(_plain(graph_data(graph, tensors)), tensors)


def _header(target: Graph, box: Box, transformer: Transformer, tensors: Tensors) -> Header:
    return {
        "domain": {"low": box.low.tolist(), "high": box.high.tolist()},
        "source": graph_data(target, tensors),
        "transformer": transformer_data(transformer, tensors),
    }


def _model(stored: Header, proof: Header, tensors: Tensors) -> Model:
    return read_model(_plain(stored), tensors, proof["roles"])


@contextmanager
def refusals() -> Iterator[None]:
    """What the kernel refuses, as the compiler's own errors."""
    try:
        yield
    except ThinMargin as problem:
        raise ThinMarginError(str(problem)) from None
    except NoHead as problem:
        raise MissingHeadError(str(problem)) from None
    except Refused as problem:
        raise CertificateError(str(problem)) from None
    except DAMAGE as problem:
        raise CertificateError(f"no proof was found ({type(problem).__name__}: {problem})") from problem


def prove(
    header: Header,
    tensors: Tensors,
    target: Graph,
    choices: Mapping[int, Choice],
    fusion: Fusion | Pieces | None,
    error: float = 0.0,
    effort: Effort = USUAL,
) -> Header:
    """The proof of the model in a file whose header has the target, the model and the domain; adds tensors of its
    own. `error` is how far the model may be off: what exchanges and attention read may be off by as much.
    `effort` is what norms are worth."""
    blocks = 0
    if isinstance(fusion, Pieces):
        laid = lay_out(target)
        fused, blocks = with_own_output(laid.graph), laid.tokens
        assembly = Assembly(fused, {}, (), (), {})
    else:
        fused = target if fusion is None else fuse(target, fusion)
        assembly = assemble(fused, choices)
    writer = _Writer(target, fused, assembly, choices, tensors)
    writer.write()
    if assembly.regions and not _plainly_defined(header, tensors):
        writer.copy_target()
    stored: Header = {
        "circuit": {"nodes": writer.nodes, "output": writer.places[assembly.circuit.output]},
        "regions": writer.regions,
        "tables": writer.tables,
        "views": writer.viewed,
        "steps": [],
        "norms": [],
        "linear": [],
        "bends": [*writer.views.bends, *writer.bends],
        "alike": writer.alike,
        "halvings": _halvings(header) if assembly.regions else 0,
        "blocks": blocks,
        "roles": _roles(header["transformer"], tensors, writer.places),
    }
    _search(stored, header, tensors, error, effort)
    return stored


def _roles(model: Header, tensors: Tensors, places: Mapping[int, int]) -> list[list[Header]]:
    """For each bank, the nodes and components of the proof's circuit that its outputs stand for."""
    moved = any(before != after for before, after in places.items())
    roles = []
    for index, layer in enumerate(model["layers"]):
        row = []
        for place, bank in enumerate(layer):
            name = bank["node"]
            if moved:
                name = f"proof.roles.{index}.{place}"
                tensors[name] = np.array(
                    [places.get(number, -1) for number in tensors[bank["node"]].tolist()], dtype=np.int64
                )
            row.append({"node": name, "component": bank["component"]})
        roles.append(row)
    return roles


class _Writer:
    """The circuit as a file has it, with reference nodes in front of what stands for them."""

    def __init__(
        self, target: Graph, fused: Graph, assembly: Assembly, choices: Mapping[int, Choice], tensors: Tensors
    ) -> None:
        self.target, self.fused, self.assembly, self.choices, self.tensors = target, fused, assembly, choices, tensors
        self.nodes: list[Header] = []
        self.places: dict[int, int] = {}
        self.regions: list[Header] = []
        self.tables: list[Header] = []
        self.viewed: list[Header] = []
        exchanges = (exchange(assembly.circuit, number) for number in range(len(assembly.circuit.nodes)))
        self.anew = {number for found in exchanges if found is not None for number in found[1]}
        """Nodes inside of exchanges, which must have no views."""
        self.constants: dict[Any, int] = {}
        self.alike: list[Header] = []
        self.bends: list[Header] = []
        self.scales: dict[tuple[int, str], int] = {}
        self.names = {place: number for number, place in reversed([*assembly.places.items()])}
        """The first node of the target that each node of the circuit is."""
        self.views = Views(fused, lambda number: self.places[assembly.places[number]], self._add, self._keep)
        within = {inner for region in assembly.regions.values() for inner in region}
        self.extrema = {item.node: item for item in assembly.extrema if item.node not in within}
        self.outputs = {assembly.places[number]: number for number in assembly.regions}
        self.perspectives = [
            (splice, splice.scale)
            for splice in assembly.splices
            if splice.scale is not None and not isinstance(fused.nodes[splice.target], Hypotenuse)
        ]
        self.fragments = {splice.first + splice.fragment.graph.output - 1: splice for splice in assembly.splices}
        self.large = {
            number: node
            for number, node in enumerate(target.nodes)
            if isinstance(node, Affine) and any(term.weights.size > SMALL for term in node.terms)
        }

    def write(self) -> None:
        for number, node in enumerate(self.assembly.circuit.nodes):
            self._enter_perspective(number)
            references = self._references(number)
            viewed = self.names.get(number)
            plain = viewed is not None and not references and number not in self.anew
            views = self.views.of(viewed) if viewed is not None and plain else []
            if number in self.extrema:
                views.append(self._extremum(self.extrema[number]))
            exchanged = self._exchange(number)
            self.places[number] = self._placed(node, self._seen(number))
            self.viewed += [{"node": self.places[number], "as": view} for view in views]
            if exchanged is not None:
                self.regions.append({"output": self.places[number], "stands_for": exchanged, "margin": 0.0})
            for reference, ends in references:
                owner = self.fragments[number].target if ends else self.outputs[number]
                # Halves of a product lie inside of its region: what they read is not off.
                halved = ends and self.fragments[number].part
                margin = 0.0 if halved and self.choices[owner].margin is not None else self.choices[owner].margin
                region = {"output": self.places[number], "stands_for": reference, "margin": margin}
                self.regions.append({**region, "ends": ""} if ends else region)
            if isinstance(node, Sampled):
                self.tables.append({"node": self.places[number], "margin": BEYOND / 2.0, "cells": ""})
            if isinstance(node, Expression):
                owner = next(each for each, region in self.assembly.regions.items() if number in region)
                self.tables.append({"node": self.places[number], "margin": self.choices[owner].margin, "cells": ""})
            if isinstance(node, Attend):
                self.tables.append({"node": self.places[number], "margin": 0.0, "cells": ""})

    def _placed(self, node: Node, places: Mapping[int, int]) -> int:
        """A new node; equal constants of the tokens are one node, since they are one register."""
        if not isinstance(node, Positional):
            return self._add(self._stored(node, places))
        key = node.values.shape, node.values.tobytes()
        if key not in self.constants:
            self.constants[key] = self._add(self._stored(node, places))
        return self.constants[key]

    def _extremum(self, item: Extremum) -> int:
        """A reference node that is the maximum or minimum of two nodes, of which the circuit has a sum."""
        kind, sides = "maximum" if item.largest else "minimum", [self.places[item.left], self.places[item.right]]
        return self._add({"kind": kind, "arguments": sides, "size": self.assembly.circuit.nodes[item.node].size})

    def copy_target(self) -> None:
        """The whole target as reference nodes, with views: where that shows that its functions are defined, and adding
        up intervals does not."""
        places = {0: 0}
        views = Views(self.target, places.__getitem__, self._add, self._keep)
        for number, node in list(enumerate(self.target.nodes))[1:]:
            found = views.of(number)
            places[number] = self._placed(node, places)
            self.viewed += [{"node": places[number], "as": view} for view in found]
            self.alike.append({"node": number, "as": places[number]})
        self.bends += views.bends

    def _exchange(self, number: int) -> int | None:
        """The reference node of an exchange, with others for its constants."""
        found = exchange(self.assembly.circuit, number)
        node = self.assembly.circuit.nodes[number]
        if found is None or not isinstance(node, Affine):
            return None
        value, nodes = found[0], self.assembly.circuit.nodes
        (moved,) = (each for each in (nodes[inner] for inner in found[1]) if isinstance(each, Move))
        parts = {"value": self.places[value], "targets": list(moved.targets), "size": node.size}
        for term in node.terms:
            gate = nodes[term.node]
            if isinstance(gate, Relu) and isinstance(argument := nodes[gate.argument], Affine):
                # relu(x - m - c) falls, relu(m - x - d) rises.
                name = "above" if float(term.weights.reshape(-1)[0]) < 0.0 else "below"
                tables = [each for each in argument.terms if isinstance(nodes[each.node], Positional)]
                terms = [{"node": self.places[each.node], "weights": self._keep(-each.weights)} for each in tables]
                parts[name] = self._add({"kind": "affine", "terms": terms, "bias": self._keep(-argument.bias)})
        return self._add({"kind": "exchange", **parts})

    def _add(self, stored: Header) -> int:
        self.nodes.append(stored)
        return len(self.nodes) - 1

    def _references(self, number: int) -> list[tuple[int, bool]]:
        """Reference nodes for a circuit node, each with whether it is compared cell by cell."""
        found = []
        owner = self.outputs.get(number)
        if number in self.fragments and owner is not None and isinstance(self.fused.nodes[owner], Hypotenuse):
            return [(self._reference(owner), True)]
        if number in self.fragments:
            splice = self.fragments[number]
            node = self.fused.nodes[splice.target]
            name, parameter = (node.name, node.parameter) if isinstance(node, Function) else ("square", None)
            argument = self.places[splice.argument]
            size = self.assembly.circuit.nodes[splice.argument].size
            stored = {"kind": "function", "name": name, "argument": argument, "size": size, "parameter": parameter}
            if splice.scale is not None:
                arguments_ = [argument, self.scales[splice.scale, splice.part]]
                stored = {
                    "kind": "expression",
                    "arguments": arguments_,
                    "size": size,
                    "program": program_data(PERSPECTIVE),
                }
            found.append((self._add(stored), True))
        circuit_node = self.assembly.circuit.nodes[number]
        if owner is not None and number not in self.fragments and not isinstance(circuit_node, Expression):
            found.append((self._reference(owner), False))
        return found

    def _reference(self, number: int) -> int:
        """A node of the fused target, which reads what the circuit has for its arguments."""
        node = self.fused.nodes[number]
        renamed = {each: self.places[self.assembly.places[each]] for each in arguments(node)}
        return self._add(node_data(node, renamed.__getitem__, self._keep_named))

    def _stored(self, node: Node, places: Mapping[int, int]) -> Header:
        if isinstance(node, Sampled):
            (number,) = (n for n, other in enumerate(self.target.nodes) if isinstance(other, Sampled))
            return {"kind": "copy", "node": number, "arguments": [places[each] for each in arguments(node)]}
        if isinstance(node, Affine):
            for number, other in self.large.items():
                if _same_weights(node, other):
                    return {"kind": "copy", "node": number, "arguments": [places[each] for each in arguments(node)]}
        return node_data(node, places.__getitem__, self._keep_named)

    def _enter_perspective(self, number: int) -> None:
        """In front of a perspective, a copy of its scale: it must not read the argument of the region around it."""
        for splice, scale in self.perspectives:
            if splice.first == number:
                size = self.assembly.circuit.nodes[scale].size
                terms = [{"node": self.places[scale], "weights": self._keep(np.ones(size))}]
                copy = self._add({"kind": "affine", "terms": terms, "bias": self._keep(np.zeros(size))})
                self.scales[scale, splice.part] = copy

    def _seen(self, number: int) -> Mapping[int, int]:
        """Where a node finds what it reads: in a perspective, its own copy of the scale."""
        for splice, scale in self.perspectives:
            if splice.first <= number < splice.first + len(splice.fragment.graph.nodes) - 1:
                return {**self.places, scale: self.scales[scale, splice.part]}
        return self.places

    def _keep_named(self, _: str, values: Any, kind: Any = np.float64) -> str:
        return self._keep(values, kind)

    def _keep(self, values: Any, kind: Any = np.float64) -> str:
        name = f"proof.{len(self.tensors)}"
        self.tensors[name] = np.ascontiguousarray(values, dtype=kind)
        return name


def _halvings(header: Header) -> int:
    """How often the domain is cut. Where the inputs are many, halving a few of them gains little, and every function
    has to be enclosed on every cell."""
    return HALVINGS if len(header["domain"]["low"]) <= HALVINGS else 0


def _plainly_defined(header: Header, tensors: Tensors) -> bool:
    """Whether intervals alone show that every function of the target is defined on the whole domain."""
    target = read_graph(_plain(header["source"]), tensors)
    bare = KernelProof(target, {}, {}, {}, {}, {}, {}, {}, {}, {}, _halvings(header), 0)
    try:
        refuse_undefined(target, Interval(header["domain"]["low"], header["domain"]["high"]), bare, ())
    except Refused:
        return False
    return True


def _same_weights(left: Affine, right: Affine) -> bool:
    return (
        len(left.terms) == len(right.terms)
        and np.array_equal(left.bias, right.bias)
        and all(same_weights(a.weights, b.weights) for a, b in zip(left.terms, right.terms, strict=True))
    )


def _search(stored: Header, header: Header, tensors: Tensors, error: float, effort: Effort) -> None:
    """Find the ends of cells for regions that are compared with functions, and the cells of tables."""
    target = read_graph(_plain(header["source"]), tensors)
    model, proof = _parsed(stored, header, tensors, target)
    if stored["views"]:
        # A sum that is too large to be written out is equal to no other.
        forms = Forms().of(proof.meant(), range(len(proof.circuit.nodes)))
        stored["views"] = [each for each in stored["views"] if forms[each["node"]] == forms[each["as"]]]
        model, proof = _parsed(stored, header, tensors, target)
    inside = _inside(proof)
    if any(each["node"] in inside for name in ("views", "bends") for each in stored[name]):
        # These do not know of the margin.
        for name in ("views", "bends"):
            stored[name] = [each for each in stored[name] if each["node"] not in inside]
        model, proof = _parsed(stored, header, tensors, target)
    proof = replace(proof, steps=find_steps(proof), powers=find_powers(proof))
    stored["steps"], stored["powers"] = list(proof.steps), list(proof.powers)
    box = box_of(_plain(header["domain"]), target)
    proof = replace(proof, linear=find_linear(proof.circuit, box).slopes)
    for number, slopes in proof.linear.items():
        tensors[f"proof.linear.{number}"] = slopes
        stored["linear"].append({"node": number, "slopes": f"proof.linear.{number}"})
    regions = {region["output"]: region for region in stored["regions"]}

    def compare(proof_: KernelProof, region: Region, around: list[Interval]) -> Any:
        name, wide = f"proof.ends.{region.output}", [each.widened(region.margin or 0.0) for each in around]
        each = [chord_ends(curve) for curve in curves_of(proof_, region, wide)[0]]
        ends = each[0] if len(each) == 1 else np.unique(np.concatenate(each))
        tensors[name], regions[region.output]["ends"] = ends, name
        return check_region(proof_, replace(region, ends=ends), around)

    with np.errstate(all="ignore"):
        found, _ = ranges(proof, box, compare)
        cells = dict.fromkeys(proof.tables, "")
        for each in comparisons(proof, model, found):
            numbers = [number for members in each.columns.values() for number, _ in members]
            margin = max(proof.tables[number].margin for number in numbers)
            cells.update(dict.fromkeys(numbers, table_cells(each.table, margin=margin).text))
        stored["norms"] = _norms(proof, model, found, tensors, effort)
    nodes = proof.circuit.nodes
    for region in stored["regions"]:
        if nodes[region["stands_for"]].kind == "exchange":
            region["margin"] = _share(error, found[nodes[region["stands_for"]].arguments[0]])
    for table in stored["tables"]:
        table["cells"] = cells[table["node"]]
        if nodes[table["node"]].kind == "attend":
            table["margin"] = _share(error, found[nodes[table["node"]].arguments[0]])


def _inside(proof: KernelProof) -> set[int]:
    """The nodes inside of regions, and all that depend on them but through the output of an outermost region."""
    owners = Counter(number for region in proof.regions.values() for number in region.inside)
    outer = {output for output in proof.regions if owners[output] == 1}
    deep = owners.keys() - outer
    for number, node in enumerate(proof.circuit.nodes):
        if number not in outer and not deep.isdisjoint(node.arguments):
            deep.add(number)
    return deep | owners.keys()


def _norms(proof: KernelProof, model: Model, found: list[Interval], tensors: Tensors, effort: Effort) -> list[Header]:
    """Diagonals for networks of several layers of gates."""
    places = headed(proof.circuit, model)
    gates = [number for number in places if proof.circuit.nodes[number].kind == "relu"]
    if proof.regions or proof.tables or len(gates) < 2:
        return []
    edges = edges_of(proof, found, places, {}).of
    stored = []
    counted = [*gates, 0] if model.precision is FLOAT32 else gates
    for number, carried in find_norms(proof.circuit, edges, counted, effort).items():
        tensors[f"proof.norms.{number}"] = carried.diagonal
        stored.append({"node": number, "diagonal": f"proof.norms.{number}", "flat": carried.flat})
    return stored


def _share(error: float, range_: Interval) -> float:
    """How far values may be off that have no choice of their own: the error, or a thousandth of the largest. An error
    beyond all values asks for nothing."""
    size = float(np.max(range_.magnitude.value))
    return max(error if error < size else 0.0, 1e-3 * size)


def _parsed(stored: Header, header: Header, tensors: Tensors, target: Any) -> tuple[Model, KernelProof]:
    for region in stored["regions"]:
        if region.get("ends") == "":
            tensors.setdefault("proof.none", np.zeros(0))
            region["ends"] = "proof.none"
    plain = _plain(stored)
    return read_model(_plain(header["transformer"]), tensors, plain["roles"]), read_proof(plain, tensors, target)


def _plain(value: Any) -> Any:
    return json.loads(json.dumps(value))
