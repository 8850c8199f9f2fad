"""Exported models: a folder for another tool, with the model and its proof beside it.

    export.json            what was exported, and how
    proof.safetensors      the model as Headsmith saves it, with its proof
    circuit.json           what every head does; its witnesses are run again (inside/circuit_check.py)
    README.md              what is proven, what it costs, how to use it and how to check it
    ...                    what the tool reads: export/formats.py

Everything else follows from the proof: `compare` makes the folder's files again, from the model that was proven, and
compares them bit for bit. One changed weight, another configuration, another line of code is refused; so is any file
that does not belong there. Code in the folder is never run.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load

from headsmith.core.errors import CertificateError, FileFormatError
from headsmith.core.folders import check_folder, umask

MANIFEST, PROOF, PICTURE, CIRCUIT = "export.json", "proof.safetensors", "picture.png", "circuit.json"

Files = dict[str, bytes]

ROOM = 1 << 16
"""By how many bytes a file may be longer than it should be, to be read at all."""

MOST_TOLD = 1 << 28
"""How many bytes circuit.json may have."""

PNG = b"\x89PNG\r\n\x1a\n"


def write_folder(folder: str | os.PathLike[str], files: Mapping[str, bytes]) -> None:
    """Write the files into a new folder, which is complete or absent."""
    path = Path(folder)
    refuse_taken(path)
    made = Path(tempfile.mkdtemp(dir=path.parent, prefix=".headsmith-"))
    try:
        for name, content in files.items():
            (made / name).write_bytes(content)
        made.chmod(0o777 & ~umask())
        if path.is_dir():
            path.rmdir()
        made.rename(path)
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise


def refuse_taken(path: Path) -> None:
    """Raise an OSError unless a new folder can be made there, or an empty one is."""
    if path.is_dir():
        if any(path.iterdir()):
            raise FileExistsError(f"{path}: a folder with something in it; name a new one")
    elif path.exists():
        raise FileExistsError(f"{path}: a file; name a new folder")
    else:
        check_folder(path)


def read_manifest(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """What export.json says was exported, and how; FileFormatError if the folder is no export."""
    path = Path(folder) / MANIFEST
    if not path.is_file() or not (Path(folder) / PROOF).is_file():
        raise FileFormatError(f"{folder}: a folder without {MANIFEST} and {PROOF}, so no exported model")
    if path.stat().st_size > ROOM:
        raise FileFormatError(f"{path}: {path.stat().st_size:,} bytes are no list of a few options")
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as problem:
        raise FileFormatError(f"{path}: damaged ({problem})") from None
    if not isinstance(found, dict):
        raise FileFormatError(f"{path}: damaged (no object)")
    return found


def read_circuit(folder: str | os.PathLike[str]) -> Any:
    """What circuit.json holds; CertificateError where it is missing or damaged."""
    path = Path(folder) / CIRCUIT
    try:
        if path.stat().st_size > MOST_TOLD:
            raise CertificateError(f"{path}: {path.stat().st_size:,} bytes are more than a circuit takes")
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as problem:
        raise CertificateError(f"{path}: missing or damaged ({problem})") from None


def compare(folder: str | os.PathLike[str], wanted: Mapping[str, bytes]) -> None:
    """Raise CertificateError unless the folder holds these files, bit for bit, beside the proof."""
    path = Path(folder)
    for entry in sorted(path.iterdir()):
        name = entry.name
        if name in (PROOF, PICTURE, CIRCUIT) or name.startswith(".git"):
            continue
        if name not in wanted:
            raise CertificateError(f"{entry}: does not belong to the export, and other tools might read it; remove it")
    picture = path / PICTURE
    if picture.exists() and not (picture.is_file() and picture.read_bytes()[: len(PNG)] == PNG):
        raise CertificateError(f"{path / PICTURE}: no picture")
    for name, content in wanted.items():
        _compare_file(path / name, content)


def _compare_file(path: Path, wanted: bytes) -> None:
    if not path.is_file():
        raise CertificateError(f"{path}: missing")
    size = path.stat().st_size
    if size > len(wanted) + ROOM:
        raise CertificateError(f"{path}: {size:,} bytes where the proven model has {len(wanted):,}")
    found = path.read_bytes()
    if found == wanted:
        return
    if path.suffix == ".safetensors":
        _compare_tensors(path, found, wanted)
    if path.suffix == ".onnx":
        return _compare_graphs(path, found, wanted)
    raise CertificateError(f"{path}: not what the proven model has there; export it again")


def _compare_tensors(path: Path, found: bytes, wanted: bytes) -> None:
    """Say which number of which tensor is another one."""
    try:
        held = load(found)
    except (SafetensorError, ValueError, KeyError, TypeError) as problem:
        raise CertificateError(f"{path}: not a complete safetensors file ({problem})") from None
    _compare_arrays(path, held, load(wanted))


def _compare_arrays(path: Path, held: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    for name in sorted({*held, *wanted}):
        if name not in held or name not in wanted:
            problem = "is missing" if name in wanted else "is not one of the proven model"
            raise CertificateError(f"{path}: the tensor {name} {problem}")
        mine, right = held[name], wanted[name]
        if mine.shape != right.shape or mine.dtype != right.dtype:
            raise CertificateError(
                f"{path}: {name} is {mine.dtype} {mine.shape}; the proven model has {right.dtype} {right.shape}"
            )
        if mine.tobytes() != right.tobytes():
            # Compared as bytes: a zero has a sign, and what is no number differs from itself.
            one, other = (np.frombuffer(each.tobytes(), dtype=np.uint8) for each in (mine, right))
            first = int(np.flatnonzero(one != other)[0]) // right.dtype.itemsize
            place = [int(index) for index in np.unravel_index(first, right.shape)]
            raise CertificateError(
                f"{path}: {name}{place} is {mine.flat[first]!r}; the proven model has {right.flat[first]!r} there"
            )


def _compare_graphs(path: Path, found: bytes, wanted: bytes) -> None:
    """Raise CertificateError unless two ONNX files hold one graph: bytes may differ in order, so what was read
    counts."""
    from headsmith.export.onnx_builder import onnx_package

    onnx = onnx_package()
    mine, right = onnx.ModelProto(), onnx.ModelProto()
    right.ParseFromString(wanted)
    try:
        mine.ParseFromString(found)
    except Exception as problem:  # whatever the parser raises
        raise CertificateError(f"{path}: not an ONNX file ({problem})") from None
    if mine == right:
        return
    if any(each.data_location or each.external_data for each in mine.graph.initializer):
        raise CertificateError(f"{path}: weights are read from other files; those of the proven model are inside")
    try:
        held = {each.name: onnx.numpy_helper.to_array(each) for each in mine.graph.initializer}
    except Exception as problem:  # absurd shapes and types
        raise CertificateError(f"{path}: weights cannot be read ({problem})") from None
    _compare_arrays(path, held, {each.name: onnx.numpy_helper.to_array(each) for each in right.graph.initializer})
    for place, (one, other) in enumerate(zip(mine.graph.node, right.graph.node, strict=False)):
        if one != other:
            right_one = f"{other.op_type} {other.name!r}"
            raise CertificateError(
                f"{path}: node {place} is {one.op_type} {one.name!r}; the proven model has {right_one}"
            )
    raise CertificateError(f"{path}: not the graph of the proven model; export it again")
