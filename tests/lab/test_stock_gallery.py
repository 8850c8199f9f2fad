"""The gallery of stock models is made by one command; `make outside` makes all of it, and runs it in transformers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import headsmith as hs
from headsmith.cli import commands, main
from headsmith.lab.stock_gallery import PIECES, make_gallery


def test_one_command_makes_stock_models(tmp_path: Path) -> None:
    names = ["three-factors", "moving-average"]
    done = CliRunner().invoke(commands, ["gallery", *names, "-o", str(tmp_path / "stock"), "--json"])
    rows = json.loads(done.stdout)["models"]
    assert [row["name"] for row in rows] == names
    listed = (tmp_path / "stock" / "README.md").read_text()
    for row in rows:
        folder = Path(row["folder"])
        assert hs.verify(folder).error == row["error"] <= 1e-3
        assert {"README.md", "config.json", "model.safetensors", "proof.safetensors"} <= {
            each.name for each in folder.iterdir()
        }
        assert f"| [{row['name']}]({row['name']}/README.md) | {PIECES[row['name']].title} | Llama |" in listed


def test_what_is_not_in_the_gallery(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as done:
        main(["gallery", "products", "-o", str(tmp_path / "stock")])
    assert done.value.code == 1
    assert "there is no stock model 'products' in the gallery; choose from product, " in capsys.readouterr().err
    assert not (tmp_path / "stock").exists()


def test_without_scikit_learn_digits_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "sklearn.datasets", None)
    with pytest.raises(hs.TargetError, match=r"digits are scikit-learn's: pip install"):
        list(make_gallery(tmp_path, ["digits"]))
