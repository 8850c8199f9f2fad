"""The suite: folders that prove what they say, refuse what they do not, and tell methods apart."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from safetensors.numpy import load_file, save_file

import headsmith as hs
from headsmith.cli.group import commands
from headsmith.lab.suite import baselines
from headsmith.lab.suite.families import FAMILIES
from headsmith.lab.suite.scorer import auroc, average_precision


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("suites") / "suite"
    hs.suite.make(path, seed=4, families=["comparisons"], models=1)
    return path


def test_every_folder_is_proven(suite: Path) -> None:
    folders = hs.suite.verify(suite)
    assert [each.told["level"] for each in folders] == [0, 1, 2, 3]
    assert all(each.told["error"] <= 1.01e-3 for each in folders)
    counts = [each.told["edges"] for each in folders]
    assert all("grey" not in each for each in counts)
    assert counts[0] == counts[1]
    assert counts[3]["false"] > 10 * counts[0]["false"]
    assert counts[3]["true"] / sum(counts[3].values()) <= 0.1


def test_the_same_seed_makes_the_same_bytes(suite: Path, tmp_path: Path) -> None:
    hs.suite.make(tmp_path / "again", seed=4, families=["comparisons"], models=1, levels=[2])
    name = "comparisons-0-level2"
    for file in sorted((suite / name).iterdir()):
        one, other = file.read_bytes(), (tmp_path / "again" / name / file.name).read_bytes()
        # safetensors writes the two entries of a model's metadata in any order.
        assert one == other or (file.name == "proof.safetensors" and sorted(one) == sorted(other)), file.name


def rewritten(name: str, part: str, change: Callable[[Any], Any]) -> Callable[[Path], None]:
    def forge(folder: Path) -> None:
        told = json.loads((folder / name).read_text())
        told[part] = change(told[part])
        (folder / name).write_text(json.dumps(told))

    return forge


def tensor(name: str, part: str) -> Callable[[Path], None]:
    def forge(folder: Path) -> None:
        arrays = {key: each.copy() for key, each in load_file(folder / name).items()}
        flat = arrays[part].reshape(-1)
        flat[np.argmax(np.abs(flat))] *= 1.001
        save_file(arrays, folder / name)

    return forge


FORGED = {
    "the seed": rewritten("suite.json", "seed", lambda seed: seed + 1),
    "the number": rewritten("suite.json", "number", lambda number: number + 1),
    "the error": rewritten("suite.json", "error", lambda error: error / 2),
    "the target": rewritten("suite.json", "target", lambda target: target + " + x"),
    "the data's seed": rewritten("suite.json", "data_seed", lambda seed: seed + 1),
    "the disguise's claim": rewritten("disguise.json", "claim", lambda claim: {**claim, "error": 1e-9}),
    "what is allowed for": rewritten("disguise.json", "loss", lambda _: {"returned": 1e-300, "scores": 0.0}),
    "a weight": tensor("rewritten.safetensors", "layers.0.value.weight"),
    "a weight of the model": tensor("model.safetensors", "bridge.layers.0.attn.v.weight"),
    "a weight of the state": tensor("hooked.safetensors", "blocks.0.attn.W_V"),
    "an input": tensor("inputs.safetensors", "test"),
    "an expected output": tensor("pairs.safetensors", "expected"),
    "a file more": lambda folder: (folder / "weights.pt").write_text("pickle"),
    "the card": lambda folder: (folder / "README.md").write_text("proven"),
}


@pytest.mark.parametrize("name", FORGED)
def test_what_is_forged_is_refused(name: str, suite: Path, tmp_path: Path) -> None:
    folder = tmp_path / "comparisons-0-level1"
    shutil.copytree(suite / "comparisons-0-level1", folder)
    FORGED[name](folder)
    with pytest.raises((hs.CertificateError, hs.FileFormatError)):
        hs.suite.verify(folder)


def test_pairs_are_what_interchange_does(suite: Path) -> None:
    folder = hs.suite.load(suite)[1]
    causal, pairs = folder.plain.causal(), folder.pairs
    name = folder.told["variables"][0]
    mine = pairs["variable"] == 0
    told = next(each for each in folder.circuit["variables"] if each["id"] == name)
    vector = np.array(told["write"][0]["vector"])
    found = causal.interchanged(folder.machine, pairs["base"][mine], name, pairs["after"][mine], vector)
    assert np.abs(found[:, 0] - pairs["expected"][mine]).max() <= 10 * folder.told["error"]


def test_methods_are_told_apart(suite: Path) -> None:
    plain, sharp = hs.suite.load(suite)[1], hs.suite.load(suite)[3]
    truth = {"edges": {name: {"score": each["score"]} for name, each in sharp.circuit["edges"].items()}}
    assert hs.suite.score(sharp, truth)["auroc"] == 1.0
    assert hs.suite.score(sharp.path, {"edges": baselines.run(sharp, "patch")})["auroc"] >= 0.98
    pytest.importorskip("torch")
    gradients = [hs.suite.score(each, {"edges": baselines.run(each, "eap")}) for each in (plain, sharp)]
    assert gradients[0]["auroc"] >= 0.95
    assert gradients[1]["auroc"] <= 0.85
    assert gradients[1]["live"] <= gradients[1]["auroc"]


def test_angles(suite: Path) -> None:
    folder = hs.suite.load(suite)[1]
    told = next(each for each in folder.circuit["variables"] if each["layers"])
    layer, read = next(iter(told["layers"].items()))
    found = hs.suite.score(folder, {"variables": {told["id"]: {layer: read["read"]}}})
    assert found["variables"][told["id"]][layer]["angle"] <= 1e-5
    with pytest.raises(hs.TargetError, match="nothing is told"):
        hs.suite.score(folder, {"variables": {"v99": {layer: read["read"]}}})


def test_figures() -> None:
    assert auroc(np.array([1.0, 2.0]), np.array([0.0, 1.0])) == 0.875
    assert average_precision(np.array([3.0, 2.0, 1.0]), np.array([True, False, True])) == pytest.approx((1 + 2 / 3) / 2)
    assert average_precision(np.zeros(4), np.array([True, False, True, False])) == pytest.approx(0.5)


def test_commands(suite: Path, tmp_path: Path) -> None:
    one = str(suite / "comparisons-0-level0")
    shown = CliRunner().invoke(commands, ["suite", "show", one])
    assert shown.exit_code == 0
    assert "true edges" in shown.output
    told = CliRunner().invoke(commands, ["suite", "show", one, "--json"])
    scores = {name: each["score"] for name, each in json.loads(told.output)["circuit"]["edges"].items()}
    (tmp_path / "found.json").write_text(json.dumps({"edges": scores}))
    done = CliRunner().invoke(commands, ["suite", "score", one, str(tmp_path / "found.json"), "--json"])
    assert json.loads(done.output)["auroc"] == 1.0
    table = CliRunner().invoke(commands, ["suite", "baselines", one, "--methods", "random,weights", "--json"])
    assert {row["method"] for row in json.loads(table.output)["rows"]} == {"random", "weights"}
    bad = CliRunner().invoke(commands, ["suite", "make", str(tmp_path / "new"), "--families", "poems"])
    assert bad.exit_code != 0


@pytest.mark.campaign
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family(family: str, tmp_path: Path) -> None:
    hs.suite.make(tmp_path / "suite", seed=9, families=[family], models=1)
    hs.suite.verify(tmp_path / "suite")
