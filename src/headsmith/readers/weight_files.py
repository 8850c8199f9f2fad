"""Networks in files: weights alone (.npz, .safetensors), ONNX, and, if the user insists, pickles.

Nothing in a file is executed, except in pickles, and nothing is allocated that the file does not hold.
"""

from __future__ import annotations

import importlib
import os
import re
import zipfile
from collections.abc import Sequence
from typing import Any

import numpy as np

from headsmith.core.errors import TargetError
from headsmith.core.foreign import family_of, plain
from headsmith.language.maxout import MaxoutNetwork
from headsmith.language.network import Network
from headsmith.readers.imported import Imported

PICKLES = (".pt", ".pth", ".pkl", ".pickle", ".joblib")
FILES = (".npz", ".safetensors", ".onnx", *PICKLES)
"""How the names of files with networks end."""

MOST_BYTES = 1 << 31
SUSPICIOUS = 1 << 26
"""A file that unpacks to more than this must not be a hundred times smaller itself."""

ReadNetwork = Network | MaxoutNetwork | Imported


def read_network(path: str, shape: Sequence[int] | None = None, allow_pickle: bool = False) -> ReadNetwork:
    """The network in a file, by its ending. `shape` is that of one input, where the file does not say it."""
    ending = os.path.splitext(path)[1].lower()
    if not os.path.isfile(path):
        raise TargetError(f"{path}: no such file")
    if ending == ".npz":
        return read_npz(path)
    if ending == ".safetensors":
        return read_safetensors(path)
    if ending == ".onnx":
        from headsmith.readers.onnx_files import from_onnx

        return from_onnx(path, shape=shape)
    if ending not in PICKLES:
        raise TargetError(f"{path}: networks are read from files that end in {', '.join(FILES)}")
    if not allow_pickle:
        raise TargetError(
            f"{path}: a pickle runs whatever code is in it when it is loaded. Export the network to ONNX, or say "
            f"--allow-pickle if you know where the file comes from"
        )
    return _from_object(path, _unpickled(path, ending), shape)


def read_npz(path: str) -> Network | MaxoutNetwork:
    """A network from arrays W0, b0, W1, b1, ..., and optionally `names` of the inputs.

    All W (out, in): a ReLU network. One or more W (rank, out, in), with b (rank, out): a maxout network.
    """
    if not os.path.isfile(path):
        raise TargetError(f"{path}: no such file")
    if not zipfile.is_zipfile(path):
        raise TargetError(f"{path}: not an .npz file; write one with numpy.savez(path, W0=..., b0=..., W1=..., b1=...)")
    try:
        _check_zip(path)
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except (OSError, ValueError, EOFError, AttributeError, zipfile.BadZipFile, MemoryError) as problem:
        raise TargetError(f"{path}: not a readable .npz file of plain arrays ({problem})") from None
    names = arrays.pop("names", None)
    pairs = _pairs(path, arrays)
    kind = MaxoutNetwork if any(weights.ndim == 3 for weights, _ in pairs) else Network
    return kind(pairs, names=None if names is None else [str(name) for name in names])


def _check_zip(path: str) -> None:
    """Refuse archives that unpack to much more than they are, and arrays whose shapes their bytes do not fill."""
    with zipfile.ZipFile(path) as archive:
        infos = archive.infolist()
        unpacked = sum(info.file_size for info in infos)
        if unpacked > MOST_BYTES or (unpacked > SUSPICIOUS and unpacked > 100 * os.path.getsize(path)):
            raise TargetError(
                f"{path}: it unpacks to {unpacked} bytes from {os.path.getsize(path)}, and is not unpacked"
            )
        for info in infos:
            with archive.open(info) as member:
                version = np.lib.format.read_magic(member)
                read: Any = {1: np.lib.format.read_array_header_1_0}.get(
                    version[0], np.lib.format.read_array_header_2_0
                )
                shape, _, kind = read(member)
                if int(np.prod([int(size) for size in shape], dtype=object)) * kind.itemsize > info.file_size:
                    raise TargetError(f"{path}: {info.filename} says that it has the shape {shape}, and is too short")


def _pairs(path: str, arrays: dict[str, Any]) -> list[tuple[Any, Any]]:
    """W0, b0, W1, b1, ... as pairs."""
    layers = 0
    while f"W{layers}" in arrays:
        layers += 1
    wanted = [f"{letter}{layer}" for layer in range(layers) for letter in "Wb"]
    missing, unknown = [name for name in wanted if name not in arrays], sorted(set(arrays) - set(wanted))
    if not layers or missing or unknown:
        have = ", ".join(sorted(arrays)) or "nothing"
        raise TargetError(f"{path}: expected arrays W0, b0, W1, b1, ... without gaps; the file holds {have}")
    return [(arrays[f"W{layer}"], arrays[f"b{layer}"]) for layer in range(layers)]


def read_safetensors(path: str) -> Imported:
    """A chain of linear layers with ReLUs between them, from tensors 0.weight, 0.bias, 2.weight, ... (as torch names
    them), or W0, b0, W1, b1, ..."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="np") as file:
            metadata = file.metadata() or {}
            kinds = {name: str(file.get_slice(name).get_dtype()) for name in file.keys()}  # noqa: SIM118
            wrong = next((name for name, kind in kinds.items() if kind not in ("F16", "F32", "F64", "I64")), None)
            tensors = {} if wrong else {name: file.get_tensor(name) for name in kinds}
    except (SafetensorError, OSError, ValueError) as problem:
        raise TargetError(f"{path}: not a complete safetensors file ({problem})") from None
    if "headsmith" in metadata:
        raise TargetError(f"{path}: this is a compiled model already; see headsmith explain, run, verify")
    if wrong is not None:
        raise TargetError(f"{path}: the tensor {wrong} is {kinds[wrong]}; F16, F32 and F64 are read")
    return _from_tensors(path, tensors)


def _from_tensors(path: str, tensors: dict[str, Any]) -> Imported:
    """Layers by their names, in the order of the numbers in them."""
    if "W0" in tensors:
        pairs = _pairs(path, tensors)
    else:
        layers = sorted({name.rpartition(".")[0] for name in tensors}, key=_natural)
        pairs = [_layer(path, layer, tensors) for layer in layers]
        if len(layers) > 1 and not all(re.search(r"\d", layer) for layer in layers):
            raise TargetError(
                f"{path}: the layers are {', '.join(layers)}, in an order that is not known: number them, or {INSTEAD}"
            )
    network = Network(pairs, transposed=False)
    note = "weights alone do not say what is between the layers: ReLU is taken"
    outputs = len(network.layers[-1][1])
    return Imported(network.graph, os.path.basename(path), (len(network.names),), (outputs,), (note,))


INSTEAD = "use ONNX, or hs.from_torch in Python, which know how layers are connected"


def _layer(path: str, layer: str, tensors: dict[str, Any]) -> tuple[Any, Any]:
    given = {name.rpartition(".")[2]: array for name, array in tensors.items() if name.rpartition(".")[0] == layer}
    weight = given.get("weight")
    if weight is None or weight.ndim != 2 or not given.keys() <= {"weight", "bias"}:
        held = ", ".join(f"{name} {array.shape}" for name, array in sorted(given.items()))
        raise TargetError(f"{path}: {layer or 'the file'} is no linear layer (it has {held}); {INSTEAD}")
    return weight, given.get("bias")


def _natural(name: str) -> list[Any]:
    """Numbers in a name by their size, so that 10 comes after 2."""
    return [(1, int(part), "") if part.isdigit() else (0, 0, part) for part in re.split(r"(\d+)", name) if part]


def _unpickled(path: str, ending: str) -> Any:
    try:
        if ending in (".pt", ".pth"):
            import torch

            return torch.load(path, map_location="cpu", weights_only=False)
        if ending == ".joblib":
            return importlib.import_module("joblib").load(path)
        import pickle

        with open(path, "rb") as file:
            return pickle.load(file)
    except ImportError as problem:
        raise TargetError(f"{path}: loading it needs a package that is not installed ({problem})") from None
    except Exception as problem:
        raise TargetError(f"{path}: cannot be loaded ({type(problem).__name__}: {problem})") from None


def _from_object(path: str, found: Any, shape: Sequence[int] | None) -> Imported:

    if family_of(found) == "sklearn":
        from headsmith.readers.sklearn_models import from_sklearn

        return from_sklearn(found)
    if family_of(found) == "torch" and hasattr(found, "forward"):
        from headsmith.readers.torch_modules import from_torch

        return from_torch(found, None if shape is None else np.zeros((1, *shape)))
    if isinstance(found, dict) and found and all(family_of(each) == "torch" for each in found.values()):
        return _from_tensors(path, {name: np.asarray(plain(each)) for name, each in found.items()})
    raise TargetError(f"{path}: holds a {type(found).__name__}, which is no network that is read")
