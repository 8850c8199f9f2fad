"""How perturbations travel through a circuit: an interval for the gain of every node, and bounds of accumulated errors.

Between two arguments a ReLU has a chord slope s in [0, 1]. If a gate's argument is off by D, its value is off by s D
plus the error e that the gate itself commits; affine nodes pass deviations on linearly. So the output moves by sum_n
c_n e_n, where the gains c obey, from the output backwards,

    c_n  =  sum over affine readers m of  W_mn^T c_m   +   sum over gates g reading n of  P_gn^T s_g c_g.

(Where nodes read other tokens, see gains.py: gains are found token by token, from each place where tokens meet.)

Correlation matters. A fold z' = z - 2 relu(z - t) does not amplify: its slope is 1 or -1. Treating z and the gate apart
would give 1 + 2 = 3 a level, 3^20 for a deep circuit. So where a gate writes into nodes that its argument's node also
reaches directly, the gains are collected first, c_z = c_z' (1 - 2 s) + ..., and since that is linear in s the hull of
the extreme slopes is enough. Gates that read the same direction at different thresholds switch in order, so only the
prefixes of that order are extreme (`_vertices`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from headsmith.analysis.collected import Collected, hull, largest_sum
from headsmith.analysis.gains import Far, Gain
from headsmith.core.arrays import Array, Indices
from headsmith.core.intervals import Interval, add, linear_image
from headsmith.core.rounding import magnitude_product, upper
from headsmith.source.graph import Affine, Graph, Mixing, Relu, Term, arguments, needed

COLLECT_LIMIT = 1 << 16
"""Wider nodes are treated without correlation."""


@dataclass(frozen=True, eq=False)
class Slopes:
    """Bounds of the chord slope of every gate of one relu node: [0, 1], or exactly 1 or 0 where the gate has no
    head."""

    low: Array
    high: Array


def slopes_on(circuit: Graph, ranges: Sequence[Interval]) -> dict[int, Slopes]:
    """The slopes when exactly the gates that may cross zero have a head."""
    found = {}
    for number, node in enumerate(circuit.nodes):
        if isinstance(node, Relu):
            argument = ranges[node.argument]
            alive = argument.high > 0.0
            active = alive & (argument.low >= 0.0)
            found[number] = Slopes(active.astype(np.float64), alive.astype(np.float64))
    return found


@dataclass(frozen=True, eq=False)
class _Reader:
    """An affine node or a relu node (through its argument) that reads a node, with the weights of that read."""

    node: int
    weights: Array


@dataclass(frozen=True, eq=False)
class Shortcut:
    """A stretch of circuit whose behaviour is known as a whole: a node that stands for a smooth function.

    What arrives at its arguments passes with the function's own slopes, instead of through the gates: their references
    are then their values at the arguments as they are, and the nodes of `region` (the node itself included) see no
    deviation of the arguments. For each argument the slopes are an interval vector, where the function acts component
    by component, or an interval matrix (to, from) that is symmetric about zero.
    """

    arguments: tuple[int, ...]
    slopes: tuple[Interval, ...]
    region: frozenset[int]

    def slopes_at(self, off: Mapping[int, Array]) -> tuple[Interval, ...]:
        """The slopes when the arguments are off by so much."""
        return self.slopes


class Flow:
    """The readers of every needed node of a circuit, and the deviations that travel along them."""

    def __init__(
        self,
        graph: Graph,
        slopes: Mapping[int, Slopes],
        shortcuts: Mapping[int, Shortcut] | None = None,
        output: int | None = None,
        severed: frozenset[tuple[int, int]] = frozenset(),
    ) -> None:
        """`output` is the node whose moves count, if not the graph's; `severed` are pairs (reader, argument) that gains
        do not pass, because something better is known of them."""
        self.graph, self.slopes, self.shortcuts = graph, slopes, shortcuts or {}
        self.output, self.severed = graph.output if output is None else output, severed
        self.arrived: Mapping[int, Array] = {}
        """How far nodes are off, where that is known by the time when gains are asked for."""
        self.mixing = {number for number in self.shortcuts if isinstance(graph.nodes[number], Mixing)}
        self.cut = {
            (reader, argument)
            for shortcut in self.shortcuts.values()
            for reader in shortcut.region
            for argument in shortcut.arguments
        }
        self.stops = {number for number, slope in slopes.items() if not slope.high.any()}
        # One token at a time: what a node that reads other tokens reads is somebody else's.
        self.order = needed(graph, self.output, self.stops | self.mixing)
        self.affine_readers: dict[int, list[_Reader]] = {number: [] for number in self.order}
        self.gate_readers: dict[int, list[int]] = {number: [] for number in self.order}
        self.shortcut_readers: dict[int, list[tuple[int, Interval]]] = {number: [] for number in self.order}
        passed_over = self.cut | severed
        for number in self.order:
            node = graph.nodes[number]
            if isinstance(node, Affine):
                for term in self._terms(number):
                    if (number, term.node) not in severed:
                        self.affine_readers[term.node].append(_Reader(number, term.weights))
            elif isinstance(node, Relu) and number not in self.stops and (number, node.argument) not in passed_over:
                self.gate_readers[node.argument].append(number)
            if number in self.shortcuts and number not in self.mixing:
                shortcut = self.shortcuts[number]
                for argument, slope in zip(shortcut.arguments, shortcut.slopes, strict=True):
                    # A circuit that is constant does not read its argument: whatever that is off by does not matter.
                    if argument in self.shortcut_readers and (number, argument) not in severed:
                        self.shortcut_readers[argument].append((number, slope))

    def _terms(self, number: int) -> list[Term]:
        """The terms of an affine node through which deviations arrive."""
        node = self.graph.nodes[number]
        terms = node.terms if isinstance(node, Affine) else ()
        return [term for term in terms if (number, term.node) not in self.cut]

    # ---- backwards: gains ------------------------------------------------------------------------------------------

    def gains(self) -> dict[int, Gain]:
        """For every needed node, how its errors move the output.

        Guarantee: whatever the slopes within their bounds are, and whatever they are at other tokens, the output moves
        by the sum over all nodes of what their `Gain` allows.
        """
        here, far = self.within(), dict[int, Far]()
        outputs, parts = self.graph.nodes[self.output].size, {self.output: here}
        found: dict[int, Gain] = {}

        def spread(place: int, moved: Far) -> None:
            """A place that errors of other tokens come through: all that it is made of, token by token."""
            if place not in parts:
                part = Flow(self.graph, self.slopes, self.shortcuts, place, self.severed)
                parts[place] = part.within()
            for number, slopes in parts[place].items():
                far[number] = moved.through(slopes).plus(far.get(number))

        for number in reversed(needed(self.graph, self.output, self.stops)):
            zero = np.zeros((self.graph.nodes[number].size, outputs))
            own = here.get(number, Interval(zero, zero))
            known = self._known(number, Gain(own, far.get(number)), found)
            if known is not None:
                spread(number, known)
            found[number] = Gain(own, far.get(number))
            if number in self.mixing:
                for argument, slopes in self._met(number):
                    spread(argument, found[number].anywhere.through(slopes))
        return found

    def _known(self, number: int, rest: Gain, found: Mapping[int, Gain]) -> Far | None:
        """What is known of a node's gain besides its readers: of those that `severed` leaves out."""
        return None

    def _met(self, number: int) -> list[tuple[int, Interval]]:
        """The arguments that a node reads at other tokens, with its slopes (argument, node), or one a component."""
        shortcut = self.shortcuts[number]
        pairs = zip(shortcut.arguments, shortcut.slopes_at(self.arrived), strict=True)
        return [
            (argument, Interval(slope.low.T, slope.high.T))
            for argument, slope in pairs
            if (number, argument) not in self.severed
        ]

    def within(self) -> dict[int, Interval]:
        """For every node that reaches the output without leaving the token, an interval matrix (size, outputs) that
        holds d output / d node.

        Guarantee: whatever the slopes within their bounds are, the output moves by sum_n c_n e_n with c_n in these
        intervals, e_n the errors at its own token.
        """
        outputs = self.graph.nodes[self.output].size
        found: dict[int, Interval] = {}
        for number in reversed(self.order):
            found[number] = self._gain(number, found, outputs)
            if number == self.output:
                found[number] = add(found[number], Interval(np.eye(outputs), np.eye(outputs)))
        return found

    def _gain(self, number: int, found: dict[int, Interval], outputs: int) -> Interval:
        direct, paths = self.affine_readers[number], self._paths(number)
        zero = np.zeros((self.graph.nodes[number].size, outputs))
        total = Interval(zero, zero)
        if self._worth_collecting(number, direct, paths):
            total = self._collected_gain(number, direct, paths, found)
        else:
            for reader in direct:
                total = add(total, linear_image(reader.weights.T, found[reader.node]))
            for gate in self.gate_readers[number]:
                slopes = self.slopes[gate]
                total = add(total, _sloped(Interval(slopes.low, slopes.high), found[gate]))
        for shortcut, slope in self.shortcut_readers[number]:
            total = add(total, _sloped(slope, found[shortcut]))
        return total

    def _worth_collecting(self, number: int, direct: list[_Reader], paths: list[_Reader]) -> bool:
        size = self.graph.nodes[number].size
        if not paths or size * sum(self.graph.nodes[path.node].size for path in paths) > COLLECT_LIMIT:
            return False
        if any(not self._only_read_affinely(path.node) for path in paths):
            return False
        reached = {reader.node for reader in direct}
        feedback = any(reader.node in reached for path in paths for reader in self.affine_readers[path.node])
        parallel = size == 1 and any(len(path.weights) > 1 for path in paths)
        return feedback or parallel

    def _only_read_affinely(self, number: int) -> bool:
        others = self.gate_readers[number] or self.shortcut_readers[number]
        return not others and number != self.output

    def _only_feeds_gates(self, number: int) -> bool:
        others = self.affine_readers[number] or self.shortcut_readers[number]
        return not others and number != self.output and bool(self.gate_readers[number])

    def _paths(self, number: int) -> list[_Reader]:
        """Gates that read `number` through one affine argument (or directly), with the weights of that read."""
        paths = [_Reader(gate, np.ones(self.graph.nodes[gate].size)) for gate in self.gate_readers[number]]
        for reader in self.affine_readers[number]:
            if self._only_feeds_gates(reader.node):
                paths.extend(_Reader(gate, reader.weights) for gate in self.gate_readers[reader.node])
        return paths

    def _collected_gain(
        self, number: int, direct: list[_Reader], paths: list[_Reader], found: dict[int, Interval]
    ) -> Interval:
        through = {self._argument(gate.node) for gate in paths}
        readers = [reader for reader in direct if reader.node not in through]
        successors = {reader.node for reader in readers}
        successors |= {reader.node for gate in paths for reader in self.affine_readers[gate.node]}
        places, total = {}, 0
        for successor in sorted(successors):
            places[successor] = slice(total, total + self.graph.nodes[successor].size)
            total += self.graph.nodes[successor].size
        later = Interval(
            *(np.concatenate([getattr(found[s], end) for s in sorted(successors)]) for end in ("low", "high"))
        )
        rows = []
        for component in range(self.graph.nodes[number].size):
            base = np.zeros(total)
            for reader in readers:
                base[places[reader.node]] += _column(reader.weights, component)
            rows.append(hull(Collected(base, self._groups(paths, component, places, total)), later))
        return Interval(np.stack([row.low for row in rows]), np.stack([row.high for row in rows]))

    def _argument(self, gate: int) -> int:
        node = self.graph.nodes[gate]
        assert isinstance(node, Relu)
        return node.argument

    def _groups(self, paths: list[_Reader], component: int, places: dict[int, slice], total: int) -> list[Array]:
        """For each group of gates that switch in order, the possible sums of what they add: one row a vertex."""
        groups = []
        for path in paths:
            read = _column(path.weights, component)
            gates = np.flatnonzero(read).astype(np.int64)
            adds = np.zeros((len(gates), total))
            for reader in self.affine_readers[path.node]:
                adds[:, places[reader.node]] += _columns(reader.weights, gates).T * read[gates, None]
            for members in self._ordered(path.node, gates, read):
                groups.append(self._vertices(path.node, gates[members], adds[members]))
        return groups

    def _ordered(self, gate: int, gates: Indices, read: Array) -> list[Indices]:
        """Split gates into runs of proportional reads, each sorted so that an earlier gate switches no later.

        Gates of one relu node whose argument has a single scalar source read w (z - t): with w > 0 the chord slope
        falls with t, and with w < 0 it grows with t.
        """
        argument = self.graph.nodes[self._argument(gate)]
        if len(gates) == 1:
            return [np.arange(1, dtype=np.int64)]
        single = isinstance(argument, Affine) and len(argument.terms) == 1 and argument.terms[0].weights.ndim == 2
        if not (single and isinstance(argument, Affine) and argument.terms[0].weights.shape[1] == 1):
            return [np.array([index]) for index in range(len(gates))]
        # Exact thresholds: the order must not depend on rounding.
        threshold = [-Fraction(argument.bias[gate]) / Fraction(read[gate]) for gate in gates]
        order = sorted(range(len(gates)), key=threshold.__getitem__)
        rising = np.array([index for index in order if read[gates[index]] > 0.0], dtype=np.int64)
        falling = np.array([index for index in reversed(order) if read[gates[index]] < 0.0], dtype=np.int64)
        return [run for run in (rising, falling) if len(run)]

    def _vertices(self, gate: int, gates: Indices, adds: Array) -> Array:
        slopes = self.slopes[gate]
        if len(gates) == 1:
            return np.stack([adds[0] * slopes.low[gates[0]], adds[0] * slopes.high[gates[0]]])
        fixed = slopes.low[gates] == slopes.high[gates]
        base = (adds[fixed] * slopes.low[gates][fixed, None]).sum(axis=0)
        prefixes = np.cumsum(adds[~fixed], axis=0)
        return np.asarray(base + np.concatenate([np.zeros((1, adds.shape[1])), prefixes]))

    # ---- forwards: how far values can be off -----------------------------------------------------------------------

    def arriving(self, number: int, deviations: dict[int, Array], own: Mapping[int, Array]) -> Array:
        """A bound of how far the node's value is off, from `own`: what gates and approximated nodes commit themselves.

        `deviations` holds what is already known and receives what is found.
        """
        for earlier in needed(self.graph, number, self.stops):
            if earlier in deviations:
                continue
            node = self.graph.nodes[earlier]
            committed = own.get(earlier, np.zeros(node.size))
            if committed.any() or any(deviations[each].any() for each in arguments(node) if each in deviations):
                deviations[earlier] = upper(self._deviation(earlier, deviations, own) + committed, 2)
            else:
                # Nothing arrives and nothing is committed: exactly zero, without the crumbs of rounding up.
                deviations[earlier] = np.zeros(node.size)
        return deviations[number]

    def _deviation(self, number: int, known: dict[int, Array], own: Mapping[int, Array]) -> Array:
        node = self.graph.nodes[number]
        if number in self.stops:
            return np.zeros(node.size)
        if isinstance(node, Relu):
            if (number, node.argument) in self.cut:
                return np.zeros(node.size)
            return np.asarray(upper(known[node.argument] * self.slopes[number].high, 1))
        passed: Array = np.zeros(node.size)
        if number in self.shortcuts:
            shortcut = self.shortcuts[number]
            for slope, argument in zip(shortcut.slopes_at(known), shortcut.arguments, strict=True):
                if argument in known:
                    passed = upper(passed + magnitude_product(slope.magnitude, known[argument]), 3)
        return np.asarray(upper(passed + self._affine_deviation(number, known, own), 1))

    def _affine_deviation(self, number: int, known: dict[int, Array], own: Mapping[int, Array]) -> Array:
        size, terms = self.graph.nodes[number].size, self._terms(number)
        plain: Array = np.zeros(size)
        for term in terms:
            plain = upper(plain + magnitude_product(term.weights, known[term.node]), 2)
        gates = sum(term.weights.shape[-1] for term in terms)
        if self._feeds_back(terms) and size * gates <= COLLECT_LIMIT:
            tight = [self._collected_deviation(terms, row, known, own) for row in range(size)]
            return np.asarray(np.minimum(plain, np.array(tight)))
        return plain

    def _feeds_back(self, terms: list[Term]) -> bool:
        direct = {term.node for term in terms if not isinstance(self.graph.nodes[term.node], Relu)}
        return any(direct & self._sources(term.node) for term in terms if self._moves(term.node))

    def _moves(self, number: int) -> bool:
        """Whether the node is a gate node that is not zero throughout."""
        return isinstance(self.graph.nodes[number], Relu) and number not in self.stops

    def _sources(self, gate: int) -> set[int]:
        argument = self._argument(gate)
        return {term.node for term in self._terms(argument)} | {argument}

    def _collected_deviation(
        self, terms: list[Term], row: int, known: dict[int, Array], own: Mapping[int, Array]
    ) -> float:
        """|1 - 2 s| D + 2 e instead of (1 + 2) D + 2 e: collect the coefficients of each source, then take extreme
        slopes."""
        direct = [term for term in terms if not isinstance(self.graph.nodes[term.node], Relu)]
        gates = [term for term in terms if self._moves(term.node)]
        sources: dict[int, slice] = {}
        total, committed = 0, 0.0
        for number in sorted(
            {term.node for term in direct} | {s for term in gates for s in self._read_terms(term.node)}
        ):
            sources[number] = slice(total, total + self.graph.nodes[number].size)
            total += self.graph.nodes[number].size
        base = np.zeros(total)
        for term in direct:
            base[sources[term.node]] += _row(term.weights, row)
        for term in terms:
            if term.node in self.stops:
                committed += float(np.abs(_row(term.weights, row)) @ known[term.node])
        groups = []
        for term in gates:
            weights, reads = _row(term.weights, row), self._read_terms(term.node)
            for gate in np.flatnonzero(weights):
                adds = np.zeros(total)
                for number, matrix in reads.items():
                    adds[sources[number]] += weights[gate] * _row(matrix, int(gate))
                slopes = self.slopes[term.node]
                groups.append(np.stack([adds * slopes.low[gate], adds * slopes.high[gate]]))
            argument = self._argument(term.node)
            for place in {term.node, argument} - set(reads):
                committed += float(np.abs(weights) @ own[place]) if place in own else 0.0
        sizes = np.concatenate([known[number] for number in sources]) if sources else np.zeros(0)
        return largest_sum(Collected(base, groups), sizes) + float(upper(committed, total + len(gates) + 4))

    def _read_terms(self, gate: int) -> dict[int, Array]:
        """What a gate reads, through its affine argument if nothing is committed there."""
        number = self._argument(gate)
        argument = self.graph.nodes[number]
        if not isinstance(argument, Affine) or number in self.shortcuts:
            return {number: np.ones(argument.size)} if (gate, number) not in self.cut else {}
        reads: dict[int, Array] = {}
        for term in self._terms(number):
            weights = np.diag(term.weights) if term.diagonal and term.node in reads else term.weights
            if term.node in reads:
                before = reads[term.node]
                weights = weights + (np.diag(before) if before.ndim == 1 else before)
            reads[term.node] = weights
        return reads


def _sloped(slopes: Interval, gain: Interval) -> Interval:
    """Every product of slopes and a gain (size, outputs): a slope for each component, or a matrix (size, from)."""
    if slopes.low.ndim == 2:
        size = upper(slopes.magnitude.T @ gain.magnitude, len(slopes.low) + 2)
        return Interval(-size, size)
    ends = [(gain_end.T * slope_end) for gain_end in (gain.low, gain.high) for slope_end in (slopes.low, slopes.high)]
    low, high = np.minimum.reduce(ends).T, np.maximum.reduce(ends).T
    return Interval(np.nextafter(low, -np.inf), np.nextafter(high, np.inf))


def _column(weights: Array, component: int) -> Array:
    if weights.ndim == 2:
        return np.asarray(weights[:, component])
    column = np.zeros(len(weights))
    column[component] = weights[component]
    return column


def _columns(weights: Array, components: Indices) -> Array:
    return np.asarray((np.diag(weights) if weights.ndim == 1 else weights)[:, components])


def _row(weights: Array, row: int) -> Array:
    return np.asarray(weights[row]) if weights.ndim == 2 else _column(weights, row)
