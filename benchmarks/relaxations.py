"""What general bounds for networks say of a compiled transformer: auto_LiRPA on the difference of model and target.

    PYTHONPATH=.../auto_LiRPA python benchmarks/relaxations.py

A ReLU network is compiled; the transformer, written out as textbook attention in torch, less the network is one graph,
and auto_LiRPA bounds that graph over the domain: by intervals (IBP), by linear relaxations (CROWN), and by relaxations
whose slopes are optimised (alpha-CROWN). It needs torch and a checkout of auto_LiRPA with what that needs (appdirs,
onnx2pytorch, pyyaml, sortedcontainers, tqdm); its bounds are computed in floating point without outward rounding.
"""

from __future__ import annotations

import time
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from auto_LiRPA import BoundedModule, BoundedTensor, PerturbationLpNorm

import headsmith as hs

METHODS = ("IBP", "CROWN", "CROWN-Optimized")


class Written(torch.nn.Module):
    """A model of one data token as its matrices say: attention over the constant reference tokens and itself."""

    def __init__(self, model: hs.Compiled) -> None:
        super().__init__()
        dense = model.dense()
        self.W_E, self.b_E = torch.tensor(dense.W_E), torch.tensor(dense.b_E + dense.W_pos[0])
        self.W_U, self.b_U = torch.tensor(dense.W_U), torch.tensor(dense.b_U)
        self.references = torch.tensor(dense.references.reshape(-1, dense.d_model))
        self.layers = [
            [
                tuple(torch.tensor(getattr(layer, name)[head]) for name in ("W_Q", "W_K", "W_V", "W_O"))
                for head in range(len(layer.W_Q))
            ]
            for layer in dense.layers
        ]

    def forward(self, x: Any) -> Any:
        stream = x @ self.W_E + self.b_E
        for layer in self.layers:
            added = stream
            for W_Q, W_K, W_V, W_O in layer:
                query = stream @ W_Q
                scores = [query @ (self.references @ W_K).T, (query * (stream @ W_K)).sum(-1, keepdim=True)]
                weights = torch.softmax(torch.cat(scores, dim=-1), dim=-1)
                seen = weights[:, :-1] @ (self.references @ W_V) + weights[:, -1:] * (stream @ W_V)
                added = added + seen @ W_O
            stream = added
        return stream @ self.W_U + self.b_U


class Difference(torch.nn.Module):
    """The transformer less the network."""

    def __init__(self, model: hs.Compiled, network: hs.Network) -> None:
        super().__init__()
        self.written = Written(model)
        self.layers = [(torch.tensor(np.array(W)).T, torch.tensor(np.array(b))) for W, b in network.layers]

    def forward(self, x: Any) -> Any:
        found = self.written(x)
        for place, (W, b) in enumerate(self.layers):
            x = (torch.relu(x) if place else x) @ W + b
        return found - x


def main() -> None:
    torch.set_default_dtype(torch.float64)
    print("| network | asked | certified | found by searching | auto_LiRPA's method | its bound | seconds |")
    print("|---|---:|---:|---:|---|---:|---:|")
    widths = (2, 6, 1)
    for error in (1e-1, 1e-6):
        random = np.random.default_rng(0)
        pairs = [(random.normal(size=(o, i)), random.normal(size=o)) for i, o in pairwise(widths)]
        network = hs.Network(pairs)
        model = hs.compile(network, (-1, 1), error=error, progress=False)
        difference = Difference(model, network)
        found, middle = hs.falsify(model).error, torch.zeros(1, widths[0])
        domain = BoundedTensor(middle, PerturbationLpNorm(norm=np.inf, x_L=middle - 1.0, x_U=middle + 1.0))
        for method in METHODS:
            start = time.process_time()
            low, high = BoundedModule(difference, middle).compute_bounds(x=(domain,), method=method)
            seconds, most = time.process_time() - start, max(-float(low), float(high))
            shape = "-".join(map(str, widths))
            figures = f"{error:g} | {model.certificate.error:.2g} | {found:.1e} | {method} | {most:.3g} | {seconds:.1f}"
            print(f"| {shape} | {figures} |")


if __name__ == "__main__":
    main()
