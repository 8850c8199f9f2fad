"""The kernel comes to the bounds that the compiler promises, from the file alone, and refuses what does not follow."""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from helpers.attacks.forged import Forged
from helpers.effort import cases
from helpers.models.carried import MODELS, carried, contents_of, model_of, network

import headsmith as hs
import headsmith.kernel
from headsmith.kernel.core.check import check_file, proved
from headsmith.kernel.core.errors import Refused
from headsmith.kernel.core.reading import digest
from headsmith.report.trusted import figures

FOLDER = Path(headsmith.kernel.__file__).parent


COMPILED = ("network", "product", "product of circuits", "maximum", "ramps", "mean", "spread", "sort", "attention")
"""Models that other tests here need, too: `make test` proves these kinds, and `make campaign` the others."""
KINDS = cases(MODELS, MODELS.keys() - {*COMPILED})


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_of_model_is_proved_as_well_as_it_was(name: str) -> None:
    """Theorem: the sum of all local errors, carried by gains, is at most what the compiler certified, up to 5 %."""
    found, before = proved(*contents_of(name)), model_of(name).certificate
    assert found.error <= 1.05 * before.error
    assert found.error >= 0.4 * before.error
    assert len(found.outputs) == len(before.outputs)
    assert sum(found.parts.values()) == pytest.approx(found.error, rel=1e-9)
    assert (found.dtype, found.tokens, found.exp_ulps) == (before.dtype, before.tokens, before.exp_ulps)


def test_a_saved_model_is_checked_by_the_folder_alone(tmp_path: Path) -> None:
    """Copied out of the project, the folder checks a file, and says why where it does not."""
    shutil.copytree(FOLDER, tmp_path / "kernel")
    model_of("product").save(tmp_path / "product.safetensors")
    model_of("product").save(tmp_path / "bare.safetensors", proof=False)
    command = [sys.executable, "-I", "-c", "import sys, runpy; sys.path.insert(0, '.'); sys.argv[1:] = sys.argv[1:]; "]
    command[-1] += "runpy.run_module('kernel', run_name='__main__', alter_sys=True)"

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*command, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False)

    done = run("product.safetensors", "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["verified"]
    assert answer["certificate"]["error"] <= 1e-6
    assert run("product.safetensors").stdout.startswith("certified: |model - target| <= ")
    for name, reason in (("bare", "no proof"), ("missing", "no such file")):
        done = run(f"{name}.safetensors")
        assert done.returncode == 1
        assert reason in done.stderr


def test_the_kernel_imports_nothing_of_ours() -> None:
    """Only numpy, python-flint, safetensors, the standard library, and its own modules."""
    allowed = {"numpy", "flint", "safetensors", *sys.stdlib_module_names}
    for path in FOLDER.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                assert {each.name.split(".")[0] for each in node.names} <= allowed, path
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 1 or (node.module or "").split(".")[0] in allowed, path


CEILINGS = {"every file": 3414, "all": 5383, "statements": 362, "small": 2108}
"""They only fall: to 3,100 lines that every file loads, to 4,350 in all, and to 1,000 of the small kernel."""


def test_the_kernel_does_not_grow() -> None:
    """What must be trusted, in lines of code."""
    found = figures()
    assert all(found[name] <= most for name, most in CEILINGS.items()), found


@pytest.mark.parametrize(
    "field",
    ["error", "max_score", "max_weight", "outputs", "parts", "exp_ulps", "tokens", "dtype", "masks", "target"],
)
def test_every_field_of_the_claim_is_checked(field: str, tmp_path: Path) -> None:
    """A claim of less than can be proved is refused, whichever field it is in."""
    path = tmp_path / "product.safetensors"
    model_of("product").save(path)
    check_file(path)
    smaller = {
        "error": 1e-9,
        "max_score": 0.0,
        "max_weight": 7.5,
        "target": "0" * 64,
        "outputs": [1e-9],
        "parts": {"approximation": 0.0, "softmax": 0.0, "leak": 0.0, "rounding": 0.0},
        "exp_ulps": 10**6,
        "tokens": 2,
        "dtype": "float32",
        "masks": ["full"],
    }
    _rewrite(path, lambda header: header["claim"].update({field: smaller[field]}))
    with pytest.raises(Refused, match=field.removesuffix("s")):
        check_file(path)


def _rewrite(path: Path, change: object) -> None:
    from safetensors import safe_open
    from safetensors.numpy import save_file

    with safe_open(path, framework="np") as file:
        metadata = file.metadata()
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    header = json.loads(metadata["headsmith"])
    change(header)  # type: ignore[operator]
    save_file(tensors, path, metadata={**metadata, "headsmith": json.dumps(header)})


def test_the_digest_is_that_of_the_target_alone() -> None:
    """Another error, another recipe: the same target. Another constant: another one."""
    first = proved(*contents_of("product")).target
    assert first == proved(*contents_of("product of circuits")).target
    assert first != proved(*contents_of("network")).target
    header, tensors = contents_of("network")
    before = digest(header["source"], tensors)
    bias = tensors[header["source"]["nodes"][1]["bias"]]
    bias[0] = np.nextafter(bias[0], 1.0)
    assert digest(header["source"], tensors) != before


@pytest.mark.parametrize("name", ["network", "product", "mean", "spread", "sort", "attention", "ramps"])
def test_no_entry_of_the_dense_matrices_is_larger_than_the_largest_weight(name: str) -> None:
    """What is claimed of stored numbers is about those that a runtime multiplies with; and it is never far above."""
    found, model = proved(*contents_of(name)).max_weight, model_of(name)
    dense = model.dense()
    heads = [matrix for each in dense.layers for matrix in (each.W_Q, each.W_K, each.W_V, each.W_O)]
    largest = max(float(np.max(np.abs(each), initial=0.0)) for each in (*heads, dense.W_E, dense.W_U, dense.b_U))
    assert largest <= found <= max(16.0, 2.0 * model.bill.max_weight)


def test_another_target_is_refused() -> None:
    """Rule Same: the circuit of the proof must be the target, as a function."""
    header, tensors = contents_of("network")
    name = header["source"]["nodes"][1]["bias"]
    tensors[name] = tensors[name] + 1e-3
    # The circuit of a small network is stored again: it is no longer the target.
    with pytest.raises(Refused, match="does not compute the target"):
        proved(header, tensors)


def test_heads_that_claim_each_others_gates_cost_what_they_cost() -> None:
    """Rule Read: what a head reads is compared with what it should read; the difference is an error like any other."""
    header, tensors = contents_of("network")
    role = header["proof"]["roles"][0][0]
    tensors[role["component"]] = np.roll(tensors[role["component"]], 1)
    assert proved(header, tensors).error > 1.0


def test_a_gate_that_is_claimed_twice_is_refused() -> None:
    """Every component of a node has one head at most, and a gate without one must not cross zero."""
    header, tensors = contents_of("network")
    role = header["proof"]["roles"][0][0]
    tensors[role["component"]][1] = tensors[role["component"]][0]
    with pytest.raises(Refused, match="sink heads claim"):
        proved(header, tensors)
    header, tensors = contents_of("network")
    del header["proof"]["roles"][0], header["transformer"]["layers"][0]
    with pytest.raises(Refused, match="crosses zero on the domain"):
        proved(header, tensors)


def test_margins_are_checked() -> None:
    """What was proved of a table holds only if what it reads is off by no more than the margin."""
    header, tensors = contents_of("maximum")
    for table in header["proof"]["tables"]:
        table["margin"] = 0.0
    with pytest.raises(Refused, match="margin"):
        proved(header, tensors)


def test_a_wide_network_is_proved_without_writing_it_out() -> None:
    """Large nodes are compared as wholes: a thousand neurons are no thousand polynomials."""
    model = hs.compile(network(20, 300, 300, 3), (-1, 1), 1e-2)
    header, tensors = carried(model)
    assert proved(header, tensors).error <= 1.05 * model.certificate.error


def test_no_score_is_larger_than_stated_as_it_is_computed():
    """3 g is no float32, and is rounded up: the sum of three features g is more than three times g."""
    file, gain, targets = Forged(1, -1.0, 1.0, tokens=8, dtype="float32"), np.float32(37.3), [0, *range(7)]
    while not float(np.float32(gain + gain) + gain) > 3.0 * float(gain):
        gain = np.nextafter(gain, np.float32(100.0))
    nodes = [file.add(graph, "move", argument=0, targets=targets, size=1) for graph in (file.source, file.circuit)]
    file.outputs(*nodes)
    file.embed()
    file.register("y")
    file.register("address", size=4)
    codes = [[*(1.0 - 2.0 * (target >> bit & 1) for bit in range(3)), 0.0] for target in targets]
    file.model["positional"] = {"address": file.keep(codes)}
    reads, writes = [file.link("x", [[1.0]])], [file.link("y", [[1.0]])]
    file.bank("move", reads, writes, [nodes[1]], [0], gain=float(gain), keep_gain=0.0, address="address")
    file.model["readout"] = [file.link("y", [[1.0]])]
    assert float(np.float32(gain + gain) + gain) <= file.check().max_score <= 3.0001 * float(gain)


def test_no_weight_is_larger_than_stated_as_it_is_stored():
    """A weight times its head's scale is stored as one float32, which may be more than the product."""
    file, weight, scale = Forged(1, -1.0, 1.0, dtype="float32"), np.float32(1.3), np.float32(21.7)
    while not float(weight * scale) > float(weight) * float(scale):
        scale = np.nextafter(scale, np.float32(100.0))
    nodes = [file.relu(graph, file.scaled(graph, (0, float(weight)))) for graph in (file.source, file.circuit)]
    file.outputs(*nodes)
    file.embed()
    file.register("y")
    file.gates([file.link("x", [[weight]])], [file.link("y", [[1.0]])], nodes[1:], [0], float(scale))
    file.model["layers"][0][0] |= {"reference_gain": 50.0, "position_gain": 0.0}
    file.model["readout"] = [file.link("y", [[1.0]])]
    assert float(weight * scale) <= file.check().max_weight <= 1.000001 * float(weight * scale)
