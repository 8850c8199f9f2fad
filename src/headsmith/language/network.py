"""ReLU networks as targets."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from headsmith.core.arrays import Array, frozen
from headsmith.core.errors import TargetError
from headsmith.core.figures import count, number
from headsmith.core.foreign import advice, plain
from headsmith.core.markup import table
from headsmith.language.builder import Builder
from headsmith.language.evaluation import evaluate
from headsmith.language.graph import Graph


class Network:
    """A ReLU network: `Network([(W, b), ...])` applies x -> W x + b for each pair, with a ReLU between the pairs.

    W is (out, in); with `transposed=True` every W is (in, out), as scikit-learn's coefs_ and Keras' kernels are. Any
    number of pairs, any widths; b may be None, for zeros; inputs are named x0, x1, ... unless `names` says otherwise.
    Tensors of torch are taken as they are.
    """

    def __init__(
        self,
        layers: Iterable[tuple[Any, Any]],
        names: Iterable[str] | None = None,
        *,
        transposed: bool | None = None,
    ) -> None:
        pairs = _turned(layers) if transposed else layers
        self.layers = tuple(_pair(index, pair) for index, pair in enumerate(pairs_of(pairs)))
        self.names = checked_chain(self.layers, names)
        if transposed is None and len(self.layers) > 1 and all(_ambiguous(weights) for weights, _ in self.layers):
            warnings.warn(
                "every matrix of the network is square, so no shape says whether it is (out, in): it is taken to be. "
                "Say transposed=False, or transposed=True for matrices (in, out) such as scikit-learn's coefs_",
                stacklevel=2,
            )

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

    def _repr_html_(self) -> str:
        return layers_html(f"ReLU network, {count(self.parameters, 'parameter')}", self.layers)


def layers_html(title: str, layers: Sequence[tuple[Array, Array]]) -> str:
    """The shapes of layers (W, b) for a notebook, with the largest weight of each."""
    rows = [
        (str(index), " x ".join(map(str, weights.shape)), number(float(np.abs(weights).max())))
        for index, (weights, _) in enumerate(layers)
    ]
    return table(title, rows, ("pair", "shape of W", "largest weight"), (0, 2))


def checked_chain(layers: Sequence[tuple[Array, Array]], names: Iterable[str] | None) -> tuple[str, ...]:
    """The names of the inputs of layers (W, b) with W (..., out, in), or TargetError where two of them do not chain."""
    if not layers:
        raise TargetError("the network has no layers; give at least one pair (W, b)")
    for index, (before, after) in enumerate(itertools.pairwise(layers)):
        if before[0].shape[-2] != after[0].shape[-1]:
            raise TargetError(
                f"pair {index} has {before[0].shape[-2]} outputs but pair {index + 1} takes "
                f"{after[0].shape[-1]} inputs: W is (out, in); {IN_OUT}"
            )
    inputs = layers[0][0].shape[-1]
    chosen = tuple(names) if names is not None else tuple(f"x{i}" for i in range(inputs))
    if len(chosen) != inputs or len(set(chosen)) != inputs:
        raise TargetError(f"{len(set(chosen))} different names for {inputs} inputs")
    return chosen


def real_pair(index: int, pair: Any) -> tuple[Array, Array]:
    """A layer's pair (W, b) as read-only arrays of finite numbers, of any shape without zeros; no b is zeros."""
    try:
        weights, bias = map(plain, pair)
        weights = frozen(weights)
        bias = np.zeros(weights.shape[:-1]) if bias is None else bias
        bias = frozen(bias)
    except (TypeError, ValueError) as problem:
        raise TargetError(f"pair {index} is not a pair (W, b) of real arrays: {problem}") from None
    if weights.ndim > 1 and 0 in weights.shape:
        raise TargetError(f"pair {index}: W has shape {weights.shape}: a layer of width zero; remove it")
    for what, array in (("W", weights), ("b", bias)):
        if not np.isfinite(array).all():
            where = tuple(map(int, np.argwhere(~np.isfinite(array))[0]))
            raise TargetError(f"pair {index}: {what}{list(where)} is {array[where]}; weights must be finite numbers")
    return weights, bias


def _pair(index: int, pair: tuple[Any, Any]) -> tuple[Array, Array]:
    weights, bias = real_pair(index, pair)
    if weights.ndim != 2:
        raise TargetError(f"pair {index}: W has shape {weights.shape}; it must be a matrix (out, in)")
    if bias.shape != weights.shape[:1]:
        hint = f". W is (out, in), and b fits the columns; {IN_OUT}" if bias.shape == weights.shape[1:] else ""
        raise TargetError(
            f"pair {index}: b has shape {bias.shape}; W has {weights.shape[0]} rows, so b needs as many{hint}"
        )
    return weights, bias


IN_OUT = (
    "matrices (in, out), such as scikit-learn's coefs_, are transposed: pass W.T, or transposed=True, or "
    "hs.from_sklearn(estimator)"
)


def pairs_of(layers: Any) -> Iterator[Any]:
    """What a network is made of, one by one; TargetError for anything that is no list."""
    told = advice(layers)
    if told is not None:
        raise TargetError(told)
    if isinstance(layers, str | bytes | dict) or not isinstance(layers, Iterable):
        raise TargetError(f"a network is made from a list of pairs [(W, b), ...]; got a {type(layers).__name__}")
    return iter(layers)


def _turned(layers: Iterable[tuple[Any, Any]]) -> Iterator[tuple[Any, Any]]:
    for index, pair in enumerate(pairs_of(layers)):
        try:
            weights, bias = pair
        except (TypeError, ValueError):
            raise TargetError(f"pair {index} is not a pair (W, b) of real arrays") from None
        yield np.asarray(plain(weights)).T, bias


def _ambiguous(weights: Array) -> bool:
    """Whether the transposed matrix would fit as well, and is another one."""
    return weights.shape[0] == weights.shape[1] and not np.array_equal(weights, weights.T)
