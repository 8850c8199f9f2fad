"""Examples run, as a reader would run them."""

import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.effort import CAMPAIGN, cases

import headsmith as hs

EXAMPLES = Path(__file__).parent.parent / "examples"


NARROW = """
import sys
sys.path.insert(0, sys.argv.pop(1))
import demo, matplotlib.figure
made, planned, drawn = demo.random_network, demo.hs.plan, matplotlib.figure.Figure
compiled, attacked = demo.hs.compile, demo.falsify
demo.random_network = lambda *widths: made(*(min(width, 12) for width in widths))
demo.hs.compile = lambda target, domain, error: compiled(target, domain, 100 * error)
demo.hs.plan = lambda formula, domain, errors: planned("abs(x - 1)", domain, errors=[0.1])
demo.falsify = lambda model, effort: attacked(model, effort=100)
matplotlib.figure.Figure = lambda **options: drawn(**{**options, "dpi": 20, "layout": None})
demo.main()
"""
"""The demo with at most 12 neurons a layer, larger errors, a plan for a simpler formula, and coarse pictures."""


@pytest.mark.parametrize(
    "command", [["-c", NARROW, EXAMPLES], pytest.param([EXAMPLES / "demo.py"], marks=pytest.mark.campaign)], ids=len
)
def test_the_demo(command: list[str | Path], tmp_path: Path) -> None:
    """In a process of its own, as `make demo` does."""
    done = subprocess.run([sys.executable, *command, tmp_path], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for word in ("Certificate", "Bill", "Falsifier", "verified again"):
        assert done.stdout.count(word) == 3
    names = {f"{name}.{kind}" for name in ("formula", "small", "large") for kind in ("png", "safetensors")}
    assert {path.name for path in tmp_path.iterdir()} == names


GALLERY = sorted(path.stem for path in EXAMPLES.glob("*.py") if path.stem not in ("demo", "show"))


def test_the_gallery_is_complete() -> None:
    wanted = {"multiplication", "reciprocal", "maximum", "sorting", "polynomial", "rational", "gaussian"}
    assert wanted <= set(GALLERY)


LONG = ("gaussian", "rational", "reciprocal", "native_heads")
LONG += ("in_context_neighbours", "in_context_newton", "in_context_logistic", "in_context_ridge")
"""What takes five seconds and more: functions of one formula have their like in `multiplication` and `polynomial`, and
tests/sequence compares learners in context with scikit-learn, too."""


@pytest.fixture
def coarse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Formulas are compiled for a larger error in `make test`."""
    compiled = hs.compile
    if not CAMPAIGN:
        monkeypatch.setattr(
            hs, "compile", lambda target, domain, error, **options: compiled(target, domain, 30 * error, **options)
        )


@pytest.mark.again
@pytest.mark.usefixtures("coarse")
@pytest.mark.parametrize("name", cases(GALLERY, LONG))
def test_the_gallery(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(EXAMPLES)
    monkeypatch.setattr(sys, "argv", [name])
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    printed = capsys.readouterr().out
    for word in ("Certificate", "Bill", "worst error found"):
        assert word in printed
    assert not list(tmp_path.iterdir())
