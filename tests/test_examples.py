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
        assert done.stdout.count(word) == 2
    names = {"small.png", "small.safetensors", "large.png", "large.safetensors"}
    assert {path.name for path in tmp_path.iterdir()} == names
