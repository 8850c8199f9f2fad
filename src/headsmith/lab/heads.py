"""One head kind as a whole model: the smallest transformers that average, take a maximum, move, attend, multiply and
clamp.

Each function returns a `Transformer` that runs on its own:

    >>> import numpy as np
    >>> from headsmith.lab import heads as head_models
    >>> from headsmith.run.numpy_runner import run
    >>> tokens = np.array([[[1.0], [5.0], [3.0]]])              # one sequence of three tokens, one input each
    >>> run(head_models.mean(3), tokens)[0, :, 0].tolist()
    [3.0, 3.0, 3.0]
    >>> run(head_models.move(3, 1), tokens)[0, :, 0].round(9).tolist()  # from the token before, if there is one
    [0.0, 1.0, 5.0]
    >>> run(head_models.boltzmann(3, 100.0), tokens)[0, :, 0].round(6).tolist()
    [5.0, 5.0, 5.0]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from headsmith.core.arrays import Array
from headsmith.core.errors import DomainError
from headsmith.core.rounding import PRECISIONS, Dtype, held
from headsmith.transformer.heads.attend import AttendBank
from headsmith.transformer.heads.boltzmann import BoltzmannBank
from headsmith.transformer.heads.gate import RISE, GateBank, gate_product_fit
from headsmith.transformer.heads.mean import MeanBank
from headsmith.transformer.heads.move import MoveBank, shift_address
from headsmith.transformer.heads.ramp import WIDTH, ramp_table
from headsmith.transformer.heads.scaling import split_scale
from headsmith.transformer.heads.stream import GRID, Link, Register
from headsmith.transformer.heads.table import TableBank
from headsmith.transformer.ir import Bank, Layer, Transformer, reserved_registers

__all__ = [
    "attend",
    "boltzmann",
    "gate_product",
    "mean",
    "move",
    "ramp",
]


def __dir__() -> list[str]:
    return __all__


GAINS: dict[str, float] = {"float64": 48.0, "float32": 32.0, "bfloat16": 16.0, "float16": 16.0}
"""How far silent tokens are kept below the others: e^{-gain} is well below the unit roundoff."""

ADDRESS, PLACE = "address", "place"
"""Positional registers: the token that each token fetches from; which of the data tokens a token is."""


def mean(tokens: int, inputs: int = 1, dtype: Dtype = "float64") -> Transformer:
    """The mean of every input over the tokens: one head, no reference token.

    >>> from headsmith.run.numpy_runner import run
    >>> run(mean(2, inputs=2), np.array([[[1.0, 10.0], [3.0, 30.0]]])).tolist()
    [[[2.0, 20.0], [2.0, 20.0]]]
    """
    bank = MeanBank(_unnamed(inputs), np.arange(inputs), _all(inputs), _out(inputs), 0.0, GAINS[dtype])
    return _model(inputs, inputs, tokens, dtype, bank)


def boltzmann(tokens: int, scale: float, inputs: int = 1, dtype: Dtype = "float64") -> Transformer:
    """The largest value of every input over the tokens (the smallest, if scale < 0): one head each.

    Guarantee: within W((tokens - 1) / e) / |scale|, and its rounding.

    >>> from headsmith.run.numpy_runner import run
    >>> run(boltzmann(3, -1000.0), np.array([[[1.0], [5.0], [3.0]]])).round(9).tolist()
    [[[1.0], [1.0], [1.0]]]
    """
    query, key = split_scale(np.full(inputs, abs(scale)), PRECISIONS[dtype])
    query = np.sign(scale) * query
    bank = BoltzmannBank(_unnamed(inputs), np.arange(inputs), _all(inputs), _out(inputs), query, key, 0.0, GAINS[dtype])
    return _model(inputs, inputs, tokens, dtype, bank)


def move(
    tokens: int, offset: int | None = None, address: Array | None = None, inputs: int = 1, dtype: Dtype = "float64"
) -> Transformer:
    """Every token gets the inputs of the token `offset` places before it (nothing, where there is none), or of the
    token that its row of `address` names: one head. As in hs.tokens.shift, values move on by `offset` places: token i
    gets what token i - offset holds, and a negative offset looks ahead.

    >>> from headsmith.transformer.heads.move import permutation_address
    >>> from headsmith.run.numpy_runner import run
    >>> tokens = np.array([[[1.0], [5.0], [3.0], [7.0]]])
    >>> run(move(4, 1), tokens)[0, :, 0].round(9).tolist()
    [0.0, 1.0, 5.0, 3.0]
    >>> run(move(4, -1), tokens)[0, :, 0].round(9).tolist()
    [5.0, 3.0, 7.0, 0.0]
    >>> run(move(4, address=permutation_address([1, 0, 3, 2])), tokens)[0, :, 0].tolist()
    [5.0, 1.0, 7.0, 3.0]
    """
    if offset is not None and (isinstance(offset, bool) or not isinstance(offset, int | np.integer)):
        raise DomainError(f"offset is {offset!r}; it must be an integer")
    if (offset is None) == (address is None):
        raise DomainError("a move needs an offset or a table of addresses, and not both")
    table = shift_address(tokens, offset) if offset is not None else address
    bank = MoveBank(
        _unnamed(inputs), np.arange(inputs), _all(inputs), _out(inputs), ADDRESS, GAINS[dtype], GAINS[dtype]
    )
    return _model(inputs, inputs, tokens, dtype, bank, positional={ADDRESS: table})


def attend(tokens: int, W_Q: Any, W_K: Any, W_V: Any, dtype: Dtype = "float64") -> Transformer:
    """softmax(X W_Q (X W_K)^T) X W_V: one head with given matrices (inputs, ...), no reference token.

    >>> from headsmith.run.numpy_runner import run
    >>> each = np.eye(2)
    >>> run(attend(2, 9.0 * each, 9.0 * each, each), np.array([[[1.0, 0.0], [0.0, 1.0]]])).round(9).tolist()
    [[[1.0, 0.0], [0.0, 1.0]]]
    """
    query, key, value = (_stored(np.atleast_2d(matrix).T, dtype) for matrix in (W_Q, W_K, W_V))
    if len(query) != len(key):
        raise DomainError(f"queries of {len(query)} numbers and keys of {len(key)}")
    (width, inputs), outputs = query.shape, len(value)
    read = (Link("x", np.vstack([query, key, value])),)
    bank = AttendBank(_unnamed(outputs), np.arange(outputs), read, _out(outputs), width, 0.0, GAINS[dtype])
    return _model(inputs, outputs, tokens, dtype, bank)


def gate_product(
    low: float = -1.0,
    high: float = 1.0,
    grid: int = 4,
    *,
    tokens: int = 1,
    rise: float = RISE,
    dtype: Dtype = "float64",
) -> Transformer:
    """x y for low <= x <= high and any y, token by token: one head, `grid` + 1 reference tokens, error in proportion
    to |y|.

    >>> from headsmith.run.numpy_runner import run
    >>> run(gate_product(), np.array([[[0.5, 3.0]]])).round(5).tolist()
    [[[1.5]]]
    """
    fit, gain = gate_product_fit(low, high, grid, rise), GAINS[dtype]
    slope, offset = _stored(fit.slope[None], dtype), _stored(fit.offset[None], dtype)
    bank = GateBank(_unnamed(1), np.arange(1), _all(2), _out(1), slope, offset, gain, gain)
    readout = (
        Link("out", _stored([[1.0 / fit.incline]], dtype)),
        Link("x", _stored([[0.0, -fit.intercept / fit.incline]], dtype)),
    )
    return _model(2, 1, tokens, dtype, bank, grid=grid, readout=readout)


def ramp(
    low: float,
    high: float,
    grid: int,
    heads: int = 1,
    *,
    tokens: int | None = None,
    width: float = WIDTH,
    dtype: Dtype = "float64",
) -> Transformer:
    """clamp(x; low, high), token by token, by `heads` heads on `grid` reference tokens; without `tokens`, the grid is
    the data tokens themselves, and every sequence has exactly `grid` of them.

    Guarantee: within heads.ramp.ramp_error(grid, width, heads) (high - low) / ((grid - 1) heads), leak and rounding.

    >>> from headsmith.run.numpy_runner import run
    >>> run(ramp(0.0, 1.0, grid=101, tokens=1), np.array([[[2.0]], [[-1.0]]])).round(6).tolist()
    [[[1.0]], [[0.0]]]
    """
    slope, offset, values = (_stored(array, dtype) for array in ramp_table(low, high, grid, heads, width))
    # In the middle of an even grid the best score is -width / 4.
    gain, own, place = GAINS[dtype] + float(np.ceil(width / 4.0)), tokens is None, PLACE if tokens is None else GRID
    read, write = (Link("x", np.ones((heads, 1))),), (Link("out", np.ones((1, heads))),)
    bank = TableBank(_unnamed(heads), np.arange(heads), read, write, slope, offset, values, gain, gain, grid=place)
    if own:
        return _model(1, 1, grid, dtype, bank, positional={PLACE: np.eye(grid)})
    return _model(1, 1, tokens or 1, dtype, bank, grid=grid)


def _model(
    inputs: int,
    outputs: int,
    tokens: int,
    dtype: Dtype,
    bank: Bank,
    *,
    grid: int = 0,
    positional: Mapping[str, Any] | None = None,
    readout: Sequence[Link] | None = None,
) -> Transformer:
    """One bank that reads the inputs from the register x and writes the register out, which is read out."""
    for name, number in (("tokens", tokens), ("inputs", inputs), ("outputs", outputs)):
        if isinstance(number, bool) or not isinstance(number, int | np.integer) or number < 1:
            raise DomainError(f"{name} is {number!r}; it must be a positive integer")
    positional = positional or {}
    own = tuple(Register(name, np.shape(value)[1]) for name, value in positional.items())
    return Transformer(
        inputs=inputs,
        outputs=outputs,
        tokens=tokens,
        dtype=dtype,
        registers=(*reserved_registers(tokens, grid), *own, Register("x", inputs), Register("out", outputs)),
        embedding=(Link("x", np.ones(inputs)),),
        initial={},
        layers=(Layer((bank,)),),
        readout=tuple(readout) if readout is not None else (Link("out", np.ones(outputs)),),
        readout_bias=np.zeros(outputs),
        positional=positional,
    )


def _unnamed(outputs: int) -> Any:
    """Outputs that stand for no node of a target's circuit."""
    return np.full(outputs, -1)


def _all(inputs: int) -> tuple[Link, ...]:
    return (Link("x", np.ones(inputs)),)


def _out(outputs: int) -> tuple[Link, ...]:
    return (Link("out", np.ones(outputs)),)


def _stored(values: Any, dtype: Dtype) -> Array:
    """Rounded to the dtype, kept as float64."""
    return np.asarray(held(values, dtype), dtype=np.float64)
