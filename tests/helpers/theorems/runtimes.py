"""One model, every runtime: the models of the gallery in both formats, and the runs that must agree within the rounding
part of their certificate. tests/run/test_runtimes.py compares numpy, torch and ONNX Runtime; tests_outside/ adds
Hugging Face and TransformerLens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import headsmith as hs
from headsmith.studio.gallery import GALLERY
from helpers.models.networks import random_network

over = hs.tokens
Make = Callable[[str], Any]
CLOSED = ", closed forms"
SMALL = {"tokens": 6, "examples": 4, "steps": 2, "doublings": 2}
"""Numbers of the studio's gallery that make its models small; the others are as the studio shows them first."""


def _shown(name: str) -> Make:
    fields = {field.name: field.first for field in GALLERY[name].fields}
    chosen = {field: SMALL.get(field, value) for field, value in fields.items()} | {"error": 1e-3}
    options = {**chosen, "progress": lambda *_: None}
    return lambda dtype: reached(lambda error: GALLERY[name].make(**options | {"error": error}, dtype=dtype), 1e-3)


def _formula(target: Any, error: float = 1e-3, **options: Any) -> Make:
    return lambda dtype: reached(lambda error: hs.compile(target, (-1, 1), error, dtype=dtype, **options), error)


def _program(function: Callable[[Any], Any], **options: Any) -> Make:
    options = {"tokens": 5, "domain": (-1, 1)} | options
    return lambda dtype: reached(lambda error: hs.compile_sequence(function, error=error, dtype=dtype, **options), 1e-3)


def reached(make: Callable[[float], Any], error: float) -> Any:
    """The model with this error, or with the smallest that its format can meet."""
    try:
        return make(error)
    except hs.UnreachableError as problem:
        return make(problem.smallest or error)


MODELS: dict[str, Make] = {
    **{name: _shown(name) for name in GALLERY},
    "product": _formula("x*y"),
    "tables": _formula("exp(x) * y, x / (2 + y)", tokens=3),
    "gates": _formula("relu(x - y) + max(x, y)", recipe="relu"),
    "ramps": _formula("relu(x)", 1e-2, recipe="ramp"),
    "pieces": _formula("max(x, y, -x)", recipe="maxout"),
    "network": _formula(random_network([3, 6, 5, 2]), 1e-2),
    "network over tokens": _formula(random_network([3, 6, 5, 2]), 1e-2, tokens=4),
    "mean": _program(lambda x: x * over.mean(x)),
    "mean so far": _program(lambda x: x * over.mean(x), causal=True),
    "largest": _program(over.max),
    "attention": _program(lambda x: over.attend(x[:, 0], x[:, 0], x[:, 0])),
    "attention so far": _program(lambda x: over.attend(x[:, 0], x[:, 0], x[:, 0]), causal=True),
    "shift": _program(lambda x: over.shift(x, -1)),
}
"""The studio's gallery, and beside it every kind of head."""


def masks(model: Any) -> list[dict[str, bool]]:
    """Options for the masks that a model is proven under: sequences were compiled for one of them."""
    if isinstance(model, hs.CompiledSequence):
        return [{}]
    try:
        model.plain(causal=True)
    except hs.DomainError:
        return [{}]
    return [{"causal": False}, {"causal": True}]


def inputs_of(model: Any, count: int = 32) -> Any:
    """Points, or sequences of the longest length, inside the domain, in the model's own format."""
    shape = (count, model.box.size)
    if model.called()["takes"] == "sequences":
        longest = model.lengths[-1] if isinstance(model, hs.CompiledSequence) else model.transformer.tokens
        shape = (count, longest, model.box.size)
    drawn = np.random.default_rng(0).uniform(model.box.low, model.box.high, shape)
    low, high = (np.asarray(end) for end in (model.box.low, model.box.high))
    return np.clip(drawn.astype(model.transformer.dtype), low, high).astype(model.transformer.dtype)


def near_runs(model: Any, x: Any, mask: dict[str, bool]) -> Iterator[tuple[str, Any]]:
    """What numpy, torch and ONNX Runtime compute, by the attention and by closed forms."""
    import onnxruntime
    import torch

    yield f"numpy{CLOSED}", model(x, fused=True, **mask)
    yield "numpy, every matrix", np.stack([model.run(each, **mask) for each in x[:4]])
    quiet = onnxruntime.SessionOptions()
    quiet.log_severity_level, quiet.intra_op_num_threads = 3, 1
    for fused, kind in ((False, ""), (True, CLOSED)):
        with torch.no_grad():
            yield f"torch{kind}", model.to_torch(fused=fused, **mask)(torch.tensor(x)).numpy()
        session = onnxruntime.InferenceSession(model.to_onnx(fused=fused, **mask).SerializeToString(), quiet)
        yield f"ONNX Runtime{kind}", session.run(None, {"x": x})[0]


def check_agreement(model: Any, runs: Iterator[tuple[str, Any]], wanted: Any) -> None:
    """Every run is within the certificate's rounding part of numpy's, in the same format. Closed forms leave out what
    leaks between tokens: that part of the certificate may be between them and the others."""
    for name, found in runs:
        assert found.dtype == wanted.dtype == np.dtype(model.transformer.dtype), name
        gap = np.abs(found.reshape(len(found), -1) - wanted.reshape(len(wanted), -1)[: len(found)]).max()
        parts = model.certificate.parts
        assert gap <= parts["rounding"] + name.endswith(CLOSED) * parts["leak"], f"{name}: {gap}"
