"""Claims R4 to R7: what multiplication, reciprocal, min/max and other common targets cost, formula in and bill out.

Each target is compiled for several errors and attacked by the falsifier; its bill is counted again from the written-out
matrices (lab/claims/audit.py). Where the best ReLU circuit known has a law for its gates, the relu recipe must have no
more heads. The circuits, the table heads and the constructions are ours; the claims are those of the paper.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headsmith.compile import compile
from headsmith.lab.claims.audit import audit
from headsmith.lab.claims.rows import Finding, Rows, claim, judged, need
from headsmith.language import library
from headsmith.plan.reading import Target
from headsmith.report.falsify import falsify

ERRORS = (1e-2, 1e-4, 1e-6)
ARITIES = (2, 3, 4, 8, 16)
SHOWN = ("relu", "auto")
"""The recipes that are billed: every gate a head, and the cheapest."""

Domain = Mapping[str, tuple[float, float]]


@dataclass(frozen=True)
class FormulaCase:
    """A target, the errors that it is compiled for, and the law of the gates of the best circuit known for it."""

    name: str
    target: Target
    domain: Domain
    gates: Callable[[float], int] | None = None
    label: str = ""
    errors: Sequence[float] = ERRORS


def _on(names: str, low: float, high: float) -> dict[str, tuple[float, float]]:
    return dict.fromkeys(names.split(), (low, high))


def folds(constant: float, each: int = 1) -> Callable[[float], int]:
    """The law of circuits that are folded k times, with `each` gates a fold, and err by constant 4^-k."""
    return lambda error: each * max(1, math.ceil(math.log(constant / error, 4.0)))


def _reciprocal(low: float, high: float, errors: Sequence[float]) -> FormulaCase:
    # m gates err by (b - a)^2 / (8 a^2 b) 4^-m.
    law = folds((high - low) ** 2 / (8.0 * low**2 * high))
    return FormulaCase("reciprocal", "1/x", _on("x", low, high), law, errors=errors)


# Two squares of k gates each err by 4^-k on [-1, 1]^2.
PRODUCT = FormulaCase("multiplication", "x*y", _on("x y", -1, 1), folds(1.0, 2))
RECIPROCALS = (_reciprocal(0.1, 1.0, ERRORS), _reciprocal(0.01, 1.0, (1e-4,)))
# |x| <= X, a <= y <= b: 2 k gates err by X b a^-2 4^-k.
DIVISION = FormulaCase("division", "x/y", {"x": (-1, 1), "y": (0.5, 1)}, folds(4.0, 2), errors=(1e-4,))
RATIONAL = FormulaCase("rational function", "(1 + x)/(1 + x**2)", _on("x", -1, 1), errors=(1e-4,))
# Powers by a tree: 4 k gates err by 7 * 4^-k.
POLYNOMIAL = FormulaCase("polynomial", "x**4 - 2*x**3 + x", _on("x", -1, 1), folds(7.0, 4), errors=(1e-4,))
SINE = FormulaCase("trigonometric", "sin(x)", {"x": (0, math.pi / 2)}, errors=(1e-4,))
COSINE = FormulaCase("trigonometric", "cos(x)", {"x": (-math.pi, math.pi)}, errors=(1e-4,))
EXPONENTIAL = FormulaCase("exponential", "exp(x)", _on("x", -8, 0), errors=(1e-4,))
SORTED = {f"x{place}": (-1.0, 1.0) for place in range(8)}


def _sorted(*values: Any) -> Any:
    return library.sort(values)


# Batcher's odd-even merge sort has 19 comparisons for 8 numbers, whatever the error.
SORTING = FormulaCase("sorting", _sorted, SORTED, lambda _: 19, "sort of 8", errors=(1e-2, 1e-6))
OTHERS = (DIVISION, SORTING, POLYNOMIAL, SINE, COSINE, EXPONENTIAL)


def bill_row(
    case: FormulaCase, error: float, recipe: str, max_layers: int | None = None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Compile, attack, count; and count again."""
    model = compile(case.target, dict(case.domain), error, recipe=recipe, max_layers=max_layers)
    found = falsify(model, effort=600)
    row = {
        "target": case.label or case.target,
        "domain": _intervals(case.domain),
        "recipe": recipe,
        "asked": error,
        "certified": model.certificate.error,
        "found": found.error,
        "layers": model.bill.layers,
        "heads": model.bill.heads,
        "reference_tokens": model.bill.reference_tokens,
        "law_of_gates": None if case.gates is None or max_layers is not None else case.gates(error),
        "d_model": model.bill.d_model,
        "parameters": model.bill.parameters,
        "nonzeros": model.bill.nonzeros,
        "max_weight": model.bill.max_weight,
    }
    return row, audit(model, found) | {"asked": error, "law_of_gates": row["law_of_gates"]}


def _intervals(domain: Domain) -> str:
    """[-1, 1]^2, or the intervals one by one."""
    intervals = list(domain.values())
    texts = [f"[{low:.4g}, {high:.4g}]" for low, high in intervals]
    if len(set(texts)) == 1:
        return texts[0] if len(texts) == 1 else f"{texts[0]}^{len(texts)}"
    return " x ".join(texts)


Billed = list[tuple[dict[str, Any], dict[str, Any]]]


def bills(cases: Sequence[FormulaCase], recipes: Sequence[str] = SHOWN) -> Billed:
    """Every case, every recipe, every error."""
    return [bill_row(case, error, recipe) for case in cases for recipe in recipes for error in case.errors]


def faults(rows: Rows) -> list[str]:
    """What is wrong with rows: an error out of bounds, more heads than a law allows, something cheaper than auto."""
    wrong = []
    for row in rows:
        name = f"{row['target']}, {row['recipe']} at {row['asked']:g}"
        wrong += need(row["found"] <= row["certified"] <= row["asked"], f"{name}: errors out of order")
        law = row["law_of_gates"]
        wrong += need(law is None or row["heads"] <= law, f"{name}: {row['heads']} heads, and {law} gates do")
    return wrong + need(cheapest(rows), "some recipe is cheaper than auto")


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
    """Layers x heads of the relu recipe over those of recipe auto, for the same target and error; the largest."""
    sizes: dict[tuple[Any, ...], int] = {}
    for row in rows:
        sizes.setdefault((row["target"], row["domain"], row["asked"], row["recipe"]), row["layers"] * row["heads"])
    return max(sizes[(*key, "relu")] / max(size, 1) for (*key, recipe), size in sizes.items() if recipe == "auto")


def _shape(row: Mapping[str, Any]) -> tuple[int, int]:
    return row["layers"], row["heads"]


def _power(error: float) -> str:
    return f"1e{round(math.log10(error))}"


def _summary(rows: Rows) -> dict[str, Any]:
    return {"relu_over_auto": gain(rows)}


def _text(figure: Mapping[str, Any]) -> str:
    """Heads at each error, and reference tokens where there are tables, target by target and recipe by recipe."""
    groups: dict[tuple[str, str], dict[str, Rows]] = {}
    for row in figure["rows"]:
        groups.setdefault((row["target"], row["domain"]), {}).setdefault(row["recipe"], []).append(row)
    texts = []
    for (target, domain), recipes in groups.items():
        asked = " / ".join(_power(row["asked"]) for row in next(iter(recipes.values())))
        texts.append(f"{target} on {domain} at {asked}: {', '.join(_counts(*each) for each in recipes.items())}")
    gained = figure["relu_over_auto"]
    return f"heads of {'; '.join(texts)}; layers x heads of the relu recipe over auto's: up to {gained:.3g}"


def _counts(recipe: str, rows: Rows) -> str:
    tokens = [row["reference_tokens"] for row in rows]
    tables = f" ({' / '.join(map(str, tokens))} tokens)" if max(tokens) > 1 else ""
    return f"{recipe} {' / '.join(str(row['heads']) for row in rows)}{tables}"


def _finding(cases: Sequence[FormulaCase], found: Billed) -> Finding:
    recipes = ", ".join(dict.fromkeys(row["recipe"] for row, _ in found))
    targets = ", ".join(dict.fromkeys(str(case.label or case.target) for case in cases))
    return judged(
        f"{targets}; recipes {recipes}", [row for row, _ in found], _summary, faults, _text, [each for _, each in found]
    )


@claim("R4", "multiplication: concrete layers, heads, parameters at a given error", tag="abstract")
def multiplication() -> Finding:
    """x*y for three errors, and at the smallest with fewer layers."""
    found = bills([PRODUCT], ("relu", "native", "auto"))
    shallow = [bill_row(PRODUCT, ERRORS[-1], "relu", max_layers=layers) for layers in (5, 3)]
    for (row, counted), layers in zip(shallow, (5, 3), strict=True):
        row["recipe"], counted["max_layers"] = f"relu, {layers} layers", layers
        row["max_layers"] = layers

    def shallow_faults(rows: Rows) -> list[str]:
        deep = [row for row in rows if row["layers"] > row.get("max_layers", math.inf)]
        return faults(rows) + need(not deep, "more layers than were asked for")

    both = found + shallow
    return judged(
        "x*y; recipes relu, native, auto; and at 1e-6 with at most 5 and 3 layers",
        [row for row, _ in both],
        _summary,
        shallow_faults,
        _text,
        [counted for _, counted in both],
    )


@claim("R5", "reciprocal: concrete layers, heads, parameters at a given error", tag="abstract")
def reciprocal() -> Finding:
    """1/x on two domains, x/y, and a rational function."""
    cases = (*RECIPROCALS, DIVISION, RATIONAL)
    return _finding(cases, bills(cases))


@claim("R6", "min/max: heads grow neither with precision nor with dimension beyond the arity", tag="recalled")
def extremes() -> Finding:
    """The maximum and the minimum of 2 to 16 numbers, for three errors: a tree of one-gate comparisons, token by token;
    and with a token for each number one head."""
    found: Billed = []
    for arity in ARITIES:
        names = [f"x{place}" for place in range(arity)]
        for function in ("max", "min") if arity in (2, 8) else ("max",):
            text = f"{function}({', '.join(names)})"
            label, domain = f"{function} of {arity}", dict.fromkeys(names, (-1.0, 1.0))
            case = FormulaCase(function, text, domain, lambda _, most=arity - 1: most, label)  # type: ignore[misc]
            for recipe in ("relu", "maxout"):
                for error in ERRORS:
                    row, counted = bill_row(case, error, recipe)
                    found.append(({"arity": arity, **row}, {"arity": arity, **counted}))
    return judged(
        "max of 2, 3, 4, 8, 16 numbers and min of 2 and 8 on [-1, 1], errors 1e-2, 1e-4, 1e-6; recipes relu, maxout",
        [row for row, _ in found],
        _extremes_summary,
        _extremes_faults,
        lambda figure: (
            "arity - 1 heads at every error, and one head in one layer where each number has a token of its own; two "
            f"numbers need {figure['heads_for_two']} head and not the three of a claim in circulation, which do for "
            f"{figure['largest_arity_with_three_heads']}"
        ),
        [counted for _, counted in found],
    )


def _extremes_summary(rows: Rows) -> dict[str, Any]:
    tree = [row for row in rows if row["recipe"] == "relu"]
    return {
        "heads_for_two": max(row["heads"] for row in tree if row["arity"] == 2),
        "largest_arity_with_three_heads": max((row["arity"] for row in tree if row["heads"] <= 3), default=0),
    }


def _extremes_faults(rows: Rows) -> list[str]:
    wrong = faults(rows)
    for row in rows:
        tree = math.ceil(math.log2(row["arity"])), row["arity"] - 1
        wanted = (1, 1) if row["recipe"] == "maxout" else tree
        wrong += need(_shape(row) == wanted, f"{row['target']}: layers and heads are {_shape(row)}, not {wanted}")
    return wrong


@claim("R7", "other targets: division, sorting, polynomials, trigonometric, exponential", tag="review")
def other_targets() -> Finding:
    """One target of each kind."""
    return _finding(OTHERS, bills(OTHERS))
