"""All recipes compete under auto, and stand side by side in a plan."""

from __future__ import annotations

import headsmith as hs

CUBE = {"x": (-1, 1), "y": (-1, 1), "z": (-1, 1)}


def test_a_maximum_of_three_takes_one_layer() -> None:
    model = hs.compile("max(x, y, z)", CUBE, 1e-3)
    assert (model.bill.layers, model.bill.heads, model.bill.data_tokens) == (1, 1, 3)
    assert hs.compile("max(x, y, z)", CUBE, 1e-3, max_layers=1).bill.layers == 1
    assert abs(float(model(x=0.1, y=0.7, z=-0.3)) - 0.7) <= 1e-3


def test_a_maximum_of_two_keeps_its_gate() -> None:
    bill = hs.compile("max(x, y)", {"x": (-1, 1), "y": (-1, 1)}, 1e-3).bill
    assert (bill.layers, bill.heads, bill.data_tokens) == (1, 1, 1)


def test_small_scores_are_worth_other_recipes() -> None:
    free = hs.compile("relu(x)", (-1, 1), 1e-6)
    weighed = hs.compile("relu(x)", (-1, 1), 1e-2, cost={"max_score": 1.0})
    ramp = hs.compile("relu(x)", (-1, 1), 1e-2, recipe="ramp")
    assert weighed.bill.max_score <= min(free.bill.max_score, ramp.bill.max_score)


def test_a_plan_has_all_recipes() -> None:
    rows = hs.plan("max(x, y, z)", CUBE, [1e-2])
    assert {row.recipe for row in rows} == {"relu", "ramp", "maxout"}
    assert rows[0].recipe == "maxout"
    assert rows[0].bill.data_tokens == 3
