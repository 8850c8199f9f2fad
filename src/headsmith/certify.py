"""How far a given attention module is from what it is said to compute, proven: `hs.certify`.

A module that somebody trained, the matrices of one, or a compiled model; and a formula, a network or another module.
Four passes: both are read as graphs of the same inputs (weights are read, nothing is run), a search looks for the
largest difference, another one for cells on which the kernel proves hardly more, and the kernel checks these.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from time import monotonic
from typing import Any, Literal

import numpy as np

from headsmith.core.arrays import Array
from headsmith.core.errors import CertificateError, TargetError
from headsmith.core.figures import bound, number
from headsmith.core.intervals import Box
from headsmith.core.progress import Shown, shown
from headsmith.export.file import read_file, write_tensors
from headsmith.kernel.core.arithmetic import Interval
from headsmith.kernel.core.check import stated
from headsmith.kernel.core.errors import Refused
from headsmith.kernel.rules.given import Statement
from headsmith.language.describe import outputs_text
from headsmith.language.evaluation import evaluate
from headsmith.language.graph import Graph
from headsmith.language.stored import graph_data
from headsmith.model import Compiled, compiled_from
from headsmith.plan.analysis.flow import kernel_graph
from headsmith.plan.reading import paired
from headsmith.prove.attained import least_difference
from headsmith.prove.given import (
    Comparison,
    Limits,
    Moment,
    Outcome,
    best_order,
    closer_at,
    forecast,
    run_cells,
    searched,
    starting,
)
from headsmith.readers.given import framed, read_given
from headsmith.readers.imported import Imported

Verdict = Literal["proven", "disproved", "open"]

POINTS = 20_000
"""Points that are tried before anything is proven."""
SPARE = 1e-9
"""How much more is claimed than was proven here: another machine adds up in another order."""
ORDERS, SMALL = (4, 3, 2), 1e-5
"""The degrees of polynomials that are tried where no order is asked for; and 6, where the difference is small."""


@dataclass(frozen=True, eq=False)
class Certified:
    """|network(x) - function(x)| <= error for every x in the domain: proven, and checked by the kernel.

    `found` is the largest difference that was found, at the input `worst`: an estimate from below; `ratio` is error
    over found. `verdict` is "proven" if that was asked for, "disproved" if an input shows that it is false, and "open"
    if neither is known. `parts` add up to the error.
    """

    verdict: Verdict
    found: float
    worst: Mapping[str, float]
    statement: Statement
    network: Graph
    function: Graph
    box: Box
    outcome: Outcome
    header: Mapping[str, Any]
    tensors: Mapping[str, Any]
    notes: tuple[str, ...] = ()

    @property
    def error(self) -> float:
        """The bound that is proven."""
        return float(self.header["claim"]["error"])

    @property
    def parts(self) -> Mapping[str, float]:
        """What the error is made of."""
        return dict(self.header["claim"]["parts"])

    @property
    def ratio(self) -> float:
        """The bound over the largest difference found."""
        return self.error / self.found if self.found else np.inf

    @property
    def cells(self) -> int:
        """On how many cells the bound is proven."""
        return self.statement.cells

    @property
    def order(self) -> int:
        """The degree of the polynomials of the proof."""
        return self.outcome.order

    @property
    def seconds(self) -> float:
        """How long the search for cells took."""
        return self.outcome.seconds

    @property
    def proof(self) -> str:
        """The cells: a tree of halvings in pre-order, 0 for a cell and i for a cut along the i-th input."""
        return self.outcome.text

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write what is claimed, the weights that it is about, and the proof, which `hs.verify` checks again."""
        write_tensors(path, self.header, dict(self.tensors))

    @property
    def figures(self) -> dict[str, Any]:
        """All that a table or a script wants to know, by name."""
        names = ("verdict", "error", "parts", "found", "worst", "ratio", "cells", "order", "seconds", "notes")
        about = {name: getattr(self.statement, name) for name in ("dtype", "domain", "network", "function")}
        return {**{name: getattr(self, name) for name in names}, **about}

    def plot(self, path: str | os.PathLike[str]) -> None:
        """Draw the error over one input or two (a slice through the worst input, beyond), with the cells."""
        from headsmith.core.pictures import checked_picture, save_figure
        from headsmith.prove.pictures import drawn

        target = checked_picture(path)
        asked = comparison(self.network, self.function, self.box)
        save_figure(drawn(asked, self.outcome, self.error, self.box.names), target)

    def __repr__(self) -> str:
        return (
            f"<{self.verdict}: |module - ({outputs_text(self.function)})| <= {bound(self.error)} on the domain; "
            f"found {number(self.found)}, ratio {self.ratio:.3f}; {self.cells} cells, order {self.order}>"
        )


def certify(
    module: Any,
    target: Any,
    domain: Any,
    *,
    ratio: float = 1.5,
    within: float | None = None,
    dtype: Literal["float32", "float64"] | None = None,
    order: int | Literal["auto"] = "auto",
    example: Any = None,
    inputs: tuple[Any, Any] | None = None,
    output: Any = None,
    timeout: float = 60.0,
    progress: Shown = None,
) -> Certified:
    """Prove how far a module is from a target, everywhere on a domain.

    `module` is a module of torch, run in evaluation mode (`example` is an input with a batch axis, if the domain does
    not say its shape), a dict of the matrices of softmax attention (readers/matrices.py), or a compiled model; `target`
    a formula, a function, or another module. `inputs` is (matrix, offset), if the module reads matrix @ x + offset
    where the domain is one of x; `output` the place of the output that counts, or several, or a matrix.

    The module is run in `dtype`: in float32, or in a compiled model's own. Cells are cut until the bound is `ratio`
    times the largest difference found, or `within` if that is given; after `timeout` seconds what was reached is
    returned, which is proven as well.
    """
    if not (np.isfinite(ratio) and ratio > 0.0 and timeout > 0.0) or (within is not None and not within > 0.0):
        raise TargetError(f"ratio is {ratio!r}, within {within!r}, timeout {timeout!r}: they must be positive numbers")
    started = monotonic()
    ours, theirs = (_read(each, domain, example, inputs, output) for each in (module, target))
    network, function, box = paired(ours, theirs, domain)
    asked = comparison(network, function, box)
    run = dtype or (str(module.transformer.dtype) if isinstance(module, Compiled) else "float32")
    with shown(progress) as report:

        def tell(moment: Moment) -> None:
            if report is not None:
                reached = f"bound {moment.bound:.3g}, found {moment.found:.3g}"
                spent = min((monotonic() - started) / timeout, 1.0)
                report(f"order {moment.order}: {moment.cells} cells, {moment.open} open, {reached}", spent)

        limits = Limits(ratio, within, started + timeout)
        found = starting(asked, POINTS)
        orders = (*ORDERS, *((6,) if found[0] < SMALL else ())) if order == "auto" else (int(order),)
        outcome = best_order(asked, orders, found, limits, tell)
        runs = run, run_cells(asked, run, outcome.found)
        header, tensors, statement = checked(network, function, box, outcome, runs)
        rounding = statement.parts["rounding"]
        if (
            outcome.closed
            and outcome.found < limits.limit(outcome.found) - 1.02 * rounding < statement.error - rounding
        ):
            # Rounding comes on top: the cells have to leave room for it.
            limits = replace(limits, rounding=1.02 * rounding)
            start = outcome.found, outcome.place
            outcome = searched(asked, outcome.order, start, limits, tell)
            header, tensors, statement = checked(network, function, box, outcome, runs)
    header |= {"claim": claim_of(statement)}
    verdict, attained = judged(network, function, outcome, header["claim"]["error"], ratio, within)
    worst = dict(zip(box.names, outcome.place.tolist(), strict=True))
    notes = ours.notes if isinstance(ours, Imported) else ()
    if verdict == "open" and outcome.closed:
        notes = (*notes, f"rounding alone, {rounding:.2g}, leaves no room: ask for more, or for dtype='float64'")
    said = (*notes, *forecast(outcome, limits)) if verdict == "open" and not outcome.closed else notes
    return Certified(verdict, attained, worst, statement, network, function, box, outcome, header, tensors, said)


def judged(
    network: Graph, function: Graph, outcome: Outcome, error: float, ratio: float, within: float | None
) -> tuple[Verdict, float]:
    """The verdict, and the difference at the worst input: in balls, at that double, where it shows that `within` does
    not hold."""
    if within is None:
        return ("proven" if error <= ratio * outcome.found else "open"), outcome.found
    if error <= within:
        return "proven", outcome.found
    attained = (
        least_difference(kernel_graph(network), kernel_graph(function), outcome.place)
        if outcome.found > within
        else 0.0
    )
    return ("disproved", attained) if attained > within else ("open", outcome.found)


def checked(
    network: Graph, function: Graph, box: Box, outcome: Outcome, runs: tuple[str, str]
) -> tuple[dict[str, Any], dict[str, Any], Statement]:
    """The header and the tensors of a file, without its claim; and what the kernel says that they prove."""
    header, tensors = contents(network, function, box, outcome, runs)
    try:
        statement: Statement = stated(header, tensors)
    except Refused as problem:
        raise CertificateError(
            f"nothing is proven of this module after {outcome.seconds:.3g} s and {outcome.moments[-1].cells} cells "
            f"({problem}): give more time, or a smaller domain"
        ) from None
    return header, tensors, statement


def _read(given: Any, domain: Any, example: Any, inputs: tuple[Any, Any] | None, output: Any) -> Any:
    """What is paired: a compiled model, or the path of one, is read by its matrices."""
    if isinstance(given, str | os.PathLike) and os.fspath(given).endswith(".safetensors"):
        given = compiled_from(read_file(given))
    found = given.dense() if isinstance(given, Compiled) else given
    return framed(read_given(found, domain, example), inputs, output)


def comparison(network: Graph, function: Graph, box: Box) -> Comparison:
    """Both as the kernel reads them, and their difference in floating point."""

    def difference(points: Array) -> Array:
        return np.asarray(np.abs(evaluate(network, points) - evaluate(function, points)).max(axis=-1))

    within = Interval(np.array(box.low, dtype=np.float64), np.array(box.high, dtype=np.float64))
    return Comparison(kernel_graph(network), kernel_graph(function), within, difference)


def contents(
    network: Graph, function: Graph, box: Box, outcome: Outcome, runs: tuple[str, str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The header and the tensors of a file, without its claim; `runs` is the format and the cells of its rounding."""
    tensors: dict[str, Any] = {}
    graphs = {name: graph_data(graph, tensors, name) for name, graph in (("network", network), ("function", function))}
    domain = {"low": [float(end) for end in box.low], "high": [float(end) for end in box.high]}
    given = {**graphs, "order": outcome.order, "cells": outcome.text, "dtype": runs[0], "runs": runs[1]}
    given["closer"] = closer_at(kernel_graph(network))
    return {"given": given, "domain": domain}, tensors


def claim_of(statement: Statement) -> dict[str, Any]:
    """What a file claims: what was proven, and a little more."""
    claim = {name: value for name, value in vars(statement).items() if name != "domain"}
    parts = {name: size * (1.0 + SPARE) for name, size in statement.parts.items()}
    outputs = [each * (1.0 + SPARE) for each in statement.outputs]
    return {**claim, "parts": parts, "outputs": outputs, "error": max(sum(parts.values()), max(outputs))}
