"""The suite tells a story: first the arithmetic (core), then the lemma of the head (heads), then the model as plain
attention (run, transformer), then the certificate against everything that could break it (kernel, compile)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.effort import CAMPAIGN, tried
from hypothesis import HealthCheck, settings

settings.register_profile(
    "headsmith",
    deadline=None,
    derandomize=True,
    max_examples=tried(60, 3),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("headsmith")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of a test with the mark one_in(n), `make test` runs every n-th case and `make campaign` all the others. Which
    ones differs from test to test, so that of several tests with the same models each model has its turn. A test with
    the mark `again`, and every property that hypothesis makes up examples for, is run by both, with more examples in
    the campaign (helpers.effort)."""
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        made_up = getattr(getattr(item, "function", None), "is_hypothesis_test", False)
        if CAMPAIGN and (made_up or item.get_closest_marker("again") is not None):
            item.add_marker("campaign")
        if item.get_closest_marker("one_in") is not None:
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for name, group in cases.items():
        mark = group[0].get_closest_marker("one_in")
        assert mark is not None
        share = min(mark.args[0], len(group))
        for place, item in enumerate(group, sum(map(ord, name))):
            if place % share:
                item.add_marker("campaign")


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20240607)


@pytest.fixture
def coarse_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few pixels, no search for a good layout, and a short one for the worst input, which take most of the time: what
    is drawn is the same."""
    from matplotlib.figure import Figure

    from headsmith.report import falsify, plots

    class Coarse(Figure):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **{**options, "dpi": 20, "layout": None})

    def short(model: Any, effort: int, seed: int) -> falsify.Found:
        return falsify.falsify(model, effort=min(effort, 100), seed=seed)

    monkeypatch.setattr("matplotlib.figure.Figure", Coarse)
    monkeypatch.setattr(plots, "falsify", short)
