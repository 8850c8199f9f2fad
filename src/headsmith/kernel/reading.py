"""A file as data: a header of plain JSON and tensors by name. Nothing in it is believed, and nothing is executed.

Whatever is read from the header goes through the functions below, which refuse what is not of the kind that they say.
Sizes come from tensors that are really in the file: no number in the header makes anybody allocate or loop.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from typing import Any, NoReturn

import numpy as np
from safetensors import SafetensorError, safe_open

from .arithmetic import Array
from .errors import Refused

FORMAT, VERSION = "headsmith", 2
LARGEST_HEADER = 1 << 26
TYPES = ("F64", "F32", "I64")
MOST = 1 << 31

Tensors = dict[str, Any]


def read(path: str | os.PathLike[str]) -> tuple[dict[str, Any], Tensors]:
    """The header and the tensors of a file."""
    path = os.fspath(path)
    if not os.path.isfile(path):
        raise Refused(f"{path}: no such file")
    try:
        with safe_open(path, framework="np") as file:
            text = (file.metadata() or {}).get(FORMAT)
            names = list(file.keys())
            types = {name: file.get_slice(name).get_dtype() for name in names}
            wrong = next((name for name in names if types[name] not in TYPES), None)
            tensors = {} if wrong is not None else {name: file.get_tensor(name) for name in names}
    except (SafetensorError, OSError, ValueError) as problem:
        raise Refused(f"not a complete safetensors file ({problem})") from None
    if wrong is not None:
        raise Refused(f"the tensor {wrong!r} has the type {types[wrong]}; only {', '.join(TYPES)} are read")
    if text is None:
        raise Refused("a safetensors file, but without the header of this project")
    if len(text) > LARGEST_HEADER:
        raise Refused(f"the header has {len(text)} characters, more than {LARGEST_HEADER}")
    try:
        header = mapping(json.loads(text, parse_constant=_no_number))
    except (ValueError, RecursionError) as problem:
        raise Refused(f"the header is no JSON that can be read ({type(problem).__name__})") from None
    if header.get("version") != VERSION:
        raise Refused(f"format version {header.get('version')!r}; this kernel reads version {VERSION}")
    return header, tensors


def _no_number(text: str) -> NoReturn:
    raise Refused(f"the header holds {text}, which is no number")


def mapping(value: Any) -> dict[str, Any]:
    """A JSON object."""
    if not isinstance(value, dict):
        raise Refused(f"an object was expected, not {_shown(value)}")
    return value


def items(value: Any, most: int = MOST) -> list[Any]:
    """A JSON array."""
    if not isinstance(value, list) or len(value) > most:
        raise Refused(f"a list of at most {most} was expected, not {_shown(value)}")
    return value


def field(value: Any, name: str) -> Any:
    """A field of an object, which must be there."""
    found = mapping(value)
    if name not in found:
        raise Refused(f"the field {name!r} is missing from {_shown(value)}")
    return found[name]


def text(value: Any) -> str:
    """A string."""
    if not isinstance(value, str):
        raise Refused(f"a text was expected, not {_shown(value)}")
    return value


def whole(value: Any, low: int = 0, high: int = MOST) -> int:
    """A whole number in a range."""
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise Refused(f"a whole number from {low} to {high} was expected, not {_shown(value)}")
    return value


def real(value: Any) -> float:
    """A finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > 1e300 or not math.isfinite(value):
        raise Refused(f"a finite number was expected, not {_shown(value)}")
    return float(value)


def flag(value: Any) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise Refused(f"true or false was expected, not {_shown(value)}")
    return value


def numbers(tensors: Tensors, name: Any, *dimensions: int) -> Array:
    """A tensor of finite numbers with one of these numbers of dimensions, as doubles."""
    found = _tensor(tensors, name, dimensions)
    if found.dtype == np.int64:
        raise Refused(f"the tensor {name!r} holds whole numbers where others are expected")
    values: Array = found.astype(np.float64, copy=False)
    if not np.isfinite(values).all():
        raise Refused(f"the tensor {name!r} holds what is no finite number")
    return values


def indices(tensors: Tensors, name: Any) -> Any:
    """A vector of whole numbers."""
    found = _tensor(tensors, name, (1,))
    if found.dtype != np.int64:
        raise Refused(f"the tensor {name!r} does not hold whole numbers")
    return found


def _tensor(tensors: Tensors, name: Any, dimensions: tuple[int, ...]) -> Any:
    if text(name) not in tensors:
        raise Refused(f"the tensor {name!r} is missing")
    found = tensors[name]
    if found.ndim not in dimensions:
        raise Refused(f"the tensor {name!r} has {found.ndim} dimensions")
    return found


def _shown(value: Any) -> str:
    shown = repr(value) if isinstance(value, int | float | str | bool | None) else type(value).__name__
    return shown if len(shown) <= 60 else f"{shown[:57]}..."


def digest(stored: Any, tensors: Tensors) -> str:
    """SHA-256 of a graph, in hexadecimal digits: of its JSON text with sorted keys and without blanks, in which the
    digest of a tensor (of its shape as JSON, and its numbers as little-endian doubles) stands for its name."""

    def plain(key: str, value: Any) -> Any:
        if isinstance(value, dict):
            return {name: plain(name, each) for name, each in value.items()}
        if isinstance(value, list):
            return [plain("", each) for each in value]
        if key in ("bias", "weights", "values", "answers", "lipschitz", "scale") and isinstance(value, str):
            array = np.ascontiguousarray(tensors[value], dtype="<f8")
            found = hashlib.sha256(json.dumps(array.shape).encode())
            found.update(array)
            return found.hexdigest()
        return value

    text = json.dumps(plain("", stored), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
