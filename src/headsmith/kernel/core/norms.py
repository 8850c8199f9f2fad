"""Rule Norm: gains in the 2-norm through layers of gates. Entry by entry they explode with depth, and norms do not.

Let an error e be committed at one node, and D be what it makes of the nodes that are still to be read. The rule keeps a
symmetric matrix Y, the same for all nodes where errors are committed, such that

    D D^T <= r^2 Y        (as quadratic forms),        r^2 = sum T_i e_i^2,        T the weights of the node of e.

So component i is off by at most r sqrt(Y_ii); errors of several nodes add up. Sums, D' = M D: Y' = M Y M^T. Gates whose
slopes are in [0, 1], v = s u, u = A D, in one of two ways:

    dense    for a diagonal L > 0, v^T L (u - v) >= 0. So D^T Y^-1 D + v^T L v - v^T L A D <= r^2: a quadratic form of
             (D, v) with the inverse Y' = [Y 0; 0 0] + H G H^T, H = [Y A^T L / 2; I], G = (L - L A Y A^T L / 4)^-1, if
             the matrix in brackets is positive definite. An error of the gates themselves has e^T L e: T = L. Of other
             components, with slopes that are known, Y' says nothing about errors that begin there: T is infinite.
    flat     if A Y A^T <= B, B diagonal, then v^T B^-1 v <= u^T B^-1 u <= r^2: Y' = B, T = 1 / B, and u is forgotten.

The proof carries the diagonals. All matrices are rounded, and what that costs is added to their diagonals: larger Y are
worse, and still true. A symmetric matrix is shown to be positive semidefinite by a triangular one whose square is it,
up to a shift that covers the difference; who found it does not matter.
"""

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import numpy as np

from .arithmetic import FLOAT64, TINY, Array, Interval, Upper
from .errors import Refused, refuse, spend
from .graph import Graph, dense
from .sparse import entries_of


@dataclass(frozen=True, eq=False)
class Norms:
    """For nodes where errors are committed their weights T; for all nodes that are known, sqrt(Y_ii)."""

    weights: Mapping[int, Array]
    heights: Mapping[int, Upper]


@dataclass(frozen=True, eq=False)
class Carried:
    """The diagonal that a proof carries for a node: of L or, if flat, of B."""

    diagonal: Array
    flat: bool


def norms_of(
    circuit: Graph, edges: Mapping[int, Sequence[Any]], chosen: Set[int], choose: Callable[[int, Array | None], Carried]
) -> Norms:
    """Follow errors from all nodes for which diagonals are `chosen`; what else arrives at a node is not known, nor is
    anything that reads it. `choose` is told A Y A^T, or None if nothing arrives: a proof has the answer already."""
    last = {argument: number for number in sorted(edges) for argument, _, _ in edges[number]}
    weights, heights, lost = dict[int, Array](), dict[int, Upper](), set[int]()
    live, matrix = list[int](), np.zeros((0, 0))
    for number in range(len(circuit.nodes) if chosen else 0):
        size, mine = circuit.nodes[number].size, edges.get(number, ())
        if not _simple(mine, number in chosen) or any(each[0] in lost for each in mine):
            lost.add(number)
            continue
        ends = np.cumsum([0, *(circuit.nodes[each].size for each in live)])
        spend(0.0, float(size + ends[-1]) ** 2 / 16.0)  # before any matrix is made; products are counted by themselves
        places = {each: np.arange(a, b) for each, a, b in zip(live, ends, ends[1:], strict=False)}
        staying = [each for each in live if last.get(each, -1) > number]
        kept = np.concatenate([*(places[each] for each in staying), np.zeros(0, dtype=np.int64)])
        if number in chosen:
            slope = mine[0][1] if mine else Interval(np.zeros(size), np.ones(size))
            read = places.get(mine[0][0]) if mine else None
            carried = choose(number, None if read is None else part(matrix, read))
            if carried.diagonal.shape != (size,) or not np.all(carried.diagonal > 0.0) or (carried.flat and len(kept)):
                raise Refused(f"node {number} has no positive diagonal, or is flat while other nodes are to be read")
            if carried.flat:
                matrix, weights[number] = _flat(carried.diagonal, slope, matrix, read)
            else:
                matrix, weights[number] = _dense(carried.diagonal, slope, matrix, _rows(size, mine, kept, places), read)
        else:
            slopes = [slope.low if isinstance(slope, Interval) else slope for each, slope, _ in mine if each in places]
            if not any(np.any(entries_of(slope)) for slope in slopes):
                continue
            matrix = congruent(_rows(size, mine, kept, places), matrix)
        live = [*staying, number]
        diagonal = matrix if matrix.ndim == 1 else np.diag(matrix)
        heights[number] = Upper(np.maximum(diagonal[len(kept) :], 0.0)).sqrt()
    return Norms(weights, heights)


def _rows(size: int, edges: Sequence[Any], kept: Any, places: Mapping[int, Any]) -> Array:
    """What takes the live nodes to those that stay, and to the node: of gates, what passes for certain."""
    read = {argument: slope.low if isinstance(slope, Interval) else slope for argument, slope, _ in edges}
    found = [dense(read[each]) if each in read else np.zeros((size, len(at))) for each, at in places.items()]
    rows = np.hstack([np.zeros((size, 0)), *found])
    return np.vstack([np.eye(rows.shape[1])[kept], rows]) if len(kept) else rows


def _simple(edges: Sequence[Any], carried: bool) -> bool:
    """Whether a node is a sum, or gates of slopes 0, 1 and, if it is carried, in [0, 1]."""
    slopes = [slope for _, slope, _ in edges if isinstance(slope, Interval)]
    if any(elsewhere for _, _, elsewhere in edges) or len({edge[0] for edge in edges}) < len(edges):
        return False
    if not slopes:
        return not carried or not edges
    ends = np.stack([slopes[0].low, slopes[0].high])
    known = ends.ndim == 2 and bool(np.isin(ends, (0.0, 1.0)).all())
    return len(edges) == 1 and known and (carried or np.array_equal(ends[0], ends[1]))


def _flat(bounds: Array, slope: Interval, matrix: Array, read: Any) -> tuple[Array, Array]:
    if read is not None:
        passing = np.flatnonzero(slope.high)
        refuse_indefinite(np.diag(bounds[passing]) - part(matrix, read[passing]), bounds[passing])
    return np.where(slope.high > 0.0, bounds, 0.0), (Upper(1.0) / bounds).value


def _dense(weights: Array, slope: Interval, matrix: Array, rows: Array, read: Any) -> tuple[Array, Array]:
    uncertain, first = slope.low < slope.high, len(rows) - len(weights)
    gates, least = np.flatnonzero(uncertain), (Upper(1.0) / weights).value
    pull, weights = weights[gates], np.where(uncertain, weights, np.inf)
    if read is None and not rows.any():
        return np.where(uncertain, least, 0.0), weights
    inverse = np.diag(least[gates])
    if read is not None:
        bent = pull[:, None] * part(matrix, read[gates]) * pull / 4.0
        loss = (size(bent) + size(pull)) * (8.0 * FLOAT64.unit_roundoff) + TINY
        inverse = inverse_above(np.diag(pull) - bent - np.diag(np.full(len(gates), 2.0 * float(loss.value))), pull)
    if not rows.any():
        whole = np.zeros((len(weights), len(weights)))
        whole[np.ix_(gates, gates)] = inverse
        return whole, weights
    spend(0.3 * float(max(rows.shape)) ** 3)
    reached = rows @ part(matrix, np.arange(len(matrix)))
    arms = np.zeros((len(rows), len(gates))) if read is None else reached[:, read[gates]] * (pull / 2.0)
    arms[first + gates, np.arange(len(gates))] += 1.0
    base = reached @ rows.T
    total = base + (arms @ inverse) @ arms.T
    slack = FLOAT64.gamma(2 * len(gates) + 16) * (size(arms) * size(arms) * size(inverse) + size(base))
    return raised(total, slack + _underflow(rows)), weights


def part(matrix: Array, places: Any) -> Array:
    """Rows and columns of a symmetric matrix, in their order; a vector stands for a diagonal one."""
    matrix = np.diag(matrix) if matrix.ndim == 1 else matrix
    return matrix if len(places) == len(matrix) else matrix[np.ix_(places, places)]


def size(values: Any) -> Upper:
    """The Frobenius norm of a matrix, or the 2-norm of a vector."""
    return Upper(np.linalg.norm(values)) * (1.0 + 2.0 * float(FLOAT64.gamma(values.size + 8).value)) + 2.0**-500


def raised(matrix: Any, slack: Upper, symmetric: bool = False) -> Array:
    """A symmetric matrix that is larger than all that differ from this one by at most `slack` in the 2-norm."""
    both: Array = matrix if symmetric else 0.5 * matrix + 0.5 * matrix.T
    np.fill_diagonal(both, (Upper(np.diag(both)) + slack + size(matrix) * (4.0 * FLOAT64.unit_roundoff)).value)
    return both


def _underflow(rows: Array) -> Upper:
    return (size(rows) + 1.0) * (rows.size + len(rows) + 1.0) * TINY


def congruent(rows: Array, matrix: Array) -> Array:
    """rows Y rows^T, or a little more."""
    spend(0.05 * rows.size * len(matrix))
    # A product with its own transpose takes half the time, and is symmetric.
    half = rows * np.sqrt(matrix) if matrix.ndim == 1 else rows
    product = half @ half.T if matrix.ndim == 1 else (rows @ matrix) @ rows.T
    slack = FLOAT64.gamma(2 * rows.shape[1] + 8) * (size(rows) * size(rows) * size(matrix))
    return raised(product, slack + _underflow(half), symmetric=matrix.ndim == 1)


def refuse_indefinite(matrix: Array, sizes: Array) -> None:
    """Raise Refused unless a symmetric matrix, rounded as a difference of numbers of these sizes on its diagonal, is
    positive semidefinite: it is the square of a triangular one, up to less than a shift."""
    count = len(matrix)
    spend(0.05 * float(count) ** 3)
    shift = float((FLOAT64.gamma(2 * count + 16) * 4.0 * Upper(np.abs(sizes)).sum()).value) + TINY
    lower = matrix.copy()
    np.fill_diagonal(lower, np.diag(matrix) - shift)
    try:
        root = np.linalg.cholesky(lower)
    except np.linalg.LinAlgError:
        raise Refused("a matrix that a norm needs is not positive definite") from None
    left, right = root[:, : count // 2], root[count // 2 :, count // 2 :]  # above, there are zeros
    lower -= left @ left.T
    lower[count // 2 :, count // 2 :] -= right @ right.T
    off = size(lower) + FLOAT64.gamma(count + 8) * (size(root) * size(root))
    if not float((off + (size(matrix) + size(sizes)) * 2.0**-50).value) < 0.99 * shift:
        raise Refused("a matrix that a norm needs is not known to be positive definite")


def inverse_above(matrix: Array, sizes: Array) -> Array:
    """A symmetric matrix that is larger than the inverse of a positive definite one."""
    refuse_indefinite(matrix, sizes)
    inverse = np.linalg.inv(matrix)
    wrong = size(matrix @ inverse - np.eye(len(matrix)))
    wrong = wrong + FLOAT64.gamma(len(matrix) + 8) * (size(matrix) * size(inverse) + float(len(matrix)))
    refuse(not float(wrong.value) < 0.5, "the inverse that a norm needs is not known well enough")
    return raised(inverse, size(inverse) * wrong * 2.0)
