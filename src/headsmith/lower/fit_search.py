"""The fewest tokens that meet the error: grids as first guesses, tokens added one at a time, each head polished.

Grids (variables scaled to t in [-1, 1]; k runs over an even grid of [-1, 1]):
    Gaussian     alpha = slope k, offset = -curve k^2: softmax of -(t - L_k)^2 / 2 width^2 with L_k = 2 (curve/slope) k and
                 width^2 = 2 curve / slope^2. A slope below 1 is the flat limit, where the weights span polynomials.
    geometric    alpha = -kappa / L_k, offset = -kappa ln L_k, L_k geometric: for a singularity at a distance past one end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from headsmith.core.arrays import Array
from headsmith.lower.fit_solve import Head, Problem, descend, level, project

SLOPES = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
CURVES = (0.5, 2.0, 8.0, 32.0)
DISTANCES = (2e-4, 2e-3, 2e-2, 2e-1)
Accept = Callable[[Head], bool]
Starts = Callable[[int], Iterator[Array]]


STAGES = ((8, 10, math.inf), (3, 30, 1e12), (2, 60, 1e8), (1, 100, 1e6))


def grids(tokens: int) -> Iterator[Array]:
    """First guesses of the keys for one variable."""
    even = np.linspace(-1.0, 1.0, tokens) if tokens > 1 else np.zeros(1)
    for slope in SLOPES:
        for curve in CURVES:
            if curve <= 4.0 * slope:
                yield np.stack([slope * even, -curve * even**2], axis=1)
    for distance in DISTANCES:
        for kappa in (1.0, 4.0):
            nodes = np.exp(np.linspace(math.log(distance / 4.0), math.log(8.0), tokens))
            # exp(-kappa (t + 1 + distance) / L) L^-kappa, as the end of the interval is at t = -1.
            alpha = -kappa / nodes
            keys = np.stack([alpha, alpha * (1.0 + distance) - kappa * np.log(nodes)], axis=1)
            for side in (1.0, -1.0):
                yield (keys - np.mean(keys, axis=0)) * np.array([side, 1.0])


def additions(keys: Array) -> Iterator[Array]:
    """The keys with one more token: between neighbours or past an end, with the weight of its surroundings or less."""
    for token in _new_tokens(keys):
        yield np.concatenate([keys, token[None]])


def mirrored_additions(keys: Array) -> Iterator[Array]:
    """Symmetric keys with a token and its mirror image more: a denominator that is even in t stays even."""
    order = np.argsort(keys[:, 0], kind="stable")
    mirror = np.array([-1.0, 1.0])
    if keys.shape[1] == 2 and np.allclose(keys[order], keys[order[::-1]] * mirror, atol=1e-2 * (1e-3 + np.ptp(keys))):
        for token in _new_tokens(keys):
            if token[0] > 0.0:
                yield np.concatenate([keys, token[None], token[None] * mirror])


def _new_tokens(keys: Array) -> Iterator[Array]:
    tokens, columns = keys.shape
    if tokens == 1:
        yield keys[0] + np.eye(columns)[0]
        return
    distance = np.sum((keys[:, None, :-1] - keys[None, :, :-1]) ** 2, axis=2) + 1e300 * np.eye(tokens)
    for one in range(tokens):
        for other in np.argsort(distance[one], kind="stable")[: 2 * (columns - 1)]:
            for share, less in ((0.4, 0.0), (0.4, 3.0), (-0.7, 0.0), (-0.7, 3.0)):
                yield keys[one] + share * (keys[other] - keys[one]) - less * np.eye(columns)[-1]


def removals(keys: Array) -> Iterator[Array]:
    """The keys with one token fewer."""
    for token in range(len(keys)):
        yield np.delete(keys, token, axis=0)


def best_of(problem: Problem, candidates: Iterable[Array], count: int) -> list[Head]:
    """The heads of least cost, before any polish."""
    return sorted((project(problem, keys) for keys in candidates), key=_cost)[:count]


def tournament(problem: Problem, heads: list[Head], accept: Accept) -> list[Head]:
    """Polish all a little, the better ones more, the best one most; best first. Ends with the first acceptable head."""
    for survivors, evaluations, hopeless in STAGES:
        heads = sorted(heads, key=_cost)[: max(survivors, 2)]
        for place, head in enumerate(heads[:survivors]):
            if head.cost < hopeless:
                heads[place] = descend(problem, head, evaluations, accept)
                if accept(heads[place]):
                    return [heads[place]]
    heads.sort(key=_cost)
    for place, head in enumerate(heads[:2]):
        if head.worst < 2.5:
            heads[place] = level(problem, head, accept)
            if accept(heads[place]):
                return [heads[place]]
    return heads


def search(problem: Problem, accept: Accept, max_tokens: int, starts: Starts = grids) -> Head | None:
    """The acceptable head with the fewest tokens that is found, or None."""
    pool: list[Head] = []
    tokens = 1
    while True:
        heads = best_of(problem, starts(tokens), 4)
        for smaller in pool[:2]:
            heads += enlarged(problem, smaller.keys, tokens, additions)
            heads += enlarged(problem, smaller.keys, tokens, mirrored_additions)
        pool = tournament(problem, heads, accept)
        if VERBOSE: print("   ",tokens,[f"{h.cost**.5:.2e}" for h in pool],f"{pool[0].worst:.2e} V {np.abs(pool[0].values).max():.1e}")
        if accept(pool[0]):
            return pool[0]
        if tokens == max_tokens:
            return None
        tokens = min(tokens + max(1, tokens // 4), max_tokens)


def enlarged(problem: Problem, keys: Array, tokens: int, more: Callable[[Array], Iterator[Array]]) -> list[Head]:
    """Heads with so many tokens, from fewer: always the best addition, then the next."""
    heads: list[Head] = []
    while len(keys) < tokens:
        heads = best_of(problem, (larger for larger in more(keys) if len(larger) <= tokens), 2)
        if not heads:
            return []
        keys = heads[0].keys
    return heads


VERBOSE=False
def shrunk(problem: Problem, head: Head, accept: Accept, starts: Starts = grids) -> Head:
    """The head with tokens removed for as long as an acceptable one is found."""
    while len(head.keys) > 1:
        fuller = descend(problem, project(problem, head.keys), 100)
        heads = best_of(problem, removals(fuller.keys), 4) + best_of(problem, starts(len(head.keys) - 1), 2)
        fewer = tournament(problem, heads, accept)
        if VERBOSE: print("   shrink",len(head.keys)-1,[f"{h.cost**.5:.2e}" for h in fewer],f"{fewer[0].worst:.2e} V {np.abs(fewer[0].values).max():.1e}")
        for round in range(SHAKES):
            if accept(fewer[0]) or not fewer[0].worst < 30.0: break
            more = tournament(problem, [project(problem, keys) for keys in shaken(fewer[0].keys, round)], accept)
            fewer = sorted(more + fewer, key=lambda h: (not accept(h), h.cost))
            if VERBOSE: print("   shake",len(head.keys)-1,[f"{h.cost**.5:.2e}" for h in fewer],f"{fewer[0].worst:.2e} V {np.abs(fewer[0].values).max():.1e}")
        if not accept(fewer[0]):
            break
        head = fewer[0]
    return head
SHAKES=0
def shaken(keys,round):
    rng=np.random.default_rng(round)
    for size in (.03,.03,.1,.1,.2,.2):
        yield keys + size * np.ptp(keys,axis=0) * rng.standard_normal(keys.shape)


def _cost(head: Head) -> float:
    return head.cost
