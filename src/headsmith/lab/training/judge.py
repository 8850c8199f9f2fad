"""Rows of weights as runs with all that is measured of them: after every stage the largest error, of the last weights
also the circuit, sizes, sharpness, and a proof where there is one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headsmith.lab.training.cases import Case
from headsmith.lab.training.journal import digest
from headsmith.lab.training.measure import (
    Errors,
    circuit_of,
    largest_errors,
    largest_score,
    pattern_distances,
    sharpness,
)
from headsmith.lab.training.proof import proven
from headsmith.lab.training.result import Run, verdict_of
from headsmith.lab.training.stages import Row
from headsmith.lab.training.students import Tensor, torch_module


def judged(case: Case, start: str, rows: Sequence[Row], certify: bool) -> list[Run]:
    """Runs from one kind of start. All rows from built weights are proven anew, and the best row from others, if they
    can be."""
    last = torch_module().tensor(np.array([[*row.stages.values()][-1] for row in rows]))
    stages, final = _by_stage(case, rows)
    found = [[*stage.values()][-1] for stage in stages]
    best = int(np.argmin(found))
    tried = [place for place in range(len(rows)) if certify and (start == "compiled" or place == best)]
    bounds = {place: proven(case, last[place].numpy(), found[place]) for place in tried}
    distances, points = _distances(case, last), case.problem.validation
    scores, curved = largest_score(case.student, last, points).tolist(), sharpness(case.problem, last).tolist()
    runs = []
    for place, (row, distance) in enumerate(zip(rows, distances, strict=True)):
        bound = bounds.get(place)
        runs.append(
            Run(
                start=start,
                method=row.method,
                seed=row.seed,
                rate=row.rate,
                found=found[place],
                rms=float(final[place].rms[0]),
                worst=final[place].where[0],
                certified=bound,
                verdict=verdict_of(found[place] if bound is None else bound, case.error),
                circuit="" if distance is None else circuit_of(distance),
                distance=distance,
                max_weight=float(last[place].abs().max()),
                max_score=scores[place],
                sharpness=curved[place],
                stages=stages[place],
                seconds=row.seconds,
                digest=digest(last[place].numpy()),
                curve=row.curve,
                weights=last[place].numpy(),
            )
        )
    return runs


def _by_stage(case: Case, rows: Sequence[Row]) -> tuple[list[dict[str, float]], dict[int, Errors]]:
    """The largest error of each row after each stage, and all that is known of the last."""
    stages: list[dict[str, float]] = [{} for _ in rows]
    final: dict[int, Errors] = {}
    for name in dict.fromkeys(name for row in rows for name in row.stages):
        mine = [place for place, row in enumerate(rows) if name in row.stages]
        stack = torch_module().tensor(np.array([rows[place].stages[name] for place in mine]))
        found = largest_errors(case.problem, case.field, stack, case.test)
        for at, place in enumerate(mine):
            stages[place][name] = float(found.largest[at])
            final[place] = Errors(*(each[at : at + 1] for each in (found.largest, found.where, found.rms)))
    return stages, final


def _distances(case: Case, weights: Tensor) -> list[float | None]:
    """How far attention patterns are from those of the built model; nothing for another shape."""
    if case.compiled is None:
        return [None] * len(weights)
    return [*pattern_distances(case.student, weights, case.compiled, case.field.even()).tolist()]
