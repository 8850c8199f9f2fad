"""The reasoning module: every answer is that of a brute-force oracle, and the certificate proves that it must be.

Theorem (decoding): if certificate + soft bound is below half the distance of the levels that an output can stand for,
rounding to the nearest level gives the exact answer.
"""

from __future__ import annotations

import random
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.models.scenes import COLOURS, brute_answer, random_scene, random_set

import headsmith as hs


@lru_cache(maxsize=32)
def built(**sizes: Any) -> hs.Reasoner:
    return hs.iprm(**sizes)


def asked(module: hs.Reasoner, questions: list[str], scene: Any) -> int:
    """Compare answers with the oracle's; returns how many of the questions the scene answers."""
    answered = 0
    for question in questions:
        wanted = brute_answer(question, scene)
        if wanted is None:
            with pytest.raises(hs.DomainError):
                module.answer(question, scene)
        else:
            assert module.answer(question, scene) == wanted == module.exact(question, scene), (question, scene)
            answered += 1
    return answered


@pytest.mark.parametrize(
    ("sizes", "depths"),
    [
        ({"slots": 2, "steps": 2}, (2, 2)),
        ({"slots": 2, "steps": 3, "window": 1}, (3, 2)),
        ({"slots": 1, "steps": 4, "window": 2}, (2, 2)),
        ({"slots": 3, "steps": 2, "objects": 8}, (2, 1)),
    ],
)
def test_questions_about_scenes(sizes: dict[str, int], depths: tuple[int, int]) -> None:
    module, rng, answered = built(**sizes), random.Random(1), 0
    assert module.unproven is None
    for number in range(40):
        scene, first, second = random_scene(rng, module.module.objects), "", ""
        # Mostly scenes that answer: long questions about random ones rarely do.
        while not first or (number % 4 and brute_answer(f"more {first} than {second}", scene) is None):
            scene = random_scene(rng, module.module.objects)
            first, second = (random_set(rng, depth) for depth in depths)
        questions = [f"count {first}", f"more {first} than {second}", f"colour of the {first}"]
        answered += asked(module, [*questions, f"position of the {second}"], scene)
    assert answered > 60


def test_looking_up_in_several_hops() -> None:
    rng = random.Random(2)
    for steps, slots in ((1, 1), (3, 2), (6, 1)):
        module = built(task="lookup", steps=steps, slots=slots)
        assert module.unproven is None
        for _ in range(20):
            table = {(f"s{s}", f"r{r}"): f"s{rng.randrange(6)}" for s in range(6) for r in range(2)}
            scene = [(*key, value) for key, value in table.items()]
            rng.shuffle(scene)
            questions, wanted = [], []
            for _ in range(slots):
                at = f"s{rng.randrange(6)}"
                text = at
                for _ in range(rng.randint(1, steps)):
                    link = f"r{rng.randrange(2)}"
                    text, at = f"{link} of {text}", table[at, link]
                questions.append(text)
                wanted.append(at)
            assert module.answer(questions, scene) == wanted


@pytest.mark.parametrize("sizes", [{"slots": 3}, {"steps": 3, "window": 2}, {"slots": 2, "steps": 2, "window": 1}])
def test_counting_in_parallel_or_one_by_one(sizes: dict[str, int]) -> None:
    module, rng, answered = built(task="count", objects=9, **sizes), random.Random(3), 0
    assert module.unproven is None
    for _ in range(40):
        scene = [{"colour": rng.choice(COLOURS)} for _ in range(rng.randint(0, 9))]
        answered += asked(module, ["most of red, green, blue", "more blue than red", "count green"], scene)
    assert answered > 80


def test_several_parts_come_from_several_slots() -> None:
    module, rng = built(slots=2, steps=2), random.Random(4)
    question = "count red left of the cube and right of the cone"
    for _ in range(20):
        scene = [{"colour": rng.choice(COLOURS), "shape": "ball", "position": rng.randrange(5)} for _ in range(4)]
        scene += [{"colour": "blue", "shape": shape, "position": rng.randrange(5)} for shape in ("cube", "cone")]
        low, high = scene[-1]["position"], scene[-2]["position"]
        wanted = sum(thing["colour"] == "red" and low < thing["position"] < high for thing in scene)
        assert module.answer(question, scene) == wanted
    assert module.seats(question) == [("cube", 1, 1), ("cone", 2, 1), (question.removeprefix("count "), 1, 2)]


def test_outputs_are_within_the_certificate_of_exact_softmax_attention() -> None:
    module, rng = built(slots=2, steps=3, window=1), random.Random(5)
    for _ in range(5):
        scene = [*random_scene(rng, 5), {"colour": "red", "shape": "cone", "position": 2}]
        tokens = module.encode("count red left of the cone", scene)
        off = np.abs(module(tokens) - module.target(tokens, np.longdouble)).max()
        assert off <= module.certificate.error
        # And the whole way to the right levels is what the module says is proven.
        count = module(tokens)[1, module.module.vocabulary.results]
        levels = np.arange(7) / (np.arange(7) + 6)
        assert np.abs(levels - count).min() <= module.proven.count


def test_composition_off_fails_where_one_operation_needs_another() -> None:
    off = built(task="lookup", steps=2, composition=False)
    scene = [("s0", "r0", "s1"), ("s1", "r1", "s2"), ("s3", "r1", "s4")]
    assert built(task="lookup", steps=2).answer("r1 of r0 of s0", scene) == "s2"
    assert off.answer("r0 of s0", scene) == "s1"
    with pytest.raises(hs.CertificateError, match="farther than the proven"):
        off.answer("r1 of r0 of s0", scene)


def test_models_are_saved_loaded_verified(tmp_path: Path) -> None:
    for module in (built(slots=2, steps=2), built(task="lookup", steps=3, slots=2), built(task="count", slots=3)):
        module.save(tmp_path / "reasoner.safetensors")
        loaded = hs.load(tmp_path / "reasoner.safetensors")
        assert isinstance(loaded, hs.Reasoner)
        assert loaded.module == module.module
        assert hs.verify(loaded).error == module.certificate.error


def test_order_of_tokens_does_not_matter() -> None:
    module = built(slots=2, steps=2)
    scene = [{"colour": "red", "shape": "cube", "position": 2}, {"colour": "green", "shape": "ball", "position": 0}]
    tokens = module.encode("count green left of the cube", scene)
    order = np.random.default_rng(0).permutation(len(tokens))
    assert np.abs(module(tokens[order]) - module(tokens)[order]).max() <= 2 * module.certificate.error


def test_attention_looks_where_the_program_says() -> None:
    module = built(slots=2, steps=2)
    scene = [{"colour": "red", "shape": "cube", "position": 2}, {"colour": "green", "shape": "ball", "position": 0}]
    first, second, _ = module.attention("count green left of the cube", scene)
    # Tokens: null, two slots, two operations, two objects. The first slot is seated.
    assert first["execution"][1].argmax() == 5
    assert second["composition: left of"][1].argmax() == 1
    assert second["execution"][1].argmax() == 6
    assert all(np.allclose(each.sum(axis=1), 1.0) for step in (first, second) for each in step.values())


@pytest.mark.parametrize(
    ("question", "scene", "problem"),
    [
        ("count", [], "at its end"),
        ("count purple", [], "'purple'"),
        ("how many red", [], "expected count"),
        ("count red red", [], "two words of the group 'colour'"),
        ("count red left of the cube of", [], "expected its end"),
        ("count red left of the cube left of the ball left of the cone", [], "3 steps|4 steps"),
        ("count red left of the cube and left of the ball", [], "twice"),
        ("most of red", [], "commas"),
        ("most of red, blue, green", [], "compares 3 sets"),
        ("count red left of the cube", [{"colour": "red", "shape": "ball", "position": 1}], "exactly one"),
        ("count red", [{"colour": "red", "shape": "ball"}], "needs exactly the keys"),
        ("count red", [{"colour": "pink", "shape": "ball", "position": 1}], "object 0 has the colour 'pink'"),
        ("count red", [{"colour": "red", "shape": "ball", "position": 9}], "object 0 has the position '9'"),
        ("count red", [{"colour": "red", "shape": "ball", "position": 1}] * 7, "at most 6"),
        ("count red", "red", "a list of objects"),
        (7, [], "a question is a text"),
        ([], [], "no question"),
        (["count red", "more red than blue"], [], "ask it alone"),
        (["count red"] * 9, [], "steps of 2 slots"),
        (["count red"] * 3, [], "window=1"),
    ],
)
def test_bad_questions_and_scenes_are_refused(question: Any, scene: Any, problem: str) -> None:
    with pytest.raises(hs.DomainError, match=problem):
        built(slots=2, steps=2).answer(question, scene)


@pytest.mark.parametrize(
    ("sizes", "problem"),
    [
        ({"slots": 0}, "slots is 0"),
        ({"window": -1}, "window is -1"),
        ({"task": "chess"}, "unknown task"),
        ({"symbols": 3}, "does not belong"),
        ({"attributes": {"colour": ["red", "red"]}}, "used twice"),
        ({"attributes": {"colour": ["left"]}}, "cannot be a word"),
        ({"attributes": {}}, "attributes are"),
        ({"relations": ["above"]}, "choose some of"),
        ({"task": "lookup", "symbols": "abc"}, "symbols is 'abc'"),
        ({"error": -1.0}, "error is -1.0"),
    ],
)
def test_bad_modules_are_refused(sizes: dict[str, Any], problem: str) -> None:
    with pytest.raises(hs.TargetError, match=problem):
        hs.iprm(**sizes)


def test_steps_that_float64_cannot_tell_apart_are_refused() -> None:
    with pytest.raises(hs.UnreachableError, match="fewer steps") as caught:
        hs.iprm(slots=2, steps=5)
    module = hs.iprm(slots=2, steps=5, error=caught.value.smallest)
    with pytest.raises(hs.CertificateError, match="not proven to be exact"):
        module.answer("count red", [])
    with pytest.raises(hs.UnreachableError, match="rounding part") as caught:
        hs.iprm(slots=2, steps=2, error=1e-12)
    assert hs.iprm(slots=2, steps=2, error=caught.value.smallest).answer("count red", []) == 0
