"""The default runner: softmax attention in numpy, in the model's dtype, over batches of token sequences.

It evaluates the transformer and nothing else: scores from queries and keys, softmax over all tokens (or over the
earlier ones), weighted values, output maps added to the residual stream. It only leaves out what is zero or unused:
registers are kept apart instead of multiplied with zeros, scores that all heads of a bank share are computed once, and
the rows of reference tokens are not computed (nothing reads what heads write there, but for the sink, which stays zero
within the certificate's leak). Memory stays bounded: attention goes chunk by chunk.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, assert_never

import numpy as np

from headsmith.core.errors import DomainError
from headsmith.heads.attend import AttendBank
from headsmith.heads.boltzmann import BoltzmannBank
from headsmith.heads.gate import GateBank
from headsmith.heads.mean import MeanBank
from headsmith.heads.move import MoveBank, refuse_missing
from headsmith.heads.sink import SinkBank
from headsmith.heads.stream import DATA, GRID, POSITION, REFERENCE, position_code
from headsmith.heads.table import TableBank
from headsmith.run.attention import Attention, Observer, Stream, linear, sink_outputs, table_outputs
from headsmith.run.mixing import attend_outputs, boltzmann_outputs, gate_outputs, mean_outputs, move_outputs
from headsmith.transformer.ir import Bank, Transformer

CHUNK = 1 << 18
"""How many scores are held at once."""


@dataclass(frozen=True, eq=False)
class Pattern:
    """The attention of one layer on one sequence: weights[head, query token, key token], over all tokens."""

    layer: int
    weights: Any


def run(transformer: Transformer, inputs: Any, *, causal: bool = False, hardmax: bool = False) -> Any:
    """The model's output (batch, tokens, outputs) on `inputs` (batch, tokens, inputs), in the model's dtype.

    With `hardmax` every head attends to its largest scores only: the limit of large scales, with the same weights.
    """
    batch, tokens, _ = inputs.shape
    refuse_length(transformer, tokens, causal)
    widest = max((layer.heads for layer in transformer.layers), default=1)
    rows = max(1, CHUNK // max(1, widest * tokens * (tokens + transformer.reference_tokens)))
    parts = [_run(transformer, inputs[start : start + rows], causal, hard=hardmax) for start in range(0, batch, rows)]
    if not parts:
        return np.zeros((0, tokens, transformer.outputs), dtype=transformer.dtype)
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def patterns(transformer: Transformer, inputs: Any, *, causal: bool = False) -> list[Pattern]:
    """The attention weights of every layer on one sequence `inputs` (tokens, inputs), reference tokens included."""
    refuse_length(transformer, inputs.shape[0], causal)
    size = inputs.shape[0] + transformer.reference_tokens
    found = [Pattern(number, np.zeros((layer.heads, size, size))) for number, layer in enumerate(transformer.layers)]

    def observe(number: int, heads: slice, queries: slice, weights: Any) -> None:
        found[number].weights[heads, queries, :] = weights

    _run(transformer, inputs[None], causal, observe)
    return found


def _run(
    transformer: Transformer, inputs: Any, causal: bool, observe: Observer | None = None, hard: bool = False
) -> Any:
    stream = embed(transformer, inputs)
    for number, layer in enumerate(transformer.layers):
        first, updates = 0, []
        for bank in layer.banks:
            attention = Attention(transformer, stream, causal, first, number, CHUNK, observe, hard)
            updates.append((bank, head_outputs(attention, bank)))
            first += bank.heads
        for bank, outputs in updates:
            for link in bank.write:
                stream[link.register] = stream[link.register] + linear(link, outputs[..., link.sources])
    prefix = transformer.reference_tokens
    result = np.zeros((*inputs.shape[:2], transformer.outputs), dtype=transformer.dtype)
    for link in transformer.readout:
        result[..., link.reads] += linear(link, stream[link.register][:, prefix:])
    return result + transformer.readout_bias.astype(transformer.dtype)


def embed(transformer: Transformer, inputs: Any) -> Stream:
    """The stream before the first layer."""
    batch, tokens, _ = inputs.shape
    dtype, prefix = np.dtype(transformer.dtype), transformer.reference_tokens
    inputs = inputs.astype(dtype)
    stream: Stream = {}
    for register in transformer.registers:
        stream[register.name] = np.zeros((batch, prefix + tokens, register.size), dtype=dtype)
    stream[DATA][:, prefix:] = 1.0
    stream[REFERENCE][:, : transformer.sink_tokens] = 1.0
    if transformer.grid_tokens:
        stream[GRID][:, transformer.sink_tokens : prefix] = np.eye(transformer.grid_tokens)
    if transformer.tokens > 1:
        stream[POSITION][:, prefix:] = position_code(transformer.tokens, tokens)
    for name, value in transformer.positional.items():
        stream[name][:, prefix:] = value[:tokens].astype(dtype)
    for name, value in transformer.initial.items():
        stream[name][:, prefix:] += value.astype(dtype)
    for link in transformer.embedding:
        stream[link.register][:, prefix:] += linear(link, inputs[..., link.sources])
    return stream


def head_outputs(attention: Attention, bank: Bank) -> Any:
    """What the heads return: (batch, token, outputs); zero on reference tokens unless somebody observes."""
    match bank:
        case SinkBank():
            return sink_outputs(attention, bank)
        case TableBank():
            return table_outputs(attention, bank)
        case GateBank():
            return gate_outputs(attention, bank)
        case MeanBank():
            return mean_outputs(attention, bank)
        case BoltzmannBank():
            return boltzmann_outputs(attention, bank)
        case MoveBank():
            return move_outputs(attention, bank)
        case AttendBank():
            return attend_outputs(attention, bank)
        case _:
            assert_never(bank)


def refuse_length(transformer: Transformer, tokens: int, causal: bool) -> None:
    """Raise DomainError if the model does not take sequences of so many tokens, or not under a causal mask."""
    if tokens > transformer.tokens:
        raise DomainError(f"a sequence of {tokens} tokens; the model takes at most {transformer.tokens}")
    for number, layer in enumerate(transformer.layers):
        for bank in layer.banks:
            where = f"layer {number}, {bank.kind} bank"
            if isinstance(bank, MoveBank):
                try:
                    refuse_missing(transformer.positional[bank.address], transformer.tokens, tokens, causal)
                except DomainError as problem:
                    raise DomainError(f"{where}: {problem}") from None
            if isinstance(bank, TableBank) and bank.grid != GRID and (causal or tokens != transformer.tokens):
                raise DomainError(
                    f"{where}: all {transformer.tokens} data tokens are its grid; give a full sequence, not {tokens} "
                    "tokens, and no causal mask"
                )
