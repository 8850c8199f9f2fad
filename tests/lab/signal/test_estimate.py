"""Random transformers: passes that agree with finite differences, tokens as asked, estimates within standard errors."""

import numpy as np
import pytest

import headsmith as hs
from headsmith.core.errors import TargetError
from headsmith.lab.signal import networks
from headsmith.lab.signal.estimate import estimate
from headsmith.lab.signal.theory import Settings


@pytest.mark.parametrize("norm", ["layernorm", "derf", "dyt"])
@pytest.mark.parametrize("sigma_qk", [None, 1.3])
def test_passes_are_derivatives_of_the_forward_pass(norm: str, sigma_qk: float | None) -> None:
    settings = Settings(norm, 0.9, depth=1, tokens=5, sigma_qk=sigma_qk, sigma_o=1.5, sigma_v=1.2)  # type: ignore[arg-type]
    rng = np.random.default_rng(0)
    X = networks.equiangular_tokens(settings, 12, rng)
    block = networks.draw_block(settings, 12, 20, 3, rng)
    _, trace = networks.forward(settings, block, X)
    T, G = rng.standard_normal((2, 2, 5, 12))
    moved = networks.tangent(settings, block, trace, T)
    step = 1e-6
    for each, tangent in zip(T, moved, strict=True):
        ends = [networks.forward(settings, block, X + sign * step * each)[0] for sign in (1.0, -1.0)]
        assert np.allclose((ends[0] - ends[1]) / (2 * step), tangent, atol=1e-8)
    back = networks.reverse(settings, block, trace, G)
    assert np.einsum("pnd,pnd->p", moved, G) == pytest.approx(np.einsum("pnd,pnd->p", T, back), rel=1e-12)


@pytest.mark.parametrize("p0", [0.0, 0.4, 1.5, -0.2])
def test_tokens_have_the_overlaps_that_were_asked_for(p0: float) -> None:
    tokens = networks.equiangular_tokens(Settings(tokens=6, q0=1.5, p0=p0), 20, np.random.default_rng(1))
    gram = tokens @ tokens.T / 20
    assert np.allclose(gram, p0 + (1.5 - p0) * np.eye(6), atol=1e-12)


@pytest.mark.parametrize(("norm", "tokens"), [("layernorm", 6), ("derf", 6), ("dyt", 6), ("derf", 1)])
def test_measurement_meets_theory_within_its_standard_error(norm: str, tokens: int) -> None:
    found = estimate(
        Settings(norm, 1.0, depth=4, tokens=tokens, p0=0.2 if tokens > 1 else 1.0, finite_tokens=True),  # type: ignore[arg-type]
        width=96,
        hidden=192,
        networks=40,
        seed=5,
    )
    theory = found.theory
    assert 0.0 < found.ratio_standard_error[-1] < 0.02
    assert abs(found.ratio[-1] - 1.0) <= 3.5 * found.ratio_standard_error[-1]
    pairs = (
        (found.J_to_output[0], theory.J[-1], found.J_to_output_standard_error[0]),
        (found.q[-1], theory.q[-1], found.q_standard_error[-1]),
        (found.p[-1], theory.p[-1], found.p_standard_error[-1]),
    )
    for measured, expected, error in pairs:
        assert abs(measured - expected) <= 3.5 * error


def test_a_wrong_theory_is_seen() -> None:
    settings = Settings("derf", 1.0, depth=4, tokens=6, finite_tokens=True)
    found = estimate(settings, width=64, hidden=64, networks=40)
    wrong = hs.signal.apjn("derf", alpha=1.15, depth=4, tokens=6, finite_tokens=True)
    assert abs(found.J[-1] - wrong.J[-1]) > 4.0 * found.J_standard_error[-1]


def test_the_same_seed_gives_the_same_numbers() -> None:
    options = {"norm": "dyt", "depth": 2, "tokens": 3, "width": 12, "networks": 2}
    first, again, other = (hs.signal.measure(**options, seed=seed) for seed in (1, 1, 2))
    assert np.array_equal(first.J, again.J)
    assert not np.array_equal(first.J, other.J)


def test_what_cannot_be_measured_is_refused() -> None:
    with pytest.raises(TargetError, match="a standard error needs at least 2"):
        hs.signal.measure(norm="derf", networks=1)
    with pytest.raises(TargetError, match="a width of 4 has no room for 16 tokens"):
        hs.signal.measure("derf", width=4)
    with pytest.raises(TargetError, match="unknown option widht"):
        hs.signal.measure("derf", widht=4)
    with pytest.raises(TargetError, match="the width must be a multiple of the heads"):
        hs.signal.measure("derf", width=30, heads=4)
    with pytest.raises(TargetError, match="must be at least -0"):
        hs.signal.measure("derf", tokens=3, p0=-0.9, width=8, networks=2)


def test_uneven_attention_follows_the_theory_of_the_stream_and_adds_to_gradients() -> None:
    settings = Settings("layernorm", depth=3, tokens=8, sigma_qk=1.0, sigma_o=1.0, sigma_v=1.0, finite_tokens=True)
    found = estimate(settings, width=96, hidden=96, heads=4, networks=30, probes=2)
    assert found.q[-1] == pytest.approx(found.theory.q[-1], rel=0.05)
    assert found.p[-1] == pytest.approx(found.theory.p[-1], rel=0.1)
    # The theory carries gradients as if attention were even: scores that move add to them.
    assert found.J[-1] > found.theory.J[-1] + 3.0 * found.J_standard_error[-1]
