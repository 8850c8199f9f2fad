"""Exported folders: what other tools read, beside the proof. `verify` proves the exported weights themselves: whatever
is changed in a folder is refused, with the place."""

from __future__ import annotations

import json
import runpy
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from helpers.models.networks import random_network
from matplotlib.figure import Figure
from safetensors.numpy import load_file, save_file

import headsmith as hs
from headsmith.cli import main
from headsmith.export.folder import compare
from headsmith.export.formats import FORMATS, STOCK, To, Wanted, contents

PLAIN = [to for to in FORMATS if to not in (*STOCK, "rocq")]  # these have tests of their own


@pytest.fixture(scope="module")
def model() -> hs.Compiled:
    return hs.compile(random_network([3, 6, 5, 2]), (-1, 1), 1e-3, dtype="float64")


@pytest.fixture(scope="module")
def exported(model: hs.Compiled, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One folder for each tool, made once; tests change copies."""
    folder = tmp_path_factory.mktemp("exports")
    with pytest.MonkeyPatch.context() as patch:
        # Few pixels: a picture takes longer than all the rest.
        patch.setattr("headsmith.report.plots.figure_class", lambda: lambda **given: Figure(given["figsize"], dpi=20))
        found = {to: model.export(folder / to, to) for to in PLAIN}
    found["fused"] = model.export(folder / "fused", "onnx", fused=True)
    return found


@pytest.fixture
def copied(exported: dict[str, Path], tmp_path: Path) -> Callable[[str], Path]:
    return lambda to: Path(shutil.copytree(exported[to], tmp_path / to))


@pytest.mark.parametrize("to", [*PLAIN, "fused"])
def test_a_folder_is_proven(to: str, exported: dict[str, Path], model: hs.Compiled) -> None:
    certificate = hs.verify(exported[to])
    assert certificate.error <= model.certificate.error * (1 + 1e-9)
    text = (exported[to] / "README.md").read_text()
    assert "headsmith verify DIR" in text
    assert hs.load(exported[to] / "proof.safetensors").bill == model.bill


def test_the_torch_folder_stands_alone(exported: dict[str, Path], model: hs.Compiled, rng: Any) -> None:
    """The code in the folder needs torch and nothing of Headsmith."""
    code = runpy.run_path(str(exported["torch"] / "headsmith_model.py"))
    x = rng.uniform(-1, 1, (7, 3))
    found = code["load"](str(exported["torch"]))(torch.tensor(x)).detach().numpy()
    assert np.abs(found - model(x)).max() <= 2 * model.certificate.parts["rounding"]
    assert "headsmith." not in "".join(
        line for line in (exported["torch"] / "headsmith_model.py").read_text().splitlines() if "import" in line
    )


def test_the_circuit_says_what_every_head_does(exported: dict[str, Path], model: hs.Compiled) -> None:
    circuit = json.loads((exported["circuit"] / "circuit.json").read_text())
    heads = [node for name, node in circuit["nodes"].items() if ".h" in name and node["in_graph"]]
    assert len(heads) == model.bill.heads
    assert {head["kind"] for head in heads} == {"sink"}
    shares = sum(sum(head["share_of_error"].values()) for head in heads)
    assert 0.5 * model.certificate.error <= shares <= 2.0 * model.certificate.error
    # Every folder has it.
    assert all((folder / "circuit.json").exists() for folder in exported.values())


def test_weights_are_bit_exact(exported: dict[str, Path], model: hs.Compiled) -> None:
    for name, value in load_file(exported["torch"] / "model.safetensors").items():
        assert value.tobytes() == model.plain().tensors[name].tobytes()
    # TransformerLens divides scores by the root of the width: both are powers of two.
    lens = load_file(exported["transformerlens"] / "model.safetensors")
    width = json.loads((exported["transformerlens"] / "config.json").read_text())["bridge"]["d_head"]
    own = model.plain().tensors["layers.0.query.weight"].reshape(model.bill.heads_per_layer[0], -1, model.bill.d_model)
    held = lens["bridge.layers.0.attn.q.weight"].reshape(-1, width, model.bill.d_model)
    assert np.array_equal(held[: len(own), : own.shape[1]], own * np.sqrt(width))


def refused(folder: Path, message: str) -> None:
    with pytest.raises((hs.CertificateError, hs.FileFormatError), match=message):
        hs.verify(folder)


@pytest.mark.parametrize("to", ["torch", "huggingface", "transformerlens"])
def test_one_changed_weight_is_refused(
    to: To, copied: Callable[[str], Path], model: hs.Compiled, rng: np.random.Generator
) -> None:
    """Any entry of any tensor, by one unit in the last place."""
    path, wanted = copied(to) / "model.safetensors", contents(model, Wanted(to))
    compare(path.parent, wanted)
    tensors = load_file(path)
    for name, value in tensors.items():
        if value.size:
            place = tuple(int(rng.integers(size)) for size in value.shape)
            changed = value.copy()
            changed[place] = np.nextafter(changed[place], np.inf)
            save_file({**tensors, name: changed}, path, metadata={"format": "pt"})
            with pytest.raises(hs.CertificateError, match=rf"{name}\[.*\] is .*; the proven model has"):
                compare(path.parent, wanted)
    refused(path.parent, "the proven model has")


@pytest.mark.parametrize("to", ["onnx", "fused"])
def test_one_changed_number_of_an_onnx_graph_is_refused(
    to: str, copied: Callable[[str], Path], model: hs.Compiled
) -> None:
    path, wanted = copied(to) / "model.onnx", contents(model, Wanted("onnx", fused=to == "fused"))
    compare(path.parent, wanted)
    whole = path.read_bytes()
    for place in range(len(onnx.load_model_from_string(whole).graph.initializer)):
        changed = onnx.load_model_from_string(whole)
        tensor = changed.graph.initializer[place]
        values = onnx.numpy_helper.to_array(tensor).copy()
        values.ravel()[0] += 1
        if np.isfinite(values.ravel()[0]):
            tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))
            path.write_bytes(changed.SerializeToString())
            with pytest.raises(hs.CertificateError, match=r"model.onnx: .* is .*; the proven model has"):
                compare(path.parent, wanted)
    refused(path.parent, "the proven model has")


def test_other_graphs_are_refused(copied: Callable[[str], Path]) -> None:
    """Another operator; weights from another file; a file that is none."""
    path = copied("onnx") / "model.onnx"
    whole = path.read_bytes()
    changed = onnx.load_model_from_string(whole)
    next(node for node in changed.graph.node if node.op_type == "Softmax").op_type = "LogSoftmax"
    path.write_bytes(changed.SerializeToString())
    refused(path.parent, r"node \d+ is LogSoftmax")
    changed = onnx.load_model_from_string(whole)
    tensor = changed.graph.initializer[0]
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="/etc/passwd")
    path.write_bytes(changed.SerializeToString())
    refused(path.parent, "weights are read from other files")
    changed = onnx.load_model_from_string(whole)
    changed.graph.initializer[0].dims[:] = [1 << 40, 1 << 20]
    path.write_bytes(changed.SerializeToString())
    refused(path.parent, "weights cannot be read")
    path.write_bytes(whole[: len(whole) // 2])
    refused(path.parent, "model.onnx")


def test_other_code_and_other_files_are_refused(copied: Callable[[str], Path]) -> None:
    """Nothing in the folder is run by `verify`, and nothing that another tool might read goes unseen."""
    folder = copied("huggingface")
    code = folder / "modeling_headsmith.py"
    text = code.read_text()
    code.write_text(text + "raise SystemExit('run')\n")
    refused(folder, "modeling_headsmith.py: not what the proven model has there")
    code.write_text(text)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"dtype": "float32"}))
    refused(folder, "config.json: not what the proven model has")
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    assert hs.verify(folder)
    for name in ("pytorch_model.bin", "model.safetensors.index.json", "headsmith_model.pyc"):
        (folder / name).write_bytes(b"\x80")
        refused(folder, f"{name}: does not belong to the export")
        (folder / name).unlink()
    (folder / "__pycache__").mkdir()
    refused(folder, "__pycache__: does not belong to the export")
    (folder / "__pycache__").rmdir()
    readme = (folder / "README.md").read_text()
    (folder / "README.md").write_text(readme.replace("|model - target| <=", "|model - target| <= 0 *"))
    refused(folder, "README.md: not what the proven model has")
    (folder / "README.md").write_text(readme)
    (folder / "picture.png").write_bytes(b"<script>")
    refused(folder, "picture.png: no picture")


def test_corrupt_folders_are_refused(copied: Callable[[str], Path], tmp_path: Path) -> None:
    folder = copied("torch")
    weights = folder / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-8])
    refused(folder, "not a complete safetensors file")
    weights.write_bytes(whole + b"\0" * (1 << 20))
    refused(folder, "bytes where the proven model has")
    weights.unlink()
    refused(folder, "model.safetensors: missing")
    tensors = dict(load_file(copied("transformerlens") / "model.safetensors"))
    save_file(tensors, weights, metadata={"format": "pt"})
    refused(folder, "the tensor .* is not one of the proven model|the tensor .* is missing|bytes where")
    weights.write_bytes(whole)
    manifest = folder / "export.json"
    for text, message in (
        ("[]", "no object"),
        ("{", "damaged"),
        ('{"headsmith": 2}', "export version 2"),
        ('{"headsmith": 1, "to": "pickle", "fused": false, "causal": null}', "damaged"),
        ('{"headsmith": 1, "to": "torch", "fused": true, "causal": null}', "closed forms are exported to onnx"),
        ('{"headsmith": 1, "to": "onnx", "fused": false, "causal": null}', "config.json: does not belong"),
        ('{"headsmith": 1, "to": "torch", "fused": false, "causal": true}', "not what the proven model has"),
        (" " * (1 << 17), "bytes are no list"),
    ):
        manifest.write_text(text)
        with pytest.raises(hs.HeadsmithError, match=message):
            hs.verify(folder)
    empty = tmp_path / "empty"
    empty.mkdir()
    refused(empty, "so no exported model")


def test_another_proof_is_refused(copied: Callable[[str], Path], model: hs.Compiled, tmp_path: Path) -> None:
    """The proof must prove, and it must be about these weights."""
    folder = copied("torch")
    proof = folder / "proof.safetensors"
    hs.compile(random_network([3, 6, 5, 2], 1), (-1, 1), 1e-3).save(proof)
    refused(folder, "the proven model has|not what the proven model has|bytes where")
    model.save(proof)
    assert hs.verify(folder)
    tensors = load_file(proof)
    with open(proof, "rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
    name = next(name for name in tensors if name.startswith("layers.0.0.write"))
    tensors[name] = tensors[name] * 2.0
    save_file(tensors, proof, metadata=header["__metadata__"])
    refused(folder, "claim|proof|proven")


def test_what_cannot_be_exported_is_refused(model: hs.Compiled, tmp_path: Path) -> None:
    with pytest.raises(hs.TargetError, match="cannot export to 'pickle'; choose one of torch, onnx"):
        model.export(tmp_path / "a", "pickle")  # type: ignore[arg-type]
    with pytest.raises(hs.TargetError, match="closed forms are exported to onnx"):
        model.export(tmp_path / "a", "torch", fused=True)
    with pytest.raises(hs.TargetError, match="no layer of attention"):
        hs.compile("x", (-1, 1), 1e-3).export(tmp_path / "a", "transformerlens")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("mine")
    with pytest.raises(FileExistsError, match="a folder with something in it"):
        model.export(tmp_path / "full", "circuit")
    with pytest.raises(FileNotFoundError, match="does not exist"):
        model.export(tmp_path / "no" / "where", "circuit")
    assert not (tmp_path / "a").exists()


def test_the_commands(model: hs.Compiled, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model.save(tmp_path / "net.safetensors")

    def shell(*arguments: Any) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as done:
            main([*map(str, arguments)])
        shown = capsys.readouterr()
        return int(done.value.code or 0), shown.out, shown.err

    code, out, _ = shell("export", tmp_path / "net.safetensors", "--to", "torch", "-o", tmp_path / "net", "--json")
    assert code == 0
    assert "model.safetensors" in json.loads(out)["files"]
    code, out, _ = shell("verify", tmp_path / "net")
    assert code == 0
    assert "bit for bit" in out
    code, out, _ = shell("verify", tmp_path / "net", "--json")
    assert json.loads(out)["certificate"]["error"] <= 1e-3
    weights = tmp_path / "net" / "model.safetensors"
    raw = bytearray(weights.read_bytes())
    raw[-3] ^= 1
    weights.write_bytes(raw)
    code, _, err = shell("verify", tmp_path / "net")
    assert code == 1
    assert "the proven model has" in err


def test_masks_without_a_proof_are_refused(tmp_path: Path) -> None:
    """One token for each piece: all must see each other. A folder that says otherwise is refused as well."""
    pieces = hs.compile("max(x, y, -x)", (-1, 1), 1e-4, recipe="maxout")
    with pytest.raises(hs.DomainError, match="the certificate is about full attention"):
        pieces.export(tmp_path / "masked", "torch", causal=True)
    folder = pieces.export(tmp_path / "pieces", "torch")
    (folder / "export.json").write_text('{"headsmith": 1, "to": "torch", "fused": false, "causal": true}')
    refused(folder, "cannot have been exported like this: the certificate is about full attention")


def test_sequences_under_their_mask(tmp_path: Path) -> None:
    program = hs.compile_sequence(hs.tokens.max, tokens=4, domain=(-1, 1), error=1e-3, causal=True)
    folder = program.export(tmp_path / "max", "torch")
    assert json.loads((folder / "config.json").read_text())["causal"] is True
    hs.verify(folder)
    both = hs.compile("x*y", (-1, 1), 1e-3, tokens=3)
    folder = both.export(tmp_path / "product", "onnx", causal=True)
    assert hs.verify(folder).error <= 1e-3
