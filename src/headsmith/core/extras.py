"""Optional packages: which extra of Headsmith brings them, and one message where they are missing."""

from __future__ import annotations


def install(extra: str) -> str:
    """The command that installs an extra."""
    return f'pip install "headsmith[{extra}]"'
