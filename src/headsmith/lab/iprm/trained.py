"""The same module with weights that are learned: formation, composition and execution in torch.

    trained = module.train(seed=0)         # module = hs.iprm(...): the same sizes, words and questions
    trained.curve                          # losses, which rerun equal from the seed
    trained.accuracy                       # on scenes that it has not seen

Operations X_L and objects X_V are embedded tokens, each with a null token; d numbers each. A step, with the same
weights at every step (ours, as the compiled one; dots are attention, [a, b] is both vectors side by side):

    formation      Z = M_op . X_L                   N slots look at the operations
    composition    A = Z . memory                   they look at results of all slots, up to W + 1 steps back
    execution      R = relu(W [Z, A]) . X_V         operation and argument modulate what is looked for
    memory         M_op <- tanh(W [M_op, Z]); the new result is relu(W [R, Z]), older ones age, the oldest is forgotten

Output: attention over the memory, by a query from the operations, and two layers on what it returns.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from headsmith.core.arrays import Array
from headsmith.core.errors import HeadsmithError, TargetError
from headsmith.core.extras import install
from headsmith.lab.iprm.layout import Module
from headsmith.lab.iprm.practice import Practice, practice
from headsmith.lab.training.optimise import Schedule, adam, one_thread
from headsmith.lab.training.students import split
from headsmith.plan.reading import check_counts

Tensor = Any
Weights = Mapping[str, Tensor]

BATCH = 64
HEADS = 4
"""Heads of each attention; maps are their means."""
TESTED = 200
"""How many unseen examples the accuracy is measured on."""


@dataclass(frozen=True, eq=False)
class Trained:
    """A trained module: its weights by name, the loss at every update, and the accuracy on unseen scenes (an
    estimate)."""

    module: Module
    weights: Weights
    curve: Array
    accuracy: float

    def __repr__(self) -> str:
        return (
            f"<Trained: {self.parameters:,} parameters, {len(self.curve)} updates, last loss {self.curve[-1]:.3g}, "
            f"accuracy {self.accuracy:.1%} on unseen scenes>"
        )

    @property
    def parameters(self) -> int:
        """How many numbers were learned: they depend on neither slots nor steps."""
        return sum(int(weight.numel()) for weight in self.weights.values())

    def logits(self, examples: Practice) -> Array:
        """How much speaks for each answer: (examples, classes)."""
        torch = _torch()
        with torch.no_grad():
            found, _ = forward(self.module, self.weights, *_tensors(torch, examples)[:2])
        return np.asarray(found.numpy(), dtype=np.float64)

    def attention(self, examples: Practice) -> list[dict[str, Array]]:
        """Where slots look, by step and attention: (examples, slots, what is looked at), null first; and the output."""
        torch = _torch()
        with torch.no_grad():
            _, maps = forward(self.module, self.weights, *_tensors(torch, examples)[:2])
        return [{name: np.asarray(each.numpy(), dtype=np.float64) for name, each in step.items()} for step in maps]


def train(
    module: Module, *, seed: int = 0, updates: int = 1500, examples: int = 4000, width: int = 32, rate: float = 2e-3
) -> Trained:
    """Train a module of these sizes on random examples (practice.py) by Adam; everything follows from the seed."""
    check_counts(updates=updates, examples=examples, width=width)
    if width % HEADS:
        raise TargetError(f"width is {width}; it must be a multiple of {HEADS}, the number of heads")
    if not (isinstance(rate, int | float) and 0.0 < rate < math.inf):
        raise TargetError(f"rate is {rate!r}; it must be a positive finite number")
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise TargetError(f"seed is {seed!r}; it must be an integer, 0 or more")
    torch = _torch()
    shown = practice(module, examples, 2 * int(seed))
    operations, objects, answers = _tensors(torch, shown)
    generator = torch.Generator().manual_seed(int(seed))
    weights = _initial(torch, module, shown, width, generator)
    shapes = {name: tuple(weight.shape) for name, weight in weights.items()}
    curve = np.zeros(updates)

    def loss(flat: Tensor, step: int) -> tuple[Tensor, Tensor]:
        held = {name: stack[0] for name, stack in split(shapes, flat).items()}
        batch = torch.randint(len(answers), (BATCH,), generator=generator)
        logits, _ = forward(module, held, operations[batch], objects[batch])
        found = torch.nn.functional.cross_entropy(logits, answers[batch])
        if step < updates:
            curve[step] = found.item()
        return found[None], found.detach()[None]

    # The trainer of hs.train: one thread, so that sums are taken in one order, and curves rerun equal.
    with one_thread():
        start = torch.cat([weight.detach().reshape(-1) for weight in weights.values()])[None]
        last = adam(loss, start, [rate], Schedule(updates, warm_up=updates // 4)).last
    learned = {name: stack[0].detach() for name, stack in split(shapes, last).items()}
    found = Trained(module, learned, curve, 0.0)
    unseen = practice(module, TESTED, 2 * int(seed) + 1)
    right = float(np.mean(found.logits(unseen).argmax(axis=1) == unseen.answers))
    return Trained(module, found.weights, curve, right)


def forward(
    module: Module, weights: Weights, operations: Tensor, objects: Tensor
) -> tuple[Tensor, list[dict[str, Tensor]]]:
    """The logits of answers (examples, classes), and where slots look at each step."""
    torch = _torch()
    many, width = len(operations), weights["null operation"].shape[-1]
    empty = (operations == 0).all(dim=-1)

    def tokens(name: str, given: Tensor) -> Tensor:
        null = weights[f"null {name}"].expand(many, 1, width)
        return torch.cat([null, given @ weights[f"{name} in"]], dim=1)

    def look(name: str, query: Tensor, at: Tensor, hidden: Tensor | None = None) -> tuple[Tensor, Tensor]:
        query, key, value = (
            (each @ weights[f"{name} {side}"]).unflatten(-1, (HEADS, -1)).transpose(1, 2)
            for side, each in (("query", query), ("key", at), ("value", at))
        )
        scores = query @ key.transpose(2, 3) / math.sqrt(width / HEADS)
        if hidden is not None:
            scores = scores.masked_fill(hidden[:, None, None, :], -math.inf)
        share = torch.softmax(scores, dim=-1)
        return (share @ value).transpose(1, 2).flatten(2), share.mean(dim=1)

    def mixed(name: str, *parts: Tensor) -> Tensor:
        return torch.cat(parts, dim=-1) @ weights[name] + weights[f"{name} bias"]

    language, vision = tokens("operation", operations), tokens("object", objects)
    codes = torch.tensor(np.array([module.code(number) for number in range(module.capacity)]), dtype=language.dtype)
    slots = codes[: module.slots] @ weights["slot in"]
    state = slots.expand(many, module.slots, width)
    hidden = torch.cat([torch.zeros(many, 1, dtype=torch.bool), empty], dim=1)
    memory: list[Tensor] = []
    maps: list[dict[str, Tensor]] = []

    def remembered() -> Tensor:
        """All results at hand, with their slots and ages; null first."""
        aged = [result + slots + codes[age] @ weights["age in"] for age, result in enumerate(memory)]
        return torch.cat([weights["null memory"].expand(many, 1, width), *aged], dim=1)

    for _ in range(module.steps):
        formed, formation = look("formation", state, language, hidden)
        composed, composition = look("composition", formed, remembered())
        if not module.composition:
            composed = torch.zeros_like(composed)
        executed, execution = look("execution", torch.relu(mixed("modulation", formed, composed)), vision)
        state = torch.tanh(mixed("state", state, formed))
        memory = [torch.relu(mixed("result", executed, formed)), *memory][: module.ages]
        maps.append({"formation": formation, "composition": composition, "execution": execution})
    asked = (language * ~hidden[..., None]).sum(dim=1, keepdim=True)
    pooled, pooling = look("pooling", asked, remembered())
    maps.append({"pooling": pooling})
    inner = torch.relu(mixed("inner", pooled, asked))
    return mixed("answer", inner)[:, 0], maps


def _initial(torch: Any, module: Module, shown: Practice, width: int, generator: Any) -> dict[str, Tensor]:
    shapes = {
        "operation in": (shown.operations.shape[-1], width),
        "object in": (shown.objects.shape[-1], width),
        "slot in": (module.digits, width),
        "age in": (module.digits, width),
        "modulation": (2 * width, width),
        "state": (2 * width, width),
        "result": (2 * width, width),
        "inner": (2 * width, 2 * width),
        "answer": (2 * width, shown.classes),
    }
    for name in ("formation", "composition", "execution", "pooling"):
        shapes |= {f"{name} {side}": (width, width) for side in ("query", "key", "value")}
    weights = {
        name: torch.randn(shape, generator=generator)
        * (2.0 if name.endswith((" query", " key")) else 1.0)
        / math.sqrt(shape[0])
        for name, shape in shapes.items()
    }
    for name in ("modulation", "state", "result", "inner", "answer"):
        weights[f"{name} bias"] = torch.zeros(shapes[name][1])
    for name in ("operation", "object", "memory"):
        weights[f"null {name}"] = torch.randn(1, width, generator=generator)
    return weights


def _tensors(torch: Any, examples: Practice) -> tuple[Tensor, Tensor, Tensor]:
    numbers = (torch.tensor(each, dtype=torch.float32) for each in (examples.operations, examples.objects))
    return (*numbers, torch.tensor(examples.answers, dtype=torch.int64))


def _torch() -> Any:
    try:
        import torch
    except ImportError:
        raise HeadsmithError(f"training needs torch: {install('torch')}") from None
    return torch
