"""The mean head: one head averages any number of linear forms over the data tokens.

Theorem: |out - mean| <= leak + rounding, whatever the reference tokens hold; without them the mean is exact.
"""

from __future__ import annotations

import numpy as np
import pytest
from helpers.theorems import banks as models

from headsmith.core.errors import CertificateError
from headsmith.core.rounding import PRECISIONS
from headsmith.lab import heads as head_models
from headsmith.transformer.heads.mean import MeanBank
from headsmith.transformer.heads.stream import DATA, Link

FLOAT32, FLOAT64 = PRECISIONS["float32"], PRECISIONS["float64"]


def bank(gain: float = 40.0) -> MeanBank:
    """The means of x0, of x1, and of x0 - 2 x1 + 3, which are written as two sums."""
    read = (Link("x", [[1.0, 0.0], [0.0, 1.0], [1.0, -2.0]]), Link(DATA, [[3.0]], 2))
    return MeanBank([-1] * 3, [0, 1, 2], read, (Link("out", [[1.0, 0.0, 0.5], [0.0, 1.0, 0.0]]),), gain, 60.0)


# ---- the theorem ----------------------------------------------------------------------------------------------------


# ---- runner, textbook, bill, file -----------------------------------------------------------------------------------


class TestTheBankInAModel(models.BankInAModel):
    bank = staticmethod(bank)


def test_who_needs_the_sink() -> None:
    """Gates do; a mean does beside a grid, whose tokens it would read and write; a table alone does not."""
    sinks = {how: models.surround(bank(), how, 4, "float64").sink_tokens for how in models.SURROUNDINGS}
    assert sinks == {"alone": 0, "gates": 1, "table": 1, "deep": 1}
    assert models.build([[models.table("side", 2, "float64")]], 4, "float64", grid=models.GRID_SIZE).sink_tokens == 0
    assert head_models.gate_product(tokens=2).sink_tokens == 1


# ---- the lemmas of all softmax heads --------------------------------------------------------------------------------


# ---- the checker ----------------------------------------------------------------------------------------------------


class TestTheCheckerRefuses:
    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"node": [], "component": [], "read": (), "write": ()}, "outputs of shape"),
            ({"node": np.zeros((3, 1), int)}, "outputs of shape"),
            ({"component": [0]}, "array of shape"),
            ({"read": (Link("x", np.ones((4, 2))),)}, "does not fit"),
            ({"write": (Link("out", np.ones((2, 4))),)}, "does not fit"),
            ({"write": (Link(DATA, np.ones((1, 3))),)}, "is written"),
            ({"read": (Link("position", np.ones((1, 2))),)}, "tells tokens apart"),
            ({"gain": np.inf}, "not finite"),
            ({"keep_gain": np.nan}, "not finite"),
        ],
        ids=repr,
    )
    def test_what_does_not_fit(self, changes, message) -> None:
        with pytest.raises(CertificateError, match=message):
            models.with_bank(models.surround(bank(), "table", 4, "float64"), MeanBank, **changes)

    @pytest.mark.parametrize("name", ["gain", "keep_gain"])
    def test_numbers_of_another_dtype(self, name) -> None:
        with pytest.raises(CertificateError, match="not a float32"):
            models.with_bank(models.surround(bank(), "alone", 4, "float32"), MeanBank, **{name: 0.1})
