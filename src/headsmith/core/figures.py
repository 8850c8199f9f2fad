"""Figures as people read them: numbers with few digits, bounds rounded up, things that are counted."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal

NEGLIGIBLE = 1e-300


def number(value: float | int, digits: int = 4) -> str:
    """A figure for reading: integers in groups of three, others with a few digits, nearest."""
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.{digits}g}" if value == 0.0 or abs(value) >= NEGLIGIBLE else "< 1e-300"


def bound(value: float, digits: int = 4) -> str:
    """A bound for reading: rounded up, so that what is printed is proven too."""
    if 0.0 < value < NEGLIGIBLE:
        return "< 1e-300"
    return f"{float(Decimal(value).normalize(Context(prec=digits, rounding=ROUND_CEILING))):.{digits}g}"


def found(value: float, digits: int = 4) -> str:
    """What a search found, for reading: rounded down, so that it is never printed above the bound that it respects."""
    if 0.0 < value < NEGLIGIBLE or not math.isfinite(value):
        return number(value)
    return f"{float(Decimal(value).normalize(Context(prec=digits, rounding=ROUND_FLOOR))):.{digits}g}"


def count(amount: int, thing: str) -> str:
    """So many things: 1 head, 2 heads."""
    return f"{number(amount)} {thing}{'' if amount == 1 else 's'}"


def shortened(text: str, length: int) -> str:
    """The text, or its beginning and three dots, so that it has at most `length` characters."""
    return text if len(text) <= length else text[: length - 3].rstrip() + "..."


def per_layer(heads: Sequence[int]) -> str:
    """The heads of each layer, abbreviated."""
    if not heads:
        return "none: an affine map is enough"
    if len(set(heads)) == 1:
        return f"{number(heads[0])} in each layer"
    shown = ", ".join(number(amount) for amount in heads[:8])
    return f"by layer: {shown}{', ...' if len(heads) > 8 else ''}"
