"""Runs of a circuit in which every head is off by as much as the kernel says that it may be, the worst way.

A real head is off by what its scores make of it. Here a head returns its function at what arrives, plus any number that
the kernel allows it to commit. All rules by which errors travel (slopes, gains, folds, steps, norms, regions) must hold
for these runs: each head's own rule says no more about it. The circuit is evaluated from its nodes (circuit_values.py);
errors of every head, component and token are flipped from one end of their range to the other as long as that takes an
output further away from what the circuit means.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from headsmith.kernel.core.check import contents, facts_of
from headsmith.kernel.core.graph import needed
from headsmith.kernel.core.walk import Facts, Walk, walk_through
from headsmith.lab.attack.circuit_values import evaluated
from headsmith.lab.attack.file_attack import Worst

STARTS, TURNS = 10, 6
ROOM = 1e-6
"""A share of a bound for tables, which stand here for their function at what arrives."""
ROUNDED = 1e-17
"""A share of values for what is rounded here."""


def worst_share(
    header: Mapping[str, Any], tensors: Mapping[str, Any], outputs: Sequence[float], rng: np.random.Generator
) -> Worst:
    """The largest error that was found, over its bound, for a file that the kernel certifies: of an output, or of a
    node on the way to it, whose exact value must also lie in its range."""
    with np.errstate(all="ignore"):
        target, model, proof, box, _ = contents(header, dict(tensors))
        facts = facts_of(target, model, proof, box)
        walk = walk_through(facts)
        run = _Run(facts, *_committed(facts, walk), _bounds(facts, walk, outputs))
        moves = [node.targets for node in facts.circuit.nodes if node.targets]
        lengths = [n for n in {1, 2, model.tokens} if n <= model.tokens and all(max(each[:n]) < n for each in moves)]
        found = [run.climbed(_start(header["domain"], rng, lengths[k % len(lengths)]), rng) for k in range(STARTS)]
    return max(found, key=lambda each: each.ratio)


def _bounds(facts: Facts, walk: Walk, outputs: Sequence[float]) -> dict[int, Any]:
    """How far nodes may be off. Of those inside of a region that compares itself anew that is about other values than
    exact ones, and of joined moves it is not all that they may be off by."""
    apart = facts.proof.margins_of_reads.keys()
    found = {number: off.value for number, off in walk.final.items() if number not in apart}
    return found | {facts.circuit.output: np.maximum(np.asarray(outputs), 1e-300)}


def _start(domain: Any, rng: np.random.Generator, tokens: int) -> Any:
    """A sequence of the domain: anywhere, at corners, of equal tokens."""
    low, high = (np.asarray(domain[name], dtype=np.longdouble) for name in ("low", "high"))
    share = rng.random((tokens, len(low)))
    share = np.where(rng.random(share.shape) < rng.choice([0.0, 0.3, 1.0]), np.round(share), share)
    share = share if rng.random() < 0.7 else np.broadcast_to(share[:1], share.shape)
    return np.clip(low + (high - low) * share, low, high)


def _committed(facts: Facts, walk: Walk) -> tuple[dict[int, Any], dict[int, Any]]:
    """Between which numbers (size,) the kernel says that heads, tables, registers and the input are off, node by
    node."""
    low, high = dict[int, Any](), dict[int, Any]()
    for bank, local in walk.locals_:
        for number in np.unique(bank.node[bank.node >= 0]).tolist():
            mine, places = bank.node == number, bank.component[bank.node == number]
            rest = (local.leak + local.rounding).value[mine]
            low[number], high[number] = np.zeros((2, facts.circuit.nodes[number].size))
            low[number][places] = -local.below.value[mine] - rest
            high[number][places] = local.above.value[mine] + rest
    for number in facts.approximations.keys() & low.keys():
        error = facts.approximations[number]
        low[number], high[number] = low[number] + error.low, high[number] + error.high
    rounded = walk.own[0].value
    low[0], high[0] = low.get(0, 0.0) - rounded, high.get(0, 0.0) + rounded
    return low, high


@dataclass(frozen=True, eq=False)
class _Run:
    facts: Facts
    low: dict[int, Any]
    high: dict[int, Any]
    bounds: dict[int, Any]

    def climbed(self, x: Any, rng: np.random.Generator) -> Worst:
        """The largest share of a bound for one sequence: errors are flipped for the sake of the output, or of a node
        on the way to it."""
        circuit = self.facts.circuit
        needs = needed(circuit, [circuit.output])
        exact = evaluated(self.facts.proof.meant().nodes, needs, x[None])
        outside = [n for n in needs if self._outside(n, exact[n])]
        if outside:
            return Worst(np.inf, x, False, f"as it is: node {outside[0]} is beyond its range")
        watched = [number for number in needs if number in self.bounds]
        chosen = circuit.output if rng.random() < 0.7 else watched[int(rng.integers(len(watched)))]
        places = [number for number in needed(circuit, [chosen]) if number in self.low]
        ends = np.cumsum([0, *(len(x) * circuit.nodes[number].size for number in places)])

        def shares(sides: Any) -> Any:
            """The share of each run that `chosen` has, and the largest that any node has, with its number."""
            pushed = {}
            for number, first, last in zip(places, ends, ends[1:], strict=False):
                mine = sides[:, first:last].reshape(len(sides), len(x), -1)
                pushed[number] = np.where(mine, self.high[number], self.low[number])
            got = self._computed(chosen, np.broadcast_to(x, (len(sides), *x.shape)), pushed)
            every = {n: _share(got[n], exact[n], self.bounds[n]) for n in watched if n in got}
            worst = max(every, key=lambda n: float(every[n].max()))
            met.append((float(every[worst].max()), worst))
            return every[chosen]

        met: list[tuple[float, int]] = []
        sides = rng.random(int(ends[-1])) < 0.5
        score = float(shares(sides[None])[0])
        for _ in range(TURNS if len(sides) else 0):
            gains = shares(sides ^ np.eye(len(sides), dtype=bool)) - score
            few = [np.isin(np.arange(len(sides)), np.argsort(-gains)[:count]) for count in (1, 3)]
            tried = np.array([sides ^ (gains > 0.0), *(sides ^ each for each in few)])
            found = shares(tried)
            if not found.max() > score:
                break
            sides, score = tried[int(np.argmax(found))], float(found.max())
        share, node = max(met)
        return Worst(share, x, False, f"with every head off the worst way, at node {node}")

    def _outside(self, number: int, exact: Any) -> bool:
        """Whether an exact value is not in the range of its node."""
        around, room = self.facts.ranges[number], ROUNDED * (1.0 + np.abs(exact))
        return bool(np.any((exact < around.low - room) | (exact > around.high + room)))

    def _computed(self, chosen: int, x: Any, pushed: dict[int, Any]) -> Any:
        """All that a node needs, in a run in which heads are off by so much."""
        facts, circuit = self.facts, self.facts.circuit

        def changed(number: int, arguments: list[Any], value: Any) -> Any:
            if number in facts.slopes.gates:
                # A gate without a head passes what arrives, or nothing, whatever its sign is.
                has = np.isin(np.arange(circuit.nodes[number].size), facts.places.get(number, ()))
                value = np.where(has, value, arguments[0] * facts.slopes.gates[number].low)
            return value + pushed[number] if number in pushed else value

        return evaluated(circuit.nodes, [chosen], x, changed)


def _share(got: Any, exact: Any, bounds: Any) -> Any:
    """Error over bound, run by run, less what is rounded here."""
    error = np.maximum(np.abs(got - exact) - ROUNDED * (1.0 + np.abs(exact)), 0.0)
    return np.max(np.where(error > 0.0, error / bounds - ROOM, 0.0), axis=(1, 2))
