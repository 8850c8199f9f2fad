"""The most accurate model within limits: limits hold, errors are proven, and other searches find little better."""

import numpy as np
import pytest

import headsmith as hs
from headsmith.lab.enough.evolve import Landscape, evolved, fitted
from headsmith.lab.enough.linear import smallest


def test_linear_programs_are_solved():
    """A program whose answer is known: the largest disc in a polygon, here the unit square cut by a corner."""
    rows = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0], [1.0, 1.0]])
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    limits = np.array([1.0, 1.0, 0.0, 0.0, 1.0])
    found = smallest(np.array([0.0, 0.0, -1.0]), np.hstack([rows, lengths]), limits)
    radius = 1.0 / (2.0 + np.sqrt(2.0))
    assert found.solved
    np.testing.assert_allclose(found.values, [radius, radius, radius], atol=1e-8)
    # The multipliers prove it: they are not negative, and add the rows up to the objective.
    assert np.min(found.multipliers) > -1e-12
    np.testing.assert_allclose(found.multipliers @ np.hstack([rows, lengths]), [0.0, 0.0, 1.0], atol=1e-8)


def test_one_table_head_within_its_limits():
    """1/x by two tokens: the least error known is 0.13471; weights are shared out among matrices."""
    model = hs.best("1/x", {"x": (0.1, 1)}, heads=1, reference_tokens=2, max_weight=60, progress=False)
    assert (model.bill.heads, model.bill.reference_tokens) == (1, 2)
    assert model.bill.max_weight <= 60
    assert model.bill.max_value > 10 * model.bill.max_weight
    assert 0.1347 <= model.certificate.error <= 1.02 * 0.13471
    x = np.linspace(0.1, 1, 2001)
    assert np.max(np.abs(model(x=x) - 1 / x)) <= model.certificate.error
    assert hs.falsify(model).error <= model.certificate.error


def test_a_saved_best_model_verifies(tmp_path):
    model = hs.best("log(x)", {"x": (0.1, 1)}, reference_tokens=2, progress=False)
    model.save(tmp_path / "log.safetensors")
    assert hs.verify(tmp_path / "log.safetensors").error == model.certificate.error


def test_products_by_gates_keep_weights_small():
    """With weights below 10, more tokens make a product more accurate."""
    errors = [
        hs.best("x*y", (-1, 1), heads=1, reference_tokens=tokens, max_weight=10, progress=False).certificate.error
        for tokens in (2, 3)
    ]
    assert errors[0] <= 1e-4
    assert errors[1] <= errors[0] / 100


def test_relu_circuits_are_as_the_closed_form_says():
    """x*y in one layer: h gates a square make N = h + 1 pieces each, and the error is 1/N^2."""
    for heads in (6, 20):
        model = hs.best("x*y", (-1, 1), heads=heads, layers=1, recipe="relu", progress=False)
        closed = 1.0 / (heads // 2 + 1) ** 2
        assert model.bill.heads <= heads
        assert closed <= model.certificate.error <= 1.03 * closed / 0.998


def test_limits_are_asked_for():
    with pytest.raises(hs.TargetError, match="nothing is limited"):
        hs.best("1/x", {"x": (0.1, 1)})
    with pytest.raises(hs.TargetError, match=r"heads is 1\.5"):
        hs.best("1/x", {"x": (0.1, 1)}, heads=1.5)
    with pytest.raises(hs.UnreachableError, match="within the limits"):
        hs.best("x*y", (-1, 1), heads=1, reference_tokens=1, max_weight=2, progress=False)


def test_the_limit_that_binds():
    """With one token a head is a line: a second token is worth more than a second head."""
    model = hs.best("exp(x)", (-1, 1), heads=1, reference_tokens=1, recipe="native", progress=False)
    assert model.certificate.error == pytest.approx(0.278801, rel=0.01)
    assert model.binds == "reference_tokens"
    assert model.limits["reference_tokens"] > 5


@pytest.mark.campaign
def test_a_sum_of_squares_with_small_weights():
    model = hs.best("x**2 + y**2", (-1, 1), heads=1, reference_tokens=7, max_weight=100, progress=False)
    assert model.certificate.error <= 1e-4
    assert model.bill.max_weight < 100
    assert model.bill.heads == 1


@pytest.mark.campaign
@pytest.mark.parametrize("tokens", [2, 3, 4])
@pytest.mark.parametrize("formula", ["1/x", "sqrt(x)", "log(x)"])
def test_other_searches_find_nothing_much_better(formula, tokens):
    """Evolution of keys from other seeds, for ten times as long: no head is better by more than 5 % (pure) or 30 %."""
    function = {"1/x": lambda x: 1 / x, "sqrt(x)": np.sqrt, "log(x)": np.log}[formula]
    model = hs.best(formula, {"x": (0.1, 1)}, heads=1, reference_tokens=tokens, progress=False)
    at = np.cos(np.linspace(0, np.pi, 301))[:, None]
    targets = function(0.55 + 0.45 * at[:, 0])
    for affine, share in ((True, 1.3), (False, 1.0)):
        landscape = Landscape(at, targets, affine, np.inf, np.inf)
        for seed in range(100, 106):
            keys = evolved(landscape, tokens, seed)[:3]
            solutions, columns, _ = fitted(landscape, keys, 1e-9 * float(np.ptp(targets)))
            errors = np.max(np.abs((columns @ solutions[..., None])[..., 0] - targets), axis=1)
            assert model.certificate.error <= share * np.min(errors)
