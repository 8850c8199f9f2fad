"""A file that one machine wrote is certified on others, which add up in other orders."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import headsmith as hs
from headsmith.core.certificate import SLACK, Certificate
from headsmith.kernel.core.check import Certificate as Proved


def network(*widths: int, seed: int) -> hs.Network:
    random = np.random.default_rng(seed)
    shapes = [(after, before) for before, after in pairwise(widths)]
    return hs.Network([(random.normal(0, np.sqrt(2 / n), (m, n)), 0.1 * random.normal(size=m)) for m, n in shapes])


@pytest.mark.parametrize("seed", [4, 5])
def test_sums_in_another_order_prove_the_claim(seed: int, tmp_path: Path) -> None:
    """Norms of layers, and sums of many weights, come out differently: for seed 4 the error by 1.5e-9 of itself. The
    variable chooses the products of matrices that older processors have; where it means nothing, nothing changes."""
    path = tmp_path / "network.safetensors"
    model = hs.compile(network(2, 35, 35, 35, 1, seed=seed), (-1, 1), 1e-3)
    model.save(path)
    for kind in ("Nehalem", "Prescott"):
        command = [sys.executable, "-m", "headsmith.kernel", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OPENBLAS_CORETYPE": kind})
        assert done.returncode == 0, done.stderr
    assert hs.verify(path) == hs.load(path).certificate == model.certificate


def test_claims_are_larger_than_what_was_proved() -> None:
    parts = {"approximation": 1e-3, "softmax": 2e-3, "leak": 1e-9, "rounding": 3e-3}
    proved = Proved(
        6.000001e-3, parts, (5e-3, 6.000001e-3), "float32", 1, ("full",), 7.0, 4, 0, (("x", 0.0, 1.0),), 8.0
    )
    claimed = Certificate.of(proved)
    assert {name: claimed.parts[name] / size - 1.0 for name, size in parts.items()} == pytest.approx(SLACK, rel=1e-6)
    assert claimed.error == pytest.approx(sum(claimed.parts.values()), rel=1e-12)
    assert claimed.error == max(claimed.outputs) == claimed.outputs[1] >= proved.error * (1 + 1e-9)
    assert proved.outputs[0] * (1 + 2.0**-9) < claimed.outputs[0] < claimed.error
    assert claimed.max_score > 7.0
    assert claimed.max_weight > 8.0
