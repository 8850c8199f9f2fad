"""A file as data: a header of plain JSON and tensors by name. Nothing in it is believed, and nothing is executed.

Whatever is read from the header goes through the functions below, which refuse what is not of the kind that they say.
Sizes come from tensors that are really in the file: no number in the header makes anybody allocate or loop.
"""

import hashlib
import json
import os
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from math import prod
from typing import Any, TypeVar

import numpy as np
from safetensors import SafetensorError, safe_open

from .arithmetic import Array, Weights
from .errors import Refused, refuse, spend
from .sparse import Sparse

FORMAT, VERSION = "headsmith", 3
LARGEST_HEADER, MOST_NUMBERS = 1 << 26, 1 << 29
TYPES = ("F64", "F32", "I64")
MOST = 1 << 31
TENSORS = ("bias", "weights", "gaps", "values", "answers", "lipschitz", "scale", "preconditioner")  # in digests

Tensors = dict[str, Any]
T = TypeVar("T")


def read(path: str | os.PathLike[str]) -> tuple[dict[str, Any], Tensors]:
    """The header and the tensors of a file of this version."""
    header, tensors = read_any(path)
    refuse(header.get("version") != VERSION, f"format version {header.get('version')!r}; this kernel reads {VERSION}")
    return header, tensors


def read_any(path: str | os.PathLike[str]) -> tuple[dict[str, Any], Tensors]:
    """The same of any version: the header first, and of the tensors those that it names."""
    with _opened(path) as file:
        metadata = file.metadata() or {}
        refuse(FORMAT not in metadata, "a safetensors file, but not written by headsmith (no such header)")
        header = mapping(parsed(metadata[FORMAT], "the header"))
        return header, _tensors(file, sorted({*file.keys()} & {*_texts(header)}), TYPES)


def tensors_of(path: str | os.PathLike[str], types: tuple[str, ...]) -> Tensors:
    """All tensors of a safetensors file, which must be of these types."""
    with _opened(path) as file:
        return _tensors(file, list(file.keys()), types)


@contextmanager
def _opened(path: str | os.PathLike[str]) -> Iterator[Any]:
    refuse(not os.path.isfile(path), "a folder, not a file" if os.path.isdir(path) else "no such file")
    try:
        with safe_open(path, framework="np") as file:
            yield file
    except (SafetensorError, OSError, ValueError) as problem:
        raise Refused(f"not a complete safetensors file ({problem}), so no saved model") from None
    except BaseException as problem:
        # Where there is no memory left, the library ends in what is no Exception.
        if isinstance(problem, MemoryError) or type(problem).__name__ == "PanicException":
            raise Refused("the file takes more memory than there is") from None
        raise


def _tensors(file: Any, names: list[str], types: tuple[str, ...]) -> Tensors:
    """The tensors of these names, none of which is read before all types and sizes are known."""
    parts = {name: file.get_slice(name) for name in names}
    for name, kind in ((name, part.get_dtype()) for name, part in parts.items()):
        refuse(kind not in types, f"the tensor {name!r} has the type {kind}; only {', '.join(types)} are read")
    count = sum(prod(part.get_shape()) for part in parts.values())
    refuse(count > MOST_NUMBERS, f"the file has {count} numbers, and this kernel reads {MOST_NUMBERS}")
    return {name: file.get_tensor(name) for name in names}


def _texts(value: Any) -> Iterator[str]:
    """All texts in a header."""
    waiting = [value]
    while waiting:
        found = waiting.pop()
        if isinstance(found, str):
            yield found
        elif isinstance(found, dict | list):
            waiting += found.values() if isinstance(found, dict) else found


def parsed(text: str, what: str) -> Any:
    """JSON, of numbers that are some."""
    refuse(len(text) > LARGEST_HEADER, f"{what} has more than {LARGEST_HEADER} characters")
    try:
        return json.loads(text, parse_constant=lambda found: refuse(True, f"{found} is no number"))
    except (ValueError, RecursionError) as problem:
        raise Refused(f"{what} is no JSON that can be read ({type(problem).__name__})") from None


def _expect(value: Any, kinds: tuple[type[T], ...], what: str, fine: Callable[[T], bool] = lambda _: True) -> T:
    if isinstance(value, kinds) and fine(value):
        return value
    shown = repr(value) if isinstance(value, int | float | str | bool | None) else type(value).__name__
    raise Refused(f"{what} was expected, not {shown if len(shown) <= 60 else shown[:57] + '...'}")


def mapping(value: Any) -> dict[str, Any]:
    """A JSON object."""
    return _expect(value, (dict,), "an object")


def items(value: Any, most: int = MOST) -> list[Any]:
    """A JSON array."""
    return _expect(value, (list,), f"a list of at most {most}", lambda found: len(found) <= most)


def field(value: Any, name: str) -> Any:
    """A field of an object, which must be there."""
    return _expect(value, (dict,), f"an object with the field {name!r}", lambda found: name in found)[name]


def text(value: Any) -> str:
    """A string that can be shown: no characters that move a cursor and write over a verdict."""
    return _expect(value, (str,), "a text of printable characters", str.isprintable)


def whole(value: Any, low: int = 0, high: int = MOST) -> int:
    """A whole number in a range."""
    limits = f"a whole number from {low} to {high}"
    return _expect(value, (int,), limits, lambda found: not isinstance(found, bool) and low <= found <= high)


def real(value: Any) -> float:
    """A finite number."""
    kinds = (float,) if isinstance(value, bool) else (int, float)
    return float(_expect(value, kinds, "a finite number", lambda found: abs(found) <= 1e300))


def flag(value: Any) -> bool:
    """True or false."""
    return _expect(value, (bool,), "true or false")


def numbers(tensors: Tensors, name: Any, *dimensions: int) -> Array:
    """A tensor of finite numbers with one of these numbers of dimensions, as doubles."""
    found: Array = _tensor(tensors, name, dimensions)
    refuse(found.dtype == np.int64, f"the tensor {name!r} holds whole numbers where others are expected")
    refuse(not np.isfinite(found).all(), f"the tensor {name!r} holds what is no finite number")
    return found.astype(np.float64, copy=False)


def weights(tensors: Tensors, stored: Any) -> Weights:
    """A tensor that is a matrix, or a vector for a diagonal one; or a matrix by its entries, whose places, counted row
    by row, are one less than the sums of the first gaps: they rise, and the last one is in the matrix."""
    if not isinstance(stored, dict):
        return numbers(tensors, stored, 1, 2)
    rows, columns = (whole(each, 1) for each in items(field(stored, "shape"), 2))
    gaps, values = (numbers(tensors, field(stored, name), 1) for name in ("gaps", "values"))
    spend(2000.0 * (rows + columns + len(gaps)))  # places take memory, each time that a tensor is read
    ends = np.cumsum(gaps)  # exact, as whole numbers below 2^53 are
    rises = gaps.shape == values.shape and bool(np.all((gaps >= 1.0) & (gaps == np.floor(gaps))))
    if not rises or max(rows, columns) >= 2**31 or not ends.max(initial=0.0) <= min(rows * columns, 2**53 - 1):
        raise Refused(f"the entries of a matrix of shape {(rows, columns)} are not in order, or outside of it")
    return Sparse((rows, columns), *np.divmod(ends.astype(np.int64) - 1, columns), values)


def indices(tensors: Tensors, name: Any) -> Any:
    """A vector of whole numbers."""
    found = _tensor(tensors, name, (1,))
    refuse(found.dtype != np.int64, f"the tensor {name!r} does not hold whole numbers")
    return found


def _tensor(tensors: Tensors, name: Any, dimensions: Container[int]) -> Any:
    refuse(text(name) not in tensors, f"the tensor {name!r} is missing")
    found = tensors[name]
    spend(20.0 * found.size)  # a file may name its tensors many times
    refuse(found.ndim not in dimensions, f"the tensor {name!r} has {found.ndim} dimensions")
    return found


def digest(stored: Any, tensors: Tensors) -> str:
    """SHA-256 of a graph, in hexadecimal digits: of its JSON text with sorted keys and without blanks, in which the
    digest of a tensor (of its shape as JSON, and its numbers as little-endian doubles) stands for its name."""

    def plain(key: str, value: Any) -> Any:
        if isinstance(value, dict):
            return {name: plain(name, each) for name, each in value.items()}
        if isinstance(value, list):
            return [plain("", each) for each in value]
        if key in TENSORS and isinstance(value, str):
            array = np.ascontiguousarray(_tensor(tensors, value, range(33)), dtype="<f8")
            found = hashlib.sha256(json.dumps(array.shape).encode())
            found.update(array.data)
            return found.hexdigest()
        return value

    return hashlib.sha256(json.dumps(plain("", stored), sort_keys=True, separators=(",", ":")).encode()).hexdigest()
