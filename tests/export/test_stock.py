"""Certified models as stock Llamas: norms, rotations and MLPs change nothing, bit for bit, so the certificate stays;
and whatever is changed in a folder is refused."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.attacks.forged import Forged
from helpers.models.stock import MODELS, points, sequence
from safetensors.numpy import load_file, save_file

import headsmith as hs
from headsmith.cli import main
from headsmith.kernel.core.errors import Refused
from headsmith.kernel.core.reading import read
from headsmith.kernel.rules.stock import Stock, check_folder, refuse_others, stock
from headsmith.run import llama

T = hs.tokens


@pytest.fixture(scope="module", params=MODELS)
def model(request: pytest.FixtureRequest) -> Any:
    return MODELS[request.param]()


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(MODELS["product"]().export(tmp_path_factory.mktemp("stock") / "product", "llama"))


@pytest.fixture
def copied(exported: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(exported, tmp_path / "product"))


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


# Folders ------------------------------------------------------------------------------------------------------------


def test_a_folder_is_proven(exported: Path, capsys: pytest.CaptureFixture[str]) -> None:
    certificate = hs.verify(exported)
    assert certificate.error <= 1e-3
    assert {each.name for each in exported.iterdir()} == {
        "README.md",
        "circuit.json",
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


@pytest.mark.parametrize(
    "name",
    [
        "adapter_config.json",  # transformers then loads the model that this file names, and not this one
        "pytorch_model.bin",
        "model.safetensors.index.json",
        "model-00001-of-00002.safetensors",
        "generation_config.json",
        "modeling_llama.py",
        "added_tokens.json",
        "special_tokens_map.json",
        "Config.json",
    ],
)
def test_what_else_a_runtime_might_load_is_refused(copied: Path, name: str) -> None:
    """The kernel alone says so, without the list of files of an export."""
    check_folder(copied)
    (copied / ".gitattributes").write_text("")
    check_folder(copied)
    (copied / name).write_text('{"base_model_name_or_path": "elsewhere", "peft_type": "LORA"}')
    with pytest.raises(Refused, match="is no file of the proven model"):
        check_folder(copied)


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_a_small_file_of_many_heads_is_not_written_out(name: str) -> None:
    """8,000 heads of 8,000 registers take 4 GB in matrices, and less than 1 MB in a file."""
    file, count = Forged(1, -1.0, 1.0, dtype="float32"), 8000
    for graph in (file.source, file.circuit):
        gates = file.relu(graph, file.affine(graph, [(0, np.ones((count, 1)))], np.zeros(count)), count)
        file.outputs(*[file.affine(graph, [(gates, np.ones((1, count)))], [0.0])] * 2)
    file.embed()
    file.register("o", size=count)
    places = np.full(count, gates), np.arange(count)
    file.gates([file.link("x", np.ones((count, 1)))], [file.link("o", np.ones(count))], *places, 64.0)
    file.model["readout"] = [file.link("o", np.ones((1, count)))]
    with pytest.raises(Refused, match="more weights than a stock model may have"):
        stock(*file.contents(), name)


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
    config.unlink()
    refused(r"config.json.*no( such)? file")
    os.mkfifo(config)  # whoever opens it waits for a writer
    refused(r"config.json.*no( such)? file")
    config.unlink()
    config.write_text(settings)
    (copied / "README.md").write_text("error 0")
    refused("README.md: not what the proven model has")
    hs.compile("relu(x)", (-1, 1), 1e-2, dtype="float32").save(copied / "proof.safetensors")
    refused("config.json is not the one of the proven model|normed away")


@pytest.mark.parametrize("to", ["llama", "gpt2"])
def test_the_largest_weight_of_a_folder_is_that_of_its_own_tensors(to: str, tmp_path: Path) -> None:
    folder = MODELS["product"]().export(tmp_path / to, to)
    held = load_file(folder / "model.safetensors")
    assert check_folder(folder).max_weight == max(float(np.abs(values).max()) for values in held.values())


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
