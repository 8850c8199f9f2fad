"""Weights of other attentions than softmax in ONNX: `weights_of` of heads/attentions.py, in primitives that ONNX
Runtime has for float64. Where tokens see themselves and the prefix alone there is one data token, which sees
everything; reference tokens, which come first, do not see it: as under a causal mask."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headsmith.export.onnx_builder import OnnxBuilder


def positive(graph: OnnxBuilder, features: str) -> str:
    """phi of elu+1: e^x below zero, 1 + x above. Both are max(x, 0) + e^min(x, 0)."""
    zero = graph.number("nothing", 0.0)
    return graph.op("Add", graph.op("Max", features, zero), graph.op("Exp", graph.op("Min", features, zero)))


def weights_of(graph: OnnxBuilder, config: Mapping[str, Any], scores: str, count: str) -> str:
    """Scores (batch, head, query token, key token), or products of features under elu+1, of `count` tokens, as
    weights."""
    kind, hides = config["attention"], config["causal"] or config.get("alone", False)
    if kind in ("sigmoid", "relu", "linear", "elu+1"):
        if kind == "sigmoid":
            unit = graph.number("unit", 1.0)
            scores = graph.op("Div", unit, graph.op("Add", unit, graph.op("Exp", graph.op("Neg", scores))))
        if kind == "relu":
            scores = graph.op("Max", scores, graph.number("nothing", 0.0))
        weights = graph.op("Where", graph.ahead(count), graph.number("nothing", 0.0), scores) if hides else scores
        return _shares(graph, weights) if kind == "elu+1" else weights
    scores = graph.masked(scores, count) if hides else scores
    scores = graph.op("Sub", scores, graph.op("ReduceMax", scores, axes=[-1], keepdims=1))
    if kind == "hardmax":
        return _shares(graph, _as_number(graph, graph.op("Equal", scores, graph.number("nothing", 0.0))))
    return _sparsemax(graph, scores, count)


def _sparsemax(graph: OnnxBuilder, scores: str, count: str) -> str:
    """The largest scores lose the same, so that what is left of them has the sum one."""
    unit, nothing = graph.number("unit", 1.0), graph.number("nothing", 0.0)
    graph.nodes.append(graph.onnx.helper.make_node("TopK", [scores, count], [f"{scores}_sorted", f"{scores}_places"]))
    ordered = graph.op("Max", f"{scores}_sorted", graph.number("far", -2.0))
    sums, counts = graph.op("CumSum", ordered, graph.places("last_axis", 3)), _as_number(graph, graph.counted(count))
    reach = graph.op("Add", unit, graph.op("Mul", ordered, graph.op("Add", counts, unit)))
    inside = _as_number(graph, graph.op("Greater", reach, sums))
    kept = graph.op("ReduceSum", inside, graph.whole(-1), keepdims=1)
    place = graph.op("Sub", graph.op("Cast", kept, to=graph.onnx.TensorProto.INT64), graph.whole(1))
    total = graph.op("GatherElements", sums, place, axis=3)
    lost = graph.op("Div", graph.op("Sub", total, unit), kept)
    return graph.op("Max", graph.op("Sub", scores, lost), nothing)


def _shares(graph: OnnxBuilder, values: str) -> str:
    return graph.op("Div", values, graph.op("ReduceSum", values, graph.whole(-1), keepdims=1))


def _as_number(graph: OnnxBuilder, truth: str) -> str:
    kinds = {"float32": graph.onnx.TensorProto.FLOAT, "float64": graph.onnx.TensorProto.DOUBLE}
    return graph.op("Cast", truth, to=kinds[graph.dtype.name])
