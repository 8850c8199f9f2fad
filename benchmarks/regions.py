"""Linear regions per second: Headsmith beside edge subdivision and a plain exact clipper.

    python benchmarks/regions.py PEER        PEER: a folder with github.com/arturs-berzins/relu_edge_subdivision
    python benchmarks/regions.py             without it: the clipper, and how time grows

All in one process, one thread, in turn; the least time of several turns each; ratios of these.

- headsmith: exact; the complex of all regions, their activation patterns, vertices and faces.
- edge subdivision (Berzins 2023): float32 on torch, which must be installed; vertices and edges with their signs, no
  regions. Both are given the trained networks of its folder `models`. It takes the read-out as one more neuron, so its
  read-out is replaced by the constant 1. In the plane its edges give the number of regions by Euler's formula, which
  must be ours.
- clipper: polygons clipped one by one with rationals (flint's) in the order of the neurons; exact, the obvious program.
  Random networks on [-1, 1]^2, initialised as torch.nn.Linear does.

With PEER, the largest of its networks is then counted to its end on +-0.2, by as many processes as there are cores.

What the cores gain is measured on that network on +-0.1, and on a random one in the plane: wall-clock time with one
process and with one for each core, the least of three turns, and the load of the machine. A core that is busy with
something else gains nothing. The processor time of all processes together says what sharing the work costs.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import contextlib
import io
import resource
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from flint import fmpq

from headsmith.lab.regions.enumeration import regions
from headsmith.language.network import Network


def random_network(*widths: int, seed: int = 0) -> Network:
    random = np.random.default_rng([seed, *widths])
    layers = []
    for before, after in pairwise(widths):
        bound = before**-0.5
        layers.append((random.uniform(-bound, bound, (after, before)), random.uniform(-bound, bound, after)))
    return Network(layers)


def in_turn(budget: float, *runs: Callable[[], Any]) -> list[tuple[Any, float]]:
    """What each run returns, and the least of the seconds that it took: of the processor, which others on the same
    machine do not stretch."""
    start, least = time.perf_counter(), [float("inf")] * len(runs)
    found: list[Any] = [None] * len(runs)
    turns = 0
    while turns < 3 or time.perf_counter() - start < budget:
        turns += 1
        for i, run in enumerate(runs):
            before = time.process_time()
            found[i] = run()
            least[i] = min(least[i], time.process_time() - before)
    return list(zip(found, least, strict=True))


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


def trained(folder: Path, name: str) -> tuple[Network, Any]:
    """A network of the peer's, for us, and for it: with the constant 1 as read-out."""
    import torch
    from NN import Net  # type: ignore[import-not-found]

    inputs, shape, *_ = name.split(",")
    depth, width = map(int, shape.split("x"))
    net = Net([int(inputs), *[width] * depth, 1])
    net.load_state_dict(torch.load(folder / "models" / name, map_location="cpu", weights_only=True))
    ours = Network(
        [(layer.weight.detach().double().numpy(), layer.bias.detach().double().numpy()) for layer in net.fcs]
    )
    with torch.no_grad():
        net.fcs[-1].weight.zero_()
        net.fcs[-1].bias.fill_(1.0)
    return ours, net


def beside(folder: Path) -> None:
    """The peer's trained networks on its box, +-0.5, by both; then the largest one by us."""
    sys.path.insert(0, str(folder))
    import torch
    from edge_subdivision import skeletal_subdivision  # type: ignore[import-not-found]

    torch.set_num_threads(1)
    print(f"{'network':>8}  {'regions':>9}  {'headsmith':>10}  {'edge subdivision':>16}  ratio")
    for name in ("2,2x50", "2,2x100", "2,4x32", "3,3x16"):
        ours, net = trained(folder, f"{name},relu,bunny")

        def theirs(net: Any = net) -> tuple[int, int]:
            with torch.no_grad(), contextlib.redirect_stdout(io.StringIO()):
                vertices, edges, _ = skeletal_subdivision(
                    net, device=torch.device("cpu"), bbox=(-0.5, 0.5), verbose=False
                )
            return len(vertices), len(edges)

        run = in_turn(5.0, lambda ours=ours: len(regions(ours, (-0.5, 0.5), workers=1)), theirs)
        (count, seconds), ((vertices, edges), took) = run
        if name.startswith("2") and edges - vertices + 1 != count:
            print(f"{name:>8}  {count} regions here, {edges - vertices + 1} there")
        print(f"{name:>8}  {count:>9,}  {seconds:>8.4f} s  {took:>14.4f} s  {took / seconds:>5.2f}")
    ours, _ = trained(folder, "3,8x32,relu,bunny")
    start = time.perf_counter()
    found = regions(ours, (-0.2, 0.2), keep=False)
    wall = time.perf_counter() - start
    own, others = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    memory = max(own.ru_maxrss, others.ru_maxrss) / 1024
    print(f"  3,8x32 on +-0.2: {found!r}, {len(found):,} regions in {wall:.0f} s ({len(found) / wall:,.0f}/s),")
    print(f"         at most {memory:,.0f} MB a process, torch among them; {found.oracle.asked:,} signs by rationals")
    shared("3,8x32 +-0.1", ours, 0.1)


def processor_seconds() -> float:
    """What this process and its finished children have used."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def shared(name: str, network: Network, half: float) -> None:
    """One process against one for each core."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    wall, used = {1: float("inf"), cores: float("inf")}, {1: float("inf"), cores: float("inf")}
    count = 0
    for _ in range(3):
        for workers in wall:
            start, before = time.perf_counter(), processor_seconds()
            count = len(regions(network, (-half, half), workers=workers, keep=False))
            wall[workers] = min(wall[workers], time.perf_counter() - start)
            used[workers] = min(used[workers], processor_seconds() - before)
    print(
        f"{name:>14}  {count:>9,} regions: {wall[1]:.1f} s by one process, {wall[cores]:.1f} s by {cores} "
        f"({wall[1] / wall[cores]:.2f} times); {used[1]:.1f} and {used[cores]:.1f} s of the processor; "
        f"load {os.getloadavg()[0]:.1f}"
    )


def clipped() -> None:
    print(f"\n{'two inputs':>12}  {'regions':>9}  {'headsmith':>10}  {'clipper':>10}  ratio")
    for widths in ((16, 16), (32, 32, 32)):
        network = random_network(2, *widths, 1)
        run = in_turn(
            1.0,
            lambda network=network: len(regions(network, (-1.0, 1.0), workers=1)),
            lambda network=network: clip_count(network),
        )
        (count, seconds), (other, took) = run
        assert count == other
        name = "-".join(map(str, widths))
        print(f"{name:>12}  {count:>9,}  {seconds:>8.4f} s  {took:>8.3f} s  {took / seconds:>5.0f}")


def growth() -> None:
    print("\nhow time grows: random networks on [-1, 1]^d")
    for widths in ((2, 64, 64), (2, 128, 128), (3, 32, 32), (3, 64, 64), (4, 16, 16), (4, 24, 24), (5, 14, 14)):
        network = random_network(*widths, 1)
        ((count, seconds),) = in_turn(
            0.5, lambda network=network: len(regions(network, (-1.0, 1.0), workers=1, keep=False))
        )
        print(f"{'-'.join(map(str, widths)):>12}  {count:>9,} regions  {seconds:7.3f} s  {count / seconds:>9,.0f}/s")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        beside(Path(sys.argv[1]).resolve())
    shared("2-256-256-256", random_network(2, 256, 256, 256, 1), 1.0)
    clipped()
    growth()
