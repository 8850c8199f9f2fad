"""The module with learned weights: it learns the tasks of the compiled one, and everything follows from the seed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.effort import tried

import headsmith as hs
from headsmith.lab.iprm.practice import practice

SMALL = {"attributes": {"colour": ["red", "blue"], "shape": ["cube", "ball"]}, "positions": 3}
LOOKUP: dict[str, Any] = {"task": "lookup", "steps": 2, "symbols": 4, "objects": 8}
COUNT: dict[str, Any] = {"task": "count", "slots": 3, "objects": 7}
SCENE: dict[str, Any] = {"task": "scene", "steps": 2, "objects": 4, "relations": ["left of", "right of"], **SMALL}


def test_answers_to_practise_on_are_those_of_the_compiled_module() -> None:
    for sizes in (LOOKUP, COUNT, SCENE):
        model = hs.iprm(**sizes)
        shown = practice(model.module, 12, seed=3)
        for question, scene, answer in zip(shown.questions, shown.scenes, shown.answers, strict=True):
            found = model.answer(question, scene)
            if question.startswith("most of "):
                found = question.removeprefix("most of ").split(", ").index(found)
            assert answer == (model.module.vocabulary.held[0].words.index(found) if sizes is LOOKUP else found)


def test_training_curves_rerun_equal_from_their_seed() -> None:
    model = hs.iprm(**LOOKUP)
    first, again, other = (model.train(seed=seed, updates=25, examples=200) for seed in (1, 1, 2))
    assert np.array_equal(first.curve, again.curve)
    assert first.accuracy == again.accuracy
    assert not np.array_equal(first.curve, other.curve)


def test_learned_parameters_grow_with_neither_slots_nor_steps() -> None:
    counts = {
        hs.iprm(task="lookup", slots=slots, steps=steps).train(updates=1, examples=10).parameters
        for slots, steps in ((1, 1), (4, 1), (1, 5), (2, 3))
    }
    assert len(counts) == 1


# Seconds of training each; what chance and the most frequent answer reach is far below.
@pytest.mark.one_in(3)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("sizes", "updates", "accuracy"), [(LOOKUP, 450, 0.95), (COUNT, 450, 0.95), (SCENE, 500, 0.75)]
)
def test_the_tasks_are_learned(sizes: dict[str, Any], updates: int, accuracy: float, tmp_path: Path) -> None:
    model = hs.iprm(**sizes)
    trained = model.train(updates=updates)
    assert trained.accuracy >= accuracy
    assert trained.curve[-50:].mean() < 0.4 * trained.curve[:20].mean()
    shown = practice(model.module, 3, seed=9)
    model.draw(shown.questions[0], shown.scenes[0], tmp_path / "maps.png", trained)
    assert (tmp_path / "maps.png").stat().st_size > 10_000
    maps = trained.attention(shown)
    assert len(maps) == model.module.steps + 1
    assert all(np.allclose(each.sum(axis=-1), 1.0, atol=1e-5) for step in maps for each in step.values())


@pytest.mark.again
@pytest.mark.slow
def test_composition_off_cannot_learn_two_hops() -> None:
    """Without composition the second hop does not hear of the first: all that is left is to guess."""
    model = hs.iprm(**LOOKUP, composition=False)
    shown = practice(model.module, 400, seed=9)
    trained = model.train(updates=tried(300, 2))
    two = [number for number, question in enumerate(shown.questions) if question.count("of") == 2]
    right = trained.logits(shown).argmax(axis=1) == shown.answers
    assert right[two].mean() < 0.7


def test_bad_options_and_other_modules_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = hs.iprm(**LOOKUP)
    for options, problem in (
        ({"seed": -1}, "seed is -1"),
        ({"updates": 0}, "updates is 0"),
        ({"rate": 0.0}, "rate is 0.0"),
        ({"width": 30}, "multiple of 4"),
    ):
        with pytest.raises(hs.TargetError, match=problem):
            model.train(**options)
    other = hs.iprm(task="lookup").train(updates=1, examples=10)
    with pytest.raises(hs.DomainError, match="other sizes"):
        model.draw("r0 of s0", [("s0", "r0", "s1")], tmp_path / "maps.png", other)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(hs.HeadsmithError, match=r"headsmith\[torch\]"):
        model.train(updates=1)


def test_the_compiled_module_alone_can_be_drawn(tmp_path: Path) -> None:
    model = hs.iprm(slots=2, steps=3, window=1)
    scene = [{"colour": "red", "shape": "cube", "position": 2}, {"colour": "green", "shape": "ball", "position": 0}]
    model.draw("more green left of the cube than red", scene, tmp_path / "maps.png")
    assert (tmp_path / "maps.png").stat().st_size > 10_000
