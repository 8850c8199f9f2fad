"""The proof kernel: what it proves is true and, where the truth is known, nearly the truth; what it cannot prove it
refuses, and says why."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from helpers.attacks.gates import worst_error
from helpers.attacks.proving import proven
from helpers.effort import tried
from helpers.models.networks import random_network, shifted_network
from helpers.oracles.exact import exact, exact_error, extended
from helpers.oracles.textbook import Floating, run_dense

import headsmith as hs
from headsmith.core.balls import gate_constant
from headsmith.core.intervals import Box
from headsmith.language.builder import Builder
from headsmith.transformer.dense import dense
from headsmith.transformer.heads.stream import DATA, Link
from headsmith.transformer.ir import Layer


def with_banks(model: hs.Compiled, **changes) -> hs.Compiled:
    """The model with every bank changed in the same way."""
    layers = tuple(Layer(tuple(replace(bank, **changes) for bank in layer.banks)) for layer in model.transformer.layers)
    return replace(model, transformer=replace(model.transformer, layers=layers))


class TestCertificate:
    @pytest.mark.parametrize("dtype", ["float64", "float32"])
    @pytest.mark.parametrize("tokens", [1, 4])
    def test_what_it_says(self, dtype, tokens) -> None:
        model = hs.compile(random_network([3, 6, 5, 2]), (-1, 1), error=1e-2, tokens=tokens, dtype=dtype)
        certificate = model.certificate
        assert set(certificate.parts) == {"approximation", "softmax", "leak", "rounding"}
        assert certificate.parts["approximation"] == 0.0
        assert all(part >= 0.0 for part in certificate.parts.values())
        assert sum(certificate.parts.values()) == pytest.approx(certificate.error, rel=1e-12)
        assert max(certificate.outputs) == certificate.error <= 1e-2
        assert len(certificate.outputs) == 2
        assert (certificate.dtype, certificate.tokens) == (dtype, tokens)
        assert (certificate.parts["leak"] > 0.0) or tokens == 1

    def test_every_output_has_its_own_bound(self, rng) -> None:
        """One output is scaled down by a million: its bound is far below the other's, and holds."""
        W, b = rng.normal(size=(1, 6)), np.zeros(2)
        network = hs.Network([(rng.normal(size=(6, 2)), rng.normal(size=6)), (np.concatenate([W, 1e-6 * W]), b)])
        model = hs.compile(network, (-1, 1), error=1e-3)
        assert model.certificate.outputs[1] < 2e-6 * model.certificate.outputs[0]
        x = rng.uniform(-1, 1, (2000, 2))
        errors = np.abs(model(x) - extended(network.graph, x)).max(axis=0)
        assert np.all(errors <= model.certificate.outputs)

    def test_verify_finds_what_compile_found(self) -> None:
        model = hs.compile(random_network([3, 6, 5, 2]), (-1, 1), error=1e-4)
        assert hs.verify(model) == model.certificate


class TestTightness:
    """Where the worst case is known, the bound is close to it."""

    @pytest.mark.parametrize("tokens", [1, 4])
    @pytest.mark.parametrize("error", [1e-1, 1e-5, 1e-9])
    def test_one_gate_is_bounded_to_a_part_in_a_thousand(self, error, tokens, rng) -> None:
        network = hs.Network([([[1.3]], [0.2]), ([[0.7]], [0.1])])
        model = hs.compile(network, (-2, 2), error=error, tokens=tokens)
        assert 0.999 * model.certificate.error < worst_error(model, rng) <= model.certificate.error

    def test_gates_that_bend_together_add_up(self, rng) -> None:
        """Sixteen gates with one common kink, all pushing the same way: no cancellation to be missed, and none to be
        claimed."""
        network = hs.Network([(np.ones((16, 1)), np.full(16, 0.3)), (rng.uniform(0.5, 2.0, (1, 16)), [0.0])])
        model = hs.compile(network, (-2, 2), error=1e-4)
        assert worst_error(model, rng) > 0.99 * model.certificate.error

    def test_gates_that_push_against_each_other_share(self, rng) -> None:
        """x = relu(x) - relu(-x): the two errors cancel, and only the larger side is counted, not the sum."""
        network = hs.Network([([[1.0], [-1.0]], [0.0, 0.0]), ([[1.0, -1.0]], [0.0])])
        model = hs.compile(network, (-1, 1), error=1e-3)
        scale = model.transformer.layers[0].banks[0].query_scale * model.transformer.layers[0].banks[0].key_scale
        assert gate_constant() / scale[0] > 0.9e-3

    @pytest.mark.parametrize("depth", [2, 4, 6])
    def test_a_chain_of_gates(self, depth, rng) -> None:
        """relu after relu of the same small number: the errors of all levels meet at one input."""
        layers = [([[1.0]], [0.0])] + [([[1.0]], [-1e-9])] * (depth - 1) + [([[1.0]], [0.0])]
        model = hs.compile(hs.Network(layers), (-1, 1), error=1e-3)
        assert worst_error(model, rng) > 0.3 * model.certificate.error


class TestParts:
    """Each part alone is a bound: make it the largest, and look for an input that breaks it."""

    @pytest.mark.one_in(4)
    @pytest.mark.parametrize("gain", [2.0, 4.0, 8.0, 12.0])
    @pytest.mark.parametrize("tokens", [2, 3, 8])
    def test_leak(self, gain, tokens, rng) -> None:
        """A weak position code: other tokens are heard. The sink of the reference token stays closed."""
        network = random_network([1, 3, 1], 4)
        model = with_banks(hs.compile(network, (-2, 2), error=1e-6, tokens=tokens), position_gain=gain)
        bound = proven(model)
        assert bound.parts["leak"] > 10 * bound.parts["softmax"]
        found = 0.0
        for _ in range(300):
            x = rng.choice([-2.0, 2.0, rng.uniform(-2, 2)], (tokens, 1))
            errors = np.abs(model(x, causal=bool(rng.integers(2))) - extended(network.graph, x))
            found = max(found, float(errors.max()))
        assert bound.error / 50 < found <= bound.error

    @pytest.mark.one_in(3)
    @pytest.mark.parametrize("gain", [0.01, 1.0, 4.0, 8.0])
    @pytest.mark.parametrize("tokens", [1, 3])
    def test_drift_of_the_reference_token(self, gain, tokens, rng) -> None:
        """A weak hold of the reference token on itself: under full attention it takes in data, and is no longer zero in
        the next layer. The textbook transformer computes that; a runner may leave it out, and is then nearer."""
        network = random_network([1, 3, 3, 1], 4)
        model = with_banks(hs.compile(network, (-2, 2), error=1e-6, tokens=tokens), reference_gain=gain)
        bound, written = proven(model), dense(model.transformer)
        found = 0.0
        for _ in range(30):
            x = rng.choice([-2.0, 2.0, rng.uniform(-2, 2)], (tokens, 1))
            wanted = extended(network.graph, x)
            found = max(found, float(np.abs(run_dense(written, x, Floating()) - wanted).max()))
            short = model(x if tokens > 1 else x[0]).reshape(tokens, 1)
            assert np.abs(short - wanted).max() <= bound.error
        assert found <= bound.error
        assert bound.parts["leak"] > found / 2

    @pytest.mark.one_in(2)
    @pytest.mark.parametrize("magnitude", [1e3, 1e6])
    @pytest.mark.parametrize("dtype", ["float64", "float32"])
    def test_rounding_with_cancellation(self, dtype, magnitude, rng) -> None:
        """Large terms that cancel: the error is rounding alone, and the bound knows the size of the terms, not of
        their sum."""
        half = rng.normal(size=(4, 3)) * magnitude
        network = hs.Network(
            [
                (np.concatenate([half, -half]), np.full(8, 0.1)),
                (np.concatenate([np.ones((2, 4)), np.ones((2, 4))], axis=1), np.zeros(2)),
                (np.ones((1, 2)), [-magnitude]),
            ]
        )
        with pytest.raises(hs.UnreachableError) as refusal:
            hs.compile(network, (-1, 1), error=1e-18 * magnitude, dtype=dtype)
        model = hs.compile(network, (-1, 1), error=refusal.value.smallest, dtype=dtype)
        assert model.certificate.parts["rounding"] > model.certificate.error / 2
        written = dense(model.transformer)
        for x in rng.uniform(-1, 1, (20, 3)):
            wanted = exact(network.graph, x)
            assert exact_error(model(x), wanted) <= model.certificate.error
            shuffled = run_dense(written, x[None], Floating(dtype, rng))[0]
            assert exact_error(shuffled, wanted) <= model.certificate.error

    @pytest.mark.parametrize("dtype", ["float64", "float32"])
    def test_a_large_output_bias_rounds(self, dtype, rng) -> None:
        """A hundred inputs, two active gates, one output far from zero: adding the bias of the read-out rounds, in
        any order."""
        network = hs.Network([(np.full((2, 100), 2.0**-10), [10.0, 10.0]), ([[2.0**-7, 2.0**-7]], [1e6])])
        try:
            model = hs.compile(network, (-1, 1), error=1e-6 if dtype == "float64" else 1e-1, dtype=dtype)
        except hs.UnreachableError as refusal:
            model = hs.compile(network, (-1, 1), error=refusal.smallest, dtype=dtype)
        written = dense(model.transformer)
        for x in rng.uniform(-1, 1, (20, 100)):
            wanted = exact(network.graph, x)
            assert exact_error(model(x), wanted) <= model.certificate.error
            shuffled = run_dense(written, x[None], Floating(dtype, rng))[0]
            assert exact_error(shuffled, wanted) <= model.certificate.error

    def test_inputs_are_rounded_to_float32(self, rng) -> None:
        """A steep network: rounding the input alone moves the output by far more than anything else."""
        network = hs.Network([([[1.0]], [0.0]), ([[1000.0]], [0.0])])
        model = hs.compile(network, (0.5, 1.0), error=1e-3, dtype="float32")
        x = rng.uniform(0.5, 1.0, (5000, 1))
        found = float(np.abs(model(x) - extended(network.graph, x)).max())
        assert 1e-5 < found <= model.certificate.error


@pytest.fixture(scope="module")
def model() -> hs.Compiled:
    return hs.compile(random_network([3, 4, 4, 2], bias=0.0), (-1, 1), error=1e-3, tokens=2)


class TestRefusals:
    """What cannot be proven is refused with its reason."""

    def bank(self, model):
        return model.transformer.layers[0].banks[0]

    def test_a_gate_without_a_head(self, model) -> None:
        bank = self.bank(model)
        keep = slice(1, None)
        smaller = replace(
            bank,
            node=bank.node[keep],
            component=bank.component[keep],
            query_scale=bank.query_scale[keep],
            key_scale=bank.key_scale[keep],
            read=tuple(
                replace(link, weights=link.weights[keep] if link.weights.ndim == 2 else np.diag(link.weights)[keep])
                for link in bank.read
            ),
            write=tuple(replace(link, weights=link.weights[:, keep]) for link in bank.write),
        )
        changed = replace(model.transformer, layers=(Layer((smaller,)), *model.transformer.layers[1:]))
        with pytest.raises(hs.CertificateError, match=r"gate 0 of node 2 crosses zero .* but no head computes it"):
            hs.verify(replace(model, transformer=changed))

    def test_a_larger_domain(self) -> None:
        """Stable gates become unstable: the model has no heads for them."""
        network = shifted_network([3, 4, 2], 1, -1.0, 1.0, ["active"])
        model = hs.compile(network, (-1, 1), error=1e-3)
        with pytest.raises(hs.CertificateError, match="crosses zero on the domain"):
            hs.verify(replace(model, box=Box(model.box.names, np.full(3, -5.0), np.full(3, 5.0))))

    def test_a_smaller_domain_is_still_proven(self, model) -> None:
        inner = replace(model, box=Box(model.box.names, np.full(3, -0.5), np.full(3, 0.5)))
        assert hs.verify(inner).error <= model.certificate.error

    @pytest.mark.parametrize("node", [0, 1, 99, -1])
    def test_a_head_for_no_gate(self, model, node) -> None:
        bad = self.bank(model).node.copy()
        bad[0] = node
        with pytest.raises(hs.CertificateError, match="which it cannot compute"):
            proven(self.changed(model, node=bad))

    @pytest.mark.parametrize("component", [4, -1, 10**9])
    def test_a_head_for_no_component(self, model, component) -> None:
        bad = self.bank(model).component.copy()
        bad[0] = component
        with pytest.raises(hs.CertificateError, match=r"sink heads claim .* of the 4 of node 2"):
            proven(self.changed(model, component=bad))

    def test_two_heads_for_one_gate(self, model) -> None:
        bad = self.bank(model).component.copy()
        bad[0] = bad[1]
        with pytest.raises(hs.CertificateError, match=r"sink heads claim .* of the 4 of node 2"):
            proven(self.changed(model, component=bad))

    @pytest.mark.parametrize("name", ["query_scale", "key_scale"])
    @pytest.mark.parametrize("value", [0.0, -1.0])
    def test_scales_are_positive(self, model, name, value) -> None:
        bad = getattr(self.bank(model), name).copy()
        bad[0] = value
        with pytest.raises(hs.CertificateError, match="a score scale of a sink bank is not positive"):
            proven(self.changed(model, **{name: bad}))

    @pytest.mark.parametrize("name", ["reference_gain", "position_gain"])
    def test_gains_are_not_negative(self, model, name, rng) -> None:
        with pytest.raises(hs.CertificateError, match="a gain of a sink bank is negative"):
            proven(self.changed(model, **{name: -4.0}))
        without = self.changed(model, **{name: 0.0})
        points = rng.uniform(-1, 1, (100, 2, 3))
        assert np.abs(without(points) - model(points)).max() <= proven(without).error + model.certificate.error

    def test_another_target(self, model) -> None:
        for other in (random_network([3, 4, 2]), random_network([4, 4, 4, 2]), random_network([3, 4, 4, 3])):
            with pytest.raises(hs.CertificateError):
                hs.verify(replace(model, graph=other.graph))
        with pytest.raises(hs.CertificateError, match="the circuit of the proof does not compute the target"):
            hs.verify(replace(model, graph=random_network([3, 4, 4, 2], 1, bias=0.0).graph))

    def test_a_box_of_another_size(self, model) -> None:
        with pytest.raises(hs.HeadsmithError):
            hs.verify(replace(model, box=Box(("x0", "x1"), [-1.0, -1.0], [1.0, 1.0])))

    def changed(self, model, **changes) -> hs.Compiled:
        layer = Layer((replace(self.bank(model), **changes),))
        return replace(model, transformer=replace(model.transformer, layers=(layer, *model.transformer.layers[1:])))


class TestHostileModels:
    """Models that no compiler would write. The kernel must see through them or refuse them."""

    def test_two_layers_merged_into_one(self, rng) -> None:
        """Heads of one layer run side by side: the second bank does not see what the first one writes."""
        network = random_network([3, 6, 6, 2])
        model = hs.compile(network, (-1, 1), error=1e-3)
        banks = tuple(bank for layer in model.transformer.layers for bank in layer.banks)
        self.true_or_refused(replace(model, transformer=replace(model.transformer, layers=(Layer(banks),))), rng)

    def test_one_layer_split_into_two_banks(self, rng) -> None:
        """The same heads in two banks of one layer: the same function. The bound is about the same, or the kernel
        wants one bank."""
        network = random_network([3, 6, 2])
        model = hs.compile(network, (-1, 1), error=1e-3)
        bank = model.transformer.layers[0].banks[0]
        layer = Layer((part_of(bank, slice(0, 2)), part_of(bank, slice(2, None))))
        split = replace(model, transformer=replace(model.transformer, layers=(layer,)))
        assert self.true_or_refused(split, rng) in (np.inf, pytest.approx(model.certificate.error, rel=1e-6))

    def test_layers_in_the_wrong_order(self, rng) -> None:
        model = hs.compile(random_network([3, 6, 6, 2]), (-1, 1), error=1e-3)
        layers = model.transformer.layers[::-1]
        self.true_or_refused(replace(model, transformer=replace(model.transformer, layers=layers)), rng)

    @pytest.mark.parametrize("dtype", ["float64", "float32"])
    def test_queries_that_overflow_although_scores_do_not(self, dtype, rng) -> None:
        model = hs.compile(random_network([3, 8, 1], weight=3.0), (-8, 8), error=1e6, dtype=dtype)
        bank = model.transformer.layers[0].banks[0]
        scale = bank.query_scale.copy()
        scale[:] = float(np.finfo(dtype).max)
        self.true_or_refused(self.first_bank(model, query_scale=scale), rng)
        self.true_or_refused(
            self.first_bank(model, query_scale=scale, key_scale=np.full(bank.heads, float(np.finfo(dtype).tiny))), rng
        )

    @pytest.mark.parametrize("dtype", ["float64", "float32"])
    def test_outputs_that_overflow(self, dtype, rng) -> None:
        """Registers within the format, the read-out beyond it: infinity is not within any error."""
        largest = float(np.finfo(dtype).max)
        big = float(2.0 ** np.rint(np.log2(largest) / 2.0))
        network = hs.Network(
            [(np.full((2, 100), big), [200.0 * big, 200.0 * big]), ([[big / 64.0, big / 64.0]], [0.0])]
        )
        with np.errstate(all="ignore"):
            for error in (largest / 1e6, largest / 1e3, largest / 2.0):
                try:
                    model = hs.compile(network, (-1, 1), error=error, dtype=dtype)
                except hs.HeadsmithError:
                    continue
                assert np.isfinite(model(rng.uniform(-1, 1, (20, 100)))).all()

    @pytest.mark.again
    def test_values_that_overflow_on_the_way(self, rng) -> None:
        """Registers and scores within float32, what a head reads beyond it, the output again within: not a number."""
        big = 2.0**62
        weights = big * rng.choice([0.5, 1.0], (2, 100))
        network = hs.Network([(weights, [200.0 * big] * 2), ([[big, -big]], [0.0]), ([[2.0**-100]], [0.0])])
        with np.errstate(all="ignore"):
            for error in (1e5, 1e3, 1e7)[: tried(3, 3)]:
                try:
                    model = hs.compile(network, (-1, 1), error=error, dtype="float32")
                except hs.HeadsmithError:
                    continue
                assert np.isfinite(model(rng.uniform(-1, 1, (20, 100)))).all()

    def test_a_register_that_cancels_a_huge_number(self, rng) -> None:
        """2^60 is put into the register at first and taken out by the reader: the function is the same, the rounding
        is not."""
        network = random_network([2, 3, 1])
        model = hs.compile(network, (-1, 1), error=1e-3)
        transformer, bank = model.transformer, model.transformer.layers[0].banks[0]
        initial = {**transformer.initial, "z1": transformer.initial["z1"] + 2.0**60}
        bank = replace(bank, read=(*bank.read, Link(DATA, np.full((bank.heads, 1), -(2.0**60)))))
        changed = replace(transformer, initial=initial, layers=(Layer((bank,)), *transformer.layers[1:]))
        hostile = replace(model, transformer=changed)
        assert self.true_or_refused(hostile, rng) > 1.0

    def test_an_empty_layer_changes_nothing(self, rng) -> None:
        model = hs.compile(random_network([3, 6, 2]), (-1, 1), error=1e-3)
        layers = (Layer(()), *model.transformer.layers, Layer(()))
        self.true_or_refused(replace(model, transformer=replace(model.transformer, layers=layers)), rng)

    def first_bank(self, model, **changes) -> hs.Compiled:
        layer = Layer((replace(model.transformer.layers[0].banks[0], **changes),))
        return replace(model, transformer=replace(model.transformer, layers=(layer, *model.transformer.layers[1:])))

    def true_or_refused(self, model: hs.Compiled, rng) -> float:
        """The proven bound, checked by search; infinite if the kernel refuses."""
        try:
            bound = proven(model).error
        except hs.CertificateError:
            return np.inf
        with np.errstate(all="ignore"):
            found = worst_error(model, rng)
        assert found <= bound
        return bound


def part_of(bank, heads: slice):
    """Some heads of a bank as a bank of their own."""
    return replace(
        bank,
        node=bank.node[heads],
        component=bank.component[heads],
        query_scale=bank.query_scale[heads],
        key_scale=bank.key_scale[heads],
        read=tuple(
            replace(link, weights=(np.diag(link.weights) if link.weights.ndim == 1 else link.weights)[heads])
            for link in bank.read
        ),
        write=tuple(
            replace(link, weights=(np.diag(link.weights) if link.weights.ndim == 1 else link.weights)[:, heads])
            for link in bank.write
        ),
    )


def test_graph_targets_with_an_output_that_is_a_gate_or_the_input(rng) -> None:
    builder = Builder(["x", "y"])
    gate = builder.relu(builder.affine([(builder.input, np.array([[1.0, 2.0]]))], [0.5]))
    for graph in (builder.graph(gate), Builder(["x", "y"]).graph(0)):
        model = hs.compile(graph, (-1, 1), error=1e-6)
        assert worst_error(model, rng) <= model.certificate.error


@pytest.mark.parametrize(("exponent", "scale"), [(100, -50), (-100, 30)], ids=["underflow", "overflow"])
def test_weights_that_a_matrix_cannot_hold(exponent, scale) -> None:
    """Register and read are scaled by 2^100 and back, which changes nothing; but W_Q is one number, read times
    query_scale, and in float32 it is zero or infinite."""
    model = hs.compile("max(x, 0)", {"x": (-1, 1)}, error=1e-3, dtype="float32")
    (bank,) = model.transformer.layers[0].banks
    name, size = bank.read[0].register, 2.0**exponent
    read = tuple(replace(link, weights=link.weights / size) for link in bank.read)
    embedding = tuple(
        replace(link, weights=link.weights * size) if link.register == name else link
        for link in model.transformer.embedding
    )
    ones = np.ones(1)
    moved = replace(bank, read=read, query_scale=ones * 2.0**scale, key_scale=ones * 2.0 ** (12 - scale))
    layers = (Layer((moved,)),)
    with pytest.raises(hs.CertificateError, match="beyond float32"):
        proven(replace(model, transformer=replace(model.transformer, embedding=embedding, layers=layers)))
