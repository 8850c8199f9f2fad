"""The fewest tokens that meet the error: grids as first guesses, tokens added, each head polished, tokens removed.

First guesses (the variable scaled to t in [-1, 1]; k runs over an even grid of [-1, 1]):
    Gaussian     alpha = slope k, offset = -curve k^2: softmax of -(t - L_k)^2 / (2 width^2) with L_k = 2 (curve / slope) k and
                 width^2 = 2 curve / slope^2. Small slopes are the flat limit, where the weights span polynomials.
    geometric    alpha = -kappa / L_k, offset = -kappa ln L_k, L_k geometric: for a singularity not far past one end.
They need not be good: the polish moves every key. Removing tokens from a head that is good enough finds better valleys
than adding them to one that is not, so the search grows in strides and comes back one by one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from headsmith.core.arrays import Array
from headsmith.lower.fit_solve import Head, Problem, descend, level, project

SLOPES = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
CURVES = (0.5, 2.0, 8.0, 32.0)
MIRROR = np.array([-1.0, 1.0])
DISTANCES = (2e-4, 2e-3, 2e-2, 2e-1)
# How many heads go on, for how many projections, unless their cost is beyond hope.
STAGES = ((8, 10, math.inf), (3, 30, 1e12), (2, 60, 1e7), (1, 100, 1e5))

Accept = Callable[[Head], bool]
Problems = Callable[[int, float], Problem]  # of the number of tokens and the ridge
Starts = Callable[[int], Iterator[Array]]


def search(
    problems: Problems, ridges: Sequence[float], accept: Accept, max_tokens: int, starts: Starts
) -> Head | None:
    """The acceptable head with the fewest tokens that is found, or None.

    Ridges come strongest first: large values are spent only where they save a token.
    """
    head: Head | None = None
    for ridge in ridges:
        if head is None:
            head = grown(problems, ridge, accept, max_tokens, starts)
        near: list[Head] = []
        fewer = _strides(head)
        while head is not None and fewer:
            tokens = len(head.keys) - fewer.pop(0)
            near = shrunk(problems(tokens, ridge), head, tokens, near, accept, starts)
            if accept(near[0]):
                head, near = near[0], []
                fewer = _strides(head)
    return head


def _strides(head: Head | None) -> list[int]:
    """How many tokens to try to remove at once: many at first, then one; or two, where an even denominator helps."""
    if head is None:
        return []
    tokens = len(head.keys)
    many = [stride for stride in (tokens // 5, tokens // 10, 1) if stride >= 1]
    pair = [2] if _symmetric(head.keys) else []
    return [stride for stride in dict.fromkeys(many + pair) if stride < tokens]


def grown(problems: Problems, ridge: float, accept: Accept, max_tokens: int, starts: Starts) -> Head | None:
    """The first acceptable head, with more and more tokens."""
    pool: list[Head] = []
    tokens = 1
    while True:
        problem = problems(tokens, ridge)
        heads = best_of(problem, starts(tokens), 4)
        for smaller in pool[:2]:
            heads += stepwise(problem, smaller.keys, tokens, additions, 2)
            heads += stepwise(problem, smaller.keys, tokens, mirrored_additions, 2)
        previous, pool = pool, tournament(problem, heads, accept)
        if VERBOSE: print("   ",tokens,[f"{h.cost**.5:.2e}" for h in pool],f"{pool[0].worst:.2e} V {np.abs(pool[0].values).max():.1e}")
        if accept(pool[0]):
            return pool[0]
        if tokens == max_tokens or (tokens >= 24 and _beyond_reach(previous[0], pool[0], max_tokens)):
            return None
        tokens = min(tokens + max(1, tokens // 3), max_tokens)

VERBOSE=False
def _beyond_reach(smaller: Head, larger: Head, max_tokens: int) -> bool:
    """Whether even three times the digits for each token that the last tokens brought would not do."""
    gained = 0.5 * math.log(max(smaller.cost / larger.cost, 1.0)) / (len(larger.keys) - len(smaller.keys))
    return math.log(max(larger.worst, 1.0)) > 3.0 * gained * (max_tokens - len(larger.keys))


def shrunk(
    problem: Problem, head: Head, tokens: int, near: Iterable[Head], accept: Accept, starts: Starts
) -> list[Head]:
    """Heads with so many tokens, best first: from a larger one, from near misses, from grids; then shaken."""
    fuller = descend(problem, project(problem, head.keys), 100)
    heads = stepwise(problem, fuller.keys, tokens, removals, 4) + best_of(problem, starts(tokens), 2)
    if _symmetric(fuller.keys):
        heads += stepwise(problem, fuller.keys, tokens, mirrored_removals, 2)
    heads += [project(problem, other.keys) for other in near if len(other.keys) == tokens]
    heads = tournament(problem, heads, accept)
    if VERBOSE: print("   shrink",tokens,[f"{h.cost**.5:.2e}" for h in heads],f"{heads[0].worst:.2e} V {np.abs(heads[0].values).max():.1e}")
    if not accept(heads[0]) and heads[0].worst < 30.0:
        again = tournament(problem, [project(problem, keys) for keys in shaken(heads[0].keys)], accept)
        heads = sorted(heads + again, key=lambda head: (not accept(head), head.cost))
        if VERBOSE: print("   shaken",tokens,[f"{h.cost**.5:.2e}" for h in heads],f"{heads[0].worst:.2e} V {np.abs(heads[0].values).max():.1e}")
    return heads[:2]


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
    for place, head in enumerate(heads):
        if head.worst < 2.5:
            heads[place] = level(problem, head, accept)
            if accept(heads[place]):
                return [heads[place]]
    return heads


def best_of(problem: Problem, candidates: Iterable[Array], count: int) -> list[Head]:
    """The heads of least cost, before any polish."""
    return sorted((project(problem, keys) for keys in candidates), key=_cost)[:count]


def _cost(head: Head) -> float:
    return head.cost


def grids(tokens: int) -> Iterator[Array]:
    """First guesses of the keys for one variable."""
    if tokens == 1:
        yield np.zeros((1, 2))
        return
    even = np.linspace(-1.0, 1.0, tokens)
    for slope in SLOPES:
        for curve in CURVES:
            if curve <= 4.0 * slope:
                yield np.stack([slope * even, -curve * even**2], axis=1)
    for distance in DISTANCES:
        for kappa in (1.0, 4.0):
            nodes = np.exp(np.linspace(math.log(distance / 4.0), math.log(8.0), tokens))
            # The weight exp(-kappa (t + 1 + distance) / L) L^-kappa, for an end of the domain at t = -1.
            alpha = -kappa / nodes
            keys = np.stack([alpha, alpha * (1.0 + distance) - kappa * np.log(nodes)], axis=1)
            for side in (1.0, -1.0):
                yield (keys - np.mean(keys, axis=0)) * np.array([side, 1.0])


def stepwise(problem: Problem, keys: Array, tokens: int, steps: Callable[[Array], Iterator[Array]], count: int) -> list[Head]:
    """Heads with so many tokens from a head with more or fewer: always the best step, then the next."""
    heads: list[Head] = []
    while len(keys) != tokens:
        distance = abs(len(keys) - tokens)
        heads = best_of(problem, (other for other in steps(keys) if abs(len(other) - tokens) < distance), count)
        if not heads:
            return []
        keys = heads[0].keys
    return heads


def additions(keys: Array) -> Iterator[Array]:
    """The keys with one more token."""
    for token in _new_tokens(keys):
        yield np.concatenate([keys, token[None]])


def mirrored_additions(keys: Array) -> Iterator[Array]:
    """Symmetric keys with a token and its mirror image more: a denominator that is even in t stays even."""
    if _symmetric(keys):
        for token in _new_tokens(keys):
            if token[0] > 0.0:
                yield np.concatenate([keys, token[None], token[None] * MIRROR])


def mirrored_removals(keys: Array) -> Iterator[Array]:
    """Symmetric keys without a token and its mirror image."""
    if _symmetric(keys):
        order = np.argsort(keys[:, 0], kind="stable")
        for place in range(len(keys) // 2):
            yield np.delete(keys, [order[place], order[-1 - place]], axis=0)


def _symmetric(keys: Array) -> bool:
    if keys.shape[1] != 2:
        return False
    order = np.argsort(keys[:, 0], kind="stable")
    close = 1e-2 * (np.ptp(keys, axis=0) + 1e-3)
    return bool(np.all(np.abs(keys[order] - keys[order[::-1]] * MIRROR) <= close))


def _new_tokens(keys: Array) -> Iterator[Array]:
    """Between neighbours or past an end, with the weight of the surroundings or less."""
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


def shaken(keys: Array) -> Iterator[Array]:
    """The keys, moved a little and at random (the same random numbers every time)."""
    random = np.random.default_rng(0)
    for size in (0.03, 0.03, 0.1, 0.1, 0.2, 0.2):
        yield keys + size * np.ptp(keys, axis=0) * random.standard_normal(keys.shape)
