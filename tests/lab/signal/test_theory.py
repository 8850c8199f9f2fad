"""The recurrences: reference values, two directions that agree, limits that are known, and input that is refused."""

import math
from itertools import pairwise

import numpy as np
import pytest

import headsmith as hs
from headsmith.core.errors import TargetError
from headsmith.lab.signal.erf import erf
from headsmith.lab.signal.moments import moments
from headsmith.lab.signal.theory import kappa, kappa_slope

REFERENCE = [
    ("layernorm", 1.0, 9.63301),
    ("derf", 0.5, 6.72238),
    ("derf", 1.0, 33.87141),
    ("derf", 1.5, 152.15952),
    ("dyt", 0.5, 5.09972),
    ("dyt", 1.0, 21.03413),
    ("dyt", 1.5, 75.18685),
]


@pytest.mark.parametrize(("norm", "alpha", "J"), REFERENCE)
def test_reference_values_of_a_vit_base(norm: str, alpha: float, J: float) -> None:
    found = hs.signal.apjn(norm, alpha=alpha, depth=64, tokens=196, q0=1.0, p0=0.2)
    assert found.J[-1] == pytest.approx(J, abs=6e-6)
    assert found.J_to_output[0] == pytest.approx(J, abs=6e-6)
    assert found.J[0] == found.J_to_output[-1] == 1.0
    assert len(found.q) == len(found.p) == len(found.J) == 65


def test_the_stream_of_layernorm() -> None:
    found = hs.signal.apjn("layernorm")
    assert found.q[-1] == pytest.approx(16.63923, abs=6e-6)
    assert found.correlation[-1] == pytest.approx(0.716475, abs=6e-7)


def test_the_first_blocks_of_a_deep_network_are_a_shallow_one() -> None:
    deep, shallow = hs.signal.apjn("derf", depth=20), hs.signal.apjn("derf", depth=7)
    assert np.array_equal(deep.q[:8], shallow.q)
    assert np.allclose(deep.J[:8], shallow.J, rtol=1e-14)
    assert deep.J[7] == pytest.approx(shallow.J_to_output[0], rel=1e-13)


@pytest.mark.parametrize("norm", ["layernorm", "derf", "dyt"])
@pytest.mark.parametrize("finite", [False, True])
def test_both_directions_give_the_same_number(norm: str, finite: bool) -> None:
    found = hs.signal.apjn(
        norm, alpha=0.7, depth=30, tokens=5, p0=0.6, sigma_o=1.3, sigma_1=0.9, sigma_qk=0.8, finite_tokens=finite
    )
    assert found.J[-1] == pytest.approx(found.J_to_output[0], rel=1e-12)


def test_one_block_by_hand() -> None:
    a, b, n, q0, p0, A = (0.8 * 0.9) ** 2, (1.1 * 0.7) ** 2, 10, 1.5, 0.5, 4.0
    asin, root = math.asin, math.sqrt
    tilde_p = 2 / math.pi * asin(2 * A * p0 / (1 + 2 * A * q0))
    q, p = q0 + a * tilde_p, p0 + a * tilde_p
    q_half, p_half = (2 / math.pi * asin(2 * A * x / (1 + 2 * A * q)) for x in (q, p))
    found = hs.signal.apjn(
        "derf", alpha=2, depth=1, tokens=n, q0=q0, p0=p0, sigma_o=0.8, sigma_v=0.9, sigma_1=1.1, sigma_2=0.7
    )
    assert found.q[1] == pytest.approx(q + b * q_half / 2, rel=1e-14)
    assert found.p[1] == pytest.approx(p + b * q_half * kappa(p_half / q_half), rel=1e-14)
    slope, slope_half = (4 * A / math.pi / root(1 + 4 * A * x) for x in (q0, q))
    assert found.J[1] == pytest.approx((1 + b * slope_half / 2) * (1 + a * slope / n), rel=1e-14)


def test_attention_that_is_not_even_looks_more_at_the_token_itself() -> None:
    even = hs.signal.apjn("layernorm", tokens=8, depth=4, sigma_qk=0.0)
    uneven = hs.signal.apjn("layernorm", tokens=8, depth=4, sigma_qk=2.0)
    # Even attention among n: q grows by a (q~ + (n - 1) p~) / n.
    a, b = even.settings.attention, even.settings.mlp
    assert even.q[1] == pytest.approx(1.0 + a * (1.0 + 7 * 0.2) / 8 + b / 2, rel=1e-14)
    other = math.exp(4.0 * (0.2 - 1.0)) * 7
    assert uneven.q[1] == pytest.approx(1.0 + a * (1.0 + 0.2 * other) / (1.0 + other) + b / 2, rel=1e-14)
    assert uneven.q[-1] > even.q[-1]


def test_a_single_token_attends_to_itself() -> None:
    found = hs.signal.apjn("layernorm", depth=1, tokens=1, p0=1.0, finite_tokens=True)
    a, b = found.settings.attention, found.settings.mlp
    assert found.J[-1] == pytest.approx((1 + a) * (1 + b / 2 / (1 + a)), rel=1e-14)


def test_equal_tokens_stay_equal_and_independent_ones_become_alike() -> None:
    for norm in ("layernorm", "derf", "dyt"):
        equal = hs.signal.apjn(norm, depth=10, p0=1.0)
        assert np.allclose(equal.p, equal.q, rtol=1e-12)
        rising = hs.signal.apjn(norm, depth=10, p0=0.0).correlation
        assert all(before < after for before, after in pairwise(rising))


def test_several_alphas_are_a_second_axis() -> None:
    together = hs.signal.apjn("dyt", alpha=[0.5, 1.5], depth=6)
    assert together.J.shape == together.q.shape == (7, 2)
    assert together.J[-1, 1] == hs.signal.apjn("dyt", alpha=1.5, depth=6).J[-1]


def test_very_deep_and_very_steep_networks_have_finite_logarithms() -> None:
    deep = hs.signal.apjn("derf", depth=2**13)
    assert np.isfinite(deep.log_J).all()
    steep = hs.signal.apjn("derf", alpha=1e3, depth=300)
    assert np.isinf(steep.J[-1])
    assert np.isfinite(steep.log_J[-1])


def test_growth_is_a_power_law_with_layernorm_and_a_stretched_exponential_without() -> None:
    layernorm, derf = (hs.signal.apjn(norm, depth=2**12).log_J for norm in ("layernorm", "derf"))
    exponent = (layernorm[2**12] - layernorm[2**11]) / math.log(2)
    assert exponent == pytest.approx(0.702, abs=5e-4)
    slopes = [(derf[2 * L] - derf[L]) / (math.sqrt(2 * L) - math.sqrt(L)) for L in (2**10, 2**11)]
    assert slopes[1] == pytest.approx(slopes[0], rel=0.01)


@pytest.mark.parametrize(("alpha", "q"), [(0.1, 1.0), (1.0, 0.9), (1.0, 12.0), (7.0, 3.0), (12.0, 30.0)])
@pytest.mark.parametrize("rho", [0.0, 0.3, 0.97, 0.99999])
def test_dyt_integrals_against_many_nodes(alpha: float, q: float, rho: float) -> None:
    found = moments("dyt", alpha, q, rho * q)
    steep = alpha * math.sqrt(q)

    def rule(scale: float) -> tuple[np.ndarray, np.ndarray]:
        nodes = np.linspace(-9.0, 9.0, int(300 + 70 * scale))
        return nodes, np.exp(-(nodes**2) / 2) / math.sqrt(2 * math.pi) * (nodes[1] - nodes[0])

    x, w = rule(steep)
    f = np.tanh(steep * x)
    assert found.variance == pytest.approx(w @ f**2, rel=1e-12)
    assert found.slope_variance == pytest.approx(alpha**2 * (w @ (1 - f**2) ** 2), rel=1e-12)
    (u, wu), (v, wv) = rule(steep * math.sqrt(rho)), rule(steep * math.sqrt(1 - rho))
    covariance = slope = 0.0
    for each, weight in zip(u, wu, strict=True):
        f = np.tanh(steep * (math.sqrt(rho) * each + math.sqrt(1 - rho) * v))
        covariance += weight * (wv @ f) ** 2
        slope += weight * (wv @ (1 - f**2)) ** 2
    assert found.covariance == pytest.approx(covariance, rel=1e-11, abs=1e-15)
    assert found.slope_covariance == pytest.approx(alpha**2 * slope, rel=1e-11)


@pytest.mark.parametrize("norm", ["derf", "dyt"])
def test_negative_covariances_change_signs_only(norm: str) -> None:
    plus, minus = moments(norm, 1.3, 2.0, 0.7), moments(norm, 1.3, 2.0, -0.7)  # type: ignore[arg-type]
    assert minus.covariance == -plus.covariance
    assert minus.slope_covariance == pytest.approx(plus.slope_covariance, rel=1e-14)


def test_kappa_and_its_slope() -> None:
    assert (kappa(1.0), kappa(-1.0)) == pytest.approx((0.5, 0.0))
    assert (kappa(0.3 + 1e-6) - kappa(0.3 - 1e-6)) / 2e-6 == pytest.approx(kappa_slope(0.3), rel=1e-8)


def test_erf_on_arrays() -> None:
    x = np.concatenate([np.linspace(-7.0, 7.0, 10001), [1e-12, 0.0, np.inf, -np.inf]])
    assert np.abs(erf(x) - [math.erf(each) for each in x]).max() <= 3e-16


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"norm": "rms"}, "unknown norm 'rms'; choose one of layernorm, derf, dyt"),
        ({"depth": 0}, "depth is 0; it must be a positive integer"),
        ({"depth": 2.5}, "depth is 2.5"),
        ({"tokens": -1}, "tokens is -1"),
        ({"alpha": 0.0}, "alpha is 0.0; it must be above 0"),
        ({"alpha": []}, "alpha is empty"),
        ({"alpha": float("nan")}, "alpha is nan"),
        ({"sigma_o": -1.0}, "sigma_o is -1.0; a standard deviation is at least 0"),
        ({"q0": 0.0}, "q0 is 0.0; it must be above 0"),
        ({"p0": 1.2}, "a covariance is at most the variance"),
    ],
)
def test_input_that_makes_no_sense_is_refused(options: dict, text: str) -> None:
    with pytest.raises(TargetError, match=text):
        hs.signal.apjn(**options)


def test_the_smallest_network() -> None:
    found = hs.signal.residual("derf", alpha=1.0, depth=4000)
    assert found.saturated is not None
    assert found.q[found.saturated] >= 1.0 > found.q[found.saturated - 1]
    squares = found.log_J**2
    rises = [squares[k + 500] - squares[k] for k in (2000, 2500, 3000, 3500)]
    assert max(rises) / min(rises) < 1.05
    # log J ~ (4 alpha sigma / pi) sqrt(L), once the norm saturates.
    assert rises[-1] / 500 == pytest.approx((4 * 0.2 / math.pi) ** 2, rel=0.25)


def test_q_p_and_J_can_be_unpacked() -> None:
    q, p, J = hs.signal.apjn("derf", depth=3)
    assert len(q) == len(p) == len(J) == 4
