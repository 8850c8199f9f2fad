"""Claims R4 to R7: what multiplication, reciprocal, min/max and other common targets cost, formula in and bill out.

Each target is compiled for three errors, attacked by the falsifier, and its heads are compared with what the best ReLU
circuit known for it has gates (`most`). The circuits and the construction are ours; the claims are those of the
published recipe. A recipe that is added to SHOWN appears in every row group.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headsmith.compile import Target, compile
from headsmith.report.claims import Finding, claim
from headsmith.report.falsify import falsify
from headsmith.source import library

ERRORS = (1e-2, 1e-4, 1e-6)
SHOWN = ("relu",)
"""The recipes that are billed."""

Domain = Mapping[str, tuple[float, float]]


@dataclass(frozen=True)
class Case:
    """A target, and how many gates the best circuit known for it has at each of ERRORS."""

    name: str
    target: Target
    domain: Domain
    most: Sequence[int]
    label: str = ""


def _on(names: str, low: float, high: float) -> dict[str, tuple[float, float]]:
    return dict.fromkeys(names.split(), (low, high))


# Two squares of k gates each err by 4^-k on [-1, 1]^2: k = 4, 7, 10.
PRODUCT = Case("multiplication", "x*y", _on("x y", -1, 1), (8, 14, 20))
# m gates err by (b - a)^2 / (8 a^2 b) 4^-m.
RECIPROCALS = (
    Case("reciprocal", "1/x", _on("x", 0.1, 1), (5, 9, 12)),
    Case("reciprocal", "1/x", _on("x", 0.01, 1), (9, 12, 16)),
)
# |x| <= X, a <= y <= b: 2 k gates err by X b a^-2 4^-k: k = 5, 8, 11.
DIVISION = Case("division", "x/y", {"x": (-1, 1), "y": (0.5, 1)}, (10, 16, 22))
# A square of k - 1 gates, and a division whose numerator reaches 2: k = 5, 8, 11 again.
RATIONAL = Case("rational function", "(1 + x)/(1 + x**2)", _on("x", -1, 1), (14, 23, 32))
# Powers by a tree: 4 k gates err by 7 * 4^-k: k = 5, 9, 12.
POLYNOMIAL = Case("polynomial", "x**4 - 2*x**3 + x", _on("x", -1, 1), (20, 36, 48))
SINE = Case("trigonometric", "sin(x)", {"x": (0, math.pi / 2)}, (3, 11, 18))
COSINE = Case("trigonometric", "cos(x)", {"x": (-math.pi, math.pi)}, (7, 15, 21))
EXPONENTIAL = Case("exponential", "exp(x)", _on("x", -8, 0), (4, 16, 22))
SIXTEEN = {f"x{place}": (-1.0, 1.0) for place in range(16)}


def _sorted(*values: Any) -> Any:
    return library.sort(values)


# Batcher's odd-even merge sort, whatever the error.
SORTING = Case("sorting", _sorted, SIXTEEN, (63, 63, 63), "sort of 16")


def bill_row(case: Case, error: float, most: int | None, recipe: str, max_layers: int | None = None) -> dict[str, Any]:
    """Compile, attack, count."""
    model = compile(case.target, dict(case.domain), error, recipe=recipe, max_layers=max_layers)
    return {
        "target": case.label or case.target,
        "domain": _intervals(case.domain),
        "recipe": recipe,
        "asked": error,
        "certified": model.certificate.error,
        "found": falsify(model, effort=600).error,
        "layers": model.bill.layers,
        "heads": model.bill.heads,
        "known_gates": most,
        "d_model": model.bill.d_model,
        "parameters": model.bill.parameters,
        "nonzeros": model.bill.nonzeros,
        "max_weight": model.bill.max_weight,
    }


def _intervals(domain: Domain) -> str:
    """[-1, 1]^2, or the intervals one by one."""
    intervals = list(domain.values())
    texts = [f"[{low:.4g}, {high:.4g}]" for low, high in intervals]
    if len(set(texts)) == 1:
        return texts[0] if len(texts) == 1 else f"{texts[0]}^{len(texts)}"
    return " x ".join(texts)


def bills(cases: Sequence[Case]) -> list[dict[str, Any]]:
    """Every case, every recipe, every error."""
    return [
        bill_row(case, error, most, recipe)
        for case in cases
        for recipe in SHOWN
        for error, most in zip(ERRORS, case.most, strict=True)
    ]


def keeps(rows: Sequence[Mapping[str, Any]]) -> bool:
    """Whether every row is within its error, was not refuted, and needs no more heads than the best circuit gates."""
    return all(
        row["found"] <= row["certified"] <= row["asked"]
        and (row["known_gates"] is None or row["heads"] <= row["known_gates"])
        for row in rows
    )


def _power(error: float) -> str:
    return f"1e{round(math.log10(error))}"


def _heads(rows: Sequence[Mapping[str, Any]]) -> str:
    return " / ".join(str(row["heads"]) for row in rows)


def _summary(cases: Sequence[Case], rows: Sequence[Mapping[str, Any]]) -> str:
    """Heads at each error, case by case, recipe by recipe."""
    texts = []
    step = len(ERRORS)
    for place, case in enumerate(cases):
        group = rows[place * step * len(SHOWN) : (place + 1) * step * len(SHOWN)]
        counts = "; ".join(_heads(group[start : start + step]) for start in range(0, len(group), step))
        texts.append(f"{case.label or case.target} on {_intervals(case.domain)}: {counts}")
    return ", ".join(texts)


def _finding(cases: Sequence[Case], rows: Sequence[Mapping[str, Any]], holds: bool, more: str = "") -> Finding:
    asked = ", ".join(map(_power, ERRORS))
    recipes = ", ".join(SHOWN)
    verdict = "holds with these constants" if holds else "fails"
    return Finding(
        ran=f"{', '.join(str(case.label or case.target) for case in cases)}; errors {asked}; recipe {recipes}",
        figure={"rows": list(rows)},
        holds=holds,
        verdict=f"{verdict}: heads at {asked.replace(', ', ' / ')}: {_summary(cases, rows)}{more}",
    )


@claim("R4", "multiplication: concrete layers, heads, parameters at a given error")
def multiplication() -> Finding:
    """x*y for three errors, and at the smallest with fewer layers."""
    rows = bills([PRODUCT])
    shallow = [bill_row(PRODUCT, ERRORS[-1], None, "relu", max_layers=layers) for layers in (5, 3, 2)]
    fewer = all(row["layers"] <= layers for row, layers in zip(shallow, (5, 3, 2), strict=True))
    trade = ", ".join(f"{row['heads']} in {row['layers']} layers" for row in shallow)
    holds = keeps(rows) and keeps(shallow) and fewer
    return _finding([PRODUCT], [*rows, *shallow], holds, f"; at {_power(ERRORS[-1])} also {trade}")


@claim("R5", "reciprocal: concrete layers, heads, parameters at a given error")
def reciprocal() -> Finding:
    """1/x on two domains, x/y, and a rational function."""
    cases = (*RECIPROCALS, DIVISION, RATIONAL)
    rows = bills(cases)
    return _finding(cases, rows, keeps(rows))


@claim("R6", "min/max: heads grow neither with precision nor with dimension beyond the arity")
def extremes() -> Finding:
    """The maximum and the minimum of 2 to 16 numbers, for three errors: a tree of one-gate comparisons."""
    rows = []
    for arity in (2, 3, 4, 8, 16):
        names = [f"x{place}" for place in range(arity)]
        for function in ("max", "min"):
            text = f"{function}({', '.join(names)})"
            case = Case(function, text, dict.fromkeys(names, (-1.0, 1.0)), (), f"{function} of {arity}")
            rows += [{"arity": arity, **bill_row(case, error, arity - 1, "relu")} for error in ERRORS]
    holds = keeps(rows) and all(
        row["heads"] == row["arity"] - 1 and row["layers"] == math.ceil(math.log2(row["arity"])) for row in rows
    )
    pair = max(row["heads"] for row in rows if row["arity"] == 2)
    three = max(row["arity"] for row in rows if row["heads"] <= 3)
    plural = "" if pair == 1 else "s"
    return Finding(
        ran="max and min of 2, 3, 4, 8, 16 numbers on [-1, 1], errors 1e-2, 1e-4, 1e-6; recipe relu",
        figure={"heads_for_two": pair, "largest_arity_with_three_heads": three, "rows": rows},
        holds=holds,
        verdict=("holds with these constants: arity - 1 heads at every error" if holds else "fails: heads vary")
        + f"; two numbers need {pair} head{plural} and not the three of a claim in circulation, which do for {three}",
    )


@claim("R7", "other targets: division, sorting, polynomials, trigonometric, exponential")
def other_targets() -> Finding:
    """One target of each kind."""
    cases = (DIVISION, SORTING, POLYNOMIAL, SINE, COSINE, EXPONENTIAL)
    rows = bills(cases)
    return _finding(cases, rows, keeps(rows))
