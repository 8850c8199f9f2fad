"""A run with every intermediate by name: the stream before the first layer and after each, and what each head does.

    embedding / register z1: x - y                      (token, column), reference tokens first
    layer 1 / sink head 0: relu(x - y) / queries        (token, feature), the stream times W_Q
    ... / keys                                          (token, feature), the stream times W_K
    ... / scores                                        (query token, key token); -inf where a causal mask hides the key
    ... / pattern                                       (query token, key token), the softmax of the scores, or what
                                                        another attention has in its place (heads/attentions.py)
    ... / values                                        (token, value), the stream times W_V
    ... / output                                        (token, column of the stream), pattern times values times W_O
    layer 1 / neurons / gates, output                   (token, neuron), of a layer of neurons: what gates read, and
                                                        silu of that, multiplied
    layer 1 / register out: relu(x - y)                 what the layer changed
    softmax / pattern                                   (token, answer), of a model that ends in a softmax
    output                                              (token, output)

The matrices are those of `model.dense()`, whose `columns` say where in the stream a register stands.

Layers count from 1. Heads count from 0 within their kind and layer. After the colon stands what the head computes, or
what a data token holds in the register; it may be left out: "layer 1 / sink head 0 / pattern" finds the same. Constant
registers are listed once, at the embedding.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from headsmith.core.arrays import Array
from headsmith.core.errors import DomainError
from headsmith.core.figures import shortened
from headsmith.inside.meanings import LENGTH, Meanings, without_kind
from headsmith.inside.places import in_full
from headsmith.run import numpy_runner
from headsmith.run.textbook import activated, attended, first_stream, shares
from headsmith.transformer.dense import DenseLayer, dense_layer, last_softmax
from headsmith.transformer.heads.running import linear
from headsmith.transformer.ir import Layer, Transformer, layout

PATTERN = "pattern"

SHOWN = 24
"""How many names are shown at the prompt."""


class Intermediates(dict[str, Array]):
    """Arrays by name. What stands after a colon, the meaning, may be left out when one looks something up."""

    def __repr__(self) -> str:
        lines = [f" {name}  {value.shape}" for name, value in list(self.items())[:SHOWN]]
        more = [f" and {len(self) - SHOWN} more"] if len(self) > SHOWN else []
        return "\n".join([f"<Intermediates: {len(self)} arrays", *lines, *more]) + ">"

    transformer: Transformer | None = None

    def __missing__(self, name: str) -> Array:
        other = None if self.transformer is None else in_full(self.transformer, name)
        if other is not None and other in self._full:
            return self[self._full[other]]
        if name not in self._full:
            some = ", ".join(map(repr, list(self)[:4]))
            raise KeyError(f"{name}; there are {some}, ...")
        return self[self._full[name]]

    def __contains__(self, name: object) -> bool:
        if super().__contains__(name) or name in self._full:
            return True
        return self.transformer is not None and in_full(self.transformer, str(name)) in self._full

    @cached_property
    def _full(self) -> dict[str, str]:
        return {without_meaning(name): name for name in self}


def without_meaning(name: str) -> str:
    """The name of an intermediate without what stands after colons."""
    return " / ".join(re.sub(r"^(\w+ head \d+|register [^:]*): .*$", r"\1", part) for part in name.split(" / "))


def head_names(layer: Layer, number: int, meanings: Sequence[str] = ()) -> list[str]:
    """The names of a layer's heads, in order; layers count from 1."""
    names: list[str] = []
    counts: dict[str, int] = {}
    for bank in layer.banks:
        for _ in range(bank.heads):
            place = counts[bank.kind] = counts.get(bank.kind, -1) + 1
            text = f": {without_kind(meanings[len(names)])}" if meanings else ""
            names.append(f"layer {number} / {bank.kind} head {place}{text}")
    return names


def run_with_cache(
    transformer: Transformer, inputs: Any, *, causal: bool = False, meanings: Meanings | None = None
) -> tuple[Array, Intermediates]:
    """The output (tokens, outputs) on one sequence `inputs` (tokens, inputs), and every intermediate by its name, with
    its meaning where `meanings` are given.

    Scores and patterns take heads x tokens x tokens numbers: this is for looking at models, not for running long
    sequences.
    """
    inputs = np.asarray(inputs, dtype=np.float64)
    if inputs.ndim != 2:
        raise DomainError(f"intermediates are those of one sequence (tokens, inputs); got shape {inputs.shape}")
    numpy_runner.refuse_length(transformer, inputs.shape[0], causal)
    state, columns, found = first_stream(transformer, inputs), layout(transformer), Intermediates()
    found.transformer = transformer
    for name, place in columns.items():
        if place.start == place.stop:
            continue
        found[f"embedding / {_register(meanings, 0, name)}"] = state[:, place].copy()
    softmax = transformer.grid_form == "softmax"
    for number, layer in enumerate(transformer.layers[:-1] if softmax else transformer.layers):
        texts = meanings.heads[number] if meanings is not None else ()
        matrices = dense_layer(transformer, layer)
        if layer.neurons:
            gates, returned, _ = activated(transformer, matrices, state)
            found[f"layer {number + 1} / neurons / gates"] = gates
            found[f"layer {number + 1} / neurons / output"] = returned
        patterns, after = attended(transformer, matrices, state, causal, numpy_runner.watched(transformer))
        for head, name in enumerate(head_names(layer, number + 1, texts)):
            for part, value in head_parts(matrices, head, state, patterns[head], causal).items():
                found[f"{name} / {part}"] = value
        for register in dict.fromkeys(link.register for bank in layer.banks for link in bank.write):
            name = _register(meanings, number + 1, register)
            seen = after[numpy_runner.watched(transformer) :]
            found[f"layer {number + 1} / {name}"] = seen[:, columns[register]].copy()
        state = after
    if softmax:
        W, b, V = last_softmax(transformer)
        found[f"softmax / {PATTERN}"] = shares(state @ W + b)
        found["output"] = found[f"softmax / {PATTERN}"] @ V + transformer.readout_bias
        return found["output"], found
    result = np.zeros((inputs.shape[0], transformer.outputs), dtype=transformer.arithmetic)
    for link in transformer.readout:
        result[..., link.reads] += linear(link, state[transformer.reference_tokens :, columns[link.register]])
    bias = transformer.readout_bias.astype(transformer.arithmetic)
    found["output"] = transformer.held(transformer.held(result) + bias)
    return found["output"], found


def head_parts(matrices: DenseLayer, head: int, state: Array, pattern: Array, causal: bool = False) -> dict[str, Array]:
    """What one head computes on the stream `state` (token, column), where it looks as `pattern` says. Rows of `pattern`
    are those of the last tokens, if it has fewer than there are tokens."""
    rows = state[len(state) - len(pattern) :]
    queries, keys, values = rows @ matrices.W_Q[head], state @ matrices.W_K[head], state @ matrices.W_V[head]
    scores = queries @ keys.T
    if causal:
        scores = np.where(np.tril(np.ones(scores.shape, dtype=bool), len(state) - len(rows)), scores, -np.inf)
    output = pattern @ values @ matrices.W_O[head]
    return {
        "queries": queries,
        "keys": keys,
        "scores": scores,
        PATTERN: pattern,
        "values": values,
        "output": np.asarray(output),
    }


def _register(meanings: Meanings | None, layer: int, name: str) -> str:
    """A register's name, with what a data token holds there after the layer."""
    text = meanings.registers[layer].get(name) if meanings is not None else None
    return f"register {name}: {shortened(text, LENGTH)}" if text else f"register {name}"
