"""Disguises: other matrices that compute the same, with a certificate that the kernel derives from products of what is
written and what is read."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from helpers.models.networks import random_network

import headsmith as hs
from headsmith.inside import disguise, rewrites
from headsmith.inside.ablation import Machine
from headsmith.inside.circuit_check import check_circuit
from headsmith.inside.disguise import Disguised, load_disguised
from headsmith.lab.suite.folder import hooked

over = hs.tokens


@pytest.fixture(scope="module")
def model() -> hs.Compiled:
    return hs.compile("relu(x - y) + x*y*z", (-1, 1), 1e-3)


@pytest.fixture(scope="module")
def hidden(model: hs.Compiled) -> Disguised:
    return model.disguise(2, seed=3)


def test_the_same_function_under_a_certificate_that_is_hardly_larger(
    model: hs.Compiled, hidden: Disguised, rng: np.random.Generator
) -> None:
    points = rng.uniform(-1, 1, (1000, 3))
    assert np.abs(hidden(points) - model(points)).max() <= 1e-11
    assert model.certificate.error <= hidden.certificate.error <= 1.001 * model.certificate.error
    assert hidden.verify().error <= hidden.certificate.error
    assert hidden.machine.config["d_model"] == 16
    assert hidden.origins != model.disguise(2, seed=4).origins


def test_everything_else_too(rng: np.random.Generator) -> None:
    network = hs.compile(random_network([2, 6, 6, 1]), (-1, 1), 1e-3)
    sort = hs.compile_sequence(lambda x: over.sort(x), tokens=3, domain=(-1, 1), error=1e-3)
    for plain, points in ((network, rng.uniform(-1, 1, (300, 2))), (sort, rng.uniform(-1, 1, (300, 3, 1)))):
        for level in (1, 3):
            other = plain.disguise(level, seed=1)
            moved = np.abs(other(points) - plain(points)).max()
            assert moved <= (plain.certificate.error / 10 + 1e-9 if level == 3 else 1e-9)
            assert other.certificate.error <= 1.3 * plain.certificate.error


def test_whispers_are_charged(model: hs.Compiled, rng: np.random.Generator) -> None:
    """They move the output by no more than is charged, and by about that."""
    loud = model.disguise(balance=True, whispers=3, amplitude=1e-4, seed=0)
    points = rng.uniform(-1, 1, (2000, 3))
    moved = np.abs(loud(points) - model(points)).max()
    assert 2e-5 <= moved <= 1.0001e-4
    assert 1e-4 <= loud.certificate.error - model.certificate.error <= 1.02e-4


@pytest.mark.parametrize(
    "name", ["layers.0.value.weight", "layers.0.query.weight", "layers.1.output.weight", "embed.bias"]
)
def test_one_changed_weight_is_charged_or_refused(name: str, hidden: Disguised, rng: np.random.Generator) -> None:
    for size in (1e-3, 1e-9):
        tensors = {key: each.copy() for key, each in hidden.tensors.items()}
        changed = tensors[name].reshape(-1)
        changed[np.argmax(np.abs(changed))] *= 1.0 + size
        with pytest.raises(hs.CertificateError):
            replace(hidden, tensors=tensors).verify()


def test_origins_cannot_be_forged(hidden: Disguised) -> None:
    for name, value in (("heads.0.of", -1.0), ("heads.0.share", 0.75), ("heads.0.mix", 2.0)):
        tensors = {key: each.copy() for key, each in hidden.tensors.items()}
        tensors[name].reshape(len(tensors[name]), -1)[np.argmax(hidden.tensors["heads.0.of"]), 0] = value
        with pytest.raises(hs.CertificateError):
            replace(hidden, tensors=tensors).verify()


def test_labels_are_carried_along(hidden: Disguised, rng: np.random.Generator) -> None:
    circuit = json.loads(json.dumps(hidden.circuit()))
    check_circuit(circuit, hidden)
    labels = [each["label"] for each in circuit["edges"].values()]
    assert labels.count("grey") == 0
    assert labels.count("true") > 11  # heads in parts
    points = rng.uniform(-1, 1, (500, 3))
    trace = hidden.machine.run(points[:, None])
    product = circuit["variables"][1]
    for layer, told in product["layers"].items():
        seen = trace.streams[int(layer)][:, -1] @ np.array(told["read"]) + told["offset"]
        assert np.abs(seen - points[:, 0] * points[:, 1]).max() <= 4e-4
    circuit["nodes"][next(name for name in circuit["nodes"] if circuit["nodes"][name].get("of"))]["of"] = "a0.h9"
    with pytest.raises(hs.CertificateError):
        check_circuit(circuit, hidden)


def test_saved_and_read_back(hidden: Disguised, tmp_path: Path) -> None:
    hidden.save(tmp_path / "hidden")
    found = load_disguised(tmp_path / "hidden", hs.load(tmp_path / "hidden" / "proof.safetensors"))
    assert found.verify() == hidden.verify()
    assert hs.verify(tmp_path / "hidden") == hidden.certificate
    assert all(np.array_equal(found.tensors[name], each) for name, each in hidden.tensors.items())
    with pytest.raises(hs.TargetError, match="no rewrite"):
        hidden.model.disguise(whisper=3)


@pytest.fixture(scope="module")
def idle(model: hs.Compiled) -> Disguised:
    return model.disguise(balance=True, decoys=2, seed=0)


def _decoy(hidden: Disguised) -> tuple[int, int]:
    """A head that is of none: its layer and number."""
    for layer in range(len(hidden.model.transformer.layers)):
        numbers = np.flatnonzero(hidden.tensors[f"heads.{layer}.of"] < 0)
        if len(numbers):
            return layer, int(numbers[0])
    raise AssertionError("there is no decoy")


def test_a_head_of_none_cannot_hide_what_it_writes_behind_a_mix() -> None:
    """Two rows of W_O that are alike, and a mix that subtracts one from the other: what the head writes is there."""
    idle = hs.compile(["sin(2*x)", "cos(2*x)"], {"x": (-1, 1)}, 1e-3).disguise(balance=True, decoys=2, seed=0)
    layer, head = _decoy(idle)
    tensors = {key: each.copy() for key, each in idle.tensors.items()}
    heads = len(tensors[f"heads.{layer}.of"])
    write, value = tensors[f"layers.{layer}.output.weight"], tensors[f"layers.{layer}.value.weight"]
    width = len(value) // heads
    assert width > 1
    rows = slice(head * width, (head + 1) * width)
    query = tensors[f"layers.{layer}.query.weight"]
    query[head * len(query) // heads : (head + 1) * len(query) // heads] = 0.0  # it looks at all tokens alike
    value[rows] = 0.0
    value[head * width] = tensors["embed.weight"].sum(axis=1)  # it reads the inputs
    write[:, rows] = 0.0
    write[:, head * width] = write[:, head * width + 1] = tensors["unembed.weight"][0]
    mix = np.eye(width)
    mix[0, 1] = -1.0
    tensors[f"heads.{layer}.values"][head] = mix
    tensors[f"heads.{layer}.devalues"][head] = np.linalg.inv(mix).round()
    claimed = replace(idle.certificate, error=2 * idle.certificate.error)  # there is room for what rounds otherwise
    forged = replace(idle, tensors=tensors, certificate=claimed)
    points = np.array([[0.9]])
    assert np.abs(forged(points) - idle(points)).max() > 2 * claimed.error
    with pytest.raises(hs.CertificateError):
        forged.verify()


@pytest.mark.parametrize("size", [1e160, 1e200, 1e300])
def test_weights_whose_products_overflow_are_refused(idle: Disguised, size: float) -> None:
    layer, head = _decoy(idle)
    for name, of in (("query", head), ("key", head), ("value", head), ("query", 0), ("key", 0), ("value", 0)):
        tensors = {key: each.copy() for key, each in idle.tensors.items()}
        weights = tensors[f"layers.{layer}.{name}.weight"]
        width = len(weights) // len(tensors[f"heads.{layer}.of"])
        weights[of * width : (of + 1) * width] *= size
        tensors["embed.weight"] *= size
        with pytest.raises(hs.CertificateError):
            replace(idle, tensors=tensors).verify()


def _with_columns(tensors: dict[str, np.ndarray], written: tuple[float, float], read: tuple[float, float]) -> None:
    """Two columns more, in which the first layer writes, and which the outputs read."""
    ends = {"layers.0.output.weight": (0, written), "unembed.weight": (1, read), "positions": (1, (0.0, 0.0))}
    ends |= {"references": (1, (0.0, 0.0)), "embed.weight": (0, (0.0, 0.0)), "embed.bias": (0, (0.0, 0.0))}
    ends |= {f"layers.0.{name}.weight": (1, (0.0, 0.0)) for name in ("query", "key", "value")}
    for name, (axis, values) in ends.items():
        shape = np.delete(tensors[name].shape, axis)
        more = [np.full(np.insert(shape, axis, 1), value) for value in values]
        tensors[name] = np.ascontiguousarray(np.concatenate([tensors[name], *more], axis), dtype=np.float32)


def test_matrices_in_other_formats_are_refused() -> None:
    """In float32 the kernel's own products round away what the model computes: 2^20 times 2^-24."""
    plain = disguise.with_margins(hs.compile("sin(2*x)", {"x": (-1, 1)}, 1e-3), 1e-4)
    hidden = plain.disguise(balance=True, seed=0)
    tensors = {name: each.astype(np.float32) for name, each in hidden.tensors.items()}
    one, both = 1.0 + 2.0**-12, 1.0 + 2.0**-11
    _with_columns(tensors, (2.0**20 * one, -(2.0**20) * both), (one, 1.0))
    claimed = replace(hidden.certificate, error=1e-3, parts=dict.fromkeys(hidden.certificate.parts, 0.001))
    claimed = replace(claimed, outputs=(1e-3,), max_score=1e3, max_weight=1e9)
    forged = replace(hidden, tensors=tensors, loss=disguise.Loss(1e-6, 1e-6), certificate=claimed)
    points = np.linspace(-1, 1, 41)[:, None]
    assert np.abs(forged(points) - np.sin(2 * points)).max() > 0.05
    with pytest.raises(hs.CertificateError, match="float64"):
        forged.verify()


def test_a_head_is_as_wide_as_what_mixes_it() -> None:
    """Three times the same feature would be three times the score."""
    mean = hs.compile_sequence(lambda x: over.mean(x[:, 0]), tokens=4, domain=(-1, 1), error=1e-3)
    hidden = mean.disguise(balance=True, seed=0)
    tensors = dict(hidden.tensors)
    for name in ("layers.0.query.weight", "layers.0.key.weight"):
        tensors[name] = np.repeat(tensors[name], 3, axis=0)
    with pytest.raises(hs.CertificateError, match="wide"):
        replace(hidden, tensors=tensors).verify()
    for name, change in (("references", np.zeros((1, 6))), ("positions", np.zeros((5, 6)))):
        with pytest.raises(hs.CertificateError, match="shape"):
            replace(hidden, tensors={**hidden.tensors, name: change}).verify()


@pytest.mark.parametrize("level", [1, 2])
def test_a_certificate_is_about_the_rewritten_matrices(
    model: hs.Compiled, level: int, rng: np.random.Generator
) -> None:
    hidden = model.disguise(level, seed=3)
    matrices = [each for name, each in hidden.tensors.items() if not name.startswith(("heads.", "stream."))]
    assert max(np.abs(each).max() for each in matrices) <= hidden.certificate.max_weight
    trace = hidden.machine.run(rng.uniform(-1, 1, (200, 1, 3)))
    for stream, (query, key, _, _) in zip(trace.streams, hidden.machine.layers, strict=False):
        scores = (stream[:, None] @ query) @ (stream[:, None] @ key).swapaxes(-1, -2)
        assert np.abs(scores).max() <= hidden.certificate.max_score


@pytest.mark.parametrize(
    ("name", "value"),
    [("outputs", [0.0]), ("tokens", 50), ("dtype", "float32"), ("max_score", 0.0), ("max_weight", 0.0), ("target", "")],
)
def test_every_field_of_a_claim_is_compared(name: str, value: object, hidden: Disguised, tmp_path: Path) -> None:
    hidden.save(tmp_path)
    told = json.loads((tmp_path / "disguise.json").read_text())
    told["claim"][name] = value
    (tmp_path / "disguise.json").write_text(json.dumps(told))
    with pytest.raises(hs.CertificateError, match=name):
        hs.verify(tmp_path)


def test_the_domain_of_a_claim_is_compared(hidden: Disguised, tmp_path: Path) -> None:
    hidden.save(tmp_path)
    told = json.loads((tmp_path / "disguise.json").read_text())
    told["domain"] = [[name, 100 * low, 100 * high] for name, low, high in told["domain"]]
    (tmp_path / "disguise.json").write_text(json.dumps(told))
    with pytest.raises(hs.CertificateError, match="domain"):
        hs.verify(tmp_path)


def test_whatever_is_changed_is_charged(rng: np.random.Generator) -> None:
    """Matrices with random errors in them, some in another basis: what the kernel charges covers what they do, at
    random inputs, at corners and at kinks."""
    model = hs.compile_sequence(lambda x: over.max(x[:, 0]) - over.mean(x[:, 0]), tokens=4, domain=(-1, 1), error=1e-6)
    plain = model.plain()
    points = np.concatenate([rng.uniform(-1, 1, (500, 4, 1)), rng.choice([-1.0, 0.0, 1.0], (500, 4, 1))])
    target = points.max(axis=1, keepdims=True) - points.mean(axis=1, keepdims=True)
    charged = []
    for trial in range(6):
        found = rewrites.matrices(Machine(plain.config, plain.tensors))
        tensors = rewrites.tensors_of(rewrites.rotate(found, rng) if trial % 2 else found)
        for name in rng.choice([each for each in tensors if not each.startswith("heads.")], 3, replace=False):
            size = 10.0 ** rng.uniform(-10, -7)
            tensors[name] = tensors[name] * (1.0 + size * rng.choice([-1.0, 1.0], tensors[name].shape))
        loss = disguise._loss(model, plain.tensors, tensors)
        certificate = disguise._certificate(model, plain.tensors, tensors, loss)
        other = Disguised(model, (), 0, tensors, loss, certificate)
        assert np.abs(other(points) - target).max() <= certificate.error
        charged.append(certificate.error - model.certificate.error)
    assert max(charged) > 1e-8


def test_a_hooked_transformer_computes_the_same(hidden: Disguised, rng: np.random.Generator) -> None:
    """The state dict, run as HookedTransformer runs it: scores over the root of d_head, the stream entered at layer
    0."""
    state, points = hooked(hidden), rng.uniform(-1, 1, (20, 3))
    stream = hidden.machine.run(points[:, None]).streams[0]
    for layer in range(2):
        weights = (state[f"blocks.{layer}.attn.W_{name}"] for name in "QKVO")
        query, key, value, write = weights
        q, k, v = (stream[:, None] @ each for each in (query, key, value))
        scores = q @ k.swapaxes(-1, -2) / np.sqrt(query.shape[2])
        scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
        stream = stream + (scores / scores.sum(axis=-1, keepdims=True) @ v @ write).sum(axis=1)
    outputs = stream[:, -1] @ state["unembed.W_U"] + state["unembed.b_U"]
    assert np.abs(outputs - hidden(points)).max() <= 1e-11
