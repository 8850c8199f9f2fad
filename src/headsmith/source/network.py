"""ReLU networks as targets."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from headsmith.core.arrays import Array, frozen
from headsmith.core.errors import TargetError
from headsmith.source.graph import Builder, Graph, evaluate


class Network:
    """A ReLU network: `Network([(W, b), ...])` applies x -> W x + b for each pair, with a ReLU between the pairs.

    W is (out, in). Any number of pairs, any widths; inputs are named x0, x1, ... unless `names` says otherwise.
    """

    def __init__(self, layers: Iterable[tuple[Any, Any]], names: Iterable[str] | None = None) -> None:
        self.layers = tuple(_pair(index, pair) for index, pair in enumerate(layers))
        if not self.layers:
            raise TargetError("the network has no layers; give at least one pair (W, b)")
        for index, (before, after) in enumerate(zip(self.layers, self.layers[1:], strict=False)):
            if before[0].shape[0] != after[0].shape[1]:
                raise TargetError(
                    f"layer {index} has {before[0].shape[0]} outputs but layer {index + 1} takes "
                    f"{after[0].shape[1]} inputs: W is (out, in); transpose it if it came as (in, out)"
                )
        inputs = self.layers[0][0].shape[1]
        self.names = tuple(names) if names is not None else tuple(f"x{i}" for i in range(inputs))
        if len(self.names) != inputs or len(set(self.names)) != inputs:
            raise TargetError(f"{len(set(self.names))} different names for {inputs} inputs")

    @property
    def graph(self) -> Graph:
        """The network as a source graph: one Affine and one Relu node for each layer."""
        builder = Builder(self.names)
        node = builder.input
        for index, (weights, bias) in enumerate(self.layers):
            node = builder.relu(node) if index else node
            node = builder.affine([(node, weights)], bias)
        return builder.graph(node)

    @property
    def parameters(self) -> int:
        return sum(weights.size + bias.size for weights, bias in self.layers)

    def __call__(self, inputs: Any) -> Array:
        """The network's output in float64, for inputs (..., in)."""
        return np.asarray(evaluate(self.graph, inputs))

    def __repr__(self) -> str:
        widths = [self.layers[0][0].shape[1], *(weights.shape[0] for weights, _ in self.layers)]
        return f"Network({'-'.join(map(str, widths))})"


def _pair(index: int, pair: tuple[Any, Any]) -> tuple[Array, Array]:
    try:
        weights, bias = pair
        weights, bias = np.asarray(weights, dtype=np.float64), np.asarray(bias, dtype=np.float64)
    except (TypeError, ValueError):
        raise TargetError(f"layer {index} is not a pair (W, b) of real arrays") from None
    if weights.ndim != 2:
        raise TargetError(f"layer {index}: W has shape {weights.shape}; it must be a matrix (out, in)")
    if 0 in weights.shape:
        raise TargetError(f"layer {index}: W has shape {weights.shape}: a layer of width zero; remove it")
    if bias.shape != weights.shape[:1]:
        raise TargetError(f"layer {index}: b has shape {bias.shape}; W has {weights.shape[0]} rows, so b needs as many")
    for what, array in (("W", weights), ("b", bias)):
        if not np.isfinite(array).all():
            where = tuple(map(int, np.argwhere(~np.isfinite(array))[0]))
            raise TargetError(f"layer {index}: {what}{list(where)} is {array[where]}; weights must be finite numbers")
    return frozen(weights.copy()), frozen(bias.copy())
