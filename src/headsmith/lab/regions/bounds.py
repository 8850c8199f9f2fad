"""How many regions there can be: closed forms and bounds, beside the count.

On a cell of the levels before, the state is affine in the coordinates, of rank at most r, the smallest width so far. A
level of units with k_i pieces cuts such a cell into at most

    S(r; k) = sum over j <= r of e_j(k_1 - 1, ..., k_m - 1)          e_j: the elementary symmetric polynomials

parts. With all k_i = 2 that is Zaslavsky's number of regions of m hyperplanes in r dimensions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import comb, prod

import numpy as np

from headsmith.lab.regions.levels import Levels


@dataclass(frozen=True)
class Bound:
    """A number that no network of the same shape can exceed, or that some network of the same shape reaches."""

    name: str
    source: str
    value: int


def zaslavsky(hyperplanes: int, dimension: int) -> int:
    """The most regions of an arrangement, reached in general position: sum over j <= d of C(n, j) (Zaslavsky 1975)."""
    return sum(comb(hyperplanes, j) for j in range(dimension + 1))


def one_maxout_level(ranks: Sequence[int], dimension: int) -> int:
    """The most regions of a layer of maxout units of these ranks, reached (Montúfar, Ren, Zhang 2022): S(d; ranks)."""
    return sum(_elementary([rank - 1 for rank in ranks], dimension))


def _elementary(values: Sequence[int], degree: int) -> list[int]:
    """e_0, ..., e_degree."""
    found = [1] + [0] * degree
    for value in values:
        for j in range(degree, 0, -1):
            found[j] += value * found[j - 1]
    return found


def deep_upper(ranks: Sequence[Sequence[int]], inputs: int) -> int:
    """Layer by layer, each of at most S(r; ranks) with r the smallest width before it.

    For ReLU networks: Montúfar 2017, after Pascanu and others 2013; for maxout: Montúfar, Ren, Zhang 2022.
    """
    total, room = 1, inputs
    for layer in ranks:
        total *= one_maxout_level(layer, room)
        room = min(room, len(layer))
    return total


def relu_upper(widths: Sequence[int], inputs: int) -> int:
    """Serra, Tjandraatmadja, Ramalingam 2018: a unit that is inactive takes a dimension from all layers after it.

    sum over (j_1, ..., j_L) of prod C(n_l, j_l), with j_l <= min(n_0, n_1 - j_1, ..., n_(l-1) - j_(l-1), n_l).
    """

    @cache
    def rest(layer: int, room: int) -> int:
        if layer == len(widths):
            return 1
        width = widths[layer]
        choices = range(min(room, width) + 1)
        return sum(comb(width, j) * rest(layer + 1, min(room, width - j)) for j in choices)

    return rest(0, inputs)


def bounds_of(levels: Levels, dimension: int) -> tuple[Bound, ...]:
    """The upper bounds that apply to a network on a slice of this dimension, the smallest last."""
    ranks = [np.bincount(level.unit).tolist() for level in levels.levels if level.units]
    plain = all(not len(level.carry) for level in levels.levels)
    if not plain:
        # What is carried past a level is not limited by that level's width.
        value = prod(one_maxout_level(layer, dimension) for layer in ranks)
        return (Bound("product over levels", "Montúfar, Ren, Zhang 2022, level by level", value),)
    found = [Bound("product over layers", "Montúfar, Ren, Zhang 2022", deep_upper(ranks, dimension))]
    if all(level.is_relu for level in levels.levels):
        widths = [level.units for level in levels.levels]
        found = [Bound("product over layers", "Montúfar 2017", deep_upper(ranks, dimension))]
        found.append(Bound("sum over dimensions", "Serra and others 2018", relu_upper(widths, dimension)))
        if len(widths) == 1:
            found.append(Bound("hyperplanes", "Zaslavsky 1975", zaslavsky(widths[0], dimension)))
    return tuple(sorted(found, key=lambda bound: -bound.value))
