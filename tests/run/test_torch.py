"""`model.to_torch()`: a plain module of linear maps and scaled_dot_product_attention, or of closed forms. It agrees
with numpy within the certificate's rounding part, has a place for hooks at every head, and is differentiable."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch
from helpers.models.networks import random_network

import headsmith as hs

over = hs.tokens
BOTH = pytest.mark.parametrize("fused", [False, True], ids=["textbook", "fused"])


def apart(model: Any, inputs: Any, **options: Any) -> float:
    """How far the module's outputs are from the model's."""
    module = model.to_torch(**options)
    with torch.no_grad():
        found = module(torch.tensor(inputs))
    mask = {"causal": options["causal"]} if "causal" in options else {}
    wanted = model(inputs, **mask)
    assert found.shape == wanted.shape
    assert found.numpy().dtype == wanted.dtype
    return float(np.abs(found.numpy() - wanted).max(initial=0.0))


def room(model: Any) -> float:
    """Both runs round; and the fused one leaves out what leaks."""
    return float(2.0 * model.certificate.parts["rounding"] + model.certificate.parts["leak"])


@BOTH
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("tokens", [1, 4])
def test_networks(tokens: int, causal: bool, dtype: str, fused: bool, rng: np.random.Generator) -> None:
    model = hs.compile(random_network([3, 6, 5, 2]), (-1, 1), 1e-2, tokens=tokens, dtype=dtype)
    for lead in ((), (7,), (2, 3), (0,)):
        shape = (*lead, 3) if tokens == 1 else (*lead, 3, 3)
        assert apart(model, rng.uniform(-1, 1, shape), fused=fused, causal=causal) <= room(model)


@BOTH
def test_every_kind_of_head(fused: bool, rng: np.random.Generator) -> None:
    """Tables, products, maxima of affine pieces, means, moves, attention."""
    for model in (
        hs.compile("exp(x) * y, x / (2 + y)", (-1, 1), 1e-3, tokens=2),
        hs.compile("max(x, y, -x)", (-1, 1), 1e-4, recipe="maxout"),
        hs.compile("relu(x)", (-1, 1), 1e-2, recipe="ramp"),
    ):
        shape = (5, len(model.box.names)) if model.called()["takes"] != "sequences" else (5, 2, 2)
        assert apart(model, rng.uniform(-1, 1, shape), fused=fused) <= room(model)
    for causal in (False, True):
        for program in (lambda x: x * over.mean(x), over.max, lambda x: over.attend(x[:, 0], x[:, 0], x[:, 0])):
            model = hs.compile_sequence(program, tokens=5, domain=(-1, 1), error=1e-3, causal=causal)
            assert apart(model, rng.uniform(-1, 1, (3, 4, 1)), fused=fused) <= room(model)
    model = hs.compile_sequence(over.sort, tokens=4, domain=(-1, 1), error=1e-3)
    assert apart(model, rng.uniform(-1, 1, (3, 4, 1)), fused=fused) <= room(model)
    with pytest.raises(ValueError, match="a sequence of 3 tokens; this model takes 4"):
        model.to_torch(fused=fused)(torch.zeros(3, 1))


def test_hooks_at_every_head() -> None:
    """A hook sees what one head returns, and what it returns takes its place."""
    model = hs.compile("relu(x) - relu(y)", (-1, 1), 1e-3, recipe="relu")
    module, seen = model.to_torch(), {}
    for name, head in module.layers[0].heads.named_children():
        head.register_forward_hook(lambda _, __, mean, name=name: seen.__setitem__(name, mean.detach()))
    x = torch.tensor([0.5, 0.25])
    plain = module(x)
    _, cache = model.run(x.numpy(), cache=True)
    for head in range(2):
        _, pattern, values = (cache[f"layer 1 / sink head {head} / {part}"] for part in ("scores", "pattern", "values"))
        np.testing.assert_allclose(seen[str(head)][0].numpy(), pattern @ values, atol=1e-12)
        np.testing.assert_allclose(module.layers[0].pattern(module.stream(x))[0, head].detach(), pattern, atol=1e-12)
    module.layers[0].heads[0].register_forward_hook(lambda _, __, mean: 0.0 * mean)
    assert abs((plain - module(x)).item() - 0.5) < 2e-3
    assert "sink head 0" in repr(module)


@BOTH
def test_it_is_differentiable(fused: bool) -> None:
    module = hs.compile("x * y", (-1, 1), 1e-6).to_torch(fused=fused)
    x = torch.tensor([0.5, 0.25], dtype=torch.float64, requires_grad=True)
    module(x).sum().backward()
    np.testing.assert_allclose(x.grad, [0.25, 0.5], atol=1e-3)
    assert all(each.grad is not None for name, each in module.named_parameters() if "layers.0.write" in name)
    network = hs.compile(random_network([3, 6, 2]), (-1, 1), 1e-3).to_torch(fused=fused)
    far = torch.full((1, 3), 100.0, dtype=torch.float64, requires_grad=True)
    network(far).sum().backward()
    assert torch.isfinite(far.grad).all()


@pytest.mark.one_in(2)
@BOTH
def test_it_can_be_compiled(fused: bool, rng: np.random.Generator) -> None:
    """torch.compile traces the whole module as one graph. (It takes seconds to load torch's compiler.)"""
    model = hs.compile(random_network([3, 6, 5, 2]), (-1, 1), 1e-3)
    quick = torch.compile(model.to_torch(fused=fused), backend="eager", fullgraph=True)
    points = rng.uniform(-1, 1, (7, 3))
    assert np.abs(quick(torch.tensor(points)).detach().numpy() - model(points)).max() <= room(model)


@BOTH
def test_other_dtypes_are_rounded(fused: bool) -> None:
    model = hs.compile("x * y", (-1, 1), 1e-3)
    found = model.to_torch(fused=fused, dtype="float32")(torch.tensor([0.5, 0.25]))
    assert found.dtype == torch.float32
    assert abs(found.item() - 0.125) < 2e-3
    with pytest.raises(hs.TargetError, match="unknown dtype 'half'"):
        model.to_torch(fused=fused, dtype="half")
    with pytest.raises(ValueError, match=r"expected a tensor \(..., 2\); got shape \(3,\)"):
        model.to_torch(fused=fused)(torch.zeros(3))


def test_masks_are_those_of_the_program() -> None:
    model = hs.compile_sequence(over.max, tokens=3, domain=(-1, 1), error=1e-3, causal=True)
    with pytest.raises(hs.DomainError, match="compiled with causal=True"):
        model.to_torch(causal=False)


def test_weights_are_those_of_the_model_bit_for_bit() -> None:
    model = hs.compile(random_network([3, 6, 5, 2]), (-1, 1), 1e-2, dtype="float32")
    weights, dense = model.to_torch().state_dict(), model.dense()
    for number, layer in enumerate(dense.layers):
        for name in ("query", "key", "value"):
            matrix = getattr(layer, f"W_{name[0].upper()}")
            held = weights[f"layers.{number}.{name}.weight"].numpy()
            assert np.array_equal(held.reshape(len(matrix), -1, dense.d_model).transpose(0, 2, 1), matrix.astype("f4"))


def test_without_torch_it_says_what_to_install() -> None:
    code = "import sys; sys.modules['torch'] = None; import headsmith as hs; hs.compile('x', (-1, 1), 1e-3).to_torch()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert 'to_torch needs torch: pip install "headsmith[torch]"' in done.stderr


def test_what_banks_of_a_layer_add_in_16_bits_is_rounded_once() -> None:
    """Two banks write to one register. Added to 256 one after the other, each 1 would be lost in bfloat16, and how much
    is lost would depend on their order, which no certificate counts; both together are 2."""
    model = hs.compile_sequence(
        lambda x: 256 + hs.relu(x) + hs.tokens.mean(x), tokens=2, domain=(-1, 1), error=50.0, dtype="bfloat16"
    )
    assert [[bank.kind for bank in layer.banks] for layer in model.transformer.layers] == [["sink", "mean"]]
    for fused in (False, True):
        assert model.to_torch(fused=fused)(torch.ones((1, 2, 1))).ravel().tolist() == [258.0, 258.0]
