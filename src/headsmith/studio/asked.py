"""What the studio may be asked for: read from JSON, checked, within limits. Formulas are parsed and never evaluated."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from headsmith.core.errors import TargetError
from headsmith.core.rounding import PRECISIONS, Dtype
from headsmith.language.domains import read_domain
from headsmith.language.formula import parse
from headsmith.plan.reading import RECIPES

LONGEST_FORMULA, LONGEST_DOMAIN = 4000, 2000
MOST_INPUTS, MOST_OUTPUTS, MOST_TOKENS = 64, 32, 128


@dataclass(frozen=True)
class Asked:
    """A formula, or the name of a file that was dropped, and what is wanted of the model."""

    formula: str
    file: str
    domain: str
    error: float
    recipe: str
    dtype: Dtype
    tokens: int

    def domain_of(self, names: tuple[str, ...]) -> dict[str, tuple[float, float]]:
        """The interval of each input: "x=-1:1, y=0:2", or "-1:1" for all of them."""
        texts = [text.strip() for text in self.domain.split(",") if text.strip()]
        if not texts:
            raise TargetError("give a domain: LOW:HIGH for all inputs, or NAME=LOW:HIGH for each, with commas between")
        found = read_domain(texts, names)
        return dict(found)

    def names(self) -> tuple[str, ...]:
        """The variables of the formula."""
        names, outputs = parse(self.formula)
        for what, count, most in (("variables", len(names), MOST_INPUTS), ("outputs", len(outputs), MOST_OUTPUTS)):
            if count > most:
                raise TargetError(f"the formula has {count} {what}; the studio takes at most {most}")
        return names


def asked_of(given: Any) -> Asked:
    """What is asked for. Raises TargetError in words where it cannot be read, or is too much."""
    if not isinstance(given, Mapping):
        raise TargetError("the request is no JSON object")
    formula, domain = _text(given, "formula", LONGEST_FORMULA), _text(given, "domain", LONGEST_DOMAIN)
    file, recipe = _text(given, "file", 64), _text(given, "recipe", 20) or "auto"
    dtype, error, tokens = _text(given, "dtype", 20) or "float64", _number(given, "error", 1e-6), given.get("tokens", 1)
    if recipe not in RECIPES:
        raise TargetError(f"unknown recipe {recipe!r}; choose one of {', '.join(RECIPES)}")
    if dtype not in PRECISIONS:
        raise TargetError(f"unknown dtype {dtype!r}; choose one of {', '.join(PRECISIONS)}")
    if not (isinstance(tokens, int) and not isinstance(tokens, bool) and 1 <= tokens <= MOST_TOKENS):
        raise TargetError(f"tokens is {tokens!r}; the studio takes whole numbers from 1 to {MOST_TOKENS}")
    if not 0.0 < error < math.inf:
        raise TargetError(f"error is {error!r}; it must be a positive number")
    if bool(formula.strip()) == bool(file):
        raise TargetError("give a formula, such as x*y, or drop a file")
    return Asked(formula.strip(), file, domain, error, recipe, cast(Dtype, dtype), tokens)


def _text(given: Mapping[str, Any], name: str, most: int) -> str:
    value = given.get(name) or ""
    if not isinstance(value, str):
        raise TargetError(f"{name} is no text")
    if len(value) > most:
        raise TargetError(f"{name} has {len(value)} characters; the studio takes at most {most}")
    return value


def _number(given: Mapping[str, Any], name: str, default: float) -> float:
    value = given.get(name, default)
    try:
        return float(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else math.nan
    except (ValueError, OverflowError):
        raise TargetError(f"{name} is {str(value)[:40]!r}; it must be a positive number, such as 1e-6") from None
