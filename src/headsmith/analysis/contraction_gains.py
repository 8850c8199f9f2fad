"""How deviations travel through steps that do not expand distances (`analysis.contraction`).

Let w' = f(w) be such a step, computed from a w~ that is off by D in the 2-norm. Compare with f(w~):

    |w~' - w'|  <=  |w~' - f(w~)| + |f(w~) - f(w)|  <=  (what happens inside the step) + q |D|,      q <= 1.

Inside, w~ counts as exact. Every token has its own copy of w~, and f wants one: copies differ by what the mean heads
commit, each in its own way, and a gradient step turns a difference d of copies into at most rate L d <= 2 d. The other
way round, an error at w moves the output by at most as much, in the 2-norm, as the same error at w'.

An exchange is a function of the values of w~ at all tokens: it wants no copies to be equal, and |D| is the largest of
any token, so nothing is added for that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from headsmith.analysis.contraction import Contraction, norm, shared_nodes, shrinkage
from headsmith.analysis.gains import Far, Gain
from headsmith.analysis.sensitivity import Flow, Shortcut, Slopes
from headsmith.core.arrays import Array
from headsmith.core.errors import CertificateError
from headsmith.core.rounding import magnitude_product, upper
from headsmith.source.graph import Affine, Graph, Pool, Relu, arguments, needed


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
        severed: frozenset[tuple[int, int]] = frozenset(),
    ) -> None:
        inside = frozenset((reader, step.source) for step in steps.values() for reader in step.region)
        super().__init__(graph, slopes, shortcuts, severed=inside | severed)
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

    def _known(self, number: int, rest: Gain, found: Mapping[int, Gain]) -> Far | None:
        """An error at the source of a step moves the output by at most as much as the same error at its result."""
        leaving = [step for step in self.leaving.get(number, []) if step.result in found]
        if number in self.steps or leaving:
            # Errors of different tokens may point anywhere: of what comes from afar the components add up.
            distant = 0.0 if rest.far is None else rest.far.size.sum(axis=0)
            self.gain_norms[number] = np.asarray(upper(norms(rest.here.magnitude) + distant, len(rest.here.low) + 2))
        if not leaving:
            return None
        outputs = rest.magnitude.shape[1]
        carried = sum(
            (self.factors.get(step.result, 1.0) * self.gain_norms[step.result] for step in leaving), np.zeros(outputs)
        )
        carried = upper(carried, len(leaving) + 1)
        self.gain_norms[number] = upper(carried + self.gain_norms[number], 1)
        wide = np.broadcast_to(carried, rest.magnitude.shape)
        return Far(wide, wide, wide)

    def arriving(self, number: int, deviations: dict[int, Array], own: Mapping[int, Array]) -> Array:
        """As for any flow; the result of a step is off by no more than its source and what happens inside."""
        for earlier in needed(self.graph, number, self.stops):
            if earlier in deviations:
                continue
            plain = super().arriving(earlier, deviations, own)
            self.apart[earlier] = self._copies(earlier, plain, own)
            step = self.steps.get(earlier)
            # Where all that reads the source is dead, nothing arrives from it.
            if step is not None and step.source in deviations and step.source in self.apart:
                off = super().arriving(step.features, deviations, own) if step.features >= 0 else np.zeros(1)
                factor = step.shrinkage(off)
                if not factor <= 1.0:
                    raise CertificateError(
                        f"the step at circuit node {earlier} may expand distances: its features are too far off for "
                        "its rate; choose a smaller rate"
                    )
                before = self.distances.get(step.source, norm(deviations[step.source]))
                uneven = 0.0
                if step.kind.kind != "exchange":
                    self.uneven[earlier] = np.full(len(plain), 2.0 * norm(self.apart[step.source]))
                    uneven = float(self.uneven[earlier].max(initial=0.0))
                inside = norm(self._from_exact(earlier, step.region, (step.source,), deviations, own))
                self.factors[earlier] = factor
                distance = float(upper(factor * before + inside + uneven, 4))
                self.distances[earlier] = distance
                deviations[earlier] = np.minimum(plain, distance)
                self.apart[earlier] = np.minimum(self.apart[earlier], upper(2.0 * deviations[earlier], 1))
        return deviations[number]

    def _from_exact(
        self,
        result: int,
        region: frozenset[int],
        sources: Sequence[int],
        deviations: Mapping[int, Array],
        own: Mapping[int, Array],
    ) -> Array:
        """How far the result of a region is off if its sources are exact."""
        known = {number: off for number, off in deviations.items() if number not in region}
        known |= {source: np.zeros(self.graph.nodes[source].size) for source in sources}
        return Flow.arriving(self, result, known, own)

    def _copies(self, number: int, plain: Array, own: Mapping[int, Array]) -> Array:
        """How far the node's deviations at two tokens can be apart: never more than twice what it is off by."""
        node = self.graph.nodes[number]
        either = np.asarray(upper(2.0 * plain, 1))
        if isinstance(node, Pool) and not node.causal:
            everything = upper(2.0 * own.get(number, np.full(node.size, np.inf)), 1)
            return np.asarray(self.noise.get(number, everything))
        committed = 2.0 * own.get(number, np.zeros(node.size))
        if number in self.stops or number in self.shortcuts or any(each not in self.apart for each in arguments(node)):
            # What is dead reads nothing, and what stands for a function passes its arguments' errors by its slopes.
            return either
        if isinstance(node, Relu) and number in self.shared:
            return np.asarray(np.minimum(either, upper(self.apart[node.argument] + committed, 2)))
        if isinstance(node, Affine):
            total = np.zeros(node.size)
            for term in node.terms:
                total = upper(total + magnitude_product(term.weights, self.apart[term.node]), 2)
            return np.asarray(np.minimum(either, upper(total + committed, 2)))
        return either
