"""How long it takes to fit and to certify table heads for programs, and how tight the certified errors are.

    python benchmarks/tables.py

For each program and error: tokens of the head that is found, seconds to find it, the certified error over the asked
one, the certified error over the largest error of a dense grid in extended precision, cells, seconds to certify.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter

import numpy as np

from headsmith.core.program import Program, kernel_program, program_values
from headsmith.kernel.core.table import Table, check_table, read_cells
from headsmith.plan.evidence.cells import table_cells
from headsmith.plan.fit import Fit, fit_program

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from helpers.models.programs import ONE_VARIABLE, TWO_VARIABLES

ERRORS = (1e-3, 1e-6, 1e-8)


def sampled_error(found: Fit, program: Program, box: Sequence[tuple[float, float]]) -> float:
    """The largest error on a dense grid, in extended precision: an estimate from below."""
    count = 20_001 if len(box) == 1 else 161
    nodes = -np.cos(np.linspace(0.0, np.pi, count).astype(np.longdouble))
    axes = [np.clip((low + high) / 2 + (high - low) / 2 * nodes, low, high) for low, high in box]
    places = np.stack([axis.ravel() for axis in np.meshgrid(*axes, indexing="ij")], axis=1)
    scores = places @ slopes_of(found).T.astype(np.longdouble) + found.offset
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    outputs = weights @ found.values[:, 0] / weights.sum(axis=1)
    return float(np.max(np.abs(outputs - program_values(program, *places.T))))


def slopes_of(found: Fit) -> np.ndarray:
    return np.stack([found.alpha] if found.beta is None else [found.alpha, found.beta], axis=1)


def main() -> None:
    cases = [(name, program, [x]) for name, (program, x) in ONE_VARIABLE.items()]
    cases += [(name, program, [x, y]) for name, (program, x, y) in TWO_VARIABLES.items()]
    print(
        f"{'program':22} {'error':>6} {'tokens':>6} {'fit s':>6} {'/asked':>7} {'/true':>6} {'cells':>5} {'check s':>7}"
    )
    for name, program, box in cases:
        for error in ERRORS:
            start = perf_counter()
            found = fit_program([program], box, [error])
            fitting = perf_counter() - start
            if found is None:
                print(f"{name:22} {error:6.0e} {'none':>6} {fitting:6.2f}")
                continue
            table = Table(slopes_of(found), found.offset, found.values, [kernel_program(program)], np.array(box))
            cells = table_cells(table).text
            start = perf_counter()
            checked = check_table(table, cells)
            checking = perf_counter() - start
            bound = float(max(-checked.low[0, 0], checked.high[0, 0]))
            true = sampled_error(found, program, box)
            print(
                f"{name:22} {error:6.0e} {found.tokens:6d} {fitting:6.2f} {bound / error:7.3f} {bound / true:6.3f} "
                f"{len(read_cells(cells, len(box))):5d} {checking:7.3f}"
            )


if __name__ == "__main__":
    main()
