"""Without the optional packages: refused before any work is done, nothing lost, and the message names the extra."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
BLOCK = "import sys; sys.modules['matplotlib'] = sys.modules['sklearn'] = None; "
COMMAND = BLOCK + "from headsmith.cli import main; main(sys.argv[1:])"
SCRIPT = BLOCK + "import runpy; sys.argv = sys.argv[1:]; sys.path.insert(0, sys.argv[0].rpartition('/')[0]); "
SCRIPT += "runpy.run_path(sys.argv[0], run_name='__main__')"


def run(code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True)


@pytest.mark.parametrize(
    "arguments",
    [
        ["plan", "1/x", "--domain", "0.1:1"],
        ["regions", "max(x, y)", "--domain", "-1:1"],
        ["plot", "there is no such file"],
    ],
)
def test_pictures_are_refused_before_any_work_is_done(arguments: list[str], tmp_path: Path) -> None:
    done = run(COMMAND, *arguments, "-o", tmp_path / "picture.png")
    assert done.returncode == 1
    assert done.stderr == 'headsmith: drawing needs matplotlib: pip install "headsmith[plot]"\n'
    assert done.stdout == ""


def test_everything_else_works_without_them() -> None:
    done = run(COMMAND, "plan", "1/x", "--domain", "0.5:1", "--error", "0.1", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["file"] is None


def test_a_claim_that_cannot_be_checked_does_not_fail() -> None:
    done = run(COMMAND, "claims", "--only", "U6", "--json")
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)["claims"]
    assert row["holds"] is None
    assert 'pip install "headsmith[sklearn]"' in row["verdict"]
    assert row["arxiv"] == "2504.15956"


@pytest.mark.one_in(4)
@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("in_context_*.py")), ids=lambda path: path.stem)
def test_examples_say_what_they_need(path: Path) -> None:
    done = run(SCRIPT, path)
    assert done.returncode == 1
    assert done.stderr.strip() == 'this example compares with scikit-learn: pip install "headsmith[sklearn]"'


def test_the_demo_goes_on_without_pictures(tmp_path: Path) -> None:
    """With small networks in place of the demo's own, and without its plan: pictures are what this is about."""
    code = BLOCK + "sys.path.insert(0, sys.argv.pop(1)); import demo; small = demo.random_network(2, 3, 1); "
    code += "demo.random_network = lambda *widths: small; demo.hs.plan = lambda *_, **__: []; demo.main()"
    done = run(code, EXAMPLES, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("verified again") == 3
    assert 'No pictures: drawing needs matplotlib: pip install "headsmith[plot]"' in done.stdout
    assert {path.suffix for path in tmp_path.iterdir()} == {".safetensors"}
