"""Lower bounds: the known figures, certificates that the kernel checks, and false ones that it refuses."""

import itertools
import json
import math

import mpmath
import numpy as np
import pytest

import headsmith as hs
from headsmith.kernel.core.errors import Refused
from headsmith.kernel.rules.lower_bound import check_bound
from headsmith.lab.enough.bounds import below
from headsmith.lab.enough.evolve import Landscape, evolved, fitted

PI = math.pi
SMOOTH = {"1/x": (0.1, 1), "sqrt(x)": (0.1, 1), "log(x)": (0.1, 1), "sin(x)": (-PI, PI)}


@pytest.mark.parametrize(
    ("formula", "domain", "known"),
    [
        ("1/x", (0.1, 1), (11 - 2 * math.sqrt(10)) / 2),
        ("exp(x)", (-1, 1), 0.278801),
        ("sqrt(x)", (0.1, 1), 0.0444019),
        ("log(x)", (0.1, 1), 0.309517),
        ("x**2", (-1, 1), 0.5),
    ],
)
def test_one_token_is_a_line(formula, domain, known):
    bound = hs.lower_bound(formula, domain, reference_tokens=1)
    assert bound.kind == "theorem"
    assert 0.99999 * known <= bound.value <= 1.00001 * known


@pytest.mark.parametrize(("formula", "best"), [("1/x", 0.33882), ("sqrt(x)", 0.0080961), ("log(x)", 0.056741)])
def test_two_tokens_are_closed(formula, best, tmp_path):
    """No slope is excluded, and the best heads that are known are within a thousandth."""
    bound = hs.lower_bound(formula, SMOOTH[formula], reference_tokens=2, affine=False)
    assert 0.999 * best <= bound.value <= best
    bound.save(tmp_path / "bound.safetensors")
    proved = hs.verify(tmp_path / "bound.safetensors")
    assert (proved.value, proved.tokens, proved.affine) == (bound.value, 2, False)


def test_an_oscillation_needs_a_token_a_turn():
    assert hs.lower_bound("sin(8*x)", (-PI, PI), reference_tokens=7).value == pytest.approx(1.0, rel=1e-4)
    with pytest.raises(hs.TargetError, match="no lower bound is known"):
        hs.lower_bound("sin(8*x)", (-PI, PI), reference_tokens=30)


def test_products_and_what_has_no_bound():
    assert hs.lower_bound("x*y", (-1, 1), reference_tokens=1).value == 1.0
    assert hs.lower_bound("x*y", {"x": (0, 4), "y": (-1, 1)}, reference_tokens=2).value == 1.0
    for formula, tokens in (("exp(2*x) - 1", 2), ("x**2 + x", 3)):
        bound = hs.lower_bound(formula, (-1, 1), reference_tokens=tokens, affine=False)
        assert (bound.value, bound.kind) == (0.0, "theorem")
        with pytest.raises(hs.TargetError, match="nothing to check"):
            bound.save("nowhere")


def test_a_cover_of_inclines(tmp_path):
    """1/x by two tokens and a line: the best head known has the error 0.13471, within 3 %."""
    bound = hs.lower_bound("1/x", (0.1, 1), reference_tokens=2, max_weight=5)
    assert bound.kind == "certified"
    assert 0.97 * 0.1347 <= bound.value <= 0.13471
    bound.save(tmp_path / "cover.safetensors")
    assert hs.verify(tmp_path / "cover.safetensors").incline == 5
    header = json.loads(json.dumps(dict(bound.header)))
    tensors = {name: np.array(each) for name, each in bound.tensors.items()}
    check_bound(header, tensors)
    # One cell less does not cover; a wider claim is not covered.
    with pytest.raises(Refused, match="cover"):
        check_bound(header, {**tensors, "bound.edges": tensors["bound.edges"][:-1]})
    header["lower_bound"]["incline"] = 6.0
    with pytest.raises(Refused, match="cover"):
        check_bound(header, tensors)


def test_false_bounds_are_refused_and_refuted():
    """A claim just above what is true fails; a model that was compiled lies below it."""
    bound = hs.lower_bound("1/x", (0.1, 1), reference_tokens=2, affine=False)
    header, tensors = json.loads(json.dumps(dict(bound.header))), dict(bound.tensors)
    header["lower_bound"]["value"] = 1.001 * bound.value
    with pytest.raises(Refused, match="proves less"):
        check_bound(header, tensors)
    header["lower_bound"]["value"] = 0.2
    header["lower_bound"]["affine"] = True
    with pytest.raises(Refused, match="reference, a line"):
        check_bound(header, tensors)
    header["lower_bound"] |= {"affine": False, "tokens": 3}
    model = hs.compile("1/x", (0.1, 1), 0.04)
    assert model.bill.reference_tokens == 3
    assert model.certificate.error < header["lower_bound"]["value"]
    with pytest.raises(Refused, match="too few points"):
        check_bound(header, tensors)


def test_points_must_alternate_by_the_right_sign():
    """An exponential of the other sign, and points that do not alternate or lie outside, prove nothing."""
    bound = hs.lower_bound("log(x)", (0.1, 1), reference_tokens=2, affine=False)
    header = json.loads(json.dumps(dict(bound.header)))
    for name, change in (
        ("bound.points", lambda each: each[:, ::-1]),
        ("bound.points", lambda each: each + 0.05),
        ("bound.points", lambda each: np.sort(np.full_like(each, 0.5) + 1e-3 * np.arange(each.shape[1]))),
        ("bound.values", lambda each: -each),
        ("bound.slopes", lambda each: -each),
        ("bound.lines", lambda each: each + 1.0),
        ("bound.kinds", lambda each: 0 * each),
        ("bound.kinds", lambda each: 0 * each + 3),
    ):
        with pytest.raises(Refused):
            check_bound(header, {**bound.tensors, name: change(np.array(bound.tensors[name]))})


def test_the_differences_are_those_of_another_arithmetic():
    """mpmath finds the differences at the points as large, in the order that the theorem wants."""
    bound = hs.lower_bound("1/x", (0.1, 1), reference_tokens=2, affine=False)
    slope, offset, value = (
        mpmath.mpf(float(bound.tensors[f"bound.{n}"][0, 0])) for n in ("slopes", "offsets", "values")
    )
    constant = mpmath.mpf(float(bound.tensors["bound.lines"][0, 1]))
    left = [
        1 / mpmath.mpf(float(s)) - constant - value * mpmath.exp(slope * s + offset)
        for s in bound.tensors["bound.points"][0]
    ]
    assert all(a * b < 0 for a, b in itertools.pairwise(left))
    assert min(map(abs, left)) >= bound.value
    assert left[0] * value > 0


@pytest.mark.parametrize("formula", ["1/x", "log(x)"])
@pytest.mark.parametrize("affine", [False, True])
def test_no_search_finds_a_head_below_its_bound(formula, affine):
    function = {"1/x": lambda x: 1 / x, "log(x)": np.log}[formula]
    at = np.cos(np.linspace(0, PI, 201))[:, None]
    targets = function(0.55 + 0.45 * at[:, 0])
    for tokens in (1, 2):
        if affine and tokens == 2:
            continue
        bound = hs.lower_bound(formula, (0.1, 1), reference_tokens=tokens, affine=affine)
        keys = evolved(Landscape(at, targets, affine, np.inf, np.inf), tokens, 5)[:5]
        solutions, columns, _ = fitted(Landscape(at, targets, affine, np.inf, np.inf), keys, 1e-12)
        assert np.min(np.max(np.abs((columns @ solutions[..., None])[..., 0] - targets), axis=1)) >= 0.999 * bound.value


def test_lower_bounds_are_rounded_down():
    assert below(0.33881999) == "0.3388"
    assert below(0.5) == "0.5"
    assert below(0.0) == "0"
