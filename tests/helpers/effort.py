"""How many: `make test` tries a part of a long loop or of the examples of a property, `make campaign` all of them."""

from __future__ import annotations

import os

CAMPAIGN = os.environ.get("HEADSMITH_CAMPAIGN") == "1"


def tried(count: int, one_in: int) -> int:
    """So many in `make campaign`, one in so many of them in `make test`; the test has the mark `again`: both run it."""
    return count if CAMPAIGN else max(1, count // one_in)
