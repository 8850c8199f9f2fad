"""How long and how much memory compile + certify + save, and verify, take, against the network itself. Times are those
of the processor, in one process; every figure has its goal beside it.

ratio     over one batch-1000 forward pass of the source network in numpy         compile 10, verify 3
memory    peak memory, weights included, over the bytes of the network's weights  6
growth    compile time against parameters from 1e4 to 2e7: the log-log slope      1.05
width     d_model of networks of depth 32 and 2, and of wide ones, over the widest layer
smooth    64-256-256-256-10 with GELU: compile and verify, in seconds
sparse    an unrolled convolutional network: the same ratios over its forward pass by torch and its entries that are not
          zero; file 2, in bytes of all such entries of target and model
"""

from __future__ import annotations

import os
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

import headsmith as hs

WIDTHS = (784, 1024, 1024, 1024, 10)
ERROR = 1e-3


def random_network(*widths: int, seed: int = 0) -> hs.Network:
    random = np.random.default_rng(seed)
    return hs.Network(
        [
            (random.standard_normal((after, before)) * np.sqrt(2.0 / before), 0.1 * random.standard_normal(after))
            for before, after in pairwise(widths)
        ]
    )


def forward(layers: list[tuple[np.ndarray, np.ndarray]], values: np.ndarray) -> np.ndarray:
    """The source network in plain numpy."""
    for index, (weights, bias) in enumerate(layers):
        values = (np.maximum(values, 0.0) if index else values) @ weights.T + bias
    return values


def best(action: Callable[[], object], repeats: int) -> float:
    """The shortest of several times, in seconds."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        action()
        times.append(time.process_time() - start)
    return min(times)


def compile_and_save(network: hs.Network, folder: str, error: float = ERROR) -> None:
    hs.compile(network, (0.0, 1.0), error).save(os.path.join(folder, "model.safetensors"))


def ratio(folder: str) -> None:
    network = random_network(*WIDTHS)
    inputs = np.random.default_rng(1).random((1000, WIDTHS[0]))
    pass_time = best(lambda: forward(list(network.layers), inputs), 7)
    compile_time = best(lambda: compile_and_save(network, folder), 5)
    verify_time = best(lambda: hs.verify(os.path.join(folder, "model.safetensors")), 5)
    print(f"\none batch-1000 forward pass of {network!r}: {1e3 * pass_time:.0f} ms")
    for name, seconds, goal in (("compile + certify + save", compile_time, 10), ("verify", verify_time, 3)):
        print(f"{name}: {1e3 * seconds:.0f} ms, {seconds / pass_time:.1f} times that (goal {goal})")
    size = os.path.getsize(os.path.join(folder, "model.safetensors"))
    print(f"the file is {size / (8 * network.parameters):.2f} times the weights (goal 1.2)")


def memory(folder: str) -> None:
    """Peaks above what the network itself holds: what Python allocates, and (on Linux) what the process occupies."""
    network = random_network(*WIDTHS)
    weights = 8 * network.parameters
    resident = _peak_resident(lambda: compile_and_save(network, folder))
    tracemalloc.start()
    compile_and_save(network, folder)
    allocated = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    print(f"weights {weights / 2**20:.0f} MiB; peak above them: allocated {allocated / 2**20:.0f} MiB", end="")
    print("" if resident is None else f", resident {resident / 2**20:.0f} MiB")
    peak = max(allocated, resident or 0) + weights
    print(f"peak memory, weights included: {peak / weights:.1f} times the weights (limit 6)")


def _peak_resident(action: Callable[[], object]) -> int | None:
    """How far resident memory rises above its present level during `action`; None where the system cannot say."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
        before = _status("VmRSS")
        action()
        return max(0, _status("VmHWM") - before)
    except OSError:
        return None


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))


def growth(folder: str) -> None:
    parameters, times = [], []
    print("\nparameters   seconds   microseconds per 1000 parameters")
    for size in np.geomspace(1e4, 2e7, 8):
        width = round((size / 2.0) ** 0.5)
        network = random_network(width, width, width, 10)
        seconds = best(lambda network=network: compile_and_save(network, folder, 1.0), 3)  # type: ignore[misc]
        parameters.append(network.parameters)
        times.append(seconds)
        print(f"{network.parameters:10,d}   {seconds:7.4f}   {1e9 * seconds / network.parameters:7.1f}")
    x, y = np.array(parameters), np.array(times)
    slope, start = np.polyfit(x, y, 1)
    explained = 1.0 - np.sum((y - start - slope * x) ** 2) / np.sum((y - y.mean()) ** 2)
    print(f"fit: {1e3 * start:.1f} ms + {1e9 * slope:.1f} ns per parameter, R^2 = {explained:.4f}")
    upper = x >= 1e5
    exponent = np.polyfit(np.log(x[upper]), np.log(y[upper]), 1)[0]
    print(f"log-log slope from 1e5 parameters: {exponent:.2f} (goal 1.05)")


def width() -> None:
    """How much wider than its widest layer a model is, whatever the depth."""
    print("\nnetwork            d_model   over the widest layer   parameters per parameter")
    deep = {depth: random_network(16, *[16] * depth, 10) for depth in (2, 32)}
    wide = [random_network(300, *[300] * 8, 10), random_network(784, *[1024] * 3, 10)]
    widths = {}
    for network in (*deep.values(), *wide):
        widest = max(len(bias) for _, bias in network.layers)
        bill = hs.compile(network, (0.0, 1.0), 1e-2).bill
        widths[network] = bill.d_model
        name = f"{widest} wide, {len(network.layers) - 1} deep"
        share = bill.parameters / network.parameters
        print(f"{name:18s} {bill.d_model:7d}   {bill.d_model / widest:21.2f}   {share:24.1f}")
    print(f"depth 32 over depth 2: {widths[deep[32]] / widths[deep[2]]:.2f} (goal 3)")


def smooth(folder: str) -> None:
    """A network of GELU units, read from torch."""
    import torch
    from torch.nn import GELU, Linear, Sequential

    torch.manual_seed(0)
    layers = [each for inputs in (64, 256, 256) for each in (Linear(inputs, 256), GELU())]
    network, path = (
        hs.from_torch(Sequential(*layers, Linear(256, 10)).double()),
        os.path.join(folder, "gelu.safetensors"),
    )
    compiling = best(lambda: hs.compile(network, (0.0, 1.0), ERROR).save(path), 1)
    verifying = best(lambda: hs.verify(path), 1)
    print(
        f"\n64-256-256-256-10 with GELU, {ERROR:g}: compile {compiling:.1f} s, verify {verifying:.1f} s (goal: seconds)"
    )


def sparse(folder: str, side: int = 28, channels: tuple[int, int] = (8, 16)) -> None:
    """Two convolutions of 3 x 3 pixels and a linear layer, whose matrices are nearly all zeros."""
    import torch
    from torch.nn import Conv2d, Flatten, Linear, ReLU, Sequential

    torch.manual_seed(0)
    torch.set_num_threads(1)
    first, second = (Conv2d(a, b, 3, padding=1) for a, b in pairwise((1, *channels)))
    module = Sequential(first, ReLU(), second, ReLU(), Flatten(), Linear(channels[1] * side**2, 10)).double()
    example = torch.rand(256, 1, side, side, dtype=torch.float64)
    network, path = hs.from_torch(module, example), os.path.join(folder, "sparse.safetensors")
    terms = [term.weights for node in network.graph.nodes for term in getattr(node, "terms", ())]
    nonzeros, entries = (sum(map(count, terms)) for count in (lambda w: w.size, lambda w: w.shape[0] * w.shape[-1]))
    with torch.no_grad():
        pass_time = best(lambda: module(example), 3)
    resident = _peak_resident(lambda: hs.compile(network, (0.0, 1.0), ERROR).save(path))
    compile_time = best(lambda: hs.compile(network, (0.0, 1.0), ERROR).save(path), 1)
    verify_time = best(lambda: hs.verify(path), 1)
    model, inputs = hs.load(path), example.numpy().reshape(256, -1)
    stored = nonzeros + sum(link.nonzeros for links in _links(model) for link in links)
    print(f"\nconvolutions on {side} x {side}: {nonzeros:,d} of {entries:,d} weights are not zero")
    for name, seconds in (("compile + certify + save", compile_time), ("verify", verify_time)):
        print(f"{name}: {seconds:.1f} s, {seconds / pass_time:.0f} batch-256 forward passes by torch")
    if resident is not None:
        print(f"peak memory above the network: {resident / (8 * nonzeros):.1f} times its non-zeros")
    print(f"the file is {os.path.getsize(path) / (8 * stored):.2f} times the non-zeros of target and model (goal 2)")
    for fused in (False, True):
        run_time = best(lambda fused=fused: model(inputs, fused=fused), 2)  # type: ignore[misc]
        print(f"run, fused={fused}: {run_time / pass_time:.1f} forward passes")


def _links(model: hs.Compiled) -> list[tuple[Any, ...]]:
    banks = [bank for layer in model.transformer.layers for bank in layer.banks]
    reads = [links for bank in banks for links in (bank.read, bank.write)]
    return [model.transformer.embedding, model.transformer.readout, *reads]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        # Memory first: later on, freed pages that the process keeps would hide what is used.
        memory(folder)
        ratio(folder)
        growth(folder)
        width()
        smooth(folder)
        sparse(folder)


if __name__ == "__main__":
    main()
