"""The default runner: softmax attention in numpy, in the model's dtype, over batches of token sequences.

It evaluates the transformer and nothing else: scores, their powers of e, weighted values, output maps added to the
residual stream. It leaves out what is zero or unused: registers are kept apart instead of multiplied with zeros, scores
that heads of a bank share are computed once, and the rows of reference tokens are not computed (nothing reads what
heads write there, but for the sink, which stays zero within the certificate's leak). Memory stays bounded: attention
goes chunk by chunk. With `fused`, heads are evaluated through their closed forms (`closed`, transformer/heads/bank.py).

Models of 16 bits compute in float32. What the embedding, the reads and outputs of heads, their output maps, the sums of
the stream and the read-out return is rounded to the model's format before anything else reads it (`transformer.held`).

`patterns` evaluates every matrix as a textbook writes it instead, for one sequence.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from headsmith.core.errors import DomainError
from headsmith.core.rounding import HALVES
from headsmith.run.textbook import attended, first_stream
from headsmith.transformer.dense import dense_layer
from headsmith.transformer.heads.attentions import SHARP
from headsmith.transformer.heads.running import Attention, Stream, linear, read
from headsmith.transformer.heads.stream import DATA, POSITION, position_code
from headsmith.transformer.ir import Bank, Transformer

CHUNK = 1 << 18
"""How many scores are held at once."""


@dataclass(frozen=True, eq=False)
class Pattern:
    """The attention of one layer on one sequence: weights[head, query token, key token], over all tokens."""

    layer: int
    weights: Any


def run(
    transformer: Transformer, inputs: Any, *, causal: bool = False, hardmax: bool = False, fused: bool = False
) -> Any:
    """The model's output (batch, tokens, outputs) on `inputs` (batch, tokens, inputs), in the model's dtype.

    With `hardmax` every head attends to its largest scores only: the limit of large scales, with the same weights. With
    `fused` closed forms take the place of scores and weights.
    """
    if hardmax and fused:
        raise DomainError("closed forms are those of softmax heads: give hardmax or fused, not both")
    batch, tokens, _ = inputs.shape
    refuse_length(transformer, tokens, causal)
    widest = max((bank.readers for layer in transformer.layers for bank in layer.banks), default=1)
    rows = max(1, CHUNK // max(1, widest * tokens))
    parts = [_run(transformer, inputs[start : start + rows], causal, hardmax, fused) for start in range(0, batch, rows)]
    if not parts:
        return np.zeros((0, tokens, transformer.outputs), dtype=transformer.arithmetic)
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def patterns(transformer: Transformer, inputs: Any, *, causal: bool = False) -> list[Pattern]:
    """The attention weights of every layer on one sequence `inputs` (tokens, inputs), reference tokens included. Of a
    model whose grid is not one-hot, those of the data tokens' queries alone: its grid may be large."""
    refuse_length(transformer, inputs.shape[0], causal)
    state, found = first_stream(transformer, inputs), []
    for number, layer in enumerate(transformer.layers):
        if number == len(transformer.layers) - 1 and transformer.grid_form == "softmax":
            break
        dense = dense_layer(transformer, layer)
        weights, state = attended(transformer, dense, state, causal, watched(transformer))
        found.append(Pattern(number, weights))
    return found


def watched(transformer: Transformer) -> int:
    """The first token whose queries one looks at."""
    return 0 if transformer.grid_form == "one-hot" else transformer.reference_tokens


@dataclass(frozen=True, eq=False)
class Edits:
    """What takes the place of what a run computes: outputs of heads by (layer, bank, (first, last)) and registers after
    a layer by (layer, name); layers count from 1, and 0 is the embedding. `kept` collects what stood there before."""

    heads: Mapping[tuple[int, int, tuple[int, int]], Any]
    registers: Mapping[tuple[int, str], Any]
    kept: dict[Any, Any] = field(default_factory=dict)

    def edit_heads(self, layer: int, place: int, outputs: Any) -> Any:
        """What the heads of a bank return instead."""
        for (number, bank, (first, last)), value in self.heads.items():
            if (number, bank) == (layer, place):
                outputs = outputs.copy()
                self.kept[number, bank, (first, last)] = outputs[..., first:last].copy()
                if value is not None:
                    outputs[..., first:last] = value
        return outputs

    def edit_registers(self, layer: int, stream: Stream) -> None:
        """What registers hold instead."""
        for (number, name), value in self.registers.items():
            if number == layer:
                self.kept[number, name] = stream.get(name, 0.0)
                if value is not None:
                    stream[name] = value


def run_edited(transformer: Transformer, inputs: Any, causal: bool, edits: Edits) -> Any:
    """As `run`, all sequences at once, with some of what is computed replaced; None leaves it, and keeps it."""
    refuse_length(transformer, inputs.shape[1], causal)
    return _run(transformer, inputs, causal, hard=False, fused=False, edits=edits)


def _run(
    transformer: Transformer, inputs: Any, causal: bool, hard: bool, fused: bool, edits: Edits | None = None
) -> Any:
    batch, tokens, _ = inputs.shape
    stream = embed(transformer, inputs)
    if edits is not None:
        edits.edit_registers(0, stream)
    for number, layer in enumerate(transformer.layers):
        attention = Attention(transformer, stream, batch, tokens, causal, CHUNK, hard or transformer.attention in SHARP)
        closed = fused or (transformer.grid_form == "softmax" and layer is transformer.layers[-1])
        updates = [
            (bank, transformer.held(bank.closed(attention) if closed else bank.evaluated(attention)))
            for bank in layer.banks
        ]
        if edits is not None:
            each = enumerate(updates)
            updates = [(bank, edits.edit_heads(number + 1, place, outputs)) for place, (bank, outputs) in each]
            # Registers are added to in place: what was kept must stay.
            stream.update({name: value.copy() for name, value in stream.items()})
        _write(transformer, stream, updates)
        if edits is not None:
            edits.edit_registers(number + 1, stream)
    shape = batch, tokens, transformer.outputs
    result = transformer.held(read(transformer.readout, stream, shape, transformer.arithmetic))
    result += transformer.readout_bias.astype(transformer.arithmetic)
    return transformer.held(result)


def embed(transformer: Transformer, inputs: Any) -> Stream:
    """What data tokens hold before the first layer."""
    tokens, dtype = inputs.shape[1], transformer.arithmetic
    inputs = transformer.held(inputs)
    stream: Stream = {DATA: np.ones((1, tokens, 1), dtype=dtype)}
    if transformer.tokens > 1:
        stream[POSITION] = position_code(transformer.tokens, tokens).astype(dtype)[None]
    for name, value in transformer.positional.items():
        stream[name] = value[None, :tokens].astype(dtype)
    for link in transformer.embedding:
        _add(stream, link.register, linear(link, inputs[..., link.sources]))
    for name, value in transformer.initial.items():
        _add(stream, name, np.broadcast_to(value.astype(dtype), (1, tokens, len(value))))
    if transformer.dtype in HALVES:
        stream = {name: transformer.held(value) for name, value in stream.items()}
    return stream


def _write(transformer: Transformer, stream: Stream, updates: list[tuple[Bank, Any]]) -> None:
    """Add to the stream what the heads of a layer have returned. In 16 bits, all that a register gets is held before it
    is added, and so is the sum."""
    added: Stream = {} if transformer.dtype in HALVES else stream
    for bank, outputs in updates:
        for link in bank.write:
            _add(added, link.register, linear(link, outputs[..., link.sources]))
    if added is not stream:
        for name, values in added.items():
            stream[name] = transformer.held(stream.get(name, 0.0) + transformer.held(values))


def _add(stream: Stream, register: str, values: Any) -> None:
    """Add to a register what nobody else holds."""
    held = stream.get(register)
    if held is None:
        stream[register] = values
    elif held.shape == values.shape and held.flags.writeable:
        held += values
    else:
        stream[register] = held + values


def refuse_length(transformer: Transformer, tokens: int, causal: bool) -> None:
    """Raise DomainError if the model does not take sequences of so many tokens, or not under a causal mask."""
    if tokens > transformer.tokens:
        raise DomainError(f"a sequence of {tokens} tokens; the model takes at most {transformer.tokens}")
    for number, layer in enumerate(transformer.layers):
        for bank in layer.banks:
            try:
                bank.refuse_run(transformer, tokens, causal)
            except DomainError as problem:
                raise DomainError(f"layer {number}, {bank.kind} bank: {problem}") from None
