"""Stock models that are asked in words, and language models: every prompt is within the certificate, and words that
lie are refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.models.stock import GPT2, MODELS
from safetensors.numpy import load_file, save_file

import headsmith as hs
from headsmith.export.stock import as_stock
from headsmith.kernel.core.errors import Refused
from headsmith.kernel.core.reading import read
from headsmith.kernel.rules.stock import check_folder, refuse_others, stock


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(MODELS["product"]().export(tmp_path_factory.mktemp("stock") / "product", "llama"))


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
    with pytest.raises(Refused, match=r"tokenizer.json: no such file"):
        check_folder(folder)


def test_words_of_two_inputs_of_one_name_are_refused(asked: Path) -> None:
    """The second input would have the words, and so the place, of the first one."""
    header, tensors = read(asked / "proof.safetensors")
    words = json.loads((asked / "tokenizer.json").read_text())["model"]["vocab"]
    kept = {word: row for word, row in words.items() if not word.startswith("y=")}
    stock(header, tensors, "llama", words=kept)
    for graph in (header["source"], header["proof"]["circuit"]):
        graph["nodes"][0]["names"] = ["x", "x"]
    with pytest.raises(Refused, match="not one token for each variable"):
        stock(header, tensors, "llama", words=kept)


def test_words_that_get_another_row_elsewhere_are_refused(asked: Path, tmp_path: Path) -> None:
    """Added tokens come before the vocabulary, and a normalizer before both: "x=0.5" would be read as "x=0.25"."""
    folder = Path(shutil.copytree(asked, tmp_path / "product"))
    path = folder / "tokenizer.json"
    whole = json.loads(path.read_text())
    check_folder(folder)
    taken = {"content": "x=0.5", "id": whole["model"]["vocab"]["x=0.25"]}
    changes: list[dict[str, Any]] = [
        {"normalizer": {"type": "Replace", "pattern": {"String": "x=0.5"}, "content": "x=0.25"}},
        {"added_tokens": [*whole["added_tokens"], taken]},
        {"added_tokens": [{"content": "a half", "id": whole["model"]["vocab"]["x=0.5"]}]},
        {"added_tokens": [{"id": 0}]},
        {"added_tokens": 1},
    ]
    for change in changes:
        path.write_text(json.dumps(whole | change))
        with pytest.raises(Refused, match=r"beside its vocabulary|expected|field|list"):
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
