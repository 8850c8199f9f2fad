"""Claims I1 and I2: iterative and parallel reasoning. The paper's equations are not at hand, so both rows are about a
construction of our own (iprm/graph.py), and are tagged "ours".
"""

from __future__ import annotations

import random
from functools import cache
from itertools import pairwise
from typing import Any

from headsmith.core.errors import HeadsmithError
from headsmith.iprm.model import Reasoner, iprm
from headsmith.iprm.sharing import nonzeros, same_matrices, shared_parameters, step_matrices
from headsmith.report.claims import Finding, claim

WORDS = ("red", "green", "blue", "white", "black", "grey", "pink", "gold")
OBJECTS = 8
SCENES = 24


@claim("I1", "iterative-parallel reasoning: parameters grow with neither slots nor steps", tag="ours")
def shared_weights() -> Finding:
    """Modules of growing slots and steps: are the compiled matrices of all steps the same, and as many?

    A compiled model is unrolled: every step has registers and heads of its own. Weights that are the same matrices,
    names of registers apart, are one parameter each.
    """
    slots = [_sizes(task="scene", slots=count, steps=3, relations=["left of", "right of"]) for count in (1, 2, 4, 8)]
    steps = [_sizes(task="lookup", slots=1, steps=count) for count in (2, 3, 4, 5, 6)]
    windows = [_sizes(task="count", slots=1, steps=4, window=count) for count in (1, 3, 7)]
    same = all(row["steps_equal"] for row in slots + steps + windows)
    constant = all(len({row["shared_parameters"] for row in rows}) == 1 for rows in (slots, steps, windows))
    per_step = [one for row in slots + steps + windows for one in row["step_parameters"][1:]]
    level = all(len(set(row["step_parameters"][1:])) == 1 for row in slots + steps + windows)
    holds = same and constant and level
    grown = steps[-1]["unrolled"] / steps[0]["unrolled"]
    figures = (
        f"{slots[0]['shared_parameters']} weights at 1 to 8 slots, {steps[0]['shared_parameters']} at 2 to 6 steps, "
        f"{windows[0]['shared_parameters']} at windows 1 to 7, those of one step and of the output; the matrices of "
        f"all steps from the second on are {'the same, number for number' if same else 'not the same'}; written out "
        f"step by step they are {grown:.2f} times as many at 6 steps as at 2"
    )
    return Finding(
        ran="compiled modules of our own construction: scenes with 1 to 8 slots, look-ups with 2 to 6 steps, counts "
        "with windows 1 to 7; non-zero weights, those that steps share counted once",
        figure={
            "slots_parameters": [row["shared_parameters"] for row in slots],
            "steps_parameters": [row["shared_parameters"] for row in steps],
            "largest_step": max(per_step),
            "unrolled_growth": grown,
            "rows": [{**row, "step_parameters": row["step_parameters"][-1]} for row in slots + steps + windows],
        },
        holds=holds,
        verdict=f"holds: {figures}" if holds else f"fails: {figures}",
    )


def _sizes(**sizes: Any) -> dict[str, Any]:
    model = iprm(**sizes)
    each = step_matrices(model)
    return {
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


@claim("I2", "iterative against parallel operations: the same question in T steps or in T slots", tag="ours")
def steps_against_slots() -> Finding:
    """Which of k colours is most frequent, with k operations: side by side in one step, or one by one in k steps.

    Answers on random scenes, against counting. Without composition the steps hear nothing of each other: the question
    must then be answered wrongly where they are needed, and still be right where there is one step alone.
    """
    rows = []
    for count in (2, 4, 8):
        shapes = {(count, 1), (1, count), (max(count // 2, 1), 2)}
        rows += [_asked(count, slots, steps, True) for slots, steps in sorted(shapes)]
        rows += [_asked(count, slots, steps, False) for slots, steps in sorted({(count, 1), (1, count)})]
    hops = [_hops(steps, composition) for steps in (1, 2, 4) for composition in (True, False)]
    on = [row for row in rows + hops if row["composition"]]
    must_fail = [row for row in rows + hops if not row["composition"] and row["steps"] > 1]
    alone = [row for row in rows + hops if not row["composition"] and row["steps"] == 1]
    right = all(row["right"] == row["asked"] for row in on + alone)
    proven = all(row["proven"] < row["gap"] for row in on)
    fails = all(row["right"] < row["asked"] for row in must_fail)
    parallel = [row for row in rows if row["composition"] and row["steps"] == 1]
    iterative = [row for row in rows if row["composition"] and row["slots"] == 1 and row["steps"] > 1]
    flat = len({(row["layers"], row["heads"]) for row in parallel}) == 1
    holds = right and proven and fails and flat
    wide, deep = parallel[-1], iterative[-1]
    lost = sum(row["asked"] - row["right"] for row in must_fail) / sum(row["asked"] for row in must_fail)
    answered, all_asked = sum(row["right"] for row in on), sum(row["asked"] for row in on)
    figures = (
        f"8 colours in 8 slots take {wide['layers']} layers and {wide['heads']} heads (certified "
        f"{wide['certified']:.2g}), as 2 and 4 do; in 8 steps of one slot {deep['layers']} layers and {deep['heads']} "
        f"heads ({deep['certified']:.2g}); {answered} of {all_asked} answers are right; without composition {lost:.0%} "
        "of the answers that take several steps are wrong, and none that takes one"
    )
    return Finding(
        ran=f"a construction of our own: the most frequent of 2, 4, 8 colours among {OBJECTS} objects, and look-ups of "
        f"1, 2, 4 hops, {SCENES} random scenes each; composition on and off",
        figure={
            "parallel_layers": wide["layers"],
            "iterative_layers": deep["layers"],
            "wrong_without_composition": lost,
            "rows": rows + hops,
        },
        holds=holds,
        verdict=f"holds with these constants: {figures}" if holds else f"fails: {figures}",
    )


@cache
def _counter(count: int, slots: int, steps: int, composition: bool) -> Reasoner:
    """A module that counts as many colours, and remembers all steps."""
    words = {"colour": WORDS[:count]}
    return iprm(slots, steps, steps - 1, task="count", objects=OBJECTS, attributes=words, composition=composition)


def _asked(count: int, slots: int, steps: int, composition: bool) -> dict[str, Any]:
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
    return _row(model, "most frequent", asked, right, model.proven.tag, model.gaps.tag)


def _hops(steps: int, composition: bool) -> dict[str, Any]:
    """Look-ups in that many hops."""
    model, rng, right = iprm(1, steps, task="lookup", composition=composition), random.Random(steps), 0
    for _ in range(SCENES):
        table = {(f"s{s}", f"r{r}"): f"s{rng.randrange(6)}" for s in range(6) for r in range(2)}
        at, question = "s0", "s0"
        for _ in range(steps):
            link = f"r{rng.randrange(2)}"
            at, question = table[at, link], f"{link} of {question}"
        right += _answer(model, question, [(*key, value) for key, value in table.items()]) == at
    return _row(model, "look-up", SCENES, right, model.proven.word, model.gaps.word)


def _answer(model: Reasoner, question: str, scene: Any) -> Any:
    """The answer; None where there is none, which is what may come out without composition."""
    try:
        return model.answer(question, scene)
    except HeadsmithError:
        return None


def _row(model: Reasoner, question: str, asked: int, right: int, proven: float, gap: float) -> dict[str, Any]:
    module = model.module
    return {
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
        "asked": asked,
        "right": right,
    }
