"""T1 to T3 notice a trainer that is broken: a rate of zero, tokens that are left alike, a law that is wrong.

In `make test` on small heads; the rows themselves are sabotaged in the campaign.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from headsmith.lab.claims import training as rows
from headsmith.lab.claims.rows import select
from headsmith.lab.training import cases, laws, stages
from headsmith.lab.training.laws import SQUARE_LAW, Effort, ratios, train_tables

QUICK = Effort(seeds=(0,), steps=800, iterations=60)
Sabotage = Callable[[pytest.MonkeyPatch], None]


def without_rate(patch: pytest.MonkeyPatch) -> None:
    real = stages.adam

    def idle(loss: Any, start: Any, rates: Any, *rest: Any, **named: Any) -> Any:
        return real(loss, start, [0.0] * len(rates), *rest, **named)

    for module in (stages, laws, rows):
        patch.setattr(module, "adam", idle)


def with_tokens_alike(patch: pytest.MonkeyPatch) -> None:
    """References at zero, as run/torch_model.py makes them; tokens of tables all the same."""
    real, flat = stages.random_start, cases.flat

    def alike(student: Any, seeds: Any) -> Any:
        start, place = real(student, seeds), 0
        for name, shape in student.shapes.items():
            count = int(np.prod(shape))
            if name in ("references", "slope", "offset", "values"):
                start[:, place : place + count] = 0.0
            place += count
        return start

    def emptied(shapes: Any, tensors: Any) -> Any:
        return flat(shapes, {name: each * (name != "references") for name, each in tensors.items()})

    patch.setattr(stages, "random_start", alike)
    patch.setattr(laws, "random_start", alike)
    patch.setattr(cases, "flat", emptied)


def with_wrong_laws(patch: pytest.MonkeyPatch) -> None:
    real = rows.kick

    def wrong(*given: Any) -> Any:
        found = real(*given)
        return type(found)(**vars(found) | {"moves": {rate: 1.3 * move for rate, move in found.moves.items()}})

    patch.setattr(rows, "kick", wrong)
    patch.setattr(rows, "SQUARE_LAW", 0.5 * SQUARE_LAW)


def test_the_law_of_squares_holds_and_training_comes_near() -> None:
    tables = train_tables("x**2", (-1, 1), 2, effort=QUICK)
    assert 1.0 - 1e-3 <= ratios(tables.path).min() <= 1.1
    assert tables.adam.largest[0] <= 0.1
    # Another constant would be refuted, or not be met.
    assert ratios(tables.path, 2.0 * SQUARE_LAW).min() < 0.6
    assert ratios(tables.path, 0.5 * SQUARE_LAW).min() > 1.9


@pytest.mark.parametrize("sabotage", [without_rate, with_tokens_alike])
def test_a_broken_trainer_of_tables_shows(sabotage: Sabotage) -> None:
    with pytest.MonkeyPatch.context() as patch:
        sabotage(patch)
        tables = train_tables("x**2", (-1, 1), 2, effort=QUICK)
    assert tables.adam.largest[0] > 0.1


@pytest.mark.campaign
@pytest.mark.parametrize(
    ("id", "sabotage"),
    [
        *((id, sabotage) for id in ("T1", "T2", "T3") for sabotage in (without_rate, with_tokens_alike)),
        ("T2", with_wrong_laws),
        ("T3", with_wrong_laws),
    ],
)
def test_sabotaged_rows_fail(id: str, sabotage: Sabotage) -> None:
    (row,) = select([id])
    with pytest.MonkeyPatch.context() as patch:
        sabotage(patch)
        assert row.check().holds is False
