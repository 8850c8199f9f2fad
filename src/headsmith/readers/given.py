"""What `hs.certify` is given, as graphs in which softmax stays whole: modules of torch, matrices, files of them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from headsmith.core.arrays import Array
from headsmith.core.errors import TargetError
from headsmith.core.foreign import family_of
from headsmith.language.builder import Builder, moved
from headsmith.readers.imported import Imported, input_names
from headsmith.readers.matrices import from_matrices


def read_given(given: Any, domain: Any, example: Any = None) -> Any:
    """Modules of torch and matrices of attention are read; everything else stays what it is."""
    if family_of(given) == "torch":
        from headsmith.readers.torch_modules import attending, read_module

        return read_module(attending(given), _shape(given, domain) if example is None else example, attention=True)
    matrices = isinstance(given, Mapping) or hasattr(given, "references")
    return from_matrices(given) if matrices else given


def _shape(module: Any, domain: Any) -> Array | None:
    """An example for a module: a row with as many numbers as the domain has intervals; as tokens of one number each
    where a Sequential begins with a linear layer that reads one."""
    if not (isinstance(domain, Mapping) or np.ndim(domain) == 2):
        return None
    first = next(iter(module.children()), None)
    tokens = len(domain) > 1 and type(module).__name__ == "Sequential" and getattr(first, "in_features", 0) == 1
    return np.zeros((1, len(domain), 1) if tokens else (1, len(domain)))


def framed(given: Any, inputs: tuple[Any, Any] | None, output: Any) -> Any:
    """A module between an affine map of the inputs and the outputs that count. Formulas stay what they are."""
    if not isinstance(given, Imported) or (inputs is None and output is None):
        return given
    graph, several = given.graph, given.graph.nodes[given.graph.output].size
    matrix, offset = np.eye(graph.input.size), np.zeros(graph.input.size)
    if inputs is not None:
        matrix, offset = (np.asarray(each, dtype=np.float64) for each in inputs)
    chosen = np.arange(several) if output is None else np.asarray(output)
    picked = chosen.astype(np.float64) if chosen.ndim == 2 else np.eye(several)[chosen.ravel()]
    if matrix.shape[0] != graph.input.size or offset.shape != matrix.shape[:1] or picked.shape[1] != several:
        raise TargetError(
            f"the module has {graph.input.size} inputs and {several} outputs; inputs is a matrix {matrix.shape} with "
            f"an offset {offset.shape}, and output chooses among {picked.shape[1]}"
        )
    builder = Builder(input_names(matrix.shape[1]), attention=True)
    places = {0: builder.affine([(0, matrix)], offset) if inputs is not None else 0}
    for place, node in enumerate(graph.nodes[1:], start=1):
        places[place] = builder.add(moved(node, places))
    last = builder.affine([(places[graph.output], picked)], np.zeros(len(picked)))
    return replace(given, graph=builder.graph(last), input_shape=(matrix.shape[1],), output_shape=(len(picked),))


def read_given_file(path: str | os.PathLike[str]) -> Any:
    """What `hs.certify` takes, from a file; of a compiled model its path."""
    ending = os.path.splitext(os.fspath(path))[1].lower()
    if ending in (".pt", ".pth", ".pt2"):
        from headsmith.readers.torch_modules import load_module

        return load_module(path)
    if ending == ".npz":
        with np.load(path, allow_pickle=False) as held:
            return {name: held[name] for name in held.files}
    if ending == ".safetensors":
        return os.fspath(path)
    raise TargetError(f"{os.fspath(path)}: give a .pt, .pt2, .npz or .safetensors file")
