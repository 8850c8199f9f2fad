"""The same model through closed forms: what a bank of heads computes, without the tokens that hold nothing.

    sink         z sigmoid(b z) = z / (1 + e^(-b z))
    gate         y / (1 + sum_k e^(slope_k x + offset_k))
    table        two small products: scores on the grid, and their powers times values
    mean         a sum, divided by how many there are
    move         the value at the address itself
    boltzmann    the softmax mean over the data tokens; attend likewise

The certificate covers this run, with the same figures: docs/runtimes.md proves it, head by head.
"""

from __future__ import annotations

from typing import Any, assert_never

import numpy as np

from headsmith.heads.attend import AttendBank
from headsmith.heads.boltzmann import BoltzmannBank
from headsmith.heads.gate import GateBank
from headsmith.heads.mean import MeanBank
from headsmith.heads.move import NOTHING, MoveBank, address_rows, targets
from headsmith.heads.product import ProductBank
from headsmith.heads.sink import SinkBank
from headsmith.heads.swiglu import SiluBank, SwigluBank
from headsmith.heads.table import TableBank
from headsmith.run.attention import Attention, table_outputs
from headsmith.run.mixing import attend_outputs, boltzmann_outputs, mean_outputs
from headsmith.run.others import other_gates, products
from headsmith.run.swiglu import neuron_outputs
from headsmith.transformer.ir import Bank


def fused_outputs(attention: Attention, bank: Bank) -> Any:
    """What the heads return: (batch, token, outputs)."""
    match bank:
        case SinkBank() if attention.transformer.attention != "softmax":
            return other_gates(attention, bank)
        case ProductBank():
            return products(attention, bank)
        case SwigluBank() | SiluBank():
            return neuron_outputs(attention, bank)
        case SinkBank():
            return _sink(attention, bank)
        case GateBank():
            return _gate(attention, bank)
        case MoveBank():
            return _move(attention, bank)
        case TableBank():
            return table_outputs(attention, bank, leak=False)
        case MeanBank():
            return mean_outputs(attention, bank, leak=False)
        case BoltzmannBank():
            return boltzmann_outputs(attention, bank, leak=False)
        case AttendBank():
            return attend_outputs(attention, bank, leak=False)
        case _:
            assert_never(bank)


def _sink(attention: Attention, bank: SinkBank) -> Any:
    values, dtype = attention.reads(bank), attention.dtype
    with np.errstate(over="ignore"):
        powers = values * (-bank.query_scale * bank.key_scale).astype(dtype)
        np.exp(powers, out=powers)
    powers += 1.0
    return np.divide(values, powers, out=powers)


def _gate(attention: Attention, bank: GateBank) -> Any:
    reads, dtype = attention.reads(bank), attention.dtype
    slope, offset = bank.slope.astype(dtype), bank.offset.astype(dtype)
    slopes, values = reads[..., 0::2], reads[..., 1::2]
    total = np.ones_like(values)
    with np.errstate(over="ignore"):
        for token in range(slope.shape[1]):
            total += np.exp(slopes * slope[:, token] + offset[:, token])
    return values / total


def _move(attention: Attention, bank: MoveBank) -> Any:
    values = attention.reads(bank)
    address = address_rows(bank, attention.transformer.positional, attention.transformer.tokens)[: attention.tokens]
    wanted = targets(address, attention.transformer.tokens)
    moved = values[:, wanted]
    moved[:, wanted == NOTHING] = 0.0
    return moved
