"""Exponential growth: P^L regions with two heads and ceil((P-1)/2) + 1 tokens a layer, counted."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.oracles.region_counts import zigzag_regions

from headsmith.core.errors import TargetError
from headsmith.lab.regions.bounds import bounds_of
from headsmith.lab.regions.zigzag import attention_block, composed, feed_forward_block, growth


def test_a_block_is_the_zigzag() -> None:
    """Both blocks are 0, 1, 0, ... at i/P, and linear between."""
    for pieces in range(2, 9):
        knots = np.arange(pieces + 1) / pieces
        x = np.linspace(0.0, 1.0, 501)
        expected = np.interp(x, knots, np.arange(pieces + 1) % 2)
        for block in (attention_block(pieces), attention_block(pieces, 4), feed_forward_block(pieces)):
            assert np.allclose(composed([block])(x[:, None])[:, 0], expected, atol=1e-12)


@pytest.mark.parametrize("pieces", [2, 3, 4, 5, 7])
@pytest.mark.parametrize("inputs", [1, 2])
def test_regions_are_the_closed_form(pieces: int, inputs: int) -> None:
    for depth in range(1, 9):
        if zigzag_regions(pieces, depth, inputs) > 1500:
            break
        found = growth(pieces, depth, inputs)
        assert found.regions == found.closed_form == zigzag_regions(pieces, depth, inputs)
        assert (found.heads, found.tokens) == (2, -(-(pieces - 1) // 2) + 1)


def test_attention_alone_matches_a_feed_forward_block() -> None:
    """The same factor P for each layer; one after the other they multiply."""
    for pieces in (2, 3, 5):
        for depth in (1, 2):
            alone, forward = growth(pieces, depth), growth(pieces, depth, layout="feed-forward")
            assert alone.regions == forward.regions == pieces**depth
            assert growth(pieces, depth, layout="both").regions == pieces ** (2 * depth)


def test_more_heads_need_fewer_tokens() -> None:
    """H heads of T tokens have at most 1 + H (T - 1) pieces; zigzags with P - 1 divisible by H reach it."""
    for pieces, heads in ((5, 4), (7, 6), (9, 4), (13, 6)):
        found = growth(pieces, 2, heads=heads)
        assert found.regions == pieces**2
        assert pieces == 1 + heads * (found.tokens - 1)


def test_odd_zigzags_have_as_many_regions_as_there_can_be() -> None:
    for pieces in (3, 5, 7):
        for depth in (1, 2, 3):
            levels = composed([attention_block(pieces)] * depth)
            assert bounds_of(levels, 1)[-1].value == pieces**depth == growth(pieces, depth).regions


def test_odd_requests_are_refused() -> None:
    for pieces, heads in ((1, 2), (3, 3), (3, 0)):
        with pytest.raises(TargetError, match="zigzag"):
            attention_block(pieces, heads)
