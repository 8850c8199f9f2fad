"""Sweeps, protocols and the study of arithmetic, at budgets that take no time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner

import headsmith as hs
from headsmith.cli.group import commands
from headsmith.lab.training import arithmetic as study
from headsmith.lab.training import points as training_points
from headsmith.lab.training import protocols, sweep
from headsmith.lab.training.laws import Effort
from headsmith.lab.training.points import Field
from headsmith.plan.reading import as_graph

QUICK = Effort(seeds=(0,), steps=40, iterations=3)


@pytest.fixture(autouse=True)
def coarse(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training_points, "GRID", {1: 501, 2: 41, 3: 9})
    monkeypatch.setattr(training_points, "BESIDE", 200)
    monkeypatch.setattr(sweep, "REQUESTS", (1e-1, 1e-2))


def run(*arguments: str) -> Any:
    found = CliRunner().invoke(commands, ["train", *arguments, "--json"])
    assert found.exit_code == 0, found.output
    return json.loads(found.output)


def test_a_sweep_puts_what_is_trained_beside_what_is_built(tmp_path: Path) -> None:
    found = sweep.sweep("sin(x)", (-3, 3), "tokens", (2, 4), effort=QUICK)
    built = [hs.compile("sin(x)", (-3, 3), error=error) for error in (1e-1, 1e-2)]
    fitting = [
        m.certificate.error for m in built if m.bill.reference_tokens <= 4 and m.bill.layers == m.bill.heads == 1
    ]
    assert found.rows[1].built == min(fitting)
    for row in found.rows:
        assert row.best <= row.median
        assert row.lower_bound is None or row.lower_bound <= row.best
    assert len(found.csv().splitlines()) == 3
    found.plot(tmp_path / "sweep.png")
    assert (tmp_path / "sweep.png").stat().st_size > 5000
    with pytest.raises(hs.TargetError, match="cannot sweep"):
        sweep.sweep("sin(x)", (-3, 3), "tokens", ())


def test_sweeps_of_the_full_shape() -> None:
    data = run("relu(x)", "--domain=-1:1", "--sweep", "layers=1:2", "--seeds", "1", "--steps", "20")
    assert [row["size"] for row in data["rows"]] == [1, 2]
    assert all(row["built"] == pytest.approx(1e-2, rel=1e-3) for row in data["rows"])
    wrong = CliRunner().invoke(commands, ["train", "x", "--domain=-1:1", "--sweep", "width=1:2"])
    assert wrong.exit_code != 0
    assert "write tokens=1:8" in str(wrong.exception) + wrong.output


def test_arithmetic_keeps_the_causes_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study, "ASKED", (0.3, 0.1))
    found = study.arithmetic(["x*y"], seeds=1, steps=30)
    for row in found.rows:
        model = hs.compile("x*y", {"x": (-1, 1), "y": (-1, 1)}, error=0.3 if row.built > 0.1 else 0.1, recipe="relu")
        assert (row.layers, row.heads, row.built) == (model.bill.layers, model.bill.heads, model.certificate.error)
        assert row.native < row.built
        assert row.native < row.attention_best <= row.attention_median
    for text in (found.table(), found.markdown(), found.latex(), found.csv()):
        assert "network" in text
    found.plot(tmp_path / "arithmetic.png")
    assert (tmp_path / "arithmetic.png").stat().st_size > 5000
    with pytest.raises(hs.TargetError, match="no target x\\+y"):
        study.arithmetic(["x+y"])


def test_the_model_of_precision_ls_has_the_published_size_and_is_causal() -> None:
    student = protocols.Blocks(20, 10, 40, 64, 2, 2)
    weights = student.start(0)
    assert weights.shape == (1, 104_010)
    x = torch.randn(2, 40, 20, generator=torch.Generator().manual_seed(0))
    other = x.clone()
    other[:, 20:] += 1.0
    found, moved = student.outputs(weights, x), student.outputs(weights, other)
    assert torch.equal(found[:, :20], moved[:, :20])
    assert not torch.equal(found[:, 20:], moved[:, 20:])


def test_precision_ls_prints_its_caveats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocols, "TESTED", 16)
    data = run("--protocol", "precision-ls", "--steps", "3")
    trained, *built, variance = data["rows"]
    assert trained["parameters"] == 104_010
    assert all(row["mse"] < 1e-8 < trained["mse"] for row in built)
    assert all(row["largest_error"] <= float(row["certified"]) * 1.05 for row in built)
    assert variance["mse"] == pytest.approx(1.0, abs=0.3)
    assert len(data["caveats"]) == 5
    assert "- the budget: 3 steps" in protocols.Report("p", ("a",), (), ("the budget: 3 steps",)).table()


def test_the_law_has_a_picture(tmp_path: Path) -> None:
    data = run("--protocol", "law", "--steps", "300", "-o", str(tmp_path / "law.png"))
    assert data["least_ratio"] >= 1.0 - 1e-3
    assert (tmp_path / "law.png").stat().st_size > 5000


def test_least_squares_solves_what_it_can() -> None:
    random = np.random.default_rng(0)
    x, w = random.uniform(-1, 1, (20, 11, 3)), random.standard_normal((20, 3))
    found = protocols._solved(x, np.einsum("pmf,pf->pm", x, w), 1.0)
    assert max(found[3:]) < 1e-9 < min(found[:2])


def test_fields_read_targets_of_any_kind() -> None:
    field = Field(as_graph("x*y", None), -np.ones(2), np.ones(2))
    points = field.test()
    assert np.allclose(points.y[:, 0, 0], points.x[:, 0].prod(1))
