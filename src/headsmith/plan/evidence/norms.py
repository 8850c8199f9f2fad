"""Diagonals for the rule Norm (kernel/core/norms.py): how much each gate counts in a 2-norm of errors.

Closed forms. With N = A Y A^T, what errors before a layer make of its arguments, and |N| its largest eigenvalue:

    flat     B = |N|: the errors grow by the norm of the weights, layer by layer. In a plain network Y is diagonal, and
             |N| is found from products of W with vectors (Lanczos): nothing is formed that only the kernel needs
    dense    L = 2 / |N|: then G = (L - L N L / 4)^-1 <= |N|, so dense is never worse, and better in most directions

Improved. In a plain network of dense layers, what errors of 1 at every gate do to the outputs,

    J = |sqrt(w Y w^T)| (sum over layers of sqrt(sum L)),  N_k = W_k Y_(k-1) W_k^T,  Y_k = (L_k - L_k N_k L_k / 4)^-1,

is made smaller by descent in log L (Adam). With Y' the gradient by Y_k, that by M = Y_k^-1 is M' = -Y Y' Y, by N_k it
is -L M' L / 4, by L_k the diagonal of M' - N L M' / 2, and by Y_(k-1) W^T N' W.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from headsmith.kernel.core.arithmetic import Array, Interval
from headsmith.kernel.core.errors import Refused
from headsmith.kernel.core.graph import Graph, dense
from headsmith.kernel.core.norms import Carried, norms_of

WIDE = 400
"""Layers of more gates are flat: dense ones take a few products of matrices."""
ROOM = 1e-6
TURNS, CLOSE = 32, 0.01
"""The largest eigenvalue of wide layers is looked for in so many turns, until it is known that well."""
STEPS, RATE = 200, 0.05
WORK = 2e9
"""How many multiplications the descent may take, about."""

Edges = Mapping[int, Sequence[Any]]


@dataclass(frozen=True)
class Effort:
    """How much norms are worth. Beyond `widest` gates in a layer there are none: to check them takes a product of
    matrices, more than all the rest. Those of wide layers are `checked` before they are handed out: else the kernel may
    refuse them, as a rule it does not."""

    widest: int = 3072
    checked: bool = False


USUAL, ANY_WIDTH = Effort(), Effort(widest=1 << 12)


def find_norms(circuit: Graph, edges: Edges, gates: Sequence[int], effort: Effort = USUAL) -> dict[int, Carried]:
    """Diagonals for nodes whose gates have heads, and for the input if its errors count; {} where there are no two
    layers, where they are too wide, or where norms do not follow the circuit."""
    found: dict[int, Carried] = {}
    if max((circuit.nodes[number].size for number in gates), default=0) > effort.widest:
        return {}
    wide = None if effort.checked else _wide(circuit, edges, sorted(gates))
    if wide is not None:
        return wide

    def choose(number: int, arriving: Array | None) -> Carried:
        size = circuit.nodes[number].size
        if arriving is None:
            found[number] = Carried(np.ones(size), False)
        else:
            flat = size > WIDE
            largest = float(np.linalg.eigvalsh(arriving)[-1]) * (1.0 + ROOM) + 1e-300
            found[number] = Carried(np.full(size, largest if flat else 2.0 / largest), flat)
        return found[number]

    try:
        known = norms_of(circuit, edges, set(gates), choose)
    except (Refused, np.linalg.LinAlgError):
        return {}
    if circuit.output not in known.heights or len(found) < 2:
        return {}
    better = _improved(circuit, edges, found)
    if better is found:
        return found
    try:
        norms_of(circuit, edges, better.keys(), lambda number, _: better[number])
    except Refused:
        return found
    return better


def _wide(circuit: Graph, edges: Edges, gates: list[int]) -> dict[int, Carried] | None:
    """The diagonals of a plain network whose layers are all wide; None for others."""
    sizes = [circuit.nodes[number].size for number in gates]
    weights = _layers(circuit, edges, gates) if len(gates) > 1 and min(sizes[1:]) > WIDE else None
    if weights is None:
        return None
    found = {gates[0]: Carried(np.ones(sizes[0]), False)}
    slope = edges[gates[0]][0][1] if edges[gates[0]] else None
    most, passing = 1.0, np.ones(sizes[0]) if slope is None else (slope.low < slope.high).astype(np.float64)
    for number, size, rows in zip(gates[1:], sizes[1:], weights, strict=False):
        most = most * _largest(rows, passing) * (1.0 + ROOM) + 1e-300
        found[number], passing = Carried(np.full(size, most), True), edges[number][0][1].high
    return found


def _largest(rows: Array, passing: Array) -> float:
    """About the largest eigenvalue of rows diag(passing) rows^T, from above as a rule: the largest of a Krylov space,
    and how far its vector is from being one of the whole matrix."""
    basis = [np.random.default_rng(0).standard_normal(len(rows))]
    basis[0] /= np.linalg.norm(basis[0])
    diagonal, beside = list[float](), list[float]()
    while True:
        product = rows @ (passing * (basis[-1] @ rows))
        diagonal.append(float(product @ basis[-1]))
        for _ in range(2):
            for each in basis:
                product -= (each @ product) * each
        rest = float(np.linalg.norm(product))
        values, vectors = np.linalg.eigh(np.diag(diagonal) + np.diag(beside, 1) + np.diag(beside, -1))
        off = rest * abs(float(vectors[-1, -1]))
        if len(basis) == min(TURNS, len(rows)) or off <= CLOSE * float(values[-1]) or not rest > 0.0:
            return float(values[-1]) + off
        beside.append(rest)
        basis.append(product / rest)


def _improved(circuit: Graph, edges: Edges, found: dict[int, Carried]) -> dict[int, Carried]:
    """The same diagonals, or better ones for a plain network of dense layers."""
    weights = _layers(circuit, edges, list(found))
    work = 12.0 * sum(float(len(each)) ** 3 for each in weights or ())
    if weights is None or any(each.flat for each in found.values()) or STEPS * work > 20.0 * WORK:
        return found
    logarithms = [np.log(each.diagonal) for each in found.values()]
    best = _descended(weights, logarithms, int(min(STEPS, WORK / max(work, 1.0))))
    return {number: Carried(np.exp(each), False) for number, each in zip(found, best, strict=True)}


def _layers(circuit: Graph, edges: Edges, gates: list[int]) -> list[Array] | None:
    """The weights from each layer of gates to the next, and to the output; None if there are other paths."""
    found = []
    for before, after in zip(gates, [*gates[1:], None], strict=True):
        number = circuit.output if after is None else edges[after][0][0]
        terms = [(argument, slope) for argument, slope, _ in edges[number] if argument != 0 or 0 in gates]
        if len(terms) != 1 or terms[0][0] != before or isinstance(terms[0][1], Interval):
            return None
        passing = 1.0 if after is None else edges[after][0][1].high[:, None]
        found.append(dense(terms[0][1]) * passing)
    return found


def _descended(weights: list[Array], logarithms: list[Array], steps: int) -> list[Array]:
    """Descent in the logarithms of the diagonals; the best that was met."""
    value, slopes = _objective(weights, logarithms)
    if not np.isfinite(value):
        return logarithms
    best, place = (value, logarithms), logarithms
    mean, square = ([0.0 * each for each in place] for _ in range(2))
    for step in range(1, steps + 1):
        mean = [0.9 * a + 0.1 * b for a, b in zip(mean, slopes, strict=True)]
        square = [0.99 * a + 0.01 * b * b for a, b in zip(square, slopes, strict=True)]
        down = [
            RATE * a / (1.0 - 0.9**step) / (np.sqrt(b / (1.0 - 0.99**step)) + 1e-12)
            for a, b in zip(mean, square, strict=True)
        ]
        for halvings in range(12):
            trial = [a - 0.5**halvings * b for a, b in zip(place, down, strict=True)]
            value, slopes = _objective(weights, trial)
            if value < best[0] + 0.5:
                break
        else:
            break
        place = trial
        if value < best[0]:
            best = (value, place)
    return best[1]


def _objective(weights: list[Array], logarithms: list[Array]) -> tuple[float, list[Array]]:
    """log J and its gradient; infinite where a matrix is not positive definite."""
    diagonals = [np.exp(each) for each in logarithms]
    matrices, arriving = [np.diag(1.0 / diagonals[0])], [np.zeros(0)]
    for rows, pull in zip(weights[:-1], diagonals[1:], strict=True):
        arriving.append(rows @ matrices[-1] @ rows.T)
        form = np.diag(pull) - pull[:, None] * arriving[-1] * pull / 4.0
        try:
            np.linalg.cholesky(form)
            matrices.append(np.asarray(np.linalg.inv(form), dtype=np.float64))
        except np.linalg.LinAlgError:
            return np.inf, []
    last = weights[-1]
    reached = float(np.einsum("oi,ij,oj->", last, matrices[-1], last))
    sums = np.array([np.sqrt(each.sum()) for each in diagonals])
    if not (reached > 0.0 and np.isfinite(reached)):
        return np.inf, []
    slope = last.T @ last * (0.5 / reached)
    slopes = [each / (2.0 * total * sums.sum()) for each, total in zip(diagonals, sums, strict=True)]
    for place in range(len(diagonals) - 1, 0, -1):
        pull = diagonals[place]
        bent = -matrices[place] @ slope @ matrices[place]
        slopes[place] = slopes[place] + pull * (
            np.diag(bent) - 0.5 * np.einsum("ij,j,ji->i", arriving[place], pull, bent)
        )
        slope = weights[place - 1].T @ (-pull[:, None] * bent * pull / 4.0) @ weights[place - 1]
    slopes[0] = slopes[0] - np.diag(slope) / diagonals[0]
    return 0.5 * float(np.log(reached)) + float(np.log(sums.sum())), slopes
