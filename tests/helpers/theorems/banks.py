"""Small models round one bank, and what every bank owes: runner, textbook, bill and file agree on it.

Surroundings: the bank alone; beside gates, which bring the sink; beside a table, which brings a grid; and after a layer
of both that writes what the bank reads, on reference tokens too (a little).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headsmith.core.certificate import PARTS, Certificate
from headsmith.core.errors import CertificateError
from headsmith.core.intervals import Box
from headsmith.export.file import Contents, read_file, write_file
from headsmith.kernel.core.arithmetic import EXP_ULPS
from headsmith.language.graph import Affine, Graph, Input, Term
from headsmith.run.numpy_runner import patterns, run
from headsmith.transformer.bill import bill
from headsmith.transformer.dense import DenseTransformer, dense
from headsmith.transformer.heads.sink import SinkBank
from headsmith.transformer.heads.stream import DATA, Link, Register
from headsmith.transformer.heads.table import TableBank
from headsmith.transformer.ir import Layer, Transformer, reserved_registers
from headsmith.verify import verify
from helpers.oracles.textbook import Floating, run_dense

ROOM = {"float64": 2e-13, "float32": 5e-5}
GRID_SIZE = 4


def stored(values: Any, dtype: str) -> Any:
    return np.asarray(values).astype(dtype).astype(np.float64)


def build(
    layers: list[list[Any]],
    tokens: int,
    dtype: str,
    *,
    inputs: int = 2,
    outputs: int = 2,
    grid: int = 0,
    positional: Mapping[str, Any] | None = None,
) -> Transformer:
    """The inputs live in the register x; the register out is read out as it stands."""
    positional = positional or {}
    own = [Register(name, np.shape(value)[1]) for name, value in positional.items()]
    sizes = {"x": inputs, "out": outputs, "side": 2}
    return Transformer(
        inputs=inputs,
        outputs=outputs,
        tokens=tokens,
        dtype=dtype,  # type: ignore[arg-type]
        registers=(*reserved_registers(tokens, grid), *own, *(Register(name, size) for name, size in sizes.items())),
        embedding=(Link("x", np.ones(inputs)),),
        initial={"side": np.array([0.5, -0.25])},
        layers=tuple(Layer(tuple(banks)) for banks in layers),
        readout=(Link("out", np.ones(outputs)),),
        readout_bias=np.zeros(outputs),
        positional=positional,
    )


def gates(target: str, inputs: int) -> SinkBank:
    """relu(x0 - 1/4) and relu(-x0)."""
    read = (Link("x", np.eye(2, inputs) * 0.0 + np.outer([1.0, -1.0], np.eye(1, inputs))), Link(DATA, [[-0.25]]))
    return SinkBank([-1, -1], [0, 1], read, (Link(target, np.eye(2)),), [8.0, 6.0], [4.0, 4.0], 60.0, 45.0)


def table(target: str, inputs: int, dtype: str, grid: int = GRID_SIZE) -> TableBank:
    """Some smooth function of x0."""
    axis = np.linspace(-1.5, 1.5, grid)[None]
    arrays = (stored(array, dtype) for array in (2.0 * axis[..., None], -(axis**2), np.cos(axis)[..., None]))
    write = (Link(target, [[0.5], [0.25]]),)
    return TableBank([-1], [0], (Link("x", np.eye(1, inputs)),), write, *arrays, 45.0, 60.0)


SURROUNDINGS = ["alone", "gates", "table", "deep"]


def surround(bank: Any, how: str, tokens: int, dtype: str, *, grid: int = 0, **more: Any) -> Transformer:
    """`bank` reads two inputs from x; it may bring a grid of its own."""
    inputs = more.get("inputs", 2)
    size = grid or GRID_SIZE
    match how:
        case "alone":
            return build([[bank]], tokens, dtype, grid=grid, **more)
        case "gates":
            return build([[gates("side", inputs), bank]], tokens, dtype, grid=grid, **more)
        case "table":
            return build([[bank, table("side", inputs, dtype, size)]], tokens, dtype, grid=size, **more)
        case "deep":
            before = [gates("x", inputs), table("x", inputs, dtype, size)]
            return build([before, [bank], [gates("side", inputs)]], tokens, dtype, grid=size, **more)
        case _:
            raise NotImplementedError(how)


# What every bank owes ------------------------------------------------------------------------------------------------


def agrees_with_textbook(model: Transformer, length: int, causal: bool, rng: Any) -> None:
    """The runner is plain dense attention in the model's dtype, summed in any order."""
    sequence = stored(rng.uniform(-1, 1, (length, model.inputs)), model.dtype)
    found = run(model, sequence[None], causal=causal)[0]
    assert found.dtype == model.dtype
    assert found.shape == (length, model.outputs)
    written = dense(model)
    for order in (None, rng):
        wanted = run_dense(written, sequence, Floating(model.dtype, order), causal=causal)
        assert np.abs(found - wanted).max() <= ROOM[model.dtype] * max(1.0, np.abs(wanted).max())
    # Closed forms leave out what silent tokens weigh, e^-32 or less.
    fused = run(model, sequence[None], causal=causal, fused=True)[0]
    assert np.abs(fused - found).max() <= ROOM[model.dtype] * max(1.0, np.abs(found).max())


def attention_is_real(model: Transformer, length: int, causal: bool, rng: Any) -> None:
    """Observed weights are the softmax of the textbook's scores in the first layer; reference tokens keep to the
    sink."""
    written = dense(model)
    sequence = stored(rng.uniform(-1, 1, (length, model.inputs)), model.dtype)
    found = patterns(model, sequence, causal=causal)
    stream = np.concatenate([written.references, sequence @ written.W_E + written.b_E + written.W_pos[:length]])
    scores = np.einsum("td,hdf,hef,se->hts", stream, written.layers[0].W_Q, written.layers[0].W_K, stream)
    scores += np.triu(np.full(scores.shape[1:], -np.inf), 1) if causal else 0.0
    weights = np.exp(scores - scores.max(axis=2, keepdims=True))
    room = 1e-12 if model.dtype == "float64" else 1e-4
    assert np.abs(found[0].weights - weights / weights.sum(axis=2, keepdims=True)).max() <= room
    for pattern in found:
        assert np.abs(pattern.weights.sum(axis=2) - 1.0).max() <= room
        if model.sink_tokens:
            assert pattern.weights[:, : model.reference_tokens, 0].min() >= 1.0 - room


def batches_and_chunks_change_nothing(model: Transformer, causal: bool, rng: Any, monkeypatch: Any) -> None:
    """The same numbers for one sequence, many, and a few scores at a time."""
    batch = stored(rng.uniform(-1, 1, (7, model.tokens, model.inputs)), model.dtype)
    together = run(model, batch, causal=causal)
    room = ROOM[model.dtype]
    for chunk in (1, 50):
        monkeypatch.setattr("headsmith.run.numpy_runner.CHUNK", chunk)
        assert np.abs(run(model, batch, causal=causal) - together).max() <= room
    assert np.abs(run(model, batch[3:4], causal=causal)[0] - together[3]).max() <= room
    assert run(model, batch[:0], causal=causal).shape == (0, model.tokens, model.outputs)


def bill_counts_the_matrices(model: Transformer) -> None:
    """As if every matrix were written out."""
    written, cost = dense(model), bill(model, 1.0)
    flags = np.count_nonzero(written.references) + np.count_nonzero(written.W_pos)
    all_matrices = matrices(written, model)
    assert cost.heads_per_layer == tuple(len(layer.W_Q) for layer in written.layers)
    assert cost.reference_tokens == len(written.references)
    assert cost.d_model == written.W_E.shape[1]
    assert cost.d_head == max(layer.W_Q.shape[2] for layer in written.layers)
    assert cost.parameters == sum(matrix.size for matrix in all_matrices) + flags
    assert cost.nonzeros == sum(np.count_nonzero(matrix) for matrix in all_matrices) + flags
    largest = max(np.abs(matrix).max() for matrix in [*all_matrices, written.W_pos])
    assert largest * (1 - 1e-12) <= cost.max_weight <= largest * (1 + 1e-12)


def matrices(written: DenseTransformer, model: Transformer) -> list[Any]:
    """Every matrix, head by head, without the zero columns that bring banks of one layer to the same width."""
    found = [written.W_E, written.b_E, written.W_U, written.b_U]
    for number, layer in enumerate(written.layers):
        first = 0
        for bank in model.layers[number].banks:
            alone = dense(replace(model, layers=(Layer((bank,)), *forced(model)))).layers[0]
            width, depth = alone.W_Q.shape[2], alone.W_V.shape[2]
            for head in range(first, first + bank.heads):
                assert not layer.W_Q[head, :, width:].any()
                assert not layer.W_V[head, :, depth:].any()
                found += [layer.W_Q[head, :, :width], layer.W_K[head, :, :width]]
                found += [layer.W_V[head, :, :depth], layer.W_O[head, :depth]]
            first += bank.heads
        found += [layer.W_gate, layer.W_up, layer.W_down] if layer.neurons else []
    return found


def forced(model: Transformer) -> tuple[Layer, ...]:
    """A second layer that brings the sink, if the model has one."""
    return (Layer((gates("side", model.inputs),)),) if model.sink_tokens else ()


def whatever(model: Transformer, names: Sequence[str]) -> Certificate:
    """Some certificate for inputs of these names in [-1, 1]: nobody proves it."""
    return Certificate(
        error=1.0,
        parts={name: 0.1 * (1 + index) for index, name in enumerate(PARTS)},
        outputs=(0.3,) * model.outputs,
        dtype=model.dtype,
        tokens=model.tokens,
        masks=("full", "causal"),
        max_score=1.0 / 3.0,
        exp_ulps=EXP_ULPS,
        blocks=0,
        domain=tuple((name, -1.0, 1.0) for name in names),
        max_weight=2.0,
    )


def contents(model: Transformer) -> Contents:
    """A file's contents with some target and whatever certificate."""
    size, outputs = model.inputs, model.outputs
    names = tuple(f"x{index}" for index in range(size))
    graph = Graph((Input(names), Affine((Term(0, np.ones((outputs, size))),), np.zeros(outputs))), 1)
    claimed = whatever(model, names)
    return Contents(graph, Box(names, np.full(size, -1.0), np.ones(size)), model, claimed)


def file_brings_it_back(model: Transformer, path: Path, rng: Any) -> None:
    """To the bit, and it runs to the bit as before."""
    kept = contents(model)
    write_file(path, kept)
    again = read_file(path)
    assert same(again, kept)
    x = rng.uniform(-1, 1, (3, model.tokens, model.inputs))
    assert np.array_equal(run(again.transformer, x), run(model, x))
    with pytest.raises(CertificateError):  # without a proof nothing is proved
        verify(path)


def same(left: Any, right: Any) -> bool:
    """Equal to the bit, however deep."""
    if is_dataclass(left):
        return type(left) is type(right) and all(
            same(getattr(left, field.name), getattr(right, field.name)) for field in fields(left)
        )
    if isinstance(left, np.ndarray):
        return left.dtype == right.dtype and left.shape == right.shape and left.tobytes() == right.tobytes()
    if isinstance(left, tuple):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    return type(left) is type(right) and left == right


@pytest.mark.parametrize("how", SURROUNDINGS)
class BankInAModel:
    """What every bank owes, in every surrounding. A subclass has its `bank`, by one of its `gains` or the usual one."""

    bank: Callable[..., Any]
    gains: tuple[float, ...] = (0.0, 400.0)

    @pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
    @pytest.mark.parametrize("dtype", ["float64", "float32"])
    @pytest.mark.parametrize("length", [1, 5])
    def test_runner_equals_textbook(self, how, causal, dtype, length, rng) -> None:
        agrees_with_textbook(surround(self.bank(), how, 5, dtype), length, causal, rng)

    @pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
    def test_attention_is_real(self, how, causal, rng) -> None:
        attention_is_real(surround(self.bank(), how, 5, "float64"), 4, causal, rng)

    @pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
    def test_chunks(self, how, causal, rng, monkeypatch) -> None:
        batches_and_chunks_change_nothing(surround(self.bank(), how, 3, "float64"), causal, rng, monkeypatch)

    def test_bill(self, how) -> None:
        for gain in self.gains:
            bill_counts_the_matrices(surround(self.bank(gain), how, 4, "float64"))

    @pytest.mark.parametrize("dtype", ["float64", "float32"])
    def test_file(self, how, dtype, tmp_path, rng) -> None:
        file_brings_it_back(surround(self.bank(), how, 4, dtype), tmp_path / "model", rng)


def with_bank(model: Transformer, kind: Any, **changes: Any) -> Transformer:
    """The model with its bank of that kind changed."""
    layers = [
        Layer(tuple(replace(bank, **changes) if isinstance(bank, kind) else bank for bank in layer.banks))
        for layer in model.layers
    ]
    return replace(model, layers=tuple(layers))
