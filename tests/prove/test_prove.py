"""A proof is written once for a model, and holds for all models of the same design, whatever their scales are."""

from __future__ import annotations

from importlib import import_module
from typing import Any
from unittest.mock import patch

import pytest
from helpers.models.networks import random_network

import headsmith as hs
from headsmith.core.errors import CertificateError
from headsmith.prove.prove import Draft, Wanted, certified, drafted
from headsmith.transformer.ir import Transformer
from headsmith.transformer.stored import numbered


def draft_of(model: Any) -> tuple[Draft, Transformer]:
    """The draft of a compiled model, and the model whose heads have the numbers that they had before it."""
    made = list[tuple[Draft, Transformer]]()

    def watched(wanted: Wanted, box: Any) -> Draft:
        draft = drafted(wanted, box)
        made.append((draft, wanted.transformer))
        return draft

    with patch.object(import_module("headsmith.compile"), "drafted", watched):
        hs.compile(model.graph, model.box, 1e-3)
    return made[-1]


@pytest.mark.parametrize(
    "target", ["x*y", "sin(3*x) + relu(y)", random_network([2, 6, 6, 1])], ids=["x*y", "sin", "net"]
)
def test_a_draft_says_the_same_of_its_own_model_with_and_without_its_weights(target: Any) -> None:
    model = hs.compile(target, (-1, 1), 1e-3)
    draft, transformer = draft_of(model)
    assert certified(draft) == certified(draft.without_weights(), numbered(transformer, draft.places))
    assert not any(bank.read or bank.write for layer in draft.without_weights().facts.model.layers for bank in layer)


def test_without_weights_nothing_is_proven_of_no_model() -> None:
    """So the test before compares what is proven of the weights."""
    model = hs.compile("x*y", (-1, 1), 1e-3)
    draft, _ = draft_of(model)
    with pytest.raises(CertificateError):
        certified(draft.without_weights())
