"""Change one thing in the contents of a file: an entry of a tensor, a bit, a field of the header, the order of heads.

A change is a label, a header and tensors; what was given stays as it was. `one_change` picks at random, as often one
kind of place as another; `every_place` visits each tensor and each field of the header in turn.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

Header = dict[str, Any]
Tensors = dict[str, Any]
Path = tuple[str | int, ...]
Random = np.random.Generator

IGNORED = ("claim", "version", "run", "extensions")
"""Parts of the header that say nothing about what the model computes."""


@dataclass(frozen=True, eq=False)
class Change:
    """The contents of a file after one change."""

    label: str
    header: Header
    tensors: Tensors


ENTRIES: dict[str, Callable[[float, Random], float]] = {
    "next number": lambda v, rng: float(np.nextafter(v, np.inf)),
    "one part in a million": lambda v, rng: v * (1.0 - 1e-6),
    "a tenth more or less": lambda v, rng: v * (1.0 + 0.1 * rng.normal()),
    "thousandfold": lambda v, rng: v * 1e3,
    "thousandth": lambda v, rng: v * 1e-3,
    "huge": lambda v, rng: (v or 1.0) * 10.0 ** rng.uniform(20.0, 37.0),
    "beyond": lambda v, rng: (v or 1.0) * 1e300,
    "tiny": lambda v, rng: v * 10.0 ** -rng.uniform(20.0, 40.0),
    "subnormal": lambda v, rng: 5e-324 if rng.random() < 0.5 else 1e-40,
    "sign": lambda v, rng: -v,
    "zero": lambda v, rng: 0.0,
    "plus one": lambda v, rng: v + 1.0,
    "a little noise": lambda v, rng: v + 1e-3 * rng.normal(),
    "not a number": lambda v, rng: float("nan"),
}


def fields_of(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every field of a header that may be changed, objects aside, with the way to it."""
    if isinstance(value, dict):
        for key, item in value.items():
            if path or key not in IGNORED:
                yield from fields_of(item, (*path, key))
        return
    yield path, value
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from fields_of(item, (*path, index))


def kind_of(path: Path) -> str:
    """A path without its numbers."""
    return ".".join(str(key) for key in path if not isinstance(key, int))


def one_change(header: Header, tensors: Tensors, rng: Random) -> Change:
    """Any change: of a tensor, of a field, or of the order of things."""
    sort = rng.random()
    if sort < 0.45:
        names = sorted(tensors)
        return changed_tensor(header, tensors, str(rng.choice(names)), rng)
    if sort < 0.8:
        by_kind: dict[str, list[tuple[Path, Any]]] = {}
        for path, value in fields_of(header):
            by_kind.setdefault(kind_of(path), []).append((path, value))
        found = by_kind[str(rng.choice(sorted(by_kind)))]
        return changed_field(header, tensors, *found[int(rng.integers(len(found)))], rng)
    return reordered(header, tensors, rng)


# Tensors --------------------------------------------------------------------------------------------------------------


def changed_tensor(header: Header, tensors: Tensors, name: str, rng: Random) -> Change:
    """One entry, one bit, two entries swapped, or rows in another order."""
    values = tensors[name].copy()
    label = _change_array(values, rng, header["transformer"]["dtype"] != "float64")
    return Change(f"{name}: {label}", header, {**tensors, name: values})


def _change_array(values: Any, rng: Random, single: bool) -> str:
    flat = values.reshape(-1)
    if not flat.size:
        return "nothing to change"
    here, there, sort = int(rng.integers(flat.size)), int(rng.integers(flat.size)), rng.random()
    if sort < 0.12:
        flat[here], flat[there] = flat[there], flat[here]
        return f"entries {here} and {there} swapped"
    if sort < 0.2:
        axis = int(rng.integers(values.ndim))
        values[...] = np.take(values, rng.permutation(values.shape[axis]), axis=axis)
        return f"permuted along axis {axis}"
    if values.dtype == np.int64:
        index = int(flat[here])
        flat[here] = int(rng.choice([index + 1, index - 1, 0, -1, 10**9]))
        return f"entry {here} from {index} to {flat[here]}"
    if sort < 0.4:
        bits = flat.view(np.uint64 if values.dtype == np.float64 else np.uint32)
        bit = int(rng.integers(8 * values.dtype.itemsize))
        bits[here] ^= bits.dtype.type(1 << bit)
        return f"bit {bit} of entry {here}"
    word = str(rng.choice(sorted(ENTRIES)))
    before = float(flat[here])
    with np.errstate(all="ignore"):
        after = ENTRIES[word](before, rng)
        flat[here] = np.float32(after) if single and rng.random() < 0.8 else after
    return f"entry {here} {word}: {before!r} to {flat[here]!r}"


# Fields ---------------------------------------------------------------------------------------------------------------


def changed_field(header: Header, tensors: Tensors, path: Path, value: Any, rng: Random) -> Change:
    """One field of the header has another value."""
    after = _other(value, rng, header)
    changed = copy.deepcopy(header)
    holder: Any = changed
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = after
    shown = ".".join(map(str, path))
    return Change(f"{shown}: {_shown(value)} to {_shown(after)}", changed, tensors)


def _other(value: Any, rng: Random, header: Header) -> Any:
    if isinstance(value, bool):
        return not value
    if value is None:
        return float(rng.choice([0.0, 1e-3, 1e3]))
    if isinstance(value, int):
        return int(rng.choice([value + 1, value - 1, 0, 2 * value, 1000]))
    if isinstance(value, float):
        word = str(rng.choice(sorted(ENTRIES)))
        return None if rng.random() < 0.1 else ENTRIES[word](value, rng)
    if isinstance(value, str):
        texts = sorted({each for _, each in fields_of(header) if isinstance(each, str)})
        return str(rng.choice([*texts, "nobody"]))
    items = list(value)
    if not items:
        return [0]
    here = int(rng.integers(len(items)))
    match int(rng.integers(4)):
        case 0:
            return items[:here] + items[here + 1 :]
        case 1:
            return [*items, copy.deepcopy(items[here])]
        case 2:
            return [items[i] for i in rng.permutation(len(items))]
        case _:
            return items[:here]


def _shown(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."


# Orders ---------------------------------------------------------------------------------------------------------------


def reordered(header: Header, tensors: Tensors, rng: Random) -> Change:
    """Layers, banks, heads, roles or registers in another order."""
    order = str(rng.choice(sorted(ORDERS)))
    return ORDERS[order](order, header, tensors, rng)


def _two_layers(order: str, header: Header, tensors: Tensors, rng: Random) -> Change:
    """Two layers change places; what the proof says of them goes with them, or stays."""
    changed = copy.deepcopy(header)
    layers, roles = changed["transformer"]["layers"], changed["proof"]["roles"]
    if layers:
        i, j = (int(rng.integers(len(layers))) for _ in range(2))
        layers[i], layers[j] = layers[j], layers[i]
        if rng.random() < 0.7:
            roles[i], roles[j] = roles[j], roles[i]
        order = f"{order} {i} and {j}"
    return Change(order, changed, tensors)


def _bank_moved(order: str, header: Header, tensors: Tensors, rng: Random) -> Change:
    """A bank, with its role, goes to another layer, or to both."""
    changed = copy.deepcopy(header)
    layers, roles = changed["transformer"]["layers"], changed["proof"]["roles"]
    full = [place for place, layer in enumerate(layers) if layer]
    if full:
        i, j = int(rng.choice(full)), int(rng.integers(len(layers)))
        place, keep = int(rng.integers(len(layers[i]))), rng.random() < 0.3
        bank, role = layers[i][place], roles[i][place]
        if not keep:
            del layers[i][place], roles[i][place]
        layers[j].append(copy.deepcopy(bank))
        roles[j].append(copy.deepcopy(role))
        order = f"{order}: bank {place} of layer {i} {'also ' if keep else ''}in layer {j}"
    return Change(order, changed, tensors)


def _two_heads(order: str, header: Header, tensors: Tensors, rng: Random) -> Change:
    """Two entries of every array of a bank change places: heads that were given other roles, or other weights."""
    banks = [bank for layer in header["transformer"]["layers"] for bank in layer]
    changed = dict(tensors)
    if banks:
        bank = banks[int(rng.integers(len(banks)))]
        names = [value for value in bank.values() if isinstance(value, str) and value in tensors]
        read = [each["weights"] for each in bank["read"]] if rng.random() < 0.5 else []
        names += [each if isinstance(each, str) else each["values"] for each in read]
        count = max((len(tensors[name]) for name in names), default=0)
        i, j = (int(rng.integers(max(count, 1))) for _ in range(2))
        for name in names:
            if max(i, j) < len(tensors[name]):
                values = changed[name].copy()
                values[[i, j]] = values[[j, i]]
                changed[name] = values
        order = f"{order} {i} and {j}"
    return Change(order, header, changed)


def _two_names(order: str, header: Header, tensors: Tensors, rng: Random) -> Change:
    """Two tensors change names."""
    first, second = (str(name) for name in rng.choice(sorted(tensors), 2))
    return Change(f"{order} {first} and {second}", header, {**tensors, first: tensors[second], second: tensors[first]})


def _smaller_margins(order: str, header: Header, tensors: Tensors, rng: Random) -> Change:
    """All margins of the proof are other ones."""
    changed = copy.deepcopy(header)
    factor = float(rng.choice([0.0, 0.5, 2.0, 1e3, 1e9]))
    for name in ("regions", "tables", "margins"):
        for each in changed["proof"].get(name, []):
            if isinstance(each, dict) and isinstance(each.get("margin"), float):
                each["margin"] *= factor
    return Change(f"{order} {factor}", changed, tensors)


Order = Callable[[str, Header, Tensors, Random], Change]
ORDERS: dict[str, Order] = {
    "layers swapped": _two_layers,
    "a bank moved": _bank_moved,
    "heads swapped": _two_heads,
    "tensors swapped": _two_names,
    "margins times": _smaller_margins,
}
