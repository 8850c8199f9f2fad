"""Textbook attention in a format of few bits, every rounding pushed the worst way, against the rules of heads.

Numbers have BITS bits. Every operation returns one of the two next to the exact result: the one that makes the output
larger, if it is no further off than rounding to nearest may be in a format of one bit less (and in a sum no further off
than the smaller term, as nobody who rounds to nearest is). exp is off by four units in the last place of that format.
Features of queries and keys are those that model.py states, written out.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_heads import bank, gate, model, reads, sink, table

from headsmith.kernel.core.arithmetic import Array, Precision, Upper
from headsmith.kernel.core.heads import local_errors
from headsmith.kernel.core.model import KEY

BITS, DATA, GRID, TRIALS = 22, 16, 3, 300
TOY = Precision("toy", 2.0 ** (1 - BITS), 1e-300, 1e300)
CODES = (1.0 - 2.0 * (np.arange(DATA)[:, None] >> np.arange(4) & 1)).T
MINE, THEIRS = 5, 12  # a token, and one that it fetches from


def rounded(values: Any, way: Any = 0.0) -> Array:
    """The nearest number, or the next one upwards or downwards where `way` is positive or negative."""
    mantissa, exponent = np.frexp(values)
    scaled = np.ldexp(mantissa, BITS)
    found = np.where(way > 0.0, np.ceil(scaled), np.where(way < 0.0, np.floor(scaled), np.rint(scaled)))
    return np.ldexp(found, exponent - BITS)


def plus(a: Array, b: Array, way: Any) -> Array:
    pushed = rounded(a + b, way)
    return np.where(np.abs(pushed - (a + b)) <= np.minimum(np.abs(a), np.abs(b)), pushed, rounded(a + b))


def added(terms: Array, order: str, way: Any, rng: np.random.Generator) -> Array:
    """The sum over the last axis, in a random order: one by one, or in pairs of pairs."""
    parts = [terms[..., place] for place in rng.permutation(terms.shape[-1])]
    while len(parts) > 1:
        taken = len(parts) // 2 * 2 if order == "pairs" else 2
        sums = [plus(parts[place], parts[place + 1], way) for place in range(0, taken, 2)]
        parts = [*sums, *parts[taken:]]
    return parts[0]


def attention(features: list[tuple[Any, Array]], values: Array, order: str, rng: np.random.Generator) -> Array:
    """What a query gets: `features` are pairs of it and keys, of shapes (trials,) and (trials, tokens) or parts."""
    exact = sum(np.reshape(query, (-1, 1)) * keys for query, keys in features)
    weights = np.exp(exact - exact.max(axis=1, keepdims=True))
    wanted = (weights * values).sum(axis=1, keepdims=True) / weights.sum(axis=1, keepdims=True)
    way = np.sign(values - wanted)
    products = [rounded(np.reshape(query, (-1, 1)) * keys, way) for query, keys in features]
    scores = added(np.stack(products, axis=-1), order, way, rng)
    powers = np.exp(rounded(scores - scores.max(axis=1, keepdims=True), way))
    powers = rounded(powers * (1.0 + 7.9 * way * TOY.unit_roundoff))
    total = added(powers, order, -np.sign(wanted[:, 0]), rng)
    shares = rounded(powers / total[:, None], np.sign(values))
    return added(rounded(shares * values, 1.0), order, 1.0, rng)


def keys(sink: float = 0.0, grid: Any = 0.0, data: Any = 0.0) -> Array:
    """What the sink, the tokens of the grid and the data tokens hold, in this order."""
    grid, data = np.broadcast_to(grid, (GRID,)), np.asarray(data, dtype=float)
    data = np.broadcast_to(data, (*data.shape[:-1], DATA) if data.ndim else (DATA,))
    rest = np.broadcast_to(np.concatenate([[sink], grid]), (*data.shape[:-1], GRID + 1))
    return np.concatenate([rest, data], axis=-1)


def position(gain: float) -> list[tuple[Any, Array]]:
    bits = [(gain / 2 / KEY * code[MINE], keys(data=KEY * code)) for code in CODES]
    return [*bits, (KEY, keys(data=-gain * 4 / 2 / KEY))]


def uniform(rng: np.random.Generator, low: float, high: float, *shape: int) -> Array:
    return rounded(rng.uniform(low, high, shape or (TRIALS, DATA)))


def worst(kind: str, order: str, rng: np.random.Generator) -> float:
    """The largest share of the bound of leak and rounding (of all, for a maximum) that a head of this kind commits."""
    setting: dict[str, Any] = {"tokens": DATA, "grid": GRID, "precision": TOY}
    proven: tuple[Upper, ...] = ()
    z, i = uniform(rng, -1.0, 1.0), MINE
    if kind == "sink":
        only, known = sink(8.0, 24.0, 24.0), reads(-1.0, 1.0)
        features = [(8.0 * z[:, i], keys(data=1.0)), (0.0, keys(KEY)), *position(24.0), (KEY, keys(grid=-24.0 / KEY))]
        out, exact = attention(features, keys(data=z), order, rng), z[:, i] / (1.0 + np.exp(-8.0 * z[:, i]))
    elif kind == "table":
        slope, offset, values = np.array([-3.0, 0.5, 3.0]), np.array([0.25, 1.0, -0.5]), np.array([-2.0, 1.0, 4.0])
        only, known, setting["grid"] = table(slope, offset, values, 24.0), reads(-1.0, 1.0), GRID
        proven = (Upper(np.ones((1, 1))),)
        features = [(z[:, i], keys(grid=slope)), (1.0, keys(-24.0, offset, -24.0)), (0.0, keys(KEY))]
        out = attention(features, np.tile(keys(grid=values), (TRIALS, 1)), order, rng)
        powers = np.exp(z[:, i, None] * slope + offset)
        exact = powers @ values / powers.sum(axis=1)
    elif kind == "gate":
        slope, offset, x = np.array([-2.0, 0.5, 1.0]), np.array([-1.0, 0.5, -0.25]), uniform(rng, -1.0, 1.0)
        only, known = gate(slope, offset, 24.0, 24.0), reads([-1.0, -1.0], [1.0, 1.0])
        proven = (Upper(np.ones((1, 2))),)
        (*bits, (query, code)) = position(24.0)
        features = [
            (x[:, i], keys(grid=slope)),
            *bits,
            (query, code + keys(grid=offset / KEY)),
            (-24.0 / KEY, keys(KEY)),
        ]
        out = attention(features, keys(data=z), order, rng)
        exact = z[:, i] / (1.0 + np.exp(x[:, i, None] * slope + offset).sum(axis=1))
    elif kind == "mean":
        only, known = bank("mean", gain=24.0, keep_gain=24.0), reads(-1.0, 1.0)
        out, exact = (
            attention([(24.0 / KEY, keys(data=KEY)), (0.0, keys(KEY))], keys(data=z), order, rng),
            z.mean(axis=1),
        )
    elif kind == "boltzmann":
        only = bank("boltzmann", query_scale=[8.0], key_scale=[1.0], gain=32.0, keep_gain=24.0)
        z[:, 1:] = rounded(z[:, :1] / 4.0 - 0.27 + 0.02 * z[:, 1:])  # the others lie where the lemma is sharp
        z[:, 0] = z[:, 0] / 4.0
        known, features = reads(-1.0, 1.0), [(8.0, keys(data=z)), (32.0 / KEY, keys(data=KEY)), (0.0, keys(KEY))]
        out, exact = attention(features, keys(data=z), order, rng), z.max(axis=1)
    elif kind == "move":
        only, known = bank("move", gain=3.0, keep_gain=24.0), reads(-1.0, 1.0)
        features = [(3.0 / KEY * code[THEIRS], keys(data=KEY * code)) for code in CODES]
        out, exact = attention([*features, (0.0, keys(KEY))], keys(data=z), order, rng), z[:, THEIRS]
    else:
        only, known = bank("attend", forms=5, width=2, gain=32.0, keep_gain=24.0), reads(np.full(5, -1.0), np.ones(5))
        q, k = uniform(rng, -1.0, 1.0, 2, TRIALS), uniform(rng, -1.0, 1.0, 2, TRIALS, DATA)
        features = [(q[0], keys(data=k[0])), (q[1], keys(data=k[1])), (KEY, keys(-32.0 / KEY, -32.0 / KEY))]
        out = attention([*features, (0.0, keys(KEY))], keys(data=z), order, rng)
        powers = np.exp(np.einsum("ct,ctj->tj", q, k))
        exact = (powers * z).sum(axis=1) / powers.sum(axis=1)
    found = local_errors(model(only, **setting), only, known, *proven)
    bound = found.committed if kind == "boltzmann" else found.leak + found.rounding
    assert np.all(np.abs(out) <= found.reach.value[0])
    return float(np.max(np.abs(out - exact)) / bound.value[0])


SHARES = {"sink": 0.04, "table": 0.1, "gate": 0.1, "mean": 0.1, "boltzmann": 0.99, "move": 0.15, "attend": 0.1}
"""What is found at least: the bounds are put to a test."""


@pytest.mark.parametrize("order", ["one by one", "pairs"])
@pytest.mark.parametrize("kind", SHARES)
def test_no_head_commits_more_than_its_bound(kind: str, order: str) -> None:
    rng = np.random.default_rng(11)
    found = max(worst(kind, order, rng) for _ in range(4))
    assert SHARES[kind] <= found <= 1.0


@pytest.mark.parametrize("order", ["one by one", "pairs"])
def test_a_gate_where_its_lemma_is_sharp_commits_all_of_its_bound(order: str) -> None:
    """At |z| = (1 + W(1/e)) / b a gate is below the ReLU by W(1/e) / b; roundings make that no worse than is said."""
    rng, share = np.random.default_rng(12), []
    only = sink(8.0, 24.0, 24.0)
    found = local_errors(model(only, DATA, GRID, TOY), only, reads(-1.0, 1.0))
    for _ in range(4):
        z = uniform(rng, -1.0, 1.0)
        z[:, MINE] = rounded(np.sign(z[:, MINE]) * (1.2784645 / 8.0) * (1.0 + 1e-4 * z[:, MINE]))
        features = [
            (8.0 * z[:, MINE], keys(data=1.0)),
            (0.0, keys(KEY)),
            *position(24.0),
            (KEY, keys(grid=-24.0 / KEY)),
        ]
        off = attention(features, keys(data=z), order, rng) - np.maximum(z[:, MINE], 0.0)
        share.append(np.max(-off / found.committed.value[0]))
        assert np.all(off <= (found.leak + found.rounding).value[0])
    assert 0.99 <= max(share) <= 1.0
