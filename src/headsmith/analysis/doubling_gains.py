"""How deviations travel through doublings (`analysis.doubling`).

Let Q~ = Q + E and w~ = w + D be what is computed. Only one triangle of Q~ is stored, so E is symmetric, and with errors
e_ij of the stored entries |E|_F^2 = sum_i e_ii^2 + 2 sum_{i<j} e_ij^2; |E|_2 <= |E|_F. Exactly,

    Q~ Q~ - Q Q = Q~ E + E Q                      at most (2 |Q|_2 + |E|_F) |E|_F in the Frobenius norm
    (w~ + Q~ w~) - (w + Q w) = (I + Q~) D + E w   at most (1 + |Q|_2 + |E|_F) |D| + |E|_F |w|

and what the product heads commit inside comes on top. Both are linear in (E, D), with coefficients Q~, Q and w: the
other way round, an error at Q_k or w^(k) moves the output by at most as much as these norms times what the same error
at the results does. An error of 1 at a stored entry off the diagonal is one of sqrt(2) in the Frobenius norm.

Each token has its own Q~ and w~, and computes its own results from them: unlike a gradient step, which takes the mean
of what all copies do, a doubling mixes no copies, and nothing is added because they differ.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from headsmith.analysis.contraction_gains import Step, SteppedFlow, flow_of
from headsmith.analysis.doubling import Ranges, counts, iterates, length_bound, norm_bound
from headsmith.analysis.gains import Far, Gain
from headsmith.analysis.sensitivity import Flow, Shortcut, Slopes
from headsmith.core.arrays import Array
from headsmith.core.intervals import Interval
from headsmith.core.rounding import upper
from headsmith.source.graph import Graph, needed


@dataclass(frozen=True, eq=False)
class Doubling:
    """Node `result` is Q Q of node `matrix`, or w + Q w of it and of node `vector` (-1 for a square); `region` are the
    nodes in between and the result. Exactly, |Q| <= norm and |w| <= length; Q is of so many rows."""

    matrix: int
    vector: int
    result: int
    region: frozenset[int]
    rows: int
    norm: float
    length: float

    @property
    def sources(self) -> tuple[int, ...]:
        return (self.matrix,) if self.vector < 0 else (self.matrix, self.vector)

    def factor(self, source: int, off: float) -> float:
        """By how much an error at a source can be larger at the result, Q being off by `off`."""
        if source == self.vector:
            return float(upper(1.0 + self.norm + off, 2))
        return self.length if self.vector >= 0 else float(upper(2.0 * self.norm + off, 2))

    def counts(self, number: int) -> Array:
        """How often each stored number stands in the matrix or vector."""
        one = number == self.vector or (number == self.result and self.vector >= 0)
        return np.ones(self.rows) if one else counts(self.rows)


def doublings_on(graph: Graph, ranges: Ranges) -> dict[int, Doubling]:
    """All doublings of the graph whose norms are known on these ranges, by their results."""
    known, found = iterates(graph), {}
    for number, iterate in known.items():
        if iterate.level:
            matrix = known[iterate.matrix]
            norm = norm_bound(matrix, ranges)
            length = 0.0 if iterate.is_matrix else length_bound(known[iterate.vector], ranges)
            rows = graph.nodes[iterate.features].size
            if math.isfinite(norm) and math.isfinite(length):
                found[number] = Doubling(iterate.matrix, iterate.vector, number, iterate.region, rows, norm, length)
    return found


def size_of(values: Array, often: Array) -> Array:
    """The norms of columns, or of one vector, whose numbers stand `often` in them; rounded up."""
    squares = (values * values).T * often
    return np.asarray(upper(np.sqrt(upper(np.sum(squares.T, axis=0), len(often) + 3)), 2))


def flow_through(
    graph: Graph,
    slopes: Mapping[int, Slopes],
    shortcuts: Mapping[int, Shortcut],
    steps: Mapping[int, Step],
    doublings: Mapping[int, Doubling],
) -> Flow:
    """The flow that knows the circuit's steps and doublings."""
    if not doublings:
        return flow_of(graph, slopes, shortcuts, steps)
    return DoubledFlow(graph, slopes, shortcuts, steps, doublings)


class DoubledFlow(SteppedFlow):
    """A flow through a circuit with doublings, by their results, and maybe steps."""

    def __init__(
        self,
        graph: Graph,
        slopes: Mapping[int, Slopes],
        shortcuts: Mapping[int, Shortcut],
        steps: Mapping[int, Step],
        doublings: Mapping[int, Doubling],
    ) -> None:
        # Norms of steps are other norms: what both know is left to the steps.
        taken = {*steps, *(step.source for step in steps.values())}
        self.doublings = {number: each for number, each in doublings.items() if not taken & {number, *each.sources}}
        severed = frozenset(
            (reader, source) for each in self.doublings.values() for reader in each.region for source in each.sources
        )
        super().__init__(graph, slopes, shortcuts, steps, severed)
        self.departing: dict[int, list[Doubling]] = {}
        self.often: dict[int, Array] = {}
        for number, each in self.doublings.items():
            for place in (number, *each.sources):
                self.often[place] = each.counts(place)
            for source in each.sources:
                self.departing.setdefault(source, []).append(each)

    def _known(self, number: int, rest: Gain, found: Mapping[int, Gain]) -> Far | None:
        if number not in self.often:
            return super()._known(number, rest, found)
        departing = [each for each in self.departing.get(number, []) if each.result in found]
        often, carried = self.often[number], np.zeros(rest.magnitude.shape[1])
        for each in departing:
            # Before errors have arrived this is an estimate, for planning.
            off = self.distances.get(each.matrix, math.inf if self.distances else 0.0)
            carried = upper(carried + each.factor(number, off) * self.gain_norms[each.result], 2)
        # Errors at several tokens do not point the same way: of their gains only sums of components are known.
        distant = np.zeros(len(carried)) if rest.far is None else upper(rest.far.size.sum(axis=0), len(often))
        near = size_of(rest.here.magnitude, 1.0 / often)
        self.gain_norms[number] = np.asarray(upper(carried + near + distant, 3))
        wide = np.asarray(upper(np.sqrt(often)[:, None] * carried, 3))
        return Far(wide, wide, wide) if departing else None

    def arriving(self, number: int, deviations: dict[int, Array], own: Mapping[int, Array]) -> Array:
        """As for any flow; the result of a doubling is off by no more than the norms of its sources' errors say."""
        for earlier in needed(self.graph, number, self.stops):
            if earlier in deviations:
                continue
            plain = super().arriving(earlier, deviations, own)
            if earlier in self.often:
                distance = float(size_of(plain, self.often[earlier]))
                if earlier in self.doublings:
                    distance = min(distance, self._distance(self.doublings[earlier], deviations, own))
                    deviations[earlier] = np.minimum(plain, upper(distance / np.sqrt(self.often[earlier]), 3))
                self.distances[earlier] = distance
        return deviations[number]

    def _distance(self, doubling: Doubling, deviations: Mapping[int, Array], own: Mapping[int, Array]) -> float:
        off, total = self.distances[doubling.matrix], self._committed(doubling, deviations, own)
        for source in doubling.sources:
            total = float(upper(total + doubling.factor(source, off) * self.distances[source], 3))
        return total

    def _committed(self, doubling: Doubling, deviations: Mapping[int, Array], own: Mapping[int, Array]) -> float:
        """How far the result is off if the sources are exact."""
        off = self._from_exact(doubling.result, doubling.region, doubling.sources, deviations, own)
        return float(size_of(off, self.often[doubling.result]))

    # ---- errors that are committed inside of doublings, by norms --------------------------------------------

    def holds(self, number: int) -> bool:
        """Whether a node lies inside of a doubling."""
        return any(number in each.region for each in self.doublings.values())

    def outside(self, gains: Mapping[int, Gain]) -> dict[int, Gain]:
        """The gains, but nothing for what lies inside of doublings: `through` counts that."""
        inside: set[int] = set().union(*(each.region for each in self.doublings.values()))
        return {number: _none(gain) if number in inside else gain for number, gain in gains.items()}

    def through(self, gains: Mapping[int, Gain], own: Mapping[int, Array]) -> Array:
        """How far errors of at most `own` that are committed inside of doublings move the outputs, once `gains` are
        known: for each doubling by the norm at its result, or component by component."""
        total = np.zeros(self.graph.nodes[self.graph.output].size)
        for each in self.doublings.values():
            mine = {number: own[number] for number in each.region if number in own and number in gains}
            if not any(off.any() for off in mine.values()):
                continue
            by_norm = upper(self.gain_norms[each.result] * self._committed(each, {}, mine), 1)
            plain = np.zeros(len(total))
            for number, off in mine.items():
                plain = upper(plain + gains[number].magnitude.T @ off, len(off) + 2)
            total = np.asarray(upper(total + np.minimum(by_norm, plain), 1))
        return total


def _none(gain: Gain) -> Gain:
    return Gain(Interval(np.zeros_like(gain.here.low), np.zeros_like(gain.here.high)))
