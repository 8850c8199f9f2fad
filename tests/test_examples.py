"""Examples run, as a reader would run them."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.mark.slow
def test_the_demo(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, EXAMPLES / "demo.py", tmp_path], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for word in ("Certificate", "Bill", "Falsifier", "verified again"):
        assert done.stdout.count(word) == 3
    names = {f"{name}.{kind}" for name in ("formula", "small", "large") for kind in ("png", "safetensors")}
    assert {path.name for path in tmp_path.iterdir()} == names


GALLERY = sorted(path.stem for path in EXAMPLES.glob("*.py") if path.stem not in ("demo", "show"))


def test_the_gallery_is_complete() -> None:
    wanted = {"multiplication", "reciprocal", "maximum", "sorting", "polynomial", "rational", "gaussian"}
    assert wanted <= set(GALLERY)


@pytest.mark.parametrize("name", GALLERY)
def test_the_gallery(name: str, tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, EXAMPLES / f"{name}.py"], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for word in ("Certificate", "Bill", "worst error found"):
        assert word in done.stdout
    assert not list(tmp_path.iterdir())
