"""Stages that were done already: an append-only file of JSON lines, one for each stage, by a key of all that it depends
on. A run that was stopped goes on where it was; another version of torch, or other settings, find nothing."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from headsmith.core.arrays import Array
from headsmith.core.errors import FileFormatError
from headsmith.lab.training.students import torch_module

Arrays = dict[str, Array]


@dataclass(frozen=True)
class Journal:
    """Results of stages by key, in a file; without a path nothing is remembered. `about` is what every stage depends
    on."""

    path: str | None
    about: str

    def once(self, stage: str, make: Callable[[], Arrays]) -> Arrays:
        """What `make` returns, and the seconds of processor that it took, computed at most once for this key."""
        key = hashlib.sha256(f"{self.about}\n{stage}".encode()).hexdigest()
        known = self._known(key)
        if known is not None:
            return known
        began = time.process_time()
        found = make() | {"seconds": np.array(time.process_time() - began)}
        if self.path is not None:
            line = json.dumps(
                {"key": key, "stage": stage, "arrays": {name: _text(each) for name, each in found.items()}}
            )
            with open(self.path, "ab") as file:
                file.write(line.encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())
        return found

    def _known(self, key: str) -> Arrays | None:
        if self.path is None or not os.path.exists(self.path):
            return None
        with open(self.path, "rb+") as file:
            *lines, begun = file.read().split(b"\n")
            # A line without its end was being written when a run was stopped.
            file.truncate(file.tell() - len(begun))
        for number, line in enumerate(lines):
            try:
                entry = json.loads(line)
                if entry["key"] == key:
                    return {name: _array(each) for name, each in entry["arrays"].items()}
            except (ValueError, KeyError, TypeError) as problem:
                raise FileFormatError(f"{self.path}, line {number + 1}: no line of a journal: {problem!r}") from None
        return None


def environment() -> Mapping[str, str]:
    """What bits depend on beside settings: they are compared on one machine only."""
    import headsmith

    torch = torch_module()
    return {
        "headsmith": headsmith.__version__,
        "torch": torch.__version__,
        "cpu": torch.backends.cpu.get_cpu_capability(),
    }


def digest(array: Any) -> str:
    """SHA-256 of an array's bytes."""
    return hashlib.sha256(np.asarray(array).tobytes()).hexdigest()


def _text(array: Array) -> dict[str, Any]:
    array = np.asarray(array, dtype=np.float64)
    return {"shape": list(array.shape), "float64": base64.b64encode(array.tobytes()).decode()}


def _array(text: Mapping[str, Any]) -> Array:
    return np.frombuffer(base64.b64decode(text["float64"], validate=True)).reshape(text["shape"]).copy()
