"""How long a run of the compiled model takes, over the source network's own pass, all measured in one run.

The network is 784-1024-1024-10, the batch 1,024; times are the processor's, the shortest of several.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from speed import forward, random_network

import headsmith as hs

WIDTHS = (784, 1024, 1024, 10)
BATCH = 1024


def shortest(calls: Mapping[str, Callable[[], Any]], repeats: int = 7) -> dict[str, float]:
    """The shortest time of each call in seconds; the calls take turns."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(repeats):
        for name, call in calls.items():
            start = time.process_time()
            call()
            times[name].append(time.process_time() - start)
    return {name: min(found) for name, found in times.items()}


def main() -> None:
    network = random_network(*WIDTHS)
    model = hs.compile(network, (0.0, 1.0), 1e-3)
    inputs = np.random.default_rng(1).random((BATCH, WIDTHS[0]))
    layers = list(network.layers)
    found = shortest(
        {
            "the network in numpy": lambda: forward(layers, inputs),
            "model(x)": lambda: model(inputs),
            "model(x, fused=True)": lambda: model(inputs, fused=True),
        }
    )
    own = found["the network in numpy"]
    for name, seconds in found.items():
        print(f"{name:24s} {1e3 * seconds:8.1f} ms   {seconds / own:6.2f} times the network")


if __name__ == "__main__":
    main()
