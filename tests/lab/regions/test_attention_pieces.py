"""The pieces of hardmax attention, from its matrices: they are those of the function that it runs."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from helpers.models.networks import random_network

import headsmith as hs
from headsmith.core.errors import TargetError
from headsmith.lab.regions.attention_pieces import pieces_of


def test_pieces_are_those_of_the_network() -> None:
    """Of a network of one variable: as many as its regions have, and at every point the output that runs."""
    network = random_network([1, 6, 5, 1], 4)
    model = hs.compile(network, (-2, 2), 1e-3, attention="hardmax")
    found = pieces_of(model.dense(), [[1.0]], -2.0, 2.0)
    assert len(found) == hs.regions(network, (-2, 2)).count("linear")
    assert found[0][0] == -2
    assert found[-1][1] == 2
    for (_, end, (constant, slope)), (start, _, (other, steeper)) in pairwise(found):
        assert end == start
        assert constant + slope * end == other + steeper * start
        assert slope != steeper
    for start, end, (constant, slope) in found:
        x = (start + end) / 2
        assert abs(float(constant + slope * x) - model([float(x)])[0]) <= model.certificate.error


def test_equal_scores_share_their_weight() -> None:
    """max(x, x, -x): two tokens of three hold the same."""
    model = hs.compile("max(x, -x, x/2)", (-1, 1), 1e-2, recipe="maxout")
    found = pieces_of(model.dense(), np.eye(model.transformer.tokens), -1.0, 1.0)
    assert [(start, end) for start, end, _ in found] == [(-1, 0), (0, 1)]
    assert [each for _, _, each in found] == [(Fraction(0), Fraction(-1)), (Fraction(0), Fraction(1))]


def test_scores_that_are_no_lines_are_refused() -> None:
    model = hs.compile_sequence(
        lambda x: hs.tokens.attend(x[:, 0], x[:, 0], x[:, 0]), tokens=2, domain=(-1, 1), error=1e-3
    )
    with pytest.raises(TargetError, match="no linear pieces"):
        pieces_of(model.dense(), [[1.0], [0.5]], -1.0, 1.0)
