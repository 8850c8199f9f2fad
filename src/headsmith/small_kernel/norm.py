"""Rule Norm: through layers of gates, errors grow by norms of the weights, not entry by entry.

Let an error e be committed at one node, and D be what it makes of the node that is *live*: the one along the
circuit that all later ones read it through. A symmetric matrix Y is kept, the same for all nodes where errors are
committed, with

    D D^T <= r^2 Y      as quadratic forms,      r^2 = sum T_i e_i^2,   T weights of the node where e is committed,

so component i is off by at most r sqrt(Y_ii). An affine node: D' = M D, and Y' = M Y M^T. Gates: v = s u with s in
[0, 1] has v (u - v) >= 0, so with a positive diagonal L the form D^T Y^-1 D + v^T L v - v^T L D is at most r^2, and
positive definite if L - L Y L / 4 is; by the block inverse Y' = M Y M^T + H G H^T, G its inverse, M = 1 at gates
that are always open, H = M Y L / 2 plus the identity at the others, which alone have weights T = L; elsewhere T is
infinite: no Y knows of errors there. Flat: if Y <= B at all gates that may be open, v^T B^-1 v <= u^T B^-1 u <=
r^2, because |v_i| <= |u_i|: Y' = B, T = 1/B.

Norms of matrices are Frobenius norms; what products round is added to the diagonal, because a symmetric matrix of
norm s is at most s times the identity."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headsmith.small_kernel.bounds import FLOOR, ROUNDOFF, SLACK, Array, Loose, Span, gamma, require
from headsmith.small_kernel.errors import Edges


def norm(x: Array) -> float:
    return float(np.sqrt((x * x).sum())) * SLACK + FLOOR


def padded(x: Array, slack: float) -> Array:
    """A symmetric matrix that is at least x, whose entries are off by a matrix of norm `slack` at most."""
    return np.asarray((x + x.T) / 2 + np.diag(np.full(len(x), (slack + 8 * ROUNDOFF * norm(x)) * SLACK)))


def congruent(m: Array, y: Array) -> Array:
    """At least m y m^T."""
    product = (m[:, None] * y) * m if m.ndim == 1 else (m @ y) @ m.T
    return padded(product, float(gamma(2 * len(y) + 8)) * norm(m) ** 2 * norm(y) + FLOOR)


def is_positive(x: Array, size: float) -> bool:
    """Whether a symmetric matrix is positive definite: it is R R^T + c I, up to less than c."""
    c, g = 4 * float(gamma(2 * len(x) + 16)) * size + FLOOR, float(gamma(len(x) + 8))
    try:
        r = np.linalg.cholesky(x - c * np.eye(len(x)))
    except np.linalg.LinAlgError:
        return False
    return norm(x - r @ r.T - c * np.eye(len(x))) + g * norm(r) ** 2 + 2.0**-50 * (norm(x) + size) < 0.99 * c


def gates(y: Array, diagonal: Array, flat: bool, low: Array, high: Array) -> tuple[Array, Array]:
    """Y' and T of gates with slopes in [low, high], each 0 or 1."""
    require((diagonal > 0).all(), "a diagonal of rule Norm is not positive")
    at = np.flatnonzero(high if flat else high - low)
    scale, part, result = diagonal[at], y[np.ix_(at, at)], np.zeros(y.shape)
    if flat:
        require(
            is_positive(np.diag(scale) - part, float(scale.sum())), "rule Norm: Y is not at most the diagonal", Loose
        )
        result[at, at] = scale
        return result, 1 / diagonal
    x = np.diag(scale) - (scale[:, None] * part * scale) / 4
    x = (x + x.T) / 2 - np.diag(np.full(len(scale), 16 * ROUNDOFF * (norm(x) + 2 * norm(scale)) + FLOOR))
    require(is_positive(x, float(scale.sum())), "rule Norm: L - L Y L / 4 is not positive definite", Loose)
    z = np.diag(1 / scale) if not part.any() else np.linalg.inv(x)
    w = norm(x @ z - np.eye(len(scale))) + float(gamma(len(scale) + 8)) * (norm(x) * norm(z) + len(scale))
    require(w < 0.5, "the inverse of a matrix of rule Norm is too uncertain", Loose)
    g = padded(z, 2 * w * norm(z))  # X^-1 - Z = X^-1 (I - X Z), and |X^-1| <= |Z| / (1 - w)
    h = (low[:, None] * y[:, at]) * (scale / 2)
    h[at, np.arange(len(at))] += 1.0
    result[np.ix_(at, at)] = g
    if low.any():
        passed = congruent(low, y)
        slack = float(gamma(2 * len(scale) + 16)) * (norm(h) ** 2 * norm(g) + norm(passed)) + FLOOR
        result = padded(passed + (h @ g) @ h.T, slack)
    return result, np.where(high > low, diagonal, np.inf)


@dataclass(frozen=True, eq=False)
class Norms:
    """For each node whose errors are known by norms its weights T; and of each node what r is multiplied by."""

    weights: dict[int, Array]
    roots: dict[int, Array]

    def carried(self, n: int, to: int, error: Array, otherwise: Array) -> Array:
        """How far an error of node n moves node `to`, or what is known otherwise if that is less."""
        if n not in self.weights or to not in self.roots or n >= to:
            return otherwise
        r = np.sqrt(np.where(error > 0, error * error * self.weights[n], 0.0).sum()) + FLOOR
        return np.asarray(np.minimum(otherwise, self.roots[to] * r))


def norms(edges: Edges, sizes: list[int], diagonals: dict[int, tuple[Array, bool]], last: int) -> Norms:
    """The rule along a chain of nodes, each read by the next one alone; elsewhere errors are carried by gains."""
    weights, roots = dict[int, Array](), dict[int, Array]()
    live, lost, y = -1, set[int](), np.zeros((0, 0))
    readers = {n: [m for m in range(last + 1) for e in edges.get(m, []) if e.argument == n] for n in range(last + 1)}
    for n in range(last + 1):
        reads = edges.get(n, [])
        behind = live in [e.argument for e in reads]
        if not behind and n not in diagonals and not lost & {e.argument for e in reads}:
            continue
        chain = len(reads) <= 1 and not any(e.elsewhere for e in reads) and not lost & {e.argument for e in reads}
        chain = chain and (readers[live] == [n] if behind else live < 0 or not readers[live])
        slope = reads[0].slope if reads else Span(np.zeros(sizes[n]), np.ones(sizes[n]))
        if isinstance(slope, Span):
            known = np.isin(slope.low, (0, 1)).all() and np.isin(slope.high, (0, 1)).all()
            chain = chain and bool(known and (n in diagonals or np.array_equal(slope.low, slope.high)))
        if not chain or (n in diagonals and not isinstance(slope, Span)):
            lost |= {n, live} - {-1}
            continue
        y = y if behind else np.zeros((sizes[n], sizes[n]))
        if n in diagonals and isinstance(slope, Span):
            y, weights[n] = gates(y, *diagonals[n], slope.low, slope.high)
        else:
            y = congruent(slope.low if isinstance(slope, Span) else slope, y)
        live, roots[n] = n, np.sqrt(np.maximum(y.diagonal(), 0.0) * SLACK)
    return Norms(weights, roots)
