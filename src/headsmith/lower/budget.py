"""Choosing every gate's scale, so that the softmax part fits the budget and the largest weight is as small as that
allows.

A gate with scale b errs by at most w/b, w = W(1/e), always downwards, and moves output o by c_oh times that. The
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

from headsmith.core.arrays import Array
from headsmith.core.balls import gate_constant
from headsmith.core.errors import CertificateError
from headsmith.core.intervals import Interval
from headsmith.heads.sink import SinkBank, split_scale
from headsmith.heads.stream import position_bits
from headsmith.transformer.gains import gains_of_heads
from headsmith.transformer.ir import Bank, Layer, Transformer

SMALLEST_SCALE = 2.0**-20
TINY = 1e-280


def with_softmax_budget(
    transformer: Transformer, gains: Mapping[int, Interval], budget: float, leak: float
) -> Transformer:
    """The same model with score scales such that the softmax part is at most `budget`, and gains that keep the leak
    near `leak`."""
    if not transformer.layers:
        return transformer
    heaviest = [[_heaviest_read(bank) for bank in layer.banks] for layer in transformer.layers]
    heads = [[gains_of_heads(bank, gains, transformer.outputs) for bank in layer.banks] for layer in transformer.layers]
    common = max(gate_constant() * _demand(heads, heaviest) / max(budget, TINY), SMALLEST_SCALE)
    total = _reach(heads)
    if not (common < transformer.precision.largest**0.9 and math.isfinite(total)):
        raise CertificateError(f"the gates would need scales of {common:.3g}, beyond {transformer.dtype}")
    reach = math.log(max(2.0 * transformer.tokens * total / max(leak, TINY), 2.0))
    position, reference = _gains(transformer, reach)
    layers = []
    for layer, weights in zip(transformer.layers, heaviest, strict=True):
        banks = []
        for bank, heavy in zip(layer.banks, weights, strict=True):
            assert isinstance(bank, SinkBank)
            query, key = split_scale(common / heavy, transformer.precision)
            banks.append(
                replace(bank, query_scale=query, key_scale=key, position_gain=position, reference_gain=reference)
            )
        layers.append(Layer(tuple(banks)))
    return replace(transformer, layers=tuple(layers))


def softmax_part(transformer: Transformer, gains: Mapping[int, Interval]) -> float:
    """The softmax part when all scales are one, up to the weights of the reads."""
    heads = [[gains_of_heads(bank, gains, transformer.outputs) for bank in layer.banks] for layer in transformer.layers]
    heaviest = [[_heaviest_read(bank) for bank in layer.banks] for layer in transformer.layers]
    return gate_constant() * _demand(heads, heaviest)


def _gains(transformer: Transformer, reach: float) -> tuple[float, float]:
    """Position and reference gain: even integers, so that every score of the position code is an exact integer.

    The position gain also covers the bits' count; the reference token is left as alone as float32's exponents allow.
    """
    bits = position_bits(transformer.tokens)
    position = 2.0 * math.ceil((reach + math.log(max(bits, 1)) + 2.0) / 2.0) if bits else 0.0
    # What leaks into the sink token may grow by the weights of each further layer.
    return position, 2.0 * math.ceil((reach + 8.0 + 4.0 * len(transformer.layers)) / 2.0)


def _heaviest_read(bank: Bank) -> Array:
    heaviest = np.zeros(bank.readers)
    for link in bank.read:
        size = np.abs(link.weights) if link.weights.ndim == 1 else np.abs(link.weights).max(axis=1)
        heaviest[link.reads] = np.maximum(heaviest[link.reads], size)
    return np.where(heaviest > 0.0, heaviest, 1.0)


def _demand(heads: list[list[Interval]], heaviest: list[list[Array]]) -> float:
    """max over outputs of sum_h |W_V|_h c_oh, the larger of the two signs."""
    below: Array = np.zeros(1)
    above: Array = np.zeros(1)
    for intervals, weights in zip(heads, heaviest, strict=True):
        for interval, heavy in zip(intervals, weights, strict=True):
            below = below + np.maximum(interval.high, 0.0).T @ heavy
            above = above + np.maximum(-interval.low, 0.0).T @ heavy
    return float(max(below.max(), above.max()))


def _reach(heads: list[list[Interval]]) -> float:
    """How much a unit of leaked weight in every head could move an output, per unit of value."""
    total = 0.0
    for intervals in heads:
        for interval in intervals:
            total += float(interval.magnitude.sum(axis=0).max())
    return total
