"""Calling a model: arrays of any leading shape, by name, sequences, empty batches; what does not fit is refused;
chunks change nothing."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.models.networks import random_network

import headsmith as hs
from headsmith.run import numpy_runner


@pytest.fixture(scope="module")
def model() -> hs.Compiled:
    return hs.compile(random_network([3, 6, 5, 2]), (-1, 1), error=1e-4)


@pytest.fixture(scope="module")
def sequence_model() -> hs.Compiled:
    return hs.compile(random_network([3, 6, 5, 2]), (-1, 1), error=1e-4, tokens=4)


class TestOneToken:
    @pytest.mark.parametrize("lead", [(), (1,), (7,), (2, 3), (1, 2, 1, 3), (0,), (2, 0, 3)])
    def test_any_leading_shape(self, model, lead, rng) -> None:
        inputs = rng.uniform(-1, 1, (*lead, 3))
        found = model(inputs)
        assert found.shape == (*lead, 2)
        assert found.dtype == np.float64
        flat = inputs.reshape(-1, 3)
        for wanted, x in zip(found.reshape(-1, 2), flat, strict=True):
            assert np.abs(model(x) - wanted).max() <= 2 * model.certificate.parts["rounding"]

    def test_lists_integers_and_float32_are_taken(self, model) -> None:
        assert np.array_equal(model([0, 1, -1]), model(np.array([0.0, 1.0, -1.0])))
        assert np.array_equal(model(np.zeros(3, dtype=np.float32)), model(np.zeros(3)))

    def test_by_name(self, model, rng) -> None:
        x = rng.uniform(-1, 1, (5, 3))
        assert np.array_equal(model(x0=x[:, 0], x1=x[:, 1], x2=x[:, 2]), model(x))
        assert np.array_equal(model(x2=x[0, 2], x0=x[0, 0], x1=x[0, 1]), model(x[0]))
        broadcast = model(x0=x[:, :1], x1=x[:4, 1], x2=0.5)
        assert broadcast.shape == (5, 4, 2)

    def test_by_name_a_single_output_has_no_axis(self) -> None:
        single = hs.compile(random_network([2, 4, 1]), (-1, 1), error=1e-3)
        assert single(x0=0.5, x1=0.25).shape == ()
        assert single(x0=[0.5, 0.1], x1=0.25).shape == (2,)
        assert single([0.5, 0.25]).shape == (1,)

    @pytest.mark.parametrize(
        ("arrays", "named", "message"),
        [
            (([0.0, 0.0],), {}, r"expected an array \(..., 3\); got shape \(2,\)"),
            ((0.0,), {}, r"expected an array \(..., 3\); got shape \(\)"),
            ((np.zeros((3, 4)),), {}, r"got shape \(3, 4\)"),
            ((), {}, "give one array"),
            ((np.zeros(3), np.zeros(3)), {}, "give one array"),
            ((), {"x0": 0.0, "x1": 0.0}, "each of x0, x1, x2 by name"),
            ((), {"x0": 0.0, "x1": 0.0, "x2": 0.0, "x3": 0.0}, "each of x0, x1, x2 by name"),
            ((np.zeros(3),), {"x0": 0.0}, "give one array"),
        ],
    )
    def test_what_does_not_fit_is_refused(self, model, arrays, named, message) -> None:
        with pytest.raises(hs.DomainError, match=message):
            model(*arrays, **named)

    @pytest.mark.parametrize("bad", [1.5, -1.0000001, np.inf, -np.inf])
    def test_outside_the_domain_is_refused_by_name(self, model, bad) -> None:
        with pytest.raises(hs.DomainError, match=r"input x1 = .* lies outside its domain \[.*-1.0.*, .*1.0.*\]"):
            model([0.0, bad, 0.0])
        with pytest.raises(hs.DomainError, match="input x1"):
            model(x0=0.0, x1=bad, x2=0.0)

    def test_what_is_no_number_is_refused_by_name(self, model) -> None:
        with pytest.raises(hs.DomainError, match="input x1 is nan, which is not a number"):
            model([0.0, np.nan, 0.0])
        with pytest.raises(hs.DomainError, match="input x1 is nan, which is not a number"):
            model(x0=0.0, x1=np.nan, x2=0.0)

    def test_outside_can_be_allowed(self, model) -> None:
        network = random_network([3, 6, 5, 2])
        assert np.allclose(model([3.0, 0.0, -2.0], outside="allow"), network([3.0, 0.0, -2.0]), atol=1e-2)

    def test_the_ends_of_the_domain_are_inside(self, model) -> None:
        assert np.isfinite(model([[-1.0, -1.0, -1.0], [1.0, 1.0, 1.0]])).all()

    def test_float32_models_answer_in_float32(self) -> None:
        single = hs.compile(random_network([3, 4, 2]), (-1, 1), error=1e-2, dtype="float32")
        assert single(np.zeros(3)).dtype == np.float32
        assert single(np.zeros((0, 3))).dtype == np.float32


class TestSequences:
    @pytest.mark.parametrize("lead", [(), (1,), (3,), (2, 3), (0,)])
    @pytest.mark.parametrize("length", [1, 2, 4])
    def test_any_leading_shape(self, sequence_model, lead, length, rng) -> None:
        inputs = rng.uniform(-1, 1, (*lead, length, 3))
        found = sequence_model(inputs)
        assert found.shape == (*lead, length, 2)
        flat = inputs.reshape(-1, length, 3)
        for wanted, x in zip(found.reshape(-1, length, 2), flat, strict=True):
            assert np.abs(sequence_model(x) - wanted).max() <= 2 * sequence_model.certificate.parts["rounding"]

    @pytest.mark.parametrize("shape", [(5, 3), (2, 5, 3), (0, 3), (3,)])
    def test_too_many_tokens_or_none_are_refused(self, sequence_model, shape) -> None:
        with pytest.raises(hs.DomainError, match="1 <= m <= 4; got shape"):
            sequence_model(np.zeros(shape))

    def test_by_name(self, sequence_model, rng) -> None:
        x = rng.uniform(-1, 1, (4, 3))
        assert np.array_equal(sequence_model(x0=x[:, 0], x1=x[:, 1], x2=x[:, 2]), sequence_model(x))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("chunk", [1, 7, 64, 1000])
def test_chunks_change_nothing_but_the_last_bits(model, sequence_model, chunk, causal, monkeypatch, rng) -> None:
    single, several = rng.uniform(-1, 1, (20, 3)), rng.uniform(-1, 1, (9, 4, 3))
    whole = model(single), sequence_model(several, causal=causal)
    monkeypatch.setattr(numpy_runner, "CHUNK", chunk)
    assert np.abs(model(single) - whole[0]).max() <= 2 * model.certificate.parts["rounding"]
    difference = np.abs(sequence_model(several, causal=causal) - whole[1]).max()
    assert difference <= 2 * sequence_model.certificate.parts["rounding"]


def test_memory_stays_bounded(monkeypatch, rng) -> None:
    """No array of the runner holds much more than CHUNK scores at once, whatever the batch."""
    import tracemalloc

    model = hs.compile(random_network([4, 200, 2]), (-1, 1), error=1e-3)
    inputs = rng.uniform(-1, 1, (5000, 4))
    model(inputs[:10])
    tracemalloc.start()
    model(inputs)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 40 * 8 * numpy_runner.CHUNK


def test_the_input_is_left_alone(model, rng) -> None:
    x = rng.uniform(-1, 1, (4, 3))
    before = x.copy()
    model(x)
    assert np.array_equal(x, before)
