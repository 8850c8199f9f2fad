"""Linear regions per second: Headsmith beside a plain exact clipper and, where it can be imported, edge subdivision.

    python benchmarks/regions.py

Random ReLU networks with two inputs on [-1, 1]^2, initialised as torch.nn.Linear does. All in one process, one thread,
in turn; the best of several runs each.

- headsmith: exact, with polygons, affine maps and activation patterns.
- clipper: polygons clipped one by one with rationals (flint's) in the order of the neurons; exact, the obvious program.
- edge subdivision (Berzins 2023, github.com/arturs-berzins/relu_edge_subdivision): float32 on torch; timed if its
  folder is on PYTHONPATH and torch is installed. Its subdivision gives vertices and edges, its `build_parents` then the
  regions. Both are shown: edges alone (a count by Euler's formula, no polygon) and with regions. It takes the read-out
  as one more neuron, so its read-out here is the constant 1.

Then three-dimensional inputs, and how time grows with the number of regions.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
from flint import fmpq

from headsmith.regions.enumeration import regions
from headsmith.source.network import Network


def random_network(*widths: int, seed: int = 0) -> Network:
    random = np.random.default_rng([seed, *widths])
    layers = []
    for before, after in pairwise(widths):
        bound = before**-0.5
        layers.append((random.uniform(-bound, bound, (after, before)), random.uniform(-bound, bound, after)))
    return Network(layers)


def best(run: Callable[[], int], budget: float) -> tuple[int, float]:
    """What was counted, and the least of the seconds that runs took within a budget."""
    start, least, count = time.perf_counter(), float("inf"), 0
    while time.perf_counter() - start < budget or least == float("inf"):
        before = time.perf_counter()
        count = run()
        least = min(least, time.perf_counter() - before)
    return count, least


def clip_count(network: Network) -> int:
    """Count by clipping polygons with rationals."""
    corners = [(fmpq(x), fmpq(y)) for x, y in ((-1, -1), (1, -1), (1, 1), (-1, 1))]
    one, zero = fmpq(1), fmpq(0)
    cells = [(corners, [[one, zero, zero], [zero, one, zero]])]
    for weights, bias in network.layers[:-1]:
        rows = [[fmpq(*w.as_integer_ratio()) for w in row] for row in weights.tolist()]
        shifts = [fmpq(*b.as_integer_ratio()) for b in bias.tolist()]
        after = []
        for polygon, state in cells:
            forms = [
                [sum(w * s[k] for w, s in zip(row, state, strict=True)) + (shift if k == 2 else 0) for k in range(3)]
                for row, shift in zip(rows, shifts, strict=True)
            ]
            parts: list[tuple[Any, list[bool]]] = [(polygon, [])]
            for a, b, c in forms:
                parts = [split for part, active in parts for split in _split(part, active, a, b, c)]
            for part, active in parts:
                kept = [form if on else [zero] * 3 for form, on in zip(forms, active, strict=True)]
                after.append((part, kept))
        cells = after
    return len(cells)


def _split(polygon: Any, active: list[bool], a: Any, b: Any, c: Any) -> list[tuple[Any, list[bool]]]:
    values = [a * x + b * y + c for x, y in polygon]
    if min(values) >= 0 or max(values) <= 0:
        return [(polygon, [*active, max(values) > 0])]
    above, below = [], []
    for i, ((x, y), v) in enumerate(zip(polygon, values, strict=True)):
        (p, q), w = polygon[(i + 1) % len(polygon)], values[(i + 1) % len(polygon)]
        if v >= 0:
            above.append((x, y))
        if v <= 0:
            below.append((x, y))
        if (v > 0 > w) or (v < 0 < w):
            t = v / (v - w)
            crossing = (x + t * (p - x), y + t * (q - y))
            above.append(crossing)
            below.append(crossing)
    return [(above, [*active, True]), (below, [*active, False])]


def edge_subdivision(network: Network, with_regions: bool) -> Callable[[], int] | None:
    """The public tool on this network, or None where it is not installed."""
    try:
        import torch
        from complex import build_parents  # type: ignore[import-not-found]
        from edge_subdivision import get_e_sv, skeletal_subdivision  # type: ignore[import-not-found]
        from NN import Net  # type: ignore[import-not-found]
    except ImportError:
        return None
    torch.set_num_threads(1)
    widths = [network.layers[0][0].shape[1], *(weights.shape[0] for weights, _ in network.layers)]
    net = Net(widths)
    with torch.no_grad():
        for layer, (weights, bias) in zip(net.fcs, network.layers, strict=True):
            layer.weight.copy_(torch.tensor(weights))
            layer.bias.copy_(torch.tensor(bias))
        net.fcs[-1].weight.zero_()
        net.fcs[-1].bias.fill_(1.0)

    def run() -> int:
        with torch.no_grad():
            vertices, edges, signs = skeletal_subdivision(net, device="cpu", bbox=(-1, 1), verbose=False)
            if with_regions:
                return len(build_parents(get_e_sv(signs, edges), 2)[0])
        return len(edges) - len(vertices) + 1

    return run


def compare(*widths: int, slow: bool = True) -> None:
    network = random_network(2, *widths, 1)
    name = "-".join(map(str, widths))
    count, seconds = best(lambda: len(regions(network, (-1.0, 1.0))), 1.5)
    print(f"{name:>12}  headsmith         {count:>7,} regions  {seconds:8.4f} s  {count / seconds:>9,.0f}/s")
    rivals: list[tuple[str, Callable[[], int] | None]] = [
        ("edge subdivision", edge_subdivision(network, True)),
        ("  its edges alone", edge_subdivision(network, False)),
    ]
    if slow:
        rivals.insert(0, ("rational clipper", lambda: clip_count(network)))
    for rival, run in rivals:
        if run is None:
            print(f"{'':>12}  {rival:<16}  not installed")
            continue
        other, took = best(run, 1.0)
        ratio = (count / seconds) / (other / took)
        print(f"{'':>12}  {rival:<16}  {other:>7,} regions  {took:8.4f} s  {other / took:>9,.0f}/s  ratio {ratio:6.1f}")


def growth() -> None:
    print("\nthree inputs, and growth with the number of regions")
    for widths in ((3, 16, 16), (3, 32, 32), (3, 64, 64), (2, 64, 64), (2, 128, 128), (2, 128, 128, 128)):
        network = random_network(*widths, 1)
        count, seconds = best(lambda network=network: len(regions(network, (-1.0, 1.0))), 1.0)  # type: ignore[misc]
        print(f"{widths!s:>20}  {count:>8,} regions  {seconds:8.3f} s  {count / seconds:>9,.0f}/s")


if __name__ == "__main__":
    print("two inputs on [-1, 1]^2")
    compare(16, 16)
    compare(32, 32, 32)
    compare(64, 64, 64, slow=False)
    growth()
