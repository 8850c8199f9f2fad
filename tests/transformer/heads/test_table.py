"""The table head: a softmax over constant reference tokens is its formula

    g(s) = sum_k softmax_k(slope_k . s + offset_k) values_k,

alone or beside gates; data tokens and the sink only shrink it; its lemmas hold and are nearly attained.

The models are built by hand: the oracle is mpmath on the stored numbers, and a textbook transformer in plain loops.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import mpmath
import numpy as np
import pytest
from helpers.attacks import saved
from helpers.attacks.proving import proven
from helpers.models.tables import (
    BUILDERS,
    DIGITS,
    GRID_SIZE,
    ROOM,
    Case,
    beside,
    columns,
    gate_formula,
    mixed,
    product,
    softmax_formula,
    square,
    stored,
    tower,
)
from helpers.oracles.textbook import Floating, run_dense
from helpers.theorems.banks import same, whatever

import headsmith as hs
from headsmith.core.errors import CertificateError, HeadsmithError
from headsmith.core.intervals import Box
from headsmith.export.file import Contents, read_file, write_file
from headsmith.language.graph import Affine, Function, Graph, Input, Relu, Term
from headsmith.prove.prove import Wanted, certified, drafted
from headsmith.run.numpy_runner import patterns, run
from headsmith.transformer.bill import bill
from headsmith.transformer.dense import DenseTransformer, dense
from headsmith.transformer.heads.sink import SinkBank
from headsmith.transformer.heads.stream import GRID, Link, Register
from headsmith.transformer.heads.table import TableBank
from headsmith.transformer.ir import Layer, Transformer, layout, reserved_registers

TABLES_ALONE = [square, columns, product, tower]
each_builder = pytest.mark.parametrize("build", BUILDERS, ids=lambda build: build.__name__)
each_dtype = pytest.mark.parametrize("dtype", ["float64", "float32"])
each_mask = pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
each_length = pytest.mark.parametrize("tokens", [1, 3])


# ---- the theorem: the model is its formula --------------------------------------------------------------------------


@each_builder
@each_length
@each_mask
@each_dtype
class TestTheModelIsItsFormula:
    """The runner, the textbook transformer and the mathematics agree, token by token, up to rounding."""

    def test_runner_equals_textbook(self, build, tokens, causal, dtype, rng) -> None:
        case = build(tokens, dtype)
        written = dense(case.model)
        for length in {1, tokens}:
            sequence = stored(rng.uniform(-1, 1, (length, case.model.inputs)), dtype)
            found = run(case.model, sequence[None], causal=causal)[0]
            assert found.dtype == dtype
            assert found.shape == (length, case.model.outputs)
            assert np.abs(found - run_dense(written, sequence, Floating(dtype), causal=causal)).max() <= ROOM[dtype]
            shuffled = run_dense(written, sequence, Floating(dtype, rng), causal=causal)
            assert np.abs(found - shuffled).max() <= ROOM[dtype]

    def test_runner_equals_mathematics(self, build, tokens, causal, dtype, rng) -> None:
        case = build(tokens, dtype)
        batch = stored(rng.uniform(-1, 1, (4, tokens, case.model.inputs)), dtype)
        found = run(case.model, batch, causal=causal)
        with mpmath.workdps(DIGITS):
            for sequence, outputs in zip(batch.tolist(), found.tolist(), strict=True):
                for token, row in zip(sequence, outputs, strict=True):
                    wanted = case.formula([mpmath.mpf(x) for x in token])
                    assert max(abs(a - b) for a, b in zip(row, wanted, strict=True)) <= ROOM[dtype]


@each_builder
def test_the_models_are_what_they_are_called(build, rng) -> None:
    """Squares, products, gates: the formula is near the function that the table was fitted to."""
    case = build(1, "float64")
    x = rng.uniform(-1, 1, (200, 1, case.model.inputs))
    found = run(case.model, x)[:, 0]
    wanted = np.stack([shape(*x[:, 0].T) for shape in case.shapes], axis=1)
    assert np.abs(found - wanted).max() <= 2e-2


@each_mask
@pytest.mark.parametrize("build", [square, beside], ids=["alone", "with a sink"])
@pytest.mark.parametrize("gain", [-1.0, 0.0, 3.0])
def test_data_tokens_and_the_sink_shrink_the_output(build, gain, causal, rng) -> None:
    """Whatever the gain, exactly: each data token in sight, and the sink, adds one to the mass of the softmax."""
    case = build(3, "float64")
    layers = tuple(
        Layer(tuple(replace(bank, gain=gain) if isinstance(bank, TableBank) else bank for bank in layer.banks))
        for layer in case.model.layers
    )
    model = replace(case.model, layers=layers)
    table = next(bank for bank in layers[0].banks if isinstance(bank, TableBank))
    sequence = rng.uniform(-1, 1, (3, 1))
    found = run(model, sequence[None], causal=causal)[0, :, 0]
    for place, x in enumerate(sequence[:, 0].tolist()):
        silent = (place + 1 if causal else 3) + model.sink_tokens
        with mpmath.workdps(DIGITS):
            wanted = softmax_formula(table, 0, [mpmath.mpf(x)], silent)[0] + 0.25
            for bank in model.layers[0].banks:
                if isinstance(bank, SinkBank):
                    wanted += gate_formula(bank, 1, -mpmath.mpf(x)) / 2
            assert abs(found[place] - wanted) <= 1e-12


@each_builder
@each_mask
def test_attention_is_real(build, causal, rng) -> None:
    """Observed weights are the softmax of the textbook's scores in the first layer, reference tokens included."""
    case = build(3, "float64")
    model, written = case.model, dense(case.model)
    sequence = rng.uniform(-1, 1, (3, model.inputs))
    found = patterns(model, sequence, causal=causal)
    stream = np.concatenate([written.references, sequence @ written.W_E + written.b_E + written.W_pos[:3]])
    scores = np.einsum("td,hdf,hef,se->hts", stream, written.layers[0].W_Q, written.layers[0].W_K, stream)
    scores += np.triu(np.full(scores.shape[1:], -np.inf), 1) if causal else 0.0
    weights = np.exp(scores - scores.max(axis=2, keepdims=True))
    assert np.abs(found[0].weights - weights / weights.sum(axis=2, keepdims=True)).max() <= 1e-12
    for pattern in found:
        assert pattern.weights.shape[1:] == (len(stream), len(stream))
        assert np.abs(pattern.weights.sum(axis=2) - 1.0).max() <= 1e-12
        if model.sink_tokens:
            # Reference tokens keep to the sink: nothing is written on them.
            assert pattern.weights[:, : model.reference_tokens, 0].min() >= 1.0 - 1e-12


@each_mask
def test_a_large_batch_goes_in_chunks(causal, rng) -> None:
    """The same numbers, however many sequences run at once."""
    model = mixed(3, "float64").model
    batch = rng.uniform(-1, 1, (9000, 3, 1))
    together = run(model, batch, causal=causal)
    for index in (0, 1, 4500, 8999):
        assert np.abs(together[index] - run(model, batch[index : index + 1], causal=causal)[0]).max() <= 1e-13
    assert run(model, batch[:0], causal=causal).shape == (0, 3, 2)


# ---- the lemmas -----------------------------------------------------------------------------------------------------


def random_bank(
    rng: Any, arguments: int, dtype: str = "float64", *, steep: float = 6.0, gain: float = 9.0
) -> TableBank:
    """Two heads, five tokens, two columns."""
    slope, offset = rng.uniform(-steep, steep, (2, 5, arguments)), rng.uniform(-4, 4, (2, 5))
    values = rng.uniform(-3, 3, (2, 5, 2)) * 10.0 ** rng.uniform(-2, 2, (2, 1, 2))
    arrays = (stored(array, dtype) for array in (slope, offset, values))
    return TableBank(np.full(4, -1), np.arange(4), (), (), *arrays, gain, 60.0)


def exact_scores(bank: TableBank, head: int, arguments: Any) -> list[Any]:
    """slope . s + offset, gain not counted."""
    return [
        mpmath.fsum(mpmath.mpf(a) * mpmath.mpf(s) for a, s in zip(slope, arguments, strict=True)) + mpmath.mpf(offset)
        for slope, offset in zip(bank.slope[head].tolist(), bank.offset[head].tolist(), strict=True)
    ]


# ---- the bill -------------------------------------------------------------------------------------------------------


def matrices(written: DenseTransformer) -> list[Any]:
    """Every matrix, head by head, without the zero columns that bring banks of one layer to the same width."""
    found = [written.W_E, written.b_E, written.W_U, written.b_U]
    for layer in written.layers:
        for W_Q, W_K, W_V, W_O in zip(layer.W_Q, layer.W_K, layer.W_V, layer.W_O, strict=True):
            features = W_Q.any(axis=0) | W_K.any(axis=0)
            values = W_V.any(axis=0) | W_O.any(axis=1)
            found += [W_Q[:, features], W_K[:, features], W_V[:, values], W_O[values]]
    return found


@each_builder
@each_length
class TestBill:
    def test_counts(self, build, tokens) -> None:
        model = build(tokens, "float64").model
        written, cost = dense(model), bill(model, 1.0)
        assert cost.layers == len(written.layers)
        assert cost.heads_per_layer == tuple(len(layer.W_Q) for layer in written.layers)
        assert cost.heads == sum(cost.heads_per_layer)
        assert cost.reference_tokens == len(written.references) == model.grid_tokens + (build not in TABLES_ALONE)
        assert cost.d_model == written.W_E.shape[1]
        assert cost.d_head == max(layer.W_Q.shape[2] for layer in written.layers)

    def test_nonzeros_and_parameters(self, build, tokens) -> None:
        model = build(tokens, "float64").model
        written, cost = dense(model), bill(model, 1.0)
        flags = np.count_nonzero(written.references) + np.count_nonzero(written.W_pos)
        assert cost.parameters == sum(matrix.size for matrix in matrices(written)) + flags
        assert cost.nonzeros == sum(np.count_nonzero(matrix) for matrix in matrices(written)) + flags

    def test_largest_weight(self, build, tokens) -> None:
        model = build(tokens, "float64").model
        written, cost = dense(model), bill(model, 1.0)
        largest = max(np.abs(matrix).max() for matrix in matrices(written))
        assert largest * (1 - 1e-12) <= cost.max_weight <= largest * (1 + 1e-12)


def test_the_largest_weight_of_low_offsets() -> None:
    model = square(1, "float64").model
    model = with_bank(model, offset=model.layers[0].banks[0].offset - 60.0)
    assert bill(model, 1.0).max_weight == max(np.abs(matrix).max() for matrix in matrices(dense(model)))


def test_links_that_share_an_entry_count_once() -> None:
    model = with_bank(square(1, "float64").model, write=(Link("out", [[0.5]]), Link("out", [[0.5]])))
    assert bill(model, 1.0).nonzeros == bill(square(1, "float64").model, 1.0).nonzeros


def test_zeros_of_a_table_do_not_count() -> None:
    model = square(1, "float64").model
    bank = model.layers[0].banks[0]
    slope, offset, values = bank.slope.copy(), bank.offset.copy(), bank.values.copy()
    slope[0, 2], offset[0, 3], values[0, 4] = 0.0, 0.0, 0.0
    sparse = replace(model, layers=(Layer((replace(bank, slope=slope, offset=offset, values=values),)),))
    assert bill(sparse, 1.0).nonzeros == bill(model, 1.0).nonzeros - 3
    assert bill(sparse, 1.0).parameters == bill(model, 1.0).parameters


# ---- the checker ----------------------------------------------------------------------------------------------------


def with_bank(model: Transformer, **changes: Any) -> Transformer:
    bank = replace(model.layers[0].banks[0], **changes)  # type: ignore[type-var]
    return replace(model, layers=(Layer((bank, *model.layers[0].banks[1:])), *model.layers[1:]))


class TestTheCheckerRefuses:
    """Anything that is not a table of the grid, before anybody runs it."""

    @pytest.mark.parametrize(
        "changes",
        [
            {"slope": np.ones((1, GRID_SIZE))},
            {"slope": np.ones((1, GRID_SIZE, 1, 1))},
            {"slope": np.float64(1.0)},
            {"offset": np.ones(GRID_SIZE)},
            {"offset": np.ones((1, GRID_SIZE, 1))},
            {"offset": np.float64(1.0)},
            {"values": np.ones((1, GRID_SIZE))},
            {"values": np.float64(1.0)},
            {"slope": np.ones((1, GRID_SIZE, 0))},
            {"values": np.ones((1, GRID_SIZE, 0)), "node": [], "component": [], "write": ()},
        ],
        ids=repr,
    )
    def test_shapes(self, changes) -> None:
        with pytest.raises(CertificateError, match="the table has slopes"):
            with_bank(square(1, "float64").model, **changes)

    @pytest.mark.parametrize("name", ["slope", "offset", "values"])
    @pytest.mark.parametrize("shape", [(1, GRID_SIZE - 1), (1, GRID_SIZE + 1), (2, GRID_SIZE), (0, GRID_SIZE), (1, 0)])
    def test_tables_of_another_grid(self, name, shape) -> None:
        with pytest.raises(CertificateError, match="does not fit 8 reference tokens"):
            with_bank(square(1, "float64").model, **{name: np.ones(shape if name == "offset" else (*shape, 1))})

    def test_no_heads(self) -> None:
        nothing = {"slope": np.ones((0, 8, 1)), "offset": np.ones((0, 8)), "values": np.ones((0, 8, 1))}
        with pytest.raises(CertificateError, match="no heads"):
            with_bank(square(1, "float64").model, **nothing, node=[], component=[], read=(), write=())

    def test_a_table_without_a_grid(self) -> None:
        model = square(1, "float64").model
        empty = {"slope": np.ones((1, 0, 1)), "offset": np.ones((1, 0)), "values": np.ones((1, 0, 1))}
        bank = replace(model.layers[0].banks[0], **empty)
        registers = tuple(register for register in model.registers if register.name != GRID)
        with pytest.raises(CertificateError):
            replace(model, registers=registers, layers=(Layer((bank,)),))

    @pytest.mark.parametrize("changes", [{"node": [-1]}, {"component": [0, 1, 2]}, {"node": np.zeros((4, 1), int)}])
    def test_one_entry_for_each_output(self, changes) -> None:
        """Two heads of two columns have four outputs."""
        with pytest.raises(CertificateError, match="array of shape"):
            with_bank(columns(1, "float64").model, **changes)

    @pytest.mark.parametrize("name", ["slope", "offset", "values", "gain", "keep_gain"])
    @pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
    def test_every_number_is_finite(self, name, value) -> None:
        model = square(1, "float64").model
        new = value if "gain" in name else np.full_like(getattr(model.layers[0].banks[0], name), value)
        with pytest.raises(CertificateError, match="a number is not finite"):
            with_bank(model, **{name: new})

    @pytest.mark.parametrize("name", ["slope", "offset", "values", "gain", "keep_gain"])
    def test_every_number_is_of_the_dtype(self, name) -> None:
        model = square(1, "float32").model
        new = 0.1 if "gain" in name else np.full_like(getattr(model.layers[0].banks[0], name), 0.1)
        with pytest.raises(CertificateError, match="a number is not a float32"):
            with_bank(model, **{name: new})

    @pytest.mark.parametrize(
        "link",
        [
            Link("nobody", [[1.0, 1.0]]),
            Link("x", [[1.0, 1.0]], 4),
            Link("x", [[1.0, 1.0]], -1),
            Link("x", np.ones((5, 2))),
            Link("x", [[1.0]]),
        ],
    )
    def test_reads_must_fit(self, link) -> None:
        """Two heads of two arguments have four reads."""
        with pytest.raises(CertificateError, match="does not fit"):
            with_bank(product(1, "float64").model, read=(link,))

    @pytest.mark.parametrize("link", [Link("out", np.ones((2, 5))), Link("out", np.ones((2, 1)), 4)])
    def test_writes_must_fit(self, link) -> None:
        """Two heads of two columns have four outputs."""
        with pytest.raises(CertificateError, match="does not fit"):
            with_bank(columns(1, "float64").model, write=(link,))

    def test_the_grid_is_constant_and_only_scores_use_it(self) -> None:
        model = square(3, "float64").model
        with pytest.raises(CertificateError, match="the constant register grid is written"):
            replace(model, embedding=(*model.embedding, Link(GRID, np.ones((GRID_SIZE, 1)))))
        with pytest.raises(CertificateError, match="the constant register grid is written"):
            with_bank(model, write=(Link(GRID, np.ones((GRID_SIZE, 1))),))
        with pytest.raises(CertificateError, match="initial value of grid"):
            replace(model, initial={GRID: np.ones(GRID_SIZE)})
        with pytest.raises(CertificateError, match="grid tells tokens apart"):
            replace(model, readout=(Link(GRID, np.ones((1, GRID_SIZE))),))
        for register in ("reference", "position", GRID):
            with pytest.raises(CertificateError, match=f"{register} tells tokens apart"):
                with_bank(model, read=(Link(register, np.ones((1, model.sizes[register]))),))

    @pytest.mark.parametrize(
        "registers",
        [
            lambda r: tuple(each for each in r if each.name != GRID),
            lambda r: (*r, Register(GRID, GRID_SIZE)),
            lambda r: tuple(Register(GRID, 0) if each.name == GRID else each for each in r),
            lambda r: tuple(Register(GRID, 9) if each.name == GRID else each for each in r),
            lambda r: (r[3], *r[:3], *r[4:]),
        ],
        ids=["missing", "twice", "empty", "larger", "misplaced"],
    )
    def test_the_grid_stands_where_it_must(self, registers) -> None:
        model = square(3, "float64").model
        assert model.registers[3].name == GRID
        with pytest.raises(CertificateError):
            replace(model, registers=registers(model.registers))


# ---- files and proofs -----------------------------------------------------------------------------------------------


def square_graph() -> Graph:
    """x^2 + 1/4, as a target."""
    return Graph((Input(("x",)), Function("square", 0, 1, None), Affine((Term(1, np.ones(1)),), np.array([0.25]))), 2)


def relu_graph() -> Graph:
    return Graph((Input(("x",)), Relu(0, 1), Affine((Term(1, np.ones(1)),), np.array([0.25]))), 2)


def contents(case: Case, graph: Graph | None = None) -> Contents:
    """A file's contents with whatever certificate."""
    size, outputs = case.model.inputs, case.model.outputs
    if graph is None:
        graph = Graph((Input(tuple("xy"[:size])), Affine((Term(0, np.ones((outputs, size))),), np.zeros(outputs))), 1)
    box = Box(graph.input.names, np.full(size, -1.0), np.ones(size))
    return Contents(graph, box, case.model, whatever(case.model, graph.input.names))


@each_builder
@each_length
@each_dtype
def test_a_file_brings_everything_back_to_the_bit(build, tokens, dtype, tmp_path, rng) -> None:
    kept = contents(build(tokens, dtype))
    write_file(tmp_path / "model", kept)
    again = read_file(tmp_path / "model")
    assert same(again, kept)
    assert layout(again.transformer) == layout(kept.transformer)
    x = rng.uniform(-1, 1, (5, tokens, kept.transformer.inputs))
    assert np.array_equal(run(again.transformer, x), run(kept.transformer, x))
    assert hs.load(tmp_path / "model").bill == bill(kept.transformer, kept.certificate.max_score)


@pytest.mark.parametrize("name", ["slope", "offset", "values", "gain", "keep_gain"])
def test_a_damaged_table_in_a_file_is_refused(name, tmp_path) -> None:
    path = tmp_path / "model"
    write_file(path, contents(mixed(1, "float64")))
    header, tensors = saved.read(path)
    place = ("transformer", "layers", 0, 0, name)
    assert header["transformer"]["layers"][0][0]["kind"] == "table"
    for new in (None, "nobody", "readout_bias", [], -1e400):
        saved.write(path, saved.put(header, place, new), tensors)
        with pytest.raises(HeadsmithError):
            read_file(path)
    saved.write(path, saved.drop(header, place), tensors)
    with pytest.raises(HeadsmithError):
        read_file(path)


class TestTheKernelRefuses:
    """A table that stands for nothing, or not for what it claims: no certificate is given."""

    @pytest.mark.parametrize("build", [square, tower], ids=["one layer", "two layers"])
    @pytest.mark.parametrize("graph", [square_graph(), relu_graph()], ids=["square", "relu"])
    def test_models_of_tables(self, build, graph, tmp_path) -> None:
        kept = contents(build(1, "float64"), graph)
        with pytest.raises(CertificateError):
            certified(drafted(Wanted(kept.graph, {}, None, kept.transformer), kept.box))
        write_file(tmp_path / "model", kept)
        with pytest.raises(CertificateError):
            hs.verify(tmp_path / "model")

    def test_a_table_that_claims_to_be_a_gate(self) -> None:
        """Nothing else is wrong with it: x is read, the gate's register written, the read-out the target's."""
        kept = contents(Case(with_bank(square(1, "float64").model, node=[1], component=[0]), list, []), relu_graph())
        with pytest.raises(CertificateError, match="the values of a ramp head must rise with its slopes"):
            certified(drafted(Wanted(kept.graph, {}, None, kept.transformer), kept.box))

    @pytest.mark.parametrize("dtype", ["float64", "float32"])
    def test_a_compiled_model_with_a_table_beside_its_gates(self, dtype) -> None:
        """A proven model stays proven with an unused grid, and not with a table on it, whatever the table claims."""
        compiled = hs.compile("x**2", {"x": (-1, 1)}, error=0.1, dtype=dtype, recipe="relu")
        table = square(1, dtype).model.layers[0].banks[0]
        model = compiled.transformer
        first = next(register.name for register in model.registers if register.name == model.embedding[0].register)
        read = (Link(first, np.zeros((1, model.sizes[first]))),)
        idle = replace(table, read=read, write=())
        registers = (*reserved_registers(1, GRID_SIZE), *model.registers[2:])
        bound = proven(compiled, replace(model, registers=registers))
        assert compiled.certificate.error <= bound.error <= 1.001 * compiled.certificate.error
        for claim in (-1, 0, 1, int(model.layers[0].banks[0].node[0])):
            banks = (*model.layers[0].banks, replace(idle, node=[claim]))
            with_table = replace(model, registers=registers, layers=(Layer(banks), *model.layers[1:]))
            with pytest.raises(CertificateError):
                proven(compiled, with_table)
