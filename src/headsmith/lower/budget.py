"""Choosing every gate's scale, so that the softmax part fits the budget and the largest weight is as small as that
allows.

A gate with scale b errs by at most w/b, w = W(1/e), always downwards (a maximum over n tokens: w = W((n-1)/e)), and
moves output o by c_oh times that. The
softmax part of
output o is   max( sum_h w c_oh^+ / b_h ,  sum_h w c_oh^- / b_h ).   Among all scales that meet the budget, the largest
              weight b_h |W_V| is
smallest when b_h |W_V|_max is the same for all heads: a gate's share of the budget is then proportional to its
sensitivity. (The equal split gives every gate the same share, and so the most sensitive gate a scale that is larger by
up to the number of gates.)
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from headsmith.analysis.gains import Gain
from headsmith.core.arrays import Array
from headsmith.core.balls import boltzmann_constant, gate_constant
from headsmith.core.errors import CertificateError
from headsmith.core.rounding import Precision
from headsmith.heads.attend import AttendBank
from headsmith.heads.attentions import EXACT, GATES, MAXIMA, WITHOUT_SINK
from headsmith.heads.boltzmann import BoltzmannBank
from headsmith.heads.gate import GateBank
from headsmith.heads.mean import MeanBank
from headsmith.heads.move import MoveBank
from headsmith.heads.product import ProductBank
from headsmith.heads.sink import SinkBank, rounded_up, split_scale
from headsmith.heads.stream import position_bits
from headsmith.heads.swiglu import SiluBank, SwigluBank
from headsmith.heads.table import TableBank
from headsmith.lower.relief import NONE, Relief, heaviest_read
from headsmith.lower.split import in_parts
from headsmith.transformer.gains import gains_of_heads
from headsmith.transformer.ir import Bank, Layer, Transformer

SMALLEST_SCALE = 2.0**-20
TINY = 1e-280


def with_softmax_budget(
    transformer: Transformer,
    gains: Mapping[int, Gain],
    budget: float,
    leak: float,
    sizes: Mapping[int, float] | None = None,
    relief: Relief = NONE,
) -> Transformer:
    """The same model with score scales such that the softmax part is at most `budget`, and gains that keep the leak
    near `leak`. `sizes` bounds what is read where maxima are taken over tokens, and the scores of attention, by circuit
    node; `relief` says by how much scales of gates may be smaller than `gains` say."""
    sizes = sizes or {}
    if not transformer.layers or transformer.attention == "linear":
        return transformer
    heads = [[gains_of_heads(bank, gains, transformer.outputs) for bank in layer.banks] for layer in transformer.layers]
    common = max(_demand(transformer, heads) / max(budget, TINY), SMALLEST_SCALE)
    total = _reach(transformer, heads)
    if not (common < transformer.precision.largest**0.9 and math.isfinite(total)):
        raise CertificateError(f"the gates would need scales of {common:.3g}, beyond {transformer.dtype}")
    reach = math.log(max(2.0 * transformer.tokens * total / max(leak, TINY), 2.0))
    position, reference = _gains(transformer, reach)

    def alone(bank: Bank) -> float:
        # What clears a register must leave no more of it than rounding does.
        rounding = -math.log(transformer.precision.unit_roundoff) + 4.0
        return reach if bank.node[0] >= 0 else max(reach, rounding)

    def scaled(bank: Bank, layer: int) -> Bank:
        match bank:
            case SinkBank() if transformer.attention in EXACT:
                # Other tokens must score less under hardmax, and nothing above zero under relu attention.
                ones, apart = np.ones(bank.heads), 2.0 if transformer.tokens > 1 else 0.0
                if transformer.attention == "relu" and transformer.tokens > 1:
                    most = max(sizes[each] for each in {*bank.node.tolist()})
                    apart = 2.0 ** math.ceil(math.log2(max(most, TINY)) + 0.5)
                return replace(bank, query_scale=ones, key_scale=ones, position_gain=apart, reference_gain=2.0)
            case SinkBank() if transformer.attention == "elu+1":
                steep = rounded_up(common / heaviest_read(bank), transformer.precision)
                far = max(reach + 8.0, -math.log(transformer.precision.unit_roundoff))
                ones = np.ones(bank.heads)
                kept = replace(bank, position_gain=0.0, reference_gain=float(math.ceil(far)))
                return replace(kept, query_scale=steep, key_scale=ones)
            case SinkBank() if transformer.attention == "sigmoid" and transformer.tokens > 1:
                # The largest score, and all that may leak, below zero.
                query, key = split_scale(common / heaviest_read(bank), transformer.precision)
                most = max(float(b * sizes[n]) for b, n in zip(query * key, bank.node.tolist(), strict=True))
                apart = _even(1.01 * most + reach + 4.0, transformer.precision)
                return replace(bank, query_scale=query, key_scale=key, position_gain=apart, reference_gain=reference)
            case SinkBank():
                scale = max(common * relief.of(layer), SMALLEST_SCALE)
                # Sums of registers times powers of two round least (kernel/stream.py).
                scale = 2.0 ** math.ceil(math.log2(scale)) if in_parts(bank) else scale
                query, key = split_scale(scale / heaviest_read(bank), transformer.precision)
                return replace(bank, query_scale=query, key_scale=key, position_gain=position, reference_gain=reference)
            case SiluBank():
                scale = max(common * relief.of(layer), SMALLEST_SCALE)
                steep = np.exp2(np.ceil(np.log2(np.maximum(scale / heaviest_read(bank), 1.0))))
                return replace(bank, scale=steep)
            case TableBank():
                # Offsets that centre the scores leave the largest of them near zero, or above.
                lowest = float(np.max(-bank.offset.max(axis=1), initial=0.0))
                return replace(bank, gain=2.0 * math.ceil((reach + lowest + 6.0) / 2.0), keep_gain=reference)
            case BoltzmannBank():
                # Under hardmax no scale is too small; scores should be no smaller than what is rounded.
                least = 1.0 if transformer.attention in EXACT else 0.0
                query, key = split_scale(max(common, least) / heaviest_read(bank), transformer.precision)
                # Reference tokens score zero: the gain must lift the largest data token above them, wherever it is.
                depth = max((float(b * sizes[n]) for b, n in zip(query * key, bank.node.tolist(), strict=True)))
                gain = 2.0 * math.ceil((reach + depth + 4.0) / 2.0) if transformer.reference_tokens else 0.0
                return replace(bank, query_scale=query, key_scale=key, gain=gain, keep_gain=reference)
            case GateBank():
                return replace(bank, position_gain=position, keep_gain=reference)
            case ProductBank() | SwigluBank():
                return bank
            case MeanBank():
                gain = 2.0 * math.ceil((alone(bank) + 4.0) / 2.0) if transformer.reference_tokens else 0.0
                return replace(bank, gain=gain, keep_gain=reference)
            case MoveBank() if transformer.attention in WITHOUT_SINK:
                # The addressee scores half the gain above zero, and others at least as much below.
                gain = 2.0 if transformer.attention == "relu" else 4.0 * math.ceil((alone(bank) + 4.0) / 2.0)
                return replace(bank, gain=gain, keep_gain=reference)
            case MoveBank():
                # Other data tokens are 2 gain below, and reference tokens gain * bits.
                bits = position_bits(transformer.tokens)
                far = alone(bank)
                gain = 2.0 * math.ceil(max(max(position, far) / 2.0, (far + 4.0) / max(bits, 1)) / 2.0)
                return replace(bank, gain=gain, keep_gain=reference)
            case AttendBank():
                # Some data token scores at least minus the largest score.
                depth = sizes[int(bank.node[0])]
                gain = 2.0 * math.ceil((reach + depth + 4.0) / 2.0) if transformer.reference_tokens else 0.0
                return replace(bank, gain=gain, keep_gain=reference)
        raise CertificateError(f"{bank.kind} banks have no scales to choose")

    layers = (
        Layer(tuple(scaled(bank, number) for bank in layer.banks)) for number, layer in enumerate(transformer.layers)
    )
    return replace(transformer, layers=tuple(layers))


def _even(size: float, precision: Precision) -> float:
    """An even number of the format that is at least so large, where there is one."""
    unit = max(2.0, 2.0 ** math.ceil(math.log2(size * 4.0 * precision.unit_roundoff)))
    return unit * math.ceil(size / unit)


def softmax_part(transformer: Transformer, gains: Mapping[int, Gain]) -> float:
    """The softmax part when all scales are one, up to the weights of the reads."""
    if transformer.attention == "linear":
        return 0.0
    heads = [[gains_of_heads(bank, gains, transformer.outputs) for bank in layer.banks] for layer in transformer.layers]
    return _demand(transformer, heads)


def _gains(transformer: Transformer, reach: float) -> tuple[float, float]:
    """Position and reference gain: even integers, so that every score of the position code is an exact integer.

    The position gain also covers the bits' count; the reference token is left as alone as float32's exponents allow.
    """
    bits = position_bits(transformer.tokens)
    position = 2.0 * math.ceil((reach + math.log(max(bits, 1)) + 2.0) / 2.0) if bits else 0.0
    # What leaks into the sink token may grow by the weights of each further layer; those of gates are large.
    gates = sum(any(isinstance(bank, GateBank) for bank in layer.banks) for layer in transformer.layers)
    return position, 2.0 * math.ceil((reach + 8.0 + 4.0 * (len(transformer.layers) + gates)) / 2.0)


def _demand(transformer: Transformer, heads: list[list[Gain]]) -> float:
    """max over outputs of sum_h w_h |W_V|_h c_oh over gates and maxima, the larger of the two signs."""
    below: Array = np.zeros(1)
    above: Array = np.zeros(1)
    for layer, gains in zip(transformer.layers, heads, strict=True):
        for bank, gain in zip(layer.banks, gains, strict=True):
            if not isinstance(bank, SinkBank | SiluBank | BoltzmannBank):
                continue
            constant = MAXIMA.get(transformer.attention, boltzmann_constant)(transformer.tokens)
            if isinstance(bank, SinkBank | SiluBank):
                constant = GATES.get(transformer.attention, gate_constant())
            heavy = constant * heaviest_read(bank)
            below = below + gain.rising.T @ heavy
            above = above + gain.falling.T @ heavy
    return float(max(below.max(), above.max()))


def _reach(transformer: Transformer, heads: list[list[Gain]]) -> float:
    """How much a unit of leaked weight in every head could move an output; values of gates count as one."""
    total = 0.0
    for layer, gains in zip(transformer.layers, heads, strict=True):
        for bank, gain in zip(layer.banks, gains, strict=True):
            size = np.abs(bank.values).max(axis=1).reshape(-1, 1) if isinstance(bank, TableBank) else 1.0
            total += float((size * gain.magnitude).sum(axis=0).max())
    return total
