"""One operator of an ONNX file, as the functions that read it are given it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from headsmith.core.errors import TargetError
from headsmith.language.builder import Builder
from headsmith.readers.tensors import Operand, Tensor


@dataclass(frozen=True)
class OnnxCall:
    """One operator of a file: its attributes, the version of its operator set, and how many outputs are read."""

    builder: Builder
    attributes: Mapping[str, Any]
    opset: int
    outputs: int = 1

    def get(self, name: str, default: Any = None) -> Any:
        return self.attributes.get(name, default)


Reader = Callable[..., Any]


def constant(operand: Operand, what: str) -> Any:
    """A constant, or TargetError where it is computed from the input."""
    if isinstance(operand, Tensor):
        raise TargetError(f"{what} is computed from the input; it must be a constant")
    return np.asarray(operand)


def whole_numbers(operand: Operand, what: str) -> list[int]:
    """A constant list of whole numbers."""
    return [int(each) for each in constant(operand, what).ravel().tolist()]
