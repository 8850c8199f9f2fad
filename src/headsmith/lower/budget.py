"""Choosing every gate's scale, so that the softmax part fits the budget and the largest weight is as small as that
allows.

A gate with scale b errs by at most w/b, w = W(1/e), always downwards (a maximum over n tokens: w = W((n-1)/e)), and
moves output o by c_oh times that. The softmax part of output o is

    max( sum_h w c_oh^+ / b_h ,  sum_h w c_oh^- / b_h ).

Among all scales that meet the budget, the largest weight b_h |W_V| is smallest when b_h |W_V|_max is the same for all
heads: a gate's share of the budget is then proportional to its sensitivity. (The equal split gives every gate the same
share, and so the most sensitive gate a scale that is larger by up to the number of gates.)
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from headsmith.core.arrays import Array
from headsmith.core.errors import CertificateError
from headsmith.heads.scaling import SMALLEST_SCALE, Scaling, heaviest_read
from headsmith.heads.stream import position_bits
from headsmith.kernel.arithmetic import Upper, smallest
from headsmith.kernel.flow import Far, Gain
from headsmith.lower.relief import NONE, Relief
from headsmith.transformer.ir import Bank, Layer, Transformer

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
    if not transformer.layers or transformer.attention == "linear":
        return transformer
    heads = [[gains_of_heads(bank, gains, transformer.outputs) for bank in layer.banks] for layer in transformer.layers]
    common = max(_demand(transformer, heads) / max(budget, TINY), SMALLEST_SCALE)
    total = _reach(transformer, heads)
    if not (common < transformer.precision.largest**0.9 and math.isfinite(total)):
        raise CertificateError(f"the gates would need scales of {common:.3g}, beyond {transformer.dtype}")
    reach = math.log(max(2.0 * transformer.tokens * total / max(leak, TINY), 2.0))
    position, reference = _gains(transformer, reach)

    layers = []
    for number, layer in enumerate(transformer.layers):
        scaling = Scaling(transformer, common, relief.of(number), reach, position, reference, sizes or {})
        layers.append(Layer(tuple(bank.scaled(scaling) for bank in layer.banks)))
    return replace(transformer, layers=tuple(layers))


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
    heavy = sum(any(bank.heavy for bank in layer.banks) for layer in transformer.layers)
    return position, 2.0 * math.ceil((reach + 8.0 + 4.0 * (len(transformer.layers) + heavy)) / 2.0)


def _demand(transformer: Transformer, heads: list[list[Far]]) -> float:
    """max over outputs of sum_h w_h |W_V|_h c_oh over gates and maxima, the larger of the two signs."""
    below: Array = np.zeros(1)
    above: Array = np.zeros(1)
    for layer, gains in zip(transformer.layers, heads, strict=True):
        for bank, gain in zip(layer.banks, gains, strict=True):
            constant = bank.softmax_constant(transformer)
            if constant == 0.0:
                continue
            heavy = constant * heaviest_read(bank)
            below = below + gain.rising.value.T @ heavy
            above = above + gain.falling.value.T @ heavy
    return float(max(below.max(), above.max()))


def _reach(transformer: Transformer, heads: list[list[Far]]) -> float:
    """How much a unit of leaked weight in every head could move an output; values of gates count as one."""
    total = 0.0
    for layer, gains in zip(transformer.layers, heads, strict=True):
        for bank, gain in zip(layer.banks, gains, strict=True):
            total += float((bank.value_sizes() * gain.size.value).sum(axis=0).max())
    return total


def gains_of_heads(bank: Bank, gains: Mapping[int, Gain], outputs: int) -> Far:
    """The gains of a bank's heads, (heads, outputs), from those of the circuit's nodes."""
    found = np.zeros((3, bank.outputs, outputs))
    for number in map(int, np.unique(bank.node)):
        if number in gains:
            mine, every = bank.node == number, gains[number].anywhere
            sides = [smallest(side, every.size) for side in (every.rising, every.falling)]
            found[:, mine] = [each.value[bank.component[mine]] for each in (*sides, every.size)]
    return Far(*map(Upper, found))
