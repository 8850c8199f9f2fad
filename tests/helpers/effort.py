"""How many: `make test` tries a part of a long loop, of the cases of a test or of the examples of a property, and
`make campaign` all of them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import pytest

CAMPAIGN = os.environ.get("HEADSMITH_CAMPAIGN") == "1"


def tried(count: int, one_in: int) -> int:
    """So many in `make campaign`, one in so many of them in `make test`; the test has the mark `again`: both run it."""
    return count if CAMPAIGN else max(1, count // one_in)


def cases(names: Iterable[Any], campaign: Iterable[Any]) -> list[Any]:
    """The cases of a test: those that are named for the campaign are run there alone."""
    later = {*campaign}
    return [pytest.param(each, marks=pytest.mark.campaign if each in later else ()) for each in names]
