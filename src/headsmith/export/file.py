"""One file for a model: safetensors, with a JSON header under the metadata key "headsmith".

The header holds the structure (source graph, domain, registers, banks, proof, claim), the tensors hold the numbers:

    source.N.bias, source.N.terms.K          float64    the target
    embedding.K, initial.NAME, positional.NAME    dtype     the transformer
    layers.L.B.read.K, .write.K, .query_scale, .key_scale
    readout.K, readout_bias
    proof.NAME, proof.roles.L.B.node, .component        the proof: its circuit, and which nodes heads compute
    preconditioner                           float64    of a learner in context, if it has one

Source and transformer are stored apart even where the numbers agree: the proof kernel compares the two. `run` says how
the transformer is called, and the claim names that by its digest. `extensions` are what a proof does without, by name:
`labels` say which nodes of the target the circuit's nodes are (language/labels.py).

A model is built from what the kernel reads of its file: one reader for what is proved and for what runs.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

import numpy as np
from safetensors.numpy import save_file

from headsmith.core.arrays import Array, frozen
from headsmith.core.certificate import Certificate
from headsmith.core.errors import FileFormatError, HeadsmithError
from headsmith.core.folders import replaced
from headsmith.core.intervals import Box
from headsmith.export.converter import converted
from headsmith.kernel.core.errors import Refused
from headsmith.kernel.core.fields import refuse_unknown
from headsmith.kernel.core.reading import FORMAT, VERSION, digest, read_any
from headsmith.language.builder import domain_names
from headsmith.language.graph import Graph
from headsmith.language.labels import Labels, labels_data, read_labels
from headsmith.language.stored import (
    APPROXIMATES,
    ROLES,
    Header,
    Proof,
    Tensors,
    approximated_data,
    graph_data,
    read_graph,
)
from headsmith.transformer.ir import GridForm, Transformer
from headsmith.transformer.stored import read_transformer, roles_data, transformer_data

LABELS = "labels"
DAMAGE = (ArithmeticError, AttributeError, LookupError, MemoryError, RecursionError, TypeError, ValueError)

Kind = Literal["points", "sequence", "learner"]


@dataclass(frozen=True, eq=False)
class Form:
    """What kind of model the transformer is: one of points, a sequence program, or a learner in context, with the
    matrix that its features are multiplied by."""

    kind: Kind = "points"
    causal: bool = False
    preconditioner: Array | None = None


@dataclass(frozen=True, eq=False)
class Contents:
    """What a file holds. Of a file without a proof, the proof is None, and nothing is proved of it."""

    graph: Graph
    box: Box
    transformer: Transformer
    certificate: Certificate
    form: Form = field(default_factory=Form)
    proof: Proof | None = None
    approximates: Graph | None = None
    labels: Labels = field(default_factory=Labels)


def write_file(path: str | os.PathLike[str], contents: Contents) -> None:
    """Write to a temporary file beside `path`, then rename: the file is complete or absent. It carries the proof that
    `python -m headsmith.kernel` checks."""
    tensors: dict[str, Any] = {}
    header = header_of(contents, tensors)
    write_tensors(path, header, tensors)


def write_tensors(path: str | os.PathLike[str], header: Mapping[str, Any], tensors: dict[str, Any]) -> None:
    """One file: the header, with the version, and the tensors; complete or absent."""
    text = json.dumps({"version": VERSION, **header}, separators=(",", ":"))
    with replaced(path) as temporary:
        save_file(tensors, temporary, metadata={"format": FORMAT, FORMAT: text})


def header_of(contents: Contents, tensors: dict[str, Any]) -> dict[str, Any]:
    """Everything but the numbers of a file, which are added to the tensors."""
    transformer, proof = contents.transformer, contents.proof
    found = {
        "domain": {"low": contents.box.low.tolist(), "high": contents.box.high.tolist()},
        "source": graph_data(contents.graph, tensors),
        "transformer": transformer_data(transformer, tensors),
        "run": _stored_form(contents.form, transformer.grid_form, tensors),
        **approximated_data(contents.approximates, tensors),
        "proof": {**(proof.stored if proof is not None else {}), ROLES: roles_data(transformer, tensors)},
        "extensions": {LABELS: labels_data(contents.labels)} if proof is not None else {},
    }
    tensors.update(proof.tensors if proof is not None else {})
    return {**found, "claim": {**contents.certificate.claim, "run": digest(found["run"], tensors)}}


def _stored_form(form: Form, grid: GridForm, tensors: dict[str, Any]) -> Header:
    if form.preconditioner is not None:
        tensors["preconditioner"] = np.ascontiguousarray(form.preconditioner, dtype=np.float64)
    name = None if form.preconditioner is None else "preconditioner"
    return {"kind": form.kind, "causal": form.causal, "preconditioner": name, "grid": grid}


def read_contents(path: str | os.PathLike[str]) -> tuple[Header, Tensors]:
    """The header and the tensors of a file, as the kernel reads them; of a file of the version before what its
    converter makes of it. FileFormatError says what is wrong with the file."""
    with _damage(os.fspath(path)):
        header, tensors = converted(*read_any(path))
        if "given" in header:
            raise FileFormatError("holds what is proven of given weights, and no model: headsmith.verify reads it")
        refuse_unknown(header)
        return header, tensors


def read_file(path: str | os.PathLike[str]) -> Contents:
    """Read a model, or raise FileFormatError saying what is wrong with the file."""
    header, tensors = read_contents(path)
    with _damage(os.fspath(path)):
        return contents_of(header, tensors)


@contextmanager
def _damage(path: str) -> Iterator[None]:
    """Whatever goes wrong while a file is read is a FileFormatError that names it."""
    try:
        yield
    except HeadsmithError as problem:
        raise type(problem)(f"{path}: {problem}") if isinstance(problem, FileFormatError) else problem from None
    except Refused as problem:
        raise FileFormatError(f"{path}: {problem}") from None
    except DAMAGE as problem:
        why = str(problem)[:200]  # it may quote a text of the file, of any length
        raise FileFormatError(f"{path}: the header is damaged ({type(problem).__name__}: {why})") from None


def contents_of(header: Header, tensors: Tensors) -> Contents:
    """What the header and the tensors of a file hold."""
    tensor, run, stored = tensors.__getitem__, header["run"], header["proof"]
    graph = read_graph(header["source"], tensor)
    box = Box(domain_names(graph), header["domain"]["low"], header["domain"]["high"])
    names = graph.input.names * (box.size // graph.input.size)
    domain = [*zip(names, header["domain"]["low"], header["domain"]["high"], strict=True)]
    if run["kind"] not in get_args(Kind) or run["grid"] not in get_args(GridForm):
        raise FileFormatError(f"there is no model of the kind {run['kind']!r} with a grid of {run['grid']!r}")
    matrix = None if run["preconditioner"] is None else frozen(tensor(run["preconditioner"]))
    labels = header.get("extensions", {}).get(LABELS)
    return Contents(
        graph,
        box,
        read_transformer(header["transformer"], stored[ROLES], tensor, run["grid"]),
        replace(Certificate.claimed(header["claim"], domain), run=""),  # which is the file's: it says how to call it
        Form(run["kind"], bool(run["causal"]), matrix),
        Proof.of(stored, tensors) if "circuit" in stored else None,
        read_graph(header[APPROXIMATES], tensor) if APPROXIMATES in header else None,
        Labels() if labels is None else read_labels(labels),
    )
