"""The transformer's checker fires: shapes, names, constants that must not be written, registers that only scores may
use, numbers of the dtype."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from helpers.models.networks import random_network

import headsmith as hs
from headsmith.core.errors import CertificateError
from headsmith.transformer.heads.stream import Link, Register
from headsmith.transformer.ir import Layer, Transformer, layout, width


@pytest.fixture(scope="module")
def model() -> Transformer:
    return hs.compile(random_network([3, 4, 2]), (-1, 1), error=1e-2, tokens=4).transformer


def with_bank(model: Transformer, **changes) -> Transformer:
    return replace(model, layers=(Layer((replace(model.layers[0].banks[0], **changes),)),))


def test_registers_are_columns_in_order(model) -> None:
    columns = layout(model)
    assert [columns[r.name].stop - columns[r.name].start for r in model.registers] == [r.size for r in model.registers]
    assert max(c.stop for c in columns.values()) == width(model)
    assert [r.name for r in model.registers][:3] == ["data", "reference", "position"]


@pytest.mark.parametrize("register", ["data", "reference", "position"])
def test_constant_registers_are_never_written(model, register) -> None:
    size = model.sizes[register]
    with pytest.raises(CertificateError, match=f"the constant register {register} is written"):
        replace(model, embedding=(*model.embedding, Link(register, np.ones((size, 3)))))
    with pytest.raises(CertificateError, match=f"the constant register {register} is written"):
        with_bank(model, write=(*model.layers[0].banks[0].write, Link(register, np.ones((size, 4)))))
    with pytest.raises(CertificateError, match=f"initial value of {register}"):
        replace(model, initial={**model.initial, register: np.ones(size)})


@pytest.mark.parametrize("register", ["reference", "position"])
def test_only_scores_use_the_token_flags(model, register) -> None:
    """A head that read the reference flag as a value would put it on the sink, and a position would differ from token
    to token."""
    size = model.sizes[register]
    with pytest.raises(CertificateError, match=register):
        with_bank(model, read=(*model.layers[0].banks[0].read, Link(register, np.ones((4, size)))))
    with pytest.raises(CertificateError, match=register):
        replace(model, readout=(*model.readout, Link(register, np.ones((2, size)))))


@pytest.mark.parametrize(
    "registers",
    [
        lambda r: r[1:],
        lambda r: (r[1], r[0], *r[2:]),
        lambda r: (*r[:2], Register("position", 3), *r[3:]),
        lambda r: (*r[:2], *r[3:]),
        lambda r: (*r, r[-1]),
        lambda r: (*r, Register("data", 1)),
    ],
)
def test_the_constant_registers_stand_as_they_must(model, registers) -> None:
    with pytest.raises(CertificateError):
        replace(model, registers=registers(model.registers))


@pytest.mark.parametrize(
    "link",
    [
        Link("nobody", np.ones((2, 3))),
        Link("z1", np.ones((4, 4))),
        Link("z1", np.ones((3, 3))),
        Link("z1", np.ones((4, 3)), 1),
        Link("z1", np.ones((4, 3)), -1),
        Link("z1", np.ones((4, 3, 1))),
        Link("z1", np.float64(1.0)),
    ],
)
def test_links_must_fit(model, link) -> None:
    with pytest.raises(CertificateError, match="does not fit"):
        replace(model, embedding=(link,))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_every_number_is_finite(model, value) -> None:
    for changes in (
        {"readout_bias": np.array([0.0, value])},
        {"initial": {"z1": np.array([0.0, 0.0, value, 0.0])}},
        {"embedding": (Link("z1", np.full((4, 3), value)),)},
        {"readout": (Link("out", np.full((2, 2), value)),)},
    ):
        with pytest.raises(CertificateError, match="a number is not finite"):
            replace(model, **changes)
    for changes in (
        {"query_scale": np.full(4, value)},
        {"key_scale": np.full(4, value)},
        {"reference_gain": value},
        {"position_gain": value},
    ):
        with pytest.raises(CertificateError, match="a number is not finite"):
            with_bank(model, **changes)


def test_a_float32_model_holds_float32_numbers(model) -> None:
    with pytest.raises(CertificateError, match="a number is not a float32"):
        replace(model, dtype="float32", readout_bias=np.array([0.1, 0.0]))


@pytest.mark.parametrize(
    "changes",
    [
        {"node": np.zeros(3, dtype=int)},
        {"component": np.zeros((4, 1), dtype=int)},
        {"query_scale": np.ones(3), "key_scale": np.ones(4)},
        {"key_scale": np.ones((4, 1))},
        {"node": [], "component": [], "query_scale": [], "key_scale": [], "read": (), "write": ()},
    ],
)
def test_a_bank_has_one_entry_for_each_head(model, changes) -> None:
    with pytest.raises(CertificateError, match="heads"):
        with_bank(model, **changes)


@pytest.mark.parametrize(
    "changes", [{"tokens": 0}, {"inputs": 0}, {"outputs": 0}, {"outputs": 3}, {"tokens": 5}, {"tokens": 1}]
)
def test_the_counts_must_fit(model, changes) -> None:
    with pytest.raises(CertificateError):
        replace(model, **changes)
