"""Gates and products under other attentions than softmax: the lemmas at their extremal points, models that keep what is
proven of them, and forged files that are refused."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest
from helpers.attacks.saved import read as read_parts
from helpers.effort import tried
from helpers.models.networks import random_network
from test_heads import model, reads, sink
from test_heads_in_few_bits import TOY, rounded

import headsmith as hs
from headsmith.kernel.core.arithmetic import Upper
from headsmith.kernel.core.check import checked, proved
from headsmith.kernel.core.errors import Refused
from headsmith.kernel.core.heads import local_errors
from headsmith.kernel.core.softmax import APART, maximum
from headsmith.kernel.rules.attentions import GATES as OTHERS
from headsmith.lab.attack.rounding_oracle import plain_run
from headsmith.transformer.heads.attentions import ATTENTIONS, GATES, weights_of

SHARES = {kind: maximum(replace(model(sink()), attention=kind), np.array(1.0), 1, Upper(0.0)) for kind in APART}
PROVEN = {**OTHERS, **{kind: float(below.value) for kind, (below, _) in SHARES.items()}}
KINDS = [kind for kind in ATTENTIONS if kind not in ("softmax", "linear")]
DTYPES = ("float64", "float32")


def gate(kind: str, scores: Any) -> Any:
    """z s(z) of a gate of scale one, from the textbook's weights for the sink and the token itself."""
    scores = np.asarray(scores, dtype=float)
    queries, keys = scores[:, None, None], np.array([[0.0], [1.0]])
    if kind == "elu+1":
        queries, keys = np.concatenate([queries, -queries], axis=-1), np.array([[-700.0, 0.0], [0.0, -700.0]])
    if kind in ("sigmoid", "relu"):
        keys = keys[1:]
    weights = weights_of(kind, queries, keys, True)[:, 0, -1]
    return weights if kind == "relu" else weights * scores


@pytest.mark.parametrize("kind", KINDS)
def test_the_lemma_is_attained(kind: str) -> None:
    """No gate of scale one is further below the ReLU than its constant, or above; and some comes within 0.2 %."""
    z = np.concatenate([np.linspace(-30, 30, 60_001), np.linspace(-1.5, 1.5, 60_001)])
    below = np.maximum(z, 0.0) - gate(kind, z)
    assert below.min() >= -1e-15
    assert 0.998 * PROVEN[kind] <= below.max() <= PROVEN[kind]
    assert GATES[kind] == pytest.approx(PROVEN[kind], rel=1e-12)
    assert PROVEN["sigmoid"] > float(mpmath.lambertw(1 / mpmath.e).real)


def test_the_constant_of_elu_1_by_its_quadratic() -> None:
    """0.16 (1 + (1 + y) e^y) - y is at least a quadratic without zeros, as the proof says."""
    y = np.linspace(0.0, 20.0, 100_001)
    quadratic = 0.35608 * y**2 - 0.572704 * y + 0.231216
    assert np.all(0.16 * (1 + (1 + y) * np.exp(y)) - y >= quadratic - 1e-12)
    assert float(mpmath.exp(0.8)) >= 2.2255
    assert 0.572704**2 < 4 * 0.35608 * 0.231216


def pushed_gate(kind: str, z: Any, way: float, scale: float = 8.0, gain: float = 12.0) -> Any:
    """A gate in few bits, every rounding pushed so that its output is larger (or smaller, for a negative `way`): its
    weight up where z > 0, down where z < 0."""
    up = way * np.sign(z)

    def power(x: Any, to: Any) -> Any:
        return rounded(np.exp(x) * (1.0 + 7.9 * to * TOY.unit_roundoff))

    def phi(x: Any, to: Any) -> Any:
        return np.where(x > 0.0, rounded(1.0 + x, to), power(np.minimum(x, 0.0), to))

    t = rounded(scale * z, up)
    match kind:
        case "hardmax":
            weight = (t > 0.0) + 0.5 * (t == 0.0)
        case "relu":
            return np.maximum(z, 0.0)
        case "sigmoid":
            weight = rounded(1.0 / rounded(1.0 + power(-t, -up), -up), up)
        case "sparsemax":
            low = -np.abs(t)
            both = rounded(1.0 + 2.0 * low, up) > low
            lost = np.where(both, rounded(low - 1.0, -up) / 2.0, -1.0)
            weight = np.maximum(rounded(np.where(t > 0.0, -lost, low - lost), up), 0.0)
        case _:
            own, other, small = phi(t, up), phi(-t, -up), power(np.full_like(t, -gain), up)
            itself = rounded(own + rounded(other * small, up), up)
            sink = rounded(other + rounded(own * small, -up), -up)
            weight = rounded(itself / rounded(itself + sink, -up), up)
    return rounded(weight * z, way)


@pytest.mark.parametrize("kind", KINDS)
def test_gates_in_few_bits(kind: str, rng: np.random.Generator) -> None:
    """With every rounding pushed the worst way a gate stays within its lemma, and what rounding adds within its own."""
    z = rounded(
        np.concatenate([rng.uniform(-1, 1, 20_000), rng.normal(size=20_000) / 12, [0.0, 1.0, -1.0]]).clip(-1, 1)
    )
    only = sink(1.0 if kind == "relu" else 8.0, 12.0)
    found = local_errors(replace(model(only, precision=TOY), attention=kind, alone=True), only, reads(-1.0, 1.0))
    assert found.leak.value[0] == 0.0 or kind == "elu+1"
    smooth = gate(kind, 8.0 * z) / 8.0
    more, below = (found.leak + found.rounding).value[0], found.below.value[0]
    for way in (1.0, -1.0):
        out = pushed_gate(kind, z, way)
        assert np.all(out - np.maximum(z, 0.0) <= more)
        assert np.all(np.maximum(z, 0.0) - out <= below + more)
        assert np.abs(out - smooth).max() <= more
        assert np.all(np.abs(out) <= found.reach.value[0])


def corners_and_kinks(network: hs.Network, rng: np.random.Generator) -> Any:
    """Points where gates change sign, all around them, corners, and any."""
    points = rng.uniform(-1, 1, (tried(4000, 10), 2))
    (weights, bias), *_ = network.layers
    on = []
    for row, constant in zip(weights, bias, strict=True):
        off = (points @ row + constant) / (row @ row)
        for shift in (0.0, 1e-12, 1e-6, 1e-4, 1e-3, 1e-2):
            on += [points - np.outer(off - shift, row), points - np.outer(off + shift, row)]
    found = np.concatenate([points, np.array([[a, b] for a in (-1, 1) for b in (-1, 1)]), *on])
    return found[np.all(np.abs(found) <= 1.0, axis=1)]


@pytest.mark.again
@pytest.mark.one_in(2)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
def test_networks_stay_within_their_certificate(kind: Any, dtype: Any, rng: np.random.Generator) -> None:
    for seed, error in ((1, 1e-2), (2, 3e-4))[: tried(2, 2)]:
        network = random_network([2, 5, 4, 1], seed)
        model = hs.compile(network, (-1, 1), error, attention=kind, dtype=dtype)
        points = corners_and_kinks(network, rng)
        wanted = points
        for number, (weights, bias) in enumerate(network.layers):
            wanted = (np.maximum(wanted, 0.0) if number else wanted) @ weights.T + bias
        written = model.dense()
        causal = "full" not in model.certificate.masks
        textbook = plain_run(written, points[:, None], dtype, causal)[:, 0]
        for found in (model(points), model(points, fused=True), textbook):
            assert np.abs(found - wanted).max() <= model.certificate.error <= error
        exact = kind in ("hardmax", "relu")
        assert model.certificate.parts["softmax"] == 0.0 if exact else np.abs(textbook - wanted).max() > 0.1 * error
        assert model.bill.reference_tokens == (kind not in ("sigmoid", "relu"))


@pytest.mark.parametrize("dtype", DTYPES)
def test_linear_attention_multiplies_exactly(dtype: Any, rng: np.random.Generator) -> None:
    text, points = "3*x*y - x*x*y*y + (x + 2*y)**2", rng.uniform(-2, 2, (20_000, 2)).astype(dtype).astype(float)
    model = hs.compile(text, (-2, 2), 1e-2, attention="linear", dtype=dtype)
    x, y = points.T.astype(np.longdouble)
    wanted = 3 * x * y - x * x * y * y + (x + 2 * y) ** 2
    found = np.abs(model(points)[:, 0] - wanted).max()
    assert found <= model.certificate.error <= 400 * found
    assert model.certificate.parts["rounding"] == model.certificate.error
    assert np.array_equal(plain_run(model.dense(), points[:, None], dtype, False)[:, 0], model(points))
    assert hs.compile("x*y", (-1, 1), 1e-9, attention="linear").bill.heads == 1


def test_linear_attention_takes_powers_as_products(rng: np.random.Generator) -> None:
    """x^5 = (x^2)^2 x: three products, one after the other."""
    model = hs.compile("x**5 - y**3", (-1, 1), 1e-9, attention="linear")
    points = rng.uniform(-1, 1, (2000, 2))
    x, y = points.T.astype(np.longdouble)
    assert np.abs(model(points)[:, 0] - (x**5 - y**3)).max() <= model.certificate.error <= 1e-14
    assert (model.bill.layers, model.bill.heads) == (3, 5)


@pytest.mark.parametrize("target", ["relu(x)", "sin(x)", "1/(x + 2)", "(x + 2)**-2", "sqrt(x + 2)", "max(x, y)"])
def test_linear_attention_refuses_what_is_no_product(target: str) -> None:
    with pytest.raises(hs.TargetError, match="linear attention"):
        hs.compile(target, (-1, 1), 1e-6, attention="linear")


def forged(model: Any, path: Path, **changes: Any) -> tuple[Any, Any]:
    """The contents of a file with other fields of the transformer, or of its first bank."""
    model.save(path)
    header, tensors = read_parts(path)
    for name, value in changes.items():
        bank = header["transformer"]["layers"][0][0]
        if name in ("query_scale", "key_scale"):
            tensors[bank[name]] = tensors[bank[name]] * value
        else:
            (bank if name in bank else header["transformer"])[name] = value
    return header, tensors


@pytest.mark.parametrize(("one", "other"), list(pairwise([*KINDS, "linear", "softmax", KINDS[0]])))
def test_a_model_of_another_attention_is_another_model(one: Any, other: Any, tmp_path: Path) -> None:
    """A file that says another kind than it was made for is refused, or proves what is true of that kind."""
    if one == "linear":
        model = hs.compile("x*y", (-1, 1), 1e-9, attention="linear")
    else:
        model = hs.compile("abs(x)", (-1, 1), 1e-2, attention=one, mask="self+prefix" if one == "softmax" else None)
    header, tensors = forged(model, tmp_path / "model.safetensors", attention=other)
    try:
        found = proved(header, tensors)
    except Refused:
        return
    x = np.linspace(-1, 1, 4001)
    scale = float(
        model.transformer.layers[0].banks[0].query_scale[0] * model.transformer.layers[0].banks[0].key_scale[0]
    )
    other_gate = gate(other, scale * x) / scale if other != "softmax" else x / (1 + np.exp(-scale * x))
    assert np.abs(np.maximum(x, 0.0) - other_gate).max() <= found.error


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("relu", {"query_scale": 2.0}),
        ("relu", {"key_scale": 0.5}),
        ("elu+1", {"key_scale": 2.0}),
        ("sparsemax", {"reference_gain": 1.5}),
        ("hardmax", {"reference_gain": 0.0}),
        ("sigmoid", {"query_scale": 0.5}),
        ("sparsemax", {"query_scale": 0.9}),
        ("elu+1", {"reference_gain": 2.0}),
        ("sigmoid", {"alone": False}),
        ("sigmoid", {"attention": "tanh"}),
        ("sigmoid", {"attention": 3}),
        ("linear", {"attention": "softmax"}),
        ("linear", {"alone": False}),
    ],
)
def test_what_is_changed_is_refused(kind: Any, changes: Any, tmp_path: Path) -> None:
    target = "x*y" if kind == "linear" else "relu(x) - relu(y)"
    if "reference_gain" in changes and kind != "elu+1":
        target = "relu(relu(x) - relu(y)) + x"  # what reaches the sink matters to a second layer
    model = hs.compile(target, (-1, 1), 1e-2, attention=kind)
    with pytest.raises(Refused):
        checked(*forged(model, tmp_path / "model.safetensors", **changes))


def test_a_product_head_claims_nothing_but_products(tmp_path: Path) -> None:
    """The node that a product head claims becomes another function: refused."""
    model = hs.compile("x*y", (-1, 1), 1e-9, attention="linear")
    model.save(tmp_path / "model.safetensors")
    header, tensors = read_parts(tmp_path / "model.safetensors")
    for nodes in (header["source"]["nodes"], header["proof"]["circuit"]["nodes"]):
        for place, node in enumerate(nodes):
            if node["kind"] == "product":
                nodes[place] = {
                    "kind": "hypotenuse",
                    "left": node["left"],
                    "right": node["right"],
                    "size": node["size"],
                }
            elif node["kind"] == "expression":
                node["program"]["steps"] = [["over", 0, 1]]
    with pytest.raises(Refused):
        proved(header, tensors)


def test_alone_with_the_prefix_any_number_of_tokens_is_like_one(rng: np.random.Generator) -> None:
    """Under the mask self+prefix nothing leaks, and queries are as wide for 4,096 tokens as for one."""
    one = hs.compile("relu(x) + abs(y)", (-1, 1), 1e-4, recipe="relu")
    many = hs.compile("relu(x) + abs(y)", (-1, 1), 1e-4, recipe="relu", tokens=4096, mask="self+prefix")
    coded = hs.compile("relu(x) + abs(y)", (-1, 1), 1e-4, recipe="relu", tokens=4096)
    assert many.bill.d_head == one.bill.d_head == 2 < coded.bill.d_head
    assert many.certificate.parts["leak"] == one.certificate.parts["leak"] < coded.certificate.parts["leak"] + 1e-300
    assert "self+prefix" in many.certificate.masks
    assert "self+prefix" not in one.certificate.masks
    points, written = rng.uniform(-1, 1, (7, 2)), many.dense()
    stream = np.concatenate([written.references, points @ written.W_E + written.b_E + written.W_pos[0]])
    prefix = len(written.references)
    visible = np.eye(len(stream), dtype=bool)
    visible[:, :prefix] = True
    for layer in written.layers:
        weights = [
            weights_of("softmax", stream @ q, stream @ k, visible) for q, k in zip(layer.W_Q, layer.W_K, strict=True)
        ]
        parts = zip(weights, layer.W_V, layer.W_O, strict=True)
        stream = stream + sum(pattern @ (stream @ W_V) @ W_O for pattern, W_V, W_O in parts)
    outputs = stream[prefix:] @ written.W_U + written.b_U
    assert np.abs(outputs - many(points)).max() <= 2 * many.certificate.parts["rounding"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"attention": "gelu"}, "unknown attention"),
        ({"mask": "window"}, "unknown mask"),
        ({"attention": "elu+1", "tokens": 4}, r"mask='self\+prefix'"),
        ({"attention": "relu", "recipe": "ramp"}, "is for softmax attention"),
        ({"attention": "elu+1", "mask": "full"}, r"proven under causal and self\+prefix"),
        ({"mask": "self+prefix", "recipe": "maxout"}, "must see the others"),
    ],
)
def test_options_that_do_not_go_together(options: Any, message: str) -> None:
    with pytest.raises(hs.TargetError, match=message):
        hs.compile("relu(x)", (-1, 1), 1e-2, **options)
