"""How deviations travel through steps that do not expand distances (`source.contraction`).

Let w' = f(w) be such a step, computed from a w~ that is off by D in the 2-norm. Compare with f(w~):

    |w~' - w'|  <=  |w~' - f(w~)| + |f(w~) - f(w)|  <=  (what happens inside the step) + q |D|,      q <= 1.

Inside, w~ counts as exact. Every token has its own copy of w~, and f wants one: copies differ by what the mean heads
commit, each in its own way, and a gradient step turns a difference d of copies into at most rate L d <= 2 d. The other
way round, an error at w moves the output by at most as much, in the 2-norm, as the same error at w'.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from headsmith.core.arrays import Array
from headsmith.core.errors import CertificateError
from headsmith.core.intervals import Interval, add
from headsmith.core.rounding import magnitude_product, upper
from headsmith.source.contraction import Contraction, norm, shared_nodes, shrinkage
from headsmith.source.graph import Affine, Graph, Pool, Relu, needed
from headsmith.source.sensitivity import Flow, Shortcut, Slopes


@dataclass(frozen=True, eq=False)
class Step:
    """A step of a circuit: from node `source` to node `result`; `region` are the nodes in between and the result.

    `kind` is the step of the target, and `size` bounds its features, which are the node `features`.
    """

    source: int
    result: int
    region: frozenset[int]
    kind: Contraction
    features: int
    size: Array

    def shrinkage(self, off: Array) -> float:
        """By how much it shrinks distances, with features that are off by `off`; infinite if it may expand them."""
        return shrinkage(self.kind, np.asarray(upper(self.size + off, 1)))


def norms(values: Array) -> Array:
    """The 2-norms of columns, rounded up."""
    return np.asarray(upper(np.sqrt(upper(np.sum(values * values, axis=0), len(values) + 2)), 2))


def flow_of(
    graph: Graph,
    slopes: Mapping[int, Slopes],
    shortcuts: Mapping[int, Shortcut],
    steps: Mapping[int, Step],
) -> Flow:
    """The flow that knows the circuit's steps."""
    return SteppedFlow(graph, slopes, shortcuts, steps) if steps else Flow(graph, slopes, shortcuts)


class SteppedFlow(Flow):
    """A flow through a circuit with steps that do not expand, by their results."""

    def __init__(
        self,
        graph: Graph,
        slopes: Mapping[int, Slopes],
        shortcuts: Mapping[int, Shortcut],
        steps: Mapping[int, Step],
    ) -> None:
        super().__init__(graph, slopes, shortcuts)
        self.steps, self.shared = steps, shared_nodes(graph)
        self.leaving: dict[int, list[Step]] = {}
        for step in steps.values():
            self.leaving.setdefault(step.source, []).append(step)
        self.gain_norms: dict[int, Array] = {}
        self.distances: dict[int, float] = {}
        self.apart: dict[int, Array] = {}
        self.factors: dict[int, float] = {}
        """By how much steps shrink distances, once errors have arrived there; until then they do not expand."""
        self.noise: dict[int, Array] = {}
        """For means, how far their values at two tokens can be apart, where the caller knows better than their own."""
        self.uneven: dict[int, Array] = {}
        """For each result, what unequal copies of its source add to it."""

    def _gain(self, number: int, found: dict[int, Interval], outputs: int) -> Interval:
        leaving = [step for step in self.leaving.get(number, []) if step.result in found]
        if not leaving:
            total = super()._gain(number, found, outputs)
        else:
            total = self._rest(number, frozenset().union(*(step.region for step in leaving)), found, outputs)
            carried = sum(
                (self.factors.get(step.result, 1.0) * self.gain_norms[step.result] for step in leaving),
                np.zeros(outputs),
            )
            carried = upper(carried, len(leaving) + 1)
            self.gain_norms[number] = upper(carried + norms(total.magnitude), 1)
            wide = np.broadcast_to(carried, total.low.shape)
            total = add(total, Interval(-wide, wide))
        if number in self.steps and number not in self.gain_norms:
            whole = total.magnitude
            if number == self.graph.output:
                whole = whole + np.eye(outputs)
            self.gain_norms[number] = norms(whole)
        return total

    def _rest(self, number: int, region: frozenset[int], found: dict[int, Interval], outputs: int) -> Interval:
        """The gain through readers outside of the steps that leave here."""
        kept = self.affine_readers[number], self.gate_readers[number], self.shortcut_readers[number]
        self.affine_readers[number] = [reader for reader in kept[0] if reader.node not in region]
        self.gate_readers[number] = [gate for gate in kept[1] if gate not in region]
        self.shortcut_readers[number] = [(reader, slope) for reader, slope in kept[2] if reader not in region]
        try:
            return super()._gain(number, found, outputs)
        finally:
            self.affine_readers[number], self.gate_readers[number], self.shortcut_readers[number] = kept

    def arriving(self, number: int, deviations: dict[int, Array], own: Mapping[int, Array]) -> Array:
        """As for any flow; the result of a step is off by no more than its source and what happens inside."""
        for earlier in needed(self.graph, number, self.stops):
            if earlier in deviations:
                continue
            plain = super().arriving(earlier, deviations, own)
            self.apart[earlier] = self._copies(earlier, plain, own)
            if earlier in self.steps:
                step = self.steps[earlier]
                off = super().arriving(step.features, deviations, own) if step.features >= 0 else np.zeros(1)
                factor = step.shrinkage(off)
                if not factor <= 1.0:
                    raise CertificateError(
                        f"the step at circuit node {earlier} may expand distances: its features are too far off for "
                        "its rate; choose a smaller rate"
                    )
                before = self.distances.get(step.source, norm(deviations[step.source]))
                self.uneven[earlier] = np.full(len(plain), 2.0 * norm(self.apart[step.source]))
                inside = norm(self._inside(step, deviations, own))
                uneven = float(self.uneven[earlier].max(initial=0.0))
                self.factors[earlier] = factor
                distance = float(upper(factor * before + inside + uneven, 4))
                self.distances[earlier] = distance
                deviations[earlier] = np.minimum(plain, distance)
        return deviations[number]

    def _inside(self, step: Step, deviations: Mapping[int, Array], own: Mapping[int, Array]) -> Array:
        """How far the result is off if the source is exact."""
        known = dict(deviations)
        for number in step.region:
            known.pop(number, None)
        known[step.source] = np.zeros(self.graph.nodes[step.source].size)
        return Flow.arriving(self, step.result, known, own)

    def _copies(self, number: int, plain: Array, own: Mapping[int, Array]) -> Array:
        """How far the node's deviations at two tokens can be apart."""
        node = self.graph.nodes[number]
        if isinstance(node, Pool) and not node.causal:
            everything = upper(2.0 * own.get(number, np.full(node.size, np.inf)), 1)
            return np.asarray(self.noise.get(number, everything))
        if isinstance(node, Relu) and number in self.shared:
            committed = own.get(number, np.zeros(node.size))
            return np.asarray(upper(self.apart[node.argument] + 2.0 * committed, 2))
        if isinstance(node, Affine):
            total = np.zeros(node.size)
            for term in node.terms:
                total = upper(total + magnitude_product(term.weights, self.apart[term.node]), 2)
            return np.asarray(upper(total + 2.0 * own.get(number, np.zeros(node.size)), 2))
        return np.asarray(upper(2.0 * plain, 1))
