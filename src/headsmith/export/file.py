"""One file for a model: safetensors, with a JSON header under the metadata key "headsmith".

The header holds the structure (source graph, domain, registers, banks, certificate), the tensors hold the numbers:

    source.N.bias, source.N.terms.K          float64    the target
    embedding.K, initial.NAME, positional.NAME    dtype     the transformer
    layers.L.B.read.K, .write.K, .query_scale, .key_scale, .node, .component
    readout.K, readout_bias
    preconditioner                           float64    of a learner in context, if it has one

Source and transformer are stored apart even where the numbers agree: the proof kernel compares the two.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from headsmith.core.arrays import Array, frozen
from headsmith.core.certificate import Certificate
from headsmith.core.errors import FileFormatError, HeadsmithError
from headsmith.core.folders import replaced
from headsmith.core.intervals import Box
from headsmith.language.builder import domain_names
from headsmith.language.graph import (
    Affine,
    Attend,
    Average,
    Function,
    Graph,
    Hypotenuse,
    Input,
    Maximum,
    Minimum,
    Move,
    Node,
    Pool,
    PoolKind,
    Positional,
    Product,
    Quotient,
    Relu,
    Sampled,
    Term,
)
from headsmith.language.stored import (
    APPROXIMATES,
    Header,
    Proof,
    Tensors,
    approximated_data,
    graph_data,
    proof_of,
    read_weights,
)
from headsmith.plan.circuits.assemble import Choice
from headsmith.plan.circuits.pieces import Pieces
from headsmith.plan.rewrite.fuse import Fusion
from headsmith.transformer.ir import Transformer
from headsmith.transformer.stored import read_transformer, transformer_data

FORMAT = "headsmith"
VERSION = 2
COMPILED = "compiled"
"""The kind of a file that does not name one."""

Tensor = Callable[[str], Any]
Read = TypeVar("Read")


@dataclass(frozen=True, eq=False)
class Form:
    """What kind of model the transformer is, where it is not one that maps token by token: a sequence program, or a
    learner in context, with the matrix that its features are multiplied by."""

    kind: Literal["sequence", "learner"]
    causal: bool = False
    preconditioner: Array | None = None


@dataclass(frozen=True, eq=False)
class Contents:
    """What a file holds."""

    graph: Graph
    choices: Mapping[int, Choice]
    box: Box
    transformer: Transformer
    certificate: Certificate
    fusion: Fusion | Pieces | None = None
    form: Form | None = None
    proof: Proof | None = None
    approximates: Graph | None = None


def write_file(path: str | os.PathLike[str], contents: Contents) -> None:
    """Write to a temporary file beside `path`, then rename: the file is complete or absent. It carries the proof that
    `python -m headsmith.kernel` checks."""
    tensors: dict[str, Any] = {}
    header = header_of(contents, tensors)
    write_tensors(path, header, tensors)


def read_file(path: str | os.PathLike[str]) -> Contents:
    """Read a model, or raise FileFormatError saying what is wrong with the file."""
    return read_tensors(path, COMPILED, _contents)


def write_tensors(path: str | os.PathLike[str], header: Mapping[str, Any], tensors: dict[str, Any]) -> None:
    """One file of any kind: the header, with the version, and the tensors; complete or absent."""
    text = json.dumps({"version": VERSION, **header}, separators=(",", ":"))
    with replaced(path) as temporary:
        save_file(tensors, temporary, metadata={"format": FORMAT, FORMAT: text})


def read_tensors(path: str | os.PathLike[str], kind: str, contents: Callable[[Header, Tensors], Read]) -> Read:
    """What `contents` makes of a file of this kind, from its header and its tensors by name; FileFormatError otherwise.

    A header without a kind is that of a compiled model.
    """
    path = os.fspath(path)
    metadata, tensors = _opened(path)
    with _damage(path):
        header = json.loads(metadata)
        _refuse_version(header)
        found = header.get("kind", COMPILED)
        if found != kind:
            raise FileFormatError(f"holds a {found!r} model, not a {kind!r} one; headsmith.load reads both")
        return contents(header, tensors)


def _opened(path: str) -> tuple[str, dict[str, Any]]:
    """The header as text, and the tensors."""
    if not os.path.isfile(path):
        raise FileFormatError(f"{path}: {'a folder, not a file' if os.path.isdir(path) else 'no such file'}")
    try:
        with safe_open(path, framework="np") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as problem:
        raise FileFormatError(f"{path}: not a complete safetensors file, so no saved model ({problem})") from None
    if FORMAT not in metadata:
        raise FileFormatError(f"{path}: a safetensors file, but not written by headsmith (no such header)")
    return metadata[FORMAT], tensors


def _refuse_version(header: Header) -> None:
    if header["version"] != VERSION:
        raise FileFormatError(f"format version {header['version']}; this release reads version {VERSION}")


@contextmanager
def _damage(path: str) -> Iterator[None]:
    """Whatever goes wrong while a header is read is a FileFormatError that names the file."""
    try:
        yield
    except HeadsmithError as problem:
        raise type(problem)(f"{path}: {problem}") if isinstance(problem, FileFormatError) else problem from None
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError, RecursionError) as problem:
        why = str(problem)[:200]  # it may quote a text of the file, of any length
        raise FileFormatError(f"{path}: the header is damaged ({type(problem).__name__}: {why})") from None


def _plain(value: Any) -> Any:
    """Parameters as JSON: numbers, text, lists and objects. Doubles survive exactly."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [_plain(item) for item in value]
    return value.item() if isinstance(value, np.generic) else value


def _number_or_none(value: Any) -> float | None:
    return None if value is None else float(value)


def header_of(contents: Contents, tensors: dict[str, Any]) -> dict[str, Any]:
    """Everything but the numbers of a file, which are added to the tensors."""
    transformer = contents.transformer

    def keep(name: str, values: Any, kind: Any) -> str:
        tensors[name] = np.ascontiguousarray(values, dtype=kind)
        return name

    return {
        "domain": {"low": contents.box.low.tolist(), "high": contents.box.high.tolist()},
        "source": graph_data(contents.graph, tensors),
        "choices": {
            str(number): {"family": choice.family, "parameters": _plain(choice.parameters), "margin": choice.margin}
            for number, choice in contents.choices.items()
        },
        "transformer": transformer_data(transformer, tensors),
        "claim": contents.certificate.claim,
        "fusion": _arrangement(contents.fusion),
        **_stored_form(contents.form, keep),
        **approximated_data(contents.approximates, tensors),
        **_stored_proof(contents.proof, tensors),
    }


def _stored_proof(proof: Proof | None, tensors: dict[str, Any]) -> dict[str, Any]:
    if proof is None:
        return {}
    tensors.update(proof.tensors)
    return {"proof": proof.stored}


def _stored_form(form: Form | None, keep: Callable[..., str]) -> dict[str, Any]:
    if form is None:
        return {}
    matrix = form.preconditioner
    name = None if matrix is None else keep("preconditioner", matrix, np.float64)
    return {"form": {"kind": form.kind, "causal": form.causal, "preconditioner": name}}


def _form(stored: Any, tensor: Tensor) -> Form | None:
    if stored is None:
        return None
    kinds: dict[str, Literal["sequence", "learner"]] = {"sequence": "sequence", "learner": "learner"}
    matrix = None if stored["preconditioner"] is None else frozen(tensor(stored["preconditioner"]))
    return Form(kinds[stored["kind"]], bool(stored["causal"]), matrix)


def _arrangement(fusion: Fusion | Pieces | None) -> Any:
    match fusion:
        case None:
            return None
        case Pieces():
            return "pieces"
        case Fusion():
            stored = {"variables": fusion.variables, "exits": sorted(fusion.exits), "plain": sorted(fusion.plain)}
            return {**stored, "apart": True} if fusion.apart else stored


def read_graph(stored: dict[str, Any], tensor: Tensor) -> Graph:
    """A graph as a file holds it."""
    return Graph(tuple(_node(item, tensor) for item in stored["nodes"]), int(stored["output"]))


def _node(item: dict[str, Any], tensor: Tensor) -> Node:
    """A node as a file holds it."""
    match item["kind"]:
        case "input":
            return Input(tuple(str(name) for name in item["names"]))
        case "affine":
            terms = tuple(Term(int(term["node"]), read_weights(term["weights"], tensor)) for term in item["terms"])
            return Affine(terms, tensor(item["bias"]))
        case "relu":
            return Relu(int(item["argument"]), int(item["size"]))
        case "maximum":
            return Maximum(tuple(int(number) for number in item["arguments"]), int(item["size"]))
        case "minimum":
            return Minimum(tuple(int(number) for number in item["arguments"]), int(item["size"]))
        case "product":
            return Product(int(item["left"]), int(item["right"]), int(item["size"]))
        case "quotient":
            return Quotient(int(item["numerator"]), int(item["denominator"]), int(item["size"]))
        case "hypotenuse":
            return Hypotenuse(int(item["left"]), int(item["right"]), int(item["size"]))
        case "function":
            parameter = None if item["parameter"] is None else float(item["parameter"])
            return Function(str(item["name"]), int(item["argument"]), int(item["size"]), parameter)
        case "positional":
            return Positional(tensor(item["values"]))
        case "pool":
            kinds: dict[str, PoolKind] = {"mean": "mean", "max": "max", "min": "min"}
            return Pool(kinds[item["of"]], int(item["argument"]), int(item["size"]), bool(item["causal"]))
        case "move":
            return Move(int(item["argument"]), tuple(map(int, item["targets"])), int(item["size"]))
        case "attend":
            queries, keys, values, size = (int(item[name]) for name in ("queries", "keys", "values", "size"))
            return Attend(queries, keys, values, size, bool(item["causal"]))
        case "average":
            return Average(*(int(item[name]) for name in ("scores", "values", "keys", "size")))
        case "sampled":
            answers, lipschitz, scale = (tensor(item[name]) for name in ("answers", "lipschitz", "scale"))
            places = tuple(map(int, item["arguments"]))
            return Sampled(places, answers, lipschitz, scale, item["norm"], float(item["evaluation"]))
        case kind:
            raise FileFormatError(f"unknown source node kind {kind!r}")


def _contents(header: dict[str, Any], tensors: Tensors) -> Contents:
    tensor = tensors.__getitem__
    graph = read_graph(header["source"], tensor)
    approximates = read_graph(header[APPROXIMATES], tensor) if APPROXIMATES in header else None
    choices = {
        int(number): Choice(str(item["family"]), dict(item["parameters"]), _number_or_none(item["margin"]))
        for number, item in header["choices"].items()
    }
    box = Box(domain_names(graph), header["domain"]["low"], header["domain"]["high"])
    transformer = read_transformer(header["transformer"], tensor)
    stored = header.get("fusion")
    fusion: Fusion | Pieces | None = None
    if stored == "pieces":
        fusion = Pieces()
    elif stored is not None:
        exits, plain = (frozenset(map(int, stored[name])) for name in ("exits", "plain"))
        fusion = Fusion(int(stored["variables"]), exits, plain, bool(stored.get("apart", False)))
    names = graph.input.names * (box.size // graph.input.size)
    domain = [*zip(names, header["domain"]["low"], header["domain"]["high"], strict=True)]
    claimed = Certificate.claimed(header["claim"], domain)
    proof = proof_of(header, tensors) if "proof" in header else None
    form = _form(header.get("form"), tensor)
    return Contents(graph, choices, box, transformer, claimed, fusion, form, proof, approximates)
