"""The proof of a model: what its heads compute, written so that the kernel can check it by local rules.

    circuit     the graph that the heads compute, with reference nodes: what stretches of it stand for
    regions     approximated nodes of the target, each a stretch of the circuit with the margin of its choice
    tables      the cells on which table and gate heads are compared with their expressions

Cells are searched here, by calling the kernel's own rules forwards. Nothing here is trusted: what is wrong is refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from headsmith.core.certificate import Certificate
from headsmith.core.errors import CertificateError, MissingHeadError, ThinMarginError
from headsmith.core.intervals import Box
from headsmith.kernel.core.arithmetic import FLOAT32, Interval
from headsmith.kernel.core.check import DAMAGE, box_of, certificate, facts_of, proved
from headsmith.kernel.core.errors import NoHead, Refused, ThinMargin
from headsmith.kernel.core.expressions import comparisons, headed
from headsmith.kernel.core.graph import Graph as KernelGraph
from headsmith.kernel.core.graph import read_graph
from headsmith.kernel.core.model import Model, read_model
from headsmith.kernel.core.proof import Proof as KernelProof
from headsmith.kernel.core.proof import Region, read_proof
from headsmith.kernel.core.ranges import ranges, refuse_undefined
from headsmith.kernel.core.reading import digest
from headsmith.kernel.core.same import Forms
from headsmith.kernel.core.slopes import edges_of
from headsmith.kernel.core.walk import Facts
from headsmith.kernel.rules.chord import check_region, curves_of
from headsmith.language.graph import Affine, Graph, Input
from headsmith.language.labels import Labels
from headsmith.language.stored import PROOF, SOURCE, Header, Proof, Tensors, approximated_data, graph_data
from headsmith.plan.circuits.assemble import Assembly, Choice, assemble, expressions_of, with_own_output
from headsmith.plan.circuits.pieces import Pieces, lay_out
from headsmith.plan.evidence.cells import chord_ends, table_cells
from headsmith.plan.evidence.linear import find_linear
from headsmith.plan.evidence.norms import USUAL, Effort, find_norms
from headsmith.plan.evidence.steps import find_powers, find_steps
from headsmith.plan.rewrite.fuse import Fusion, named
from headsmith.prove.proof_circuit import Writer
from headsmith.transformer.ir import Transformer
from headsmith.transformer.stored import numbered, roles_data, transformer_data

HALVINGS = 9


@dataclass(frozen=True, eq=False)
class Draft:
    """The proof of a model, and what the kernel has found to be true of the model whatever its scales are. `places`
    are the numbers that the nodes of the model's heads have in the proof, and `labels` say what its nodes mean."""

    proof: Proof
    places: Mapping[int, int]
    labels: Labels
    tensors: Tensors
    target: KernelGraph
    box: Interval
    facts: Facts
    digest: str

    def without_weights(self) -> Draft:
        """The same without the model's weights, which take memory: for models of other scales, only what the heads
        stand for is needed."""
        model = self.facts.model
        layers = tuple(tuple(replace(bank, read=(), write=()) for bank in layer) for layer in model.layers)
        return replace(self, facts=replace(self.facts, model=replace(model, embedding=(), readout=(), layers=layers)))


@dataclass(frozen=True, eq=False)
class Wanted:
    """What is to be proved: that a model computes a target, which was fused and whose nodes were approximated so. The
    model may be off by `error`: what exchanges and attention read may be off by as much. `effort` is what norms are
    worth; the circuit that the choices lead to may be there already."""

    target: Graph
    choices: Mapping[int, Choice]
    fusion: Fusion | Pieces | None
    transformer: Transformer
    error: float = 0.0
    effort: Effort = USUAL
    assembly: Assembly | None = None


def drafted(wanted: Wanted, box: Box) -> Draft:
    """The proof of a model on a box, written down and checked up to what depends on scales. Raises CertificateError
    where there is no proof."""
    tensors: Tensors = {}
    header = _header(wanted.target, box, wanted.transformer, tensors)
    with refusals(), np.errstate(all="ignore"):
        read = read_graph(header["source"], tensors)
        domain = box_of(header["domain"], read)

        def facts(wanted: Wanted) -> tuple[Written, Facts]:
            written = prove(header, tensors, read, wanted)
            header["proof"] = written.stored
            model = read_model(header["transformer"], tensors, header["proof"]["roles"])
            return written, facts_of(read, model, read_proof(header["proof"], tensors, read), domain)

        try:
            written, found = facts(wanted)
        except (NoHead, ThinMargin):
            raise
        except Refused:
            # The norms of wide layers may be a little too small.
            if not any(each["flat"] for each in header.get("proof", {}).get("norms", ())):
                raise
            written, found = facts(replace(wanted, effort=replace(wanted.effort, checked=True)))
    own = {name: each for name, each in tensors.items() if name.startswith((SOURCE, PROOF))}
    about = digest(header["source"], tensors)
    proof = Proof.of(header["proof"], tensors)
    return Draft(proof, written.places, written.labels, own, read, domain, found, about)


def certified(draft: Draft, transformer: Transformer | None = None) -> Certificate:
    """What the kernel proves of the model that a proof was written for; or of one of other scales by the same proof,
    whose heads stand for nodes as the proof numbers them (`Draft.places`). Raises ThinMarginError where something is
    further off than the proof allows for, and CertificateError where nothing is proved."""
    with refusals(), np.errstate(all="ignore"):
        facts = draft.facts if transformer is None else replace(draft.facts, model=_model_of(draft, transformer))
        found = certificate(draft.target, facts, draft.box)
        return Certificate.of(replace(found, target=draft.digest))


def proved_again(
    target: Graph, box: Box, transformer: Transformer, proof: Proof, approximates: Graph | None = None
) -> Certificate:
    """What the kernel proves of a model by a proof that it carries, from nothing else; CertificateError if nothing."""
    tensors: Tensors = dict(proof.tensors)
    header = {**_header(target, box, transformer, tensors), **approximated_data(approximates, tensors)}
    header["proof"] = {**proof.stored, "roles": roles_data(transformer, tensors)}
    with refusals():
        return Certificate.of(proved(header, tensors))


def with_wider_margins(target: Graph, box: Box, transformer: Transformer, proof: Proof, margin: float) -> Proof:
    """The proof of a model whose regions and tables allow for reads that are off by `margin`, at least: their cells are
    searched anew. The same proof, where all do. (Regions of no margin that lie in others read nothing that is off.)"""
    stored = deepcopy(proof.stored)
    parts = [each for each in stored.get("regions", []) if each["margin"]] + stored.get("tables", [])
    thin = [each for each in parts if each["margin"] is not None and each["margin"] < margin]
    if not thin:
        return proof
    for each in thin:
        each["margin"] = margin
    tensors: Tensors = dict(proof.tensors)
    header = _header(target, box, transformer, tensors)
    stored |= {"roles": roles_data(transformer, tensors), "norms": [], "linear": []}
    with refusals(), np.errstate(all="ignore"):
        _search(stored, header, tensors, read_graph(header["source"], tensors), 0.0, USUAL)
    return Proof.of(stored, tensors)


def _header(target: Graph, box: Box, transformer: Transformer, tensors: Tensors) -> Header:
    return {
        "domain": {"low": box.low.tolist(), "high": box.high.tolist()},
        "source": graph_data(target, tensors),
        "transformer": transformer_data(transformer, tensors),
    }


def _model_of(draft: Draft, transformer: Transformer) -> Model:
    """The model as the kernel reads it. What is written for that is let go before anything is proved: it takes as much
    memory as the weights."""
    tensors = dict(draft.tensors)
    stored, roles = transformer_data(transformer, tensors), roles_data(transformer, tensors)
    return read_model(stored, tensors, roles)


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


@dataclass(frozen=True, eq=False)
class Written:
    """A proof as JSON, the numbers that it gives to the nodes that heads compute, and what its nodes mean."""

    stored: Header
    places: Mapping[int, int]
    labels: Labels


def prove(header: Header, tensors: Tensors, read: KernelGraph, wanted: Wanted) -> Written:
    """The proof of the model in a file whose header has the target (`read` by the kernel), the model and the domain;
    adds tensors of its own."""
    target, fusion, blocks = wanted.target, wanted.fusion, 0
    if isinstance(fusion, Pieces):
        laid = lay_out(target)
        fused, blocks = with_own_output(laid.graph), laid.tokens
        assembly, means = Assembly(fused, {}, (), (), {}), {place: number for number, place in laid.places.items()}
    else:
        fused, words = (target, range(len(target.nodes))) if fusion is None else named(target, fusion)
        assembly = wanted.assembly or assemble(fused, wanted.choices)
        means = _meant(fused, assembly, words)
    writer = Writer(target, fused, assembly, wanted.choices, tensors)
    writer.write()
    apart = isinstance(fusion, Fusion) and fusion.apart
    labels = Labels({writer.places[place]: number for place, number in means.items()}, apart)
    if assembly.regions and not _plainly_defined(header, read):
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
        "roles": roles_data(numbered(wanted.transformer, writer.places), tensors),
    }
    _search(stored, header, tensors, read, wanted.error, wanted.effort)
    return Written(stored, writer.places, labels)


def _meant(fused: Graph, assembly: Assembly, words: Sequence[int]) -> dict[int, int]:
    """Which nodes of the circuit are nodes of the target, where they are more than sums: `words` has the target's nodes
    for those of the fused target, -1 where there is none."""
    found: dict[int, int] = {}
    for node, place in assembly.places.items():
        if words[node] >= 0 and not isinstance(fused.nodes[node], Affine | Input):
            heads = expressions_of(assembly, node) if node in assembly.regions else ()
            found |= dict.fromkeys((place, *heads), words[node])
    return found


def _halvings(header: Header) -> int:
    """How often the domain is cut. Where the inputs are many, halving a few of them gains little, and every function
    has to be enclosed on every cell."""
    return HALVINGS if len(header["domain"]["low"]) <= HALVINGS else 0


def _plainly_defined(header: Header, target: KernelGraph) -> bool:
    """Whether intervals alone show that every function of the target is defined on the whole domain."""
    bare = KernelProof(target, {}, {}, {}, {}, {}, {}, {}, {}, {}, _halvings(header), 0)
    try:
        refuse_undefined(target, Interval(header["domain"]["low"], header["domain"]["high"]), bare, ())
    except Refused:
        return False
    return True


def _search(
    stored: Header, header: Header, tensors: Tensors, target: KernelGraph, error: float, effort: Effort
) -> None:
    """Find the ends of cells for regions that are compared with functions, and the cells of tables."""
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
    kinds = {node.kind for node in proof.circuit.nodes}
    if not kinds.isdisjoint(("pool", "relu")):  # which steps, thresholds and powers are made of
        proof = replace(proof, steps=find_steps(proof), powers=find_powers(proof))
    stored["steps"], stored["powers"] = list(proof.steps), list(proof.powers)
    box = box_of(header["domain"], target)
    if kinds <= {"input", "affine", "relu"}:
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
    plain = stored
    return read_model(header["transformer"], tensors, plain["roles"]), read_proof(plain, tensors, target)
