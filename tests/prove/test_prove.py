"""A proof is written once for a model, and holds for all models of the same design, whatever their scales are."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.models.networks import random_network

import headsmith as hs
from headsmith.core.errors import CertificateError
from headsmith.prove.prove import certified, drafted


@pytest.mark.parametrize(
    "target", ["x*y", "sin(3*x) + relu(y)", random_network([2, 6, 6, 1])], ids=["x*y", "sin", "net"]
)
def test_a_draft_says_the_same_of_its_own_model_with_and_without_its_weights(target: Any) -> None:
    model = hs.compile(target, (-1, 1), 1e-3)
    draft = drafted(model.graph, model.box, model.choices, model.fusion, model.transformer, 1e-3)
    assert certified(draft) == certified(draft.without_weights(), model.transformer)
    assert not any(bank.read or bank.write for layer in draft.without_weights().facts.model.layers for bank in layer)


def test_without_weights_nothing_is_proven_of_no_model() -> None:
    """So the test before compares what is proven of the weights."""
    model = hs.compile("x*y", (-1, 1), 1e-3)
    draft = drafted(model.graph, model.box, model.choices, model.fusion, model.transformer, 1e-3)
    with pytest.raises(CertificateError):
        certified(draft.without_weights())
