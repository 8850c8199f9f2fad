"""A model as plain tensors by name, and a configuration: what every runtime and every export of a whole transformer is
made from.

    embed.weight (d_model, inputs), embed.bias      data tokens: x -> embed(x) + positions[i]
    positions (tokens, d_model)
    references (reference tokens, d_model)          constant rows, which come first
    layers.L.query.weight (heads * d_head, d_model), key, value; layers.L.output.weight (d_model, heads * d_value)
    layers.L.gate.weight (neurons, d_model), up; layers.L.down.weight (d_model, neurons)     of a SwiGLU block instead
    unembed.weight (outputs, d_model), unembed.bias
    last.weight (answers, d_model), last.bias; answers.weight (outputs, answers)      of a model that ends in a softmax

These are the weights of torch.nn.Linear layers, in the model's dtype. Each is a stored number of the model, or a
product of stored numbers that was rounded once, as docs/certificate.md (section 20) has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from headsmith.core.errors import TargetError
from headsmith.core.rounding import HALVES, held
from headsmith.transformer.dense import DenseTransformer

Takes = Literal["points", "sequences", "blocks"]
"""What one calls a model with: (..., inputs); (..., m, inputs) with m tokens; or (..., inputs) that every token holds
in a block of its own."""


@dataclass(frozen=True, eq=False)
class Plain:
    """A whole transformer for other tools: a configuration that JSON can hold, and tensors by name."""

    config: dict[str, Any]
    tensors: dict[str, Any]


def called(
    inputs: int, outputs: int, tokens: int, takes: Takes, causal: bool, dtype: str, lengths: Sequence[int] = ()
) -> dict[str, Any]:
    """How a model is called: the part of the configuration that every runtime needs. `inputs` are those of one token;
    `lengths` the numbers of tokens that a sequence may have, all up to `tokens` unless given."""
    return {
        "inputs": inputs // tokens if takes == "blocks" else inputs,
        "outputs": outputs,
        "tokens": tokens,
        "causal": causal,
        "takes": takes,
        "lengths": runs(lengths or range(1, tokens + 1)),
        "dtype": dtype,
    }


def plain(model: DenseTransformer, calling: dict[str, Any], names: Sequence[Sequence[str]] = ()) -> Plain:
    """The model's tensors in its dtype, and the configuration that says what they are and how the model is called;
    `names` are those of the heads, layer by layer."""
    tensors: dict[str, Any] = {
        "embed.weight": model.W_E.T,
        "embed.bias": model.b_E,
        "positions": model.W_pos,
        "references": model.references,
    }
    layers = []
    for number, layer in enumerate(model.layers):
        if layer.neurons:
            layers.append({"heads": 0, "d_head": 0, "d_value": 0, "names": [], "neurons": layer.neurons})
            for name, matrix in (("gate", layer.W_gate), ("up", layer.W_up), ("down", layer.W_down)):
                tensors[f"layers.{number}.{name}.weight"] = matrix.T
            continue
        heads, d_model, d_head = layer.W_Q.shape
        d_value = layer.W_V.shape[2]
        own = list(names[number]) if names else [f"head {head}" for head in range(heads)]
        layers.append({"heads": heads, "d_head": d_head, "d_value": d_value, "names": own})
        for name, matrix in (("query", layer.W_Q), ("key", layer.W_K), ("value", layer.W_V)):
            tensors[f"layers.{number}.{name}.weight"] = matrix.transpose(0, 2, 1).reshape(-1, d_model)
        tensors[f"layers.{number}.output.weight"] = layer.W_O.reshape(heads * d_value, d_model).T
    answers = None
    if model.last is None:
        tensors |= {"unembed.weight": model.W_U.T, "unembed.bias": model.b_U}
    else:
        W, b, V = model.last
        answers = len(b)
        tensors |= {"last.weight": W.T, "last.bias": b, "answers.weight": V.T}
    config = calling | {
        "reference_tokens": len(model.references),
        "d_model": model.d_model,
        "layers": layers,
        "answers": answers,
    }
    dtype = calling["dtype"]
    return Plain(config, {name: np.ascontiguousarray(held(value, dtype)) for name, value in tensors.items()})


def refuse_halves(dtype: str, tool: str) -> None:
    """Raise TargetError for a model of 16 bits, whose certificate is about sums in float32 and what is rounded after
    them: of other tools than torch nobody knows."""
    if dtype in HALVES:
        raise TargetError(
            f"a {dtype} model is exported to torch alone: what {tool} rounds to {dtype}, and when, is not what is "
            "certified; compile with dtype='float32'"
        )


def runs(numbers: Sequence[int]) -> list[list[int]]:
    """Rising whole numbers as runs [first, last]."""
    found: list[list[int]] = []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return found
