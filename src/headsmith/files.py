"""Saved models of every kind, by one door: what `load` returns is what was saved.

token by token                  Compiled            model.py
a program over sequences        CompiledSequence    sequence/compiled.py
a learner in context            Learner             sequence/in_context.py
a kind of the laboratory        LABORATORY          lab/
a callable that was sampled     Universal           sequence/universal.py
"""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from typing import Any

from headsmith.core.certificate import Certificate
from headsmith.core.errors import CertificateError, DomainError, FileFormatError, TargetError
from headsmith.export.file import Contents, read_file
from headsmith.export.folder import PROOF, compare, read_circuit, read_manifest
from headsmith.export.formats import STOCK, contents, wanted_of
from headsmith.inside.circuit_check import check_circuit
from headsmith.inside.disguise import FOLDER, load_disguised
from headsmith.language.graph import Sampled
from headsmith.model import Compiled, compiled_from, parts_of
from headsmith.sequence.approximate import Approximation
from headsmith.sequence.compiled import CompiledSequence, mixes, sequence_of
from headsmith.sequence.in_context import learner_of
from headsmith.sequence.universal import Universal
from headsmith.verify import stock_certificate, verified_file

DISGUISE = FOLDER[0]
"""The file that a model in disguise has in its folder."""

Model = Compiled | Universal
"""Every kind of model: sequence models and learners are compiled ones."""

LABORATORY = ("headsmith.lab.iprm.model:reasoner_of",)
"""Kinds of models that the laboratory has: functions that know their own kind, or say None. They are called by name,
because the compiler does not import the laboratory."""


def load(path: str | os.PathLike[str]) -> Model:
    """Read a saved model back, bit for bit, as the kind of model that was saved. Its certificate is the stored one:
    `verify` re-derives it."""
    if not isinstance(path, str | os.PathLike):
        raise FileFormatError(f"load takes the path of a file, not a {type(path).__name__}")
    contents = read_file(path)
    compiled = compiled_from(contents)
    try:
        return _as_saved(compiled, contents)
    except TargetError as problem:
        raise FileFormatError(f"{os.fspath(path)}: {problem}") from None


def _as_saved(compiled: Compiled, contents: Contents) -> Compiled:
    match contents.form:
        case form if form.kind == "points":
            return as_its_kind(compiled)
        case form if form.kind == "learner":
            return learner_of(compiled, form.preconditioner)
        case form:
            kinds = (_named(name)(compiled) for name in LABORATORY)
            return next((kind for kind in kinds if kind is not None), None) or sequence_of(compiled, form.causal)


def _named(name: str) -> Callable[[Compiled], Compiled | None]:
    module, _, function = name.partition(":")
    found: Callable[[Compiled], Compiled | None] = getattr(import_module(module), function)
    return found


def as_its_kind(compiled: Compiled) -> Compiled:
    """A model whose tokens take something from each other is a sequence model, whatever it came as."""
    if isinstance(compiled, Universal):
        return compiled
    if any(isinstance(node, Sampled) for node in compiled.graph.nodes):
        return Universal(**parts_of(compiled))
    return sequence_of(compiled) if mixes(compiled.graph) and not isinstance(compiled, CompiledSequence) else compiled


def model_of(given: Any) -> Model:
    """The model that is meant: a model of any kind, or the path of a saved one."""
    match given:
        case str() | os.PathLike():
            return load(given)
        case Approximation():
            return given.model
        case Compiled():
            return as_its_kind(given)
    raise TargetError(f"a {type(given).__name__} is neither a model nor the path of a saved one")


def _verify_disguise(folder: str | os.PathLike[str]) -> Certificate:
    """Prove a model in disguise: the plain model's proof, and that the rewritten matrices do the same."""
    verified_file(os.path.join(folder, PROOF))
    hidden = load_disguised(folder, load(os.path.join(folder, PROOF)))
    hidden.verify()
    return hidden.certificate


def verify_folder(folder: str | os.PathLike[str]) -> Certificate:
    """Prove an exported model: the proof that came with it, and that everything else in the folder, every weight
    included, is what that proven model exports. CertificateError or FileFormatError, with the place, otherwise."""
    if os.path.exists(os.path.join(folder, DISGUISE)):
        return _verify_disguise(folder)
    wanted = wanted_of(read_manifest(folder))
    proof = os.path.join(folder, PROOF)
    found: Certificate = verified_file(proof)
    try:
        if wanted.to in STOCK:
            found = stock_certificate(folder)
        model = load(proof)
        compare(folder, contents(model, wanted))
        check_circuit(read_circuit(folder), model)
    except (TargetError, DomainError) as problem:
        raise CertificateError(
            f"{os.fspath(folder)}: the model cannot have been exported like this: {problem}"
        ) from None
    return found
