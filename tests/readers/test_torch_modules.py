"""Modules of torch become targets, whatever their class. Every reading compares itself with the module's own run, and
raises where they differ by more than rounding: so reading is the test."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import headsmith as hs
from headsmith.kernel.core.check import check_file

torch = pytest.importorskip("torch")
nn = torch.nn
F = nn.functional

from helpers.models.trained import FIRST_UNSEEN, Convolutional, Residual, check_predictions, digits, train  # noqa: E402


class Written(nn.Module):
    """A module whose forward is a function, or several whose results stand one after another."""

    def __init__(self, *functions: Callable[..., Any], layers: tuple[Any, ...] = ()) -> None:
        super().__init__()
        self.functions, self.layers = functions, nn.ModuleList(layers)

    def forward(self, *x: Any) -> Any:
        found = [each(*x).flatten(1) for each in (*self.functions, *self.layers)]
        return torch.cat(found, 1)


def read(module: Any, *shape: int) -> hs.Imported:
    torch.manual_seed(0)
    found = hs.from_torch(module, torch.randn(4, *shape))
    assert found.difference is not None
    assert found.difference.largest < 1e-4
    return found


def kinds(found: hs.Imported) -> set[str]:
    return {type(node).__name__ for node in found.graph.nodes}


def test_piecewise_linear_functions_are_affine_maps_and_gates() -> None:
    several = read(
        Written(
            F.relu,
            F.leaky_relu,
            F.relu6,
            F.hardtanh,
            F.hardsigmoid,
            torch.abs,
            lambda x: x.clamp(min=0.1),
            lambda x: x.clamp(max=0.1),
            lambda x: x.clamp(-0.5, 0.25),
            layers=(nn.PReLU(), nn.PReLU(6), nn.RReLU(), nn.Threshold(0.1, 0.1)),
        ),
        6,
    )
    assert kinds(several) == {"Input", "Affine", "Relu"}


def test_smooth_functions_products_and_quotients() -> None:
    several = read(
        Written(
            *(
                F.gelu,
                F.silu,
                F.softplus,
                F.elu,
                F.selu,
                F.celu,
                F.mish,
                F.logsigmoid,
                F.softsign,
                F.hardswish,
                F.tanhshrink,
            ),
            *(torch.sigmoid, torch.tanh, torch.exp, torch.sin, torch.erf, torch.expm1, torch.square, torch.atan),
            lambda x: F.gelu(x, approximate="tanh"),
            lambda x: F.softplus(x, beta=2.0),
            lambda x: x / (x**2 + 1),
            lambda x: torch.rsqrt(1 + x * x) + 2.0**x + x**3,
            lambda x: torch.log(1 + x.abs()) * torch.sqrt(1 + x.abs()),
            lambda x: x[:, :3] * x[:, 3:] - 1 / (2 + torch.sin(x[:, :3])),
        ),
        6,
    )
    assert {"Product", "Quotient", "Function"} <= kinds(several)


def test_over_axes() -> None:
    pairs = lambda x: x.view(-1, 3, 2)  # noqa: E731
    read(
        Written(
            *(lambda x: x.softmax(-1), lambda x: x.log_softmax(-1), lambda x: pairs(x).softmax(-1)),
            lambda x: x.logsumexp(1, keepdim=True),
            lambda x: pairs(x).max(-1)[0] + pairs(x).min(-1)[0] + pairs(x).amax(2),
            lambda x: torch.maximum(x, 2 * x) - torch.minimum(x, 1 - x),
            lambda x: pairs(x).sum(1) + pairs(x).mean(1) + pairs(x).prod(1),
            lambda x: x.var(1, keepdim=True) + x.norm(dim=1, keepdim=True) + x.norm(p=1, dim=1, keepdim=True),
            lambda x: pairs(x) @ pairs(x).transpose(1, 2),
            lambda x: F.layer_norm(x, (6,)) + F.normalize(x, dim=1) + x.cumsum(1),
            lambda x: F.scaled_dot_product_attention(pairs(x), pairs(x), pairs(x)),
        ),
        6,
    )


def test_moving_numbers_makes_no_node_of_its_own() -> None:
    moved = read(
        Written(lambda x: x.view(-1, 3, 2).transpose(1, 2)[:, :, 1:].flip(1).roll(1, 2).repeat(1, 2, 1).unsqueeze(1)), 6
    )
    assert len(moved.graph.nodes) == 2
    read(
        Written(
            lambda x: torch.cat([x[:, 2:], x[:, :2] ** 2, torch.ones_like(x)], 1),
            lambda x: torch.stack(x.split([2, 4], 1)[1].chunk(2, 1), 1),
            lambda x: F.pad(x, (1, 2), value=3.0) + F.pad(x, (-1, 4)),
            lambda x: torch.where(torch.arange(6) < 2, x, -x) + torch.tril(x.view(-1, 3, 2)).flatten(1),
            lambda x: x[:, [0, 0, 3]] + x.view(-1, 3, 2).permute(0, 2, 1).reshape(-1, 6)[:, ::2],
        ),
        6,
    )


def test_convolutions() -> None:
    read(Written(layers=(nn.Conv1d(4, 6, 3, 2, 1, 2), nn.ConvTranspose1d(4, 2, 3, 2, 1, 1))), 4, 7)
    read(
        Written(
            layers=(
                nn.Conv2d(4, 6, (3, 2), (2, 1), (1, 0), groups=2),
                nn.ConvTranspose2d(4, 6, 3, 2, 1, 1, groups=2, dilation=2),
                nn.Conv2d(4, 2, 3, padding="same", padding_mode="circular"),
                nn.Conv2d(4, 2, 3, padding=1, padding_mode="reflect", bias=False),
            )
        ),
        *(4, 5, 6),
    )


def test_pooling() -> None:
    read(
        Written(
            layers=(nn.MaxPool1d(3, 2, 1), nn.AvgPool1d(3, 2, 1), nn.AdaptiveAvgPool1d(4), nn.AdaptiveMaxPool1d(4))
        ),
        3,
        9,
    )
    read(
        Written(
            layers=(
                nn.MaxPool2d(3, 2, 1, ceil_mode=True),
                nn.AvgPool2d(3, 2, 1, ceil_mode=True),
                nn.AvgPool2d(3, 2, 1, ceil_mode=True, count_include_pad=False),
                nn.AvgPool2d(2, divisor_override=3),
                nn.AdaptiveAvgPool2d((3, None)),
                nn.AdaptiveMaxPool2d((3, 5)),
                nn.Upsample(scale_factor=2, mode="bilinear"),
                nn.Sequential(nn.ZeroPad2d(1), nn.MaxPool2d(2)),
            )
        ),
        *(3, 8, 7),
    )


def test_gates_before_max_pooling_come_after_it() -> None:
    found = read(nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)), 1, 4, 4)
    assert found.graph.gates == 8


def test_max_pooling_beyond_the_edges_compiles() -> None:
    """Windows at the edge have fewer entries than others."""
    module = nn.Sequential(nn.MaxPool1d(3, stride=1, padding=1), nn.Sigmoid())
    model = hs.compile(read(module, 1, 5), domain=(-1, 1), error=1e-2)
    inputs = torch.rand(50, 1, 5, dtype=torch.float64) * 2.0 - 1.0
    wanted = module(inputs).numpy().reshape(50, 5)
    assert np.abs(model(inputs.numpy().reshape(50, 5)) - wanted).max() <= model.certificate.error <= 1e-2


def test_layers_read_what_is_laid_end_to_end_where_it_is() -> None:
    module = nn.Sequential(Written(torch.relu, lambda x: x), nn.Linear(6, 2))
    found = read(module, 3)
    assert [type(node).__name__ for node in found.graph.nodes] == ["Input", "Relu", "Affine"]


def test_norms() -> None:
    torch.manual_seed(0)
    layers = (
        nn.BatchNorm2d(4),
        nn.BatchNorm2d(4, affine=False),
        nn.GroupNorm(2, 4),
        nn.InstanceNorm2d(4),
        nn.LayerNorm(3),
    )
    module = Written(layers=layers)
    for _ in range(3):
        module(torch.randn(8, 4, 3, 3) * 2 + 1)
    found = read(module, 4, 3, 3)
    assert module.training
    assert any("inference mode" in note for note in found.notes)
    assert any("BatchNorm" in note for note in found.notes)
    assert kinds(read(nn.BatchNorm1d(4), 4)) == {"Input", "Affine"}


def test_whole_architectures() -> None:
    assert read(nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), 3, 4).output_shape == (3, 4)
    assert read(nn.LSTM(3, 4, batch_first=True), 3, 3).notes == ("3 outputs are one after another",)
    two = hs.from_torch(nn.Bilinear(3, 4, 2), (torch.randn(5, 3), torch.randn(5, 4)))
    assert two.graph.input.size == 7


def test_weights_are_taken_exactly_and_the_networks_own_rounding_is_said() -> None:
    for kind, most in ((torch.float64, 1e-12), (torch.float32, 1e-5), (torch.bfloat16, 1e-1)):
        layer = nn.Linear(3, 2).to(kind)
        found = hs.from_torch(layer, torch.randn(4, 3))
        weights = found.graph.nodes[1].terms[0].weights  # type: ignore[union-attr]
        np.testing.assert_array_equal(weights, layer.weight.detach().double().numpy())
        assert found.difference is not None
        assert found.difference.largest <= most
        assert "(an estimate)" in repr(found)
        assert str(kind).removeprefix("torch.") in repr(found)


def test_inputs_are_flat_or_of_the_networks_shape() -> None:
    module = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten())
    found = hs.from_torch(module, torch.randn(5, 1, 4, 4))
    images = np.random.default_rng(0).normal(size=(5, 1, 4, 4))
    np.testing.assert_array_equal(found(images), found(images.reshape(5, 16)))
    assert found.input_shape == (1, 4, 4)
    assert found.output_shape == (8,)
    with pytest.raises(hs.TargetError, match=r"takes \(\.\.\., 1, 4, 4\) or \(\.\.\., 16\)"):
        found(np.zeros((5, 4)))
    single = hs.from_torch(nn.Linear(3, 2), torch.randn(3))
    assert single.output_shape == (2,)
    assert hs.from_torch(nn.Linear(3, 2)).input_shape == (3,)
    with pytest.raises(hs.TargetError, match="Give an example"):
        hs.from_torch(module)


@pytest.mark.parametrize(
    ("module", "says"),
    [
        (Written(torch.round), r"round in the module's own forward.* jumps.*These are: .*relu"),
        (Written(lambda x: torch.where(x > 0, x, 2 * x)), "compar"),
        (nn.Threshold(0.1, 3.0), "it jumps from 3 to 0.1 at 0.1"),
        (Written(lambda x: F.dropout(x, 0.5, True)), "random"),
        (Written(lambda x: x - x.mean(0)), "mix the rows"),
        (
            nn.Sequential(nn.Linear(6, 3), nn.BatchNorm1d(3, track_running_stats=False)),
            r"1 \(BatchNorm1d\).*the other rows",
        ),
        (nn.Sequential(nn.Linear(6, 3), Written(torch.sign)), r"sign in the layer 1 \(Written\)"),
        (Written(lambda x: x if x.sum() > 0 else -x), "torch.export cannot say"),
        (nn.Linear(5, 3), "torch.export cannot say"),
    ],
)
def test_what_is_not_read_is_named_with_its_place_and_reason(module: Any, says: str) -> None:
    with pytest.raises(hs.TargetError, match=says):
        hs.from_torch(module, torch.randn(4, 6))


def test_files_and_other_things_are_refused() -> None:
    with pytest.raises(hs.TargetError, match="pickles, which run code"):
        hs.from_torch("net.pt", torch.zeros(1, 2))
    with pytest.raises(hs.TargetError, match="not a dict"):
        hs.from_torch({}, torch.zeros(1, 2))
    with pytest.raises(hs.TargetError, match=r"torch module \(Linear\).*hs\.from_torch"):
        hs.compile(nn.Linear(2, 1), (-1, 1))


@pytest.mark.one_in(2)
@pytest.mark.parametrize("kind", [Convolutional, Residual])
def test_trained_networks_predict_the_same_wherever_the_certificate_says_so(kind: Any) -> None:
    torch.manual_seed(0)
    module = train(kind())
    images, labels = digits()
    network = hs.from_torch(module, images[:8])
    model = hs.compile(network, (0, 1), 1e-3)
    with torch.no_grad():
        theirs = module(torch.as_tensor(images[FIRST_UNSEEN:])).double().numpy()
    assert (theirs.argmax(axis=1) == labels[FIRST_UNSEEN:]).mean() > 0.7
    assert network.difference is not None
    check_predictions(model, network.difference.largest, theirs, images[FIRST_UNSEEN:], labels[FIRST_UNSEEN:])


def test_smooth_networks_are_saved_with_a_proof(tmp_path: Any) -> None:
    torch.manual_seed(0)
    for activation in (nn.GELU(), nn.SiLU(), nn.Softmax(-1)):
        module = nn.Sequential(nn.Linear(16, 3), activation)
        model = hs.compile(hs.from_torch(module), (-1, 1), 1e-2)
        path = tmp_path / "model.safetensors"
        model.save(path)
        assert check_file(path).error <= 1e-2


def test_hard_swish_convolutions_take_a_head_a_unit() -> None:
    """x relu6(x + 3) / 6 is one product with a stretch of relu6, which is affine where x stays within (-3, 3): 64 units
    a layer, two layers, no circuits of gates."""
    torch.manual_seed(0)
    first, deep = nn.Conv2d(1, 4, 3, stride=2, padding=1), nn.Conv2d(4, 4, 3, padding=1, groups=4)
    pool = (nn.Conv2d(4, 8, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10))
    norms = (nn.BatchNorm2d(4), nn.BatchNorm2d(4))
    module = nn.Sequential(first, norms[0], nn.Hardswish(), deep, norms[1], nn.Hardswish(), *pool).eval()
    model = hs.compile(read(module, 1, 8, 8), domain=(0, 1), error=1e-3)
    assert (model.bill.layers, model.bill.heads) == (2, 128)
    inputs = torch.rand(50, 1, 8, 8, dtype=torch.float64)
    wanted = module.double()(inputs).detach().numpy()
    assert np.abs(model(inputs.numpy().reshape(50, 64)) - wanted).max() <= model.certificate.error <= 1e-3
