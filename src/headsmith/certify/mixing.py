"""The local errors of heads that look at other tokens: means, maxima, moves and attention.

All bounds are uniform over the tokens of a sequence of any length up to the model's, so a mean of errors, the error of
a maximum (1-Lipschitz) and an error that was moved are all within the largest error of a token.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from headsmith.certify.accounts import Accounts
from headsmith.certify.local import Local, Reads, refuse_large, refuse_scaled
from headsmith.core.arrays import Array
from headsmith.core.errors import CertificateError
from headsmith.core.rounding import lower, upper
from headsmith.heads import attend, boltzmann, mean, move
from headsmith.heads.attend import AttendBank
from headsmith.heads.boltzmann import BoltzmannBank
from headsmith.heads.mean import MeanBank
from headsmith.heads.move import MoveBank
from headsmith.heads.softmax import spilled
from headsmith.transformer.ir import Bank, Transformer


def mean_errors(transformer: Transformer, bank: MeanBank, reads: Reads, accounts: Accounts) -> Local:
    """Guarantee: |head - mean of the arguments as they should be, given errors of arriving| <= leak + rounding."""
    precision, references = transformer.precision, transformer.reference_tokens
    _refuse_gains(bank, references, bank.gain, bank.keep_gain)
    size, drift = _sizes(transformer, bank, reads, accounts)
    disturbance = mean.score_disturbance(bank, precision)
    rounding = mean.output_rounding(size, disturbance, precision, transformer.tokens + references)
    leak = mean.leak(bank, size, drift, disturbance, references)
    local = _local(
        transformer,
        reads,
        size,
        drift,
        bank.keep_gain,
        softmax=np.zeros(bank.outputs),
        leak=leak,
        rounding=rounding,
        max_score=max(abs(bank.gain), bank.keep_gain if references else 0.0),
    )
    # A token's value is computed once; what differs from query to query are weights and sums.
    return replace(local, apart=np.asarray(upper(2.0 * (leak + rounding), 2)))


def boltzmann_errors(transformer: Transformer, bank: BoltzmannBank, reads: Reads, accounts: Accounts) -> Local:
    """Guarantee: the head is below the maximum of the arguments by at most `softmax`, up to leak and rounding."""
    precision, references = transformer.precision, transformer.reference_tokens
    _refuse_gains(bank, references, bank.gain, bank.keep_gain)
    if not (np.all(bank.query_scale > 0.0) and np.all(bank.key_scale > 0.0)):
        raise CertificateError("the score scales of a maximum must be positive")
    refuse_scaled(bank.read, bank.key_scale, transformer)
    size, drift = _sizes(transformer, bank, reads, accounts)
    scale = lower(bank.query_scale * bank.key_scale, 1)
    steep = upper(bank.query_scale * bank.key_scale, 1)
    refuse_large(upper(bank.key_scale * np.maximum(size, drift), 2), "a key", transformer)
    disturbance = boltzmann.score_disturbance(bank, size, reads.read, precision)
    lowest = reads.exact.low - reads.off
    top = np.where(lowest < 0.0, upper(steep, 1), lower(scale, 1)) * lowest
    top = top - 4.0 * np.finfo(np.float64).eps * np.abs(top)
    rounding = boltzmann.output_rounding(size, reads.read, precision, transformer.tokens + references)
    return _local(
        transformer,
        reads,
        size,
        drift,
        bank.keep_gain,
        softmax=boltzmann.boltzmann_error(scale, transformer.tokens, disturbance),
        leak=boltzmann.leak(bank, top, size, drift, disturbance, references),
        rounding=rounding,
        max_score=float(np.max(upper(steep * size, 2))) + abs(bank.gain),
    )


def move_errors(transformer: Transformer, bank: MoveBank, reads: Reads, accounts: Accounts) -> Local:
    """Guarantee: |head - argument at the target, or zero| <= leak + rounding, errors of arriving aside."""
    precision, references, tokens = transformer.precision, transformer.reference_tokens, transformer.tokens
    if tokens < 2 or not bank.gain > 0.0 or (references and not bank.keep_gain > 0.0):
        raise CertificateError("a move needs several tokens and positive gains")
    size, drift = _sizes(transformer, bank, reads, accounts)
    disturbance = move.score_disturbance(bank, tokens, precision)
    largest = upper(size + drift, 1)
    return _local(
        transformer,
        reads,
        size,
        drift,
        bank.keep_gain,
        softmax=np.zeros(bank.outputs),
        leak=move.leak(bank, size, drift, disturbance, tokens, references),
        rounding=move.output_rounding(largest, precision, tokens + references),
        max_score=max(bank.gain * (tokens - 1).bit_length(), bank.keep_gain if references else 0.0),
    )


def attend_errors(transformer: Transformer, bank: AttendBank, reads: Reads, accounts: Accounts) -> Local:
    """Guarantee: |head - softmax mean of the values, queries, keys and values as they arrive| <= leak + rounding."""
    precision, tokens, references = transformer.precision, transformer.tokens, transformer.reference_tokens
    _refuse_gains(bank, references, bank.gain, bank.keep_gain)
    size, drift = _sizes(transformer, bank, reads, accounts)
    wrong = np.asarray(upper(reads.deviation + reads.stored + reads.read, 3))
    query, key, value = bank.parts
    largest = attend.largest_score(size[query], size[key])
    disturbance = attend.score_disturbance(size[query], size[key], precision)
    disturbance += attend.moved_scores(size[query], size[key], wrong[query], wrong[key])
    spread = upper(reads.exact.high[value] - reads.exact.low[value] + 2.0 * reads.off[value], 3)
    # Queries and keys of reference tokens, which should be zero: what they add to scores.
    pull = attend.largest_score(size[query] + drift[query], drift[key])
    pulled = attend.largest_score(drift[query], size[key] + drift[key])
    pulled = attend.reference_pull(bank, pulled, precision)
    return _local(
        transformer,
        reads[value],
        size[value],
        drift[value],
        bank.keep_gain,
        softmax=np.zeros(bank.outputs),
        leak=attend.leak(bank, largest, pull, size[value], drift[value], disturbance, references, precision),
        rounding=attend.output_rounding(spread, size[value], disturbance, precision, tokens + references),
        max_score=max(largest, bank.gain + pull, bank.keep_gain + pulled) if references else largest,
        pulled=pulled,
    )


def move_targets(transformer: Transformer, bank: MoveBank) -> tuple[int, ...]:
    """The token that each token fetches from, by the stored addresses; -1 for nothing."""
    found = move.targets(transformer.positional[bank.address], transformer.tokens)
    if np.any(found < move.NOTHING):
        raise CertificateError(f"row {int(np.argmin(found))} of the register {bank.address} is not an address")
    return tuple(found.tolist())


def _refuse_gains(bank: Bank, references: int, gain: float, keep: float) -> None:
    if references and not (gain > 0.0 and keep > 0.0):
        raise CertificateError(f"the gains of a {bank.kind} bank must be positive where there are reference tokens")


def _sizes(transformer: Transformer, bank: Bank, reads: Reads, accounts: Accounts) -> tuple[Array, Array]:
    """How large what is read can be, on data tokens and on reference tokens."""
    refuse_large(accounts.read_magnitude(bank.read, bank.readers), "what a head reads", transformer)
    drift = accounts.read_drift(bank.read, bank.readers)
    refuse_large(drift, "what drifts into a reference token", transformer)
    return np.asarray(upper(reads.exact.magnitude + reads.off, 1)), drift


def _local(
    transformer: Transformer,
    reads: Reads,
    size: Array,
    drift: Array,
    keep: float,
    *,
    softmax: Array,
    leak: Array,
    rounding: Array,
    max_score: float,
    pulled: float = 0.0,
) -> Local:
    precision, tokens, references = transformer.precision, transformer.tokens, transformer.reference_tokens
    reach = upper(np.maximum(size, drift) * (1.0 + precision.gamma(2 * (tokens + references) + 8)), 3)
    out = np.zeros_like(size)
    if references:
        out = spilled(size, drift, keep, tokens, references, precision, pulled)
    return Local(
        softmax=softmax,
        leak=leak,
        rounding=np.asarray(upper(rounding + reads.deviation + reads.stored + reads.read, 4)),
        largest=reads.exact.magnitude,
        reach=np.asarray(reach),
        spilled=out,
        max_score=max_score,
    )
