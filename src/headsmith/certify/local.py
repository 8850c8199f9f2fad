"""The local errors of one bank: what its heads commit, given how well their arguments are known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from headsmith.certify.accounts import Accounts
from headsmith.certify.ramps import ramp_bounds
from headsmith.core.arrays import Array
from headsmith.core.errors import CertificateError
from headsmith.core.intervals import Interval
from headsmith.core.rounding import lower, upper
from headsmith.heads import gate
from headsmith.heads.gate import GateBank
from headsmith.heads.sink import FLUSHED, SinkBank, gate_error, gate_rounding, leak_weight, score_rounding
from headsmith.heads.softmax import spilled
from headsmith.heads.stream import GRID, Link, position_bits
from headsmith.heads.table import (
    TableBank,
    leak,
    lowest_top,
    output_rounding,
    score_disturbance,
    score_sizes,
    silent_disturbance,
)
from headsmith.transformer.ir import Transformer


@dataclass(frozen=True, eq=False)
class Reads:
    """What a bank reads, one entry for each linear form: the exact range of the argument; how far the stored
    weights are
    from the circuit's (deviation); how far the argument is off from earlier errors (arriving); rounding of the register
    sums (stored) and of the read itself (read)."""

    exact: Interval
    deviation: Array
    arriving: Array
    stored: Array
    read: Array

    @property
    def off(self) -> Array:
        """How far what is read can be from the exact argument."""
        return np.asarray(upper(self.arriving + self.deviation + self.stored + self.read, 4))

    def __getitem__(self, rows: slice) -> Reads:
        """Some of the linear forms."""
        rest = (self.deviation[rows], self.arriving[rows], self.stored[rows], self.read[rows])
        return Reads(self.exact[rows], *rest)


@dataclass(frozen=True, eq=False)
class Local:
    """Bounds for the outputs of one bank.

    The output is below its gate by at most `softmax`, and above it by at most `above` (nothing, where it is None).
    `largest` bounds the exact output and `reach`
    what is computed; `spilled` what arrives on reference tokens.
    """

    softmax: Array
    leak: Array
    rounding: Array
    largest: Array
    reach: Array
    spilled: Array
    max_score: float
    above: Array | None = None
    apart: Array | None = None
    """How far the outputs at two tokens that look at the same values can be apart, where that is known."""

    @property
    def sides(self) -> Interval:
        """What the lemma of the head leaves, below and above."""
        return Interval(-self.softmax, np.zeros_like(self.softmax) if self.above is None else self.above)

    @property
    def committed(self) -> Array:
        return np.asarray(upper(self.sides.magnitude + self.leak + self.rounding, 4))


def sink_errors(transformer: Transformer, bank: SinkBank, reads: Reads, accounts: Accounts) -> Local:
    """Guarantee: |head - relu(argument as computed)| <= softmax + leak + rounding, the first of one sign."""
    precision, tokens, grid = transformer.precision, transformer.tokens, transformer.grid_tokens
    if not (np.all(bank.query_scale > 0.0) and np.all(bank.key_scale > 0.0)):
        raise CertificateError("a score scale is not positive")
    if bank.reference_gain <= 0.0 or (tokens > 1 and bank.position_gain <= 0.0):
        raise CertificateError("the gains of a sink bank must be positive")
    refuse_scaled(bank.read, bank.query_scale, transformer)
    size = upper(reads.exact.magnitude + reads.off, 1)
    values = accounts.read_magnitude(bank.read, bank.heads)
    refuse_large(values, "what a head reads", transformer)
    refuse_large(upper(bank.query_scale * values, 2), "a query", transformer)
    if not float(np.max(bank.key_scale)) * precision.smallest_normal <= FLUSHED:
        # A query that is flushed to zero would move a score by more than score_rounding allows for.
        raise CertificateError("a key scale is so large that queries may underflow")
    scale = lower(bank.query_scale * bank.key_scale, 1)
    score = upper(upper(bank.query_scale * bank.key_scale, 1) * size, 1)
    roundings = score_rounding(precision, tokens, bank.position_gain, grid)
    disturbance = roundings.disturbance(score)
    drift = accounts.read_drift(bank.read, bank.heads)
    steepest = np.maximum(np.maximum(bank.query_scale, 1.0), upper(bank.query_scale * bank.key_scale, 1))
    refuse_large(upper(steepest * drift, 2), "what drifts into a reference token", transformer)

    others = leak_weight(bank.position_gain, tokens, disturbance)
    if grid:
        others = upper(others + grid * np.exp(2.0 * disturbance - bank.reference_gain) * (1.0 + 1e-9), 4)
    leak = upper(2.0 * size * others + drift, 4)
    # The query and the value round apart: |z_v - z_q| <= 2 read, |z_q - z| <= stored + read, and one more for their
    # product.
    inside = gate_rounding(roundings, scale, size, precision, tokens + grid)
    rounding = upper(reads.deviation + reads.stored + 4.0 * reads.read + inside, 4)

    # The reference tokens' own queries: the sink at reference_gain, data tokens near zero.
    slope = upper(score * drift / np.maximum(size, np.finfo(float).tiny) + roundings.absolute, 4)
    gain = bank.reference_gain * (1.0 - precision.gamma(8))
    weight = np.minimum(upper(tokens * np.exp(slope - gain) * (1.0 + 1e-9), 4), 1.0)
    spilled = upper((weight * size + drift) * (1.0 + precision.gamma(2 * (tokens + grid) + 8)), 4)
    spilled = spilled + 4.0 * precision.smallest_normal * (1.0 + size)

    code = position_bits(tokens) * bank.position_gain
    return Local(
        softmax=gate_error(scale, size),
        leak=leak,
        rounding=rounding,
        largest=np.maximum(reads.exact.high, 0.0),
        reach=upper(np.maximum(size, drift) * (1.0 + precision.gamma(2 * (tokens + grid) + 8)), 3),
        spilled=spilled,
        max_score=max(float(np.max(score)) + code, bank.reference_gain),
    )


def ramp_errors(transformer: Transformer, bank: TableBank, reads: Reads, accounts: Accounts) -> Local:
    """Guarantee: head - relu(argument as computed) is between -softmax and above, up to leak and rounding."""
    if (bank.arguments, bank.columns) != (1, 1):
        raise CertificateError("a ramp head has one argument and one column")
    local = table_errors(
        transformer, bank, reads, accounts, np.ones((bank.outputs, 1)), np.maximum(reads.exact.high, 0.0)
    )
    low, high = reads.exact.low - reads.off, reads.exact.high + reads.off
    tables: dict[tuple[bytes, ...], list[int]] = {}
    for head in range(bank.heads):
        arrays = (bank.slope[head], bank.offset[head], bank.values[head])
        tables.setdefault(tuple(array.tobytes() for array in arrays), []).append(head)
    below, above = np.zeros(bank.heads), np.zeros(bank.heads)
    for members in tables.values():
        first = members[0]
        ends = np.nextafter(low[members].min(), -np.inf), np.nextafter(high[members].max(), np.inf)
        found = ramp_bounds(bank.slope[first, :, 0], bank.offset[first], bank.values[first, :, 0], *map(float, ends))
        below[members], above[members] = max(-found[0], 0.0), max(found[1], 0.0)
    return replace(local, softmax=below, above=above)


def table_errors(
    transformer: Transformer, bank: TableBank, reads: Reads, accounts: Accounts, slopes: Array, sizes: Array
) -> Local:
    """Guarantee: |head - g(argument, exact)| <= leak + rounding, where g is the stored table in exact arithmetic.

    `slopes` (outputs, arguments) bounds |g'|, and `sizes` (outputs) the exact expressions. That the arguments are
    within what was proven of g is the caller's business.
    """
    if bank.grid != GRID:
        raise CertificateError("there is no proof for tables whose grid is the data tokens")
    precision, tokens = transformer.precision, transformer.tokens
    sinks, grid = transformer.sink_tokens, transformer.grid_tokens
    if not (bank.gain > 0.0 and bank.keep_gain >= 0.0) or (sinks and not bank.keep_gain > 0.0):
        raise CertificateError("the gains of a table bank must be positive")
    shape = (bank.heads, bank.arguments)
    values = accounts.read_magnitude(bank.read, bank.readers)
    refuse_large(values, "what a head reads", transformer)
    largest = np.abs(bank.values).max(axis=1).reshape(-1)
    refuse_large(largest, "a value of a table", transformer)
    low, high = reads.exact.low - reads.off, reads.exact.high + reads.off
    size = upper(reads.exact.magnitude + reads.off, 1).reshape(shape)
    disturbance = score_disturbance(bank, size, np.zeros(shape), precision)
    top = lowest_top(bank, np.nextafter(low, -np.inf).reshape(shape), np.nextafter(high, np.inf).reshape(shape))
    silent = silent_disturbance(bank, disturbance, top, precision)
    inside = output_rounding(bank, disturbance, precision, tokens + sinks).reshape(-1)
    # The query is rounded once, and all scores of the head share it: the argument is off by that.
    off = upper(reads.deviation + reads.stored + reads.read + precision.smallest_normal, 4).reshape(shape)
    moved = upper((slopes.reshape(bank.heads, bank.columns, -1) * off[:, None, :]).sum(axis=2), 4).reshape(-1)

    # Reference tokens ask with what drifted into their registers. With a sink they attend to it.
    reach = upper(largest * (1.0 + precision.gamma(2 * (tokens + sinks + grid) + 8)), 2)
    spilled = reach
    drift = accounts.read_drift(bank.read, bank.readers).reshape(shape)
    refuse_large(drift, "what drifts into a reference token", transformer)
    score = (np.abs(bank.slope).max(axis=1) * drift).sum(axis=1)
    refuse_large(upper(score, 3), "what drifts into a reference token's scores", transformer)
    if sinks:
        exponent = upper(score * 2.0, bank.arguments + 4) - bank.keep_gain * (1.0 - precision.gamma(8))
        with np.errstate(over="ignore"):
            weight = np.minimum(upper(grid * np.exp(np.maximum(exponent, -700.0)) * (1.0 + 1e-6), 4), 1.0)
        spilled = upper(np.repeat(weight, bank.columns) * reach, 2) + 4.0 * precision.smallest_normal * (1.0 + largest)

    return Local(
        softmax=np.zeros(bank.outputs),
        leak=leak(bank, top, silent, tokens + sinks).reshape(-1),
        rounding=np.asarray(upper(inside + moved, 2)),
        largest=sizes,
        reach=np.asarray(reach),
        spilled=np.asarray(spilled),
        max_score=max(float(np.max(score_sizes(bank, size))), bank.gain, bank.keep_gain),
    )


def gate_errors(transformer: Transformer, bank: GateBank, reads: Reads, accounts: Accounts, slopes: Array) -> Local:
    """Guarantee: |head - y g(x)| <= leak + rounding, where g is the stored gate in exact arithmetic."""
    precision, tokens, references = transformer.precision, transformer.tokens, transformer.reference_tokens
    if not bank.keep_gain > 0.0 or (tokens > 1 and not bank.position_gain > 0.0):
        raise CertificateError("the gains of a gate bank must be positive")
    refuse_large(accounts.read_magnitude(bank.read, bank.readers), "what a head reads", transformer)
    size = upper(reads.exact.magnitude + reads.off, 1).reshape(-1, 2)
    drift = accounts.read_drift(bank.read, bank.readers).reshape(-1, 2)
    refuse_large(drift, "what drifts into a reference token", transformer)
    disturbance = gate.score_disturbance(bank, size[:, 0], np.zeros(bank.heads), precision, tokens)
    silent = gate.silent_disturbance(bank, disturbance, precision, tokens)
    off = upper(reads.deviation + reads.stored + reads.read + precision.smallest_normal, 4).reshape(-1, 2)
    moved = upper((slopes * off).sum(axis=1), 3)
    sums = gate.few_sums(bank, size[:, 1], silent, precision, tokens, transformer.grid_tokens)
    inside = gate.output_rounding(
        size[:, 1], reads.read.reshape(-1, 2)[:, 1], disturbance, precision, tokens + references, sums
    )
    # Reference tokens ask with what drifted into their registers; the sink draws them.
    pull = upper(np.abs(bank.slope).max(axis=1) * drift[:, 0] * 2.0, 2)
    refuse_large(pull, "what drifts into a reference token's scores", transformer)
    kept = spilled(size[:, 1], drift[:, 1], bank.keep_gain, tokens, references, precision)
    grown = 1.0 + precision.gamma(2 * (tokens + references) + 8)
    out = np.where(pull <= 0.25, upper(2.0 * kept, 1), upper(size[:, 1] + drift[:, 1], 1))
    return Local(
        softmax=np.zeros(bank.outputs),
        leak=gate.leak(bank, size[:, 1], drift[:, 1], silent, tokens),
        rounding=np.asarray(upper(inside + moved, 2)),
        largest=np.asarray(upper(size[:, 1] * gate.largest_weight(bank, size[:, 0]), 1)),
        reach=np.asarray(upper(np.maximum(size, drift)[:, 1] * grown, 3)),
        spilled=np.asarray(out),
        max_score=float(np.max(gate.score_sizes(bank, size[:, 0])))
        + bank.keep_gain
        + position_bits(tokens) * bank.position_gain,
    )


def refuse_scaled(links: Sequence[Link], scales: Array, transformer: Transformer) -> None:
    """Raise CertificateError where a weight times a head's scale, one number in a matrix, is near the ends of the
    format."""
    precision = transformer.precision
    for link in links:
        mine = scales[link.reads]
        size = np.abs(link.weights) * (mine if link.weights.ndim == 1 else mine[:, None])
        if np.any((link.weights != 0.0) & ~((size >= precision.smallest_normal) & (size <= precision.largest / 16.0))):
            raise CertificateError(f"a weight times its head's scale is beyond {transformer.dtype}")


def refuse_large(values: Array, what: str, transformer: Transformer) -> None:
    """Raise CertificateError where a value comes near the end of the format."""
    largest = float(np.max(values, initial=0.0))
    if not largest < transformer.precision.largest / 16.0:
        raise CertificateError(
            f"{what} may reach {largest:.3g}, beyond {transformer.dtype}: shrink the domain or the weights"
        )
