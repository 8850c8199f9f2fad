"""Recipe "ramp": every gate of a circuit a ramp head, with as many reference tokens as the error needs.

A gate whose argument stays below B is clamp(z; 0, B), and a ramp head of p tokens is within 0.0622 B / (p - 1) of it.
All gates share the tokens, so p is what the sum over all gates asks for, each weighted by its sensitivity.
"""

from __future__ import annotations

import math
from dataclasses import replace

from headsmith.core.errors import UnreachableError
from headsmith.language.graph import Relu
from headsmith.plan.approximation import Design
from headsmith.plan.tables import Table
from headsmith.transformer.heads.ramp import ramp_error, ramp_table

MOST_TOKENS, FEW_TOKENS = 1025, 193
"""What is tried; and what is soon proven."""


def with_ramps(design: Design, budget: float, most_tokens: int = MOST_TOKENS) -> Design:
    """The plan with a ramp table for every unstable gate, so that their errors add up to at most `budget`."""
    reach: dict[int, float] = {}
    demand = 0.0
    for number, node in enumerate(design.circuit.nodes):
        if not isinstance(node, Relu):
            continue
        argument = design.ranges[node.argument]
        unstable = (argument.low < 0.0) & (argument.high > 0.0)
        if unstable.any():
            # Beyond the exact range: what is read may be off, and past its end a ramp is flat.
            reach[number] = 1.05 * float(argument.high[unstable].max())
            if number in design.gains:
                demand += reach[number] * float(design.gains[number].anywhere.size.value[unstable].sum(axis=0).max())
    tokens = 3 + math.ceil(1.1 * ramp_error(64) * demand / budget)
    if tokens > most_tokens:
        raise UnreachableError(
            f"ramp heads would need {tokens} reference tokens for this error, and more than {most_tokens} are not "
            f"tried: ask for an error {tokens / most_tokens:.3g} times as large, or for another recipe",
            part="softmax",
            smallest=math.inf,
        )
    tables: dict[tuple[int, int], Table] = {}
    for number, high in reach.items():
        slope, offset, values = ramp_table(0.0, high, tokens)
        table = Table(slope[0], offset[0], values[0, :, 0])
        tables.update({(number, component): table for component in range(design.circuit.nodes[number].size)})
    return replace(design, tables=tables)
