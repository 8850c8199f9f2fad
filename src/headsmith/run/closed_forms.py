"""The closed forms of banks in torch and ONNX, and the numbers that they hold (`constants` of a bank, heads/bank.py).

sink         scale (head)                                       z / (1 + e^(-scale z))
gate         slope, offset (head, grid token and itself first)  y times the softmax weight of the token itself
table        slope (argument, head, grid token), offset, values softmax(slope . s + offset) @ values, head by head
mean         share (token, 1)                                   a running sum times its share
boltzmann    scale (head)                                       softmax(scale z) . z over the tokens
move         targets (token), there (token, 1)                  the value at the address, or zero
attend       nothing                                            softmax(q k^T) v
swiglu       nothing                                            silu(x) y - silu(-x) y
silu         scale (neuron)                                     z / (1 + e^(-scale z))

They are what `closed` of a bank computes in numpy. The certificate covers these runs, with the same figures:
docs/runtimes.md proves it, head by head.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from headsmith.transformer.heads.stream import DATA, POSITION, position_code
from headsmith.transformer.ir import Transformer


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
