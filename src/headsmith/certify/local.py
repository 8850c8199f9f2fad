"""The local errors of one bank: what its heads commit, given how well their arguments are known."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headsmith.certify.accounts import Accounts
from headsmith.core.arrays import Array
from headsmith.core.errors import CertificateError
from headsmith.core.intervals import Interval
from headsmith.core.rounding import lower, upper
from headsmith.heads.sink import FLUSHED, SinkBank, gate_error, gate_rounding, leak_weight, score_rounding
from headsmith.heads.stream import position_bits
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


@dataclass(frozen=True, eq=False)
class Local:
    """Bounds for the outputs of one bank.

    `softmax` is one-sided: the output is below its gate by at most that. `largest` bounds the exact output and `reach`
    what is computed; `spilled` what arrives on reference tokens.
    """

    softmax: Array
    leak: Array
    rounding: Array
    largest: Array
    reach: Array
    spilled: Array
    max_score: float

    @property
    def committed(self) -> Array:
        return np.asarray(upper(self.softmax + self.leak + self.rounding, 4))


def sink_errors(transformer: Transformer, bank: SinkBank, reads: Reads, accounts: Accounts) -> Local:
    """Guarantee: |head - relu(argument as computed)| <= softmax + leak + rounding, the first of one sign."""
    precision, tokens, grid = transformer.precision, transformer.tokens, transformer.grid_tokens
    if not (np.all(bank.query_scale > 0.0) and np.all(bank.key_scale > 0.0)):
        raise CertificateError("a score scale is not positive")
    if bank.reference_gain <= 0.0 or (tokens > 1 and bank.position_gain <= 0.0):
        raise CertificateError("the gains of a sink bank must be positive")
    size = upper(reads.exact.magnitude + reads.off, 1)
    values = accounts.read_magnitude(bank.read, bank.heads)
    _refuse_large(values, "what a head reads", transformer)
    _refuse_large(upper(bank.query_scale * values, 2), "a query", transformer)
    if not float(np.max(bank.key_scale)) * precision.smallest_normal <= FLUSHED:
        # A query that is flushed to zero would move a score by more than score_rounding allows for.
        raise CertificateError("a key scale is so large that queries may underflow")
    scale = lower(bank.query_scale * bank.key_scale, 1)
    score = upper(upper(bank.query_scale * bank.key_scale, 1) * size, 1)
    roundings = score_rounding(precision, tokens, bank.position_gain, grid)
    disturbance = roundings.disturbance(score)
    drift = accounts.read_drift(bank.read, bank.heads)

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
    weight = upper(tokens * np.exp(slope - gain) * (1.0 + 1e-9), 4)
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


def _refuse_large(values: Array, what: str, transformer: Transformer) -> None:
    largest = float(np.max(values, initial=0.0))
    if not largest < transformer.precision.largest / 16.0:
        raise CertificateError(
            f"{what} may reach {largest:.3g}, beyond {transformer.dtype}: shrink the domain or the weights"
        )
