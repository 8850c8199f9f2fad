"""Registers in larger units: a model returns the same numbers, and its largest weight is smaller."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from helpers.models.networks import random_network

import headsmith as hs
from headsmith.lower.scales import in_other_units, with_units
from headsmith.model import Compiled
from headsmith.prove.prove import proved_again
from headsmith.transformer.bill import bill
from headsmith.transformer.ir import Transformer


def proven(model: Compiled, transformer: Transformer) -> hs.Certificate:
    """What the kernel proves of another transformer by the proof of a model."""
    return proved_again(model.graph, model.box, transformer, model.proof)


def largest(transformer: Transformer) -> float:
    return bill(transformer, 0.0).max_weight


@pytest.fixture(scope="module")
def product() -> Compiled:
    return hs.compile("x*y", (-1, 1), 1e-6)


def test_a_product_at_1e_6_has_no_weight_above_32(product: Compiled) -> None:
    assert product.bill.max_weight == largest(product.transformer) == 32.0
    dense = product.dense()
    assert max(np.abs(each).max() for each in (dense.W_E, dense.W_U, dense.layers[0].W_O)) == 32.0


def test_units_change_neither_outputs_nor_what_is_proven(product: Compiled) -> None:
    """In its own units y is multiplied by 512 in the end; the products, and so their roundings, are the same."""
    points = np.random.default_rng(0).uniform(-1, 1, (1000, 2))
    for power in (2.0**-4, 2.0**-10, 2.0**7):
        other = with_units(product.transformer, {"z1.2": np.array([power])})
        assert np.array_equal(replace(product, transformer=other)(points), product(points))
        assert proven(product, other).error == pytest.approx(product.certificate.error, rel=1e-12)
    plain = with_units(product.transformer, {"z1.2": np.array([2.0**-4])})
    assert largest(plain) == 512.0
    again = in_other_units(plain)
    assert again is not None
    assert largest(again) == 32.0


def test_units_that_are_no_powers_of_two_round(product: Compiled) -> None:
    """So the test before can fail."""
    points = np.random.default_rng(0).uniform(-1, 1, (1000, 2))
    other = with_units(product.transformer, {"z1.2": np.array([3.0])})
    assert not np.array_equal(replace(product, transformer=other)(points), product(points))


def test_what_reads_no_heavy_weight_stays_as_it_is(product: Compiled) -> None:
    assert in_other_units(product.transformer) is None
    for target in ("abs(x)", random_network([3, 8, 8, 2])):
        assert in_other_units(hs.compile(target, (-1, 1), 1e-4).transformer) is None


def test_a_product_of_products() -> None:
    model = hs.compile("x*y*z", (-1, 1), 1e-4)
    assert model.bill.max_weight <= 128.0
    assert hs.falsify(model, effort=200).ratio <= 1.0
