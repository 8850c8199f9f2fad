"""ONNX files as targets. A file is data: it is parsed, and nothing in it is executed. Paths to other files are refused
(but for the one beside it in which torch stores weights), as are shapes that nothing in the file accounts for."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from headsmith.core.arrays import Array
from headsmith.core.errors import TargetError
from headsmith.core.extras import install
from headsmith.language.builder import Builder
from headsmith.readers.imported import UNCOMPARED, Difference, Imported, input_names, measured
from headsmith.readers.onnx_call import OnnxCall
from headsmith.readers.onnx_operators import OPERATORS, Comparison
from headsmith.readers.operators import unsupported
from headsmith.readers.pooled import finished
from headsmith.readers.tensors import MOST_ALTOGETHER, Tensor, check_shape, flat, joined, moved, shape_of

LARGEST_FILE = 1 << 31
FLOATS = {1: "float32", 10: "float16", 11: "float64", 16: "bfloat16"}
EPSILON = {1: 2.0**-23, 10: 2.0**-10, 11: 2.0**-52, 16: 2.0**-7}


def from_onnx(
    path: str | os.PathLike[str], *, shape: Sequence[int] | None = None, outputs: Sequence[str] | None = None
) -> Imported:
    """The network in an ONNX file as a target that `hs.compile` takes.

    A batch axis of unknown size is read as one row; `shape` says what else is unknown in the shape of the input. Labels
    (whole numbers) are left out, or `outputs` names the outputs that are wanted. Weights are taken as the exact numbers
    that they are. Inputs and outputs of the model are flat, in the order of their numbers.
    """
    onnx = _onnx()
    name = os.path.basename(os.fspath(path))
    model = _parsed(onnx, os.fspath(path))
    try:
        reading = _Reading(onnx, model, name, shape)
        chosen, notes = reading.outputs(outputs)
        found = reading.read(chosen)
    except TargetError:
        raise
    except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, MemoryError) as problem:
        raise TargetError(f"{path}: the file is damaged ({type(problem).__name__}: {problem})") from None
    builder = reading.builder
    whole_output = found[0] if len(found) == 1 else joined(builder, [moved(each, np.ravel) for each in found], 0)
    graph = finished(builder.graph(flat(builder, whole_output)))
    output_shape = shape_of(whole_output)
    output_shape = output_shape[1:] if len(output_shape) > 1 and output_shape[0] == 1 else output_shape
    difference, more = _compared(onnx, model, reading, graph, chosen)
    return Imported(graph, f"{name}", reading.input_shape, output_shape, (*reading.notes, *notes, *more), difference)


def _onnx() -> Any:
    try:
        import onnx
    except ImportError:
        raise TargetError(f"reading ONNX files needs the package onnx: {install('onnx')}") from None
    return onnx


def _parsed(onnx: Any, path: str) -> Any:
    """The file as data, if it stands alone and its tensors are what they say."""
    if not os.path.isfile(path):
        raise TargetError(f"{path}: no such file")
    size = os.path.getsize(path)
    if size > LARGEST_FILE:
        raise TargetError(f"{path}: {size} bytes; files of up to {LARGEST_FILE} are read")
    try:
        model = onnx.load(path, load_external_data=False)
    except Exception as problem:
        raise TargetError(f"{path}: not an ONNX file ({type(problem).__name__})") from None
    if not model.graph.node and not model.graph.output:
        raise TargetError(f"{path}: not an ONNX file, or an empty one")
    for tensor in _tensors(model.graph):
        _check_tensor(onnx, tensor, path)
    if model.functions:
        raise TargetError(f"{path}: it defines functions of its own, which are not read; inline them before export")
    return model


def _tensors(graph: Any) -> list[Any]:
    """All tensors in a graph: weights, and attributes of its nodes."""
    found = list(graph.initializer)
    for node in graph.node:
        for attribute in node.attribute:
            found += [attribute.t] if attribute.HasField("t") else []
            found += list(attribute.tensors)
    return found


def _check_tensor(onnx: Any, tensor: Any, path: str) -> None:
    shape = check_shape(tensor.dims, f"{path}: the tensor {tensor.name!r}")
    if tensor.data_location == onnx.TensorProto.EXTERNAL or tensor.external_data:
        _take_in(onnx, tensor, path)
    stored = max(
        len(tensor.raw_data),
        *(len(getattr(tensor, field)) for field in ("float_data", "double_data", "int32_data", "int64_data")),
        *(len(getattr(tensor, field)) for field in ("uint64_data", "string_data")),
    )
    if math.prod(shape) and not stored:
        raise TargetError(f"{path}: the tensor {tensor.name!r} of shape {shape} holds no numbers")


def _take_in(onnx: Any, tensor: Any, path: str) -> None:
    """The numbers of a tensor that torch wrote into the file beside, NAME.onnx.data. No other file is opened, and this
    one only if it is no link and holds exactly what the tensor needs."""
    told = {each.key: each.value for each in tensor.external_data}
    location, beside = told.get("location", ""), f"{os.path.basename(path)}.data"
    place = os.path.join(os.path.dirname(path), beside)
    if location != beside or os.path.islink(place) or not os.path.isfile(place):
        raise TargetError(
            f"{path}: the tensor {tensor.name!r} is stored outside of the file, in {location!r}; no other file is "
            f"opened but {beside}, as torch names it, beside it. Save the model in one file: external_data=False"
        )
    try:
        first, length = int(told.get("offset", 0)), int(told.get("length", -1))
        wanted = math.prod(tensor.dims) * np.dtype(onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)).itemsize
    except (KeyError, ValueError, TypeError):
        first, length, wanted = -1, -1, 0
    if first < 0 or length != wanted or first + length > os.path.getsize(place):
        raise TargetError(f"{path}: {beside} does not hold the {wanted} bytes of the tensor {tensor.name!r}")
    with open(place, "rb") as file:
        file.seek(first)
        tensor.raw_data = file.read(length)
    tensor.ClearField("external_data")
    tensor.data_location = onnx.TensorProto.DEFAULT


class _Reading:
    """A graph while it is read: the value of every name that is known, and the node that makes each of the others."""

    def __init__(self, onnx: Any, model: Any, name: str, shape: Sequence[int] | None) -> None:
        self.onnx, self.model, self.name = onnx, model, name
        self.opsets = {each.domain or "ai.onnx": each.version for each in model.opset_import}
        self.notes: list[str] = []
        graph = model.graph
        self.values: dict[str, Any] = {"": None}
        for tensor in graph.initializer:
            if tensor.name in self.values:
                raise TargetError(f"{name}: there are two tensors {tensor.name!r}")
            self.values[tensor.name] = self._array(tensor)
        if graph.sparse_initializer:
            raise TargetError(f"{name}: sparse weights are not read")
        self.inputs = [each for each in graph.input if each.name not in self.values]
        if not self.inputs:
            raise TargetError(f"{name}: the network has no input")
        self.shapes = [self._shape(each, shape) for each in self.inputs]
        sizes = [math.prod(each) for each in self.shapes]
        self.builder = Builder(input_names(sum(sizes)))
        start = 0
        for value, wanted, size in zip(self.inputs, self.shapes, sizes, strict=True):
            self.values[value.name] = Tensor(self.builder.input, np.arange(start, start + size).reshape(wanted))
            start += size
        rows = [each[1:] if len(each) > 1 else each for each in self.shapes]
        self.input_shape = tuple(rows[0]) if len(rows) == 1 else (sum(sizes),)
        self.makers = self._makers()
        self.numbers = 0

    def _makers(self) -> dict[str, Any]:
        """The node that computes each name."""
        found: dict[str, Any] = {}
        for node in self.model.graph.node:
            for output in filter(None, node.output):
                if output in found or output in self.values:
                    raise TargetError(f"{self.name}: {output!r} is computed twice, or is a weight as well")
                found[output] = node
        return found

    def _array(self, tensor: Any) -> Any:
        try:
            array = self.onnx.numpy_helper.to_array(tensor)
        except Exception as problem:
            raise TargetError(f"{self.name}: the tensor {tensor.name!r} cannot be read ({problem})") from None
        # All formats of numbers are doubles; whole numbers and truth values stay what they are.
        return array if array.dtype.kind in "iubSUO" else np.asarray(array, dtype=np.float64)

    def _shape(self, value: Any, given: Sequence[int] | None) -> tuple[int, ...]:
        kind = value.type.tensor_type
        if kind.elem_type not in FLOATS:
            raise TargetError(
                f"{self.name}: the input {value.name!r} is no tensor of real numbers ({', '.join(FLOATS.values())})"
            )
        sizes = [each.dim_value if each.HasField("dim_value") else 0 for each in kind.shape.dim]
        if given is not None and len(self.inputs) == 1:
            wanted = [int(each) for each in given]
            sizes = wanted if len(wanted) == len(sizes) else [1, *wanted]
        if sizes and (sizes[0] <= 0 or (len(sizes) > 1 and sizes[0] > 1 and given is None)):
            sizes[0] = 1
        if not sizes or any(size <= 0 for size in sizes):
            raise TargetError(
                f"{self.name}: the input {value.name!r} has the shape {sizes} with unknown sizes (0): say "
                f"shape=(...), without the batch"
            )
        return check_shape(sizes, f"{self.name}: the input {value.name!r}")

    def outputs(self, wanted: Sequence[str] | None) -> tuple[list[str], list[str]]:
        """The names of the outputs to read, and what is said about the others."""
        names = [each.name for each in self.model.graph.output]
        if wanted is not None:
            missing = [each for each in wanted if each not in names]
            if missing or not wanted:
                raise TargetError(f"{self.name}: there is no output {missing}; the outputs are {', '.join(names)}")
            return list(wanted), []
        labels = [each.name for each in self.model.graph.output if self._is_label(each)]
        chosen = [name for name in names if name not in labels]
        if not chosen:
            raise TargetError(
                f"{self.name}: its outputs, {', '.join(names)}, are labels: they jump; export scores, too"
            )
        notes = [f"the output {name} holds labels, and is left out" for name in labels]
        if len(chosen) > 1:
            notes.append(f"the outputs {', '.join(chosen)} are one after another")
        return chosen, notes

    def _is_label(self, value: Any) -> bool:
        """Whether an output holds whole numbers or texts; those of a ZipMap hold what it reads."""
        kind = value.type
        return bool(kind.HasField("tensor_type") and kind.tensor_type.elem_type not in (0, *FLOATS))

    def read(self, names: Sequence[str]) -> list[Any]:
        """The values of these names: the nodes that they need, in the order of the file."""
        needed, stack = set(), [*names]
        while stack:
            name = stack.pop()
            if name in self.values or name in needed:
                continue
            if name not in self.makers:
                raise TargetError(f"{self.name}: nothing computes {name!r}")
            needed.add(name)
            stack += self.makers[name].input
        for node in self.model.graph.node:
            if not needed.isdisjoint(node.output):
                late = [each for each in node.input if each not in self.values]
                if late:
                    raise TargetError(f"{self.name}: {late[0]!r} is read before it is computed")
                self._run(node)
        return [self.values[name] for name in names]

    def _run(self, node: Any) -> None:
        where = f" (node {node.name or node.output[0]!r} of {self.name})"
        attributes = {each.name: self._attribute(each, where) for each in node.attribute}
        operands = [self.values[each] for each in node.input]
        domain = node.domain or "ai.onnx"
        if node.op_type == "Constant":
            found = self._constant(attributes)
        elif node.op_type not in OPERATORS or domain not in ("ai.onnx", "ai.onnx.ml"):
            raise unsupported(node.op_type, where, list(OPERATORS))
        else:
            if node.op_type == "Dropout":
                self._dropout(operands, where)
            call = OnnxCall(self.builder, attributes, self.opsets.get(domain, 1), len(node.output))
            if node.op_type == "Where" and isinstance(operands[0], Comparison):
                note = "softplus: above a threshold the network takes x itself, which differs by less than 1e-8"
                self.notes += [] if note in self.notes else [note]
            try:
                found = OPERATORS[node.op_type](call, *operands)
            except TargetError as problem:
                raise TargetError(f"{node.op_type}{where}: {problem}") from None
            except TypeError:
                shapes = ", ".join("none" if each is None else str(shape_of(each)) for each in operands)
                raise TargetError(f"{node.op_type}{where} does not take inputs of shapes [{shapes}]") from None
            except (ValueError, IndexError, KeyError, ArithmeticError) as problem:
                raise TargetError(f"{node.op_type}{where} is not read in this form: {problem}") from None
        results = found if isinstance(found, tuple) else (found,)
        self.numbers += sum(math.prod(shape_of(each)) for each in results if isinstance(each, Tensor | np.ndarray))
        if self.numbers > MOST_ALTOGETHER:
            raise TargetError(
                f"{node.op_type}{where}: up to here the nodes of the file hold {self.numbers} numbers, and at most "
                f"{MOST_ALTOGETHER} are taken: use a smaller network"
            )
        for output, result in zip(node.output, results, strict=False):
            if (
                isinstance(result, np.ndarray | np.generic)
                and result.dtype.kind == "f"
                and not np.isfinite(result).all()
            ):
                # An infinity may be an end of a range; it becomes a weight nowhere.
                result = np.asarray(result)
            self.values[output] = result

    def _dropout(self, operands: list[Any], where: str) -> None:
        if len(operands) > 2 and operands[2] is not None and bool(np.any(operands[2])):
            raise TargetError(f"Dropout{where} is in training mode: its result is random; export in inference mode")
        note = "Dropout: changes nothing in inference mode, and is left out"
        self.notes += [] if note in self.notes else [note]

    def _attribute(self, attribute: Any, where: str) -> Any:
        kinds = self.onnx.AttributeProto
        match attribute.type:
            case kinds.FLOAT:
                return float(attribute.f)
            case kinds.INT:
                return int(attribute.i)
            case kinds.STRING:
                return attribute.s.decode("utf-8", "replace")
            case kinds.TENSOR:
                return self._array(attribute.t)
            case kinds.FLOATS:
                return [float(each) for each in attribute.floats]
            case kinds.INTS:
                return [int(each) for each in attribute.ints]
            case kinds.STRINGS:
                return [each.decode("utf-8", "replace") for each in attribute.strings]
        return None

    def _constant(self, attributes: dict[str, Any]) -> Any:
        for name, kind in (("value_float", np.float64), ("value_floats", np.float64), ("value_int", np.int64)):
            if name in attributes:
                return np.asarray(attributes[name], dtype=kind)
        if "value_ints" in attributes:
            return np.asarray(attributes["value_ints"], dtype=np.int64)
        if attributes.get("value") is None:
            raise TargetError(f"{self.name}: a Constant without numbers is not read")
        return attributes["value"]


def _compared(
    onnx: Any, model: Any, reading: _Reading, graph: Any, chosen: list[str]
) -> tuple[Difference | None, list[str]]:
    """The file's own run, in ONNX Runtime or else in onnx's reference, beside the graph's."""
    sizes = [math.prod(shape) for shape in reading.shapes]
    kinds = [each.type.tensor_type.elem_type for each in reading.inputs]
    runner, call = _runner(onnx, model)
    if call is None:
        return None, [runner]

    def run(inputs: Array) -> Array:
        parts = np.split(inputs, np.cumsum(sizes)[:-1], axis=1)
        found = []
        for row in range(len(inputs)):
            feeds = {
                value.name: part[row].reshape(shape).astype(onnx.helper.tensor_dtype_to_np_dtype(kind))
                for value, part, shape, kind in zip(reading.inputs, parts, reading.shapes, kinds, strict=True)
            }
            found.append(np.concatenate([np.ravel(_numbers(each)) for each in call(chosen, feeds)]))
        return np.stack(found)

    try:
        run(np.zeros((1, sum(sizes))))
    except Exception as problem:
        return None, [f"{runner} does not run this file ({type(problem).__name__}): nothing is compared"]
    found = measured(graph, run, f"{runner} in {FLOATS[kinds[0]]}", np.zeros((1, sum(sizes))), EPSILON[kinds[0]])
    return found, [] if found is not None else [UNCOMPARED]


def _runner(onnx: Any, model: Any) -> tuple[str, Any]:
    """What runs the file, and how; only what has been read completely is run."""
    try:
        import onnxruntime
    except ImportError:
        pass
    else:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        try:
            session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
            return "ONNX Runtime", session.run
        except Exception as problem:
            return f"ONNX Runtime does not take this file ({type(problem).__name__}): nothing is compared", None
    from onnx.reference import ReferenceEvaluator

    return "onnx's reference", ReferenceEvaluator(model).run


def _numbers(result: Any) -> Any:
    """An output as an array: a ZipMap gives a list of dictionaries."""
    if isinstance(result, list):
        return np.array([list(each.values()) if isinstance(each, dict) else each for each in result])
    return np.asarray(result)
