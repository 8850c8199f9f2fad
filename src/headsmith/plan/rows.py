"""What a target costs at several errors: every recipe certified, side by side, and which of them nothing beats.

    rows = hs.plan("1/x", {"x": (0.1, 1)}, errors=[1e-2, 1e-4, 1e-6])
    rows[0].recipe, rows[0].error, rows[0].certified, rows[0].bill, rows[0].pareto, rows[0].ratio

Rows of one error are sorted by cost, the cheapest first. The relu recipe (every operation a ReLU circuit, every gate a
head) is always among them, and `ratio` says how many times its heads x layers are those of the row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np

from headsmith.compile import attempted, best_model, compiled_of
from headsmith.core.errors import HeadsmithError, TargetError
from headsmith.core.progress import Report, Shown, shown
from headsmith.core.rounding import Dtype
from headsmith.inside import plan_text
from headsmith.language.builder import program_of
from headsmith.language.graph import Affine, Approximated, Input, Maximum, Minimum, Relu
from headsmith.model import Compiled
from headsmith.plan.circuits.pieces import Pieces
from headsmith.plan.ramp_design import FEW_TOKENS
from headsmith.plan.reading import Target, multiplied, read
from headsmith.plan.recipes import Recipe, variants, without_tables
from headsmith.plan.request import Met, Request
from headsmith.plan.rewrite.fuse import Fusion, fuse
from headsmith.transformer.bill import Bill, Cost, as_cost
from headsmith.transformer.heads.table import TableBank

if TYPE_CHECKING:
    from headsmith.lab.feedforward.against import Against

VALUE_LIMITS = (np.inf, 30.0)
"""How large values of tables may be: smaller ones take more reference tokens."""

COUNTS = {1: "one variable", 2: "two variables"}

MEASURES = ("layers", "heads", "neurons", "reference_tokens", "data_tokens", "max_weight")


@dataclass(frozen=True, eq=False)
class Row:
    """One certified model of a plan.

    `pareto` tells that no other row of the same error is as good in every measure and better in one. `ratio` compares
    with the relu recipe: its heads times its layers, divided by those of this row; None where a plan has no row of the
    relu recipe, and for rows with neurons.
    """

    recipe: str
    variant: str
    error: float
    compiled: Compiled
    pareto: bool = False
    ratio: float | None = None

    @property
    def certified(self) -> float:
        return self.compiled.certificate.error

    @property
    def bill(self) -> Bill:
        return self.compiled.bill

    def __repr__(self) -> str:
        return plan_text.row_text(self)

    def _repr_html_(self) -> str:
        return plan_text.html([self])


class Plan(list[Row]):
    """The rows of a plan: a list that shows itself as a table, and writes itself for a paper or a spreadsheet."""

    def __repr__(self) -> str:
        return plan_text.plain(self)

    def _repr_html_(self) -> str:
        return plan_text.html(self)

    def markdown(self) -> str:
        """The rows as a Markdown table."""
        return plan_text.markdown(self)

    def latex(self, caption: str = plan_text.CAPTION) -> str:
        """The rows as a LaTeX table (booktabs), for a paper."""
        return plan_text.latex(self, caption)

    def csv(self) -> str:
        """The rows as csv, numbers in full."""
        return plan_text.csv(self)


@overload
def plan(
    target: Target,
    domain: Any = None,
    errors: Sequence[float] = ...,
    *,
    tokens: int = ...,
    dtype: Dtype = ...,
    cost: Mapping[str, float] | None = ...,
    against: None = ...,
    swiglu: bool = ...,
    progress: Shown = ...,
) -> Plan: ...


@overload
def plan(
    target: Target,
    domain: Any = None,
    errors: Sequence[float] = ...,
    *,
    tokens: int = ...,
    dtype: Dtype = ...,
    cost: Mapping[str, float] | None = ...,
    against: Literal["ffn"],
    progress: Shown = ...,
) -> Against: ...


def plan(
    target: Target,
    domain: Any = None,
    errors: Sequence[float] = (1e-2, 1e-4, 1e-6),
    *,
    tokens: int = 1,
    dtype: Dtype = "float64",
    cost: Mapping[str, float] | None = None,
    against: str | None = None,
    swiglu: bool = False,
    progress: Shown = None,
) -> Plan | Against:
    """Certified models of `target` for each error: all recipes, and table heads in several variants; with `swiglu` also
    one whose products and gates are neurons of SwiGLU blocks.

    `cost` weighs layers, heads, reference_tokens, max_weight (default: in that order). `progress` is as in `compile`.
    With `against="ffn"`, attention is compared with feed-forward networks of the same error instead: parameters,
    non-zeros, multiply-adds, depth and largest weight of each (lab/feedforward/against.py). Raises UnreachableError,
    with the smallest error that can be met, if no recipe reaches an error.
    """
    if isinstance(errors, int | float) or not len(errors):
        raise TargetError(f"errors is {errors!r}; give a list of at least one error")
    if against not in (None, "ffn"):
        raise TargetError(f'against is {against!r}; it must be "ffn", for feed-forward networks, or None')
    if against is not None:
        if cost is not None:
            raise TargetError("what attention and feed-forward networks cost is shown, and not weighed: leave out cost")
        against_feed_forward = import_module("headsmith.lab.feedforward.against").against_feed_forward
        compared: Against = against_feed_forward(target, domain, errors, tokens, dtype)
        return compared
    with shown(progress) as report:
        requests = [read(target, domain, error, tokens, dtype) for error in errors]
        return _rows(requests, as_cost(cost), swiglu, report)


def _rows(requests: Sequence[Request], cost: Cost, swiglu: bool, progress: Report | None) -> Plan:
    rows = Plan()
    for number, request in enumerate(requests):
        ways = [*_variants(request), *(_with_neurons(request) if swiglu else ())]
        certified: list[Row] = []
        values: dict[str, float] = {}
        for step, variant in enumerate(ways):
            if progress is not None:
                text = f"error {request.error:g}: {variant.recipe}, {variant.text}"
                progress(text, (number + step / len(ways)) / len(requests))
            if variant.heads in values and values[variant.heads] <= variant.request.value_limit:
                continue  # a model with values as small as that is there already
            met = _certified(variant)
            if met is not None:
                compiled = compiled_of(variant.request, met)
                certified.append(Row(variant.recipe, variant.text, request.error, compiled))
                values[variant.heads] = min(values.get(variant.heads, np.inf), _largest_value(met))
        if not certified:
            # Models that spend tokens on accuracy, or the refusal with the smallest error.
            with np.errstate(over="ignore", invalid="ignore"):
                met = best_model(request, "auto", cost)
            certified.append(Row("auto", "the most accurate heads", request.error, compiled_of(request, met)))
        rows.extend(_marked(certified, cost))
    if progress is not None:
        progress("done", 1.0)
    return rows


@dataclass(frozen=True, eq=False)
class Variant:
    """One row to come: what its heads stand for, and the way to it; None for the cheapest of all with neurons."""

    recipe: str
    heads: str
    request: Request
    way: Recipe | None

    @property
    def text(self) -> str:
        limit = self.request.value_limit
        return f"{self.heads}, values to {limit:g}" if np.isfinite(limit) else self.heads


def _certified(variant: Variant) -> Met | None:
    """The model of a variant, if there is one within the error."""
    with suppress(HeadsmithError), np.errstate(over="ignore", invalid="ignore"):
        if variant.way is None:
            return best_model(variant.request, variant.recipe)
        return attempted(variant.request, variant.way).met
    return None


def _variants(request: Request) -> list[Variant]:
    ways = []
    if any(isinstance(node, Approximated) for node in request.graph.nodes):
        for fusion, _ in variants(request.graph, without_tables(request.graph, request.ranges)):
            for limit in VALUE_LIMITS:
                limited = replace(request, value_limit=limit)
                ways.append(Variant("native", _heads(request, fusion), limited, Recipe("native", fusion)))
    ways.append(Variant("relu", "one head a gate", request, Recipe("relu")))
    ways.append(Variant("ramp", "one ramp head a gate", request, Recipe("ramp", most_tokens=FEW_TOKENS)))
    simple = Input | Affine | Relu | Maximum | Minimum
    nodes = [request.graph.nodes[number] for number in request.graph.used]
    if all(isinstance(node, simple) for node in nodes) and request.tokens == 1:
        ways.append(Variant("maxout", "one token a piece", request, Recipe("maxout", Pieces())))
    return ways


def _with_neurons(request: Request) -> list[Variant]:
    return [Variant("swiglu", "neurons for products and gates", multiplied(request), None)]


def _heads(request: Request, fusion: Fusion | None) -> str:
    """What the heads of a variant stand for."""
    if fusion is None:
        return "a head for each node"
    nodes = [node for node in fuse(request.graph, fusion).nodes if isinstance(node, Approximated)]
    most = max((len(program_of(node)[1]) for node in nodes), default=1)
    return f"expressions of {COUNTS[min(most, fusion.variables)]}"


def _largest_value(met: Met) -> float:
    """The largest value that a token of a table holds."""
    banks = (bank for layer in met.transformer.layers for bank in layer.banks)
    return max((float(np.max(np.abs(bank.values))) for bank in banks if isinstance(bank, TableBank)), default=0.0)


def _marked(found: list[Row], cost: Cost) -> list[Row]:
    """Sorted by cost, without repetitions, Pareto-marked, and compared with the relu recipe."""
    kept: dict[tuple[float, ...], Row] = {}
    for row in found:
        kept.setdefault((*_measures(row), float(row.recipe == "relu")), row)
    rows = sorted(kept.values(), key=lambda row: cost.of(row.bill))
    gates = next((row for row in rows if row.recipe == "relu"), None)
    ratios = [_ratio(row.bill, gates.bill) if gates and not row.bill.neurons else None for row in rows]
    return [replace(row, pareto=not _beaten(row, rows), ratio=ratio) for row, ratio in zip(rows, ratios, strict=True)]


def _measures(row: Row) -> tuple[float, ...]:
    return tuple(float(getattr(row.bill, name)) for name in MEASURES)


def _beaten(row: Row, rows: Iterable[Row]) -> bool:
    mine = np.array(_measures(row))
    others = [np.array(_measures(other)) for other in rows if other is not row]
    return any(np.all(other <= mine) and np.any(other < mine) for other in others)


def _ratio(mine: Bill, gates: Bill) -> float:
    size = mine.heads * mine.layers
    return gates.heads * gates.layers / size if size else (1.0 if gates.heads == 0 else float("inf"))
