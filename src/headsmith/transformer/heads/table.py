"""Table head: any smooth functions of one or two linear forms, by a softmax over a grid of constant reference tokens.

Reference token k scores  slope[k] . s + offset[k]  for a data token whose reads are s (one or two numbers), and
holds the constants values[k]. The head returns

    g(s) = sum_k w_k values[k],        w = softmax_k(slope[k] . s + offset[k]),

one number for each column of `values`: all functions of the same linear form share a head. How well g stands for
them is proved from the stored numbers themselves (`kernel/core/table.py`).

Tokens that hold no value (data tokens, and the sink) are silent: they score -gain. With n of them,

Leak lemma.  the total weight of silent tokens is at most  n e^{-gain - m},  m = max_k (slope[k] . s + offset[k]),
    and since their value is zero the output shrinks by at most that factor.

Rounding lemma.  If every score is off by at most d, the output moves by at most (max v - min v) d / 2, see
    kernel/core/softmax.py. A score is a sum of two or three products (slopes, offset); that of a silent token is -gain,
    exactly.

The features of query and key, and the value; `grid` is the one-hot register of the reference tokens:

    slope a     read_a . x                        slope[:, a] . grid
    offset      data                              offset . grid - gain (data + reference)
    value       values . grid

Where the model has a sink token too, reference tokens must not be written: their queries go to it,

    keep        keep_gain / KEY (reference + sum grid)    KEY * reference

The grid may instead be the data tokens themselves: `grid` then names a positional register that is one-hot over
them. Every data token sees every other (no causal mask, no shorter sequence), and the silent ones that the leak counts
are the reference tokens, not the data tokens: they have the key -gain.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from headsmith.core.arrays import Array
from headsmith.core.errors import CertificateError, DomainError
from headsmith.core.figures import shortened
from headsmith.transformer.heads.bank import (
    HeadBank,
    Words,
    keep,
)
from headsmith.transformer.heads.running import Attention, blocks
from headsmith.transformer.heads.scaling import Scaling, even
from headsmith.transformer.heads.stream import DATA, GRID, REFERENCE, Feature, On, Read, Terms, unit
from headsmith.transformer.heads.surroundings import Surroundings


@dataclass(frozen=True, eq=False)
class TableBank(HeadBank):
    """All table heads of one layer. Output (head h, column m) is number h * columns + m: it computes component
    `component` of circuit node `node` there, or nothing (node -1).

    `read` has heads * arguments rows: row h * arguments + a is argument a of head h. `slope` is (heads, tokens,
    arguments), `offset` (heads, tokens), `values` (heads, tokens, columns). `grid` is the register that tells the
    grid's tokens apart: that of the reference tokens, or a positional one.
    """

    kind: ClassVar[str] = "table"
    called: ClassVar[str] = "table"
    arrays: ClassVar[tuple[str, ...]] = ("slope", "offset", "values")
    folded_arrays: ClassVar[tuple[str, ...]] = ("offset",)
    numbers: ClassVar[tuple[str, ...]] = ("gain", "keep_gain")
    registers: ClassVar[Mapping[str, str | None]] = {"grid": GRID}
    approximates: ClassVar[bool] = True

    slope: Array
    offset: Array
    values: Array
    gain: float
    keep_gain: float
    grid: str = GRID

    @property
    def heads(self) -> int:
        return len(self.offset)

    @property
    def arguments(self) -> int:
        return int(self.slope.shape[2])

    @property
    def columns(self) -> int:
        return int(self.values.shape[2])

    @property
    def row(self) -> int:
        """How many numbers a token of the table has: slopes, offset, values."""
        return self.arguments + 1 + self.columns

    @property
    def readers(self) -> int:
        """How many linear forms the bank reads."""
        return self.heads * self.arguments

    @property
    def outputs(self) -> int:
        """How many numbers the bank returns."""
        return self.heads * self.columns

    def check(self, model: Surroundings, where: str) -> None:
        """One row of the table for each token of the grid, an argument or more, a column or more."""
        dimensions = (self.slope.ndim, self.offset.ndim, self.values.ndim)
        if dimensions != (3, 2, 3) or not self.slope.shape[2] or self.values.shape[2] < 1:
            raise CertificateError(f"{where}: the table has slopes {self.slope.shape}, values {self.values.shape}")
        tokens, kind = model.sizes.get(self.grid, 0), "reference"
        if self.grid != GRID:
            kind = "data"
            rows = model.positional.get(self.grid)
            if rows is None or not np.array_equal(rows, np.eye(model.tokens)):
                raise CertificateError(
                    f"{where}: the grid {self.grid} is no positional register that tells tokens apart"
                )
        expected = (len(self.offset), tokens)
        if tokens < 1 or any(array.shape[:2] != expected for array in (self.slope, self.offset, self.values)):
            raise CertificateError(f"{where}: the table does not fit {tokens} {kind} tokens")

    def refuse_run(self, model: Surroundings, tokens: int, causal: bool) -> None:
        if self.grid != GRID and (causal or tokens != model.tokens):
            raise DomainError(
                f"all {model.tokens} data tokens are its grid; give a full sequence, not {tokens} tokens, and no "
                "causal mask"
            )

    def evaluated(self, attention: Attention) -> Any:
        return self._outputs(attention, True)

    def closed(self, attention: Attention) -> Any:
        """As if tokens that hold no value were not there."""
        return self._outputs(attention, False)

    def _outputs(self, attention: Attention, leak: bool) -> Any:
        dtype = attention.dtype
        slope, offset, values = (each.astype(dtype) for each in (self.slope, self.offset, self.values))
        silent = attention.seen() + dtype.type(attention.transformer.sink_tokens)
        if self.grid != GRID:
            # The data tokens are the grid: each scores what it stands for.
            place = attention.transformer.positional[self.grid].astype(dtype)
            slope, offset, values = place @ slope, offset @ place.T, place @ values
            silent = np.full(attention.tokens, attention.references, dtype=dtype)
        silent = np.broadcast_to(silent, (attention.batch, attention.tokens)).reshape(-1)
        reads = attention.reads(self).reshape(-1, self.heads, self.arguments).transpose(1, 0, 2)
        outputs = np.empty((attention.batch * attention.tokens, self.heads, self.columns), dtype=dtype)
        for rows, heads in blocks(attention, self.heads, offset.shape[1]):
            # scores[head, row, grid token]
            scores = reads[heads, rows] @ slope[heads].transpose(0, 2, 1)
            scores += offset[heads, None]
            top = scores.max(axis=2)
            if leak:
                top = np.maximum(top, dtype.type(-self.gain))
            scores -= top[..., None]
            total = attention.powers(scores).sum(axis=2)
            if leak:
                total += attention.power(-self.gain, top) * silent[rows]
            outputs[rows, heads] = ((scores @ values[heads]) / total[..., None]).transpose(1, 0, 2)
        return outputs.reshape(attention.batch, attention.tokens, self.outputs)

    def constants(self, model: Surroundings) -> dict[str, Any]:
        slope, offset, values = self.slope, self.offset, self.values
        if self.grid != GRID:
            # The data tokens are the grid: each scores what it stands for.
            place = model.positional[self.grid]
            slope, offset, values = place @ slope, offset @ place.T, place @ values
        return {"slope": slope.transpose(2, 0, 1), "offset": offset, "values": values}

    def features(self, model: Surroundings) -> tuple[Feature, ...]:
        rows, arguments = model.grid_form == "rows", range(self.arguments)
        slopes = [
            Feature(
                f"slope {each}",
                (Read(slice(each, None, self.arguments)),),
                (On(self.grid, unit(self.row, each, 1.0) if rows else self.slope[:, :, each]),),
                "k",
            )
            for each in arguments
        ]
        held = On(self.grid, unit(self.row, self.arguments, 1.0) if rows else self.offset)
        silent = [On(name, -self.gain) for name in silent_registers(self, model.grid_tokens)]
        return (*slopes, Feature("offset", (On(DATA, 1.0),), (held, *silent)), *keep(model, self.keep_gain))

    def value(self, model: Surroundings) -> Terms:
        if model.grid_form != "rows":
            return (On(self.grid, self.values),)
        # Values are the last columns of the grid's register.
        return (On(GRID, np.eye(self.row)[None, :, -self.columns :]),)

    @property
    def stands_for(self) -> str:
        return f"function of k = {self.arguments} linear form{'s'[: self.arguments - 1]}"

    def nonzeros(self, model: Surroundings, read: int) -> int:
        if model.grid_form != "softmax":
            return super().nonzeros(model, read)
        # W is the read times the slopes; then b and V.
        rows = np.count_nonzero(self.slope[0], axis=0)
        links = [(link, np.count_nonzero(np.atleast_2d(link.weights.T).T, axis=1)) for link in self.read]
        products = sum(int(rows[link.reads] @ each) for link, each in links)
        return products + int(np.count_nonzero(self.offset)) + int(np.count_nonzero(self.values))

    @property
    def stored_nonzeros(self) -> int:
        """Non-zero numbers of the table itself."""
        return sum(int(np.count_nonzero(array)) for array in (self.slope, self.offset, self.values))

    def scaled(self, scaling: Scaling) -> Self:
        # Offsets that centre the scores leave the largest of them near zero, or above.
        lowest = float(np.max(-self.offset.max(axis=1), initial=0.0))
        gain = even(scaling.reach + lowest + 6.0, scaling.model.precision)
        return replace(self, gain=gain, keep_gain=scaling.reference)

    def value_sizes(self) -> Any:
        return np.abs(self.values).max(axis=1).reshape(-1, 1)

    def told(self, head: int, model: Surroundings, words: Words) -> list[str]:
        forms = [words.read(head * self.arguments + each) for each in range(self.arguments)]
        held = enumerate(map(_shown, self.values[head]), start=model.sink_tokens)
        values = ", ".join(f"r{token}: {text}" for token, text in held)
        return [
            f"reads {' and '.join(forms)}; scores of {words.grid} are linear in that",
            f"so it returns a softmax mean of what they hold: {shortened(values, 90)}",
        ]

    def held_texts(self, sinks: int) -> list[dict[int, str]]:
        return [dict(enumerate(map(_shown, head), start=sinks)) for head in self.values]


def silent_registers(bank: TableBank, grid_tokens: int) -> tuple[str, ...]:
    """The registers that are one on exactly the tokens that hold no value: all but the grid's."""
    if bank.grid == GRID:
        return (DATA, REFERENCE)
    return (REFERENCE, GRID) if grid_tokens else (REFERENCE,)


def _shown(row: Array) -> str:
    """What one token holds: its first values."""
    return ", ".join(f"{value:.3g}" for value in row[:3]) + (", ..." if len(row) > 3 else "")
