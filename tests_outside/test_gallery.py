"""The gallery of stock models: made by one command, verified from the folders, and run by transformers as each card
says. None leaves its certificate, on random inputs and at the corners of the domain."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from sklearn.datasets import load_digits
from transformers import AutoModelForSequenceClassification, AutoTokenizer

import headsmith as hs
from headsmith.cli import commands
from headsmith.lab.stock_gallery import DECAY, PIECES, UNSEEN, digits_network


def moving_average(x: Any) -> Any:
    """The mean of the last four tokens; those before the first are like it."""
    before = np.concatenate([x[:, :1]] * 3 + [x], axis=1)
    return sum(before[:, place : place + x.shape[1]] for place in range(4)) / 4


def ridge(x: Any) -> Any:
    """The weight that minimises mean (w x - y)^2 + decay w^2 over the examples so far, times the query."""
    counts = np.arange(1, x.shape[1] + 1)
    squares, products = (np.cumsum(x[..., 0] * x[..., place], axis=1) / counts for place in (0, 1))
    return (x[..., 2] * products / (squares + DECAY))[..., None]


def network(x: Any) -> Any:
    (first, one), (second, two) = digits_network().layers
    return np.maximum(x @ np.asarray(first).T + one, 0.0) @ np.asarray(second).T + two


EXACT: dict[str, Callable[[Any], Any]] = {
    "product": lambda x: x.prod(axis=-1, keepdims=True),
    "three-factors": lambda x: x.prod(axis=-1, keepdims=True),
    "maximum": lambda x: x[..., :2].max(axis=-1, keepdims=True) * x[..., 2:],
    "sort": lambda x: np.sort(x, axis=-1),
    "digits": network,
    "moving-average": moving_average,
    "ridge": ridge,
}


@pytest.fixture(scope="module")
def gallery(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("gallery")
    done = CliRunner().invoke(commands, ["gallery", "-o", str(folder), "--json"], catch_exceptions=False)
    assert not done.exit_code
    return folder, {each["name"]: each for each in json.loads(done.stdout)["models"]}


def test_all_are_there(gallery: Any) -> None:
    folder, rows = gallery
    assert set(rows) == set(PIECES) == {each.name for each in folder.iterdir() if each.is_dir()}
    listed = (folder / "README.md").read_text()
    for name, row in rows.items():
        assert hs.verify(folder / name).error == row["error"]
        assert f"[{name}]({name}/README.md)" in listed
        assert row["max_weight"] < (1e5 if name.endswith("swiglu") else 1e3)


def inputs(proof: Any, random: np.random.Generator) -> Any:
    """Numbers at random, and half of the time ends of the domain."""
    tokens, box = proof.transformer.tokens, proof.box
    shape = (2000, tokens, box.size) if tokens > 1 else (4000, box.size)
    ends = np.where(random.integers(2, size=shape), box.high, box.low)
    return np.where(random.random(shape) < 0.25, ends, random.uniform(box.low, box.high, shape)).astype(np.float32)


@pytest.mark.parametrize("name", [name for name, piece in PIECES.items() if not piece.vocabulary])
def test_a_card_runs_within_its_certificate(gallery: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, rows = gallery[0] / name, gallery[1]
    (code,) = re.findall(r"```python\n(.*?)```", (folder / "README.md").read_text(), re.DOTALL)
    assert "headsmith" not in code
    x = inputs(hs.load(folder / "proof.safetensors"), np.random.default_rng(0))
    monkeypatch.chdir(folder)
    names = {"x": torch.tensor(x)}
    exec(code, names)
    wanted = EXACT[name.removesuffix("-gpt2").removesuffix("-swiglu")](x.astype(np.float64))
    assert names["y"].shape == wanted.shape
    assert np.abs(names["y"].numpy() - wanted).max() <= rows[name]["error"]


def test_digits_are_read(gallery: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever two logits of the network are further apart than twice the error, both read the same digit."""
    folder, error = gallery[0] / "digits", gallery[1]["digits"]["error"]
    images, labels = load_digits(return_X_y=True)
    x = (images[UNSEEN:] / 16.0).astype(np.float32)
    (code,) = re.findall(r"```python\n(.*?)```", (folder / "README.md").read_text(), re.DOTALL)
    monkeypatch.chdir(folder)
    names = {"x": torch.tensor(x)}
    exec(code, names)
    read, exact = names["y"].numpy().argmax(axis=-1), network(x.astype(np.float64))
    clear = np.diff(np.sort(exact, axis=-1)[:, -2:])[:, 0] > 2.0 * error
    assert clear.mean() > 0.98
    assert np.array_equal(read[clear], exact.argmax(axis=-1)[clear])
    assert (read == labels[UNSEEN:]).mean() > 0.85


def test_prompts_are_answered(gallery: Any) -> None:
    folder, error = gallery[0] / "product-prompts", gallery[1]["product-prompts"]["error"]
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    tokenizer, values = AutoTokenizer.from_pretrained(folder), np.arange(-8, 9) / 8
    prompts = [f"x={x:.3f}".rstrip("0").rstrip(".") for x in values]
    prompts = [f"{one} {other.replace('x', 'y')}" for one in prompts for other in prompts]
    with torch.no_grad():
        found = model(**tokenizer(prompts, return_tensors="pt")).logits.numpy().reshape(17, 17)
    assert np.abs(found - np.outer(values, values)).max() <= error
