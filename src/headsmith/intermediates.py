"""A run with every intermediate by name: the stream before the first layer and after each, and where each head looks.

    embedding / register z1                 (token, column), reference tokens first
    layer 1 / move head 0 / pattern         (query token, key token)
    layer 1 / register z2                   what the layer changed
    output                                  (token, output)

Layers count from 1. Heads count from 0 within their kind and layer. Constant registers are listed once, at the
embedding.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from headsmith.core.arrays import Array
from headsmith.core.errors import DomainError
from headsmith.run import numpy_runner
from headsmith.run.attention import Attention, linear
from headsmith.transformer.ir import Layer, Transformer

PATTERN = "pattern"


def head_names(layer: Layer, number: int) -> list[str]:
    """The names of a layer's heads, in order; layers count from 1."""
    names: list[str] = []
    counts: dict[str, int] = {}
    for bank in layer.banks:
        for _ in range(bank.heads):
            place = counts[bank.kind] = counts.get(bank.kind, -1) + 1
            names.append(f"layer {number} / {bank.kind} head {place}")
    return names


def run_with_cache(transformer: Transformer, inputs: Any, *, causal: bool = False) -> tuple[Array, dict[str, Array]]:
    """The output (tokens, outputs) on one sequence `inputs` (tokens, inputs), and every intermediate by its name.

    Patterns take heads x tokens x tokens numbers: this is for looking at models, not for running long sequences.
    """
    inputs = np.asarray(inputs, dtype=np.float64)
    if inputs.ndim != 2:
        raise DomainError(f"intermediates are those of one sequence (tokens, inputs); got shape {inputs.shape}")
    numpy_runner.refuse_length(transformer, inputs.shape[0], causal)
    stream = numpy_runner.embed(transformer, inputs[None])
    found: dict[str, Array] = {f"embedding / register {name}": value[0].copy() for name, value in stream.items()}
    size = inputs.shape[0] + transformer.reference_tokens
    for number, layer in enumerate(transformer.layers):
        weights = np.zeros((layer.heads, size, size))

        def observe(_: int, heads: slice, queries: slice, seen: Any, into: Any = weights) -> None:
            into[heads, queries, :] = seen

        first, updates = 0, []
        for bank in layer.banks:
            attention = Attention(transformer, stream, causal, first, number, numpy_runner.CHUNK, observe)
            updates.append((bank, numpy_runner.head_outputs(attention, bank)))
            first += bank.heads
        for name, pattern in zip(head_names(layer, number + 1), weights, strict=True):
            found[f"{name} / {PATTERN}"] = pattern
        for bank, outputs in updates:
            for link in bank.write:
                stream[link.register] = stream[link.register] + linear(link, outputs[..., link.sources])
                found[f"layer {number + 1} / register {link.register}"] = stream[link.register][0]
    result = np.zeros((inputs.shape[0], transformer.outputs), dtype=transformer.dtype)
    for link in transformer.readout:
        result[..., link.reads] += linear(link, stream[link.register][0, transformer.reference_tokens :])
    found["output"] = result + transformer.readout_bias.astype(transformer.dtype)
    return found["output"], found
