"""Every catalogue target at 1e-2, 1e-4 and 1e-6: gates (layers) and seconds, beside the best circuits known before.

    ours      heads (layers) of the compiled and certified model, recipe relu, softmax and rounding included
    known     fewest gates over the constructions of the catalogue: free-knot piecewise linear (S), piecewise linear and
              squares (Q), folds (F), polynomials (Y), or its closed formula for the circuit

A star marks a count above what is known.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import headsmith as hs

ERRORS = (1e-2, 1e-4, 1e-6)
Known = tuple[int | None, int | None, int | None]
Case = tuple[str, Any, dict[str, tuple[float, float]], Known]


def on(names: str, low: float, high: float) -> dict[str, tuple[float, float]]:
    return dict.fromkeys(names.split(), (low, high))


def places(count: int) -> dict[str, tuple[float, float]]:
    return {f"x{place}": (-1.0, 1.0) for place in range(count)}


def least(cost: Callable[[int], int], error: Callable[[int], float]) -> Known:
    """The cost of the smallest k whose error is small enough, for each of ERRORS."""
    counts = [cost(next(k for k in range(1, 60) if error(k) <= wanted)) for wanted in ERRORS]
    return counts[0], counts[1], counts[2]


UNKNOWN: Known = (None, None, None)
HALF = math.pi / 2

CASES: list[Case] = [
    ("x**2", "x**2", on("x", 0, 1), least(lambda m: m, lambda m: 4.0**-m / 8)),
    ("x*y", "x*y", on("x y", -1, 1), least(lambda k: 2 * k, lambda k: 4.0**-k)),
    ("x*y*z", "x*y*z", on("x y z", -1, 1), least(lambda k: 4 * k, lambda k: 2 * 4.0**-k)),
    ("x**3", "x**3", on("x", -1, 1), least(lambda k: 3 * k, lambda k: 2 * 4.0**-k)),
    ("1/x", "1/x", on("x", 0.1, 1), (5, 9, 12)),
    ("1/x", "1/x", on("x", 0.01, 1), least(lambda m: m, lambda m: 0.99**2 / 8e-4 * 4.0**-m)),
    ("1/x", "1/x", on("x", 0.5, 2), least(lambda m: m, lambda m: 1.5**2 / 4.0 * 4.0**-m)),
    ("x/y", "x/y", {"x": (-1, 1), "y": (0.5, 1)}, least(lambda k: 2 * k, lambda k: 4.0 * 4.0**-k)),
    ("sqrt", "sqrt(x)", on("x", 0, 1), (4, 8, 12)),
    ("log", "log(x)", on("x", 0.1, 1), (5, 12, 20)),
    ("exp", "exp(x)", on("x", -8, 0), (4, 16, 22)),
    ("sin", "sin(x)", on("x", 0, HALF), (3, 11, 18)),
    ("cos", "cos(x)", on("x", -math.pi, math.pi), (7, 15, 21)),
    ("cos", "cos(x)", on("x", -8 * math.pi, 8 * math.pi), (10, 18, 24)),
    ("sigmoid", "sigmoid(x)", on("x", -8, 8), (6, 26, 35)),
    ("tanh", "tanh(x)", on("x", -4, 4), (8, 26, 35)),
    ("softplus", "softplus(x)", on("x", -8, 8), (7, 24, 40)),
    ("gelu", "gelu(x)", on("x", -4, 4), (7, 29, 109)),
    ("erf", "erf(x)", on("x", -3, 3), UNKNOWN),
    ("gaussian", "gaussian(x)", on("x", -4, 4), (10, 27, 36)),
    ("x**1.5", "x**1.5", on("x", 0, 1), UNKNOWN),
    ("max of 2", "max(x, y)", on("x y", -1, 1), (1, 1, 1)),
    ("max of 16", lambda *v: hs.maximum(*v), places(16), (15, 15, 15)),
    ("median of 3", "median(x, y, z)", on("x y z", -1, 1), (3, 3, 3)),
    ("clip", "clip(x, -0.5, 0.5)", on("x", -1, 1), (2, 2, 2)),
    ("sort of 8", lambda *v: hs.sort(list(v)), places(8), (19, 19, 19)),
    ("sort of 16", lambda *v: hs.sort(list(v)), places(16), (63, 63, 63)),
    ("top 4 of 16", lambda *v: hs.top_k(list(v), 4), places(16), (44, 44, 44)),
    ("norm 1 of 4", lambda *v: hs.norm(list(v), 1), places(4), (4, 4, 4)),
    ("norm inf of 4", lambda *v: hs.norm(list(v), math.inf), places(4), (5, 5, 5)),
    (
        "norm 2 of 2",
        "norm(x, y)",
        on("x y", -1, 1),
        least(lambda level: level + 2, lambda level: math.sqrt(2) * math.tan(math.pi / 2 ** (level + 3)) ** 2),
    ),
    ("b_spline 2", lambda x: hs.b_spline(2, x), on("x", -1, 4), least(lambda k: 3 + 2 * k, lambda k: 4.0**-k / 8)),
    ("b_spline 3", lambda x: hs.b_spline(3, x), on("x", -1, 5), least(lambda k: 3 + 6 * k, lambda k: 4.0**-k / 4)),
    ("rational", "(1 + x)/(1 + x**2)", on("x", -1, 1), UNKNOWN),
    ("gauss bump", "exp(-x**2 - y**2)", on("x y", -2, 2), UNKNOWN),
    ("softmax of 3", lambda *v: hs.softmax(list(v)), places(3), UNKNOWN),
    (
        "matmul 2x2",
        lambda *v: list(hs.matmul([v[:2], v[2:4]], [v[4:6], v[6:]]).flat),
        places(8),
        least(lambda k: 16 * k, lambda k: 2 * 4.0**-k),
    ),
]


def row(case: Case) -> tuple[str, bool]:
    """Compile one target three times."""
    name, target, domain, known = case
    cells, worse = [], False
    for error, count in zip(ERRORS, known, strict=True):
        start = time.perf_counter()
        try:
            model = hs.compile(target, domain, error, recipe="relu")
            above = count is not None and model.bill.heads > count
            found, shape = str(model.bill.heads), f"({model.bill.layers})"
        except hs.HeadsmithError as problem:
            above, found, shape = True, "-", type(problem).__name__[:5]
        seconds = time.perf_counter() - start
        worse |= above
        beside = "" if count is None else str(count)
        cells.append(f"{found:>5s}{shape:6s}{beside:>5s}{'*' if above else ' '}{seconds:6.2f} s")
    (low, high), *rest = domain.values()
    where = f"[{low:.3g}, {high:.3g}]" + (f"^{len(rest) + 1}" if rest else "")
    return f"{name:14s} {where:17s} " + "   ".join(cells), worse


def main(only: Sequence[str]) -> None:
    heads = "   ".join(f"{f'{error:g}: ours':>11s}{'known':>6s}{'':8s}" for error in ERRORS)
    print(f"{'target':14s} {'domain':17s} {heads}")
    counts = [0, 0]
    for case in CASES:
        if not only or any(word in case[0] for word in only):
            text, worse = row(case)
            counts[worse] += 1
            print(text, flush=True)
    print(f"{counts[0]} targets within what is known, {counts[1]} above it at some error")


if __name__ == "__main__":
    main(sys.argv[1:])
