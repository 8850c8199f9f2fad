"""Claims I1 and I2: iterative and parallel reasoning. The paper's equations are not at hand, so both rows are about a
construction of our own (lab/iprm/graph.py), and are tagged "ours".
"""

from __future__ import annotations

import random
from functools import cache
from itertools import pairwise
from typing import Any

from headsmith.core.errors import HeadsmithError
from headsmith.lab.claims.recipe import Counted
from headsmith.lab.claims.rows import Finding, Rows, claim, judged, need
from headsmith.lab.iprm.model import Reasoner, iprm
from headsmith.lab.iprm.sharing import nonzeros, same_matrices, shared_parameters, step_matrices

WORDS = ("red", "green", "blue", "white", "black", "grey", "pink", "gold")
OBJECTS = 8
SCENES = 24
SLOTS, STEPS, WINDOWS = (1, 2, 4, 8), (2, 3, 4, 5, 6), (1, 3, 7)
"""The modules of I1 have so many."""
COUNTS, HOPS = (2, 4, 8), (1, 2, 4)
"""The questions of I2 are about so many colours, and look-ups have so many hops."""
MOST = "most frequent"


@claim("I1", "iterative-parallel reasoning: parameters grow with neither slots nor steps", tag="ours")
def shared_weights() -> Finding:
    """Modules of growing slots and steps: are the compiled matrices of all steps the same, and as many?

    A compiled model is unrolled: every step has registers and heads of its own. Weights that are the same matrices,
    names of registers apart, are one parameter each.
    """
    slots = [_sizes(task="scene", slots=count, steps=3, relations=["left of", "right of"]) for count in SLOTS]
    steps = [_sizes(task="lookup", slots=1, steps=count) for count in STEPS]
    windows = [_sizes(task="count", slots=1, steps=4, window=count) for count in WINDOWS]
    found = [*slots, *steps, *windows]
    return judged(
        "compiled modules of our own construction: scenes with 1 to 8 slots, look-ups with 2 to 6 steps, counts "
        "with windows 1 to 7; non-zero weights, those that steps share counted once",
        [row for row, _ in found],
        _sizes_summary,
        _sizes_faults,
        lambda figure: (
            f"{figure['weights_of_scene']} weights at 1 to 8 slots, {figure['weights_of_lookup']} at 2 to 6 steps, "
            f"{figure['weights_of_count']} at windows 1 to 7, those of one step and of the output; the matrices of all "
            "steps from the second on are the same, number for number; written out step by step they are "
            f"{figure['unrolled_growth']:.2f} times as many at 6 steps as at 2"
        ),
        [counted for _, counted in found],
    )


def _sizes_summary(rows: Rows) -> dict[str, Any]:
    lookups = [row["unrolled"] for row in rows if row["task"] == "lookup"]
    return {
        **{f"weights_of_{task}": max(_weights(rows, task)) for task in ("scene", "lookup", "count")},
        "slots_parameters": [row["shared_parameters"] for row in rows if row["task"] == "scene"],
        "steps_parameters": [row["shared_parameters"] for row in rows if row["task"] == "lookup"],
        "largest_step": max(max(row["step_parameters"][1:]) for row in rows),
        "unrolled_growth": lookups[-1] / lookups[0],
    }


def _weights(rows: Rows, task: str) -> set[int]:
    return {row["shared_parameters"] for row in rows if row["task"] == task}


def _sizes_faults(rows: Rows) -> list[str]:
    constant = all(len(_weights(rows, task)) == 1 for task in ("scene", "lookup", "count"))
    level = all(len({*row["step_parameters"][1:]}) == 1 for row in rows)
    return [
        *need(all(row["steps_equal"] for row in rows), "the matrices of steps are not the same"),
        *need(constant, "the weights grow with slots, steps or the window"),
        *need(level, "steps have different numbers of weights"),
    ]


def _sizes(**sizes: Any) -> Counted:
    """The figures of a module; and a second count, entry by entry of the matrices of each step."""
    model = iprm(**sizes)
    each = step_matrices(model)
    row = {
        "task": sizes["task"],
        "slots": model.module.slots,
        "steps": model.module.steps,
        "window": model.module.window,
        "shared_parameters": shared_parameters(model),
        "step_parameters": [nonzeros(matrices) for matrices in each],
        "steps_equal": all(same_matrices(one, other) for one, other in pairwise(each[1:])),
        "unrolled": sum(nonzeros(matrices) for matrices in each),
        "tokens": model.tokens,
        "certified": model.certificate.error,
    }
    counts = [sum(weight != 0.0 for *_, weights in matrices for weight in weights.flat) for matrices in each]
    asked = {"slots": sizes["slots"], "steps": sizes["steps"], "window": sizes.get("window", model.module.window)}
    held = {"tokens": len(model.dense().W_pos), "certified": model.verify().error}
    of_output = shared_parameters(model) - max(nonzeros(matrices) for matrices in each)
    shared = {"shared_parameters": max(counts) + of_output}
    return row, asked | shared | {"step_parameters": counts, "unrolled": sum(counts)} | held


@claim("I2", "iterative against parallel operations: the same question in T steps or in T slots", tag="ours")
def steps_against_slots() -> Finding:
    """Which of k colours is most frequent, with k operations: side by side in one step, or one by one in k steps.

    Answers on random scenes, against counting. Without composition the steps hear nothing of each other: the question
    must then be answered wrongly where they are needed, and still be right where there is one step alone.
    """
    found = []
    for count in COUNTS:
        shapes = {(count, 1), (1, count), (max(count // 2, 1), 2)}
        found += [_asked(count, slots, steps, True) for slots, steps in sorted(shapes)]
        found += [_asked(count, slots, steps, False) for slots, steps in sorted({(count, 1), (1, count)})]
    found += [_hops(steps, composition) for steps in HOPS for composition in (True, False)]
    return judged(
        f"a construction of our own: the most frequent of 2, 4, 8 colours among {OBJECTS} objects, and look-ups of "
        f"1, 2, 4 hops, {SCENES} random scenes each; composition on and off",
        [row for row, _ in found],
        _answers_summary,
        _answers_faults,
        lambda figure: (
            f"8 colours in 8 slots take {figure['parallel_layers']} layers and {figure['parallel_heads']} heads "
            f"(certified {figure['parallel_certified']:.2g}), as 2 and 4 do; in 8 steps of one slot "
            f"{figure['iterative_layers']} layers and {figure['iterative_heads']} heads "
            f"({figure['iterative_certified']:.2g}); {figure['answered']} of {figure['asked']} answers are right; "
            f"without composition {figure['wrong_without_composition']:.0%} of the answers that take several steps are "
            "wrong, and none that takes one"
        ),
        [counted for _, counted in found],
    )


def _parted(rows: Rows) -> tuple[Rows, Rows, Rows]:
    """With composition; without, where several steps need it; without, where there is one step."""
    on = [row for row in rows if row["composition"]]
    must_fail = [row for row in rows if not row["composition"] and row["steps"] > 1]
    return on, must_fail, [row for row in rows if not row["composition"] and row["steps"] == 1]


def _parallel(rows: Rows) -> Rows:
    return [row for row in rows if row["question"] == MOST and row["composition"] and row["steps"] == 1]


def _answers_summary(rows: Rows) -> dict[str, Any]:
    on, must_fail, _ = _parted(rows)
    one = [row for row in rows if row["question"] == MOST and row["composition"] and row["slots"] == 1]
    ends = {"parallel": _parallel(rows)[-1], "iterative": [row for row in one if row["steps"] > 1][-1]}
    return {
        **{f"{way}_{name}": row[name] for way, row in ends.items() for name in ("layers", "heads", "certified")},
        "answered": sum(row["right"] for row in on),
        "asked": sum(row["asked"] for row in on),
        "wrong_without_composition": 1.0
        - sum(row["right"] for row in must_fail) / sum(row["asked"] for row in must_fail),
    }


def _answers_faults(rows: Rows) -> list[str]:
    on, must_fail, alone = _parted(rows)
    return [
        *need(all(row["right"] == row["asked"] for row in on + alone), "an answer is wrong"),
        *need(all(row["proven"] < row["gap"] for row in on), "an answer is not proven"),
        *need(all(row["right"] < row["asked"] for row in must_fail), "steps are not needed"),
        *need(len({(row["layers"], row["heads"]) for row in _parallel(rows)}) == 1, "more slots take more heads"),
    ]


@cache
def _counter(count: int, slots: int, steps: int, composition: bool) -> Reasoner:
    """A module that counts as many colours, and remembers all steps."""
    words = {"colour": WORDS[:count]}
    return iprm(slots, steps, steps - 1, task="count", objects=OBJECTS, attributes=words, composition=composition)


def _asked(count: int, slots: int, steps: int, composition: bool) -> Counted:
    """The question by a module of these sizes, on scenes that have an answer."""
    words, rng = WORDS[:count], random.Random(count)
    model = _counter(count, slots, steps, composition)
    question, asked, right = f"most of {', '.join(words)}", 0, 0
    while asked < SCENES:
        scene = [{"colour": rng.choice(words)} for _ in range(OBJECTS)]
        counts = [sum(thing["colour"] == word for thing in scene) for word in words]
        if counts.count(max(counts)) == 1:
            asked += 1
            right += _answer(model, question, scene) == words[counts.index(max(counts))]
    return _row(model, MOST, (slots, steps), right, model.proven.tag, model.gaps.tag)


def _hops(steps: int, composition: bool) -> Counted:
    """Look-ups in that many hops."""
    model, rng, right = iprm(1, steps, task="lookup", composition=composition), random.Random(steps), 0
    for _ in range(SCENES):
        table = {(f"s{s}", f"r{r}"): f"s{rng.randrange(6)}" for s in range(6) for r in range(2)}
        at, question = "s0", "s0"
        for _ in range(steps):
            link = f"r{rng.randrange(2)}"
            at, question = table[at, link], f"{link} of {question}"
        right += _answer(model, question, [(*key, value) for key, value in table.items()]) == at
    return _row(model, "look-up", (1, steps), right, model.proven.word, model.gaps.word)


def _answer(model: Reasoner, question: str, scene: Any) -> Any:
    """The answer; None where there is none, which is what may come out without composition."""
    try:
        return model.answer(question, scene)
    except HeadsmithError:
        return None


def _row(model: Reasoner, question: str, sizes: tuple[int, int], right: int, proven: float, gap: float) -> Counted:
    """The figures, and those of them that the matrices, the kernel and what was asked for have as well."""
    module, written = model.module, model.dense()
    row = {
        "question": question,
        "slots": module.slots,
        "steps": module.steps,
        "composition": module.composition,
        "layers": model.bill.layers,
        "heads": model.bill.heads,
        "tokens": model.tokens,
        "certified": model.certificate.error,
        "proven": proven,
        "gap": gap,
        "asked": SCENES,
        "right": right,
    }
    counted: dict[str, Any] = {"slots": sizes[0], "steps": sizes[1], "tokens": len(written.W_pos)}
    counted |= {
        "layers": len(written.layers),
        "heads": sum(len(layer.W_Q) for layer in written.layers),
        "certified": model.verify().error,
    }
    return row, counted | {"proven": proven, "gap": gap, "asked": SCENES, "right": right}
