"""What heads compute, and what reference tokens hold for them, in words of the target."""

from __future__ import annotations

from headsmith.circuits.assemble import GATE, TABLE, assemble, expressions_of
from headsmith.compile import Compiled
from headsmith.heads.gate import GateBank
from headsmith.heads.sink import SinkBank
from headsmith.heads.table import TableBank
from headsmith.source.describe import describe
from headsmith.source.fuse import Fusion, fused_nodes
from headsmith.transformer.ir import Bank

LENGTH = 44
"""Texts are cut to so many characters."""


def texts_of_heads(compiled: Compiled) -> list[list[str]]:
    """What the heads compute, layer by layer."""
    stands_for = _expressions(compiled)
    return [
        [name for bank in layer.banks for name in _names(bank, stands_for)] for layer in compiled.transformer.layers
    ]


def _expressions(compiled: Compiled) -> dict[tuple[int, int], str]:
    """What nodes of the circuit stand for, by node and component, where a head does a whole expression."""
    heads = [number for number, choice in compiled.choices.items() if choice.family in (TABLE, GATE)]
    if not heads:
        return {}
    fused, names = compiled.fused, {}
    assembly = assemble(fused, compiled.choices)
    members = fused_nodes(compiled.graph, compiled.fusion) if isinstance(compiled.fusion, Fusion) else {}
    for number in heads:
        # The last of the nodes that were fused into an expression is the expression, and has a text.
        root = max(members[number]) if members.get(number) else None
        for component in range(fused.nodes[number].size):
            text = describe(fused, number, component) if root is None else describe(compiled.graph, root, component)
            for place in expressions_of(assembly, number):
                names[place, component] = text
    return names


def _names(bank: Bank, stands_for: dict[tuple[int, int], str]) -> list[str]:
    """What each head computes: a gate of the target's circuit, or expressions of the target."""
    if isinstance(bank, SinkBank):
        return [f"gate {node}[{component}]" for node, component in zip(bank.node, bank.component, strict=True)]
    places = list(zip(bank.node.tolist(), bank.component.tolist(), strict=True))
    each = len(places) // bank.heads
    kind = "product" if isinstance(bank, GateBank) else bank.kind
    names = []
    for head in range(bank.heads):
        mine = [stands_for[place] for place in places[head * each : (head + 1) * each] if place in stands_for]
        text = ", ".join(dict.fromkeys(mine))
        names.append(f"{kind}: {text if len(text) <= LENGTH else text[: LENGTH - 3] + '...'}" if text else kind)
    return names


def held_by(bank: Bank, sinks: int) -> list[dict[int, str]]:
    """What reference tokens hold for each head, as text by token number."""
    if not isinstance(bank, TableBank):
        return [{}] * bank.heads
    return [
        {
            sinks + token: f": {', '.join(f'{value:.3g}' for value in values[:3])}{', ...' if len(values) > 3 else ''}"
            for token, values in enumerate(head)
        }
        for head in bank.values
    ]
