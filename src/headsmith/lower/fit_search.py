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
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from headsmith.core.arrays import Array
from headsmith.lower.fit_solve import Head, Problem, descend, level, project

REACHES = (1.2, 1.6, 2.5, 5.0, 15.0, 50.0)
SHARPNESSES = (0.02, 0.07, 0.2, 0.6, 2.0)
MIRROR = np.array([-1.0, 1.0])
DISTANCES = (2e-4, 2e-3, 2e-2, 2e-1)
# How many heads go on, for how many projections, unless their cost is beyond hope.
STAGES = ((8, 10, math.inf), (3, 30, 1e12), (2, 60, 1e7), (1, 100, 1e5))

Accept = Callable[[Head], bool]


@dataclass(frozen=True)
class Search:
    """What a search needs to know: the sampled problem, what counts as found, where to start."""

    problems: Callable[[int, float], Problem]  # of the number of tokens and the ridge
    ridges: tuple[float, ...]  # strongest first: large values are spent only where they save a token
    accept: Accept
    starts: Callable[[int], Iterator[Array]]
    max_tokens: int


def search(task: Search) -> Head | None:
    """The acceptable head with the fewest tokens that is found, or None."""
    head = grown(task)
    if head is None:
        return None
    strides = _strides(head)
    while strides:
        smaller = shrunk(task, head, len(head.keys) - strides.pop(0))
        if task.accept(smaller):
            head, strides = smaller, _strides(smaller)
    return head


def _strides(head: Head) -> list[int]:
    """How many tokens to try to remove at once: many at first, then one; or two, where an even denominator helps."""
    tokens = len(head.keys)
    strides = [tokens // 5, tokens // 10, 1] + ([2] if _symmetric(head.keys) else [])
    return [stride for stride in dict.fromkeys(strides) if 1 <= stride < tokens]


def grown(task: Search) -> Head | None:
    """The first acceptable head, with more and more tokens."""
    pool: list[Head] = []
    tokens = 1
    while True:
        problem = task.problems(tokens, task.ridges[0])
        heads = best_of(problem, task.starts(tokens), 4)
        for smaller in pool[:2]:
            heads += stepwise(problem, smaller.keys, tokens, additions, 2)
            heads += stepwise(problem, smaller.keys, tokens, mirrored_additions, 2)
        previous, pool = pool, attempt(task, heads)
        if VERBOSE: print("   ",tokens,[f"{h.cost**.5:.2e}" for h in pool],f"{pool[0].worst:.2e} V {np.abs(pool[0].values).max():.1e}")
        if task.accept(pool[0]):
            return pool[0]
        if tokens == task.max_tokens or (tokens >= 24 and _beyond_reach(previous[0], pool[0], task.max_tokens)):
            return None
        tokens = min(tokens + max(1, tokens // 3), task.max_tokens)

VERBOSE=False
def _beyond_reach(smaller: Head, larger: Head, max_tokens: int) -> bool:
    """Whether even three times the digits for each token that the last tokens brought would not do."""
    gained = 0.5 * math.log(max(smaller.cost / larger.cost, 1.0)) / (len(larger.keys) - len(smaller.keys))
    return math.log(max(larger.worst, 1.0)) > 3.0 * gained * (max_tokens - len(larger.keys))


def shrunk(task: Search, head: Head, tokens: int) -> Head:
    """The best head with so many tokens, fewer than `head` has: from it, from grids; then shaken."""
    problem = task.problems(tokens, task.ridges[0])
    fuller = descend(problem, project(problem, head.keys), 100)
    heads = stepwise(problem, fuller.keys, tokens, removals, 4) + best_of(problem, task.starts(tokens), 2)
    heads += stepwise(problem, fuller.keys, tokens, mirrored_removals, 2)
    heads = attempt(task, heads)
    if VERBOSE: print("   shrink",tokens,[f"{h.cost**.5:.2e}" for h in heads],f"{heads[0].worst:.2e} V {np.abs(heads[0].values).max():.1e}")
    if not task.accept(heads[0]) and heads[0].worst < 30.0:
        heads = attempt(task, [project(problem, keys) for keys in shaken(heads[0].keys)])
        if VERBOSE: print("   shaken",tokens,[f"{h.cost**.5:.2e}" for h in heads],f"{heads[0].worst:.2e} V {np.abs(heads[0].values).max():.1e}")
    return heads[0]


def attempt(task: Search, heads: list[Head]) -> list[Head]:
    """Polish heads of one size, under weaker and weaker ridges for as long as the ridge is a good part of the cost."""
    heads = tournament(task.problems(len(heads[0].keys), task.ridges[0]), heads, task.accept)
    near = heads
    for ridge in task.ridges[1:]:
        if task.accept(near[0]) or near[0].strain < 0.1 * near[0].cost:
            break
        problem = task.problems(len(heads[0].keys), ridge)
        near = tournament(problem, [project(problem, head.keys) for head in near], task.accept)
        if VERBOSE: print("       ridge",len(heads[0].keys),f"{near[0].cost**.5:.1e} {near[0].worst:.1e} {near[0].strain/near[0].cost:.1e}")
    return near if task.accept(near[0]) else heads


def tournament(problem: Problem, heads: list[Head], accept: Accept) -> list[Head]:
    """Polish all a little, the better ones more, the best one most; best first. Ends with the first acceptable head."""
    for survivors, evaluations, hopeless in STAGES:
        heads = sorted(heads, key=_cost)[: max(survivors, 2)]
        for place, head in enumerate(heads[:survivors]):
            if head.cost < hopeless:
                evaluations = math.ceil(evaluations * min(1.0, 20.0 / len(head.keys)))
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
    spacing = 2.0 / (tokens - 1)
    for reach in REACHES:
        for sharpness in SHARPNESSES:
            slope, curve = 2.0 * sharpness / (reach * spacing**2), sharpness / spacing**2
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
    distance = _distances(keys)
    for one in range(tokens):
        for other in np.argsort(distance[one], kind="stable")[: 2 * (columns - 1)]:
            for share, less in ((0.4, 0.0), (0.4, 3.0), (-0.7, 0.0), (-0.7, 3.0)):
                yield keys[one] + share * (keys[other] - keys[one]) - less * np.eye(columns)[-1]


def removals(keys: Array) -> Iterator[Array]:
    """The keys with one token fewer."""
    for token in range(len(keys)):
        yield np.delete(keys, token, axis=0)


def shaken(keys: Array) -> Iterator[Array]:
    """The keys, moved by parts of their distances and at random (the same random numbers every time)."""
    random = np.random.default_rng(0)
    gaps = np.sqrt(np.min(_distances(keys), axis=1))
    for size in (0.1, 0.1, 0.3, 0.3, 0.6, 0.6):
        moves = size * random.standard_normal(keys.shape)
        moves[:, :-1] *= gaps[:, None]
        yield keys + moves


def _distances(keys: Array) -> Array:
    """Squares of the distances between tokens; a token is far from itself."""
    slopes = keys[:, :-1]
    return np.asarray(np.sum((slopes[:, None] - slopes) ** 2, axis=2) + 1e300 * np.eye(len(keys)))
