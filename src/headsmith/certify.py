"""How far a given attention module is from what it is said to compute, proven: `hs.certify`.

A module that somebody trained, the matrices of one, or a compiled model; and a formula, a network or another module.
Four passes: both are read as graphs of the same inputs (weights are read, nothing is run), a search looks for the
largest difference, another one for cells on which the kernel proves hardly more, and the kernel checks these.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from time import monotonic
from typing import Any, Literal

import numpy as np

from headsmith.core.arrays import Array
from headsmith.core.errors import CertificateError, TargetError
from headsmith.core.figures import bound, number
from headsmith.core.foreign import family_of
from headsmith.core.intervals import Box
from headsmith.core.progress import Shown, shown
from headsmith.export.file import write_tensors
from headsmith.kernel.core.arithmetic import Interval
from headsmith.kernel.core.check import stated
from headsmith.kernel.core.errors import Refused
from headsmith.kernel.rules.given import Statement
from headsmith.language.describe import outputs_text
from headsmith.language.evaluation import evaluate
from headsmith.language.graph import Graph
from headsmith.language.stored import graph_data
from headsmith.model import Compiled
from headsmith.plan.analysis.flow import kernel_graph
from headsmith.plan.reading import paired
from headsmith.prove.given import Comparison, Limits, Moment, Outcome, searched, starting
from headsmith.readers.imported import Imported
from headsmith.readers.matrices import from_matrices

Verdict = Literal["proven", "disproved", "open"]

POINTS = 20_000
"""Points that are tried before anything is proven."""
SPARE = 1e-9
"""How much more is claimed than was proven here: another machine adds up in another order."""
SMALL, ORDERS = 1e-5, (4, 6)
"""Differences below have Taylor models of the second order, others of the first."""


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
    order: int | Literal["auto"] = "auto",
    example: Any = None,
    timeout: float = 60.0,
    progress: Shown = None,
) -> Certified:
    """Prove how far a module is from a target, everywhere on a domain.

    `module` is a module of torch (`example` an input with a batch axis, if the domain does not say its shape), a dict
    of the matrices of softmax attention (readers/matrices.py), or a compiled model; `target` a formula, a function, or
    another module. Cells are cut until the bound is `ratio` times the largest difference found, or `within` if that is
    given; after `timeout` seconds what was reached is returned, which is proven as well.
    """
    if not (np.isfinite(ratio) and ratio > 0.0 and timeout > 0.0) or (within is not None and not within > 0.0):
        raise TargetError(f"ratio is {ratio!r}, within {within!r}, timeout {timeout!r}: they must be positive numbers")
    started = monotonic()
    ours, theirs = read_given(module, domain, example), read_given(target, domain, example)
    network, function, box = paired(ours, theirs, domain)
    asked = comparison(network, function, box)
    with shown(progress) as report:

        def tell(moment: Moment) -> None:
            if report is not None:
                spent = min((monotonic() - started) / timeout, 1.0)
                report(
                    f"{moment.cells} cells, {moment.open} open, bound {moment.bound:.3g}, found {moment.found:.3g}",
                    spent,
                )

        found = starting(asked, POINTS)
        chosen = (ORDERS[found[0] < SMALL]) if order == "auto" else int(order)
        outcome = searched(asked, chosen, found, Limits(ratio, within, started + timeout), tell)
    header, tensors = contents(network, function, box, outcome)
    try:
        statement: Statement = stated(header, tensors)
    except Refused as problem:
        raise CertificateError(f"nothing is proven of this module: {problem}") from None
    header |= {"claim": claim_of(statement)}
    limit = ratio * outcome.found if within is None else within
    verdict: Verdict = "proven" if header["claim"]["error"] <= limit else "open"
    worst = dict(zip(box.names, outcome.place.tolist(), strict=True))
    notes = ours.notes if isinstance(ours, Imported) else ()
    return Certified(verdict, outcome.found, worst, statement, network, function, box, outcome, header, tensors, notes)


def read_given(given: Any, domain: Any, example: Any = None) -> Any:
    """What `plan.reading` takes: modules of torch and matrices are read, everything else stays what it is."""
    if family_of(given) == "torch":
        from headsmith.readers.torch_modules import read_module

        return read_module(given, _shape(domain) if example is None else example, attention=True)
    if isinstance(given, Compiled):
        return from_matrices(given.dense())
    return from_matrices(given) if isinstance(given, Mapping) else given


def _shape(domain: Any) -> Array | None:
    """An example for a module: a row with as many numbers as the domain has intervals."""
    several = isinstance(domain, Mapping) or np.ndim(domain) == 2
    return np.zeros((1, len(domain))) if several else None


def comparison(network: Graph, function: Graph, box: Box) -> Comparison:
    """Both as the kernel reads them, and their difference in floating point."""

    def difference(points: Array) -> Array:
        return np.asarray(np.abs(evaluate(network, points) - evaluate(function, points)).max(axis=-1))

    within = Interval(np.array(box.low, dtype=np.float64), np.array(box.high, dtype=np.float64))
    return Comparison(kernel_graph(network), kernel_graph(function), within, difference)


def contents(network: Graph, function: Graph, box: Box, outcome: Outcome) -> tuple[dict[str, Any], dict[str, Any]]:
    """The header and the tensors of a file, without its claim."""
    tensors: dict[str, Any] = {}
    graphs = {name: graph_data(graph, tensors, name) for name, graph in (("network", network), ("function", function))}
    domain = {"low": [float(end) for end in box.low], "high": [float(end) for end in box.high]}
    given = {**graphs, "order": outcome.order, "cells": outcome.text}
    return {"given": given, "domain": domain}, tensors


def claim_of(statement: Statement) -> dict[str, Any]:
    """What a file claims: what was proven, and a little more."""
    claim = {name: value for name, value in vars(statement).items() if name != "domain"}
    parts = {name: size * (1.0 + SPARE) for name, size in statement.parts.items()}
    outputs = [each * (1.0 + SPARE) for each in statement.outputs]
    return {**claim, "parts": parts, "outputs": outputs, "error": max(sum(parts.values()), max(outputs))}
