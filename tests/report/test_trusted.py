"""Whoever doubts one certificate has to read the lines of the kernel that ran for it, and no others."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import headsmith as hs
from headsmith.cli import commands
from headsmith.report.trusted import KERNEL, code_lines, groups, listing, ran_for, trusted


@pytest.fixture
def product(tmp_path: Path) -> Path:
    path = tmp_path / "product.safetensors"
    hs.compile("x*y", {"x": (-1, 1), "y": (-1, 1)}, error=1e-3).save(path)
    return path


def test_lines_that_ran_are_code_of_the_kernel_and_few(product: Path) -> None:
    ran = ran_for(product)
    assert all(lines <= code_lines(KERNEL / name) for name, lines in ran.items())
    assert 1000 < sum(map(len, ran.values())) < 0.6 * sum(trusted().values())
    # A formula of two variables has no learner, no samples, no stock model.
    assert {"core/arithmetic.py", "core/softmax.py", "core/table.py"} <= ran.keys()
    assert ran.keys().isdisjoint({"rules/sampled.py", "rules/llama.py", "rules/gpt2.py"})


def test_a_special_rule_is_loaded_only_where_a_file_needs_it(product: Path, tmp_path: Path) -> None:
    """Who reads the core has read all that takes part in the check of a formula or a network."""
    found = groups()
    assert {name for group in found.values() for name in group} == trusted().keys()
    assert {"stock", "steps", "attentions", "composed", "sampled"} <= found.keys()
    network = tmp_path / "network.safetensors"
    hs.compile("relu(x - y) + max(x, y)", (-1, 1), error=1e-3, recipe="relu").save(network)
    learner, descent = tmp_path / "learner.safetensors", {*found["core"], *found["steps"]}
    hs.in_context.ridge(0.5, 2, 2, 4, error=1e-2).save(learner)
    for file, most in ((product, {*found["core"]}), (network, {*found["core"]}), (learner, descent)):
        program = "import sys; from headsmith.kernel.core.check import check_file; check_file(sys.argv[1]); "
        program += "print(*sys.modules)"
        done = subprocess.run([sys.executable, "-c", program, str(file)], capture_output=True, text=True, check=True)
        names = [name for name in done.stdout.split() if name.startswith("headsmith.kernel.")]
        modules = [Path(*name.split(".")[2:]) for name in names]
        loaded = {f"{name}.py" for name in modules if len(name.parts) > 1}
        assert loaded <= most
    assert loaded & {*found["steps"]}


def test_what_did_not_run_is_not_needed(product: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A function that is not in the listing may be replaced by nonsense: the file is verified as before. One that is
    may not."""
    from headsmith.kernel.core import check, ranges, stream

    text = listing(ran_for(product))
    assert "def _is_gap" in text
    assert "def copy(" not in text
    assert "def walk_through" in text
    before = hs.verify(product)
    monkeypatch.delattr(stream, "copy")
    assert hs.verify(product) == before
    monkeypatch.delattr(ranges, "_is_gap")
    with pytest.raises(Exception, match="_is_gap"):
        check.check_file(str(product))


def test_command(product: Path, tmp_path: Path) -> None:
    path = tmp_path / "listing.txt"
    found = CliRunner().invoke(commands, ["verify", str(product), "--trusted", str(path)])
    assert found.exit_code == 0
    assert "lines of the kernel ran for it" in " ".join(found.output.split())
    assert path.read_text().startswith("kernel/core/arithmetic.py: ")
    answer = CliRunner().invoke(commands, ["verify", str(product), "--trusted", str(path), "--json"])
    lines = json.loads(answer.output)["trusted"]["lines"]
    assert sum(lines.values()) == path.read_text().count("\n") - 2 * len(lines) + 1
