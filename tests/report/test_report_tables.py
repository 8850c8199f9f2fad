"""Tables say what the figures are, and never print a bound below what was proven."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some
from rich.console import Console

import headsmith as hs
from headsmith.core.certificate import statement
from headsmith.core.figures import bound, number, per_layer
from headsmith.report.certificate import certificate_table
from headsmith.report.data import as_data
from headsmith.report.falsify import falsify
from headsmith.report.tables import bill_table, found_table


def printed(item: object, width: int = 100) -> str:
    console = Console(width=width, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(item)
    return re.sub(r"\s+", " ", console.export_text())


@pytest.fixture(scope="module")
def model() -> hs.Compiled:
    random = np.random.default_rng(0)
    layers = [(random.normal(size=(9, 2)), random.normal(size=9)), (random.normal(size=(3, 9)), np.zeros(3))]
    return hs.compile(hs.Network(layers), (-1.0, 1.0), 1e-3)


@given(some.floats(min_value=1e-299, max_value=1e300))
def test_a_printed_bound_is_a_bound(value: float) -> None:
    assert value <= float(bound(value)) <= value * 1.0011


def test_figures_for_reading() -> None:
    assert number(1234567) == "1,234,567"
    assert number(0.000123456) == "0.0001235"
    assert number(0.0) == "0"
    assert number(1e-307) == "< 1e-300"
    assert bound(1e-307) == "< 1e-300"
    assert bound(0.0) == "0"
    assert bound(0.00099999) == "0.001"
    assert bound(1.23401e-7) == "1.235e-07"
    assert per_layer((4, 4)) == "4 in each layer"
    assert per_layer((4, 5)) == "by layer: 4, 5"
    assert per_layer(()) == "none: an affine map is enough"


def test_the_certificate(model: hs.Compiled) -> None:
    text = printed(certificate_table(model.certificate))
    for word in ("error", "approximation", "softmax", "leak", "rounding", "3 outputs", "|model - target| <= 0.001"):
        assert word in text
    assert "float64" in statement(model.certificate)


def test_several_tokens_are_part_of_the_statement() -> None:
    network = hs.Network([([[1.0]], [0.0]), ([[1.0]], [0.0])])
    certificate = hs.compile(network, (-1.0, 1.0), 1e-3, tokens=1500).certificate
    assert "1,500 data tokens" in statement(certificate)


def test_the_bill(model: hs.Compiled) -> None:
    text = printed(bill_table(model.bill))
    names = (
        "layers",
        "heads",
        "reference tokens",
        "d_model",
        "d_head",
        "parameters",
        "nonzeros",
        "max_weight",
        "max_score",
    )
    for word in names:
        assert word in text


def test_found_beside_certified(model: hs.Compiled) -> None:
    text = printed(found_table(falsify(model, effort=100), model.certificate))
    assert "an estimate" in text
    assert "a bound" in text


def test_plain_data(model: hs.Compiled) -> None:
    data = as_data(
        {"certificate": model.certificate, "array": np.arange(3), "endless": float("inf"), "one": np.int64(1)}
    )
    assert data["certificate"]["parts"]["softmax"] == model.certificate.parts["softmax"]
    assert data["array"] == [0, 1, 2]
    assert data["endless"] is None
    assert data["one"] == 1
