"""The suite tells a story: first the arithmetic (core), then the lemma of the head (heads), then the model as plain
attention (run, transformer), then the certificate against everything that could break it (kernel, compile)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "headsmith", deadline=None, derandomize=True, max_examples=60, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("headsmith")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of a test with the mark one_in(n), `make test` runs every n-th case and `make campaign` all the others. Which
    ones differs from test to test, so that of several tests with the same models each model has its turn."""
    cases: dict[str, int] = {}
    for item in items:
        mark = item.get_closest_marker("one_in")
        if mark is not None:
            name = item.nodeid.partition("[")[0]
            place = cases.setdefault(name, sum(map(ord, name)))
            cases[name] += 1
            if place % mark.args[0]:
                item.add_marker("campaign")


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20240607)
