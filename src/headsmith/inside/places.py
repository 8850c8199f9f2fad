"""One grammar of places in a model, for ablate, patch, cache, circuit and hooks.

    place ::= layer N / head K                     the K-th head of a layer, whatever its kind; layers count from 1
            | layer N / KIND head K                the K-th of its kind
            | a(N-1).hK                            the same as the first, as graphs of circuits call it
            | blocks.(N-1).attn.hook_z[K]          the same, as TransformerLens calls it
            | layer N / register R                 a register after a layer
            | embedding / register R               a register at first
    part  ::= place / queries | keys | scores | pattern | values | output

What stands after a colon is the meaning, and may be left out: "layer 1 / sink head 0: relu(x - y)".
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from headsmith.core.errors import TargetError
from headsmith.core.figures import count
from headsmith.transformer.heads.stream import RESERVED
from headsmith.transformer.ir import Transformer

PARTS = ("queries", "keys", "scores", "pattern", "values", "output")


@dataclass(frozen=True)
class Place:
    """Where a run is looked at or edited: the outputs of one head (layer, bank, outputs), or a register after a layer
    (0: the embedding)."""

    name: str
    layer: int
    bank: int = -1
    outputs: tuple[int, int] = (0, 0)
    register: str = ""

    @property
    def key(self) -> Any:
        """As the runner names it."""
        return (self.layer, self.register) if self.register else (self.layer, self.bank, self.outputs)


def plainly(name: str) -> str:
    """A place in the first form: what graphs of circuits and TransformerLens write is translated."""
    short = re.fullmatch(r"a(\d+)\.h(\d+)", name) or re.fullmatch(r"blocks\.(\d+)\.attn\.hook_z\[(\d+)\]", name)
    return f"layer {int(short[1]) + 1} / head {short[2]}" if short else name


def place_of(transformer: Transformer, name: str) -> Place:
    """What a name means. TargetError, with what there is, where it means nothing."""
    pattern = r"(?:layer (\d+)|(embedding)) / (?:(\w+ )?head (\d+)(?::.*)?|register ([^:]+)(?::.*)?)"
    match = re.fullmatch(pattern, plainly(name))
    if not match:
        raise TargetError(
            f'{name!r} names no place; write "layer 1 / head 0", "a0.h0" or "layer 1 / register z2": model.places '
            "lists all of them"
        )
    layer = 0 if match[2] else int(match[1])
    if layer > len(transformer.layers) or (layer == 0 and not match[2]):
        raise TargetError(f"{name!r}: the model has {count(len(transformer.layers), 'layer')}, counted from 1")
    if match[5]:
        return Place(name, layer, register=_register(transformer, name, match[5]))
    kind, wanted, seen = (match[3] or "").strip(), int(match[4]), 0
    if not match[2]:
        for number, bank in enumerate(transformer.layers[layer - 1].banks):
            if kind in ("", bank.kind):
                if wanted < seen + bank.heads:
                    each = bank.outputs // bank.heads
                    first = (wanted - seen) * each
                    return Place(name, layer, number, (first, first + each))
                seen += bank.heads
    raise TargetError(f"{name!r}: the layer has {count(seen, f'{kind} head'.strip())}, counted from 0")


def _register(transformer: Transformer, name: str, register: str) -> str:
    constant = {*RESERVED, *transformer.positional}
    if register in constant:
        raise TargetError(f"{name!r}: this register is constant and tells tokens apart; the model is none without it")
    if register not in transformer.sizes:
        others = ", ".join(name for name in transformer.sizes if name not in constant)
        raise TargetError(f"{name!r}: there is no such register; there are {others}")
    return register


def places(transformer: Transformer) -> list[str]:
    """All places of a model that can be edited: the heads of each layer, and the registers that are not constant."""
    registers = [each for each in transformer.sizes if each not in {*RESERVED, *transformer.positional}]
    found = [f"embedding / register {name}" for name in registers]
    for number, layer in enumerate(transformer.layers):
        counts: dict[str, int] = {}
        for bank in layer.banks:
            for _ in range(bank.heads):
                place = counts[bank.kind] = counts.get(bank.kind, -1) + 1
                found.append(f"layer {number + 1} / {bank.kind} head {place}")
        found += [f"layer {number + 1} / register {name}" for name in registers]
    return found


def in_full(transformer: Transformer, name: str) -> str | None:
    """A place, with a part behind it or without, as intermediates are called: by its kind. None for what is none."""
    head, _, part = name.rpartition(" / ") if name.rpartition(" / ")[2] in PARTS else (name, "", "")
    short = re.fullmatch(r"layer (\d+) / head (\d+)", plainly(head))
    if not short or not 1 <= int(short[1]) <= len(transformer.layers):
        return None
    wanted, mine = int(short[2]), f"layer {short[1]} / "
    heads = [each for each in places(transformer) if each.startswith(mine) and " head " in each]
    return f"{heads[wanted]} / {part}".removesuffix(" / ") if wanted < len(heads) else None
