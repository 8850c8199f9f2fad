"""benchmarks/ablation.py: what is switched off is really off, and no bound is smaller without it."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

import ablation


def test_what_tightenings_buy() -> None:
    """Steps of descent count in a learner, norms in a deep network: switched off, their bounds are larger."""
    models = dict(ablation.corpus())
    assert len(models) >= 112
    chosen = [ablation.contents_of(models[name]) for name in ("ridge 2", "network (4, 12, 12, 12, 2) 0")]
    rows = {row.name: row for row in ablation.table([each for each in chosen if each is not None])}
    assert rows["nothing"] == ablation.Row("nothing", 0, 1.0, 1.0, 0)
    assert rows["steps of descent, thresholds"].largest >= ablation.MOVED
    assert rows["diagonals of norms"].largest >= ablation.MOVED
    assert all(row.mean >= 1.0 - 1e-9 for row in rows.values())
