"""Rule Sampled: a table of answers on a grid, against every function that has these answers and a Lipschitz bound.

A `sampled` node stands for any f, one for each token, of D numbers t in steps of a grid, with

    |f(t) - answer_k|  <=  evaluation + distance(t - g_k)        for every t of the domain and every node g_k:

that is what is assumed. The nodes are the middles of cells of length one, |t_i| <= count_i / 2, and with w_i =
lipschitz_i / scale_i the distance is sum w_i |t_i|, or the 2-norm of w_i t_i, or the largest w_i |t_i|.

The head that computes it is a softmax over all nodes, with one block of them for each token, and holds the answers. Its
scores are those of a Gaussian on each axis, 2 c g t - c g^2, up to d; so weights are products over the axes up to a
factor e^(2d), and other blocks weigh at most `others`. Then

    |g(t) - f(t)|  <=  e^(2d) (evaluation + E distance(t - g_k))  +  others (largest - least answer),

for an answer of another block is within that spread of the answer of one's own block at the same node. With distances
r_i = |t_i - g_i|, E sqrt(sum w_i^2 r_i^2) <= sqrt(sum w_i^2 E r_i^2) (Jensen), and the largest of w_i r_i is at most
max w_i / 2 + sum w_i max(r_i - 1/2, 0). And g(t') - f(t), t' what arrives, costs distance(t' - t) more.
"""

from functools import lru_cache

import numpy as np

from ..core.arithmetic import Array, Interval, Upper, interval, largest
from ..core.errors import Refused, refuse
from ..core.graph import Node

BEYOND = 2.0**-20  # how far, in steps, what arrives may lie beyond the grid's ends
REACH = 6  # nodes that are so many steps away weigh next to nothing
MOST_TOKENS, CELLS, MOST_CELLS, HALVINGS = 1 << 10, 32, 1 << 16, 40
NORMS = {"1": "sum of L_i |x_i - y_i|", "2": "2-norm of L_i (x_i - y_i)", "inf": "largest L_i |x_i - y_i|"}


def assumption(number: int, node: Node) -> str:
    """What the claim rests on, in words."""
    grid = " x ".join(map(str, node.constants.shape[1:-1]))
    return (
        f"node {number} of the target stands for any function f of {len(node.weights[0])} numbers x, for every token, "
        f"with |f(x) - f(y)| <= {NORMS[node.name]}, L = {node.weights[0].tolist()}, that is within "
        f"{float(node.weights[2][0])!r} of the answers in the file at the {grid} nodes of a grid with steps "
        f"1 / {node.weights[1].tolist()}"
    )


def sampled_range(node: Node) -> Interval:
    """Where f lies: no point is farther than half a step, in any coordinate, from a node."""
    away = (_steps(node) * (0.5 + BEYOND)).sum() + node.weights[2][0]
    answers = node.constants.reshape(-1, node.size, 1)
    return Interval(answers.min(axis=0), answers.max(axis=0)).widened(away)


def _steps(node: Node) -> Upper:
    """By how much f may change along a step of the grid, for each coordinate."""
    lipschitz, scale, _ = node.weights
    return Upper(lipschitz) / np.where(scale > 0.0, scale, np.inf)


def answered(node: Node, places: Array, argument: Interval, table: dict[str, Array]) -> tuple[Upper, Upper]:
    """A bound of |head - f| for arguments in a range; and one of how much the head's distance from f grows with each of
    the forms that it reads: the coordinates t, then those of the token's place."""
    answers, weights, evaluation = node.constants, _steps(node), float(node.weights[2][0])
    tokens, *counts, outputs = answers.shape
    if not np.array_equal(table["values"].reshape(answers.shape), answers) or tokens > MOST_TOKENS:
        raise Refused("a table does not hold the answers that it stands for, or those of too many tokens")
    reach = np.where(node.weights[1] > 0.0, np.array(counts) / 2.0, 0.0) + BEYOND
    refuse(not np.all(argument.magnitude.value <= reach), "what is looked up may lie beyond the ends of the grid")
    for axis, weight in enumerate(weights.value):
        if np.any(np.abs(np.diff(answers, axis=1 + axis)) > (weight + 2.0 * evaluation) * (1.0 + 1e-9)):
            raise Refused("the stated Lipschitz bound is false of the answers: there is no such function")
    nodes = np.stack(np.meshgrid(*(np.arange(n) - (n - 1) / 2.0 for n in counts), indexing="ij"), axis=-1)
    nodes, last = nodes.reshape(-1, len(counts)), nodes[(-1,) * len(counts)]
    inclined, codes = np.split(table["slope"].reshape(tokens, len(nodes), -1), [len(counts)], axis=-1)
    width = np.divide(inclined[0, -1], 2.0 * last, out=np.zeros_like(last), where=last > 0.0)
    level = np.ones((1, len(counts))) @ (interval(nodes.T) * nodes.T * width[:, None])
    moved = ((interval(inclined) - interval(nodes) * (2.0 * width)).magnitude * reach).sum()
    moved = (moved + (interval(table["offset"].reshape(tokens, -1)) + level).magnitude).max()
    refuse(np.any(codes != codes[:, :1]) or codes.shape[-1] != places.shape[1], "a block of answers has several places")
    scores = places @ interval(codes[:, 0].T)
    own = Interval(np.diag(scores.low)[:, None], np.diag(scores.high)[:, None])
    less = (Upper((scores - own).high) + moved + moved).exp()
    others = Upper(np.where(np.eye(tokens) > 0.0, 0.0, less.value)).sum().max()
    spread = Upper(answers.max()) - answers.min()
    error = (moved + moved).exp() * (distance(node.name, weights, counts, width) + evaluation) + others * spread
    steep = (Upper(codes.max(axis=(0, 1))) - codes.min(axis=(0, 1))) * spread
    return Upper(np.full(outputs, error.value)), Upper(np.concatenate([weights.value, steep.value]))


def distance(norm: str, weights: Upper, counts: list[int], width: Array) -> Upper:
    """E distance(t - g), at most."""

    def moments(floor: float, power: int) -> Upper:
        return Upper([moment(n, float(c), floor, power) for n, c in zip(counts, width, strict=True)])

    longest = weights.max()
    if norm == "1":
        return (weights * moments(0.0, 1)).sum()
    if norm == "2":
        unit = weights / (longest.value or 1.0)
        return (unit * unit * moments(0.0, 2)).sum().sqrt() * longest
    return (weights * moments(0.5, 1)).sum() + longest * 0.5


@lru_cache(maxsize=256)
def moment(count: int, width: float, floor: float, power: int) -> float:
    """A bound of E max(|t - g| - floor, 0)^power over |t| <= count/2 + BEYOND, for weights e^(-c (t - g)^2).

    On a cell of t the exponents, relative to one node, are linear, and so lie between their values at the ends; cells
    are halved where they bound the mean much worse than the middles of cells say. Both ends of the grid are alike, and
    far from them all nodes are: of more than 2 R nodes, R = REACH, we look at the first half of so many. Of the others
    at most two lie between R + j and R + j + 1 away, and weigh e^(c (1 - (R + j)^2)) or less. For c R >= 1 each j adds
    at most half of what the one before it adds, and j = 0 adds 2 (R + 1)^power e^(c (1 - R^2)).
    """
    nodes = np.arange(min(count, 2 * REACH), dtype=np.float64)[:, None]
    ends = np.linspace(-0.5 - BEYOND, (len(nodes) - 1) / 2.0, CELLS * len(nodes) + 1)
    low, high, found = ends[:-1], ends[1:], np.float64(0.0)
    for turn in range(HALVINGS + 1):
        middle = (low + high) / 2.0
        bounds, seen = (_mean(nodes, width, floor, power, *cell) for cell in ((low, high), (middle, middle)))
        # What is not a number stays so, in `found` too.
        wide = ~(bounds <= 1.0001 * seen.max()) & (turn < HALVINGS) & (len(low) < MOST_CELLS)
        found = np.maximum(found, bounds[~wide].max(initial=0.0))
        if not wide.any():
            break
        low, high = np.concatenate([low[wide], middle[wide]]), np.concatenate([middle[wide], high[wide]])
    if count > len(nodes):
        times = 4.0 * (REACH + 1.0) ** power if width * REACH >= 1.0 else np.inf
        return float((Upper((interval(width) * (1.0 - REACH**2)).high).exp() * times + found).value)
    return float(found)


def _mean(nodes: Array, width: float, floor: float, power: int, low: Array, high: Array) -> Array:
    """Bounds of the mean over cells [low, high]."""
    near = np.clip(np.rint((low + high) / 2.0), 0.0, len(nodes) - 1.0)
    first, last = ((interval(t) * 2.0 - (near + nodes)) * (nodes - near) * width for t in (low, high))
    most, least = np.maximum(first.high, last.high), np.minimum(first.low, last.low)
    away = largest(*((interval(t) - nodes).magnitude - floor for t in (low, high)), 0.0)
    least = (interval(1.0) / interval(Upper(-least).exp().value)).low
    mass: Interval = np.ones((1, len(nodes))) @ interval(least)
    mean: Upper = (Upper(most).exp() * (away if power == 1 else away * away)).sum(axis=0) / mass.low[0]
    return mean.value
