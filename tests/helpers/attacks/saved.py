"""Saved models as plain data: read a file into (header, tensors), change anything, write it back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from safetensors import safe_open
from safetensors.numpy import save_file

KEY = "headsmith"


def read(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    with safe_open(path, framework="np") as file:
        header = json.loads(file.metadata()[KEY])
        return header, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118


def write(path: Path, header: Any, tensors: dict[str, Any], **metadata: str) -> None:
    text = header if isinstance(header, str) else json.dumps(header)
    save_file(tensors, path, metadata={"format": KEY, KEY: text, **metadata})


def leaves(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Every number, string or null of a JSON value, with the way to it."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(item, (*place, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from leaves(item, (*place, index))
    else:
        yield place, value


def containers(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every object and list inside."""
    if isinstance(value, dict | list):
        yield place
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from containers(item, (*place, key))


def put(value: Any, place: tuple[Any, ...], new: Any) -> Any:
    """A copy of the JSON value with something else at `place`."""
    value = json.loads(json.dumps(value))
    if not place:
        return new
    inner = value
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = new
    return value


def drop(value: Any, place: tuple[Any, ...]) -> Any:
    """A copy of the JSON value without what is at `place`."""
    value = json.loads(json.dumps(value))
    inner = value
    for key in place[:-1]:
        inner = inner[key]
    del inner[place[-1]]
    return value
