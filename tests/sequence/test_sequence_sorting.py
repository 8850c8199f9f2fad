"""Sorting over tokens: the network sorts every sequence, ties and all, within the certified bound."""

import numpy as np
import pytest

import headsmith as hs
from headsmith.report.sequences import candidates
from headsmith.sequence import tokens as over
from headsmith.sequence.compiled import compile_sequence
from headsmith.source.library import comparators


@pytest.mark.parametrize("n", [*range(1, 18), pytest.param(64, marks=pytest.mark.slow)])
def test_sorts_any_number_of_tokens(n: int) -> None:
    model = compile_sequence(over.sort, tokens=n, domain=(-2, 3), error=1e-6)
    assert model.lengths == (n,)
    assert model.certificate.error <= 1e-6
    x = candidates(model, n, 40, np.random.default_rng(n))
    got, wanted = model(x), np.sort(x, axis=1)
    assert np.abs(got - wanted).max() <= model.certificate.error
    shuffled = x[:, np.random.default_rng(0).permutation(n)]
    assert np.abs(model(shuffled) - wanted).max() <= model.certificate.error


def test_the_bill_of_a_sort() -> None:
    model = compile_sequence(over.sort, tokens=16, domain=(-1, 1), error=1e-3)
    assert model.bill.layers == 10 + 2
    assert model.bill.heads == 16 + len(comparators(16)) + 16


def test_columns_are_sorted_each_on_their_own() -> None:
    model = compile_sequence(lambda x: x.sort(axis=0), tokens=5, features=2, domain=(-1, 1), error=1e-6)
    x = np.random.default_rng(3).uniform(-1, 1, (5, 2))
    assert np.abs(model(x) - np.sort(x, axis=0)).max() <= model.certificate.error


def test_sorts_are_refused_where_they_make_no_sense() -> None:
    with pytest.raises(hs.TargetError, match="causal program cannot sort"):
        compile_sequence(over.sort, tokens=4, domain=(-1, 1), causal=True)
    model = compile_sequence(over.sort, tokens=4, domain=(-1, 1), error=1e-3)
    with pytest.raises(hs.DomainError, match="takes exactly 4"):
        model(np.zeros((3, 1)))
