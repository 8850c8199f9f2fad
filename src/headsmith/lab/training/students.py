"""What is trained: models as functions of one flat vector of weights, many of them side by side.

A student maps weights (runs, P) and inputs to outputs, all runs at once: one matrix product for a whole stack of seeds
and rates, and for Jacobians one "run" for every sample.

    Attention    the module of `model.to_torch()`, every tensor of it trainable: embedding, positions, reference tokens,
                 queries, keys, values, outputs, read-out. Its class is larger than the compiled circuit: the data token
                 also sees itself (a score that is quadratic in x), and registers may mix.
    Table        sum_h sum_k softmax(a_hk s + c_hk) v_hk + alpha s + beta: the class that the lower bounds are about
    Gates        a ReLU network, `depth` layers of `width` gates each

Inputs are (N, m, inputs), m tokens each, or with a leading axis for inputs that differ from run to run; outputs
(runs, N, m, outputs).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

import numpy as np

from headsmith.core.arrays import Array
from headsmith.core.errors import HeadsmithError
from headsmith.core.extras import install

Tensor = Any
Shapes = Mapping[str, tuple[int, ...]]


def torch_module() -> Any:
    """torch, or an error that says how to get it."""
    try:
        import torch
    except ImportError:
        raise HeadsmithError(f"training needs torch: {install('torch')}") from None
    return torch


class Student(Protocol):
    """A model as a function of one flat vector of weights."""

    @property
    def shapes(self) -> Shapes:
        """The tensors that the vector is made of, in order."""

    def outputs(self, weights: Tensor, x: Tensor) -> Tensor:
        """(runs, P) and (N, m, inputs), or (runs, N, m, inputs), to (runs, N, m, outputs)."""


def size_of(student: Student) -> int:
    """How many numbers are trained."""
    return sum(math.prod(shape) for shape in student.shapes.values())


def split(shapes: Shapes, weights: Tensor) -> dict[str, Tensor]:
    """A flat stack of weights (runs, P) as tensors by name, (runs, ...): views of it."""
    parts = weights.split([math.prod(shape) for shape in shapes.values()], dim=1)
    return {name: part.reshape(len(weights), *shape) for (name, shape), part in zip(shapes.items(), parts, strict=True)}


def flat(shapes: Shapes, tensors: Mapping[str, Any]) -> Array:
    """Tensors by name as one vector (P,)."""
    return np.concatenate([np.asarray(tensors[name], dtype=np.float64).reshape(-1) for name in shapes])


@dataclass(frozen=True)
class Attention:
    """A softmax transformer as run/torch_model.py writes it: `layers` has (heads, d_head, d_value) of each layer."""

    inputs: int
    answers: int
    tokens: int
    references: int
    d_model: int
    layers: tuple[tuple[int, int, int], ...]

    @property
    def shapes(self) -> Shapes:
        """Tensors as `state_dict` of run/torch_model.py names them."""
        d, found = self.d_model, dict[str, tuple[int, ...]]()
        found["embed.weight"], found["embed.bias"] = (d, self.inputs), (d,)
        found["positions"], found["references"] = (self.tokens, d), (self.references, d)
        for number, (heads, d_head, d_value) in enumerate(self.layers):
            for name, width in (("query", d_head), ("key", d_head), ("value", d_value)):
                found[f"layers.{number}.{name}.weight"] = (heads * width, d)
            found[f"layers.{number}.output.weight"] = (d, heads * d_value)
        return found | {"unembed.weight": (self.answers, d), "unembed.bias": (self.answers,)}

    def outputs(self, weights: Tensor, x: Tensor) -> Tensor:
        """(runs, P) and (N, m, inputs), or (runs, N, m, inputs), to (runs, N, m, outputs)."""
        return self.run(weights, x)[0]

    def run(self, weights: Tensor, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        """The outputs, and the scores of each layer's data tokens: (runs, N, m, heads, references + m)."""
        held = split(self.shapes, weights)
        x = x if x.ndim == 4 else x[None]
        constant = held["embed.bias"][:, None] + held["positions"][:, : x.shape[2]]
        data = _linear(x, held["embed.weight"]) + constant[:, None]
        # Reference tokens do not depend on the input until a layer has let them look at it: (runs, 1 or N, p, d).
        references, seen = held["references"][:, None], []
        for number, (heads, _, _) in enumerate(self.layers):
            matrices = {name: held[f"layers.{number}.{name}.weight"] for name in ("query", "key", "value", "output")}
            kept = [references, data] if self.references else [data]
            moved, scores = _attended(matrices, heads, data, kept)
            if self.references and number + 1 < len(self.layers):
                references = _attended(matrices, heads, references.expand(-1, data.shape[1], -1, -1), kept)[0]
            data = moved
            seen.append(scores)
        return _linear(data, held["unembed.weight"]) + held["unembed.bias"][:, None, None], seen


def _attended(matrices: Mapping[str, Tensor], heads: int, asking: Tensor, kept: list[Tensor]) -> tuple[Tensor, Tensor]:
    """A part of the stream (runs, N, q, d) after it has looked at all of `kept`, and its scores."""
    torch = torch_module()
    query, (keys, values) = (
        _linear(asking, matrices["query"]).unflatten(-1, (heads, -1)),
        ([_linear(part, matrices[name]).unflatten(-1, (heads, -1)) for part in kept] for name in ("key", "value")),
    )
    scores = torch.cat([_scores(query, key) for key in keys], dim=-1)
    shares = scores.softmax(-1).split([key.shape[2] for key in keys], dim=-1)
    means = sum(_means(share, value) for share, value in zip(shares, values, strict=True))
    return asking + _linear(means.flatten(-2), matrices["output"]), scores


def _linear(x: Tensor, weight: Tensor) -> Tensor:
    """x (runs or 1, N, t, from) by weight (runs, to, from)."""
    torch = torch_module()
    runs, (_, many, tokens, width) = len(weight), x.shape
    left = x.reshape(len(x), many * tokens, width).expand(runs, -1, -1)
    return torch.bmm(left, weight.transpose(1, 2)).reshape(runs, many, tokens, -1)


def _scores(query: Tensor, key: Tensor) -> Tensor:
    """(runs, N, q, h, e) and (runs, N or 1, t, h, e) to (runs, N, q, h, t)."""
    if key.shape[1] == 1 and query.shape[1] > 1:
        runs, many, asked, heads, width = query.shape
        left = query.permute(0, 3, 1, 2, 4).reshape(runs, heads, many * asked, width)
        found = left @ key[:, 0].permute(0, 2, 3, 1)
        return found.reshape(runs, heads, many, asked, -1).permute(0, 2, 3, 1, 4)
    return (query[:, :, :, None] * key[:, :, None]).sum(-1).transpose(3, 4)


def _means(share: Tensor, value: Tensor) -> Tensor:
    """(runs, N, q, h, t) and (runs, N or 1, t, h, v) to (runs, N, q, h, v)."""
    if value.shape[1] == 1 and share.shape[1] > 1:
        runs, many, asked, heads, tokens = share.shape
        left = share.permute(0, 3, 1, 2, 4).reshape(runs, heads, many * asked, tokens)
        found = left @ value[:, 0].permute(0, 2, 1, 3)
        return found.reshape(runs, heads, many, asked, -1).permute(0, 2, 3, 1, 4)
    return (share.transpose(3, 4)[..., None] * value[:, :, None]).sum(3)


@dataclass(frozen=True)
class Table:
    """Heads over constant reference tokens of one number s, beside an affine map: sum_h sum_k softmax(a_hk s + c_hk)
    v_hk + alpha s + beta, with s = (x - middle) / half. No token sees itself: the class that laws and lower bounds are
    about."""

    heads: int
    references: int
    middle: float = 0.0
    half: float = 1.0

    @property
    def shapes(self) -> Shapes:
        """Slopes, offsets and values of tokens; the affine map."""
        each = (self.heads, self.references)
        return {"slope": each, "offset": each, "values": each, "linear": (1,), "bias": (1,)}

    def outputs(self, weights: Tensor, x: Tensor) -> Tensor:
        """(runs, P) and (N, 1, 1), or (runs, N, 1, 1), to (runs, N, 1, 1)."""
        held = split(self.shapes, weights)
        s = (x.reshape(*(x.shape[:1] if x.ndim == 4 else (1,)), -1, 1, 1) - self.middle) / self.half
        scores = s * held["slope"][:, None] + held["offset"][:, None]
        found = (scores.softmax(-1) * held["values"][:, None]).sum((2, 3))
        found = found + s[:, :, 0, 0] * held["linear"] + held["bias"]
        return found[..., None, None]


@dataclass(frozen=True)
class Gates:
    """A ReLU network of `depth` hidden layers of `width` gates."""

    inputs: int
    answers: int
    width: int
    depth: int

    @property
    def shapes(self) -> Shapes:
        """Weights and biases, layer by layer."""
        sizes, found = [self.inputs, *[self.width] * self.depth, self.answers], dict[str, tuple[int, ...]]()
        for number, (before, after) in enumerate(pairwise(sizes)):
            found |= {f"layers.{number}.weight": (after, before), f"layers.{number}.bias": (after,)}
        return found

    def outputs(self, weights: Tensor, x: Tensor) -> Tensor:
        """(runs, P) and (N, m, inputs), or (runs, N, m, inputs), to (runs, N, m, outputs)."""
        held, found = split(self.shapes, weights), x if x.ndim == 4 else x[None]
        for number in range(self.depth + 1):
            found = _linear(found, held[f"layers.{number}.weight"]) + held[f"layers.{number}.bias"][:, None, None]
            found = found.relu() if number < self.depth else found
        return found
