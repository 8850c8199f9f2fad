"""Ranges of sums of a value and its pools over the tokens, which are in order: min <= mean <= max, min <= own <= max.

    max(a) - min(a)     is never negative, where intervals alone would allow it
    a - min(a)          is not negative either, and 2 mean(a) - max(a) is at least 2 min - max

Let a lie in [l, h] at every token, and at this one in [t1, t2]. A sum of multiples of a, min, mean and max is linear on

    l <= min <= a <= max <= h,      min <= mean <= max,      t1 <= a <= t2.

For given a, min and max it is extreme at mean = min or mean = max; then, for a given, it is linear in min and max on
the box [l, a] x [a, h]; and at each corner of that box, min = l or a and max = a or h, it is linear in a. So the
extremes are among 16 vertices: a = t1 or t2, min = l or a, max = a or h, mean = min or max.

The tokens that a causal pool sees include one's own, so all this holds for causal pools too. But pools of different
masks are not compared with each other.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from fractions import Fraction

import numpy as np

from headsmith.core.intervals import Interval, added, exact_sum, hull, multiple, point
from headsmith.language.graph import Graph, Pool
from headsmith.plan.analysis.piecewise import Atom, ExactForm, Forms, form_range, share_of


def order_range(forms: Forms, graph: Graph, form: ExactForm, found: Sequence[Interval]) -> Interval | None:
    """The range of a form, by the order of its pools and of what they pool; None if no two of them can be compared.

    Guarantee: holds every value of the form, for every column of the ranges `found`.
    """
    # At every step the form is `rest`, plus the sums whose ranges are `parts`.
    rest, parts = form, []
    for key in dict.fromkeys(key for atom in form.terms if (key := _pooled(graph, atom)) is not None):
        weights: dict[str, Fraction] = {}
        others: dict[Atom, Fraction] = {}
        for atom, weight in rest.terms.items():
            node = graph.nodes[atom[0]]
            if isinstance(node, Pool) and _pooled(graph, atom) == key:
                weights[node.kind] = weights.get(node.kind, Fraction(0)) + weight
            else:
                others[atom] = weight
        left, own = ExactForm(others, rest.constant), forms.of(*key[:2])
        share = share_of(left, own)
        if len(weights) + bool(share) > 1:
            rest = left.plus(-share, own)
            parts.append(_extremes({"own": share, **weights}, found[key[0]][key[1]]))
    if not parts:
        return None
    total = form_range(rest, found)
    for part in parts:
        total = added(part, total)
    return total


def _pooled(graph: Graph, atom: Atom) -> tuple[int, int, bool] | None:
    """What is pooled, and the mask: pools that agree in these can be compared."""
    node = graph.nodes[atom[0]]
    return (node.argument, atom[1], node.causal) if isinstance(node, Pool) else None


def _extremes(weights: Mapping[str, Fraction], range_: Interval) -> Interval:
    """The range over all vertices of the sum of weights times own, min, mean and max; column 0 of `range_` is that of
    every token, the others are those of this one."""
    low, high = range_.low[:1], range_.high[:1]
    vertices = []
    for own, lowest, highest, mean in itertools.product((range_.low, range_.high), *((False, True),) * 3):
        # How often a, l and h are taken: weights that meet there cancel exactly.
        taken = {"own": weights["own"], "l": Fraction(0), "h": Fraction(0)}
        at = {"min": "own" if lowest else "l", "max": "own" if highest else "h"}
        at["mean"] = at["max"] if mean else at["min"]
        for kind, place in at.items():
            taken[place] += weights.get(kind, Fraction(0))
        ends = [(taken["own"], own), (taken["l"], low), (taken["h"], high)]
        total = point(np.zeros(len(own)))
        for weight, end in ends:
            total = added(total, multiple(weight, point(np.broadcast_to(end, own.shape))))
        first = exact_sum([(weight, float(end[0]), float(end[0])) for weight, end in ends], Fraction(0))
        lows, highs = np.array(total.low), np.array(total.high)
        lows[0], highs[0] = first
        vertices.append(Interval(lows, highs))
    return hull(*vertices)
