"""What a newcomer gets wrong is answered in words: inputs, files, tables, names."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headsmith as hs
from headsmith.cli import main


@pytest.fixture(scope="module")
def product() -> hs.Compiled:
    return hs.compile("x*y", {"x": (-1, 1), "y": (-1, 1)}, 1e-3)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (0.3, r"expected an array \(..., 2\); got shape \(\)"),
        ([0.1, 0.2, 0.3], r"got shape \(3,\)"),
        ([[0.1, 0.2], [0.3]], "rows of different lengths"),
        ([0.1 + 1j, 0.2], "complex numbers"),
        (["0.1", "0.2"], "text"),
        (None, "no number"),
        ([None, 0.2], "no number"),
        (np.ma.array([0.1, 0.2], mask=[0, 1]), "mask"),
        ({"x": 0.1, "y": 0.2}, r"model\(\*\*inputs\)"),
        ([np.nan, 0.1], "input x is nan, which is not a number"),
        ([[0.0, 0.0], [0.0, 3.0]], "input y = 3.0 in row 1 lies outside"),
    ],
)
def test_arrays(product: hs.Compiled, given: Any, message: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(hs.DomainError, match=message):
            product(given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"x": 0.1}, "nothing is given for y"),
        ({"x": 0.1, "y": 0.2, "z": 0.3}, "there is no input z"),
        ({"x": np.zeros(3), "y": np.zeros(4)}, r"do not fit together: x \(3,\), y \(4,\)"),
        ({"x": 1j, "y": 0.0}, "input x is no array of real numbers"),
    ],
)
def test_names(product: hs.Compiled, given: dict[str, Any], message: str) -> None:
    with pytest.raises(hs.DomainError, match=message):
        product(**given)


def test_one_input_is_told_how(product: hs.Compiled) -> None:
    single = hs.compile("relu(x)", (-1, 1), 1e-3)
    with pytest.raises(hs.DomainError, match=r"write model\(x=...\)"):
        single(0.3)
    with pytest.raises(hs.TargetError, match='must be "refuse" or "allow"'):
        product([0.1, 0.2], outside=True)


def test_empty_batches_run(product: hs.Compiled) -> None:
    pieces = hs.compile("max(x, y)", (-1, 1), 1e-3, recipe="maxout")
    for model in (product, pieces):
        assert model(np.zeros((0, 2))).shape == (0, 1)
        assert model(np.zeros((4, 0, 2))).shape == (4, 0, 1)


def test_files(product: hs.Compiled, tmp_path: Path) -> None:
    missing = tmp_path / "no" / "model.safetensors"
    with pytest.raises(FileNotFoundError, match=r"the folder .*no does not exist; create it first") as refused:
        product.save(missing)
    assert ".part" not in str(refused.value)
    with pytest.raises(IsADirectoryError, match="it is a folder"):
        product.save(tmp_path)
    with pytest.raises(FileNotFoundError, match="without a name"):
        product.save("")
    product.save(tmp_path / "model")
    product.save(str(tmp_path / "model"))
    with pytest.raises(hs.FileFormatError, match="a folder, not a file"):
        hs.load(tmp_path)
    whole = (tmp_path / "model").read_bytes()
    for content in (b"", b"hello", whole[: len(whole) // 2], whole[:-1]):
        (tmp_path / "part").write_bytes(content)
        with pytest.raises(hs.FileFormatError, match="so no saved model"):
            hs.load(tmp_path / "part")


def shell(capsys: pytest.CaptureFixture[str], *arguments: Any) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as done:
        main([*map(str, arguments)])
    shown = capsys.readouterr()
    return int(done.value.code or 0), shown.out, shown.err


def test_outside_is_said_and_promises_nothing(
    product: hs.Compiled, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "model.safetensors"
    product.save(path)
    point = ("--input", "x=2", "--input", "y=0")
    code, _, told = shell(capsys, "run", path, *point)
    assert code == 1
    assert "give --outside" in told
    assert "allow" not in told
    code, shown, told = shell(capsys, "run", path, *point, "--outside")
    assert (code, shown.startswith("y0 =")) == (0, True)
    assert "nothing is promised" in told
    found = json.loads(shell(capsys, "run", path, *point, "--outside", "--json")[1])
    assert found["certificate"] is None
    assert "nothing is promised" in found["note"]
    inside = json.loads(shell(capsys, "run", path, "--input", "x=0", "--input", "y=0", "--outside", "--json")[1])
    assert inside["certificate"]["error"] == product.certificate.error


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("y,z\n0,0\n", "the header has no column x; it has y, z"),
        ("x;y\n0;0\n", "separated by commas"),
        ("x,y,x\n0,0,0\n", "the header has 2 columns x"),
        ("x,y\n0,0\n\n0,abc\n", "row 2 (line 4), y: 'abc' is not a number"),
        ("x,y\n0,0\n0,\n", "row 2 (line 3), y: nothing is given"),
        ("x,y\n0,0\n0\n", "row 2 (line 3): 1 column; there should be 2"),
        ("0,0\n0,0,0\n", "row 2: 3 columns; there should be 2"),
        ("0,0\n0,9\n", "row 2: input y = 9.0 lies outside its domain"),
        ("0,0\n0,nan\n", "row 2: input y = nan is no finite number"),
        ("", "no rows"),
    ],
)
def test_tables(
    product: hs.Compiled, text: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    product.save(tmp_path / "model.safetensors")
    (tmp_path / "in.csv").write_text(text)
    code, _, told = shell(capsys, "run", tmp_path / "model.safetensors", "--csv", tmp_path / "in.csv")
    assert (code, message in told) == (1, True), told


def test_completion_offers_what_is_public() -> None:
    for module in (hs.tokens, hs.in_context, hs.heads):
        assert not {"np", "Any", "annotations"} & set(dir(module))
        assert all(callable(getattr(module, name)) for name in dir(module))
    assert "shift" in dir(hs.tokens)


def test_move_and_shift_agree() -> None:
    """Both move values on by so many places."""
    from headsmith.run.numpy_runner import run

    x = np.array([[0.1], [0.2], [0.3], [0.4]])
    for k in (1, -1, 2):
        shifted = hs.compile_sequence(lambda v, k=k: hs.tokens.shift(v, k), tokens=4, domain=(-1, 1), error=1e-9)
        np.testing.assert_allclose(run(hs.heads.move(4, k), x[None])[0], shifted(x), atol=1e-9)
    with pytest.raises(hs.DomainError, match=r"offset is 1\.5"):
        hs.heads.move(4, 1.5)
