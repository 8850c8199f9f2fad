"""The rule of SwiGLU blocks: what it says of silu, attained; roundings pushed the worst way; forged files refused.

Theorem: two neurons return x y and one returns relu(z), up to what `product_errors` and `gate_errors` say.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import fields, replace
from itertools import islice, product
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest
from helpers.attacks.saved import leaves, put
from helpers.attacks.saved import read as read_parts
from helpers.effort import CAMPAIGN, tried
from test_heads import bank, model, reads
from test_heads_in_few_bits import TOY, plus, rounded

import headsmith as hs
from headsmith.kernel.core.arithmetic import EXP_ULPS, FLOAT32, FLOAT64, Interval, Upper
from headsmith.kernel.core.check import proved
from headsmith.kernel.core.errors import Refused
from headsmith.kernel.core.graph import Graph, Node
from headsmith.kernel.core.heads import local_errors
from headsmith.kernel.core.model import Link
from headsmith.kernel.core.stream import Register, write
from headsmith.lab.attack.file_attack import CannotRunError, worst_ratio
from headsmith.lab.attack.rounding_oracle import worst_run
from headsmith.language.evaluation import evaluate

NO_SLOPES = Upper(np.zeros((1, 2)))
PAIR = bank("swiglu", forms=2)


def silu(t: Any) -> Any:
    return t / (1.0 + np.exp(-t))


def products(x: float, y: float, precision: Any = FLOAT64, **known: Any) -> Any:
    """What is said of a product of x in [-x, x] and y in [-y, y]."""
    return local_errors(model(PAIR, precision=precision), PAIR, reads([-x, -y], [x, y], **known), NO_SLOPES)


def gates(scale: float, z: float, precision: Any = FLOAT64, **known: Any) -> Any:
    only = bank("silu", scale=[scale])
    return local_errors(model(only, precision=precision), only, reads(-z, z, **known))


def test_slopes_of_silu_lie_between_a_tenth_below_zero_and_a_tenth_above_one() -> None:
    """The minimum of 0.1 e^t + 1.2 + 1.1 e^-t - t is at e^t = 11, and positive: 2.4 - log 11."""
    t = np.linspace(-60.0, 60.0, 240_001)
    slopes = 1 / (1 + np.exp(-t)) * (1 + t / (1 + np.exp(t)))
    assert -0.1 <= slopes.min() <= -0.0998
    assert 1.0998 <= slopes.max() <= 1.1
    assert mpmath.iv.log(11) < mpmath.mpf("2.4")
    assert np.allclose(np.abs(silu(t)) + np.abs(silu(-t)), np.abs(t), rtol=1e-14)


def test_what_neurons_read_apart_costs_a_tenth_more_for_each() -> None:
    """The read of one neuron is off by r, that of the other by -r: at the steepest point of silu, 2 (1.0998 - 0.5) r
    of what comes out is off, and all of 2.2 r is allowed for."""
    t, r = 2.3994, 1e-6
    off = silu(t + r) - silu(-(t - r)) - t
    found = products(t, 1.0, FLOAT64, read=[r, 0.0])
    assert 0.5 * found.rounding.value[0] <= abs(off) <= found.rounding.value[0]


def pushed_silu(t: Any, way: Any) -> Any:
    """silu in few bits, every rounding pushed one way; exp is off by four units in the last place."""
    sign = way * np.sign(t)
    power = rounded(np.exp(-t) * (1.0 - 1.98 * EXP_ULPS * sign * TOY.unit_roundoff))
    return rounded(t / plus(np.ones_like(t), power, -sign), way)


@pytest.mark.parametrize("way", [1.0, -1.0])
def test_products_in_few_bits(way: float) -> None:
    """Every rounding of both neurons pushed outwards, or inwards, and what they read as far off as is said: never
    beyond the bound, and not far from it."""
    rng, share = np.random.default_rng(5), 0.0
    for size, off in product((0.1, 1.0, 2.4, 8.0), (0.0, 1e-6)):
        x, y = (rounded(rng.uniform(-each, each, 4000)) for each in (size, 1.0))
        x[:8], y[:8] = np.repeat([size, -size], 4), np.tile([1.0, -1.0], 4)
        push = way * np.sign(x * y)
        r, f = (off * way * np.sign(each) for each in (x, y))
        first = rounded(pushed_silu(x + r, way * np.sign(x)) * (y + f), push)
        second = rounded(-pushed_silu(-(x + r), -way * np.sign(x)) * (y + f), push)
        found = products(size, 1.0, TOY, read=[off, off])
        error = np.abs(first + second - x * y)
        assert np.all(np.abs(first) + np.abs(second) <= found.reach.value[0])
        assert np.all(error <= found.rounding.value[0])
        share = max(share, float(error.max() / found.rounding.value[0]))
    assert share >= 0.3


@pytest.mark.parametrize("way", [1.0, -1.0])
def test_gates_in_few_bits(way: float) -> None:
    rng = np.random.default_rng(6)
    z = rounded(rng.uniform(-1.0, 1.0, 4000))
    z[:2000] = rounded(1.2784645 / 8.0 * (1.0 + 1e-3 * z[:2000]))
    for off in (0.0, 1e-6):
        found = gates(8.0, 1.0, TOY, read=[off])
        error = pushed_silu(8.0 * (z + way * off), way) / 8.0 - np.maximum(z, 0.0)
        assert np.all(error <= found.rounding.value[0])
        assert np.all(-error <= (found.below + found.rounding).value[0])
        assert way > 0.0 or (-error).max() >= 0.99 * found.below.value[0]


@pytest.mark.parametrize("precision", [FLOAT64, FLOAT32])
def test_where_powers_overflow(precision: Any) -> None:
    """e^-t overflows: silu(t) becomes zero, and is off by no more than is said of numbers that underflow."""
    lost = float(mpmath.mpf(np.log(precision.largest)) / mpmath.mpf(precision.largest))
    assert lost <= 256 * precision.smallest_normal
    assert products(1e4, 1e-30, precision).rounding.value[0] >= lost * 1e-30


def test_two_terms_are_written_for_a_product() -> None:
    """A register that gets p and q with p + q = x y may round both products, and the sum that they come to."""
    zero, node = Upper(np.zeros(1)), np.array([1])
    held_by = {"Form": {}, "Array": np.zeros(1), "Upper": zero}
    empty = {"out": Register(**{each.name: held_by[str(each.type)] for each in fields(Register)})}
    circuit, held = Graph((Node("input", 1), Node("expression", 1)), 1), Interval(np.array([-1.0]), np.array([1.0]))
    off = {}
    for kind in ("product", "swiglu"):
        only = replace(bank(kind, forms=2), write=(Link("out", np.array([[0.75]]), 0),), node=node, component=0 * node)
        found = write(empty, only, circuit, held, zero, True)["out"]
        assert [each.low.tolist() for each in found.form.values()] == [[[0.75]]]
        off[kind] = float(found.off(FLOAT32).value[0])
    assert off["swiglu"] >= off["product"] + 3 * 0.75 * FLOAT32.unit_roundoff


def test_reference_tokens_multiply_what_drifted_there() -> None:
    found = products(1.0, 1.0, drift=[1e-3, 1e-4])
    assert 2e-7 <= found.spilled.value[0] <= 4.1e-7
    assert products(1.0, 1.0, drift=[1e-3, 0.0]).spilled.value[0] == 0.0
    assert gates(8.0, 1.0, drift=[1e-3]).spilled.value[0] == 0.0


@pytest.mark.parametrize("scale", [3.0, 0.5, -8.0, 0.0, np.inf, np.nan])
def test_scales_are_powers_of_two(scale: float) -> None:
    with pytest.raises(Refused):
        gates(scale, 1.0)


def test_weights_and_scales_stay_in_the_format() -> None:
    with pytest.raises(Refused, match="may reach"):
        gates(2.0**127, 1.0, FLOAT32)
    only = bank("silu", scale=[2.0**100])
    small = (Link("x", np.array([2.0**-40]), 0),)
    forged = replace(only, write=small)
    with pytest.raises(Refused, match="beyond float32"):
        local_errors(model(forged, precision=FLOAT32), forged, reads(-1e-9, 1e-9))


# Whole models -------------------------------------------------------------------------------------------------------


FORMULAS = {"x*y": 1e-6, "x*x - x*y*y": 1e-5, "max(x, y)*y": 1e-3, "(x + y)/(3 + x)": 1e-3}


@pytest.mark.parametrize("formula", FORMULAS)
def test_no_rounding_leaves_the_certificate(formula: str) -> None:
    """float32 with every rounding pushed the worst way, to first order."""
    found = hs.compile(formula, (-1, 1), FORMULAS[formula], recipe="swiglu", dtype="float32")
    dense, worst = found.dense(), 0.0
    points = np.random.default_rng(2).uniform(-1, 1, (4, 2))
    for point in np.concatenate([points, [[1, 1], [-1, 1], [1, -1], [-1, -1]]]):
        exact = evaluate(found.graph, point[None])[0, 0]
        for up in (True, False):
            off = worst_run(dense, point[None], "float32", False, 0, 0, up)[0, 0] - exact
            worst = max(worst, abs(float(off)) / found.certificate.error)
    assert worst <= 1.0
    assert worst >= (0.3 if formula == "x*y" else 0.0)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    path = tmp_path_factory.mktemp("swiglu") / "model.safetensors"
    hs.compile("max(x, y)*y", (-1, 1), 1e-3, recipe="swiglu", dtype="float32").save(path)
    return read_parts(Path(path))


def changes(header: Any, tensors: Any) -> Iterator[tuple[Any, Any]]:
    """Each number of the file changed, and each field of the banks."""
    for name in tensors:
        for place in np.ndindex(tensors[name].shape):
            changed = {key: value.copy() for key, value in tensors.items()}
            changed[name][place] = changed[name][place] * 1.25 + 0.25
            yield header, changed
    banks = header["transformer"]["layers"]
    for place, value in leaves(banks):
        for other in ("sink", "product", "swiglu", "silu", 0, 1, None):
            if other != value:
                yield {**header, "transformer": {**header["transformer"], "layers": put(banks, place, other)}}, tensors


@pytest.mark.again
def test_a_changed_file_is_refused_or_still_right(saved: Any) -> None:
    refused, rng = 0, np.random.default_rng(3)
    for header, tensors in islice(changes(*saved), 0, None, 1 if CAMPAIGN else 5):
        try:
            found = proved(header, tensors)
        except Refused:
            refused += 1
            continue
        with suppress(CannotRunError):
            assert worst_ratio(header, tensors, found.outputs, found.masks, rng, count=8, steps=1).ratio <= 1.0
    assert refused >= tried(50, 5)


def test_heads_and_neurons_share_no_layer(saved: Any) -> None:
    header, tensors = saved
    (gate,), (times,) = header["transformer"]["layers"]
    (first,), (second,) = header["proof"]["roles"]
    layers = [
        [gate, {"kind": "mean", "read": gate["read"], "write": gate["write"], "gain": 0.0, "keep_gain": 0.0}],
        [times],
    ]
    forged = {**header, "transformer": {**header["transformer"], "layers": layers}}
    forged["proof"] = {**header["proof"], "roles": [[first, first], [second]]}
    with pytest.raises(Refused, match="heads and neurons"):
        proved(forged, tensors)
