"""Files with one thing changed, for both kernels: numbers of tensors, and what stands in the header."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from helpers.attacks.saved import leaves

NUMBERS = ("error", "max_score", "max_weight", "outputs", "parts")
IGNORED = ("views", "bends", "alike", "steps", "powers")  # which the small kernel does not read


def unclaimed(header: Any) -> Any:
    """A header that claims nothing much, so that its own numbers stop no kernel, without named tightenings."""
    header = copy.deepcopy(header)
    header["proof"] |= {name: [] for name in IGNORED if name in header["proof"]}
    claim = header["claim"]
    claim |= {"error": 1e300, "max_score": 1e300, "max_weight": 1e300, "outputs": [1e300] * len(claim["outputs"])}
    claim["parts"] = dict.fromkeys(claim["parts"], 1e300)
    return header


def changed(header: Any, tensors: dict[str, Any], random: np.random.Generator) -> tuple[Any, dict[str, Any], str]:
    """One change: a number of a tensor, a value of the header, or a tensor's name."""
    header, tensors = copy.deepcopy(header), dict(tensors)
    if random.random() < 0.5:
        name = sorted(tensors)[random.integers(len(tensors))]
        values = tensors[name].copy()
        if not values.size:
            return header, tensors, "nothing"
        place = random.integers(values.size)
        old = values.flat[place]
        if values.dtype.kind == "i":
            values.flat[place] = old + random.choice([-1, 1, 2])
        else:
            factor = random.choice([0.0, -1.0, 0.5, 2.0, 1e-3, 1e3, 1 + 1e-3, 1 - 1e-6])
            values.flat[place] = old * factor + random.choice([0, 0, 1e-3, 1])
        tensors[name] = values
        return header, tensors, f"{name}[{place}]: {old} -> {values.flat[place]}"
    known = [(place, old) for place, old in leaves(header) if place[0] not in ("extensions",) and not skipped(place)]
    place, old = known[random.integers(len(known))]
    new: Any = old
    if isinstance(old, bool):
        new = not old
    elif isinstance(old, int):
        new = old + int(random.choice([-1, 1, 2, -2]))
    elif isinstance(old, float):
        new = float(random.choice([0.0, old * 2, old / 2, -old, old + 1, old * 1.001]))
    elif isinstance(old, str):
        others = [text for other, text in known if isinstance(text, str) and other[-1] == place[-1]]
        new = others[random.integers(len(others))]
    else:
        new = 1.0
    at = header
    for key in place[:-1]:
        at = at[key]
    at[place[-1]] = new
    return header, tensors, f"{place}: {str(old)[:40]} -> {str(new)[:40]}"


def skipped(place: tuple[Any, ...]) -> bool:
    return (place[0] == "proof" and place[1] in IGNORED) or (place[0] == "claim" and place[1] in NUMBERS)
