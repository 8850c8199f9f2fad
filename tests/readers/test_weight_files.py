"""Networks in files, through the command line as well: what they hold is said, and what is dangerous is refused."""

from __future__ import annotations

import io
import json
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from safetensors.numpy import save_file

import headsmith as hs
from headsmith.cli import commands
from headsmith.readers.weight_files import read_network

WEIGHTS = {
    "layers.2.weight": np.array([[1.0, 1.0]]),
    "layers.0.weight": np.array([[1.0, -1.0], [-1.0, 1.0]]),
    "layers.0.bias": np.zeros(2),
}
"""|x - y|, as torch names it."""


def run(*arguments: str) -> dict[str, Any]:
    result = CliRunner().invoke(commands, [*arguments, "--json"], catch_exceptions=False)
    assert result.exit_code == 0
    found: dict[str, Any] = json.loads(result.output)
    return found


def test_weights_in_safetensors_are_a_relu_network_and_that_is_said(tmp_path: Path) -> None:
    path = str(tmp_path / "net.safetensors")
    save_file(WEIGHTS, path)
    found = run("compile", path, "--domain", "-1:1", "--error", "1e-4", "-o", str(tmp_path / "model.safetensors"))
    assert found["certificate"]["error"] <= 1e-4
    assert "ReLU is taken" in found["network"]["notes"][0]
    assert hs.load(tmp_path / "model.safetensors")([0.5, -0.25])[0] == pytest.approx(0.75, abs=1e-4)
    with pytest.raises(hs.TargetError, match="compiled model already"):
        read_network(str(tmp_path / "model.safetensors"))
    save_file({"W0": np.ones((1, 2)), "b0": np.zeros(1)}, path)
    assert read_network(path).names == ("x0", "x1")


def test_weights_that_do_not_say_enough_are_refused(tmp_path: Path) -> None:
    path = str(tmp_path / "net.safetensors")
    for tensors, says in (
        ({"first.weight": np.ones((2, 2)), "second.weight": np.ones((2, 2))}, "in an order that is not known"),
        ({"0.weight": np.ones((2, 1, 3, 3))}, r"0 is no linear layer \(it has weight \(2, 1, 3, 3\)\); use ONNX"),
        ({"0.weight": np.ones((2, 2)), "1.running_mean": np.ones(2)}, "1 is no linear layer"),
        ({"0.weight": np.ones((2, 2), np.int32)}, "I32"),
        ({"0.weight": np.ones((2, 2)), "1.weight": np.ones((2, 3))}, "pair 0 has 2 outputs but pair 1 takes 3"),
    ):
        save_file(tensors, path)
        with pytest.raises(hs.TargetError, match=says):
            read_network(path)
    Path(path).write_bytes(b"\xff" * 100)
    with pytest.raises(hs.TargetError, match="not a complete safetensors file"):
        read_network(path)


def test_onnx_through_the_command_line(tmp_path: Path) -> None:
    parser = pytest.importorskip("onnx").parser
    text = (
        '<ir_version: 8, opset_import: ["" : 17]> net (float[N, M] x) => (float[N, 1] y) { y = ReduceMax<axes=[1]>(x) }'
    )
    path = tmp_path / "net.onnx"
    path.write_bytes(parser.parse_model(text).SerializeToString())
    found = run("compile", str(path), "--shape", "3", "--domain", "-1:1", "--error", "1e-4")
    assert found["bill"]["heads"] > 0
    assert found["network"]["difference"]["largest"] < 1e-6
    result = CliRunner().invoke(commands, ["compile", str(path), "--shape", "3", "--domain", "-1:1"])
    assert "net.onnx: 3 -> 1" in result.output
    assert "(an estimate)" in result.output


def test_pickles_are_refused_unless_the_user_insists(tmp_path: Path) -> None:
    linear = pytest.importorskip("sklearn.linear_model")
    estimator = linear.Ridge().fit(np.eye(3), [1.0, 2.0, 3.0])
    path = tmp_path / "model.pkl"
    path.write_bytes(pickle.dumps(estimator))
    with pytest.raises(hs.TargetError, match=r"runs whatever code is in it.*--allow-pickle"):
        read_network(str(path))
    assert run("compile", str(path), "--allow-pickle", "--domain", "0:1")["certificate"]["error"] <= 1e-6
    path.write_bytes(pickle.dumps({"a": 1}))
    with pytest.raises(hs.TargetError, match="holds a dict"):
        read_network(str(path), allow_pickle=True)
    path.write_bytes(b"no pickle")
    with pytest.raises(hs.TargetError, match="cannot be loaded"):
        read_network(str(path), allow_pickle=True)


def test_modules_and_states_of_torch_in_pickles(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    module = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU(), torch.nn.Linear(3, 1))
    path = str(tmp_path / "net.pt")
    torch.save(module, path)
    with pytest.raises(hs.TargetError, match="--allow-pickle"):
        read_network(path)
    whole = read_network(path, allow_pickle=True)
    torch.save(module.state_dict(), path)
    weights = read_network(path, allow_pickle=True)
    np.testing.assert_allclose(whole([0.5, 0.25]), weights([0.5, 0.25]), rtol=1e-12)


def test_archives_that_unpack_to_much_more_than_they_are(tmp_path: Path) -> None:
    path = str(tmp_path / "net.npz")
    np.savez_compressed(path, W0=np.zeros((3000, 3000)), b0=np.zeros(3000))
    with pytest.raises(hs.TargetError, match="is not unpacked"):
        read_network(path)
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": (1 << 40, 1)})
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("W0.npy", header.getvalue() + bytes(16))
    with pytest.raises(hs.TargetError, match="is too short"):
        read_network(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("W0.npy", b"nothing")
    with pytest.raises(hs.TargetError, match=r"not a readable \.npz"):
        read_network(path)
