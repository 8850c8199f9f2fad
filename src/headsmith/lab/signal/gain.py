"""The gain of a model that exists: how much its outputs move with its residual stream, on average and at most.

A compiled model is run as a textbook transformer, every matrix written out, and differentiated by a reverse pass of its
own. For inputs drawn from the domain, the gain at a place of the stream is

    |d outputs / d stream|_F^2 / (number of outputs),

over the registers that layers write, on data tokens. Beside its average stands a bound that no input of the domain
exceeds (certified.py). A model of the user's own is a list of blocks, h -> h, each a Python function of numpy arrays or
a torch module: its gains are Hutchinson's estimates by central differences, and nothing is certified of them.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from headsmith.core.arrays import Array, frozen
from headsmith.core.errors import TargetError
from headsmith.lab.signal.certified import certified_gains, working_columns
from headsmith.lab.signal.theory import counted
from headsmith.language.builder import masks
from headsmith.model import Compiled
from headsmith.plan.circuits.pieces import in_blocks
from headsmith.transformer.dense import DenseLayer, DenseTransformer, dense
from headsmith.transformer.ir import Transformer

LARGEST = 100_000_000
"""Models with more numbers than this in one layer's matrices are not written out."""


@dataclass(frozen=True, eq=False)
class Gains:
    """Gains at each place of the stream: index 0 is before the first layer (or block), index l after l of them.

    `average` is the mean over the samples, with its standard error, and `largest_found` the largest of them: estimates.
    `certified` is a bound for every input of the domain (exact arithmetic, reference tokens held); None for blocks.
    """

    average: Array
    standard_error: Array
    largest_found: Array
    certified: Array | None
    samples: int
    seed: int

    @property
    def layers(self) -> int:
        return len(self.average) - 1

    def draw(self, path: Any) -> None:
        """Draw average, largest and certified gains, layer by layer."""
        from headsmith.lab.signal.draw import draw_gains

        draw_gains(self, path)


def compiled_gains(compiled: Compiled, *, samples: int = 64, seed: int = 0) -> Gains:
    """The gains of a compiled model, at inputs drawn evenly from its domain."""
    samples, transformer = counted("samples", samples), compiled.transformer
    if samples < 2:
        raise TargetError("samples is 1; a standard error needs at least 2")
    if transformer.attention != "softmax":
        raise TargetError(f"gains are those of softmax attention; this model has {transformer.attention} attention")
    if any(layer.neurons for layer in transformer.layers):
        raise TargetError("gains are those of attention; this model has SwiGLU blocks")
    model = dense(_small_enough(transformer))
    # Every program is about one mask, or about none.
    causal, blocks = True in masks(compiled.graph), compiled.blocks
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(samples):
        shape = (1 if blocks else transformer.tokens, compiled.box.size)
        x = compiled.box.low + (compiled.box.high - compiled.box.low) * rng.random(shape)
        table = in_blocks(x, transformer.tokens)[0] if blocks else x
        found.append(_gains_at(transformer, model, table, causal, first_only=blocks))
    return _summary(found, certified_gains(transformer, model, compiled.box), seed)


def _small_enough(transformer: Transformer) -> Transformer:
    from headsmith.transformer.bill import head_features
    from headsmith.transformer.ir import width

    for number, layer in enumerate(transformer.layers):
        size = sum(bank.heads * (2 * head_features(transformer, bank) + 2) for bank in layer.banks) * width(transformer)
        if size > LARGEST:
            raise TargetError(f"layer {number} has {size:,} numbers when written out; gains are for smaller models")
    return transformer


def _summary(found: Sequence[Array], certified: Array | None, seed: int) -> Gains:
    table = np.stack(found)
    error = table.std(axis=0, ddof=1) / math.sqrt(len(table))
    bound = None if certified is None else frozen(certified)
    return Gains(frozen(table.mean(axis=0)), frozen(error), frozen(table.max(axis=0)), bound, len(table), seed)


# Compiled models: the textbook run, there and back ------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Seen:
    """What one layer saw: the stream (tokens, d_model), and how data tokens attended (heads, data tokens, tokens)."""

    stream: Array
    attention: Array


def run_held(model: DenseTransformer, table: Array, causal: bool) -> tuple[Array, list[_Seen]]:
    """The outputs (tokens, outputs) for one sequence (tokens, inputs), with reference tokens held at what is stored."""
    prefix, length = len(model.references), len(table)
    stream = np.concatenate([model.references, table @ model.W_E + model.b_E + model.W_pos[:length]])
    visible = np.ones((length, prefix + length), dtype=bool)
    if causal:
        visible[:, prefix:] = np.tri(length, dtype=bool)
    seen = []
    for layer in model.layers:
        scores = (stream[prefix:] @ layer.W_Q) @ (stream @ layer.W_K).swapaxes(-1, -2)
        scores = np.where(visible, scores, -np.inf)
        attention = np.exp(scores - scores.max(axis=-1, keepdims=True))
        attention /= attention.sum(axis=-1, keepdims=True)
        seen.append(_Seen(stream, attention))
        stream = stream.copy()
        stream[prefix:] += ((attention @ (seen[-1].stream @ layer.W_V)) @ layer.W_O).sum(axis=0)
    return stream[prefix:] @ model.W_U + model.b_U, seen


def _gains_at(transformer: Transformer, model: DenseTransformer, table: Array, causal: bool, first_only: bool) -> Array:
    """|d outputs / d stream|_F^2 / outputs before the first layer and after each, at one input."""
    _, seen = run_held(model, table, causal)
    prefix, working = len(model.references), working_columns(transformer)
    # One row of gradients for each output of each token: (outputs, data tokens, d_model).
    places = [0] if first_only else list(range(len(table)))
    outputs = model.W_U.shape[1]
    gradients = np.zeros((len(places) * outputs, len(table), len(working)))
    for row, place in enumerate(places):
        gradients[row * outputs : (row + 1) * outputs, place] = model.W_U.T
    gains = [_gain(gradients, working)]
    for layer, each in zip(reversed(model.layers), reversed(seen), strict=True):
        gradients = gradients + _layer_reversed(layer, each, gradients, prefix)
        gains.append(_gain(gradients, working))
    return np.array(gains[::-1])


def _gain(gradients: Array, working: Array) -> float:
    return float((gradients[..., working] ** 2).sum() / len(gradients))


def _layer_reversed(layer: DenseLayer, seen: _Seen, gradients: Array, prefix: int) -> Array:
    """What a layer's attention adds to the gradients of its input, on data tokens. Axes: row, head, token, column."""
    A, data = seen.attention, seen.stream[prefix:]
    at_heads = gradients[:, None] @ layer.W_O.swapaxes(-1, -2)
    to_values = (A.swapaxes(-1, -2) @ at_heads)[..., prefix:, :]
    weights = at_heads @ (seen.stream @ layer.W_V).swapaxes(-1, -2)
    scores = A * (weights - (A * weights).sum(axis=-1, keepdims=True))
    to_queries = scores @ (seen.stream @ layer.W_K)
    to_keys = scores.swapaxes(-1, -2)[..., prefix:, :] @ (data @ layer.W_Q)
    pairs = ((to_values, layer.W_V), (to_queries, layer.W_Q), (to_keys, layer.W_K))
    return np.asarray(sum(np.einsum("rhtf,hdf->rtd", each, W, optimize=True) for each, W in pairs))


# Models of the user's own -------------------------------------------------------------------------------------------


def block_gains(
    blocks: Sequence[Callable[[Any], Any]], inputs: Any, *, samples: int = 16, seed: int = 0, step: float = 1e-4
) -> Gains:
    """The gains |d h^L / d h^l|_F^2 / (size of h^L) of a chain of blocks at `inputs`, an array of any shape.

    Every sample is one probe: a random direction R in h^l, and (h^L at h^l + step R - h^L at h^l - step R) / (2 step).
    """
    chain = [_as_function(block) for block in blocks]
    if not chain:
        raise TargetError("no blocks were given; a model is a list of functions h -> h, or of torch modules")
    samples = counted("samples", samples)
    if samples < 2:
        raise TargetError("samples is 1; a standard error needs at least 2")
    stream = [np.asarray(inputs, dtype=np.float64)]
    if not np.isfinite(stream[0]).all():
        raise TargetError("the inputs have numbers that are not finite")
    for block in chain:
        stream.append(block(stream[-1]))
    rng = np.random.default_rng(seed)
    found = np.ones((samples, len(chain) + 1))
    for place in range(len(chain)):
        size = float(np.sqrt(np.mean(stream[place] ** 2))) or 1.0
        for sample in range(samples):
            probe = rng.standard_normal(stream[place].shape)
            ends = []
            for sign in (1.0, -1.0):
                moved = stream[place] + sign * step * size * probe
                for block in chain[place:]:
                    moved = block(moved)
                ends.append(moved)
            slope = (ends[0] - ends[1]) / (2.0 * step * size)
            found[sample, place] = (slope**2).sum() / slope.size
    return _summary(list(found), None, seed)


def _as_function(block: Any) -> Callable[[Array], Array]:
    """A block as a function of float64 arrays. A torch module is copied into float64 and run without gradients."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(block, torch.nn.Module):
        import copy

        module = copy.deepcopy(block).double().eval()

        def run(values: Array) -> Array:
            with torch.no_grad():
                return np.asarray(module(torch.from_numpy(np.array(values))).numpy())

        return run
    if not callable(block):
        raise TargetError(f"a block is a {type(block).__name__}; give a function h -> h, or a torch module")
    return lambda values: np.asarray(block(values), dtype=np.float64)
