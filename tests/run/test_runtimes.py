"""numpy, torch and ONNX Runtime agree within the certificate's rounding part, causal and full, in both formats."""

from __future__ import annotations

import pytest
from helpers.theorems.runtimes import MODELS, check_agreement, inputs_of, masks, near_runs

LONG = ("ridge", "newton", "lasso", "logistic", "neighbours", "tables")
"""Models whose smallest error in float32 takes seconds to find; `make outside` has them, too."""
CASES = [(name, dtype) for name in MODELS for dtype in ("float64", "float32") if dtype == "float64" or name not in LONG]


@pytest.mark.parametrize(
    ("name", "dtype"),
    [*CASES, *(pytest.param(name, "float32", marks=pytest.mark.campaign) for name in LONG)],
)
def test_runtimes_agree(name: str, dtype: str) -> None:
    model = MODELS[name](dtype)
    x = inputs_of(model)
    for mask in masks(model):
        check_agreement(model, near_runs(model, x, mask), model(x, **mask))
