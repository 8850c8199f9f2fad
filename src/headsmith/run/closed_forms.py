"""The numbers of the closed forms that run/fused.py computes, as torch and ONNX hold them.

sink         scale (head)                                       z / (1 + e^(-scale z))
gate         slope, offset (head, grid token and itself first)  y times the softmax weight of the token itself
table        slope (argument, head, grid token), offset, values softmax(slope . s + offset) @ values, head by head
mean         share (token, 1)                                   a running sum times its share
boltzmann    scale (head)                                       softmax(scale z) . z over the tokens
move         targets (token), there (token, 1)                  the value at the address, or zero
attend       nothing                                            softmax(q k^T) v
swiglu       nothing                                            silu(x) y - silu(-x) y
silu         scale (neuron)                                     z / (1 + e^(-scale z))
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
from headsmith.heads.stream import DATA, GRID, POSITION, position_code
from headsmith.heads.swiglu import SiluBank, SwigluBank
from headsmith.heads.table import TableBank
from headsmith.transformer.ir import Bank, Transformer

TARGETS = "targets"
"""The constant that holds places of tokens, not numbers."""


def constants(transformer: Transformer, bank: Bank) -> dict[str, Any]:
    """The numbers of a bank's closed form, in float64."""
    match bank:
        case SinkBank() | BoltzmannBank():
            return {"scale": bank.query_scale * bank.key_scale}
        case TableBank():
            slope, offset, values = bank.slope, bank.offset, bank.values
            if bank.grid != GRID:
                # The data tokens are the grid: each scores what it stands for.
                place = transformer.positional[bank.grid]
                slope, offset, values = place @ slope, offset @ place.T, place @ values
            return {"slope": slope.transpose(2, 0, 1), "offset": offset, "values": values}
        case GateBank():
            zero = np.zeros((bank.heads, 1))
            return {"slope": np.hstack([zero, bank.slope]), "offset": np.hstack([zero, bank.offset])}
        case MeanBank():
            return {"share": 1.0 / np.arange(1.0, transformer.tokens + 1.0)[:, None]}
        case MoveBank():
            wanted = targets(address_rows(bank, transformer.positional, transformer.tokens), transformer.tokens)
            return {TARGETS: np.maximum(wanted, 0), "there": (wanted != NOTHING).astype(np.float64)[:, None]}
        case SiluBank():
            return {"scale": bank.scale}
        case AttendBank() | ProductBank() | SwigluBank():
            return {}
        case _:
            assert_never(bank)


def first_rows(transformer: Transformer) -> dict[str, Any]:
    """What data tokens hold before they are given inputs, register by register: (tokens, column)."""
    tokens = transformer.tokens
    rows: dict[str, Any] = {DATA: np.ones((tokens, 1))}
    if tokens > 1:
        rows[POSITION] = position_code(tokens)
    rows |= transformer.positional
    for name, value in transformer.initial.items():
        rows[name] = np.broadcast_to(value, (1, len(value)))
    read = {link.register for layer in transformer.layers for bank in layer.banks for link in bank.read}
    read |= {link.register for link in transformer.readout}
    return {name: value for name, value in rows.items() if name in read}
