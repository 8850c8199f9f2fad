"""Frozen values as plain data for JSON, under the names that the Python interface uses."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np


def as_data(value: Any) -> Any:
    """Dataclasses become objects, arrays and tuples lists; a number that is not finite becomes null."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: as_data(getattr(value, field.name)) for field in dataclasses.fields(value)}
    match value:
        case Mapping():
            return {str(name): as_data(item) for name, item in value.items()}
        case np.ndarray() | np.generic():
            return as_data(value.tolist())
        case list() | tuple():
            return [as_data(item) for item in value]
        case float() if not math.isfinite(value):
            return None
    return value
