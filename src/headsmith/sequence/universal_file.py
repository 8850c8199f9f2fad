"""Universal models as files: all matrices, and what is stated of the target; not the callable.

    kind "universal"; domain, counts, width, lipschitz, evaluation, architecture    the header: what is stated
    parts                                                                           the header: what is claimed
    embedding, positional, prefix, layers.L.H.W_Q, ..., readout, last.W, ...        tensors, float64

Nothing here is checked beyond its form: `verify` proves the parts again from the matrices.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from headsmith.core.arrays import Array, frozen
from headsmith.core.errors import FileFormatError
from headsmith.core.intervals import Box
from headsmith.export.file import Tensor, read_tensors, write_tensors
from headsmith.export.stored import Header
from headsmith.sequence.universal_inputs import names_of
from headsmith.sequence.universal_model import HEAD, LAST, Architecture, Attention, Head, Softmax, named
from headsmith.sequence.universal_proof import PARTS, Stated
from headsmith.source.smoothness import Lipschitz, Norm

KIND = "universal"
NORMS: dict[str, Norm] = {"1": "1", "2": "2", "inf": "inf"}
ARCHITECTURES: dict[str, Architecture] = {
    "two layers": "two layers",
    "one layer and a softmax": "one layer and a softmax",
}


def write_universal(path: str | os.PathLike[str], stated: Stated, model: Attention, parts: Mapping[str, float]) -> None:
    """Write a model: the file is complete or absent."""
    header = {
        "kind": KIND,
        "domain": {"low": stated.box.low.tolist(), "high": stated.box.high.tolist()},
        "counts": list(stated.counts),
        "width": stated.width,
        "lipschitz": {"constants": stated.lipschitz.constants.tolist(), "norm": stated.lipschitz.norm},
        "evaluation": stated.evaluation,
        "architecture": stated.architecture,
        "heads": [len(layer) for layer in model.layers],
        "parts": {name: float(parts[name]) for name in PARTS},
    }
    write_tensors(path, header, {name: np.ascontiguousarray(array) for name, array in named(model).items()})


def read_universal(path: str | os.PathLike[str]) -> tuple[Attention, Stated, dict[str, float]]:
    """Read what `write_universal` wrote, or raise FileFormatError."""
    return read_tensors(path, KIND, lambda header, tensors: _contents(header, tensors.__getitem__))


def _contents(header: Header, tensor: Tensor) -> tuple[Attention, Stated, dict[str, float]]:
    architecture = ARCHITECTURES[header["architecture"]]
    model = _model(header["heads"], architecture, _matrix(tensor))
    low, high = (_numbers(header["domain"][end]) for end in ("low", "high"))
    constants = _numbers(header["lipschitz"]["constants"])
    if not len(low) == len(high) == model.tokens * model.features:
        raise FileFormatError(f"{len(low)} intervals for {model.tokens} tokens of {model.features} features")
    stated = Stated(
        box=Box(names_of(model.tokens, model.features), low, high),
        counts=tuple(_whole(count) for count in header["counts"]),
        width=float(header["width"]),
        lipschitz=Lipschitz(constants, NORMS[header["lipschitz"]["norm"]]),
        evaluation=float(header["evaluation"]),
        architecture=architecture,
    )
    return model, stated, {name: float(header["parts"][name]) for name in PARTS}


def _model(heads: Any, architecture: Architecture, matrix: Callable[[str, int], Array]) -> Attention:
    if [type(count) for count in heads] != [int] * (2 if architecture == "two layers" else 1) or min(heads) < 1:
        raise FileFormatError(f"{heads!r} are not the numbers of heads of {architecture}")
    layers = tuple(
        tuple(Head(*(matrix(f"layers.{number}.{place}.{name}", 2) for name in HEAD)) for place in range(count))
        for number, count in enumerate(heads)
    )
    last = None
    if architecture != "two layers":
        last = Softmax(*(matrix(f"last.{name}", 1 if name == "b" else 2) for name in LAST))
    embedding, positional, prefix, readout = (
        matrix(name, 2) for name in ("embedding", "positional", "prefix", "readout")
    )
    return Attention(embedding, positional, prefix, layers, readout, last)


def _matrix(tensor: Tensor) -> Callable[[str, int], Array]:
    def matrix(name: str, dimensions: int) -> Array:
        values = np.asarray(tensor(name))
        if values.dtype != np.float64 or values.ndim != dimensions:
            raise FileFormatError(f"the tensor {name} is {values.dtype} of shape {values.shape}")
        return frozen(values)

    return matrix


def _numbers(values: Any) -> Array:
    found = frozen(values)
    if found.ndim != 1:
        raise FileFormatError(f"a list of numbers is needed, not {found.ndim} levels of them")
    return found


def _whole(value: Any) -> int:
    if type(value) is not int:
        raise FileFormatError(f"{value!r} is not a whole number")
    return value
