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


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20240607)
