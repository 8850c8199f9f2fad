"""Every kind of saved model with every command and every call: `load` returns what was saved, and a correct model is
never refuted.

Of the long tests `make test` takes every second or third kind, each another one; the campaign has the others."""

from __future__ import annotations

import json
from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from helpers.models.networks import random_network, square_network, square_of_squares

import headsmith as hs
from headsmith.cli import main
from headsmith.export.formats import FORMATS, STOCK, Wanted, contents
from headsmith.inside.intermediates import without_meaning
from headsmith.model import Compiled
from headsmith.report.told import MATRICES
from headsmith.sequence.learner import Learner

T = hs.tokens
LENSLESS = {"universal, a softmax": "ends in a softmax"}
LENSLESS |= dict.fromkeys(("affine", "no mixing"), "no layer of attention")
NEURONS = ("swiglu", "neurons", "neurons and means")
LENSLESS |= dict.fromkeys(NEURONS, "SwiGLU blocks")
SINGLE = ("float32", "swiglu", "neurons and means")
"""Models that a stock architecture holds."""
OTHERS = ("elu+1", "relu attention", "linear", "hardmax", "sparsemax", "sigmoid", "relu among tokens")
"""Models that other tools are not given: their attention is not softmax."""
HALVES = ("bfloat16", "float16", "half precision")
"""Models of 16 bits, which torch alone is given."""
QUIET = onnxruntime.SessionOptions()
QUIET.log_severity_level, QUIET.intra_op_num_threads = 3, 1


def sequence(program: Callable[[Any], Any], tokens: int = 5, error: float = 1e-4, **options: Any) -> Any:
    return hs.compile_sequence(program, tokens=tokens, domain=(-1, 1), error=error, **options)


pytestmark = pytest.mark.usefixtures("coarse_pictures")

KINDS: dict[str, tuple[type, Callable[[], Any]]] = {
    "native": (Compiled, lambda: hs.compile("x*y", (-1, 1), 1e-4)),
    "relu": (Compiled, lambda: hs.compile("abs(x)", (-1, 1), 1e-3, recipe="relu")),
    "ramp": (Compiled, lambda: hs.compile("relu(x)", (-1, 1), 1e-2, recipe="ramp")),
    "deep": (Compiled, lambda: hs.compile(random_network([2, *[4] * 5, 1], weight=0.7), (-1, 1), 1e-2)),
    "pieces": (Compiled, lambda: hs.compile("max(x, y, -x)", (-1, 1), 1e-4, recipe="maxout")),
    "three inputs": (Compiled, lambda: hs.compile("x*y + z, relu(z)", (-1, 1), 1e-3)),
    "tokens": (Compiled, lambda: hs.compile("x*y", (-1, 1), 1e-4, tokens=4)),
    "float32": (Compiled, lambda: hs.compile("x*y", (-1, 1), 1e-2, dtype="float32")),
    "bfloat16": (Compiled, lambda: hs.compile("x*y + relu(x)", (-1, 1), 0.6, dtype="bfloat16")),
    "float16": (Compiled, lambda: hs.compile("abs(x) + y", (-1, 1), 0.2, dtype="float16", tokens=3)),
    "half precision": (hs.CompiledSequence, lambda: sequence(T.mean, error=0.05, dtype="float16")),
    "approximates": (Compiled, lambda: hs.compile(square_network(2), (0, 1), 0.05, approximates="x*x")),
    "composition": (
        Compiled,
        lambda: hs.compile(square_of_squares(1), (0, 1), 0.3, approximates=lambda x, y: ((x * x + y * y) / 2) ** 2),
    ),
    "affine": (Compiled, lambda: hs.compile("2*x + 1", (-1, 1), 1e-3)),
    "elu+1": (Compiled, lambda: hs.compile("abs(x) + relu(y)", (-1, 1), 1e-3, attention="elu+1")),
    "relu attention": (Compiled, lambda: hs.compile("x*y", (-1, 1), 1e-1, attention="relu")),
    "linear": (Compiled, lambda: hs.compile("x*y + x*x*y", (-1, 1), 1e-9, attention="linear")),
    "hardmax": (hs.CompiledSequence, lambda: sequence(lambda x: T.sort(x) + T.mean(x), 4, attention="hardmax")),
    "sparsemax": (
        hs.CompiledSequence,
        lambda: sequence(lambda x: T.max(x) + hs.relu(T.shift(x, 1) - x), causal=True, attention="sparsemax"),
    ),
    "sigmoid": (Compiled, lambda: hs.compile("abs(x) + relu(y)", (-1, 1), 1e-3, attention="sigmoid", tokens=4)),
    "relu among tokens": (hs.CompiledSequence, lambda: sequence(T.sort, 4, 1e-3, dtype="float32", attention="relu")),
    "swiglu": (Compiled, lambda: hs.compile("x*y/(2 + max(x, y))", (-1, 1), 1e-3, recipe="swiglu", dtype="float32")),
    "neurons": (Compiled, lambda: hs.compile("x*y - relu(x - y)", (-1, 1), 1e-6, recipe="swiglu")),
    "alone": (Compiled, lambda: hs.compile("x*y", (-1, 1), 1e-4, tokens=9, mask="self+prefix")),
    "approximation": (Compiled, lambda: hs.approximate(np.sin, [(-1, 1)], 0.1, lipschitz=1.0)),
    "mean": (hs.CompiledSequence, lambda: sequence(lambda x: x - T.mean(x), 64, 1e-9)),
    "max": (hs.CompiledSequence, lambda: sequence(T.max, features=2)),
    "sort": (hs.CompiledSequence, lambda: sequence(T.sort, 4)),
    "shift": (hs.CompiledSequence, lambda: sequence(lambda x: T.shift(x, -1))),
    "causal": (hs.CompiledSequence, lambda: sequence(lambda x: T.cumulative_sum(x) + T.max(x), causal=True)),
    "attend": (hs.CompiledSequence, lambda: sequence(lambda x: T.attend(x[:, 0], x[:, 0], x[:, 0]))),
    "no mixing": (hs.CompiledSequence, lambda: sequence(lambda x: x * 2, causal=True)),
    "neurons and means": (
        hs.CompiledSequence,
        lambda: sequence(lambda x: T.mean(x * x) * x, causal=True, recipe="swiglu", dtype="float32"),
    ),
    "single precision": (hs.CompiledSequence, lambda: sequence(T.mean, error=1e-3, dtype="float32")),
    "ridge": (Learner, lambda: hs.in_context.ridge(0.5, 1, 2, 4, error=1e-3)),
    "lasso": (Learner, lambda: hs.in_context.lasso(0.05, 1, 1, 3, error=1e-2)),
    "logistic": (Learner, lambda: hs.in_context.logistic(1, 1, 3, error=1e-2)),
    "newton": (Learner, lambda: hs.in_context.newton(0.1, 1, 1, 3, error=1e-3, weights=True)),
    "kernel regression": (Learner, lambda: hs.in_context.kernel_regression(0.5, 1, 3, error=1e-3)),
    "reasoning": (hs.Reasoner, lambda: hs.iprm(slots=1, steps=1)),
    "universal": (hs.Universal, lambda: hs.universal(np.sin, 2, domain=(-1, 1), error=0.5, lipschitz=1.0)),
    "universal, a softmax": (
        hs.Universal,
        lambda: sequence(np.sin, 2, 0.5, lipschitz=1.0, architecture="one layer and a softmax"),
    ),
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Any, Path]]:
    """A model and its file, made once."""
    folder, made = tmp_path_factory.mktemp("kinds"), {}

    def of(name: str) -> tuple[Any, Path]:
        if name not in made:
            model, path = KINDS[name][1](), folder / f"{name}.safetensors"
            model.save(path)
            made[name] = model, path
        return made[name]

    return of


def inputs_of(model: Any) -> np.ndarray:
    """A sequence, or a point, inside the domain."""
    if isinstance(model, hs.Universal):
        return np.linspace(-0.5, 0.5, model.box.size).reshape(model.tokens, model.features)
    shape = (model.lengths[-1], model.box.size) if isinstance(model, hs.CompiledSequence) else (model.box.size,)
    if type(model) is Compiled and model.transformer.tokens > 1 and not model.blocks:
        shape = (2, *shape)
    middle, half = (model.box.high + model.box.low) / 2, (model.box.high - model.box.low) / 2
    return middle + half * np.cos(np.arange(np.prod(shape))).reshape(shape)


def shell(capsys: pytest.CaptureFixture[str], *arguments: Any) -> Any:
    with pytest.raises(SystemExit) as done:
        main([*map(str, arguments), "--json"])
    shown = capsys.readouterr()
    assert not done.value.code, shown.err + shown.out
    return json.loads(shown.out)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", KINDS)
def test_every_command(name: str, saved: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, path = saved(name)
    error = getattr(model, "model", model).certificate.error if name == "approximation" else model.certificate.error
    assert shell(capsys, "verify", path)["certificate"]["error"] <= error * (1 + 1e-9)
    assert shell(capsys, "bill", path)["bill"]["heads"] == model.bill.heads
    found = shell(capsys, "falsify", path, "--effort", 100)["found"]
    assert found["ratio"] <= 1.0
    loaded = hs.load(path)
    rows = np.atleast_2d(inputs_of(loaded))
    np.savetxt(tmp_path / "in.csv", rows, delimiter=",", fmt="%.17g")
    ran = shell(capsys, "run", path, "--csv", tmp_path / "in.csv")
    wanted = loaded(inputs_of(loaded))
    assert np.array_equal(np.array(ran["outputs"]).ravel(), wanted.ravel())
    assert ran["certificate"]["error"] == loaded.certificate.error
    text = shell(capsys, "explain", path)["text"]
    page = Path(shell(capsys, "explain", path, "-o", tmp_path / "told.html")["page"]).read_text(encoding="utf-8")
    assert all(escape(line) in page for line in text.splitlines())
    told = sum(len(layer.heads) for layer in loaded.layers) if model.bill.heads <= MATRICES else 0
    assert page.count("<details>") == told
    shown = shell(capsys, "page", path, "-o", tmp_path / "page.html")
    assert shown["bytes"] <= 300_000
    assert "cannot" not in shown
    shell(capsys, "plot", path, "-o", tmp_path / "picture.png", "--outputs", "0")
    assert (tmp_path / "picture.png").stat().st_size > 1_000
    heads = [head for layer in loaded.layers for head in layer.heads]
    if heads:
        shell(capsys, "plot", path, "-o", tmp_path / "head.png", "--head", heads[0].name)
        assert (tmp_path / "head.png").stat().st_size > 1_000


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", KINDS)
def test_every_call(name: str, saved: Any) -> None:
    model, path = saved(name)
    loaded = hs.load(path)
    assert type(loaded) is KINDS[name][0]
    x = inputs_of(loaded)
    assert np.array_equal(loaded(x), model(x))
    assert np.array_equal(loaded.run(x), loaded(x))
    for each in (model, path, str(path)):
        found = hs.falsify(each, effort=20)
        assert not found.refutes
        assert hs.verify(each).error <= loaded.certificate.error * (1 + 1e-9)
    assert loaded.verify().error == hs.verify(loaded).error
    output, cache = loaded.run(x, cache=True)
    assert np.abs(output - loaded(x)).max() <= 2 * loaded.certificate.parts["rounding"]
    assert np.array_equal(cache["output"].ravel()[: output.size], output.ravel())
    dense = loaded.dense()
    assert [len(layer.W_Q) for layer in dense.layers] == list(loaded.bill.heads_per_layer)
    assert dense.d_model == loaded.bill.d_model
    if isinstance(loaded, hs.CompiledSequence):
        assert loaded.masked is model.masked
        assert loaded.lengths == model.lengths


@pytest.mark.parametrize("name", KINDS)
def test_every_runtime(name: str, saved: Any) -> None:
    """numpy, torch and ONNX Runtime agree within the certificate's rounding part, attention written out or fused."""
    model = hs.load(saved(name)[1])
    x = inputs_of(model)
    wanted, parts = model(x), model.certificate.parts
    for fused in (False, True):
        if name in OTHERS and fused:
            assert np.abs(model(x, fused=fused) - wanted).max() <= 2 * parts["rounding"]
            for call in (model.to_torch, model.to_onnx):
                with pytest.raises(hs.TargetError, match="closed forms for other tools are those of softmax heads"):
                    call(fused=fused)
            continue
        with torch.no_grad():
            in_torch = model.to_torch(fused=fused)(torch.tensor(x))
        if name in HALVES:
            assert in_torch.dtype == getattr(torch, model.certificate.dtype)
            for found in (model(x, fused=fused), in_torch.float().numpy()):
                assert np.abs(found - wanted).max() <= 2 * parts["rounding"] + parts["leak"]
            with pytest.raises(hs.TargetError, match="exported to torch alone"):
                model.to_onnx(fused=fused)
            continue
        in_torch = in_torch.numpy()
        session = onnxruntime.InferenceSession(model.to_onnx(fused=fused).SerializeToString(), QUIET)
        (in_onnx,) = session.run(None, {"x": x[None].astype(wanted.dtype)})
        for found in (model(x, fused=fused), in_torch, in_onnx[0]):
            assert found.shape == wanted.shape
            assert found.dtype == wanted.dtype
            assert np.abs(found - wanted).max() <= 2 * parts["rounding"] + parts["leak"]


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", KINDS)
def test_every_export(name: str, saved: Any, tmp_path: Path) -> None:
    """Every kind goes to every tool, or is refused with a reason; what is written is proven."""
    model = hs.load(saved(name)[1])
    for to in FORMATS:
        if to == "rocq" and name != "ramp":
            # Of other models of one layer, as of ramps, there are theorems: tests/export/test_rocq.py.
            with pytest.raises(hs.TargetError, match="a theorem is written of"):
                contents(model, Wanted(to))
        elif to == "transformerlens" and name in LENSLESS:
            with pytest.raises(hs.TargetError, match=LENSLESS[name]):
                contents(model, Wanted(to))
        elif to == "transformerlens" and name in OTHERS:
            with pytest.raises(hs.TargetError, match="TransformerLens has softmax attention"):
                contents(model, Wanted(to))
        elif name in HALVES and to not in ("torch", "circuit", *STOCK):
            with pytest.raises(hs.TargetError, match="exported to torch alone"):
                contents(model, Wanted(to))
        elif to in STOCK and name not in SINGLE:
            with pytest.raises(hs.TargetError, match=r"does not go into a stock .*(float32|causal)"):
                contents(model, Wanted(to))
        elif to == "gpt2" and name in NEURONS:
            with pytest.raises(hs.TargetError, match="a GPT-2 has no SwiGLU blocks"):
                contents(model, Wanted(to))
        else:
            assert contents(model, Wanted(to)).keys() >= {"README.md", "export.json"}
    folder = model.export(tmp_path / "model", "torch")
    assert hs.verify(folder).error <= model.certificate.error * (1 + 1e-9)


@pytest.mark.parametrize("name", ["native", "relu", "pieces", "max", "causal", "ridge", "universal"])
def test_the_cache_shows_what_every_head_does(name: str, saved: Any) -> None:
    """Scores are queries times keys, patterns their softmax, outputs patterns times values; the stream adds them up."""
    model, _ = saved(name)
    _, cache = model.run(inputs_of(model), cache=True)
    heads = [key.removesuffix(" / pattern") for key in cache if key.endswith(" / pattern") and key.startswith("layer")]
    assert len(heads) == model.bill.heads
    dense = model.dense()
    layers = [(layer, head) for layer, each in enumerate(dense.layers) for head in range(len(each.W_Q))]
    added = [0.0] * model.bill.layers
    for head, (layer, place) in zip(heads, layers, strict=True):
        queries, keys, scores, values = (cache[f"{head} / {each}"] for each in ("queries", "keys", "scores", "values"))
        pattern, output = cache[f"{head} / pattern"], cache[f"{head} / output"]
        seen = np.isfinite(scores)
        np.testing.assert_allclose((queries @ keys.T)[seen], scores[seen], rtol=1e-9, atol=1e-9)
        powers = np.exp(scores - scores.max(axis=1, keepdims=True))
        np.testing.assert_allclose(powers / powers.sum(axis=1, keepdims=True), pattern, atol=1e-7)
        np.testing.assert_allclose(output, pattern @ values @ dense.layers[layer].W_O[place], atol=1e-12)
        added[layer] = added[layer] + output
    held, checked = {}, 0
    for key, after in cache.items():
        where, _, register = without_meaning(key).partition(" / register ")
        if register and where != "embedding":
            total = added[int(where.removeprefix("layer ")) - 1]
            rows, columns = len(after), dense.columns[register]
            np.testing.assert_allclose(after, held[register][-rows:] + total[-rows:, columns], atol=1e-7)
            checked += 1
        held[register] = after
    assert checked >= model.bill.layers


def test_outputs_are_chosen(saved: Any, tmp_path: Path) -> None:
    model, _ = saved("three inputs")
    hs.plot(model, output=tmp_path / "both.png", outputs=[0, 1], effort=50)
    curves = hs.compile("relu(x), abs(x)", (-1, 1), 1e-3)
    hs.plot(curves, tmp_path / "curves.svg", outputs=(0, 1), effort=50)
    for wrong in (2, -1, [], "y0", [0, 5], True):
        with pytest.raises(hs.TargetError):
            hs.plot(curves, tmp_path / "no.png", outputs=wrong, effort=50)
    with pytest.raises(FileNotFoundError, match=r"the folder .*missing does not exist"):
        hs.plot(curves, tmp_path / "missing" / "no.png")


def test_what_is_no_model_is_refused() -> None:
    for call in (hs.falsify, hs.verify, lambda given: hs.plot(given, "no.png")):
        for wrong in (3, None, np.zeros(3), ["a.safetensors"]):
            with pytest.raises(hs.TargetError, match="neither a model nor the path"):
                call(wrong)
    with pytest.raises(hs.FileFormatError, match="takes the path of a file"):
        hs.load(3)
