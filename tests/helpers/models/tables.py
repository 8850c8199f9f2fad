"""Models of table heads, built by hand: alone, beside gates, in towers; each with its formula in mpmath."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import mpmath
import numpy as np

from headsmith.transformer.heads.sink import SinkBank
from headsmith.transformer.heads.stream import DATA, Link, Register
from headsmith.transformer.heads.table import (
    TableBank,
)
from headsmith.transformer.ir import Layer, Transformer, reserved_registers

DIGITS = 40
ROOM = {"float64": 1e-12, "float32": 2e-4}
GAIN = 45.0
GRID_SIZE = 8


# ---- models by hand ------------------------------------------------------------------------------------------------


def stored(values: Any, dtype: str) -> Any:
    return np.asarray(values).astype(dtype).astype(np.float64)


def gaussian_table(axes: list[Any], functions: list[Callable[..., Any]], dtype: str) -> tuple[Any, Any, Any]:
    """(slope, offset, values) of Gaussian bumps on the grid axes[0] x axes[1] x ..., the values by least squares.

    |s - c|^2 = |s|^2 - 2 c . s + |c|^2, and what is common to all tokens does not count: slope = a c, offset =
    -a |c|^2 / 2.
    """
    centres = np.array(list(itertools.product(*axes)))
    sharpness = 0.7 / float(axes[0][1] - axes[0][0]) ** 2
    slope = stored(sharpness * centres, dtype)
    offset = stored(-0.5 * sharpness * (centres**2).sum(axis=1), dtype)
    samples = np.array(list(itertools.product(*[np.linspace(-1, 1, 41 if len(axes) == 1 else 13)] * len(axes))))
    weights = np.exp(samples @ slope.T + offset)
    weights /= weights.sum(axis=1, keepdims=True)
    wanted = np.stack([function(*samples.T) for function in functions], axis=1)
    return slope, offset, stored(np.linalg.lstsq(weights, wanted, rcond=None)[0], dtype)


def table_bank(tables: list[tuple[Any, Any, Any]], read: tuple[Link, ...], write: tuple[Link, ...]) -> TableBank:
    slope, offset, values = (np.stack(arrays) for arrays in zip(*tables, strict=True))
    outputs = len(values) * values.shape[2]
    return TableBank(np.full(outputs, -1), np.arange(outputs), read, write, slope, offset, values, GAIN, 60.0)


def sink_bank(read: tuple[Link, ...], write: tuple[Link, ...], scale: list[float]) -> SinkBank:
    heads = len(scale)
    return SinkBank(np.full(heads, -1), np.arange(heads), read, write, scale, np.full(heads, 4.0), 50.0, 45.0)


def transformer(sizes: Mapping[str, int], layers: list[list[Any]], tokens: int, dtype: str, **more: Any) -> Transformer:
    """The inputs live in the register x; every register `out` is read out as it stands, plus 0.25."""
    grid = max((bank.offset.shape[1] for banks in layers for bank in banks if isinstance(bank, TableBank)), default=0)
    return Transformer(
        inputs=sizes["x"],
        outputs=sizes["out"],
        tokens=tokens,
        dtype=dtype,  # type: ignore[arg-type]
        registers=(*reserved_registers(tokens, grid), *(Register(name, size) for name, size in sizes.items())),
        embedding=(Link("x", np.ones(sizes["x"])),),
        initial=more.get("initial", {}),
        layers=tuple(Layer(tuple(banks)) for banks in layers),
        readout=(Link("out", np.ones(sizes["out"])),),
        readout_bias=np.full(sizes["out"], 0.25),
    )


def softmax_formula(bank: TableBank, head: int, arguments: list[Any], silent: int = 0) -> list[Any]:
    """g(s), one number for each column, with `silent` tokens of score and value zero in the crowd."""
    powers = []
    for slope, offset in zip(bank.slope[head].tolist(), bank.offset[head].tolist(), strict=True):
        linear = mpmath.fsum(mpmath.mpf(a) * s for a, s in zip(slope, arguments, strict=True))
        powers.append(mpmath.exp(linear + mpmath.mpf(offset) + mpmath.mpf(bank.gain)))
    mass = mpmath.fsum(powers) + silent
    return [
        mpmath.fsum(p * mpmath.mpf(v) for p, v in zip(powers, column, strict=True)) / mass
        for column in bank.values[head].T.tolist()
    ]


def gate_formula(bank: SinkBank, head: int, z: Any) -> Any:
    return z / (1 + mpmath.exp(-mpmath.mpf(float(bank.query_scale[head] * bank.key_scale[head])) * z))


@dataclass(frozen=True, eq=False)
class Case:
    """A model and its mathematics: the outputs for one token, without leak and rounding. `shapes` are the plain
    functions that the outputs stand for."""

    model: Transformer
    formula: Callable[[list[Any]], list[Any]]
    shapes: list[Callable[..., Any]]


AXIS = np.linspace(-1.3, 1.3, GRID_SIZE)


@cache
def square(tokens: int, dtype: str) -> Case:
    bank = table_bank([gaussian_table([AXIS], [np.square], dtype)], (Link("x", [[1.0]]),), (Link("out", [[1.0]]),))
    model = transformer({"x": 1, "out": 1}, [[bank]], tokens, dtype)
    return Case(model, lambda x: [softmax_formula(bank, 0, x)[0] + 0.25], [lambda x: x * x + 0.25])


@cache
def columns(tokens: int, dtype: str) -> Case:
    """Two heads of two columns each, of the forms x and (x + data) / 2, written by two links; number 3 is not used."""
    tables = [
        gaussian_table([AXIS], [np.square, np.exp], dtype),
        gaussian_table([AXIS], [np.cos, np.sin], dtype),
    ]
    write = (Link("out", [1.0, 1.0]), Link("out", [[0.0], [0.75]], 2))
    bank = table_bank(tables, (Link("x", [[1.0], [0.5]]), Link(DATA, [[0.5]], 1)), write)
    model = transformer({"x": 1, "out": 2}, [[bank]], tokens, dtype)

    def formula(x: list[Any]) -> list[Any]:
        first, second = softmax_formula(bank, 0, x), softmax_formula(bank, 1, [(x[0] + 1) / 2])
        return [first[0] + 0.25, first[1] + 0.75 * second[0] + 0.25]

    return Case(model, formula, [lambda x: x * x + 0.25, lambda x: np.exp(x) + 0.75 * np.cos((x + 1) / 2) + 0.25])


@cache
def product(tokens: int, dtype: str) -> Case:
    """Two heads of two arguments each: x y, and a function that is not symmetric, of ((x + y)/2, (x - y)/2)."""
    axis = np.linspace(-1.4, 1.4, 4)
    tables = [
        gaussian_table([axis, axis], [np.multiply], dtype),
        gaussian_table([axis, axis], [lambda s, t: s - 0.5 * t * t], dtype),
    ]
    read = (Link("x", [[1.0, 0.0], [0.0, 1.0], [0.5, 0.5], [0.5, -0.5]]),)
    bank = table_bank(tables, read, (Link("out", [1.0, 1.0]),))
    model = transformer({"x": 2, "out": 2}, [[bank]], tokens, dtype)

    def formula(x: list[Any]) -> list[Any]:
        turned = [(x[0] + x[1]) / 2, (x[0] - x[1]) / 2]
        return [softmax_formula(bank, 0, x)[0] + 0.25, softmax_formula(bank, 1, turned)[0] + 0.25]

    return Case(model, formula, [lambda x, y: x * y + 0.25, lambda x, y: (x + y) / 2 - (x - y) ** 2 / 8 + 0.25])


@cache
def tower(tokens: int, dtype: str) -> Case:
    """x^4 = (x^2)^2, tables alone: nobody looks after the grid's own rows, and nobody reads them."""
    table = gaussian_table([AXIS], [np.square], dtype)
    first = table_bank([table], (Link("x", [[1.0]]),), (Link("middle", [[1.0]]),))
    second = table_bank([table], (Link("middle", [[1.0]]),), (Link("out", [[1.0]]),))
    model = transformer({"x": 1, "middle": 1, "out": 1}, [[first], [second]], tokens, dtype)

    def formula(x: list[Any]) -> list[Any]:
        return [softmax_formula(second, 0, softmax_formula(first, 0, x))[0] + 0.25]

    return Case(model, formula, [lambda x: x**4 + 0.25])


@cache
def beside(tokens: int, dtype: str, *, gate_first: bool = False) -> Case:
    """x^2 and relu(x - 1/4), relu(-x) in one layer."""
    table = gaussian_table([AXIS], [np.square], dtype)
    squares = table_bank([table], (Link("x", [[1.0]]),), (Link("out", [[1.0], [0.0]]),))
    read, write = (Link("x", [[1.0], [-1.0]]), Link(DATA, [[-0.25]])), (Link("out", [[0.0, 0.5], [1.0, 1.0]]),)
    gates = sink_bank(read, write, [8.0, 6.0])
    banks = [gates, squares] if gate_first else [squares, gates]
    model = transformer({"x": 1, "out": 2}, [banks], tokens, dtype)

    def formula(x: list[Any]) -> list[Any]:
        up, down = gate_formula(gates, 0, x[0] - mpmath.mpf("0.25")), gate_formula(gates, 1, -x[0])
        return [softmax_formula(squares, 0, x)[0] + down / 2 + 0.25, up + down + 0.25]

    shapes = [
        lambda x: x * x + np.maximum(-x, 0) / 2 + 0.25,
        lambda x: np.maximum(x - 0.25, 0) + np.maximum(-x, 0) + 0.25,
    ]
    return Case(model, formula, shapes)


@cache
def gate_beside(tokens: int, dtype: str) -> Case:
    return beside(tokens, dtype, gate_first=True)


@cache
def mixed(tokens: int, dtype: str) -> Case:
    """relu and cos of x in the first layer; then relu(cos - r) beside the square of (r + cos) / 2, which starts
    with an initial value."""
    cosines = table_bank(
        [gaussian_table([AXIS], [np.cos], dtype)], (Link("x", [[1.0]]),), (Link("middle", [[0.0], [1.0]]),)
    )
    early = sink_bank((Link("x", [[1.0]]),), (Link("middle", [[1.0], [0.0]]),), [8.0])
    squares = table_bank(
        [gaussian_table([AXIS], [np.square], dtype)], (Link("middle", [[0.5, 0.5]]),), (Link("out", [[1.0], [0.0]]),)
    )
    late = sink_bank((Link("middle", [[-1.0, 1.0]]),), (Link("out", [[0.0], [1.0]]),), [7.0])
    sizes = {"x": 1, "middle": 2, "out": 2}
    start = {"middle": np.array([0.125, 0.0])}
    model = transformer(sizes, [[cosines, early], [late, squares]], tokens, dtype, initial=start)

    def formula(x: list[Any]) -> list[Any]:
        r, c = gate_formula(early, 0, x[0]) + mpmath.mpf("0.125"), softmax_formula(cosines, 0, x)[0]
        return [softmax_formula(squares, 0, [(r + c) / 2])[0] + 0.25, gate_formula(late, 0, c - r) + 0.25]

    shapes = [
        lambda x: ((np.maximum(x, 0) + 0.125 + np.cos(x)) / 2) ** 2 + 0.25,
        lambda x: np.maximum(np.cos(x) - np.maximum(x, 0) - 0.125, 0) + 0.25,
    ]
    return Case(model, formula, shapes)


BUILDERS = [square, columns, product, tower, beside, gate_beside, mixed]
