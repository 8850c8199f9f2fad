"""The rules of heads: every lemma at the point where its constant is attained (or the slack is stated), and refusals.

Exact values come from mpmath with 60 digits: a softmax of scores and values that are written down here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mpmath
import numpy as np
import pytest
from mpmath import mp, mpf

from headsmith.kernel.core.arithmetic import FLOAT32, FLOAT64, Interval, Precision, Upper
from headsmith.kernel.core.errors import Refused
from headsmith.kernel.core.heads import addresses, local_errors, ramp_sides
from headsmith.kernel.core.model import Bank, Link, Model
from headsmith.kernel.core.softmax import Local, Reads, committed, moved_mean, outside_weight, softmax_maximum
from headsmith.kernel.core.weighed import lowest_top

ATTAINED = 1e-9
FORMATS = pytest.mark.parametrize("precision", [FLOAT64, FLOAT32])
NO_WEIGHT = Upper(0.0)


@pytest.fixture(autouse=True)
def digits() -> Any:
    with mp.workdps(60), np.errstate(all="ignore"):
        yield


def mean(scores: Sequence[Any], values: Sequence[Any]) -> Any:
    powers = [mpmath.exp(mpf(score)) for score in scores]
    return sum(w * mpf(v) for w, v in zip(powers, values, strict=True)) / sum(powers)


def attained(bound: Any, exact: Any, slack: float = 0.0) -> None:
    """The bound holds, and is attained up to the stated slack."""
    value = float(np.max(bound.value if isinstance(bound, Upper) else bound))
    assert mpf(value) >= exact
    assert mpf(value) <= exact * (1 + mpf(slack) + mpf(ATTAINED))


def bank(kind: str, heads: int = 1, forms: int = 1, *, weight: float = 1.0, width: int = 0, **fields: Any) -> Bank:
    """A bank that reads `forms` columns of a register x."""
    arrays = {name: np.asarray(value, dtype=float) for name, value in fields.items() if not np.isscalar(value)}
    gains = {name: float(value) for name, value in fields.items() if np.isscalar(value)}
    outputs = forms - 2 * width if kind in ("mean", "move", "attend") else heads
    read, nodes = (Link("x", np.full(forms, weight), 0),), np.zeros(outputs, dtype=np.int64)
    return Bank(kind, read, (), arrays, gains, forms, outputs, heads, nodes, nodes, "address", width)


def model(only: Bank, tokens: int = 1, grid: int = 0, precision: Precision = FLOAT64, nothing: bool = False) -> Model:
    """A model of one bank; `nothing` makes its last address fetch nothing."""
    bits = (tokens - 1).bit_length()
    codes = addresses((*range(tokens - 1), -1 if nothing else tokens - 1), bits)
    sizes = {"x": only.forms, "address": bits + 1, **({"grid": grid} if grid else {})}
    return Model(1, 1, tokens, precision, sizes, (), {}, {"address": codes}, ((only,),), (), np.zeros(1))


def reads(low: Any, high: Any, **known: Any) -> Reads:
    """Arguments in [low, high], known exactly but for what is said."""
    low, high = np.atleast_1d(np.asarray(low, dtype=float)), np.atleast_1d(np.asarray(high, dtype=float))
    names = ("deviation", "arriving", "stored", "read", "magnitude", "drift")
    given = {"magnitude": np.maximum(np.abs(low), np.abs(high)), **known}
    return Reads(Interval(low, high), *(Upper(np.broadcast_to(given.get(name, 0.0), low.shape)) for name in names))


def sink(scale: float = 1.0, reference_gain: float = 40.0, position_gain: float = 40.0, **more: Any) -> Bank:
    gains = {"reference_gain": reference_gain, "position_gain": position_gain}
    return bank("sink", query_scale=[scale], key_scale=[1.0], **gains, **more)


def table(slope: Any, offset: Any, values: Any, gain: float = 40.0, keep_gain: float = 40.0) -> Bank:
    found = np.asarray(slope, dtype=float)[None, :, None]
    arrays = {"slope": found, "offset": [offset], "values": np.asarray(values, dtype=float)[None, :, None]}
    return bank("table", **arrays, gain=gain, keep_gain=keep_gain)


def gate(slope: Any, offset: Any, position_gain: float = 40.0, keep_gain: float = 40.0) -> Bank:
    gains = {"position_gain": position_gain, "keep_gain": keep_gain}
    return bank("gate", forms=2, slope=[slope], offset=[offset], **gains)


ONE, TWO = (Upper(np.ones((1, 1))),), (Upper(np.ones((1, 2))),)


# The lemmas of softmax ------------------------------------------------------------------------------------------------


def test_a_moved_mean_is_attained_by_two_tokens() -> None:
    d, spread = mpf(2) ** -20, 3.0
    level = -d  # the upper token weighs 1 / (1 + e^d) before
    moved = mean([level + d, -d], [spread, 0]) - mean([level, 0], [spread, 0])
    assert mpmath.almosteq(moved, spread * mpmath.tanh(d / 2), mpf(10) ** -50)
    attained(moved_mean(Upper(spread), Upper(2.0**-20)), moved)
    assert moved_mean(Upper(spread), Upper(50.0)).value == moved_mean(Upper(spread), Upper(np.nan)).value
    assert moved_mean(Upper(spread), Upper(np.nan)).value >= spread


def test_weights_of_silent_tokens_are_attained() -> None:
    weight = mean([0, *[mpf("0.2") - 30] * 3], [0, 1, 1, 1])
    attained(outside_weight(3, 30.0, Upper(0.1)), weight)
    assert outside_weight(0, 30.0, Upper(0.1)).value == 0.0
    assert np.isnan(outside_weight(1, np.nan, NO_WEIGHT).value)


@pytest.mark.parametrize("others", [1, 2, 63, 1023])
def test_the_softmax_maximum_is_attained(others: int) -> None:
    lambert = mpmath.lambertw(mpf(others) / mpmath.e).real
    scale, below = mpf(8), (lambert + 1) / 8
    exact = -mean([0, *[-scale * below] * others], [0, *[-below] * others])
    attained(softmax_maximum(np.array(8.0), others, NO_WEIGHT), exact)
    d = 2.0**-20
    raised = mpmath.lambertw(others * mpmath.exp(2 * mpf(d) - 1)).real / 8
    attained(softmax_maximum(np.array(8.0), others, Upper(d)), raised)
    assert softmax_maximum(np.array(8.0), others, Upper(3.0)).value >= float(
        mpmath.lambertw(others * mpmath.exp(5)).real / 8
    )
    assert np.isinf(softmax_maximum(np.array(8.0), others, Upper(np.inf)).value)


def sums(within: Model, active: int, margin: float) -> float:
    """What rounding adds to the mean of values within +-1, nothing else being off."""
    none = Upper(np.zeros(1))
    return float(committed(within, Upper(np.ones(1)), none, none, active, margin, none, (), 0.0).rounding.value[0])


@FORMATS
def test_sums_count_two_roundings_a_token(precision: Precision) -> None:
    # All roundings upwards: (1 + u)^(2T); the slack is two roundings.
    tokens, u = 64, mpf(precision.unit_roundoff)
    plain = model(bank("mean", gain=0.0, keep_gain=0.0), tokens, precision=precision)
    attained(sums(plain, tokens, 0.0), (1 + u) ** (2 * tokens) - 1, 2 / (2 * tokens) + 1e-4)
    # One active token, which leaves e^-30 to 63 others: four roundings are counted.
    assert sums(plain, 1, 30.0) <= 4.01 * precision.unit_roundoff + 9 * 63 * np.exp(-30)
    # Too much weight, or more tokens than the format can count: no lemma.
    assert sums(plain, 1, 1.0) == sums(plain, tokens, 0.0) == sums(plain, 1, np.nan)
    many = model(bank("mean", gain=0.0, keep_gain=0.0), precision=precision)
    object.__setattr__(many, "tokens", 1 << 60)
    assert np.isinf(sums(many, 1, 1e3))


def test_silent_terms_cost_no_more_than_their_size() -> None:
    # A thousand terms, each half a unit in the last place of the one that counts, are lost in this order, and their sum
    # t with them; the lemma allows 1.6 t and one rounding.
    silent = np.full(1000, 2.0**-25, dtype=np.float32)
    total = np.float32(1.0)
    for term in silent:
        total += term
    assert total == 1.0
    # In any order and for terms of any size the lemma holds.
    rng = np.random.default_rng(5)
    for trial in range(40):
        active = rng.normal(size=3).astype(np.float32)
        small = (rng.normal(size=200) * 10.0 ** rng.uniform(-9, -5, size=200)).astype(np.float32)
        heap = list(rng.permutation(np.concatenate([active, small])))
        exact = sum(mpf(float(term)) for term in heap)
        while len(heap) > 1:
            left, right = (heap.pop(0 if trial % 2 else int(rng.integers(len(heap)))) for _ in range(2))
            heap.insert(0 if trial % 2 else int(rng.integers(len(heap) + 1)), np.float32(left + right))
        allowed = float(FLOAT32.gamma(3).value) * np.abs(active).sum() + 1.6 * np.abs(small.astype(float)).sum()
        assert abs(mpf(float(heap[0])) - exact) <= allowed


def spilled(within: Model, size: float, drift: float, pulled: float) -> float:
    """What comes to a reference token whose query scores 30 on the sink."""
    held, drifted, none = (Upper(np.array([each])) for each in (size, drift, 0.0))
    found = committed(within, held, drifted, none, 1, 30.0, none, (), 30.0, Upper(np.array([pulled])))
    return float(found.spilled.value[0])


def test_what_spills_is_attained() -> None:
    # The sink itself counts as one more token that holds something: the slack is 1/64.
    attained(spilled(model(sink(), 64), 2.0, 0.0, 1.0), mean([30, *[1] * 64], [0, *[2] * 64]), 1 / 64 + 1e-9)
    assert spilled(model(sink(), 64), 2.0, 0.5, 100.0) >= 2.5  # whatever draws it
    assert spilled(model(bank("mean", gain=1.0, keep_gain=1.0)), 2.0, 0.0, 0.0) == 0.0


# Sink -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sign", [1, -1])
def test_a_gate_is_off_by_lambert_over_its_scale(sign: int) -> None:
    scale, z = 1000.0, sign * (1 + mpmath.lambertw(1 / mpmath.e).real) / 1000
    off = max(z, mpf(0)) - mean([scale * z, 0], [z, 0])
    only = sink(scale)
    attained(local_errors(model(only), only, reads(-1.0, 1.0)).below, off)
    # On a range so small that the scale does not matter: half of it.
    close = local_errors(model(only), only, reads(-1e-13, 1e-13))
    attained(close.below, max(sign * mpf(1e-13), mpf(0)) - mean([sign * mpf(1e-10), 0], [sign * mpf(1e-13), 0]))
    assert not close.above.value.any()


def test_a_gate_that_misreads_is_off_by_two_reads() -> None:
    # The query reads just more than zero, the value twice the rounding below: the head returns the value.
    read, scale = mpf(2) ** -30, mpf(2) ** 62
    z, query, value = -read * (1 - mpf(2) ** -27), read, -read
    returned = (z + value) / (1 + mpmath.exp(-scale * (z + query)))
    only = sink(2.0**62)
    found = local_errors(model(only), only, reads(-1e-6, 1e-6, read=float(read)))
    inside = local_errors(model(only), only, reads(-1e-6, 1e-6)).rounding.value
    attained(float(found.rounding.value[0] - inside[0]), -returned, 1e-7)


@pytest.mark.parametrize("sign", [1, -1])
def test_scores_that_are_off_make_a_gate_no_worse_than_its_lemma(sign: int) -> None:
    """With |m| <= r |t| + a, z sigmoid(t + m) is below relu(z) by at most W(e^(a - 1)) / (b (1 - r)): attained."""
    for relative, absolute in (
        (mpf(1) / 64, mpf(0)),
        (mpf(0), mpf(1) / 8),
        (mpf(1) / 64, mpf(1) / 8),
        (mpf(0), mpf(3)),
    ):
        bound = mpmath.lambertw(mpmath.exp(absolute - 1)).real / (8 * (1 - relative))
        worst = sign * (1 + mpmath.lambertw(mpmath.exp(absolute - 1)).real) / (1 - relative)
        for t in (worst, *mpmath.linspace(-30, 30, 121)):
            moved = t - mpmath.sign(t) * (relative * abs(t) + absolute)
            off = max(t / 8, mpf(0)) - t / 8 / (1 + mpmath.exp(-moved))
            assert off <= bound * (1 + mpf(10) ** -40)
            assert t != worst or off >= bound * (1 - mpf(10) ** -40)
        attained(softmax_maximum(np.array(8.0 * (1.0 - float(relative))), 1, Upper(float(absolute) / 2.0)), bound)


def test_the_leaks_of_a_gate_are_nearly_attained() -> None:
    # Every other token counts as one whose position differs in one bit: 63 instead of 6.
    only, hops = sink(1.0), [bin(pattern).count("1") for pattern in range(1, 64)]
    alone, others = mpf(30), [30 - 40 * h for h in hops]
    low = mean([alone, *others], [1, *[-1] * 63])
    attained(local_errors(model(only, 64), only, reads(-1.0, 1.0)).leak, 1 - low, 63 / 6 - 1 + 1e-4)
    # The grid's tokens weigh e^-40 each beside a sink that weighs next to nothing, and what drifted counts in full.
    grid = local_errors(model(only, grid=8), only, reads(-1.0, 1.0, drift=1e-3)).leak.value
    assert grid <= 1e-3 + 2 * 8.1 * float(mpmath.exp(-40))
    assert grid >= 1e-3 + 2 * 8.0 * float(mpmath.exp(-40))


# Table, ramp, gate ----------------------------------------------------------------------------------------------------


def test_the_leak_of_a_table_is_attained() -> None:
    # One token of the grid scores -s >= -2; data tokens and sink, if any, score -40.
    only = table([-1.0], [0.0], [5.0])
    exact = 5 - mean([-2, *[-40] * 64], [5, *[0] * 64])
    found = local_errors(model(only, 64, grid=1), only, reads(-2.0, 2.0), *ONE)
    attained(found.leak, exact, 1.0 + 1e-6)  # values may lie on both sides of zero: twice
    attained(found.spilled, mpf(5), 1e-12)  # without a sink a reference token gets some mean of values


def test_the_lowest_largest_score_is_attained_or_off_by_a_cell() -> None:
    exactly = lowest_top(np.array([[[2.0]]]), np.array([[1.0]]), Interval([[-3.0]], [[5.0]]))
    assert exactly[0] == -5.0
    slope = np.array([[[1.0, 1.0], [-1.0, -1.0], [1.0, -1.0], [-1.0, 1.0]]])
    found = lowest_top(slope, np.zeros((1, 4)), Interval([[-1.0, -1.0]], [[1.0, 1.0]]))
    assert -2.0 / 12 * 2 <= found[0] <= 0.0
    assert np.isnan(lowest_top(slope, np.zeros((1, 4)), Interval([[-np.inf, -1.0]], [[1.0, 1.0]]))[0])


def test_a_ramp_is_bounded_within_a_cell() -> None:
    # Two tokens that hold 0 and 1: sigmoid(6 s - 3) against relu, on [-1, 1].
    slope, offset, values = np.array([0.0, 6.0]), np.array([0.0, -3.0]), np.array([0.0, 1.0])
    below, above = ramp_sides(slope, offset, values, -1.0, 1.0, 1024)
    grid = np.linspace(-1, 1, 100_001)
    error = 1.0 / (1.0 + np.exp(3.0 - 6.0 * grid)) - np.maximum(grid, 0.0)
    assert -error.min() <= below <= -error.min() + 2.5 / 1024
    assert error.max() <= above <= error.max() + 2.5 / 1024


def test_the_leaks_of_a_product_are_attained() -> None:
    # The grid weighs nothing, the token itself one; the others hold the opposite.
    only = gate([0.0], [-300.0])
    hops = [bin(pattern).count("1") for pattern in range(1, 64)]
    exact = 1 - mean([0, -40, *[-40 * h for h in hops]], [1, 0, *[-1] * 63])
    found = local_errors(model(only, 64, grid=1), only, reads([-1.0, -1.0], [1.0, 1.0]), *TWO)
    attained(found.leak, exact, 2 * 64 / 13 - 1 + 1e-6)  # 64 silent tokens, one bit away each


def test_position_codes_that_are_no_whole_numbers_count_as_scores() -> None:
    whole, broken = gate([1.0], [0.0], 40.0), gate([1.0], [0.0], 40.0625)
    bounds = [
        local_errors(model(each, 64, grid=1), each, reads([-1.0, -1.0], [1.0, 1.0]), *TWO).rounding.value[0]
        for each in (whole, broken)
    ]
    assert bounds[1] > 5.0 * bounds[0]


# Heads that mix tokens ------------------------------------------------------------------------------------------------


def test_the_leak_of_a_mean_is_attained() -> None:
    only = bank("mean", gain=30.0, keep_gain=30.0)
    exact = 1 - mean([30, *[0] * 9], [1, *[-0.5] * 9])
    found = local_errors(model(only, 4, grid=8), only, reads(-1.0, 1.0, drift=0.5)).leak - 0.5
    attained(found, exact, 1 / 3 + 1e-3)  # as if reference tokens held as much as data tokens


def test_the_leak_of_a_maximum_is_attained() -> None:
    only = bank("boltzmann", query_scale=[4.0], key_scale=[1.0], gain=40.0, keep_gain=30.0)
    exact = -mean([40 - 8, *[4 * 0.5] * 9], [-2, *[0.5] * 9]) - 2
    found = local_errors(model(only, 4, grid=8), only, reads(-2.0, 2.0, drift=0.5))
    attained(found.leak - 0.5, -exact, 0.6 + 1e-3)
    assert found.max_score >= 48.0


def test_the_leaks_of_a_move_are_attained() -> None:
    only = bank("move", gain=15.0, keep_gain=30.0)
    hops = [bin(pattern).count("1") for pattern in range(1, 64)]
    exact = 1 - mean([90, *[90 - 30 * h for h in hops]], [1, *[-1] * 63])
    attained(local_errors(model(only, 64), only, reads(-1.0, 1.0)).leak, exact, 63 / 6 - 1 + 1e-4)
    nothing = local_errors(model(only, 4, nothing=True), only, reads(-1.0, 1.0, drift=1e-6)).leak
    attained(nothing, mean([30, *[0] * 4], [mpf(1e-6), *[1] * 4]), 1e-5)


def test_addresses_name_tokens_or_nothing() -> None:
    found = addresses((0, 5, -1), 3)
    assert found.tolist() == [[1.0, 1.0, 1.0, 0.0], [-1.0, 1.0, -1.0, 0.0], [0.0, 0.0, 0.0, 1.0]]


def test_what_queries_are_off_by_counts_with_half_the_spread_of_keys() -> None:
    # Keys lie in [9, 11], so a query that is off by e moves scores by e against their middle; values in [-1, 1].
    off = 2.0**-20
    only = bank("attend", forms=3, width=1, gain=60.0, keep_gain=60.0)
    arguments = reads([-1.0, 9.0, -1.0], [1.0, 11.0, 1.0], deviation=[off, 0.0, 0.0])
    exactly = reads([-1.0, 9.0, -1.0], [1.0, 11.0, 1.0])
    found, base = (local_errors(model(only, 2), only, each).rounding.value[0] for each in (arguments, exactly))
    moved = mean([mpf(off) * 11, mpf(off) * 9], [1, -1])
    attained(float(found - base), moved, 1e-5)


def test_the_leak_of_attention_is_attained() -> None:
    only = bank("attend", forms=3, width=1, gain=60.0, keep_gain=60.0)
    arguments = reads([-2.0, -3.0, -1.0], [2.0, 3.0, 1.0], drift=[0.0, 0.5, 0.0])
    exact = 1 - mean([-6, *[-60 + 1] * 9], [1, *[0] * 9])
    attained(local_errors(model(only, 4, grid=8), only, arguments).leak, exact, 1.0 + 1e-6)  # as for a table


# Refusals -------------------------------------------------------------------------------------------------------------

HUGE = {"read": 0.0, "magnitude": 1e308}
ATTEND = {"forms": 3, "width": 1}

REFUSALS: dict[str, tuple[str, Bank, dict[str, Any], dict[str, Any]]] = {
    "scale": ("not positive", sink(-1.0), {}, {}),
    "gain": ("gain of a sink bank is negative", sink(reference_gain=-1.0), {}, {}),
    "weight times scale": ("beyond float32", sink(1e10, weight=1e30), {"precision": FLOAT32}, {}),
    "tiny weight": ("beyond float32", sink(1e-20, weight=1e-20), {"precision": FLOAT32}, {}),
    "large read": ("what a head reads may reach", sink(), {}, HUGE),
    "not a number": ("what a head reads may reach nan", sink(), {}, {"magnitude": np.nan}),
    "large query": ("a query or key may reach", sink(1e200), {}, {"magnitude": 1e200}),
    "drift": ("drifts into a reference token may reach", sink(), {}, {"drift": 1e308}),
    "drift of a query": ("a query or key may reach", sink(1e200), {}, {"drift": 1e200}),
    "table value": ("a value of a table", table([0.0], [0.0], [1e308]), {"grid": 1}, {}),
    "table drift": ("a score may reach", table([1e200], [0.0], [1.0]), {"grid": 1}, {"drift": 1e200}),
    "gate drift": ("a score may reach", gate([1e200], [0.0]), {"grid": 1}, {"drift": 1e200}),
    "maximum of a minimum": (
        "scale of a boltzmann bank is not positive",
        bank("boltzmann", query_scale=[-1.0], key_scale=[1.0], gain=1.0, keep_gain=1.0),
        {},
        {},
    ),
    "large key": (
        "a query or key may reach",
        bank("boltzmann", query_scale=[1.0], key_scale=[1e200], gain=1.0, keep_gain=1.0),
        {},
        {"magnitude": 1e200},
    ),
    "large score": ("a score may reach", bank("mean", gain=1e300, keep_gain=0.0), {"precision": FLOAT32}, {}),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals(name: str) -> None:
    message, only, setting, known = REFUSALS[name]
    proven = {"table": ONE, "gate": TWO}.get(only.kind, ())
    arguments = reads(np.full(only.forms, -1.0), np.full(only.forms, 1.0), **known)
    with pytest.raises(Refused, match=message):
        local_errors(model(only, **setting), only, arguments, *proven)


def test_queries_that_underflow_cost_what_they_cost() -> None:
    only = bank("sink", query_scale=[2.0**-100], key_scale=[2.0**100], reference_gain=40.0, position_gain=40.0)
    fine = bank("sink", query_scale=[1.0], key_scale=[1.0], reference_gain=40.0, position_gain=40.0)
    found = [
        local_errors(model(each, precision=FLOAT32), each, reads(-1.0, 1.0)).below.value[0] for each in (only, fine)
    ]
    assert found[0] > (1.0 + 2.0**-30) * found[1]


def test_a_gain_of_zero_bounds_nothing() -> None:
    for only in (sink(position_gain=0.0), bank("move", gain=0.0, keep_gain=1.0)):
        assert local_errors(model(only, 4), only, reads(-1.0, 1.0)).leak.value[0] >= 2.0


def test_ramps_are_refused_that_fall_or_have_no_range() -> None:
    falling, rising = table([0.0, 1.0], [0.0, 0.0], [1.0, 0.0]), table([0.0, 1.0], [0.0, 0.0], [0.0, 1.0])
    with pytest.raises(Refused, match="must rise with its slopes"):
        local_errors(model(falling, grid=2), falling, reads(-1.0, 1.0))
    with pytest.raises(Refused, match="no bounded interval"):
        ramp_sides(*(array.ravel() for array in rising.arrays.values()), -1.0, np.nan, 8)
    pair = bank("table", slope=[[[1.0, 1.0]]], offset=[[0.0]], values=[[[1.0]]], gain=40.0, keep_gain=40.0, forms=2)
    with pytest.raises(Refused, match="one argument and one column"):
        local_errors(model(pair, grid=1), pair, reads([-1.0, -1.0], [1.0, 1.0]))
    with pytest.raises(Refused, match="slopes of a gate bank are not known"):
        local_errors(model(gate([0.0], [0.0]), grid=1), gate([0.0], [0.0]), reads([-1.0, -1.0], [1.0, 1.0]))


KINDS: dict[str, tuple[Bank, dict[str, Any]]] = {
    "sink": (sink(), {"tokens": 4, "grid": 1}),
    "table": (table([1.0], [0.0], [1.0]), {"tokens": 4, "grid": 1}),
    "gate": (gate([1.0], [0.0]), {"tokens": 4, "grid": 1}),
    "mean": (bank("mean", gain=40.0, keep_gain=40.0), {"tokens": 4, "grid": 1}),
    "boltzmann": (bank("boltzmann", query_scale=[1.0], key_scale=[1.0], gain=40.0, keep_gain=40.0), {"tokens": 4}),
    "move": (bank("move", gain=40.0, keep_gain=40.0), {"tokens": 4, "grid": 1}),
    "attend": (bank("attend", forms=3, width=1, gain=40.0, keep_gain=40.0), {"tokens": 4, "grid": 1}),
}


@pytest.mark.parametrize("field", ["deviation", "arriving", "stored", "read"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_not_known_is_refused_or_never_a_smaller_bound(kind: str, value: float, field: str) -> None:
    only, setting = KINDS[kind]
    proven = {"table": ONE, "gate": TWO}.get(kind, ())
    known = reads(np.full(only.forms, -1.0), np.full(only.forms, 1.0))
    unknown = reads(np.full(only.forms, -1.0), np.full(only.forms, 1.0), **{field: value})
    before = local_errors(model(only, **setting), only, known, *proven)
    try:
        after: Local = local_errors(model(only, **setting), only, unknown, *proven)
    except Refused:
        return
    for name in ("below", "leak", "rounding", "reach", "spilled", "committed"):
        old, new = getattr(before, name).value, getattr(after, name).value
        assert np.all(np.isnan(new) | (new >= old)), name
    if field != "arriving":
        assert not np.isfinite(after.committed.value).any()
