"""Where training starts: at random, at the compiled weights, or near them.

    random        N(0, 1/fan-in), biases 0, references and positions N(0, 1). The initialisation of run/torch_model.py
                  sets references to zero: tokens that are all alike at the start get equal gradients, and stay alike
                  for ever
    compiled      the weights of the compiled model
    perturbed     those with noise, after scales were balanced: w (1 + s noise) keeps zeros, and with them the circuit;
                  w + s rms(tensor) noise fills them

What a model computes does not change if a query matrix is scaled up and its key matrix down by the same factor, nor for
values and outputs: `balanced` does that until both have the same norm.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from headsmith.lab.training.students import Attention, Gates, Student, Table, Tensor, split, torch_module


def random_start(student: Student, seeds: Sequence[int]) -> Tensor:
    """One row of random weights for each seed, (seeds, P)."""
    torch = torch_module()
    rows = []
    for seed in seeds:
        generator = torch.Generator().manual_seed(int(seed))
        parts = [_drawn(student, name, shape, generator) for name, shape in student.shapes.items()]
        rows.append(torch.cat([part.reshape(-1) for part in parts]))
    return torch.stack(rows)


def _drawn(student: Student, name: str, shape: tuple[int, ...], generator: Any) -> Tensor:
    torch = torch_module()
    drawn = torch.randn(shape, generator=generator, dtype=torch.float64)
    match student:
        case Attention() | Gates() if name.endswith("bias"):
            return torch.zeros(shape, dtype=torch.float64)
        case Attention() if name in ("positions", "references"):
            return drawn
        case Attention():
            return drawn / math.sqrt(shape[-1])
        case Gates():
            return drawn * math.sqrt(2.0 / shape[-1])
        case Table() if name == "slope":
            return 3.0 * drawn
        case _:
            return drawn


def perturbed_start(student: Attention, weights: Tensor, noise: float, zeros: bool, seeds: Sequence[int]) -> Tensor:
    """Balanced weights (1, P) with relative noise that keeps their zeros or not; one row for each seed."""
    torch = torch_module()
    base, rows = balanced(student, weights), []
    for seed in seeds:
        generator = torch.Generator().manual_seed(int(seed) + 1_000_003)
        parts = []
        for part in split(student.shapes, base).values():
            drawn = torch.randn(part.shape, generator=generator, dtype=torch.float64)
            size = part if zeros else (part * part).mean().sqrt()
            parts.append((part + noise * size * drawn).reshape(-1))
        rows.append(torch.cat(parts))
    return torch.stack(rows)


def balanced(student: Attention, weights: Tensor) -> Tensor:
    """The same function with query and key, and value and output, of equal norms in every head: (1, P)."""
    torch = torch_module()
    held = {name: part[0].clone() for name, part in split(student.shapes, weights).items()}
    for number, (heads, _, _) in enumerate(student.layers):
        names = [f"layers.{number}.{name}.weight" for name in ("query", "key", "value", "output")]
        query, key, value = (held[name].unflatten(0, (heads, -1)) for name in names[:3])
        output = held[names[3]].unflatten(1, (heads, -1))
        for left, right, (one, other) in ((query, key, ((1, 2), (1, 2))), (value, output, ((1, 2), (0, 2)))):
            sizes = left.norm(dim=one), right.norm(dim=other)
            known = (sizes[0] > 0.0) & (sizes[1] > 0.0)
            factor = torch.where(known, (sizes[1] / sizes[0].clamp(min=1e-300)).sqrt(), torch.ones_like(sizes[0]))
            left.mul_(factor[:, None, None])
            right.div_(factor[:, None, None] if right is key else factor[None, :, None])
    return torch.cat([held[name].reshape(-1) for name in student.shapes])[None]
