"""Domains as text: LOW:HIGH for every input, NAME=LOW:HIGH for one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from headsmith.core.errors import DomainError


def read_domain(texts: Sequence[str], names: Sequence[str]) -> Any:
    """LOW:HIGH is for all inputs, NAME=LOW:HIGH for one; together, the one for all fills in the names not given."""
    default: tuple[float, float] | None = None
    named: dict[str, tuple[float, float]] = {}
    for text in texts:
        name, _, interval = text.rpartition("=")
        ends = _interval(interval, text)
        if name in named or (not name and default is not None):
            raise DomainError(f"the domain of {name or 'all inputs'} is given twice")
        if name:
            named[name] = ends
        else:
            default = ends
    if default is None:
        return named
    return {**dict.fromkeys(names, default), **named}


def _interval(text: str, whole: str) -> tuple[float, float]:
    low, colon, high = text.partition(":")
    try:
        ends = float(low), float(high)
    except ValueError:
        ends = math.nan, math.nan
    if not colon or any(map(math.isnan, ends)):
        raise DomainError(f"cannot read the domain {whole!r}; write LOW:HIGH, or NAME=LOW:HIGH, as in x0=-1:1")
    return ends
