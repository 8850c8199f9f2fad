"""Protocols that people recognise, at a stated budget, beside what is built; every caveat goes with the table.

    precision-ls    arXiv 2503.12295: y = x[:10] * x[10:], or x * x, of 20 normal numbers, at 40 positions; the model
                    is the published one, of 2 layers, width 64, 2 heads, ReLU blocks of 4 times the width, no norms
    garg            after Garg et al. 2022, small: in-context linear regression in 3 dimensions, prompts of (x, y) pairs

Both students are the usual blocks, x <- x + attention(x), x <- x + block(x), under a causal mask, in float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from headsmith.compile import compile
from headsmith.core.arrays import Array
from headsmith.core.errors import TargetError
from headsmith.core.markup import markdown_table, plain_table
from headsmith.core.progress import Shown, shown
from headsmith.lab.training.optimise import Schedule, adam, one_thread
from headsmith.lab.training.students import Shapes, Tensor, split, torch_module
from headsmith.sequence import in_context

PROTOCOLS = ("precision-ls", "precision-ls-square", "garg")
BOX = 6.0
"""Built models of precision-ls live on [-6, 6]: a normal number is beyond with probability 2e-9."""
TESTED = 1024


@dataclass(frozen=True)
class Blocks:
    """Transformer blocks as most people train them: attention, then a ReLU block, each added to the stream; norms
    before both, and at the end, if asked for."""

    inputs: int
    answers: int
    positions: int
    width: int
    depth: int
    heads: int
    norms: bool = False

    @property
    def shapes(self) -> Shapes:
        """Weights and biases by name."""
        d, found = self.width, dict[str, tuple[int, ...]]()
        found |= {"in": (d, self.inputs), "in.bias": (d,), "positions": (self.positions, d)}
        for layer in range(self.depth):
            for name, shape in (("qkv", (3 * d, d)), ("proj", (d, d)), ("up", (4 * d, d)), ("down", (d, 4 * d))):
                found |= {f"{layer}.{name}": shape, f"{layer}.{name}.bias": shape[:1]}
            found |= {f"{layer}.{name}": (2, d) for name in ("norm1", "norm2") if self.norms}
        found |= {"norm": (2, d)} if self.norms else {}
        return found | {"out": (self.answers, d), "out.bias": (self.answers,)}

    def start(self, seed: int) -> Tensor:
        """The initialisation of GPT-2: N(0, .02), biases 0, norms 1: (1, P) in float32."""
        torch = torch_module()
        generator, parts = torch.Generator().manual_seed(seed), []
        for name, shape in self.shapes.items():
            drawn = 0.02 * torch.randn(shape, generator=generator)
            if name.endswith("bias") or "norm" in name:
                drawn = torch.zeros(shape)
            if "norm" in name:
                drawn[0] = 1.0
            parts.append(drawn.reshape(-1))
        return torch.cat(parts)[None]

    def outputs(self, weights: Tensor, x: Tensor) -> Tensor:
        """(1, P) and (batch, positions, inputs) to (batch, positions, outputs)."""
        torch = torch_module()
        held = {name: each[0] for name, each in split(self.shapes, weights).items()}

        def linear(name: str, at: Tensor) -> Tensor:
            return at @ held[name].T + held[f"{name}.bias"]

        def normed(name: str, at: Tensor) -> Tensor:
            if not self.norms:
                return at
            return torch.nn.functional.layer_norm(at, (self.width,), held[name][0], held[name][1])

        stream = linear("in", x) + held["positions"][: x.shape[1]]
        hidden = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        for layer in range(self.depth):
            parts = linear(f"{layer}.qkv", normed(f"{layer}.norm1", stream)).chunk(3, dim=-1)
            query, key, value = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
            scores = (query @ key.transpose(2, 3) / math.sqrt(self.width / self.heads)).masked_fill(hidden, -math.inf)
            stream = stream + linear(f"{layer}.proj", (scores.softmax(-1) @ value).transpose(1, 2).flatten(2))
            stream = stream + linear(f"{layer}.down", linear(f"{layer}.up", normed(f"{layer}.norm2", stream)).relu())
        return linear("out", normed("norm", stream))


@dataclass(frozen=True)
class Report:
    """Rows of a protocol, and what has to be said with them."""

    protocol: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    caveats: tuple[str, ...]

    def table(self) -> str:
        """The rows, with every caveat."""
        told = ["", "What this table does not say:", *(f"- {each}" for each in self.caveats)]
        return "\n".join([plain_table(self.columns, self._cells()), *told])

    def markdown(self) -> str:
        """The rows as a Markdown table, with every caveat."""
        return "\n".join([markdown_table(self.columns, self._cells()), "", *(f"- {each}" for each in self.caveats)])

    def data(self) -> dict[str, Any]:
        """All of it for JSON."""
        rows = [dict(zip(self.columns, row, strict=True)) for row in self.rows]
        return {"protocol": self.protocol, "rows": rows, "caveats": list(self.caveats)}

    def _cells(self) -> list[list[str]]:
        return [[f"{cell:.2g}" if isinstance(cell, float) else str(cell) for cell in row] for row in self.rows]


def protocol(name: str, *, steps: int = 1000, seed: int = 0, progress: Shown = None) -> Report:
    """Run one of "precision-ls", "precision-ls-square" and "garg" at a budget of so many steps of Adam."""
    if name not in PROTOCOLS:
        raise TargetError(f"no protocol {name!r}; there are {', '.join(PROTOCOLS)}")
    if steps < 1:
        raise TargetError(f"steps is {steps}; a positive number is needed")
    with one_thread(), shown(progress) as report:
        tell = None if report is None else report
        return _garg(steps, seed, tell) if name == "garg" else _precision(name, steps, seed, tell)


Draw = Callable[[Any, int], tuple[Tensor, Tensor]]
"""(generator, batch) to inputs and what is wanted: (batch, positions, .)"""


def _trained(student: Blocks, draw: Draw, steps: int, batch: int, seed: int, tell: Any) -> Tensor:
    """Weights after so many steps of Adam at 1e-3, a new batch at each."""
    torch = torch_module()
    generator = torch.Generator().manual_seed(seed + 1)

    def loss(weights: Tensor, _step: int) -> tuple[Tensor, Tensor]:
        x, y = draw(generator, batch)
        off = student.outputs(weights, x) - y
        kept = torch.where(torch.isnan(off), torch.zeros_like(off), off)
        return (kept * kept).sum()[None] / (~torch.isnan(off)).sum(), kept.detach().abs().amax()[None]

    return adam(loss, student.start(seed), [1e-3], Schedule(steps), tell).last


def _precision(name: str, steps: int, seed: int, tell: Any) -> Report:
    torch, square = torch_module(), name.endswith("square")
    positions, batch = 40, 16

    def draw(generator: Any, many: int) -> tuple[Tensor, Tensor]:
        x = torch.randn(many, positions, 20, generator=generator)
        return x, x * x if square else x[..., :10] * x[..., 10:]

    student = Blocks(20, 20 if square else 10, positions, 64, 2, 2)
    weights = _trained(student, draw, steps, batch, seed, tell)
    x, wanted = draw(torch.Generator().manual_seed(seed + 2), TESTED)
    with torch.no_grad():
        off = (student.outputs(weights, x) - wanted).numpy().astype(np.float64)
    size = int(weights.shape[1])
    rows: list[tuple[Any, ...]] = [
        (f"trained, 2 layers, attention and ReLU blocks, {steps} steps of {batch}", size, _mean(off), _most(off), "")
    ]
    points = x.reshape(-1, 20).numpy().astype(np.float64)
    inside = np.abs(points).max(axis=1) <= BOX
    target = [f"x{k}*x{k}" for k in range(20)] if square else [f"x{k}*x{k + 10}" for k in range(10)]
    exact = points**2 if square else points[:, :10] * points[:, 10:]
    for error in (1e-3, 1e-6, 1e-9):
        model = compile(target, {f"x{k}": (-BOX, BOX) for k in range(20)}, error=error)
        away = model(points[inside]) - exact[inside]
        told = f"built, 1 layer, {model.bill.heads} heads, {model.bill.reference_tokens} reference tokens, float64"
        rows.append((told, model.bill.parameters, _mean(away), _most(away), f"{model.certificate.error:.2g}"))
    rows.append(("the variance of what is wanted", "", float(wanted.var()), "", ""))
    caveats = (
        f"the budget: {steps} steps of {batch} prompts; the paper trains 10^6 steps of 1,024. The trained row says "
        "what this budget reaches, not what their models reach",
        f"built models live on the box |x| <= {BOX:g} ({int(inside.sum()):,} of {len(inside):,} test rows are inside; "
        "a normal number is beyond with probability 2e-9) and run in float64; trained ones in float32",
        "built models have a constant prefix of reference tokens, the trained one has none",
        "positions are independent in this task, and the built model runs each alone: it was compiled for one position "
        "at a time, while 40 positions share the trained model's sequence",
        "one seed; the initialisation of GPT-2; no norms, as in the published default (their sweeps switch some on)",
    )
    return Report(name, ("model", "parameters", "mse", "largest_error", "certified"), tuple(rows), caveats)


def _mean(off: Array) -> float:
    return float(np.mean(off * off))


def _most(off: Array) -> float:
    return float(np.abs(off).max())


EXAMPLES = (1, 2, 3, 4, 6, 10)
FEATURES, PROMPTS = 3, 200


def _garg(steps: int, seed: int, tell: Any) -> Report:
    torch, most, batch = torch_module(), max(EXAMPLES) + 1, 64

    def tasks(generator: Any, many: int) -> tuple[Tensor, Tensor]:
        x = 2.0 * torch.rand(many, most, FEATURES, generator=generator) - 1.0
        w = torch.randn(many, FEATURES, 1, generator=generator)
        return x, (x @ (w / w.norm(dim=1, keepdim=True)))[..., 0]

    def draw(generator: Any, many: int) -> tuple[Tensor, Tensor]:
        """Tokens x_1, y_1, x_2, ...: an answer is asked for at each x, at each y nothing."""
        x, y = tasks(generator, many)
        laid = torch.zeros(many, most, 2, FEATURES + 1)
        laid[:, :, 0, :FEATURES], laid[:, :, 1, FEATURES] = x, y
        wanted = torch.full((many, most, 2, 1), math.nan)
        wanted[:, :, 0, 0] = y
        return laid.flatten(1, 2), wanted.flatten(1, 2)

    student = Blocks(FEATURES + 1, 1, 2 * most, 48, 3, 4, norms=True)
    weights = _trained(student, draw, steps, batch, seed, tell)
    laid, wanted = draw(torch.Generator().manual_seed(seed + 2), 4000)
    with torch.no_grad():
        off = ((student.outputs(weights, laid) - wanted) ** 2)[:, ::2, 0].numpy()
    x, y = (each.numpy().astype(np.float64) for each in tasks(torch.Generator().manual_seed(seed + 3), PROMPTS))
    variance = float(np.var(y))
    rows: list[tuple[Any, ...]] = [("least squares", "", "", *_solved(x, y, variance))]
    limit = math.sqrt(FEATURES)
    options: dict[str, Any] = {"labels": (-limit, limit), "error": 1e-4, "progress": False}
    learners = {
        "built, gradient descent, 8 steps": in_context.least_squares(8, FEATURES, max(EXAMPLES), **options),
        f"built, Newton, decay {DECAY}, {DOUBLINGS} doublings": in_context.newton(
            DECAY, DOUBLINGS, FEATURES, max(EXAMPLES), **options
        ),
    }
    for told, learner in learners.items():
        found = [_asked(learner, x, y, m) / variance for m in EXAMPLES]
        rows.append((told, learner.bill.layers, learner.bill.parameters, *found))
    trained = [float(off[:, m].mean()) / variance for m in EXAMPLES]
    rows.append((f"trained, width 48, {steps} steps of {batch} prompts", 3, int(weights.shape[1]), *trained))
    caveats = (
        f"the budget: {steps} steps. Models of this kind stay on a plateau (they use one example) for tens of "
        "thousands of steps; below 10^5 steps the trained row is a statement about the budget and nothing more",
        "a certificate of a learner is against its algorithm in exact arithmetic; how high the curve is, is the "
        "algorithm's doing: its rate is for the worst context",
        f"decay {DECAY} and {DOUBLINGS} doublings are fixed, and not tuned on prompts (x uniform in [-1, 1]^3, |w| = "
        "1); gradient descent has its default rate",
        f"{PROMPTS} prompts for what is built, 4,000 for what is trained; one seed",
    )
    return Report("garg", ("model", "layers", "parameters", *(f"m={m}" for m in EXAMPLES)), tuple(rows), caveats)


DECAY, DOUBLINGS = 0.1, 5


def _solved(x: Array, y: Array, variance: float) -> list[float]:
    """Least squares (of least norm) on the first m examples, at the next x: squared error over variance."""
    found = []
    for m in EXAMPLES:
        w = (np.linalg.pinv(x[:, :m]) @ y[:, :m, None])[..., 0]
        found.append(float(np.mean(((x[:, m] * w).sum(1) - y[:, m]) ** 2)) / variance)
    return found


def _asked(learner: Any, x: Array, y: Array, m: int) -> float:
    """The mean squared error of a learner that sees m examples and is asked the next x."""
    asked = np.repeat(x[:, m][:, None], m, axis=1)
    table = np.concatenate([x[:, :m], y[:, :m, None], asked], axis=2)
    return float(np.mean((np.asarray(learner(table))[:, 0, 0] - y[:, m]) ** 2))
