"""Claims M3 and M4: linear regions grow exponentially with depth; softmax at finite scale keeps the function.

Nothing is assumed: networks are built and their regions enumerated exactly. The zigzag constructions are ours.
"""

from __future__ import annotations

from dataclasses import asdict

import numpy as np

from headsmith.regions.bounds import bounds_of
from headsmith.regions.levels import levels_of
from headsmith.regions.soften import measure, soften
from headsmith.regions.trained import Comparison, compare
from headsmith.regions.zigzag import attention_block, composed, growth
from headsmith.report.claims import Finding, claim


@claim("M3", "linear regions grow exponentially with depth", tag="abstract")
def exponential_regions() -> Finding:
    """Zigzags of P pieces composed L times, by hardmax attention, by a feed-forward block and by both: count."""
    shapes = [(pieces, depth, 1) for pieces in (2, 3, 5, 8) for depth in (1, 2, 3, 4) if pieces**depth <= 1000]
    shapes += [(2, 4, 2), (3, 3, 2), (5, 2, 2)]
    rows = [growth(*shape) for shape in shapes]
    rows += [growth(pieces, depth, heads=heads) for pieces, depth, heads in ((5, 3, 4), (7, 3, 6), (9, 2, 4))]
    rows += [growth(pieces, depth, layout="feed-forward") for pieces, depth in ((2, 4), (3, 3), (5, 3))]
    rows += [growth(pieces, depth, layout="both") for pieces, depth in ((2, 2), (3, 2), (5, 1))]
    trained = [_best_of(3, *shape) for shape in ((2, 4, 2), (2, 4, 4), (3, 3, 3), (3, 3, 6))]
    exact = all(row.regions == row.closed_form for row in rows)
    frugal = all(
        row.tokens == -(-(row.pieces - 1) // 2) + 1 for row in rows if row.layout == "attention" and row.heads == 2
    )
    # With an odd number of pieces no network of two heads and as many tokens in each layer has more.
    sharp = all(
        bounds_of(composed([attention_block(pieces)] * 3), 1)[-1].value == pieces**3 == growth(pieces, 3).regions
        for pieces in (3, 5, 7)
    )
    holds = exact and frugal and sharp
    same_shape = [row for row in trained if row.width == row.pieces]
    largest = max(row.trained_regions / row.constructed_regions for row in same_shape)
    return Finding(
        ran=f"{len(rows)} zigzag networks on [0, 1]^d enumerated exactly, {len(trained)} networks trained (best of 3)",
        figure={
            "all_equal_closed_form": exact,
            "reaches_upper_bound": sharp,
            "trained_over_constructed": largest,
            "rows": [asdict(row) for row in rows],
            "trained": [asdict(row) for row in trained],
        },
        holds=holds,
        verdict=f"holds: P^L in every case counted, with 2 heads and ceil((P-1)/2)+1 tokens for each coordinate, and "
        f"that is the most there can be for odd P; attention alone matches a feed-forward block of width P; trained "
        f"networks of the same shape have at most {largest:.0%} of the regions"
        if holds
        else "fails: a count differs from its closed form",
    )


def _best_of(seeds: int, pieces: int, depth: int, width: int) -> Comparison:
    """The trained network with the smallest error."""
    return min((compare(pieces, depth, width, seed=seed) for seed in range(seeds)), key=lambda row: row.trained_error)


@claim("M4", "softmax at finite scale keeps the hardmax partition's function up to W((k-1)/e)/b", tag="ours")
def finite_scale() -> Finding:
    """The worst error of one head for k pieces at scale b, and that of a partition of the plane, against the lemma."""
    heads = [measure(pieces, scale) for pieces in (2, 3, 8, 64, 1024) for scale in (1.0, 10.0, 1e3)]
    attained = [row.attained for row in heads]
    levels = levels_of("max(x, y, -x - y, 0.4 + 0.5*x, 0.6 - y)", ["x", "y"])
    grid = np.stack(np.meshgrid(*[np.linspace(-1.0, 1.0, 301)] * 2), axis=-1).reshape(-1, 2)
    plane = soften(levels, grid, [2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0])
    rate = float(np.polyfit(np.log([row.scale for row in plane]), np.log([row.found for row in plane]), 1)[0])
    inside = all(row.found <= row.bound for row in plane)
    holds = min(attained) >= 1.0 - 1e-9 and max(attained) <= 1.0 + 1e-12 and inside and -1.15 < rate < -0.9
    return Finding(
        ran=f"{len(heads)} heads of 2 to 1024 pieces; a partition of the plane into 5 regions at {len(plane)} scales",
        figure={
            "least_attained": min(attained),
            "most_attained": max(attained),
            "exponent_in_b": rate,
            "rows": [asdict(row) | {"attained": row.attained} for row in heads],
            "plane": [asdict(row) for row in plane],
        },
        holds=holds,
        verdict=f"holds, and is sharp: the worst error found is {min(attained):.9f} of the bound or more; in the plane "
        f"it falls like b^{rate:.2f} and stays within the bound"
        if holds
        else "fails: an error is above the bound, or the bound is not reached",
    )
