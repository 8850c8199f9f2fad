"""Bounds by auto_LiRPA and by the kernel, of the same compiled attention: how far is the model from what it stands for,
everywhere on the domain? `make peers` runs it in an environment of its own.

auto_LiRPA bounds any torch graph: here the difference of the model, as a textbook writes it (matrix products and
softmax, head by head), and of the target, in float64. It does so in real arithmetic on rounded numbers; the kernel's
bound holds for floating-point runs as well. `boxes` cuts the domain into so many equal boxes, which are bounded side by
side. Times are the processor's, of the bound alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import headsmith as hs

CASES: list[tuple[str, Callable[[Any], Any]]] = [
    ("relu(x - y)", lambda x: torch.relu(x[:, 0:1] - x[:, 1:2])),
    ("max(x, y)", lambda x: x[:, 1:2] + torch.relu(x[:, 0:1] - x[:, 1:2])),
    ("x*y", lambda x: x[:, 0:1] * x[:, 1:2]),
]
METHODS = (("IBP", 1), ("IBP", 1024), ("CROWN", 1), ("CROWN", 1024), ("alpha-CROWN", 1))
ERROR = 1e-2


class Gap(torch.nn.Module):
    """The model less the target."""

    def __init__(self, model: Any, target: Callable[[Any], Any]) -> None:
        super().__init__()
        dense, self.target = model.dense(), target
        matrices = {"W_E": dense.W_E, "b_E": dense.b_E, "W_U": dense.W_U, "b_U": dense.b_U}
        # The rows of the stream, end to end, as a linear map of the inputs: reference tokens take none of them.
        rows, width = dense.references.shape
        matrices["W_E"] = np.hstack([np.zeros((len(dense.W_E), rows * width)), dense.W_E])
        matrices["b_E"] = np.concatenate([dense.references.ravel(), dense.b_E])
        self.shape = (-1, rows + 1, width)
        for name, value in matrices.items():
            self.register_buffer(name, torch.tensor(np.array(value)))
        self.heads = [
            [
                [torch.tensor(np.array(each[head])) for each in (layer.W_Q, layer.W_K, layer.W_V, layer.W_O)]
                for head in range(len(layer.W_Q))
            ]
            for layer in dense.layers
        ]

    def forward(self, x: Any) -> Any:
        stream = (x @ self.W_E + self.b_E).view(self.shape)
        for layer in self.heads:
            total = stream
            for W_Q, W_K, W_V, W_O in layer:
                scores = torch.matmul(stream @ W_Q, (stream @ W_K).transpose(1, 2))
                total = total + torch.matmul(torch.softmax(scores, dim=-1), stream @ W_V) @ W_O
            stream = total
        return stream[:, -1] @ self.W_U + self.b_U - self.target(x)


def bounded(model: Any, target: Callable[[Any], Any], method: str, boxes: int) -> tuple[float, float]:
    """auto_LiRPA's bound of |model - target| on the domain, and the processor's time."""
    from auto_LiRPA import BoundedModule, BoundedTensor, PerturbationLpNorm

    side = round(boxes**0.5)
    corners = np.stack(np.meshgrid(*[np.arange(side)] * 2), axis=-1).reshape(-1, 2)
    low, high = (torch.tensor(2.0 * (corners + more) / side - 1.0) for more in (0, 1))
    middle = (low + high) / 2
    module = BoundedModule(Gap(model, target), middle, verbose=False)
    given = BoundedTensor(middle, PerturbationLpNorm(x_L=low, x_U=high))
    start = time.process_time()
    below, above = module.compute_bounds(x=(given,), method=method)
    seconds = time.process_time() - start
    return float(torch.maximum(below.abs(), above.abs()).max()), seconds


def main() -> None:
    try:
        import auto_LiRPA
    except ImportError as problem:
        print(
            f"auto_LiRPA is not there ({problem}): it is on no registry in this version, and is taken from its source"
        )
        return
    torch.set_default_dtype(torch.float64)
    print("| model | bounded by | boxes | model - target at most | times the kernel's | seconds |")
    print("|---|---|---:|---:|---:|---:|")
    for formula, target in CASES:
        model = hs.compile(formula, {"x": (-1, 1), "y": (-1, 1)}, ERROR, progress=False)
        start = time.process_time()
        proven = model.verify().error
        seconds = time.process_time() - start
        print(f"| {formula} | the kernel | 1 | {proven:.2g} | 1 | {seconds:.2f} |")
        for method, boxes in METHODS:
            found, seconds = bounded(model, target, method, boxes)
            name = f"auto_LiRPA {auto_LiRPA.__version__}, {method}"
            print(
                f"| {formula} | {name} | {boxes:,} | {found:.2g} | {found / proven:,.0f} | {seconds:.2f} |", flush=True
            )


if __name__ == "__main__":
    main()
