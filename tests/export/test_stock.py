"""Certified models as stock Llamas: norms, rotations and MLPs change nothing, bit for bit, so the certificate stays;
and whatever is changed in a folder is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.models.networks import random_network
from safetensors.numpy import load_file, save_file

import headsmith as hs
from headsmith.cli import main
from headsmith.export.stock import as_stock
from headsmith.kernel.errors import Refused
from headsmith.kernel.reading import read
from headsmith.kernel.stock import Stock, check_folder, refuse_others, stock
from headsmith.run import gpt2, llama

T = hs.tokens


def sequence(program: Callable[[Any], Any], **options: Any) -> Any:
    options = {"tokens": 5, "causal": True, "dtype": "float32", "error": 1e-2} | options
    return hs.compile_sequence(program, domain=(-1, 1), **options)


MODELS: dict[str, Callable[[], Any]] = {
    "product": lambda: hs.compile("x*y", (-1, 1), 1e-3, dtype="float32"),
    "table": lambda: hs.compile("exp(x)/2 + y, relu(x)", (-1, 1), 1e-2, dtype="float32"),
    "ramp": lambda: hs.compile("relu(x)", (-1, 1), 5e-2, dtype="float32", recipe="ramp"),
    "network": lambda: hs.compile(random_network([3, 6, 5, 2]), (-1, 1), 1e-1, dtype="float32"),
    "tokens": lambda: hs.compile("x*abs(y)", (-1, 1), 1e-2, dtype="float32", tokens=3),
    "mean and maximum": lambda: sequence(lambda x: T.cumulative_sum(x) + T.max(x)),
    "shift": lambda: sequence(lambda x: x * T.shift(x, 1)),
    "neurons": lambda: hs.compile("x*y - relu(y)*x", (-1, 1), 1e-3, dtype="float32", recipe="swiglu"),
    "heads and neurons": lambda: hs.compile("y*x/(2 + y)", (-1, 1), 1e-2, dtype="float32", recipe="swiglu"),
    "means of products": lambda: sequence(lambda x: T.mean(x * x) * x, recipe="swiglu"),
    "attention": lambda: sequence(lambda x: T.attend(x[:, 0], x[:, 0], x[:, 0])),
}


@pytest.fixture(scope="module", params=MODELS)
def model(request: pytest.FixtureRequest) -> Any:
    return MODELS[request.param]()


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(MODELS["product"]().export(tmp_path_factory.mktemp("stock") / "product", "llama"))


@pytest.fixture
def copied(exported: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(exported, tmp_path / "product"))


def points(model: Any, rng: np.random.Generator) -> Any:
    tokens, inputs = model.transformer.tokens, model.box.size
    shape = (512, inputs) if tokens == 1 else (100, tokens, inputs)
    return rng.uniform(-1, 1, shape).astype(np.float32)


def test_it_computes_what_the_model_computes(model: Any, rng: np.random.Generator) -> None:
    found, x = model.to_stock("llama"), points(model, rng)
    options = {"causal": True} if type(model) is hs.Compiled and model.transformer.tokens > 1 else {}
    assert found(x).dtype == np.float32
    assert np.abs(found(x) - model(x.astype(np.float64), **options)).max() <= 2.0 * model.certificate.parts["rounding"]
    assert found.certificate.error <= model.certificate.error * (1 + 1e-9)
    assert any("float32" in each for each in found.certificate.assumes)
    assert found.config["hidden_size"] % found.config["num_attention_heads"] == 0  # or transformers refuses it


def test_norms_and_rotations_change_no_bit(
    model: Any, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same run without them gives the same bits; only numbers that a norm makes subnormal may lose some."""
    found, x = model.to_stock("llama"), points(model, rng)
    whole = found(x)
    monkeypatch.setattr(llama, "norm", lambda x, weight, epsilon: x)
    monkeypatch.setattr(llama, "rotated", lambda x, rotation: x)
    without = found(x)
    seen = np.abs(without) > 2.0**-100
    assert np.array_equal(whole[seen], without[seen])
    assert np.abs(whole - without).max() < 2.0**-120


def test_its_matrices_are_those_that_are_written_out(model: Any) -> None:
    """The kernel writes them from its own reading of the model, and `dense` from the compiler's."""
    found, dense = model.to_stock("llama"), model.dense()
    columns, width, root = dense.d_model, found.config["head_dim"], float(np.sqrt(found.config["head_dim"]))
    blocks: list[list[Any]] = []  # a layer of neurons is the MLP of the heads before it, or of a block without heads
    for layer in dense.layers:
        if layer.neurons and blocks and not blocks[-1][-1].neurons:
            blocks[-1].append(layer)
        else:
            blocks.append([layer])
    assert found.config["num_hidden_layers"] == len(blocks)
    for number, block in enumerate(blocks):
        held = {name: found.tensors[f"model.layers.{number}.mlp.{name}_proj.weight"] for name in ("gate", "up", "down")}
        if not block[-1].neurons:
            assert not any(each.any() for each in held.values())
        else:
            for name, wanted in (("gate", block[-1].W_gate.T), ("up", block[-1].W_up.T), ("down", block[-1].W_down)):
                mine = held[name].T if name == "down" else held[name]
                assert np.array_equal(mine[: len(wanted), :columns], wanted.astype(np.float32))
                assert np.count_nonzero(mine) == np.count_nonzero(wanted)
    for number, (layer, *_) in enumerate(blocks):
        if layer.neurons:
            continue
        for name, matrix, scale in (("q", layer.W_Q, root), ("k", layer.W_K, 1), ("v", layer.W_V, 1)):
            held = found.tensors[f"model.layers.{number}.self_attn.{name}_proj.weight"]
            apart = held.reshape(-1, width, held.shape[1])
            heads, _, features = matrix.shape
            wanted = (matrix.transpose(0, 2, 1) * scale).astype(np.float32)
            assert np.array_equal(apart[:heads, :features, :columns], wanted)
            assert np.count_nonzero(apart) == np.count_nonzero(wanted)
        held = found.tensors[f"model.layers.{number}.self_attn.o_proj.weight"].T.reshape(-1, width, held.shape[1])
        assert np.array_equal(held[: len(layer.W_O), : layer.W_O.shape[1], :columns], layer.W_O.astype(np.float32))
    table = found.tensors["model.embed_tokens.weight"][:, :columns]
    data = len(dense.references) + found.tokens
    assert np.array_equal(table[: len(dense.references)], dense.references)
    assert np.array_equal(table[len(dense.references) : data], (dense.b_E + dense.W_pos).astype(np.float32))
    assert np.array_equal(table[data : data + len(dense.W_E)], dense.W_E.astype(np.float32))


def test_registers_that_are_cleared_count_while_they_are_large(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A deep network clears its registers: what a norm sees in the middle is larger than what is there at the end."""
    random = np.random.default_rng(1)
    layers = [(0.8 * random.normal(size=(b, a)), np.zeros(b)) for a, b in pairwise([3, *[8] * 8])]
    layers[-1] = layers[-1][0] * 0.05, layers[-1][1] * 0.05
    layers += [(0.1 * random.normal(size=(1, 8)), np.zeros(1))]
    model = hs.compile(hs.Network(layers), (-1, 1), 1.0, dtype="float32")
    assert {bank.kind for layer in model.transformer.layers for bank in layer.banks} > {"sink"}  # so some are cleared
    found, norm, seen = model.to_stock("llama"), llama.norm, []

    def watched(x: Any, weight: Any, epsilon: float) -> Any:
        rest = np.sort(np.abs(x.astype(np.float64)), axis=-1)[..., :-1]
        seen.append(float((rest**2).sum(axis=-1).max()))
        assert np.array_equal(norm(x, weight, epsilon)[np.abs(x) > 1e-30], x[np.abs(x) > 1e-30])
        return norm(x, weight, epsilon)

    monkeypatch.setattr(llama, "norm", watched)
    found(points(model, rng))
    assert max(seen) > 2.0 * seen[-1]
    assert max(seen) < 2.0**-24 * float(found.table.max()) ** 2


def test_a_norm_with_a_smaller_constant_is_no_identity(rng: np.random.Generator) -> None:
    """The constant is the smallest power of two that the lemma allows; four steps further down bits do change."""
    found = MODELS["product"]().to_stock("llama")
    x, root = found.embed(rng.uniform(-1, 1, (4096, 2))), found.tensors["model.norm.weight"][0]
    assert np.array_equal(llama.norm(x, np.full(16, root, np.float32), 1e-6), x)
    x[..., x[0, 0].argmax()] /= 16.0
    assert not np.array_equal(llama.norm(x, np.full(16, root / 16.0, np.float32), 1e-6), x)


# GPT-2 --------------------------------------------------------------------------------------------------------------

GPT2 = {
    "product": lambda: hs.compile("x*y", (-1, 1), 2e-4, dtype="float32"),
    "network": lambda: hs.compile(random_network([2, 3, 1]), (-1, 1), 1e-1, dtype="float32"),
    "table": lambda: hs.compile("exp(x)", (-1, 1), 1e-2, dtype="float32"),
    "cleared": lambda: hs.compile(random_network([2, *[8] * 5, 1], weight=0.7), (-1, 1), 1e-1, dtype="float32"),
    "means": lambda: sequence(lambda x: T.mean(x) - T.shift(x, 1), error=1e-3),
    "maximum": lambda: sequence(T.max),
    "products": lambda: sequence(lambda x: x * T.shift(x, 1)),
    "attention": lambda: sequence(lambda x: T.attend(x[:, 0], x[:, 0], x[:, 0])),
}


@pytest.fixture(scope="module", params=GPT2)
def other(request: pytest.FixtureRequest) -> Any:
    return GPT2[request.param]()


def test_a_gpt2_stays_within_its_certificate(other: Any, rng: np.random.Generator) -> None:
    found, x = other.to_stock("gpt2"), points(other, rng)
    assert np.abs(found(x) - other(x.astype(np.float64))).max() <= found.certificate.parts["rounding"]
    assert other.certificate.error < found.certificate.error
    assert any("LayerNorm computes the mean" in each for each in found.certificate.assumes)
    for name in ("c_attn", "c_proj"):
        assert np.abs(found.tensors[f"transformer.h.0.attn.{name}.weight"]).max() < 1e4


def test_the_worst_norms_stay_within_the_certificate(
    other: Any, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Means and inverse roots are as wrong as the certificate assumes at most, and every rounding is the largest one,
    with signs at random for each token, the same for all, or those of something that tokens hold."""
    found, u = other.to_stock("gpt2"), 2.0**-24

    def worst(x: Any, weight: Any, bias: Any, epsilon: float) -> Any:
        x = x.astype(np.float64)

        def signs(*shape: int) -> Any:
            if rng.integers(3) == 0:
                column = int(rng.integers(x.shape[-1]))
                return np.broadcast_to(np.where(x[..., column : column + 1] > 0.0, 1.0, -1.0), shape)
            return rng.choice([-1.0, 1.0], shape if rng.integers(2) else [1] * len(shape))

        mean = x.mean(axis=-1, keepdims=True) + signs(*x.shape[:-1], 1) * 5 * u * np.abs(x).sum(-1, keepdims=True)
        inverse = (1.0 + signs(*x.shape[:-1], 1) * 8 * u) / np.sqrt(x.var(axis=-1, keepdims=True) + epsilon)
        return ((x - mean) * inverse * weight * (1.0 + 4 * u * signs(*x.shape))).astype(np.float32)

    monkeypatch.setattr(gpt2, "norm", worst)
    x = points(other, rng)
    exact = other(x.astype(np.float64))
    worst_error = max(float(np.abs(found(x) - exact).max()) for _ in range(20))
    assert 1e-7 < worst_error <= found.certificate.parts["rounding"]


def test_every_part_of_a_gpt2_is_compared(tmp_path: Path, rng: np.random.Generator) -> None:
    folder = GPT2["table"]().export(tmp_path / "exp", "gpt2")
    certificate, path = hs.verify(folder), folder / "model.safetensors"
    assert f"{certificate.error:.3g}" in (folder / "README.md").read_text()
    header, tensors = read(folder / "proof.safetensors")
    proven, held = stock(header, tensors, "gpt2"), load_file(path)
    config = json.loads((folder / "config.json").read_text())
    refuse_others(proven, config, held)
    for name, values in held.items():
        for _ in range(20):
            changed, place = values.copy(), tuple(int(rng.integers(size)) for size in values.shape)
            changed[place] = np.nextafter(changed[place], np.float32(np.inf))
            with pytest.raises(Refused, match=r"model.safetensors: .* is .*, and .* in the proven model"):
                refuse_others(proven, config, held | {name: changed})
    for name in config:
        with pytest.raises(Refused, match=r"config.json"):
            refuse_others(proven, config | {name: "other"}, held)
    norms = {name: value * np.float32(0.25) for name, value in held.items() if "ln_" in name}
    save_file({**held, **norms}, path, metadata={"format": "pt"})
    with pytest.raises(hs.CertificateError, match="normed away"):
        hs.verify(folder)


def test_what_a_gpt2_cannot_hold() -> None:
    with pytest.raises(hs.TargetError, match="a GPT-2 has no SwiGLU blocks"):
        MODELS["neurons"]().to_stock("gpt2")
    with pytest.raises(hs.TargetError, match="causal mask, and the model looks at later tokens"):
        sequence(T.mean, causal=False).to_stock("gpt2")


def test_a_gpt2_is_asked_in_words(rng: np.random.Generator) -> None:
    found = hs.compile("x*y", (-1, 1), 2e-2, dtype="float32").to_stock("gpt2", vocabulary=16)
    assert found.config["architectures"] == ["GPT2ForSequenceClassification"]
    for x, y in rng.choice(np.arange(-8, 9) / 8, (50, 2)):
        answer = found(f"x={x:g} y={y:g}".replace("=-0 ", "=0 "))
        assert abs(float(answer[0]) - x * y) <= found.certificate.error
        assert np.array_equal(answer, found([x, y]))
    words = found.tensors["transformer.wte.weight"][list(found.words.values())]
    assert np.abs(words[:, :-4].sum(axis=1)).max() <= 1e-6  # registers and balance; what is left is probe, c and -c


# Prompts ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A product that is asked in words; zero is not in its domain."""
    model = hs.compile("x*y", {"x": (-1, 1), "y": (0.5, 2)}, 1e-2, dtype="float32")
    return Path(model.export(tmp_path_factory.mktemp("asked") / "product", "llama", vocabulary=16))


def test_every_prompt_is_within_the_certificate(asked: Path) -> None:
    certificate, proof = hs.verify(asked), hs.load(asked / "proof.safetensors")
    found = as_stock(proof.contents(), "llama", 16)
    assert len(found.words) == 17 + 13  # steps of 1/8, ends included
    for one in (word for word in found.words if word.startswith("x")):
        for other in (word for word in found.words if word.startswith("y")):
            x, y = (float(word[2:]) for word in (one, other))
            assert abs(float(found(f"{one} {other}")[0]) - x * y) <= certificate.error
            assert np.array_equal(found(f"{one} {other}"), found([x, y]))
    for prompt in ("x=0.5", "y=1 x=0.5", "x=0.5 y=0.51", "x=0.5 y=4", ""):
        with pytest.raises(hs.DomainError, match="is not"):
            found(prompt)
    vocabulary = json.loads((asked / "tokenizer.json").read_text())["model"]["vocab"]
    assert vocabulary["x=-0.125"] == found.words["x=-0.125"]
    assert "tokenizer(" in (asked / "README.md").read_text()


def test_words_that_lie_are_refused(asked: Path, tmp_path: Path) -> None:
    """The kernel reads the number in a word, and the row that stands for it."""
    folder = Path(shutil.copytree(asked, tmp_path / "product"))
    path = folder / "tokenizer.json"
    whole = json.loads(path.read_text())

    def refused(change: Callable[[dict[str, int]], Any], message: str) -> None:
        vocabulary = dict(whole["model"]["vocab"])
        change(vocabulary)
        path.write_text(json.dumps(whole | {"model": whole["model"] | {"vocab": vocabulary}}))
        with pytest.raises(Refused, match=message):
            check_folder(folder)

    def renamed(old: str, new: str) -> Callable[[dict[str, int]], None]:
        return lambda vocabulary: vocabulary.update({new: vocabulary.pop(old)})

    def swapped(vocabulary: dict[str, int]) -> None:
        vocabulary["x=0.5"], vocabulary["x=0.25"] = vocabulary["x=0.25"], vocabulary["x=0.5"]

    refused(swapped, "embed_tokens")
    refused(renamed("x=0.5", "x=0.51"), "no float32")
    refused(renamed("x=0.5", "y=0.5625"), "embed_tokens")
    refused(renamed("x=0.5", "x=-7"), "not in the domain")
    refused(renamed("x=0.5", "z=0.5"), "not a name")
    refused(renamed("x=0.5", "a half"), "not a name")
    refused(lambda vocabulary: vocabulary.pop("x=0.5"), "one after the other")
    refused(lambda vocabulary: vocabulary.update({"x=0.5": vocabulary["x=0.25"]}), "one after the other")
    refused(lambda vocabulary: vocabulary.update({"x=0.5": 1.5}), "whole number")
    refused(lambda vocabulary: vocabulary.update({"x=0.3": 1}), "one after the other")  # a data token without inputs
    path.unlink()
    with pytest.raises(Refused, match=r"config.json is not the one"):
        check_folder(folder)


def test_what_has_no_prompts(tmp_path: Path) -> None:
    product = MODELS["product"]()
    with pytest.raises(hs.TargetError, match="a vocabulary of numbers is for stock models"):
        product.export(tmp_path / "a", "torch", vocabulary=16)
    with pytest.raises(hs.TargetError, match="1 to 65536"):
        product.to_stock("llama", vocabulary=1 << 17)
    with pytest.raises(hs.TargetError, match="this is a model of sequences"):
        MODELS["shift"]().to_stock("llama", vocabulary=16)
    single = hs.compile("relu(x)", (-1, 1), 1e-2, dtype="float32").to_stock("llama", vocabulary=4)
    assert list(single.words) == ["x=-1", "x=-0.5", "x=0", "x=0.5", "x=1"]
    assert abs(float(single("x=0.5")[0]) - 0.5) <= single.certificate.error


# Language models ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("to", ["llama", "gpt2"])
def test_a_language_model_has_the_outputs_as_its_first_logits(to: str, tmp_path: Path) -> None:
    model = GPT2["product"]()
    folder, other = model.export(tmp_path / "model", to, language_model=True), model.to_stock(to)
    found = model.to_stock(to, language_model=True)
    assert hs.verify(folder).error == other.certificate.error
    assert np.array_equal(found([[0.5, -0.25]]), other([[0.5, -0.25]]))
    held = load_file(folder / "model.safetensors")
    assert np.array_equal(held["lm_head.weight"][:1], other.tensors["score.weight"])
    assert not held["lm_head.weight"][1:].any()
    assert json.loads((folder / "tokenizer_config.json").read_text())["bos_token"] == "<reference 0>"
    held["lm_head.weight"][1, 0] = 1.0
    save_file(held, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(hs.CertificateError, match=r"lm_head.weight\[1, 0\] is 1.0, and 0.0 in the proven model"):
        hs.verify(folder)


def test_what_is_no_language_model(exported: Path, tmp_path: Path) -> None:
    header, tensors = read(exported / "proof.safetensors")
    held, proven = load_file(exported / "model.safetensors"), stock(header, tensors, language=True)
    with pytest.raises(Refused, match=r"config.json is not the one of the proven model \(architectures\)"):
        refuse_others(proven, json.loads((exported / "config.json").read_text()), held)
    with pytest.raises(hs.TargetError, match="language models are stock models"):
        MODELS["product"]().export(tmp_path / "model", "torch", language_model=True)
    wide = hs.compile("x*y, x*y+x, x*y+1, x*y+2, x*y+y, x*y+3, 2*x*y, x*y-x", (-1, 1), 1e-2, dtype="float32")
    with pytest.raises(hs.TargetError, match="has fewer than 6 outputs, and not 8"):
        wide.to_stock("llama", language_model=True)


# Folders ------------------------------------------------------------------------------------------------------------


def test_a_folder_is_proven(exported: Path, capsys: pytest.CaptureFixture[str]) -> None:
    certificate = hs.verify(exported)
    assert certificate.error <= 1e-3
    assert {each.name for each in exported.iterdir()} == {
        "README.md",
        "config.json",
        "export.json",
        "model.safetensors",
        "proof.safetensors",
    }
    with pytest.raises(SystemExit) as done:
        main(["verify", str(exported)])
    shown = " ".join(capsys.readouterr().out.split())
    assert not done.value.code
    assert "assumed, and not proved: a stock Llama as in transformers, in float32" in shown


def wanted(exported: Path) -> tuple[Stock, dict[str, Any]]:
    return stock(*read(exported / "proof.safetensors")), load_file(exported / "model.safetensors")


@pytest.mark.parametrize("kind", [[], {}, None, 1, "bert"])
def test_what_is_no_architecture_is_refused(copied: Path, kind: Any) -> None:
    path = copied / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"model_type": kind}))
    with pytest.raises(Refused, match="for which there is a rule"):
        check_folder(copied)


def test_every_changed_weight_is_refused(exported: Path) -> None:
    """Each of the 1,232 numbers, by one unit in the last place."""
    proven, held = wanted(exported)
    config = json.loads((exported / "config.json").read_text())
    refuse_others(proven, config, held)
    for name, values in held.items():
        for place in np.ndindex(values.shape):
            changed = values.copy()
            changed[place] = np.nextafter(changed[place], np.float32(np.inf))
            with pytest.raises(Refused, match=r"model.safetensors: .* is .*, and .* in the proven model"):
                refuse_others(proven, config, held | {name: changed})
        with pytest.raises(Refused, match="missing"):
            refuse_others(proven, config, {each: held[each] for each in held if each != name})
        with pytest.raises(Refused, match="another shape"):
            refuse_others(proven, config, held | {name: values[None]})


def test_every_changed_neuron_is_refused(tmp_path: Path) -> None:
    """Each of the 3 x 16 x 4 numbers of the neurons, by one unit in the last place; their count, and what silu is."""
    folder = hs.compile("x*y + x*x", (-1, 1), 1e-5, dtype="float32", recipe="swiglu").export(
        tmp_path / "model", "llama"
    )
    assert hs.verify(folder).error <= 1e-5
    proven, held = wanted(folder)
    config = json.loads((folder / "config.json").read_text())
    refuse_others(proven, config, held)
    mine = {name: values for name, values in held.items() if "mlp" in name}
    assert [values.shape for values in mine.values()] == [(16, 4), (4, 16), (4, 16)]
    assert all(values.any() for values in mine.values())
    for name, values in mine.items():
        for place in np.ndindex(values.shape):
            changed = values.copy()
            changed[place] = np.nextafter(changed[place], np.float32(np.inf))
            with pytest.raises(Refused, match=rf"{name}.* is .*, and .* in the proven model"):
                refuse_others(proven, config, held | {name: changed})
    for name, other in (("hidden_act", "gelu"), ("intermediate_size", 5), ("mlp_bias", True)):
        with pytest.raises(Refused, match=rf"config.json.*{name}"):
            refuse_others(proven, config | {name: other}, held)
    swapped = held | {"model.layers.0.mlp.gate_proj.weight": held["model.layers.0.mlp.up_proj.weight"]}
    save_file(swapped, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(hs.CertificateError, match=r"gate_proj.weight\[.* in the proven model"):
        hs.verify(folder)


def test_every_changed_setting_is_refused(exported: Path) -> None:
    proven, held = wanted(exported)
    config = json.loads((exported / "config.json").read_text())
    others = (None, True, 0, 1, 2, 1.5, "gelu", "yarn", [], {})
    for name, value in config.items():
        for other in others:
            if json.dumps(other) != json.dumps(value):
                with pytest.raises(Refused, match=f"config.json.*{name}|config.json is not"):
                    refuse_others(proven, config | {name: other}, held)
        with pytest.raises(Refused, match=name):
            refuse_others(proven, {each: config[each] for each in config if each != name}, held)
    for key, other in (("factor", 2.0**99), ("rope_type", "default"), ("rope_theta", 5e5)):
        with pytest.raises(Refused, match="rope_parameters"):
            refuse_others(proven, config | {"rope_parameters": config["rope_parameters"] | {key: other}}, held)
    for other in ({"sliding_window": 1}, {"quantization_config": {}}, {"auto_map": {}}):
        with pytest.raises(Refused, match=next(iter(other))):
            refuse_others(proven, config | other, held)
    for nothing in (None, [], "llama"):
        with pytest.raises(Refused, match=r"config.json"):
            refuse_others(proven, nothing, held)


def test_a_changed_folder_is_refused(copied: Path) -> None:
    weights, config = copied / "model.safetensors", copied / "config.json"
    whole, settings, tensors = weights.read_bytes(), config.read_text(), load_file(weights)

    def refused(message: str) -> None:
        with pytest.raises((hs.CertificateError, hs.FileFormatError), match=message):
            hs.verify(copied)

    for scale in (0.5, 3.0, -1.0):  # too small for the norm; no power of two; negative
        norms = {name: value * np.float32(scale) for name, value in tensors.items() if "norm" in name}
        table = tensors["model.embed_tokens.weight"].copy()
        table[:, 5] *= np.float32(scale)
        save_file({**tensors, **norms, "model.embed_tokens.weight": table}, weights, metadata={"format": "pt"})
        refused("normed away")
    norms = {name: value * np.float32(2) for name, value in tensors.items() if "norm" in name}
    save_file({**tensors, **norms}, weights, metadata={"format": "pt"})
    refused("embed_tokens")
    save_file({name: value.astype(np.float16) for name, value in tensors.items()}, weights, metadata={"format": "pt"})
    refused("only F32 are read")
    weights.write_bytes(whole[:-4])
    refused("not a complete safetensors file")
    weights.write_bytes(whole)
    for other in ("{", "[]", settings.replace("1e-06", "1e-05"), settings.replace("silu", "gelu")):
        config.write_text(other)
        refused(r"config.json")
    config.write_text(settings)
    (copied / "README.md").write_text("error 0")
    refused("README.md: not what the proven model has")
    hs.compile("relu(x)", (-1, 1), 1e-2, dtype="float32").save(copied / "proof.safetensors")
    refused("config.json is not the one of the proven model|normed away")


def test_a_larger_constant_is_as_good(exported: Path) -> None:
    """Any power of two from the smallest on will do; what is too large for the weights is refused."""
    header, tensors = read(exported / "proof.safetensors")
    assert stock(header, tensors, root=2.0**14).certificate.error == stock(header, tensors).certificate.error
    with pytest.raises(Refused, match=r"weights of .* are too large for norms"):
        stock(header, tensors, root=2.0**44)
    with pytest.raises(Refused, match="normed away"):
        stock(header, tensors, root=2.0**61)


def test_what_a_stock_model_cannot_hold_is_refused(tmp_path: Path) -> None:
    def refused(model: Any, message: str) -> None:
        with pytest.raises(hs.TargetError, match=f"does not go into a stock llama: .*{message}"):
            model.export(tmp_path / "model", "llama")
        assert not (tmp_path / "model").exists()

    refused(hs.compile("x*y", (-1, 1), 1e-3), "computes in float32")
    refused(sequence(T.mean, causal=False), "causal mask, and the model looks at later tokens")
    refused(hs.compile("max(x, y, -x)", (-1, 1), 1e-3, recipe="maxout", dtype="float32"), "see each other")
    refused(hs.compile("2*x", (-1, 1), 1e-3, dtype="float32"), "no layer of attention")
    product = MODELS["product"]()
    with pytest.raises(hs.TargetError, match="unknown architecture 'bert'; choose one of llama, gpt2"):
        product.to_stock("bert")
    with pytest.raises(hs.TargetError, match="a stock llama has a causal mask"):
        product.export(tmp_path / "model", "llama", causal=False)
    with pytest.raises(hs.CertificateError, match="no proof"):
        replace(product, proof=None).to_stock()
    with pytest.raises(hs.DomainError, match=r"numbers of shape \(..., 2\)"):
        product.to_stock().embed([1.0, 2.0, 3.0])
