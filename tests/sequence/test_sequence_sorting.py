"""Sorting over tokens: the network sorts every sequence, ties and all, within the certified bound."""

import numpy as np
import pytest

import headsmith as hs
from headsmith.language.library import comparators
from headsmith.report.sequences import SequenceSpace, candidates
from headsmith.sequence import tokens as over
from headsmith.sequence.compiled import CompiledSequence, compile_sequence
from headsmith.sequence.sorting import stages


def sequences(model: CompiledSequence, length: int, count: int, random: np.random.Generator) -> np.ndarray:
    """Sequences of the domain: random ones, ends of it, equal tokens, nearly equal ones and ties."""
    return candidates(SequenceSpace(model.box.low, model.box.high, model.lengths), length, count, random)


@pytest.mark.one_in(6)
@pytest.mark.parametrize("n", [*range(1, 18), 64])
def test_sorts_any_number_of_tokens(n: int) -> None:
    model = compile_sequence(over.sort, tokens=n, domain=(-2, 3), error=1e-6)
    assert model.lengths == (n,)
    assert model.certificate.error <= 1e-6
    x = sequences(model, n, 40, np.random.default_rng(n))
    got, wanted = model(x), np.sort(x, axis=1)
    assert np.abs(got - wanted).max() <= model.certificate.error
    shuffled = x[:, np.random.default_rng(0).permutation(n)]
    assert np.abs(model(shuffled) - wanted).max() <= model.certificate.error


@pytest.mark.parametrize(("n", "depth"), [(1, 0), (2, 1), (3, 3), (4, 3), (8, 6), (16, 10), (100, 28), (512, 45)])
def test_stages_are_batchers_network(n: int, depth: int) -> None:
    """No token is in two pairs of a stage, and pairs that share a token keep their order."""
    found = stages(n)
    assert len(found) == depth
    assert all(len(set(sum(pairs, ()))) == 2 * len(pairs) for pairs in found)
    staged = [pair for pairs in found for pair in pairs]
    for token in {0, n // 3, n - 1}:
        assert [pair for pair in staged if token in pair] == [pair for pair in comparators(n) if token in pair]


def test_the_bill_of_a_sort() -> None:
    """A stage is a move head and two gates."""
    model = compile_sequence(over.sort, tokens=8, domain=(-1, 1), error=1e-3)
    assert model.bill.layers == 2 * len(stages(8))
    assert model.bill.heads == 3 * len(stages(8))


@pytest.mark.parametrize(("n", "depth"), [(32, 15), pytest.param(512, 45, marks=pytest.mark.campaign)])
def test_many_tokens(n: int, depth: int) -> None:
    """15 stages, or 45, none of which expands what the ones before are off by."""
    model = compile_sequence(over.sort, tokens=n, domain=(-1, 1), error=1e-6)
    assert (model.bill.layers, model.bill.heads) == (2 * depth, 3 * depth)
    assert model.certificate.error <= 1e-6
    x = np.stack([np.random.default_rng(0).choice([-1.0, -0.25, 0.5], n), np.linspace(1.0, -1.0, n) ** 3])
    x[0, ::3] = np.random.default_rng(1).uniform(-1, 1, len(x[0, ::3]))
    assert np.abs(model(x[..., None])[..., 0] - np.sort(x, axis=1)).max() <= model.certificate.error


def test_a_median() -> None:
    n = 9
    model = compile_sequence(lambda x: over.at(over.sort(x), n // 2), tokens=n, domain=(-1, 1), error=1e-6)
    x = sequences(model, n, 20, np.random.default_rng(0))
    assert np.abs(model(x) - np.median(x, axis=1, keepdims=True)).max() <= model.certificate.error


def test_what_is_computed_before_and_after() -> None:
    """sin(x) exp(x) is one table head before the six layers of three exchanges, and tanh one after them."""
    model = compile_sequence(
        lambda x: hs.tanh(over.sort(hs.sin(x[:, 0]) * hs.exp(x[:, 0]))), tokens=4, domain=(-1, 1), error=1e-3
    )
    assert (model.bill.layers, model.bill.heads) == (1 + 6 + 1, 1 + 9 + 1)
    x = sequences(model, 4, 40, np.random.default_rng(0))
    wanted = np.tanh(np.sort(np.sin(x) * np.exp(x), axis=1))
    assert np.abs(model(x) - wanted).max() <= model.certificate.error


def test_what_needs_no_heads() -> None:
    """Constants of tokens are sorted when the program is written down, and equal values are in order."""
    constants = compile_sequence(lambda x: over.sort(over.constants(x, [3, 1, 2])), tokens=3, domain=(-1, 1))
    assert constants.bill.heads <= 1
    assert constants(np.zeros((3, 1)))[:, 0].tolist() == [1.0, 2.0, 3.0]
    equal = compile_sequence(lambda x: over.sort(over.mean(x)), tokens=3, domain=(-1, 1))
    assert equal.bill.layers == 1


def test_columns_are_sorted_each_on_their_own() -> None:
    model = compile_sequence(lambda x: x.sort(axis=0), tokens=4, features=2, domain=(-1, 1), error=1e-6)
    x = np.random.default_rng(3).uniform(-1, 1, (4, 2))
    assert np.abs(model(x) - np.sort(x, axis=0)).max() <= model.certificate.error


def test_sorts_are_refused_where_they_make_no_sense() -> None:
    with pytest.raises(hs.TargetError, match="causal program cannot sort"):
        compile_sequence(over.sort, tokens=4, domain=(-1, 1), causal=True)
    model = compile_sequence(over.sort, tokens=4, domain=(-1, 1), error=1e-3)
    with pytest.raises(hs.DomainError, match="takes exactly 4"):
        model(np.zeros((3, 1)))
