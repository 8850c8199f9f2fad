"""What is to be learned, beside what was built: a compiled model, its shape as a student, and points of its target."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from headsmith.compile import compile
from headsmith.core.arrays import Array
from headsmith.core.errors import TargetError
from headsmith.files import model_of
from headsmith.lab.training.optimise import Problem
from headsmith.lab.training.points import Field, Points
from headsmith.lab.training.students import Attention, Tensor, flat, size_of, torch_module
from headsmith.language.describe import outputs_text
from headsmith.language.evaluation import evaluate
from headsmith.model import Compiled
from headsmith.plan.reading import as_graph
from headsmith.sequence.compiled import CompiledSequence

COUNTS = {1: 256, 2: 256}
"""Training points for one and two inputs; more inputs, and sequences, take MANY."""
MANY = 400
LARGEST = 30_000_000
"""Entries of one Jacobian."""
SHAPE = ("layers", "heads", "tokens", "d_head", "d_model")
"""What a shape may say: layers, heads of each layer, reference tokens, widths."""


@dataclass(frozen=True, eq=False)
class Case:
    """A compiled model, and a student of its shape, or of another one: then `compiled` is None."""

    model: Compiled
    student: Attention
    compiled: Tensor | None
    field: Field
    problem: Problem
    test: Points

    @property
    def target(self) -> str:
        """The target in words."""
        return outputs_text(self.model.wanted, 100)

    @property
    def error(self) -> float:
        """The certified error of the built model."""
        return float(self.model.certificate.error)

    @property
    def parameters(self) -> int:
        """How many numbers are trained."""
        return size_of(self.student)

    @property
    def digest(self) -> str:
        """Of all that training depends on but its settings."""
        sha = hashlib.sha256(repr(self.student).encode())
        for part in (self.problem.train, self.problem.validation, self.test):
            sha.update(part.x.tobytes() + part.y.tobytes())
        sha.update(b"" if self.compiled is None else self.compiled.numpy().tobytes())
        return sha.hexdigest()

    def module(self, weights: Any) -> Any:
        """Weights (P,) as the torch module of run/torch_model.py. It carries no certificate: what was proven is about
        other weights."""
        from headsmith.run.torch_model import build

        torch = torch_module()
        layers = [
            {"heads": heads, "d_head": d_head, "d_value": d_value, "names": [f"head {head}" for head in range(heads)]}
            for heads, d_head, d_value in self.student.layers
        ]
        shape = {"layers": layers, "d_model": self.student.d_model, "reference_tokens": self.student.references}
        tensors = {name: torch.tensor(each) for name, each in self.tensors(weights).items()}
        return build(self.model.plain().config | shape, tensors)

    def tensors(self, weights: Array) -> dict[str, Array]:
        """Weights (P,) as the tensors of the module, by name."""
        ends = np.cumsum([math.prod(size) for size in self.student.shapes.values()])[:-1]
        parts = np.split(np.asarray(weights), ends)
        return {name: part.reshape(size) for (name, size), part in zip(self.student.shapes.items(), parts, strict=True)}

    def matrices(self, weights: Array) -> dict[str, Any]:
        """Weights (P,) as a textbook writes matrices, for `hs.certify` (readers/matrices.py)."""
        held = self.tensors(weights)
        layers = []
        for number, (heads, _, _) in enumerate(self.student.layers):
            query, key, value, output = (
                held[f"layers.{number}.{name}.weight"] for name in ("query", "key", "value", "output")
            )
            layer = {
                name: each.reshape(heads, -1, self.student.d_model).transpose(0, 2, 1)
                for name, each in (("W_Q", query), ("W_K", key), ("W_V", value))
            }
            layers.append(layer | {"W_O": output.T.reshape(heads, -1, self.student.d_model)})
        return {
            "W_E": held["embed.weight"].T,
            "b_E": held["embed.bias"],
            "W_pos": held["positions"],
            "references": held["references"],
            "layers": layers,
            "W_U": held["unembed.weight"].T,
            "b_U": held["unembed.bias"],
        }


def case_of(
    target: Any,
    domain: Any,
    like: Compiled | str | os.PathLike[str] | None,
    error: float,
    shape: Mapping[str, int] | None,
) -> Case:
    """The case of a target and its domain, or of a compiled model or the file of one; `shape` asks for a student of
    another shape than the compiled model has."""
    if like is None and target is None:
        raise TargetError("nothing to train: give a target and its domain, or like= a compiled model or its file")
    model = compile(target, domain, error=error) if like is None else model_of(like)
    if not isinstance(model, Compiled):
        raise TargetError(
            "a callable that was sampled has no formula to train for: give a model of a formula or program"
        )
    if like is not None and target is not None:
        _refuse_other(model, target, domain)
    plain = model.plain()
    _refuse_kinds(plain.config, model)
    own = Attention(
        plain.config["inputs"],
        plain.config["outputs"],
        plain.config["tokens"],
        plain.config["reference_tokens"],
        plain.config["d_model"],
        tuple((layer["heads"], layer["d_head"], layer["d_value"]) for layer in plain.config["layers"]),
    )
    student = shaped(own, shape or {})
    compiled = torch_module().tensor(flat(own.shapes, plain.tensors))[None] if student == own else None
    field = Field(model.wanted, np.asarray(model.box.low), np.asarray(model.box.high), own.tokens)
    train = field.train(MANY if own.tokens > 1 else COUNTS.get(model.box.size, MANY))
    if train.y.size * size_of(student) > LARGEST:
        raise TargetError(
            f"{size_of(student):,} weights and {train.y.size:,} outputs of training points: a Jacobian would have "
            f"{train.y.size * size_of(student):,} entries, and {LARGEST:,} are the most; train a smaller model"
        )
    return Case(model, student, compiled, field, Problem(student, train, field.validation()), field.test())


def shaped(own: Attention, shape: Mapping[str, int]) -> Attention:
    """A student like another one, but with so many layers, heads of each layer, reference tokens, or widths."""
    unknown = [name for name in shape if name not in SHAPE]
    if unknown or any(isinstance(size, bool) or not isinstance(size, int) or size < 1 for size in shape.values()):
        raise TargetError(f"shape is {dict(shape)!r}; it has positive integers for some of {', '.join(SHAPE)}")
    layers = list(own.layers)
    layers = [*layers, *[layers[-1]] * shape.get("layers", 0)][: shape.get("layers", len(layers))]
    heads, d_head = shape.get("heads"), shape.get("d_head")
    wanted = tuple((heads or layer[0], d_head or layer[1], layer[2]) for layer in layers)
    references = shape.get("tokens", own.references)
    # Room for a column of the stream for each reference token, as the compiled model has.
    d_model = shape.get("d_model", max(own.d_model, own.d_model + references - own.references))
    return Attention(own.inputs, own.answers, own.tokens, references, d_model, wanted)


def _refuse_other(model: Compiled, target: Any, domain: Any) -> None:
    """Raise TargetError unless a target is that of the model, as far as 200 random points tell."""
    names = dict.fromkeys(model.box.names, (0.0, 1.0)) if domain is None else domain
    graph = as_graph(target, names)
    share = np.random.default_rng(0).random((200, max(2, model.transformer.tokens), model.box.size))
    points = np.asarray(model.box.low) + share * (np.asarray(model.box.high) - np.asarray(model.box.low))
    if (
        graph.input.size == model.box.size
        and graph.nodes[graph.output].size == model.wanted.nodes[model.wanted.output].size
    ):
        apart = np.abs(evaluate(graph, points) - evaluate(model.wanted, points))
        if np.all(apart <= 1e-9 * (1.0 + np.abs(evaluate(graph, points)))):
            return
    raise TargetError(f"the model in like= is of {outputs_text(model.wanted, 100)}, and not of the target {target!r}")


def _refuse_kinds(config: Mapping[str, Any], model: Compiled) -> None:
    """Raise TargetError for what students do not compute."""
    sequences = isinstance(model, CompiledSequence)
    problems = {
        "float64 alone is trained, and it is of another dtype": config["dtype"] != "float64",
        "softmax attention without a mask is trained": config.get("attention", "softmax") != "softmax"
        or config["causal"],
        "layers of neurons are not trained": any(layer.get("neurons") for layer in config["layers"]),
        "a model that ends in a softmax is not trained": config["answers"] is not None,
        "a model of blocks is not trained": config["takes"] == "blocks",
        "compile it without tokens=: its tokens are independent": config["takes"] == "sequences" and not sequences,
        "it has no attention: an affine map is learned by least squares": not config["layers"],
    }
    found = [text for text, wrong in problems.items() if wrong]
    if found:
        raise TargetError(f"cannot train a model like this one: {found[0]}")
