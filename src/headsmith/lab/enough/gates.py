"""A product by one gate head with so many tokens: the weight of the token itself is nearly affine in one argument.

With the sink and p tokens besides, the error of x y falls like C_p b^(2 p) with the rise b, and the largest weights
grow like 1 / b (transformer/heads/gate.py): the error that is asked for says how small b is.
"""

from __future__ import annotations

from dataclasses import replace

from headsmith.lab.enough.tables import Task, lowered, margin_of
from headsmith.plan.approximation import approximate, gained
from headsmith.plan.circuits.assemble import GATE, Choice, assemble, expression_of
from headsmith.plan.request import Outcome
from headsmith.plan.tables import GateHead
from headsmith.transformer.heads.gate import factors_of, gate_of

SHARES = (0.985, 0.7, 0.3)
"""What part of the error the gate may take, tried in turn: rounding grows with 1 / b."""


def met_with_gate(task: Task, tokens: int, error: float) -> Outcome:
    """A certified product within the error, with so many reference tokens, the sink included, if there is one."""
    margin = margin_of(task)
    box = [(low - margin, high + margin) for low, high in task.box.tolist()]
    outcome = Outcome()
    for share in SHARES:
        found = gate_of(tokens - 1, factors_of(box, 0, False), share * error, task.precision, 1.0)
        if found is None:
            break
        numbers = {"incline": found.fit.incline, "intercept": found.fit.intercept, "follows": found.follows}
        choices = {task.number: Choice(GATE, margin, numbers=numbers)}
        assembly = assemble(task.fused, choices)
        tables = {(expression_of(assembly, task.number), 0): GateHead(found.fit.slope, found.fit.offset)}
        bounds = approximate(task.fused, task.found, assembly, choices, tables, task.request.progress)
        design = gained(task.fused, choices, assembly, bounds, tables)
        outcome = lowered(task, replace(task.request, error=error), design).after(outcome)
        if outcome.met is not None:
            break
    return outcome
