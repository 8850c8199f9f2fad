"""Runs of a circuit in which every head is off by as much as the kernel says that it may be, the worst way.

A real head is off by what its scores make of it. Here a head returns its function at what arrives, plus any number that
the kernel allows it to commit. All rules by which errors travel (slopes, gains, folds, steps, norms, regions) must hold
for these runs: each head's own rule says no more about it. The circuit is evaluated here from its nodes, in plain
numpy; errors of every head, component and token are flipped from one end of their range to the other as long as that
takes an output further away from what the circuit means.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from headsmith.core.functions import FUNCTIONS
from headsmith.kernel.functions import Program, run
from headsmith.kernel.graph import Graph, Node, needed
from headsmith.kernel.walk import Facts, Walk

Values = dict[int, Any]


def evaluated(
    nodes: Sequence[Node], numbers: Sequence[int], x: Any, changed: Callable[[int, list[Any], Any], Any]
) -> Values:
    """The values (..., tokens, size) of nodes and of all that they need; each is what `changed` makes of it."""
    found: Values = {}
    for number in needed(Graph(tuple(nodes), 0), numbers):
        arguments = [found[argument] for argument in nodes[number].arguments]
        found[number] = changed(number, arguments, _value(nodes[number], arguments, x))
    return found


def _value(node: Node, arguments: list[Any], x: Any) -> Any:
    match node.kind:
        case "input":
            return x
        case "positional":
            return np.broadcast_to(node.constants[: x.shape[-2]], (*x.shape[:-1], node.size))
        case "affine":
            total = np.broadcast_to(node.constants, (*x.shape[:-1], node.size))
            for weights, argument in zip(node.weights, arguments, strict=True):
                total = total + (argument * weights if weights.ndim == 1 else argument @ weights.T)
            return total
        case "relu":
            return np.maximum(arguments[0], 0.0)
        case "maximum":
            return np.max(arguments, axis=0)
        case "minimum":
            return np.min(arguments, axis=0)
        case "expression":
            return _run(node.program, arguments)
        case "pool":
            return _pooled(node, arguments[0])
        case "move":
            return _moved(node, arguments[0])
        case "exchange":
            value, above, below = arguments
            gap = value - _moved(node, value)
            return value - np.maximum(gap - above, 0.0) + np.maximum(-gap - below, 0.0)
        case "attend":
            return _attended(node, *arguments)
    raise NotImplementedError(node.kind)


def _run(program: Program, arguments: list[Any]) -> Any:
    return run(
        program,
        arguments,
        linear=lambda terms, constant: sum((x * float(c) for c, x in terms), start=float(constant)),
        call=lambda name, parameter, x: FUNCTIONS[name].value(x, parameter),
        times=lambda left, right: left * right,
    )


def _pooled(node: Node, values: Any) -> Any:
    tokens = values.shape[-2]
    pool = {"mean": np.mean, "max": np.max, "min": np.min}[node.name]
    rows = [pool(values[..., : token + 1 if node.causal else tokens, :], axis=-2) for token in range(tokens)]
    return np.stack(rows, axis=-2)


def _moved(node: Node, values: Any) -> Any:
    targets = np.array(node.targets[: values.shape[-2]])
    return np.where((targets < 0)[:, None], 0.0, values[..., np.maximum(targets, 0), :])


def _attended(node: Node, queries: Any, keys: Any, values: Any) -> Any:
    scores = queries @ np.swapaxes(keys, -1, -2)
    if node.causal:
        scores = np.where(np.tri(scores.shape[-1], dtype=bool), scores, -np.inf)
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return powers @ values / powers.sum(axis=-1, keepdims=True)


@dataclass(frozen=True, eq=False)
class Committed:
    """Between which numbers the heads of every node may be off: (size,) each."""

    low: dict[int, Any]
    high: dict[int, Any]


def committed(facts: Facts, walk: Walk) -> Committed:
    """What the kernel says that heads, tables and the input commit."""
    found = Committed({}, {})
    for bank, local in walk.locals_:
        for number in np.unique(bank.node[bank.node >= 0]).tolist():
            mine, size = bank.node == number, facts.circuit.nodes[number].size
            rest = (local.leak + local.rounding).value[mine]
            low, high = np.zeros((2, size))
            low[bank.component[mine]] = -local.below.value[mine] - rest
            high[bank.component[mine]] = local.above.value[mine] + rest
            found.low[number], found.high[number] = low, high
    for number, error in facts.approximations.items():
        if number in found.low:
            found.low[number], found.high[number] = found.low[number] + error.low, found.high[number] + error.high
    for number, held in (*walk.held.items(), (0, walk.own[0])):
        found.low[number] = found.low.get(number, 0.0) - held.value
        found.high[number] = found.high.get(number, 0.0) + held.value
    return found


def worst_share(
    facts: Facts, walk: Walk, bounds: Any, domain: Any, rng: np.random.Generator, *, starts: int = 24, turns: int = 6
) -> tuple[float, Any]:
    """The largest error over its bound that was found, and the sequence: over several inputs and tokens."""
    circuit, proof, errors = facts.circuit, facts.proof, committed(facts, walk)
    low, high = (np.asarray(domain[name], dtype=np.longdouble) for name in ("low", "high"))
    meant = proof.meant().nodes
    gates = {number: slope.low for number, slope in facts.slopes.gates.items()}
    places = [number for number in needed(circuit, [circuit.output]) if number in errors.low]
    best: tuple[float, Any] = (0.0, None)

    def changed(number: int, arguments: list[Any], value: Any) -> Any:
        if number in gates:
            has = np.isin(np.arange(circuit.nodes[number].size), facts.places.get(number, ()))
            value = np.where(has, value, arguments[0] * gates[number])
        return value + pushed[number] if number in pushed else value

    pushed: Values = {}
    lengths = sorted({1, 2, facts.model.tokens} & {*range(1, facts.model.tokens + 1)})
    moves = [node.targets for node in circuit.nodes if node.targets]
    lengths = [length for length in lengths if all(max(each[:length]) < length for each in moves)]
    for start in range(starts):
        tokens = lengths[start % len(lengths)]
        share = rng.random((tokens, len(low)))
        share = np.where(rng.random(share.shape) < rng.choice([0.0, 0.3, 1.0]), np.round(share), share)
        share = share if rng.random() < 0.7 else np.broadcast_to(share[:1], share.shape)
        x = np.clip(low + (high - low) * share, low, high)
        exact = evaluated(meant, [circuit.output], x[None], lambda number, arguments, value: value)[circuit.output]
        shapes = {number: (tokens, circuit.nodes[number].size) for number in places}
        sides = np.concatenate([rng.random(np.prod(shapes[number])) < 0.5 for number in places] or [np.zeros(0, bool)])
        ends = np.cumsum([0, *(int(np.prod(shapes[number])) for number in places)])

        def shares(chosen: Any) -> Any:
            pushed.clear()
            for number, first, last in zip(places, ends, ends[1:], strict=False):
                mine = chosen[:, first:last].reshape(-1, *shapes[number])
                pushed[number] = np.where(mine, errors.high[number], errors.low[number])
            every = np.broadcast_to(x, (len(chosen), *x.shape))
            got = evaluated(circuit.nodes, [circuit.output], every, changed)[circuit.output]
            return np.max(np.abs(got - exact) / bounds, axis=(1, 2))

        score = float(shares(sides[None])[0])
        for _ in range(turns if len(sides) else 0):
            flipped = sides ^ np.eye(len(sides), dtype=bool)
            gains = shares(flipped) - score
            order, candidates = np.argsort(-gains), [sides ^ (gains > 0.0)]
            candidates += [_flipped(sides, order[:count]) for count in (1, 2, 4)]
            found = shares(np.array(candidates))
            if not found.max() > score:
                break
            sides, score = candidates[int(np.argmax(found))], float(found.max())
        if score > best[0]:
            best = score, x
    return best


def _flipped(sides: Any, places: Any) -> Any:
    found = sides.copy()
    found[places] ^= True
    return found
