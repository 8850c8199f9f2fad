"""What the kernel proves of models that tests have put together or changed."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any

from headsmith.core.certificate import Certificate
from headsmith.language.stored import Proof
from headsmith.prove.prove import proved_again


def proven(model: Any, transformer: Any = None) -> Certificate:
    """What the proof that a model carries proves of its weights, or of others, whatever the model claims.
    CertificateError where that is nothing."""
    transformer = model.transformer if transformer is None else transformer
    return proved_again(model.graph, model.box, transformer, model.proof, model.approximates)


def with_proof(model: Any, change: Any) -> Any:
    """A model whose proof was changed: `change` is called with a copy of its JSON."""
    stored = deepcopy(model.proof.stored)
    change(stored)
    return replace(model, proof=Proof(stored, model.proof.tensors))
