"""Change one thing in a compiled model: any number, index, name or link, wherever it stands.

The walk is generic (frozen dataclasses, tuples, mappings, arrays), so it reaches whatever the representation holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np

Place = tuple[Any, ...]


def places(value: Any, place: Place = ()) -> Iterator[tuple[Place, Any]]:
    """Every array, number and string inside, with the way to it; tuples (of links, layers, registers, ...) are places
    too."""
    if is_dataclass(value):
        for field in fields(value):
            if field.init:
                yield from places(getattr(value, field.name), (*place, field.name))
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from places(item, (*place, key))
    elif isinstance(value, tuple):
        yield place, value
        for index, item in enumerate(value):
            yield from places(item, (*place, index))
    elif isinstance(value, np.ndarray | int | float | str):
        yield place, value


def put(value: Any, place: Place, new: Any) -> Any:
    """A copy of `value` with `new` at `place`. The constructors' own checks run."""
    if not place:
        return new
    key, rest = place[0], place[1:]
    if is_dataclass(value):
        return replace(value, **{key: put(getattr(value, key), rest, new)})
    if isinstance(value, Mapping):
        return {**value, key: put(value[key], rest, new)}
    return (*value[:key], put(value[key], rest, new), *value[key + 1 :])


def kind_of(place: Place) -> str:
    """The place without its numbers: mutations are spread evenly over the kinds of places, not over the size of
    arrays."""
    return ".".join(str(key) for key in place if not isinstance(key, int))


NUMBERS = {
    "next double": lambda v, rng: np.nextafter(v, np.inf),
    "one part in 1e12": lambda v, rng: v * (1 + 1e-12),
    "one part in a million": lambda v, rng: v * (1 - 1e-6),
    "a few percent": lambda v, rng: v * (1 + 0.1 * rng.normal()),
    "half as much again": lambda v, rng: v * 1.5,
    "thousandfold": lambda v, rng: v * 1e3,
    "thousandth": lambda v, rng: v * 1e-3,
    "huge": lambda v, rng: (v or 1.0) * 10.0 ** rng.uniform(20, 37),
    "beyond": lambda v, rng: (v or 1.0) * 1e300,
    "largest": lambda v, rng: float(rng.choice([3e38, 3e37, 1.7e308, 1e307])),
    "tiny": lambda v, rng: v * 10.0 ** -rng.uniform(20, 40),
    "sign": lambda v, rng: -v,
    "zero": lambda v, rng: 0.0,
    "plus one": lambda v, rng: v + 1.0,
    "small noise": lambda v, rng: v + 1e-3 * rng.normal(),
    "nan": lambda v, rng: np.nan,
}


def mutate(value: Any, rng: np.random.Generator, single: bool, names: list[str]) -> tuple[str, Any]:
    """One random change of an array, number, string or tuple; `single` rounds numbers to float32 most of the time."""
    if isinstance(value, np.ndarray):
        return _mutate_array(value, rng, single)
    if isinstance(value, bool | str):
        return "another name", str(rng.choice([*names, "nobody", "float64", "float32", "data"]))
    if isinstance(value, int):
        return "another integer", int(rng.choice([value + 1, value - 1, 0, -1, 2 * value, 10**6]))
    if isinstance(value, float):
        label = str(rng.choice(list(NUMBERS)))
        return label, float(_rounded(NUMBERS[label](value, rng), rng, single))
    return _mutate_tuple(value, rng)


def _mutate_array(value: Any, rng: np.random.Generator, single: bool) -> tuple[str, Any]:
    changed = value.copy()
    if not value.size:
        return "nothing to change", changed
    flat = changed.reshape(-1)
    here, there = int(rng.integers(flat.size)), int(rng.integers(flat.size))
    if rng.random() < 0.15:
        flat[here], flat[there] = flat[there], flat[here]
        return "swap", changed
    if value.dtype == np.int64:
        flat[here] = rng.choice([flat[here] + 1, flat[here] - 1, 0, -1, 10**9])
        return "another index", changed
    if value.ndim == 2 and rng.random() < 0.1:
        rows = rng.permutation(len(value))
        return "permuted rows", changed[rows]
    label = str(rng.choice(list(NUMBERS)))
    with np.errstate(all="ignore"):
        flat[here] = _rounded(NUMBERS[label](flat[here], rng), rng, single)
    return label, changed


def _mutate_tuple(value: tuple[Any, ...], rng: np.random.Generator) -> tuple[str, Any]:
    if not value:
        return "nothing to change", value
    here = int(rng.integers(len(value)))
    match int(rng.integers(3)):
        case 0:
            return "dropped", value[:here] + value[here + 1 :]
        case 1:
            return "doubled", (*value, value[here])
        case _:
            return "reordered", tuple(value[i] for i in rng.permutation(len(value)))


def _rounded(value: float, rng: np.random.Generator, single: bool) -> float:
    with np.errstate(all="ignore"):
        return float(np.float32(value)) if single and rng.random() < 0.9 else value


def spread_out(value: Any, rng: np.random.Generator, count: int) -> Iterator[tuple[Place, Any]]:
    """Random places, as many of each kind."""
    by_kind: dict[str, list[tuple[Place, Any]]] = {}
    for place, item in places(value):
        by_kind.setdefault(kind_of(place), []).append((place, item))
    kinds = sorted(by_kind)
    for _ in range(count):
        found = by_kind[kinds[int(rng.integers(len(kinds)))]]
        yield found[int(rng.integers(len(found)))]
