"""Pictures of exported models are drawn with few pixels: what is in them is the same."""

from __future__ import annotations

import pytest
from matplotlib.figure import Figure


@pytest.fixture(autouse=True)
def coarse_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headsmith.report.plots.figure_class", lambda: lambda **given: Figure(given["figsize"], dpi=20))
