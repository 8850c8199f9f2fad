"""Which cases `make test` runs, and which only `make campaign` does: the theorem is the same for all of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def every_second(cases: Iterable[Any]) -> list[Any]:
    """All cases for pytest's parametrize, of which every second one is left to the campaign."""
    return [case if number % 2 == 0 else _left(case) for number, case in enumerate(cases)]


def _left(case: Any) -> Any:
    return pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.campaign)
