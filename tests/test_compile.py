"""The promise: ask for an error, get a transformer that meets it, provably; or a clear reason why not, and the error
that can be met.

Random networks of every shape, trained networks and nasty ones; errors from 1e-1 to 1e-9; both dtypes; one token and
several. The certificate never exceeds what was asked, and no input is found beyond it.
"""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from helpers.attacks.gates import candidate_points, errors_at, worst_error
from helpers.effort import tried
from helpers.models.networks import folding_circuit, random_circuit, random_network, shifted_network, trained
from helpers.oracles.exact import exact, exact_error
from hypothesis import given, settings
from hypothesis import strategies as st

import headsmith as hs

ERRORS = [10.0**-k for k in range(1, 10)]


def compile_or_reachable(target, domain, error, **options) -> hs.Compiled:
    """Compile; where the error cannot be met, check the refusal and compile for the smallest error that it names."""
    try:
        model = hs.compile(target, domain, error=error, **options)
    except hs.UnreachableError as caught:
        refusal = caught
    else:
        assert model.certificate.error <= error
        return model
    assert refusal.part in ("leak", "rounding")
    assert error < refusal.smallest < np.inf
    assert f"{refusal.smallest:.3g}" in str(refusal)
    assert refusal.part in str(refusal)
    model = hs.compile(target, domain, error=refusal.smallest, **options)
    assert model.certificate.error <= refusal.smallest
    return model


class TestNoInputIsFoundBeyondTheCertificate:
    @pytest.mark.again
    @given(
        widths=st.tuples(st.integers(1, 8), st.lists(st.integers(1, 12), max_size=tried(5, 2)), st.integers(1, 4)),
        seed=st.integers(0, 10**6),
        error=st.sampled_from(ERRORS),
        dtype=st.sampled_from(["float64", "float32"]),
        tokens=st.sampled_from([1, 1, 2, 5]),
        shape=st.sampled_from([{}, {"weight": 3.0}, {"weight": 0.1}, {"density": 0.3}, {"bias": 3.0}, {"bias": 0.0}]),
        domain=st.sampled_from([(-1, 1), (0, 1), (-10, 3), (1000, 1001), (-1e-3, 1e-3)]),
    )
    @settings(max_examples=tried(100, 10))
    def test_random_networks(self, widths, seed, error, dtype, tokens, shape, domain) -> None:
        network = random_network([widths[0], *widths[1], widths[2]], seed, **shape)
        model = compile_or_reachable(network, domain, error, dtype=dtype, tokens=tokens)
        assert worst_error(model, np.random.default_rng(seed), points=60, steps=1) <= model.certificate.error

    @pytest.mark.one_in(2)
    @pytest.mark.parametrize(
        ("widths", "error", "dtype", "tokens"),
        [
            ([1, 300, 1], 1e-6, "float64", 1),
            ([50, 300, 300, 10], 1e-3, "float64", 1),
            ([50, 300, 300, 10], 1e-9, "float64", 3),
            ([50, 300, 5], 1e-1, "float32", 1),
            ([10, 100, 100, 100, 100, 100, 100, 1], 1e-2, "float64", 1),
            ([30, 60, 60, 60, 3], 1e-1, "float32", 4),
            ([2, 300, 1, 300, 1], 1e-8, "float64", 2),
        ],
        ids=str,
    )
    def test_larger_networks(self, widths, error, dtype, tokens, rng) -> None:
        model = compile_or_reachable(random_network(widths, 1), (-1, 1), error, dtype=dtype, tokens=tokens)
        assert worst_error(model, rng, points=60, steps=1) <= model.certificate.error

    @pytest.mark.one_in(7)
    @pytest.mark.parametrize("error", ERRORS)
    @pytest.mark.parametrize("dtype", ["float64", "float32"])
    @pytest.mark.parametrize("tokens", [1, 4])
    def test_every_error_on_one_network(self, error, dtype, tokens, rng) -> None:
        model = compile_or_reachable(random_network([3, 8, 8, 2], 2), (-1, 1), error, dtype=dtype, tokens=tokens)
        assert worst_error(model, rng) <= model.certificate.error

    @pytest.mark.one_in(5)
    @pytest.mark.parametrize("name", ["diabetes", "iris", "digits"])
    @pytest.mark.parametrize(
        ("error", "dtype", "tokens"), [(1e-1, "float32", 1), (1e-3, "float64", 1), (1e-9, "float64", 3)]
    )
    def test_networks_trained_on_real_data(self, name, error, dtype, tokens, rng) -> None:
        network, data, domain = trained(name)
        model = compile_or_reachable(network, domain, error, dtype=dtype, tokens=tokens)
        assert worst_error(model, rng, points=80, steps=2, extra=data[:300]) <= model.certificate.error

    @pytest.mark.parametrize("dtype", ["float64", "float32"])
    def test_at_the_limit_of_the_dtype_the_exact_error_is_within(self, dtype, rng) -> None:
        """The smallest error that can be met is all rounding; judged by exact fractions at the worst points that were
        found."""
        network = random_network([3, 8, 8, 2], 3, weight=2.0)
        with pytest.raises(hs.UnreachableError) as refusal:
            hs.compile(network, (-1, 1), error=1e-30, dtype=dtype)
        model = hs.compile(network, (-1, 1), error=refusal.value.smallest, dtype=dtype)
        points = candidate_points(model, rng, 200)
        worst = np.argsort(errors_at(model, points, rng))[-10:]
        for point in points[worst]:
            assert exact_error(model(point), exact(network.graph, point)) <= model.certificate.error

    @pytest.mark.again
    @given(
        build=st.sampled_from([random_circuit, folding_circuit]),
        seed=st.integers(0, 10**6),
        error=st.sampled_from([1e-1, 1e-4, 1e-8]),
        tokens=st.sampled_from([1, 3]),
    )
    @settings(max_examples=tried(30, 10))
    def test_circuits_with_skips_folds_and_gates_of_gates(self, build, seed, error, tokens) -> None:
        model = compile_or_reachable(build(seed), (-1, 1), error, tokens=tokens)
        assert worst_error(model, np.random.default_rng(seed), points=40, steps=1) <= model.certificate.error

    @pytest.mark.again
    @given(
        seed=st.integers(0, 10**6), kinds=st.lists(st.sampled_from(["active", "free", "dead"]), min_size=1, max_size=5)
    )
    @settings(max_examples=tried(30, 10))
    def test_networks_with_stable_gates(self, seed, kinds) -> None:
        network = shifted_network([3, 7, 6, 5, 2], seed, -1.0, 1.0, kinds)
        for dtype in ("float64", "float32"):
            model = compile_or_reachable(network, (-1, 1), 1e-3, dtype=dtype)
            assert worst_error(model, np.random.default_rng(seed), points=40, steps=1) <= model.certificate.error


class TestNastyNetworks:
    """Scales that a format barely holds, gates that all bend at one place, numbers that no float32 holds."""

    @pytest.mark.parametrize("scale", [1e-300, 1e-150, 1e-30, 1e30, 1e100])
    @pytest.mark.parametrize("dtype", ["float64", "float32"])
    def test_very_small_and_very_large_weights(self, scale, dtype, rng) -> None:
        base = random_network([3, 6, 2])
        (W, b), (V, c) = base.layers
        network = hs.Network([(W * scale, b * scale), (V, c)])
        if dtype == "float32" and scale > 1e38:
            with pytest.raises(hs.TargetError, match="beyond float32"):
                hs.compile(network, (-1, 1), error=1e-3 * scale, dtype=dtype)
            return
        model = compile_or_reachable(network, (-1, 1), 1e-3 * max(scale, 1e-3), dtype=dtype)
        with np.errstate(all="ignore"):
            assert worst_error(model, rng, points=60, steps=1) <= model.certificate.error

    @pytest.mark.parametrize("dtype", ["float64", "float32"])
    def test_layers_of_opposite_scale(self, dtype, rng) -> None:
        base = random_network([3, 6, 6, 2], 4)
        (W, b), (V, c), (U, d) = base.layers
        network = hs.Network([(W * 1e8, b * 1e8), (V * 1e-12, c * 1e-4), (U * 1e4, d)])
        model = compile_or_reachable(network, (-1, 1), 1e-3, dtype=dtype)
        assert worst_error(model, rng) <= model.certificate.error

    def test_all_gates_bend_at_the_corner_of_the_domain(self, rng) -> None:
        network = hs.Network([(np.eye(3) - 0.5, np.full(3, 0.5)), (np.ones((1, 3)), [0.0]), ([[2.0]], [1.0])])
        for domain in ((-1, 1), (0, 1), (-1, 0)):
            model = compile_or_reachable(network, domain, 1e-4)
            assert worst_error(model, rng) <= model.certificate.error

    def test_identical_and_opposite_neurons(self, rng) -> None:
        W = np.repeat(rng.normal(size=(2, 3)), 4, axis=0) * np.tile([1.0, -1.0], 4)[:, None]
        network = hs.Network([(W, np.zeros(8)), (rng.normal(size=(2, 8)), np.zeros(2))])
        model = hs.compile(network, (-1, 1), error=1e-5)
        assert worst_error(model, rng) <= model.certificate.error

    def test_a_far_away_and_narrow_domain(self, rng) -> None:
        network = random_network([2, 5, 1], 8)
        model = compile_or_reachable(network, [(1e6, 1e6 + 1e-3), (-1e6 - 1e-3, -1e6)], 1e-6)
        assert worst_error(model, rng) <= model.certificate.error

    def test_a_weight_beyond_float32_is_refused_with_its_name(self) -> None:
        network = hs.Network([([[1e39]], [0.0]), ([[1.0]], [0.0])])
        with pytest.raises(hs.TargetError, match=r"1e\+39, beyond float32; compile with dtype='float64'"):
            hs.compile(network, (-1, 1), error=1e30, dtype="float32")


class TestUnreachable:
    """The refusal names the part that blocks and the smallest error that can be met, and that error can be met."""

    @pytest.mark.one_in(7)
    @pytest.mark.parametrize("error", [1e-9, 1e-12, 1e-20, 1e-40, 1e-100, 1e-200, 1e-300, 1e-310, 5e-324])
    @pytest.mark.parametrize("dtype", ["float64", "float32"])
    @pytest.mark.parametrize("tokens", [1, 4])
    @pytest.mark.filterwarnings("error")
    def test_the_smallest_error_can_be_met(self, error, dtype, tokens) -> None:
        network = random_network([3, 8, 8, 2], 2)
        compile_or_reachable(network, (-1, 1), error, dtype=dtype, tokens=tokens)

    @pytest.mark.one_in(3)
    @pytest.mark.parametrize("tokens", [1, 4, 64])
    def test_the_smallest_error_does_not_depend_on_what_was_asked(self, tokens) -> None:
        """Asking for far too much must not make the answer worse."""
        network = random_network([3, 8, 8, 2], 2)
        found = []
        for error in (1e-6, 1e-8, 1e-12, 1e-30):
            with pytest.raises(hs.UnreachableError) as refusal:
                hs.compile(network, (-1, 1), error=error, dtype="float32", tokens=tokens)
            found.append(refusal.value.smallest)
        assert max(found) <= 1.2 * min(found)

    def test_rounding_blocks_float32(self) -> None:
        with pytest.raises(hs.UnreachableError, match="the rounding part blocks it") as refusal:
            hs.compile(random_network([3, 8, 8, 2]), (-1, 1), error=1e-9, dtype="float32")
        assert refusal.value.part == "rounding"
        assert 1e-7 < refusal.value.smallest < 1e-3

    def test_float64_gets_further(self) -> None:
        with pytest.raises(hs.UnreachableError) as refusal:
            hs.compile(random_network([3, 8, 8, 2]), (-1, 1), error=1e-20)
        assert 1e-16 < refusal.value.smallest < 1e-11

    @pytest.mark.parametrize(
        ("network", "domain"),
        [
            (random_network([3, 8, 2]), (-1e308, 1e308)),
            (random_network([3, 8, 2]), (-1.7e308, 1.7e308)),
            (random_network([3, 8, 8, 2], weight=1e200), (-1, 1)),
            (random_network([1, 1, 1], weight=1e308), (-1e308, 1e308)),
        ],
    )
    @pytest.mark.filterwarnings("error")
    def test_numbers_beyond_the_format_are_refused_without_warnings(self, network, domain) -> None:
        with pytest.raises(hs.HeadsmithError, match=r"beyond|overflow"):
            hs.compile(network, domain, error=1e-3)


class TestTheBudget:
    """Scales come from sensitivities: the largest weight is what the error needs, and no more."""

    def test_ten_times_the_error_is_a_tenth_of_the_scale(self) -> None:
        network = random_network([3, 8, 8, 2])
        coarse, fine = (hs.compile(network, (-1, 1), error=error).bill.max_score for error in (1e-3, 1e-6))
        assert fine / coarse == pytest.approx(1e3, rel=0.05)

    def test_most_of_the_error_is_spent(self) -> None:
        for error in (1e-1, 1e-5, 1e-9):
            model = hs.compile(random_network([3, 8, 8, 2]), (-1, 1), error=error)
            assert model.certificate.error > 0.99 * error

    def test_formats_of_few_bits_have_the_same_scales(self) -> None:
        """Scales are numbers of the format: a budget that is hardly smaller may lead to the same ones."""
        scores = [hs.compile("relu(x)", (-1, 1), 1e-2, dtype=dtype).bill.max_score for dtype in ("float64", "float32")]
        assert scores[1] == pytest.approx(scores[0], rel=1e-3)

    def test_a_gate_that_matters_little_does_not_raise_the_scale(self) -> None:
        """A second gate with a weight of a millionth: the equal split would double the scale of the first."""
        one = hs.Network([([[1.0]], [0.0]), ([[1.0]], [0.0])])
        two = hs.Network([([[1.0], [1.0]], [0.0, 0.1]), ([[1.0, 1e-6]], [0.0])])
        scores = [hs.compile(network, (-1, 1), error=1e-3).bill.max_score for network in (one, two)]
        assert scores[1] < 1.2 * scores[0]


class TestBadOptions:
    network = random_network([2, 3, 1])

    @pytest.mark.parametrize("error", [0.0, -1e-3, np.nan, np.inf, -np.inf, 0, "small", None, 1j, [1e-3]])
    def test_error(self, error) -> None:
        with pytest.raises(hs.TargetError, match=r"error is .*; it must be a positive finite number"):
            hs.compile(self.network, (-1, 1), error=error)

    @pytest.mark.parametrize("tokens", [0, -1, 1.5, "4", None])
    def test_tokens(self, tokens) -> None:
        with pytest.raises(hs.TargetError, match=r"tokens is .*; it must be a positive integer"):
            hs.compile(self.network, (-1, 1), tokens=tokens)

    @pytest.mark.parametrize("dtype", ["float8", "half", "double", "", None, 64])
    def test_dtype(self, dtype) -> None:
        with pytest.raises(hs.TargetError, match=r"unknown dtype .*; choose one of float64, float32"):
            hs.compile(self.network, (-1, 1), dtype=dtype)

    @pytest.mark.parametrize("recipe", ["", "magic", None, "RELU"])
    def test_recipe(self, recipe) -> None:
        with pytest.raises(hs.TargetError, match=r"unknown recipe .*; choose one of auto, native, relu, ramp, maxout"):
            hs.compile(self.network, (-1, 1), recipe=recipe)

    @pytest.mark.parametrize("target", [3, None, [1, 2], object()])
    def test_target(self, target) -> None:
        with pytest.raises(hs.TargetError):
            hs.compile(target, (-1, 1))

    @pytest.mark.parametrize(
        ("domain", "message"),
        [
            (None, "no domain was given"),
            ((1, -1), "reversed"),
            ((0, np.inf), "finite"),
            ((np.nan, 1), "finite"),
            ([(0, 1)], "1 intervals and the target 2 inputs"),
            ([(0, 1)] * 3, "3 intervals and the target 2 inputs"),
            ({"x0": (0, 1)}, "no interval for x1"),
            ({"x0": (0, 1), "x1": (0, 1), "y": (0, 1)}, "an interval for y"),
        ],
    )
    def test_domain(self, domain, message) -> None:
        with pytest.raises(hs.DomainError, match=message):
            hs.compile(self.network, domain)


def test_importing_loads_nothing_heavy() -> None:
    """numpy, safetensors and Arb; neither torch nor matplotlib nor scikit-learn."""
    heavy = ("torch", "onnx", "matplotlib", "sklearn", "pandas", "scipy")
    code = f"import sys, headsmith; print([name for name in {heavy} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
