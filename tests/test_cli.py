"""The command line: every command, its JSON, its exit codes, and what it loads."""

import io
import json
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headsmith as hs
from headsmith.cli import main
from headsmith.cli.options import DTYPES
from headsmith.core.rounding import PRECISIONS

pytestmark = pytest.mark.usefixtures("coarse_pictures")


class Shell:
    """Runs commands in this process; keeps what they print."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys = capsys

    def __call__(self, *arguments: object, code: int = 0) -> str:
        with pytest.raises(SystemExit) as stop:
            main([str(argument) for argument in arguments])
        self.out, self.err = self.capsys.readouterr()
        assert stop.value.code == code, self.err
        return self.out

    def json(self, *arguments: object, code: int = 0) -> Any:
        """Exactly one JSON object on standard output, nothing on standard error."""
        out = self(*arguments, "--json", code=code)
        assert self.err == ""
        return json.loads(out)


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(capsys)


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    random = np.random.default_rng(3)
    arrays = {"W0": random.normal(size=(6, 2)), "b0": random.normal(size=6) / 4}
    arrays |= {"W1": random.normal(size=(2, 6)), "b1": random.normal(size=2)}
    np.savez(tmp_path / "net.npz", **arrays)
    return tmp_path / "net.npz"


@pytest.fixture
def model(weights: Path, shell: Shell, tmp_path: Path) -> Path:
    path = tmp_path / "net.safetensors"
    shell("compile", weights, "--domain", "-1:1", "--error", "1e-3", "-o", path)
    return path


def test_compile_reports_and_saves(weights: Path, shell: Shell, tmp_path: Path) -> None:
    path = tmp_path / "out.safetensors"
    found = shell.json("compile", weights, "--domain", "-1:1", "--error", "1e-3", "-o", path)
    stored = hs.load(path)
    assert found["certificate"]["error"] == stored.certificate.error <= 1e-3
    assert set(found["certificate"]["parts"]) == {"approximation", "softmax", "leak", "rounding"}
    assert found["bill"]["heads"] == stored.bill.heads
    assert found["bill"]["max_score"] == stored.bill.max_score
    assert found["file"] == str(path)
    text = shell("compile", weights, "--domain", "-1:1", "--error", "1e-3")
    assert "Certificate" in text
    assert "Bill" in text
    assert "not saved" in text


def test_compile_options_reach_the_compiler(weights: Path, shell: Shell) -> None:
    options = ["--domain", "-1:1", "--domain", "x1=0:0.5", "--error", "1e-2", "--dtype", "float32", "--tokens", "5"]
    found = shell.json("compile", weights, *options, "--recipe", "relu")
    assert found["certificate"]["dtype"] == "float32"
    assert found["certificate"]["tokens"] == 5
    assert found["file"] is None


def test_domains_by_name(weights: Path, shell: Shell, tmp_path: Path) -> None:
    path = tmp_path / "out.safetensors"
    shell("compile", weights, "--domain", "x1=0:2", "--domain", "x0=-3:1", "--error", "1e-2", "-o", path)
    box = hs.load(path).box
    assert box.low.tolist() == [-3.0, 0.0]
    assert box.high.tolist() == [1.0, 2.0]


def test_names_may_come_with_the_weights(shell: Shell, tmp_path: Path) -> None:
    np.savez(tmp_path / "net.npz", W0=[[1.0, 2.0]], b0=[0.5], names=["left", "right"])
    path = tmp_path / "net.safetensors"
    shell("compile", tmp_path / "net.npz", "--domain", "0:1", "-o", path)
    assert shell("run", path, "--input", "left=0.25", "--input", "right=0.5") == "y0 = 1.75\n"


def test_formulas(shell: Shell, tmp_path: Path) -> None:
    path = tmp_path / "product.safetensors"
    options = ["--domain", "x=-1:1", "--domain", "y=-1:1", "--error", "1e-2", "-o", path]
    found = shell.json("compile", "x*y", *options)
    assert found["certificate"]["error"] <= 1e-2
    assert found["certificate"]["parts"]["approximation"] > 0.0
    assert (found["bill"]["layers"], found["bill"]["heads"]) == (1, 1)
    assert shell.json("compile", "x*y", *options, "--recipe", "relu")["bill"]["heads"] == 8
    shell.json("compile", "x*y", *options)
    outputs = shell.json("run", path, "--input", "x=0.3", "--input", "y=-0.7")["outputs"]
    assert outputs[0] == pytest.approx(-0.21, abs=1e-2)
    assert shell.json("verify", path)["certificate"]["error"] == found["certificate"]["error"]
    assert shell.json("bill", path)["bill"] == found["bill"]
    assert shell.json("falsify", path, "--effort", "200")["found"]["ratio"] <= 1.0
    shell("plot", path, "-o", tmp_path / "product.png")


def test_several_formulas_and_signs(shell: Shell, tmp_path: Path) -> None:
    path = tmp_path / "pair.safetensors"
    shell("compile", "-x*y", "-cos(x), x + y", "--domain", "-1:1", "--json", "--error", "1e-3", "-o", path)
    outputs = shell.json("run", path, "--input", "x=0.5", "--input", "y=-0.25")["outputs"]
    assert outputs == pytest.approx([0.125, -np.cos(0.5), 0.25], abs=1e-3)
    box = hs.load(path).box
    assert box.names == ("x", "y")


def test_fewer_layers(shell: Shell) -> None:
    given = ["compile", "x*y", "--domain", "-1:1", "--error", "1e-2", "--recipe", "relu"]
    deep, shallow = shell.json(*given)["bill"], shell.json(*given, "--max-layers", "2")["bill"]
    assert shallow["layers"] <= 2 < deep["layers"]
    assert shallow["heads"] > deep["heads"]


@pytest.mark.parametrize(
    ("formula", "domain", "says"),
    [
        ("x*z", "x=0:1", "x only\n    x*z\n      ^\n"),
        ("x + foo(x)", "0:1", "unknown function 'foo'\n    x + foo(x)\n        ^^^\n"),
        ("(x", "0:1", "never closed\n    (x\n    ^\n"),
        ("-x + (", "0:1", "expected\n    -x + (\n          ^\n"),
        ("x**200", "0:1", "    x**200\n     ^^\n"),
        ("1/x", "0:1", "denominator ranges over [0, 1]"),
    ],
)
def test_mistakes_in_formulas_are_shown(formula: str, domain: str, says: str, shell: Shell) -> None:
    assert shell("compile", formula, "--domain", domain, code=1) == ""
    assert says in shell.err
    assert shell.err.startswith("headsmith: ")
    assert "Traceback" not in shell.err
    assert says.strip() in shell.json("compile", formula, "--domain", domain, code=1)["error"]["message"]


def test_run_on_one_input(model: Path, shell: Shell) -> None:
    expected = hs.load(model)(x0=0.3, x1=-0.5)
    found = shell.json("run", model, "--input", "x0=0.3", "--input", "x1=-0.5")
    assert found["outputs"] == expected.tolist()
    assert found["names"] == ["x0", "x1"]
    text = shell("run", model, "--input", "x0=0.3", "--input", "x1=-0.5")
    assert [float(line.split("=")[1]) for line in text.splitlines()] == expected.tolist()


def test_run_on_a_table(model: Path, shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = np.random.default_rng(0).uniform(-1.0, 1.0, (7, 2))
    np.savetxt(tmp_path / "plain.csv", rows, delimiter=",", fmt="%.17g")
    np.savetxt(tmp_path / "named.csv", rows[:, ::-1], delimiter=",", fmt="%.17g", header="x1,x0", comments="")
    expected = hs.load(model)(rows)
    for name in ("plain.csv", "named.csv"):
        shell("run", model, "--csv", tmp_path / name, "-o", tmp_path / "out.csv")
        found = np.loadtxt(tmp_path / "out.csv", delimiter=",", skiprows=1)
        np.testing.assert_array_equal(found, expected)
    assert shell.json("run", model, "--csv", tmp_path / "plain.csv")["outputs"] == expected.tolist()
    assert shell("run", model, "--csv", tmp_path / "plain.csv").splitlines()[0] == "y0,y1"
    monkeypatch.setattr("sys.stdin", io.StringIO((tmp_path / "plain.csv").read_text()))
    assert shell.json("run", model, "--csv", "-")["outputs"] == expected.tolist()


def test_a_model_of_several_tokens_takes_rows_as_sequences(weights: Path, shell: Shell, tmp_path: Path) -> None:
    path = tmp_path / "sequence.safetensors"
    shell("compile", weights, "--domain", "-1:1", "--error", "1e-3", "--tokens", "3", "-o", path)
    rows = np.random.default_rng(0).uniform(-1.0, 1.0, (7, 2))
    np.savetxt(tmp_path / "in.csv", rows, delimiter=",", fmt="%.17g")
    found = shell.json("run", path, "--csv", tmp_path / "in.csv", "--causal")["outputs"]
    loaded = hs.load(path)
    expected = [loaded(rows[start : start + 3], causal=True) for start in (0, 3, 6)]
    np.testing.assert_array_equal(found, np.concatenate(expected))
    assert len(shell.json("run", path, "--input", "x0=0", "--input", "x1=0")["outputs"]) == 2


def test_inputs_outside_the_domain_are_refused(model: Path, shell: Shell) -> None:
    outside = ("run", model, "--input", "x0=7", "--input", "x1=0")
    shell(*outside, code=1)
    assert "x0" in shell.err
    shell(*outside, "--outside")


def test_verify_and_bill(model: Path, shell: Shell) -> None:
    found = shell.json("verify", model)
    assert found["verified"] is True
    assert found["certificate"]["error"] <= 1e-3
    assert "verified" in shell("verify", model)
    assert shell.json("bill", model)["bill"]["layers"] == 1
    assert "reference tokens" in shell("bill", model)


def test_verify_refuses_a_broken_file(model: Path, shell: Shell, tmp_path: Path) -> None:
    broken = tmp_path / "broken.safetensors"
    broken.write_bytes(model.read_bytes()[:-8])
    assert shell("verify", broken, code=1) == ""
    assert "broken.safetensors" in shell.err
    assert shell.json("verify", broken, code=1)["error"]["kind"] == "FileFormatError"


def test_verify_refuses_a_claim_that_is_too_good(model: Path, shell: Shell) -> None:
    honest = hs.load(model)
    replace(honest, certificate=replace(honest.certificate, error=1e-9)).save(model)
    shell("verify", model, code=1)
    assert "is claimed, and" in shell.err
    assert shell.json("verify", model, code=1)["error"]["kind"] == "CertificateError"


def test_falsify(model: Path, shell: Shell) -> None:
    found = shell.json("falsify", model, "--effort", "200")
    assert 0.0 < found["found"]["error"] <= found["certificate"]["error"]
    assert "tightness" in shell("falsify", model, "--effort", "200")


def test_plot(model: Path, shell: Shell, tmp_path: Path) -> None:
    found = shell.json("plot", model, "-o", tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")
    assert found["found"]["tightness"] <= 1.0
    shell("plot", model, "-o", tmp_path / "picture.gif", code=1)
    assert ".png" in shell.err


def test_claims(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """A1 is checked once; the formats show what was found."""
    from headsmith.lab.claims import rows as claims

    known = tuple(replace(each, check=cache(each.check)) for each in claims.claims())
    monkeypatch.setattr(claims, "claims", lambda: known)
    (found,) = shell.json("claims", "--only", "A1")["claims"]
    assert {"id", "claim", "ran", "figure", "holds", "verdict"} <= set(found)
    assert found["id"] == "A1"
    assert found["holds"] is True
    assert "A1" in shell("claims", "--only", "A1", "--figures")
    assert shell("claims", "--only", "A1", "--format", "markdown").startswith("| id | claim |")
    assert r"\begin{tabular}" in shell("claims", "--only", "A1", "--format", "latex")
    assert json.loads(shell("claims", "--only", "A1", "--format", "json"))["claims"][0]["id"] == "A1"
    shell("claims", "--only", "Z9", code=1)
    assert "R1" in shell.err


def test_a_claim_that_fails_sets_the_exit_code(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    from headsmith.lab.claims import rows as claims

    def fails() -> claims.Finding:
        return claims.Finding("nothing", {"figure": 1.0}, False, "fails: on purpose")

    monkeypatch.setattr(claims, "claims", lambda: (claims.Claim("Z1", "a false claim", fails),))
    found = shell.json("claims", code=1)["claims"]
    assert found[0]["holds"] is False
    assert "on purpose" in shell("claims", code=1)


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["nonsense"], 2, "nonsense"),
        (["compile", "NET"], 2, "--domain"),
        (["compile", "NET", "--domain", "0:1", "--error", "small"], 2, "--error"),
        (["compile", "NET", "--domain", "0:1", "-o", "/nowhere/at/all/net.safetensors"], 2, "folder"),
        (["compile", "NET", "--domain", "0-1"], 1, "LOW:HIGH"),
        (["compile", "NET", "--domain", "1:0"], 1, "reversed"),
        (["compile", "NET", "--domain", "0:inf"], 1, "finite"),
        (["compile", "NET", "--domain", "0:1", "--domain", "0:2"], 1, "twice"),
        (["compile", "NET", "--domain", "x0=0:1"], 1, "x1"),
        (["compile", "NET", "--domain", "0:1", "--domain", "z=0:1"], 1, "z"),
        (["compile", "NET", "--domain", "0:1", "--error", "0"], 1, "positive"),
        (["compile", "NET", "--domain", "0:1", "--error", "1e-30"], 1, "smallest"),
        (["compile", "NET", "--domain", "0:1", "--recipe", "magic"], 1, "magic"),
        (["compile", "missing.npz", "--domain", "0:1"], 1, "no such file"),
        (["compile", "network.keras", "--domain", "0:1"], 1, ".npz"),
        (["run", "MODEL"], 2, "--csv"),
        (["run", "MODEL", "--input", "x0=0"], 1, "x1"),
        (["run", "MODEL", "--input", "x0=0", "--input", "x1=0", "--input", "x2=0"], 1, "x2"),
        (["run", "MODEL", "--input", "x0=0", "--input", "x1=one"], 1, "one"),
        (["run", "MODEL", "--input", "x0"], 1, "NAME=VALUE"),
        (["run", "MODEL", "--csv", "missing.csv"], 1, "no such file"),
        (["verify", "missing.safetensors"], 1, "no such file"),
    ],
)
def test_errors_are_one_message(
    arguments: list[str], code: int, says: str, weights: Path, model: Path, shell: Shell
) -> None:
    given = [{"NET": str(weights), "MODEL": str(model)}.get(argument, argument) for argument in arguments]
    assert shell(*given, code=code) == ""
    assert says in shell.err
    assert "Traceback" not in shell.err
    found = shell.json(*given, code=code)
    assert says in found["error"]["message"]
    assert found["error"]["kind"]


def test_an_unreachable_error_says_what_can_be_reached(weights: Path, shell: Shell) -> None:
    problem = shell.json("compile", weights, "--domain", "0:1", "--error", "1e-30", code=1)["error"]
    assert problem["kind"] == "UnreachableError"
    assert problem["part"] == "rounding"
    shell("compile", weights, "--domain", "0:1", "--error", problem["smallest"])


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        ({"W0": np.ones((1, 1))}, "W0, b0"),
        ({"W1": np.ones((1, 1)), "b1": np.ones(1)}, "W0, b0"),
        ({"W0": np.ones((1, 1)), "b0": np.ones(1), "extra": np.ones(1)}, "extra"),
        ({"W0": np.ones((2, 1)), "b0": np.ones(2), "W1": np.ones((1, 3)), "b1": np.ones(1)}, "pair 1"),
        ({"W0": np.array([[np.nan]]), "b0": np.ones(1)}, "finite"),
        ({"W0": np.array([["a"]]), "b0": np.ones(1)}, "pair 0"),
        ({"W0": np.array([[object()]]), "b0": np.ones(1)}, "plain arrays"),
    ],
)
def test_weights_that_make_no_network(arrays: dict[str, Any], says: str, shell: Shell, tmp_path: Path) -> None:
    np.savez(tmp_path / "net.npz", **arrays)
    shell("compile", tmp_path / "net.npz", "--domain", "0:1", code=1)
    assert says in shell.err


@pytest.mark.parametrize(
    ("text", "says"),
    [("", "no rows"), ("0.1\n", "1 columns"), ("x0,z\n0,0\n", "x1"), ("0,0\n0,one\n", "row 2"), ("0,0\n0\n", "row 2")],
)
def test_tables_that_are_not_inputs(text: str, says: str, model: Path, shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text(text)
    shell("run", model, "--csv", tmp_path / "in.csv", code=1)
    assert says in shell.err


def test_a_file_that_is_no_archive(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "net.npz").write_text("not a zip file")
    shell("compile", tmp_path / "net.npz", "--domain", "0:1", code=1)
    assert "not an .npz file" in shell.err


def loaded_by(program: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"{program}\nimport sys\nprint(*sorted({{n.split('.')[0] for n in sys.modules}}))"],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stdout.splitlines()[-1].split())


def test_help_loads_nothing_heavy() -> None:
    program = "from headsmith.cli import main\ntry: main(['--help'])\nexcept SystemExit as stop: assert stop.code == 0"
    heavy = {"numpy", "matplotlib", "torch", "onnx", "rich", "flint", "safetensors", "sklearn"}
    assert not loaded_by(program) & heavy


def test_the_formats_are_those_of_models() -> None:
    assert list(DTYPES) == list(PRECISIONS)


def test_importing_headsmith_loads_no_framework() -> None:
    used = "import headsmith as hs\nhs.compile, hs.load, hs.Network"
    assert not loaded_by(used) & {"matplotlib", "torch", "onnx", "onnxruntime", "sklearn", "rich", "click"}


def test_the_package_keeps_its_functions_when_modules_of_the_same_name_are_imported() -> None:
    import headsmith.compile
    from headsmith.compile import compile as function

    assert headsmith.compile is function
    assert set(hs.__all__) <= set(dir(hs))
    with pytest.raises(AttributeError, match="nonsense"):
        hs.nonsense  # noqa: B018


def test_narrow_terminals_lose_no_column(shell: Shell, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    assert "attention layers, no feed-forward block" in shell("bill", model)


@pytest.mark.parametrize("form", ["markdown", "latex", "csv"])
def test_bills_and_plans_for_papers_and_spreadsheets(form: str, shell: Shell, model: Path) -> None:
    bill, mark = hs.load(model).bill, {"markdown": "| --- |", "latex": r"\toprule", "csv": "d_model"}[form]
    text = shell("bill", model, "--format", form)
    assert text.rstrip("\n") == getattr(bill, form)().rstrip("\n")
    assert mark in text
    plan = shell("plan", "1/x", "--domain", "0.5:1", "--error", "0.1", "--format", form)
    assert mark in plan
    assert "relu" in plan


def test_explain(shell: Shell, model: Path) -> None:
    text = shell("explain", model, "--heads", 1)
    assert "Layer 1" in text
    assert "more sink heads" in text
    assert shell.json("explain", model, "--heads", 1)["text"] == text.rstrip("\n")


@pytest.mark.parametrize("name", ["model.png", "model.csv"])
def test_a_model_is_not_saved_as_something_else(name: str, shell: Shell, weights: Path, tmp_path: Path) -> None:
    shell("compile", weights, "--domain", "-1:1", "-o", tmp_path / name, code=1)
    assert ".safetensors" in shell.err
