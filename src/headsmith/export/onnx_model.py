"""A compiled transformer as an ONNX graph of primitives: every matrix written out as in a textbook, or closed forms.

The input x is (batch, inputs), or (batch, m, inputs) for a model of sequences of m tokens; the output y likewise. ONNX
Runtime runs both in float32 and float64.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from headsmith.export.onnx_builder import OnnxBuilder
from headsmith.export.onnx_sparse import sparse_times
from headsmith.export.onnx_weights import positive, weights_of
from headsmith.export.plain import Plain
from headsmith.kernel.core.sparse import Sparse
from headsmith.run.closed_forms import first_rows
from headsmith.transformer.heads.attend import AttendBank
from headsmith.transformer.heads.move import TARGETS
from headsmith.transformer.heads.stream import Link
from headsmith.transformer.heads.table import TableBank
from headsmith.transformer.ir import Bank, Transformer


def textbook_onnx(model: Plain) -> Any:
    """The model of run/torch_model.py as an ONNX model."""
    config, tensors = model.config, model.tensors
    graph, references = OnnxBuilder(config["dtype"]), config["reference_tokens"]

    def linear(values: str, name: str, bias: bool = False) -> str:
        found = graph.op("MatMul", values, graph.number(f"{name}.weight", tensors[f"{name}.weight"].T))
        return graph.op("Add", found, graph.number(f"{name}.bias", tensors[f"{name}.bias"])) if bias else found

    x, count = _laid_out(graph, config)
    stream = graph.op(
        "Add", linear(x, "embed", True), graph.rows(graph.number("positions", tensors["positions"]), count)
    )
    if references:
        rows = graph.number("references", tensors["references"][None])
        shape = graph.op("Concat", graph.op("Shape", "x", end=1), graph.whole(references, config["d_model"]), axis=0)
        stream = graph.op("Concat", graph.op("Expand", rows, shape), stream, axis=1)
    everyone = graph.op("Shape", stream, start=1, end=2)
    for number, layer in enumerate(config["layers"]):
        if layer.get("neurons"):
            gate, up = (linear(stream, f"layers.{number}.{name}") for name in ("gate", "up"))
            inner = graph.op("Mul", _silu(graph, gate), up, name=f"layers.{number}.neurons")
            stream = graph.op("Add", stream, linear(inner, f"layers.{number}.down"))
            continue
        parts = []
        for name, width in (("query", "d_head"), ("key", "d_head"), ("value", "d_value")):
            found = linear(stream, f"layers.{number}.{name}")
            apart = graph.op("Reshape", found, graph.whole(0, 0, layer["heads"], layer[width]))
            if name != "value" and config.get("attention") == "elu+1":
                apart = positive(graph, apart)
            parts.append(graph.op("Transpose", apart, perm=[0, 2, 3, 1] if name == "key" else [0, 2, 1, 3]))
        scores = graph.op("MatMul", parts[0], parts[1], name=f"layers.{number}.scores")
        if "attention" in config:
            pattern = weights_of(graph, config, scores, everyone)
        else:
            scores = graph.masked(scores, everyone) if config["causal"] else scores
            pattern = graph.op("Softmax", scores, name=f"layers.{number}.pattern", axis=-1)
        means = graph.op("Transpose", graph.op("MatMul", pattern, parts[2]), perm=[0, 2, 1, 3])
        side = graph.op("Reshape", means, graph.whole(0, 0, layer["heads"] * layer["d_value"]))
        stream = graph.op("Add", stream, linear(side, f"layers.{number}.output"))
    data = graph.op("Slice", stream, graph.whole(references), everyone, graph.whole(1))
    if config["answers"] is None:
        return _finished(graph, config, linear(data, "unembed", True))
    return _finished(graph, config, linear(graph.op("Softmax", linear(data, "last", True), axis=-1), "answers"))


def fused_onnx(transformer: Transformer, config: Mapping[str, Any]) -> Any:
    """The model of run/torch_fused.py as an ONNX model."""
    graph = OnnxBuilder(config["dtype"])
    x, count = _laid_out(graph, config)
    stream = {}
    for name, value in first_rows(transformer).items():
        rows = graph.number(f"first.{name}", value[None])
        stream[name] = graph.rows(rows, count, axis=1) if len(value) > 1 else rows
    tokens = graph.op("Shape", x, start=1, end=2)
    _write(graph, "embedding", transformer.embedding, x, transformer.inputs, stream)
    for number, layer in enumerate(transformer.layers):
        found = []
        for place, bank in enumerate(layer.banks):
            stem = f"layers.{number}.{bank.kind}.{place}"
            reads = _read(graph, stem, bank.read, stream, bank.readers)
            found.append((stem, bank, _outputs(graph, stem, transformer, bank, reads, tokens, config["causal"])))
        for stem, bank, outputs in found:
            _write(graph, stem, bank.write, outputs, bank.outputs, stream)
    read = _read(graph, "readout", transformer.readout, stream, transformer.outputs)
    result = graph.op("Add", read, graph.number("readout_bias", transformer.readout_bias))
    # What no token tells apart is told to each.
    shape = graph.op("Concat", graph.op("Shape", x, end=2), graph.whole(transformer.outputs), axis=0)
    return _finished(graph, config, graph.op("Expand", result, shape))


def _outputs(
    graph: OnnxBuilder, stem: str, transformer: Transformer, bank: Bank, reads: str, tokens: str, causal: bool
) -> str:
    """What the heads of a bank return: (batch, token, outputs)."""
    held = bank.constants(transformer)
    own = {
        name: graph.places(f"{stem}.{name}", value) if name == TARGETS else graph.number(f"{stem}.{name}", value)
        for name, value in held.items()
        if name != "scale"
    }

    def every(first: int, step: int) -> str:
        """Every step-th read, with an axis more: (batch, token, head, 1)."""
        if step == 1:
            return graph.op("Unsqueeze", reads, graph.whole(3))
        whole = [graph.whole(each) for each in (first, bank.readers, 2, step)]
        return graph.op("Unsqueeze", graph.op("Slice", reads, *whole), graph.whole(3))

    match bank.kind:
        case "swiglu":
            parts = [graph.op("Squeeze", every(place, 2), graph.whole(3)) for place in range(2)]
            first, second = (_silu(graph, each) for each in (parts[0], graph.op("Neg", parts[0])))
            return graph.op("Sub", graph.op("Mul", first, parts[1]), graph.op("Mul", second, parts[1]))
        case "sink" | "silu":
            power = graph.op("Exp", graph.op("Neg", graph.scaled(reads, f"{stem}.scale", held["scale"])))
            return graph.op("Div", reads, graph.op("Add", power, graph.number("unit", 1.0)))
        case "table" if isinstance(bank, TableBank):
            scores = own["offset"]
            for place in range(bank.arguments):
                slope = graph.op("Gather", own["slope"], graph.whole(place))
                scores = graph.op("Add", graph.op("Mul", every(place, bank.arguments), slope), scores)
            weights = graph.op("Transpose", graph.op("Softmax", scores, axis=-1), perm=[2, 0, 1, 3])
            side = graph.op("Reshape", weights, graph.whole(bank.heads, -1, bank.values.shape[1]))
            found = graph.op("Transpose", graph.op("MatMul", side, own["values"]), perm=[1, 0, 2])
            shape = graph.op("Concat", graph.op("Shape", reads, end=2), graph.whole(bank.outputs), axis=0)
            return graph.op("Reshape", found, shape)
        case "gate":
            scores = graph.op("Add", graph.op("Mul", every(0, 2), own["slope"]), own["offset"])
            weights = graph.op("Softmax", scores, axis=-1)
            first = graph.op("Slice", weights, graph.whole(0), graph.whole(1), graph.whole(3))
            return graph.op("Squeeze", graph.op("Mul", first, every(1, 2)), graph.whole(3))
        case "mean":
            if causal:
                total = graph.op("CumSum", reads, graph.whole(1))
                return graph.op("Mul", total, graph.rows(own["share"], tokens))
            return graph.op("Expand", graph.op("ReduceMean", reads, axes=[1]), graph.op("Shape", reads))
        case "boltzmann":
            scores = graph.scaled(reads, f"{stem}.scale", held["scale"])
            if not causal:
                weighed = graph.op("Mul", graph.op("Softmax", scores, axis=1), reads)
                return graph.op("Expand", graph.op("ReduceSum", weighed, graph.whole(1)), graph.op("Shape", reads))
            turned, values = (graph.op("Transpose", each, perm=[0, 2, 1]) for each in (scores, reads))
            keys = graph.masked(graph.op("Unsqueeze", turned, graph.whole(2)), tokens)
            column = graph.op("Unsqueeze", values, graph.whole(3))
            means = graph.op("MatMul", graph.op("Softmax", keys, axis=-1), column)
            return graph.op("Transpose", graph.op("Squeeze", means, graph.whole(3)), perm=[0, 2, 1])
        case "move":
            moved = graph.op("Gather", reads, graph.rows(own[TARGETS], tokens), axis=1)
            return graph.op("Mul", moved, graph.rows(own["there"], tokens))
        case "attend" if isinstance(bank, AttendBank):
            query, key, value = (
                graph.op("Slice", reads, graph.whole(part.start), graph.whole(part.stop), graph.whole(2))
                for part in bank.parts
            )
            scores = graph.op("MatMul", query, graph.op("Transpose", key, perm=[0, 2, 1]))
            scores = graph.masked(scores, tokens) if causal else scores
            return graph.op("MatMul", graph.op("Softmax", scores, axis=-1), value)
    raise NotImplementedError(f"a bank of {bank.kind} heads has no closed form here")


def _silu(graph: OnnxBuilder, values: str) -> str:
    power = graph.op("Exp", graph.op("Neg", values))
    return graph.op("Div", values, graph.op("Add", power, graph.number("unit", 1.0)))


def _read(graph: OnnxBuilder, stem: str, links: tuple[Link, ...], stream: Mapping[str, str], size: int) -> str:
    """The linear forms that are read, side by side."""
    total = ""
    for place, link in enumerate(links):
        if link.register not in stream:
            continue
        part = _times(graph, f"{stem}.read.{place}", link, stream[link.register])
        after = size - link.first - link.rows
        if link.first or after:
            part = graph.op("Pad", part, graph.whole(0, 0, link.first, 0, 0, after))
        total = graph.op("Add", total, part) if total else part
    return total


def _write(
    graph: OnnxBuilder, stem: str, links: tuple[Link, ...], values: str, size: int, stream: dict[str, str]
) -> None:
    """Add what is made of `values` to the stream."""
    for place, link in enumerate(links):
        given = values
        if link.first or link.columns != size:
            whole = [graph.whole(each) for each in (link.first, link.first + link.columns, 2)]
            given = graph.op("Slice", values, *whole)
        part, held = _times(graph, f"{stem}.write.{place}", link, given), stream.get(link.register)
        stream[link.register] = part if held is None else graph.op("Add", held, part)


def _times(graph: OnnxBuilder, name: str, link: Link, values: str) -> str:
    """A link's weights times values (..., from)."""
    if link.weights.ndim == 1:
        return graph.scaled(values, name, link.weights)
    if isinstance(link.weights, Sparse):
        return sparse_times(graph, name, link.weights, values)
    return graph.op("MatMul", values, graph.number(name, link.weights.T))


def _laid_out(graph: OnnxBuilder, config: Mapping[str, Any]) -> tuple[str, str | None]:
    """The inputs as (batch, token, inputs), and how many tokens there are, if that may differ."""
    match config["takes"]:
        case "points":
            return graph.op("Unsqueeze", "x", graph.whole(1)), None
        case "blocks":
            places = graph.number("places", np.eye(config["tokens"])[:, :, None])
            blocks = graph.op("Mul", graph.op("Unsqueeze", "x", graph.whole(1, 2)), places)
            return graph.op(
                "Reshape", blocks, graph.whole(0, config["tokens"], config["tokens"] * config["inputs"])
            ), None
        case _:
            return "x", graph.op("Shape", "x", start=1, end=2)


def _finished(graph: OnnxBuilder, config: Mapping[str, Any], result: str) -> Any:
    """The model whose output is `result` (batch, token, outputs), at the first token unless it takes sequences."""
    inputs, outputs = config["inputs"], config["outputs"]
    text = json.dumps(dict(config), separators=(",", ":"))
    if config["takes"] == "sequences":
        graph.op("Identity", result, name="y")
        return graph.model(["batch", "tokens", inputs], ["batch", "tokens", outputs], text)
    graph.op("Gather", result, graph.places("first", 0), name="y", axis=1)
    return graph.model(["batch", inputs], ["batch", outputs], text)
