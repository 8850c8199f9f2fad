"""The universal construction: gather, look up. The bound holds wherever one looks, and is attained."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers.effort import CAMPAIGN

from headsmith.core.arrays import Array
from headsmith.core.errors import DomainError, TargetError, UnreachableError
from headsmith.kernel.rules.sampled import moment
from headsmith.lab.claims.recipe import exponent
from headsmith.lab.claims.universal import TARGETS, SequenceTarget, largest_error
from headsmith.plan.analysis.smoothness import Lipschitz, as_smoothness
from headsmith.run.textbook import attended, shares
from headsmith.sequence.gaussian_grid import NARROWEST, WIDEST, fewest_cells, kernel_bound
from headsmith.sequence.universal import Universal, universal
from headsmith.sequence.universal_fit import fitted
from headsmith.sequence.universal_inputs import sample
from headsmith.sequence.universal_model import Architecture, points_of
from headsmith.transformer.heads.ramp import WIDTH

ONE: Architecture = "one layer and a softmax"
TWO: Architecture = "two layers"


def wave(x: Array) -> Array:
    return np.sin(x + x.mean())


def make(target: SequenceTarget, grid: Any, **options: Any) -> Universal:
    sizes = (target.tokens, target.features, target.outputs)
    options = {"lipschitz": target.lipschitz, "norm": target.norm, **options}
    return universal(target.function, *sizes, (-1.0, 1.0), grid=grid, **options)


# The constants of the kernel ----------------------------------------------------------------------------------------


@pytest.mark.one_in(13)
@pytest.mark.parametrize("nodes", [1, 2, 3, 7, 24, 60])
@pytest.mark.parametrize("width", [1.0, WIDTH, 10.0, 300.0])
@pytest.mark.parametrize(("floor", "power"), [(0.0, 1), (0.0, 2), (0.5, 1)])
def test_moments_are_bounds_and_attained(nodes: int, width: float, floor: float, power: int) -> None:
    t = np.linspace(-nodes / 2.0, nodes / 2.0, 40 * nodes * 10 + 1)
    distance = np.abs(t[:, None] - (np.arange(nodes) - (nodes - 1) / 2.0))
    weights = np.exp(-width * (distance**2 - distance.min(axis=1, keepdims=True) ** 2))
    phi = np.maximum(distance - floor, 0.0) ** power
    seen = float(((weights * phi).sum(axis=1) / weights.sum(axis=1)).max())
    assert seen <= moment(nodes, width, floor, power) <= seen * 1.001 + 2e-5


def test_no_width_beats_hardmax_and_the_default_is_within_a_hundredth() -> None:
    constants = [moment(7, width, 0.0, 1) for width in (1.0, 2.0, WIDTH, 4.0, 10.0, 100.0)]
    assert constants == sorted(constants, reverse=True)
    assert constants[-1] >= 0.5
    assert moment(7, WIDTH, 0.0, 1) <= 0.505


# The bound ----------------------------------------------------------------------------------------------------------


@pytest.mark.one_in(11)
@pytest.mark.parametrize("architecture", [TWO, ONE])
@pytest.mark.parametrize("width", [1.0, WIDTH, 50.0])
@pytest.mark.parametrize("target", TARGETS, ids=[target.name for target in TARGETS])
def test_the_bound_is_never_violated(target: SequenceTarget, width: float, architecture: Architecture) -> None:
    for grid in (1, 3, 4):
        made = make(target, grid, width=width, architecture=architecture)
        assert largest_error(made, target, effort=200, seed=grid)[0] <= made.error


@pytest.mark.parametrize("architecture", [TWO, ONE])
def test_the_bound_is_attained(architecture: Architecture) -> None:
    target = next(target for target in TARGETS if target.name == "sum of |x_j|")
    made = make(target, 6, architecture=architecture)
    assert 0.9999 * made.error <= largest_error(made, target)[0] <= made.error


@pytest.mark.again
def test_a_dense_search() -> None:
    error = 0.3 if CAMPAIGN else 0.6
    made = universal(wave, 2, domain=(-1.0, 1.0), error=error, lipschitz=[[1.5], [1.5]])
    points = points_of([np.linspace(-1.0, 1.0, 61)] * 2)
    assert np.abs(made(points.reshape(-1, 2, 1)) - sample(wave, points, 2, 1)).max() <= made.error <= error


DOMAINS: list[Any] = [
    (1e6, 1e6 + 1.0),
    (-3e-9, 5e-9),
    [(0.25, 0.25)],
    [[(-1.0, 1.0)], [(0.5, 0.5)]],
    [[(0, 9)], [(-1, 0)]],
]


@pytest.mark.parametrize("architecture", [TWO, ONE])
@pytest.mark.parametrize("domain", DOMAINS, ids=str)
def test_odd_domains(domain: Any, architecture: Architecture, rng: np.random.Generator) -> None:
    made = universal(
        wave, 2, domain=domain, grid=9, lipschitz=[[1.5], [1.5]], evaluation=1e-9, architecture=architecture
    )
    points = rng.uniform(made.box.low, made.box.high, (300, 2))
    points[:4] = points_of([np.array(pair) for pair in zip(made.box.low, made.box.high, strict=True)])
    assert np.abs(made(points.reshape(-1, 2, 1)) - sample(wave, points, 2, 1)).max() <= made.error


def test_unequal_slopes_get_unequal_grids() -> None:
    def skewed(x: Array) -> Array:
        return np.full((2, 1), 8.0 * x[0, 0] + x[1, 0])

    made = universal(skewed, 2, domain=(0.0, 1.0), error=0.5, lipschitz=[[8.0], [1.0]])
    assert made.counts[0] > 4 * made.counts[1]
    assert made.error <= 0.5
    ignoring = universal(skewed, 2, domain=[[(0.0, 1.0)], [(0.5, 0.5)]], error=0.5, lipschitz=[[8.0], [0.0]])
    assert ignoring.counts[1] == 1


def test_the_error_says_what_it_is_made_of() -> None:
    made = make(TARGETS[0], 8)
    assert set(made.parts) == {"approximation", "evaluation", "leak", "rounding"}
    assert sum(made.parts.values()) <= made.error
    assert "64 sampled answers" in made.proven
    assert "L = [1.5, 1.5]" in made.assumed


# The model ----------------------------------------------------------------------------------------------------------


@pytest.mark.one_in(2)
@pytest.mark.parametrize("target", TARGETS, ids=[target.name for target in TARGETS])
def test_one_layer_and_a_softmax_is_the_same_function(target: SequenceTarget, rng: np.random.Generator) -> None:
    two, one = (make(target, 5, architecture=architecture) for architecture in (TWO, ONE))
    points = rng.uniform(-1.0, 1.0, (100, target.tokens, target.features))
    np.testing.assert_allclose(one(points), two(points), rtol=0.0, atol=1e-13)
    assert (two.bill.layers, two.bill.heads_per_layer) == (2, (target.tokens, 1))
    assert two.bill.reference_tokens == target.tokens * 5 ** (target.tokens * target.features)
    assert (one.bill.layers, one.bill.heads, one.bill.reference_tokens) == (1, target.tokens, 0)


@pytest.mark.parametrize("architecture", [TWO, ONE])
def test_the_matrices_of_a_textbook_compute_the_same(architecture: Architecture, rng: np.random.Generator) -> None:
    """Written out, with what reference tokens collect, and nothing shared or left out."""
    made = make(TARGETS[0], 4, architecture=architecture)
    matrices = made.dense()
    for point in rng.uniform(-1.0, 1.0, (10, 2, 1)):
        stream = np.vstack([matrices.references, point @ matrices.W_E + matrices.b_E + matrices.W_pos])
        for layer in matrices.layers:
            stream = attended(made.transformer, layer, stream, False)[1]
        data = stream[len(matrices.references) :]
        output = data @ matrices.W_U + matrices.b_U
        if matrices.last is not None:
            W, b, V = matrices.last
            output = shares(data @ W + b) @ V + matrices.b_U
        np.testing.assert_allclose(output, made(point), atol=1e-13)
    assert matrices.d_model == made.bill.d_model


@pytest.mark.parametrize("architecture", [TWO, ONE])
@pytest.mark.parametrize(("width", "grid"), [(1.0, 3), (WIDTH, 15), (900.0, 8)])
def test_the_run_is_the_kernel_mean(
    width: float, grid: int, architecture: Architecture, rng: np.random.Generator
) -> None:
    """Against the mean in extended precision: within leak and rounding, as is proven whatever the callable is."""
    made = make(TARGETS[0], grid, width=width, architecture=architecture)
    points = rng.uniform(-1.0, 1.0, (50, 2))
    axes = made.axes
    scale, middle, nodes = (each.astype(np.longdouble) for each in (axes.scale, axes.middle, points_of(axes.nodes)))
    scores = -np.longdouble(width) * (((points - middle) * scale)[:, None] - nodes) ** 2
    powers = np.exp(scores.sum(axis=-1) - scores.sum(axis=-1).max(axis=1, keepdims=True))
    mean = powers @ made.answers[:, :, 0].astype(np.longdouble) / powers.sum(axis=1, keepdims=True)
    apart = float(np.abs(made(points.reshape(-1, 2, 1))[..., 0] - mean).max())
    assert apart <= made.parts["leak"] + made.parts["rounding"] <= 2e-9


def test_the_score_is_bounded(rng: np.random.Generator) -> None:
    made = make(TARGETS[0], 7)
    for point in rng.uniform(-1.0, 1.0, (50, 2, 1)):
        cache = made.run(point, cache=True)[1]
        scores = [values for name, values in cache.items() if name.endswith("/ scores")]
        assert len(scores) == made.bill.heads
        assert max(np.abs(each).max() for each in scores) <= made.bill.max_score


def test_a_permuted_input(rng: np.random.Generator) -> None:
    """Equivariant targets give equivariant models, and sorting does not see the order."""
    points = rng.uniform(-1.0, 1.0, (100, 2, 1))
    swapped = points[:, ::-1]
    equivariant, sorting = make(TARGETS[0], 6), make(next(t for t in TARGETS if t.name == "sorted pair"), 6)
    np.testing.assert_allclose(equivariant(swapped), equivariant(points)[:, ::-1], atol=1e-13)
    np.testing.assert_allclose(sorting(swapped), sorting(points), atol=1e-13)
    assert (np.abs(points[:, 0] - points[:, 1]) > 0.5).any()


def test_shapes_of_batches() -> None:
    made = make(TARGETS[0], 3)
    assert made(np.zeros((2, 1))).shape == (2, 1)
    assert made(np.zeros((4, 3, 2, 1))).shape == (4, 3, 2, 1)
    assert made(np.zeros((0, 2, 1))).shape == (0, 2, 1)


def test_the_rate_is_one_over_p() -> None:
    target = next(target for target in TARGETS if target.name == "sum of |x_j|")
    cells = [4, 8, 16]
    models = [make(target, p) for p in cells]
    assert exponent(cells, [made.error for made in models]) == pytest.approx(-1.0, abs=0.01)
    found = [largest_error(made, target, effort=50)[0] for made in models]
    assert exponent(cells, found) == pytest.approx(-1.0, abs=0.02)


def test_fitted_answers_do_far_better_where_the_target_is_smooth() -> None:
    fits = [fitted(wave, 2, domain=(-1.0, 1.0), grid=p) for p in (4, 8, 12)]
    assert fits[0].estimate > 100.0 * fits[1].estimate > 1e4 * fits[2].estimate / 100.0
    assert fits[2].estimate < 1e-7
    assert largest_error(fits[2], TARGETS[0], effort=200)[0] < 1e-6
    with pytest.raises(TargetError, match="two nodes or more"):
        fitted(wave, 2, domain=(-1.0, 1.0), grid=1)


@pytest.mark.one_in(7)
@pytest.mark.parametrize("size", [1e-300, 1e-200, 1.0, 1e200, 1e300])
@pytest.mark.parametrize("norm", [1, 2, np.inf])
def test_bounds_grow_with_the_domain(size: float, norm: float) -> None:
    """All bounds are homogeneous: no square vanishes or overflows on the way."""
    stated = as_smoothness(0.5, None, norm, 2)
    assert isinstance(stated, Lipschitz)
    steps, widths = np.array([3.0, 4.0]), np.array([1.0, 2.0])
    for bound in (stated.distance, stated.bound, lambda each: kernel_bound(stated, each, (4, 5), WIDTH)):
        assert float(bound(size * steps)) == pytest.approx(size * float(bound(steps)), rel=1e-6)
    counts = fewest_cells(stated, size * widths, size / 10.0, WIDTH, 10_000)
    assert counts == fewest_cells(stated, widths, 0.1, WIDTH, 10_000)


# What is refused ----------------------------------------------------------------------------------------------------


def test_inputs_that_are_refused() -> None:
    made = make(TARGETS[0], 3)
    with pytest.raises(
        DomainError, match=r"token 1, feature 0 of the input is 1\.5, outside its domain \[-1\.0, 1\.0\]"
    ):
        made([[0.0], [1.5]])
    with pytest.raises(DomainError, match="token 0, feature 0 of the input is nan"):
        made([[np.nan], [0.0]])
    with pytest.raises(DomainError, match=r"shape \(3, 1\); the model takes \(\.\.\., 2, 1\)"):
        made(np.zeros((3, 1)))


def steep_end(x: Array) -> Array:
    return np.where(x > 0.95, 10.0, 0.0)


Refusal = tuple[Callable[[Array], Any], dict[str, Any], type[Exception], str]
REFUSED: dict[str, Refusal] = {
    "false bound": (wave, {"lipschitz": 1.0}, TargetError, "the stated Lipschitz bound is false: f"),
    "false at the ends": (steep_end, {"grid": 4, "lipschitz": 1.0}, TargetError, "Lipschitz bound is false"),
    "no bound": (wave, {"lipschitz": None}, TargetError, "exactly one of lipschitz"),
    "bound's shape": (wave, {"lipschitz": [[1.0, 1.0]]}, TargetError, r"needs one number, or \(2, 1\)"),
    "no domain": (wave, {"domain": None}, DomainError, "no domain was given"),
    "domain's shape": (wave, {"domain": [(0, 1)] * 3}, DomainError, "neither a pair"),
    "no number": (wave, {"domain": "wide"}, DomainError, "neither a pair"),
    "reversed": (wave, {"domain": (1.0, -1.0)}, DomainError, "reversed"),
    "infinite": (wave, {"domain": (0.0, np.inf)}, DomainError, "finite"),
    "too thin": (wave, {"domain": (1.0, 1.0 + 1e-15)}, DomainError, "too thin"),
    "subnormal": (wave, {"domain": (-1e-310, 1e-310)}, DomainError, "too thin or too wide"),
    "beyond doubles": (wave, {"domain": (-1.7e308, 1.7e308)}, DomainError, "too wide"),
    "below doubles": (
        wave,
        {"domain": (-1e-307, 1e-307), "grid": None, "error": 1e-308},
        DomainError,
        "too thin",
    ),
    "overflow": (lambda x: 1.7e308 * x, {"lipschitz": 1.7e308}, UnreachableError, "not known to be bounded"),
    "too far away": (wave, {"domain": (1e12, 1e12 + 1e-3)}, DomainError, "too thin"),
    "grid and error": (wave, {"error": 0.1}, TargetError, "either the error or the number"),
    "neither": (wave, {"grid": None}, TargetError, "either the error or the number"),
    "no cells": (wave, {"grid": 0}, TargetError, "positive integer"),
    "half cells": (wave, {"grid": 2.5}, TargetError, "positive integer"),
    "too many cells": (wave, {"grid": 1000}, TargetError, "1000000 nodes, and at most 100000"),
    "bad error": (wave, {"grid": None, "error": -1.0}, TargetError, "positive finite"),
    "small error": (wave, {"grid": None, "error": 1e-4}, UnreachableError, "nodes is needed, and at most 100000"),
    "evaluation": (wave, {"evaluation": -1.0}, TargetError, "evaluation is -1.0"),
    "architecture": (wave, {"architecture": "three layers"}, TargetError, "choose one of two layers"),
    "narrow": (wave, {"width": 2.0 * NARROWEST}, TargetError, "width is"),
    "wide": (wave, {"width": WIDEST / 2.0}, TargetError, "width is"),
    "dimensions": (wave, {"tokens": 11, "lipschitz": 1.0}, TargetError, "so many dimensions"),
    "tokens": (wave, {"tokens": 0}, TargetError, "at least 1"),
    "outputs": (wave, {"outputs": 2}, TargetError, r"returned an array \(2, 1\); it needs \(2, 2\)"),
    "words": (lambda x: "many", {}, TargetError, "real numbers is needed"),
    "complex numbers": (lambda x: x + 1j, {}, TargetError, "real numbers is needed"),
    "a mask": (lambda x: np.ma.masked_greater(x, 0.0), {}, TargetError, "real numbers is needed"),
    "ragged bounds": (wave, {"lipschitz": [[1.0], [1.0, 2.0]]}, TargetError, "lipschitz is"),
    "infinities": (lambda x: x / 0.0 * np.inf, {}, TargetError, "not finite"),
}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", REFUSED)
def test_targets_that_are_refused(name: str) -> None:
    function, options, kind, message = REFUSED[name]
    with pytest.raises(kind, match=message):
        universal(function, **{"tokens": 2, "domain": (-1.0, 1.0), "grid": 4, "lipschitz": [[1.5], [1.5]], **options})


def test_an_error_below_the_evaluation_is_refused_with_what_blocks() -> None:
    options: dict[str, Any] = {"domain": (-1.0, 1.0), "lipschitz": [[1.5], [1.5]], "evaluation": 0.2}
    with pytest.raises(UnreachableError, match="which is all of the error") as refused:
        universal(wave, 2, error=0.1, **options)
    assert refused.value.part == "evaluation"
    made = universal(wave, 2, error=0.8, **options)
    assert 0.2 < made.error <= 0.8


def test_an_error_that_rounding_takes_is_refused_with_one_that_can_be_met() -> None:
    def level(x: Array) -> Array:
        return 1e6 + 1e-9 * x

    options: dict[str, Any] = {"domain": (-1.0, 1.0), "lipschitz": [[1e-9]], "evaluation": 1e-9}
    with pytest.raises(UnreachableError, match="rounding takes") as refused:
        universal(level, 1, error=1.5e-9, **options)
    assert refused.value.part == "rounding"
    assert universal(level, 1, error=refused.value.smallest, **options).error <= refused.value.smallest


def test_matrices_of_two_outputs_before_a_softmax_are_written_out() -> None:
    """The stream of such a model has no columns for its outputs: W, b and V at its end make them."""
    written = make(TARGETS[-1], 2, architecture=ONE).dense()
    assert not written.W_U.any()
    assert written.last is not None
    assert written.last[2].shape[1] == 2
