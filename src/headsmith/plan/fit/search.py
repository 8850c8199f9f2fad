"""The fewest tokens that meet the error: grids as first guesses, tokens added, every head polished, tokens removed.

First guesses for one variable, scaled to t in [-1, 1]:
    Gaussian     softmax of -sharpness ((t - L_k) / h)^2 on an even grid of [-reach, reach] with spacing h. A large
                 reach is the flat limit, where the weights span polynomials.
    geometric    alpha = -kappa / L_k, offset = -kappa ln L_k, L_k geometric: for a singularity not far past one end.
They need not be good: the polish moves every key. Removing tokens from a head that is good enough finds better valleys
than adding them to one that is not, so the search grows in strides and comes back in smaller ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from headsmith.core.arrays import Array
from headsmith.plan.fit.solve import Problem, TableHead, descend, level, project

REACHES = (1.2, 1.6, 2.5, 5.0, 15.0, 50.0)
SHARPNESSES = (0.02, 0.07, 0.2, 0.6, 2.0)
DISTANCES = (2e-4, 2e-3, 2e-2, 2e-1)
KAPPAS = (1.0, 4.0)
MIRROR = np.array([-1.0, 1.0])

# How many heads go on, for how many projections each, unless their cost is beyond hope.
STAGES = ((8, 16, math.inf), (4, 40, 1e12), (2, 80, 1e7), (1, 150, 1e5))
FULL_EFFORT_TOKENS = 20
MOST_MOVES = 64
# With so many tokens, growth stops if even so many times the digits that each of the last tokens brought would not do.
HOPE_TOKENS, HOPE = 24, 3.0

Accept = Callable[[TableHead], bool]
Moves = Callable[[Array], Iterator[Array]]


@dataclass(frozen=True)
class Search:
    """What a search needs to know: the sampled problem, what counts as found, where to start, when to stop."""

    problems: Callable[[int, float], Problem]  # of the number of tokens and the ridge
    ridges: tuple[float, ...]  # strongest first: large values are spent only where they save a token
    accept: Accept
    starts: Callable[[int], Iterator[Array]]
    max_tokens: int
    least_tokens: int = 1  # where to start
    fewest: int = 1  # fewer have been looked for already, in vain


def search(task: Search, head: TableHead | None = None) -> TableHead | None:
    """The acceptable head with the fewest tokens that is found, or None. `head` is an acceptable one, if known."""
    head = head or grown(task)
    strides = _strides(task, head)
    while head is not None and strides and not head.problem.meter.empty:
        smaller = shrunk(task, head, head.tokens - strides.pop(0))
        if task.accept(smaller):
            head, strides = smaller, _strides(task, smaller)
    return head


def _strides(task: Search, head: TableHead | None) -> list[int]:
    """How many tokens to try to remove at once: many at first, then one; or two, where an even denominator helps."""
    if head is None:
        return []
    strides = [head.tokens // 5, head.tokens // 10, 1] + ([2] if _symmetric(head.keys) else [])
    return [stride for stride in dict.fromkeys(strides) if 1 <= stride <= head.tokens - task.fewest]


def grown(task: Search) -> TableHead | None:
    """The first acceptable head, with more and more tokens."""
    pool: list[TableHead] = []
    tokens = max(1, min(max(task.least_tokens, task.fewest), task.max_tokens))
    while True:
        problem = task.problems(tokens, task.ridges[0])
        heads = best_of(problem, task.starts(tokens), 4)
        for smaller in pool[:2]:
            heads += stepwise(problem, smaller.keys, tokens, additions, 2)
            heads += stepwise(problem, smaller.keys, tokens, mirrored_additions, 2)
        previous, pool = pool, attempt(task, heads)
        if task.accept(pool[0]):
            return pool[0]
        if tokens >= task.max_tokens or problem.meter.empty:
            return None
        if tokens >= HOPE_TOKENS and previous and _hopeless(previous[0], pool[0], task.max_tokens):
            return None
        tokens = min(tokens + max(1, tokens // 3), task.max_tokens)


def _hopeless(smaller: TableHead, larger: TableHead, max_tokens: int) -> bool:
    gained = 0.5 * math.log(max(smaller.cost / larger.cost, 1.0)) / (larger.tokens - smaller.tokens)
    return math.log(max(larger.worst, 2.0)) > HOPE * gained * (max_tokens - larger.tokens)


def shrunk(task: Search, head: TableHead, tokens: int) -> TableHead:
    """The best head with so many tokens, fewer than `head` has: from it and from grids; then shaken."""
    problem = task.problems(tokens, task.ridges[0])
    fuller = descend(project(problem, head.keys), 100)
    heads = stepwise(problem, fuller.keys, tokens, removals, 4) + best_of(problem, task.starts(tokens), 2)
    heads = attempt(task, heads + stepwise(problem, fuller.keys, tokens, mirrored_removals, 2))
    if not task.accept(heads[0]) and heads[0].worst < 30.0:
        heads = attempt(task, [project(problem, keys) for keys in shaken(heads[0].keys)])
    return heads[0]


def attempt(task: Search, heads: list[TableHead]) -> list[TableHead]:
    """Polish heads of one size, under weaker and weaker ridges for as long as the ridge is a good part of the cost."""
    heads = near = tournament(heads, task.accept)
    for ridge in task.ridges[1:]:
        if task.accept(near[0]) or near[0].strain < 0.1 * near[0].cost:
            break
        problem = task.problems(heads[0].tokens, ridge)
        near = tournament([project(problem, head.keys) for head in near], task.accept)
    return near if task.accept(near[0]) else heads


def tournament(heads: list[TableHead], accept: Accept) -> list[TableHead]:
    """Polish all a little, the better ones more, the best one most; best first. Ends with the first acceptable head."""
    share = _effort(heads[0].tokens)
    for survivors, evaluations, hopeless in STAGES:
        heads = sorted(heads, key=_cost)[: max(survivors, 2)]
        for place, head in enumerate(heads[:survivors]):
            if head.cost < hopeless:
                heads[place] = descend(head, math.ceil(share * evaluations), accept)
                if accept(heads[place]):
                    return [heads[place]]
    heads.sort(key=_cost)
    for place, head in enumerate(heads):
        if head.worst < 2.5:
            heads[place] = level(head, accept)
            if accept(heads[place]):
                return [heads[place]]
    return heads


def _effort(tokens: int) -> float:
    """The share of full effort: a projection costs points tokens^2, and large heads start from good grids."""
    return min(1.0, FULL_EFFORT_TOKENS / tokens)


def best_of(problem: Problem, candidates: Iterable[Array], count: int) -> list[TableHead]:
    """The heads of least cost, before any polish."""
    return sorted((project(problem, keys) for keys in candidates), key=_cost)[:count]


def _cost(head: TableHead) -> float:
    return head.cost


def stepwise(problem: Problem, keys: Array, tokens: int, moves: Moves, count: int) -> list[TableHead]:
    """Heads with so many tokens from keys with more or fewer: always the best move, then the next."""
    heads: list[TableHead] = []
    while len(keys) != tokens:
        distance = abs(len(keys) - tokens)
        nearer = [other for other in moves(keys) if abs(len(other) - tokens) < distance]
        thinned = nearer[:: 1 + int(len(nearer) / (MOST_MOVES * _effort(tokens) ** 2))]
        heads = best_of(problem, thinned, count)
        if not heads:
            return []
        keys = heads[0].keys
    return heads


def grids(tokens: int) -> Iterator[Array]:
    """First guesses of the keys for one variable."""
    if tokens == 1:
        yield np.zeros((1, 2))
        return
    even, spacing = np.linspace(-1.0, 1.0, tokens), 2.0 / (tokens - 1)
    for reach in REACHES:
        for sharpness in SHARPNESSES:
            # -c (t - L)^2 / h^2 with L = reach k and h = reach spacing; t^2 is common to all tokens.
            bend = sharpness / spacing**2
            yield np.stack([2.0 * bend / reach * even, -bend * even**2], axis=1)
    for distance in DISTANCES:
        for kappa in KAPPAS:
            # exp(-kappa (t + 1 + distance) / L) L^-kappa, for an end of the domain at t = -1.
            nodes = np.exp(np.linspace(math.log(distance / 4.0), math.log(8.0), tokens))
            alpha = -kappa / nodes
            keys = np.stack([alpha, alpha * (1.0 + distance) - kappa * np.log(nodes)], axis=1)
            keys -= np.mean(keys, axis=0)
            yield keys
            yield keys * MIRROR


def scattered(tokens: int) -> Iterator[Array]:
    """First guesses of the keys for two variables: Gaussian kernels on grids, on grids with a centre, on a spiral."""
    if tokens == 1:
        yield np.zeros((1, 3))
        return
    for nodes in _node_sets(tokens):
        for reach in (1.2, 2.5, 10.0, 40.0):
            for sharpness in (0.2, 0.6, 2.0):
                bend = sharpness * max(math.sqrt(tokens) - 1.0, 1.0) ** 2 / 4.0
                offset = -bend * np.sum(nodes**2, axis=1, keepdims=True)
                yield np.concatenate([2.0 * bend / reach * nodes, offset], axis=1)


def _node_sets(tokens: int) -> Iterator[Array]:
    for extra in (0, 1):
        for rows in range(2, tokens):
            columns, left = divmod(tokens - extra, rows)
            if left == 0 and columns > 1:
                sides = np.meshgrid(np.linspace(-1.0, 1.0, rows), np.linspace(-1.0, 1.0, columns), indexing="ij")
                yield np.concatenate([np.stack([side.ravel() for side in sides], axis=1), np.zeros((extra, 2))])
    turns = np.arange(tokens) + 0.5
    radius, angle = 1.2 * np.sqrt(turns / tokens), turns * math.pi * (3.0 - math.sqrt(5.0))
    yield np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)


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


def _new_tokens(keys: Array) -> Iterator[Array]:
    """Between neighbours or past an end, with the weight of the surroundings or less."""
    tokens, columns = keys.shape
    if tokens == 1:
        yield keys[0] + np.eye(columns)[0]
        return
    distances = _distances(keys)
    for one in range(tokens):
        for other in np.argsort(distances[one], kind="stable")[: 2 * (columns - 1)]:
            for share, less in ((0.4, 0.0), (0.4, 3.0), (-0.7, 0.0), (-0.7, 3.0)):
                yield keys[one] + share * (keys[other] - keys[one]) - less * np.eye(columns)[-1]


def removals(keys: Array) -> Iterator[Array]:
    """The keys with one token fewer."""
    for token in range(len(keys)):
        yield np.delete(keys, token, axis=0)


def mirrored_removals(keys: Array) -> Iterator[Array]:
    """Symmetric keys without a token and its mirror image."""
    if _symmetric(keys):
        order = np.argsort(keys[:, 0], kind="stable")
        for place in range(len(keys) // 2):
            yield np.delete(keys, [order[place], order[-1 - place]], axis=0)


def shaken(keys: Array) -> Iterator[Array]:
    """The keys, moved by parts of their distances and at random (the same random numbers every time)."""
    random = np.random.default_rng(0)
    gaps = np.sqrt(np.min(_distances(keys), axis=1))
    for size in (0.1, 0.1, 0.3, 0.3, 0.6, 0.6):
        moves = size * random.standard_normal(keys.shape)
        moves[:, :-1] *= gaps[:, None]
        yield keys + moves


def _distances(keys: Array) -> Array:
    """Squares of the distances between the slopes of tokens; a token is far from itself."""
    slopes = keys[:, :-1]
    return np.asarray(np.sum((slopes[:, None] - slopes) ** 2, axis=2) + 1e300 * np.eye(len(keys)))


def _symmetric(keys: Array) -> bool:
    """Whether keys of one variable come in mirror images, to 1% of their range."""
    if keys.shape[1] != 2:
        return False
    order = np.argsort(keys[:, 0], kind="stable")
    close = 1e-2 * (np.ptp(keys, axis=0) + 1e-3)
    return bool(np.all(np.abs(keys[order] - keys[order[::-1]] * MIRROR) <= close))
