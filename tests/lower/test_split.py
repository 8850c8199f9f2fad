"""Long sums in parts: the same function, less rounding, more columns; only where an error cannot be met otherwise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.models.networks import random_network

import headsmith as hs
from headsmith.kernel.core.arithmetic import FLOAT32, Upper
from headsmith.kernel.core.model import Link
from headsmith.kernel.core.stream import Register, constant, read_bounds
from headsmith.lab.attack.rounding_oracle import worst_run
from headsmith.lower import split
from headsmith.lower.split import with_sums_in_parts
from headsmith.run.numpy_runner import run
from headsmith.transformer.heads.scaling import in_parts

WIDE = random_network([20, 24, 24, 1], weight=1.0)


def test_a_sum_in_parts_is_the_same_function(rng: np.random.Generator) -> None:
    model = hs.compile(WIDE, (-1, 1), 1e-3)
    parts = with_sums_in_parts(model.transformer, 3)
    assert {name.partition("+")[0] for name in parts.sizes} == set(model.transformer.sizes)
    assert sum(parts.sizes.values()) > 2 * sum(model.transformer.sizes.values())
    points = rng.uniform(-1.0, 1.0, (50, 1, 20))
    np.testing.assert_allclose(run(parts, points), run(model.transformer, points), rtol=1e-12, atol=1e-12)
    assert all(in_parts(bank) for layer in parts.layers for bank in layer.banks if bank.kind == "sink")
    assert not any(in_parts(bank) for layer in model.transformer.layers for bank in layer.banks)


def test_short_sums_stay_as_they_are() -> None:
    short = hs.compile("relu(x - y) + relu(x)", (-1, 1), 1e-3).transformer
    assert with_sums_in_parts(short, 2) is short


def test_float32_reaches_what_long_sums_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """Smaller errors than without parts, for more columns; what is asked for within reach stays narrow."""
    with monkeypatch.context() as changed:
        changed.setattr(split, "PARTS", ())
        with pytest.raises(hs.UnreachableError) as whole:
            hs.compile(WIDE, (-1, 1), 1e-9, dtype="float32")
    wide = hs.compile(WIDE, (-1, 1), 0.85 * whole.value.smallest, dtype="float32")
    narrow = hs.compile(WIDE, (-1, 1), 1.2 * whole.value.smallest, dtype="float32")
    assert wide.bill.d_model > 1.4 * narrow.bill.d_model
    assert wide.bill.heads == narrow.bill.heads
    assert not hs.falsify(wide, effort=400).refutes
    points, dense = np.random.default_rng(0).uniform(-1.0, 1.0, (2, 1, 20)), wide.dense()
    for point in points:
        wanted = hs.compile(WIDE, (-1, 1), 1e-9)(point)
        for up in (False, True):
            pushed = worst_run(dense, point, "float32", False, 0, 0, up)
            assert abs(float(pushed[0, 0]) - float(wanted[0, 0])) <= wide.certificate.error


def registers(sizes: Any) -> dict[str, Register]:
    """Registers that hold constants exactly."""
    found = {}
    for name, value in sizes.items():
        values, none = np.array([value]), np.zeros(1)
        size, zero = Upper(np.abs(values)), Upper(none)
        found[name] = Register(constant(values), size, size, zero, none, zero, zero, zero, none)
    return found


def test_what_adding_up_registers_rounds() -> None:
    """Two numbers by powers of two are off by u of their sum, however large they are. By other weights, or by a scale
    that is no power of two, every product is rounded: by u of its own size."""
    unit, stream = FLOAT32.unit_roundoff, registers({"a": 1000.0, "b": -999.0})

    def off(weights: tuple[float, float], scale: Any = 1.0) -> float:
        links = [Link(name, np.array([[weight]]), 0) for name, weight in zip("ab", weights, strict=True)]
        known = Upper([abs(weights[0] * 1000.0 - weights[1] * 999.0)])
        return float(read_bounds(stream, links, 1, FLOAT32, known, scale)[1].value[0])

    assert off((1.0, 1.0)) == pytest.approx(unit, rel=1e-5)
    assert off((2.0, 2.0), np.array([0.5])) == pytest.approx(2.0 * unit, rel=1e-5)
    assert off((1.0, 1.0), np.array([3.0])) > 1999.0 * unit
    assert off((3.0, 3.0)) > 3.0 * 1999.0 * unit
    # The extremal point: a scale of 3 rounds both products, and their difference keeps what that leaves.
    a, b = np.float32(1000.0 + 2.0**-13), np.float32(999.0 + 2.0**-13)
    assert a - b == 1.0
    assert abs(float(np.float32(np.float32(3) * a) - np.float32(np.float32(3) * b)) / 3.0 - 1.0) <= off(
        (1.0, 1.0), np.array([3.0])
    )
