"""Theorems for Rocq: what the text says is what the model computes, and everything else is refused. (`make lemmas` and
lemmas/records.py have Rocq check such theorems; nothing here needs it.)"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise
from math import exp
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.models.networks import random_network

import headsmith as hs
from headsmith.cli import main
from headsmith.export.rocq import LEAST, rocq_text
from headsmith.export.rocq_target import number, target_text

ONE = {"x": (-1, 1)}
CASES: dict[str, Callable[[], hs.Compiled]] = {
    "relu": lambda: hs.compile("relu(x)", ONE, 1e-2),
    "clip": lambda: hs.compile("clip(x, -0.5, 0.25)", ONE, 1e-2),
    "largest": lambda: hs.compile("max(2*x, y)", {"x": (-1, 1), "y": (-1, 2)}, 1e-2),
    "waves": lambda: hs.compile("sin(x), cos(x)", {"x": (-3, 3)}, 1e-2),
    "quotient": lambda: hs.compile("1/x", {"x": (0.1, 1)}, 1e-2, dtype="float32"),
}


@pytest.fixture(scope="module")
def made() -> dict[str, hs.Compiled]:
    return {name: case() for name, case in CASES.items()}


def softmax(tokens: list[tuple[float, float]]) -> float:
    highest = max(score for _, score in tokens)
    weights = [exp(score - highest) for _, score in tokens]
    return sum(w * value for w, (value, _) in zip(weights, tokens, strict=True)) / sum(weights)


def computed(text: str, output: int, point: list[float]) -> float:
    """What the definitions of a text say that the model computes, read by rules of their own."""
    names = re.search(r"Definition form \(([\w ]+) : R\)", text).group(1).split()
    place: dict[str, Any] = dict(zip(names, point, strict=True))
    form = eval(re.search(r"Definition form .*:= (.*)\.\n", text).group(1), place)
    heads = dict(re.findall(r"Definition (head_\d+_\d+) \(t : R\) : list \(R \* R\) :=\n(.*?)\.\n", text, re.DOTALL))
    body = re.search(rf"Definition model_{output} .*:= (.*)\.\n", text).group(1)
    means = {name: softmax(eval(tokens.replace(";", ",").strip(), {"t": form})) for name, tokens in heads.items()}
    body = re.sub(r"softmax \((head_\d+_\d+) \(form [\w ]+\)\)", r"means['\1']", body)
    return float(eval(body, {**place, "means": means}))


@pytest.mark.parametrize("name", CASES)
def test_the_text_says_what_the_model_computes(name: str, made: dict[str, hs.Compiled], rng: Any) -> None:
    model, text = made[name], rocq_text(made[name])
    for point in rng.uniform(model.box.low, model.box.high, (20, len(model.box.low))):
        wanted = np.atleast_1d(model(np.float32(point) if name == "quotient" else point))
        held = [float(each) for each in (np.float32(point) if name == "quotient" else point)]
        for output, value in enumerate(wanted):
            room = max(model.certificate.parts["rounding"], 1e-12)
            assert abs(computed(text, output, held) - float(value)) <= room


@pytest.mark.parametrize("name", CASES)
def test_a_theorem_for_each_output_says_the_claimed_error(name: str, made: dict[str, hs.Compiled]) -> None:
    model, text = made[name], rocq_text(made[name])
    for output, error in enumerate(model.certificate.outputs):
        statement = re.search(rf"^Theorem close_{output} (.*?)^Proof\.", text, re.MULTILINE | re.DOTALL).group(1)
        assert f"Rabs (model_{output} " in statement
        assert statement.rstrip().endswith(f"<= {number(error)}.")
        for low, high in zip(model.box.low, model.box.high, strict=True):
            assert f"{number(float(low))} <= x" in statement
            assert f"<= {number(float(high))} ->" in statement
    assert not re.search(r"\b(Admitted|admit|Axiom|Parameter)\b", text)


@pytest.mark.parametrize("name", CASES)
def test_pieces_meet_and_cover_the_range(name: str, made: dict[str, hs.Compiled]) -> None:
    text = rocq_text(made[name])
    value = r"\(?(-?\d+(?: / \d+)?)\)?"
    for output in range(len(made[name].certificate.outputs)):
        ends = re.findall(rf"Lemma piece_{output}_\d+ t : {value} <= t <= {value} ->", text)
        pieces = [(Fraction(a.replace(" ", "")), Fraction(b.replace(" ", ""))) for a, b in ends]
        assert pieces == sorted(pieces)
        assert all(one[1] == other[0] for one, other in pairwise(pieces))
        form = re.search(r"Definition form .*:= (.*)\.\n", text).group(1)
        names = re.search(r"Definition form \(([\w ]+) : R\)", text).group(1).split()
        corners = np.stack(np.meshgrid(*zip(made[name].box.low, made[name].box.high, strict=True)), -1)
        values = [eval(form, dict(zip(names, each, strict=True))) for each in corners.reshape(-1, len(names))]
        assert (float(pieces[0][0]), float(pieces[-1][1])) == (min(values), max(values))


def test_other_errors_can_be_stated(made: dict[str, hs.Compiled]) -> None:
    text = rocq_text(made["relu"], errors=[0.25])
    assert "<= (1 / 4)." in text
    assert number(made["relu"].certificate.error) not in text


def test_an_error_that_is_too_small_for_interval_is_stated_as_a_larger_one() -> None:
    model = hs.compile("tanh(x)", {"x": (-1, 1)}, 1e-6)
    assert model.certificate.error < LEAST
    assert f"target_0 x) <= {number(LEAST)}." in rocq_text(model)


def test_numbers_are_exact() -> None:
    assert [number(each) for each in (3.0, -2.0, 0.5, -0.25)] == ["3", "(-2)", "(1 / 2)", "(-1 / 4)"]
    top, bottom = re.fullmatch(r"\((\d+) / (\d+)\)", number(0.1)).groups()
    assert Fraction(int(top), int(bottom)) == Fraction(0.1)


def test_targets_are_told_with_their_own_operations() -> None:
    def told(formula: str) -> str:
        graph = hs.compile(formula, {"x": (0.5, 1)}, 1e-1).wanted
        return target_text(graph, 0, ["x"])

    assert told("sin(x)") == "((sin (x)))"
    assert told("abs(x - 0.75)").count("Rmax") == 1
    assert "(x) ^ 3" in told("x**3")
    assert "exp ((5 / 2) * ln (x))" in told("x**2.5")
    assert "tanh (x)" in told("tanh(x)")


REFUSED: dict[str, tuple[Callable[[], hs.Compiled], str]] = {
    "two forms": (lambda: hs.compile("x*y", (-1, 1), 1e-2), "read one linear form of the inputs, and these read 2"),
    "layers": (lambda: hs.compile(random_network([1, 3, 3, 1]), (-1, 1), 1e-2), "one layer of heads, .* 2 layers"),
    "erf": (lambda: hs.compile("erf(x)", ONE, 1e-2), "Interval does not know erf"),
    "tokens": (lambda: hs.compile("max(a, b, c, d)", (-1, 1), 1e-1, recipe="maxout"), "one data token"),
    "attention": (lambda: hs.compile("relu(x)", ONE, 1e-2, attention="sigmoid"), "this model has sigmoid attention"),
    "format": (lambda: hs.compile("relu(x)", ONE, 1e-1, dtype="bfloat16"), "float64 and float32, .* in bfloat16"),
    "affine": (lambda: hs.compile("2*x + 1", ONE, 1e-2), "0 layers"),
    "neither": (lambda: hs.compile("sin(x), relu(x)", ONE, 1e-2), "smooth or piecewise affine"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_of_another_kind_is_refused(name: str) -> None:
    make, reason = REFUSED[name]
    with pytest.raises(hs.TargetError, match=reason) as problem:
        rocq_text(make())
    assert "theorem" in str(problem.value)


def printed(capsys: Any, *arguments: str) -> str:
    with pytest.raises(SystemExit) as stop:
        main(list(arguments))
    assert stop.value.code == 0
    return str(capsys.readouterr().out)


def test_the_command_writes_a_file_or_a_folder(tmp_path: Path, made: dict[str, hs.Compiled], capsys: Any) -> None:
    saved, file, folder = (str(tmp_path / name) for name in ("relu.safetensors", "relu.v", "relu"))
    made["relu"].save(saved)
    told = printed(capsys, "export", saved, "--to", "rocq", "-o", file)
    assert f"coqc {file} proves the theorem" in told
    assert "nothing has proved it here" in told
    assert Path(file).read_text() == rocq_text(made["relu"])
    told = printed(capsys, "export", saved, "--to", "rocq", "-o", folder, "--json")
    assert "model.v" in json.loads(told)["files"]
    assert hs.verify(folder).error == made["relu"].certificate.error
    theorem = Path(folder) / "model.v"
    theorem.write_text(theorem.read_text().replace("Qed.", "Admitted."))
    with pytest.raises(hs.CertificateError, match=r"model\.v: not what the proven model has"):
        hs.verify(folder)
