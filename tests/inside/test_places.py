"""One grammar of places: what ablate takes, the cache and the circuit call the same."""

from __future__ import annotations

import numpy as np
import pytest

import headsmith as hs


def test_one_grammar() -> None:
    model = hs.compile("relu(x - y) + x*y*z", (-1, 1), 1e-3)
    point = np.array([0.5, -0.25, 0.75])
    _, cache = model.run(point, cache=True)
    for name in ("layer 1 / gate head 0", "layer 1 / head 1", "a0.h1", "blocks.0.attn.hook_z[1]"):
        assert np.array_equal(model.ablate(name)(point), model.ablate("a0.h1")(point))
        assert f"{name} / pattern" in cache
        assert np.array_equal(cache[f"{name} / pattern"], cache["layer 1 / gate head 0 / pattern"])
    heads = [name for name in model.places if " head " in name]
    assert heads == ["layer 1 / sink head 0", "layer 1 / gate head 0", "layer 2 / gate head 0"]
    for name in model.places:
        assert model.patch(point, point, name).outputs == pytest.approx(model(point))
    assert "layer 9 / head 0 / pattern" not in cache


def test_directions_say_what_they_are() -> None:
    model = hs.compile("relu(x - y)", (-1, 1), 1e-3)
    with pytest.raises(hs.TargetError, match=r"directions\['z1'\]: directions are numbered.*column 2 is z1"):
        model.directions["z1"]  # type: ignore[call-overload]
    assert model.directions[2] == "z1"


def test_heads_of_two_banks_of_a_kind_have_names_of_their_own() -> None:
    over = hs.tokens
    program = hs.compile_sequence(
        lambda x: over.shift(x[:, 0], 1) + 2 * over.shift(x[:, 0], 2), tokens=4, domain=(-1, 1), error=1e-3
    )
    told = [line.split(":")[0].strip() for line in program.explain().splitlines() if line.startswith("  move head")]
    assert told == ["move head 0", "move head 1"]
    assert [f"layer 1 / {name}" for name in told] == [name for name in program.places if " head " in name]
