"""Claims R4 to R7: what multiplication, reciprocal, min/max and other common targets cost, formula in and bill out.

Each target is compiled for three errors, attacked by the falsifier, and its heads are compared with what the best ReLU
circuit known for it has gates (`most`), whatever the recipe. The circuits, the table heads and the constructions are
ours; the claims are those of the published recipe. A recipe that is added to SHOWN appears in every row group.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headsmith.compile import compile
from headsmith.reading import Target
from headsmith.report.claims import Finding, claim
from headsmith.report.falsify import falsify
from headsmith.source import library

ERRORS = (1e-2, 1e-4, 1e-6)
SHOWN = ("relu", "native", "auto")
"""The recipes that are billed; the first is the published route."""

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
        "reference_tokens": model.bill.reference_tokens,
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


def cheapest(rows: Sequence[Mapping[str, Any]]) -> bool:
    """Whether recipe auto has no more layers than any other recipe for the same target and error, and with as many
    layers no more heads."""
    auto = [row for row in rows if row["recipe"] == "auto"]
    return all(
        _shape(row) <= _shape(other)
        for row in auto
        for other in rows
        if all(row[name] == other[name] for name in ("target", "domain", "asked"))
    )


def gain(rows: Sequence[Mapping[str, Any]]) -> float:
    """Layers x heads of the published route over those of recipe auto, at the smallest error; the largest of them."""
    sizes: dict[tuple[str, str, str], int] = {}
    for row in rows:
        if row["asked"] == ERRORS[-1]:
            sizes[row["target"], row["domain"], row["recipe"]] = row["layers"] * row["heads"]
    return max(
        sizes[target, domain, SHOWN[0]] / max(size, 1)
        for (target, domain, recipe), size in sizes.items()
        if recipe == "auto"
    )


def _shape(row: Mapping[str, Any]) -> tuple[int, int]:
    return row["layers"], row["heads"]


def _power(error: float) -> str:
    return f"1e{round(math.log10(error))}"


def _counts(rows: Sequence[Mapping[str, Any]]) -> str:
    """Heads at each error, and reference tokens where there are tables."""
    tokens = [row["reference_tokens"] for row in rows]
    tables = f" ({' / '.join(map(str, tokens))} tokens)" if max(tokens) > 1 else ""
    return f"{rows[0]['recipe']} {' / '.join(str(row['heads']) for row in rows)}{tables}"


def _summary(cases: Sequence[Case], rows: Sequence[Mapping[str, Any]]) -> str:
    """Heads at each error, case by case, recipe by recipe."""
    texts = []
    step = len(ERRORS)
    for place, case in enumerate(cases):
        group = rows[place * step * len(SHOWN) : (place + 1) * step * len(SHOWN)]
        counts = ", ".join(_counts(group[start : start + step]) for start in range(0, len(group), step))
        texts.append(f"{case.label or case.target} on {_intervals(case.domain)}: {counts}")
    return "; ".join(texts)


def _finding(
    cases: Sequence[Case],
    rows: Sequence[Mapping[str, Any]],
    holds: bool,
    more: str = "",
    extra: Sequence[Mapping[str, Any]] = (),
) -> Finding:
    asked = ", ".join(map(_power, ERRORS))
    recipes = ", ".join(SHOWN)
    verdict = "holds with these constants" if holds else "fails"
    gained = gain(rows)
    return Finding(
        ran=f"{', '.join(str(case.label or case.target) for case in cases)}; errors {asked}; recipes {recipes}",
        figure={"published_over_auto": gained, "rows": [*rows, *extra]},
        holds=holds,
        verdict=f"{verdict}: heads at {asked.replace(', ', ' / ')}: {_summary(cases, rows)}{more}; layers x heads of "
        f"the published route over ours, at {_power(ERRORS[-1])}: up to {gained:.3g}",
    )


@claim("R4", "multiplication: concrete layers, heads, parameters at a given error")
def multiplication() -> Finding:
    """x*y for three errors, and at the smallest with fewer layers."""
    rows = bills([PRODUCT])
    shallow = [bill_row(PRODUCT, ERRORS[-1], None, "relu", max_layers=layers) for layers in (5, 3, 2)]
    fewer = all(row["layers"] <= layers for row, layers in zip(shallow, (5, 3, 2), strict=True))
    trade = ", ".join(f"{row['heads']} in {row['layers']} layers" for row in shallow)
    holds = keeps(rows) and cheapest(rows) and keeps(shallow) and fewer
    more = f"; relu at {_power(ERRORS[-1])} also {trade}"
    return _finding([PRODUCT], rows, holds, more, shallow)


@claim("R5", "reciprocal: concrete layers, heads, parameters at a given error")
def reciprocal() -> Finding:
    """1/x on two domains, x/y, and a rational function."""
    cases = (*RECIPROCALS, DIVISION, RATIONAL)
    rows = bills(cases)
    return _finding(cases, rows, keeps(rows) and cheapest(rows))


@claim("R6", "min/max: heads grow neither with precision nor with dimension beyond the arity")
def extremes() -> Finding:
    """The maximum and the minimum of 2 to 16 numbers, for three errors: a tree of one-gate comparisons, token by token;
    and with a token for each number one head."""
    rows = []
    for arity in (2, 3, 4, 8, 16):
        names = [f"x{place}" for place in range(arity)]
        for function in ("max", "min"):
            text = f"{function}({', '.join(names)})"
            case = Case(function, text, dict.fromkeys(names, (-1.0, 1.0)), (), f"{function} of {arity}")
            for recipe in ("relu", "maxout"):
                rows += [{"arity": arity, **bill_row(case, error, arity - 1, recipe)} for error in ERRORS]
    tree = [row for row in rows if row["recipe"] == "relu"]
    holds = keeps(rows) and all(_shape(row) == (1, 1) for row in rows if row["recipe"] == "maxout")
    holds = holds and all(_shape(row) == (math.ceil(math.log2(row["arity"])), row["arity"] - 1) for row in tree)
    pair = max(row["heads"] for row in tree if row["arity"] == 2)
    three = max((row["arity"] for row in tree if row["heads"] <= 3), default=0)
    plural = "" if pair == 1 else "s"
    return Finding(
        ran="max and min of 2, 3, 4, 8, 16 numbers on [-1, 1], errors 1e-2, 1e-4, 1e-6; recipes relu, maxout",
        figure={"heads_for_two": pair, "largest_arity_with_three_heads": three, "rows": rows},
        holds=holds,
        verdict=(
            "holds with these constants: arity - 1 heads at every error, and one head in one layer where each number "
            "has a token of its own"
            if holds
            else "fails: heads vary"
        )
        + f"; two numbers need {pair} head{plural} and not the three of a claim in circulation, which do for {three}",
    )


@claim("R7", "other targets: division, sorting, polynomials, trigonometric, exponential")
def other_targets() -> Finding:
    """One target of each kind."""
    cases = (DIVISION, SORTING, POLYNOMIAL, SINE, COSINE, EXPONENTIAL)
    rows = bills(cases)
    return _finding(cases, rows, keeps(rows) and cheapest(rows))
