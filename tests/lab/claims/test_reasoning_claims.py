"""Claims I1 and I2 hold, and their rows can fail."""

from __future__ import annotations

import pytest

from headsmith.lab.claims import reasoning as reasoning_claims
from headsmith.lab.claims.reasoning import shared_weights, steps_against_slots
from headsmith.lab.claims.rows import select
from headsmith.lab.iprm import sharing
from headsmith.lab.iprm.model import iprm

FEW = {"SLOTS": (1, 4), "STEPS": (2, 4), "WINDOWS": (1, 3), "COUNTS": (2, 4), "HOPS": (1, 2), "SCENES": 4}
"""The sizes of both rows in `make test`; whole they are measured in the campaign (test_claim_mutations.py)."""


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, sizes in FEW.items():
        monkeypatch.setattr(reasoning_claims, name, sizes)


def test_parameters_grow_with_neither_slots_nor_steps() -> None:
    found = shared_weights()
    assert found.holds, found.verdict
    assert len(set(found.figure["slots_parameters"])) == len(set(found.figure["steps_parameters"])) == 1
    assert found.figure["unrolled_growth"] > 2.0
    assert [row.tag for row in select(["I1", "I2"])] == ["ours", "ours"]


def test_a_changed_weight_is_no_shared_one(monkeypatch: pytest.MonkeyPatch) -> None:
    model = iprm(task="lookup", steps=3)
    first, *others = sharing.step_matrices(model)
    assert sharing.same_matrices(others[0], others[1])
    assert not sharing.same_matrices(first, others[0])
    changed = (*others[0][:-1], (*others[0][-1][:-1], 2.0 * others[0][-1][-1]))
    assert not sharing.same_matrices(changed, others[1])
    monkeypatch.setattr(reasoning_claims, "iprm", lambda **_: model)
    monkeypatch.setattr(reasoning_claims, "step_matrices", lambda model: [first, others[0], changed])
    assert not shared_weights().holds


def test_the_same_question_in_steps_or_in_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    found = steps_against_slots()
    assert found.holds
    assert found.figure["parallel_layers"] == 3
    assert found.figure["iterative_layers"] == 6
    assert found.figure["wrong_without_composition"] > 0.5


def test_wrong_answers_make_the_row_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reasoning_claims, "SCENES", 1)
    monkeypatch.setattr(reasoning_claims, "_answer", lambda *_: None)
    assert not steps_against_slots().holds
