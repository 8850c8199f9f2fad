"""ONNX graphs, node by node: names for everything, constants in one dtype. onnx is an extra, imported here alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from headsmith.core.errors import HeadsmithError
from headsmith.core.extras import install
from headsmith.export.plain import refuse_halves

OPSET, IR = 17, 8
"""The operators' version, and the format's that goes with it."""

LARGEST = 2**31 - 2**20
"""Bytes in one file: protocol buffers hold no more, and nothing is stored beside them."""


def refuse_large(size: int) -> None:
    """Raise HeadsmithError if so many bytes of weights do not fit into a file."""
    if size > LARGEST:
        raise HeadsmithError(
            f"the weights take {size:,} bytes, and an ONNX file holds at most {LARGEST:,}: ask for fused=True, whose "
            "sparse layers stay sparse"
        )


def onnx_package() -> Any:
    """The package, or an error that says how to get it."""
    try:
        import onnx
        import onnx.helper
        import onnx.numpy_helper
    except ImportError:
        raise HeadsmithError(f"this needs onnx: {install('onnx')}") from None
    return onnx


class OnnxBuilder:
    """A graph that grows: `op` adds a node and returns the name of its result."""

    def __init__(self, dtype: str) -> None:
        refuse_halves(dtype, "ONNX")
        self.onnx, self.dtype = onnx_package(), np.dtype(dtype)
        self.nodes: list[Any] = []
        self.constants: dict[str, Any] = {}

    def op(self, kind: str, *inputs: str, name: str = "", **attributes: Any) -> str:
        """Add a node; its result has a name of its own."""
        result = name or f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(kind, list(inputs), [result], name=result, **attributes))
        return result

    def number(self, name: str, values: Any) -> str:
        """A constant of the model's dtype."""
        self.constants[name] = np.array(values, dtype=self.dtype, order="C")
        return name

    def whole(self, *numbers: int) -> str:
        """Whole numbers: a shape, axes or places."""
        name = "whole_" + "_".join(str(number).replace("-", "minus") for number in numbers)
        self.constants[name] = np.array(numbers, dtype=np.int64)
        return name

    def places(self, name: str, values: Any) -> str:
        """A constant of whole numbers with a name of its own."""
        self.constants[name] = np.array(values, dtype=np.int64)
        return name

    def rows(self, constant: str, count: str | None, axis: int = 0) -> str:
        """The first rows of a constant along an axis, as many as `count` says; all without it."""
        return constant if count is None else self.op("Slice", constant, self.whole(0), count, self.whole(axis))

    def scaled(self, values: str, name: str, factors: Any) -> str:
        """Values (..., n) times n constant factors. A single factor is a matrix of one number: ONNX Runtime folds a
        product with a single constant into the matrix product beside it, and rounds that constant to float32."""
        if len(factors) == 1:
            return self.op("MatMul", values, self.number(name, np.reshape(factors, (1, 1))))
        return self.op("Mul", values, self.number(name, factors))

    def ahead(self, count: str) -> str:
        """Which of `count` (one whole number) key tokens lie ahead of which query: (query token, key token)."""
        if not any("ahead" in node.output for node in self.nodes):
            places = self.counted(count)
            queries, keys = (self.op("Unsqueeze", places, self.whole(axis)) for axis in (1, 0))
            self.op("Less", queries, keys, name="ahead")
        return "ahead"

    def counted(self, count: str) -> str:
        """The numbers from 0 to `count` (one whole number) less one."""
        self.constants["zero"], self.constants["one"] = np.array(0, dtype=np.int64), np.array(1, dtype=np.int64)
        return self.op("Range", "zero", self.op("Squeeze", count), "one")

    def masked(self, scores: str, count: str) -> str:
        """Scores (..., query token, key token), minus infinity where the key lies ahead."""
        return self.op("Where", self.ahead(count), self.number("hidden", -np.inf), scores)

    def model(self, inputs: list[Any], outputs: list[Any], config: str) -> Any:
        """The whole as a model: `inputs` and `outputs` are shapes of x and y."""
        helper, kinds = self.onnx.helper, {"float32": 1, "float64": 11}
        refuse_large(sum(each.nbytes for each in self.constants.values()))
        kind = kinds[self.dtype.name]
        graph = helper.make_graph(
            self.nodes,
            "headsmith",
            [helper.make_tensor_value_info("x", kind, inputs)],
            [helper.make_tensor_value_info("y", kind, outputs)],
            [self.onnx.numpy_helper.from_array(each, name) for name, each in self.constants.items()],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR)
        model.producer_name = "headsmith"
        helper.set_model_props(model, {"headsmith": config})
        return model
