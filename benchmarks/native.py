"""Native heads against a head for each gate: what both cost, and how long compiling with a certificate takes.

    python benchmarks/native.py [word ...]      only targets whose name has one of the words

Layers / heads / reference tokens and seconds of recipe auto, layers / heads and seconds of recipe relu, layers x heads
of relu over auto's, the certified error over the asked one. No ReLU circuit is tried below 1e-10.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Sequence

import headsmith as hs

PI = math.pi
DEGREE_12 = " + ".join(f"({(-1) ** k / (k + 1):.6f})*x**{k}" for k in range(1, 13))
Domain = dict[str, tuple[float, float]]


def on(names: str, low: float, high: float) -> Domain:
    return dict.fromkeys(names.split(), (low, high))


CASES: list[tuple[str, str | list[str], Domain, float]] = [
    ("x*y", "x*y", on("x y", -1, 1), 1e-6),
    ("x*y", "x*y", on("x y", -1, 1), 1e-9),
    ("1/x", "1/x", on("x", 0.1, 1), 1e-6),
    ("1/x", "1/x", on("x", 0.001, 1), 1e-3),
    ("x/y", "x/y", {"x": (-1, 1), "y": (0.5, 2)}, 1e-6),
    ("x**2", "x**2", on("x", -1, 1), 1e-8),
    ("sin", "sin(x)", on("x", -PI, PI), 1e-6),
    ("sin, cos", ["sin(x)", "cos(x)"], on("x", -4 * PI, 4 * PI), 1e-6),
    ("exp", "exp(x)", on("x", -1, 1), 1e-9),
    ("degree 12", DEGREE_12, on("x", -1, 1), 1e-6),
    ("sigmoid", "sigmoid(x)", on("x", -50, 50), 1e-12),
    ("tanh", "tanh(x)", on("x", -50, 50), 1e-12),
    ("gelu", "gelu(x)", on("x", -5, 5), 1e-6),
    ("sigmoid, tanh, gelu", ["sigmoid(x)", "tanh(x)", "gelu(x)"], on("x", -5, 5), 1e-6),
    ("log", "log(x)", on("x", 0.1, 1), 1e-6),
    ("sqrt", "sqrt(x)", on("x", 0.1, 1), 1e-6),
    ("max", "max(x, y)", on("x y", -1, 1), 1e-6),
    ("x*y*z", "x*y*z", on("x y z", -1, 1), 1e-6),
]


def timed(target: str | list[str], domain: Domain, error: float, recipe: str) -> tuple[hs.Compiled, float]:
    start = time.perf_counter()
    model = hs.compile(target, domain, error, recipe=recipe)
    return model, time.perf_counter() - start


def row(name: str, target: str | list[str], domain: Domain, error: float) -> str:
    model, seconds = timed(target, domain, error, "auto")
    bill = model.bill
    ours = f"{bill.layers}/{bill.heads}/{bill.reference_tokens}"
    low, high = next(iter(domain.values()))
    text = f"{name:20s} {f'[{low:.3g}, {high:.3g}]':15s} {error:6.0e}   {ours:8s} {seconds:6.2f} s"
    share = f"{model.certificate.error / error:8.3f}"
    if error < 1e-10:
        return f"{text}   {'':8s} {'':8s} {'':8s} {share}"
    gates, longer = timed(target, domain, error, "relu")
    ratio = gates.bill.layers * gates.bill.heads / (bill.layers * bill.heads)
    theirs = f"{gates.bill.layers}/{gates.bill.heads}"
    return f"{text}   {theirs:8s} {longer:6.2f} s {ratio:8,.0f} {share}"


def main(only: Sequence[str]) -> None:
    columns = f"{'auto':8s} {'seconds':>8s}   {'relu':8s} {'seconds':>8s} {'ratio':>8s} {'/ asked':>8s}"
    print(f"{'target':20s} {'domain':15s} {'error':>6s}   {columns}")
    for case in CASES:
        if not only or any(word in case[0] for word in only):
            print(row(*case), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
