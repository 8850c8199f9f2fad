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
GOALS = {"model(x)": 3, "model(x, fused=True)": 1.5}


def shortest(calls: Mapping[str, Callable[[], Any]], repeats: int = 5) -> dict[str, float]:
    """The shortest time of each call in seconds; the calls take turns."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(repeats):
        for name, call in calls.items():
            start = time.process_time()
            call()
            times[name].append(time.process_time() - start)
    return {name: min(found) for name, found in times.items()}


def in_numpy(network: hs.Network, model: hs.Compiled, inputs: np.ndarray) -> None:
    layers = list(network.layers)
    calls = {
        "the network": lambda: forward(layers, inputs),
        "model(x)": lambda: model(inputs),
        "model(x, fused=True)": lambda: model(inputs, fused=True),
        "ONNX Runtime, fused": in_onnx_runtime(model, inputs),
    }
    show("numpy, float64", calls)


def in_single_precision(network: hs.Network, model: hs.Compiled, inputs: np.ndarray) -> None:
    """As networks are run; a textbook's matrices are mostly zeros, and it multiplies them all."""
    import torch

    linear = []
    for weights, bias in network.layers:
        layer = torch.nn.Linear(weights.shape[1], weights.shape[0])
        layer.load_state_dict({"weight": torch.tensor(weights), "bias": torch.tensor(bias)})
        linear += [layer, torch.nn.ReLU()]
    source, given = torch.nn.Sequential(*linear[:-1]), torch.tensor(inputs, dtype=torch.float32)
    fused, textbook = (model.to_torch(fused=each) for each in (True, False))
    calls = {
        "the network": lambda: source(given),
        "to_torch(fused=True)": lambda: fused(given),
        "ONNX Runtime, fused": in_onnx_runtime(model, inputs.astype(np.float32)),
        "to_torch()": lambda: textbook(given),
    }
    with torch.no_grad():
        show("torch, float32", calls)


def in_onnx_runtime(model: hs.Compiled, inputs: np.ndarray) -> Callable[[], Any]:
    """A run of closed forms in the model's format, on one thread."""
    import onnxruntime

    quiet = onnxruntime.SessionOptions()
    quiet.log_severity_level, quiet.intra_op_num_threads = 3, 1
    session = onnxruntime.InferenceSession(model.to_onnx(fused=True).SerializeToString(), quiet)
    return lambda: session.run(None, {"x": inputs})


def show(title: str, calls: Mapping[str, Callable[[], Any]]) -> None:
    found = shortest(calls)
    own = found["the network"]
    print(f"\n{title}: {'-'.join(map(str, WIDTHS))}, a batch of {BATCH}")
    for name, seconds in found.items():
        goal = f" (goal {GOALS[name]})" if name in GOALS else ""
        print(f"  {name:26s} {1e3 * seconds:8.1f} ms   {seconds / own:8.2f} times the network{goal}")


def main() -> None:
    network = random_network(*WIDTHS)
    inputs = np.random.default_rng(1).random((BATCH, WIDTHS[0]))
    in_numpy(network, hs.compile(network, (0.0, 1.0), 1e-3), inputs)
    in_single_precision(network, hs.compile(network, (0.0, 1.0), 1.0, dtype="float32"), inputs)


if __name__ == "__main__":
    main()
