"""Modules of torch as targets. `torch.export` says what a module computes, whatever its class; each of its operators
becomes nodes of a source graph. torch is imported only here, and only when a module is read."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from headsmith.core.arrays import Array
from headsmith.core.errors import TargetError
from headsmith.core.extras import install
from headsmith.core.foreign import family_of
from headsmith.language.builder import Builder
from headsmith.language.graph import Graph
from headsmith.readers.imported import UNCOMPARED, Imported, input_names, measured
from headsmith.readers.operators import unsupported
from headsmith.readers.pooled import finished
from headsmith.readers.tensors import Tensor, check_shape, flat, joined, linear, moved, shape_of
from headsmith.readers.torch_operators import KEPT, MOVES, OPERATORS, PROBED

KNOWN = (*OPERATORS, *MOVES, *PROBED)
EPSILON = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}


def from_torch(
    module: Any, example: Any = None, *, batch: bool | None = None, names: Sequence[str] | None = None
) -> Imported:
    """A module of torch as a target that `hs.compile` takes, read in inference mode.

    `example` is an input (a tensor or an array; a tuple of them for several inputs): its shape is what is read, and its
    numbers say where the module's own run is compared with exact arithmetic. Its first axis is the batch, of which the
    first row counts, unless it has only one axis or `batch` is False. Weights are taken as the exact numbers that they
    are. Inputs and outputs of the model are flat, in the order of their numbers.
    """
    return read_module(module, example, batch=batch, names=names)


def read_module(
    module: Any,
    example: Any = None,
    *,
    batch: bool | None = None,
    names: Sequence[str] | None = None,
    attention: bool = False,
) -> Imported:
    """What `from_torch` returns; with `attention`, softmax as means of the values that it weighs (hs.certify)."""
    torch = _torch()
    if not isinstance(module, torch.nn.Module):
        if isinstance(module, str) or hasattr(module, "__fspath__"):
            raise TargetError(
                f"{module}: from_torch takes a module, not a file: files of torch are pickles, which run code when "
                f"they are loaded. Load it yourself if you trust it, or use torch.onnx.export and hs.from_onnx"
            )
        raise TargetError(f"from_torch takes a torch.nn.Module, not a {type(module).__name__}")
    _check_norms(torch, module)
    given = _examples(torch, module, example)
    batched = [each.ndim > 1 for each in given] if batch is None else [bool(batch)] * len(given)
    rows = tuple(each[:1] if first else each for each, first in zip(given, batched, strict=True))
    with _inference(module) as was_training:
        program = _exported(torch, module, rows)
        shapes = [tuple(each.shape[1:] if first else each.shape) for each, first in zip(rows, batched, strict=True)]
        sizes = [int(np.prod(shape)) for shape in shapes]
        found = input_names(sum(sizes), names)
        graph, output_shape, several = _read(torch, program, rows, Builder(found, attention))
        difference = measured(
            graph,
            lambda inputs: _run(torch, module, inputs, rows, batched, sizes),
            f"torch in {_format(torch, module)}",
            np.concatenate([_rows(each, first) for each, first in zip(given, batched, strict=True)], axis=1),
            EPSILON[_format(torch, module)],
        )
    notes = _notes(module, was_training) + ([UNCOMPARED] if difference is None else [])
    if several:
        notes.append(f"{several} outputs are one after another")
    shape = shapes[0] if len(shapes) == 1 else (sum(sizes),)
    output_shape = output_shape[1:] if all(batched) and len(output_shape) > 1 else output_shape
    return Imported(graph, f"torch module {type(module).__name__}", shape, output_shape, tuple(notes), difference)


def attending(module: Any) -> Any:
    """The module, in which every MultiheadAttention of a Sequential, or the module itself, is self-attention of what it
    is given: as it stands it takes queries, keys and values apart."""
    torch = _torch()

    class SelfAttention(torch.nn.Module):  # type: ignore[misc, name-defined]
        """softmax(x W_Q (x W_K)^T) x W_V W_O, for tokens x, batch first."""

        def __init__(self, inner: Any) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, x: Any) -> Any:
            rows = x if self.inner.batch_first else x.transpose(0, 1)
            found = self.inner(rows, rows, rows, need_weights=False)[0]
            return found if self.inner.batch_first else found.transpose(0, 1)

    if isinstance(module, torch.nn.MultiheadAttention):
        return SelfAttention(module)
    if isinstance(module, torch.nn.Sequential):
        return torch.nn.Sequential(*(attending(each) for each in module))
    return module


TRUSTED = (
    "Sequential", "Linear", "MultiheadAttention", "TransformerEncoder", "TransformerEncoderLayer", "LayerNorm",
    "RMSNorm", "Dropout", "ReLU", "GELU", "SiLU", "Tanh", "Sigmoid", "Flatten", "Identity",
)  # fmt: skip
"""Modules of torch that a file may hold: nothing of it is run when these are loaded (torch.load with weights_only)."""


def load_module(path: Any) -> Any:
    """A module that torch.save wrote, if it is made of torch's own layers; or a program that torch.export.save wrote.
    A module of another class is loaded by whoever has its code, and given to `hs.certify`."""
    torch = _torch()
    if str(path).endswith(".pt2"):
        return torch.export.load(path).module()
    known = [getattr(torch.nn, name) for name in TRUSTED]
    known += [torch.nn.modules.linear.NonDynamicallyQuantizableLinear, torch.nn.ModuleList, torch.nn.Parameter]
    known += [torch.nn.functional.relu, torch.nn.functional.gelu, torch.nn.functional.silu, torch._C._nn.gelu, set]
    try:
        with torch.serialization.safe_globals(known):
            found = torch.load(path, weights_only=True)
    except Exception as problem:
        reason = str(problem).strip().splitlines()
        raise TargetError(
            f"{path}: no module of torch's own layers ({reason[0] if reason else type(problem).__name__}). Modules of "
            f"other classes would run code when they are loaded: give hs.certify the module, or use torch.export.save"
        ) from None
    if not isinstance(found, torch.nn.Module):
        raise TargetError(
            f"{path}: holds {type(found).__name__}, not a module; save the module, or use torch.export.save"
        )
    return found


def _torch() -> Any:
    try:
        import torch
    except ImportError:
        raise TargetError(f"reading modules of torch needs torch: {install('torch')}") from None
    return torch


def _examples(torch: Any, module: Any, example: Any) -> list[Any]:
    """The example inputs as tensors of the module's format; for a module that starts with a Linear, zeros will do."""
    kind = getattr(torch, _format(torch, module))
    if example is None:
        first = next((each for each in module.modules() if not list(each.children())), None)
        if not isinstance(first, torch.nn.Linear):
            raise TargetError(
                "what shape do the inputs have? Give an example: hs.from_torch(module, example), with a batch axis"
            )
        example = torch.zeros(1, first.in_features)
    several = list(example) if isinstance(example, tuple | list) and not _is_numbers(example) else [example]
    found = []
    for each in several:
        tensor = each if family_of(each) == "torch" else torch.as_tensor(np.asarray(each, dtype=np.float64))
        if not tensor.is_floating_point():
            tensor = tensor.to(torch.float64)
        if not tensor.numel():
            raise TargetError(f"an example of shape {tuple(tensor.shape)} holds no numbers")
        check_shape(tensor.shape, "an example")
        found.append(tensor.detach().to("cpu", kind))
    return found


def _is_numbers(example: Sequence[Any]) -> bool:
    """Whether this is one input written as a list."""
    return isinstance(example, list) and not any(hasattr(each, "shape") for each in example)


def _format(torch: Any, module: Any) -> str:
    kinds = {each.dtype for each in [*module.parameters(), *module.buffers()] if each.is_floating_point()}
    kind = next(iter(kinds)) if len(kinds) == 1 else torch.float32
    name = str(kind).removeprefix("torch.")
    if name not in EPSILON:
        raise TargetError(f"the module's numbers are {name}; {', '.join(EPSILON)} are read")
    return name


@contextmanager
def _inference(module: Any) -> Iterator[bool]:
    """The module in inference mode, and afterwards as it was."""
    modes = {each: each.training for each in module.modules()}
    module.eval()
    try:
        yield any(modes.values())
    finally:
        for each, mode in modes.items():
            each.training = mode


def _check_norms(torch: Any, module: Any) -> None:
    for path, each in module.named_modules():
        if isinstance(each, torch.nn.modules.batchnorm._BatchNorm) and each.running_mean is None:
            raise TargetError(
                f"the layer {path or 'itself'} ({type(each).__name__}) has no running statistics: it takes those "
                f"of the batch, so an output depends on the other rows; train it with track_running_stats=True"
            )


def _notes(module: Any, was_training: bool) -> list[str]:
    kinds = {type(each).__name__ for each in module.modules()}
    notes = []
    if was_training and any("BatchNorm" in kind or "Dropout" in kind for kind in kinds):
        notes.append("the module is in training mode; it is read as in inference mode, module.eval()")
    dropouts = sorted(kind for kind in kinds if "Dropout" in kind)
    if dropouts:
        notes.append(f"{' and '.join(dropouts)}: changes nothing in inference mode, and is left out")
    if any("BatchNorm" in kind for kind in kinds):
        notes.append("BatchNorm: an affine map of its running statistics, with 1/sqrt(variance) as the nearest double")
    return notes


@contextmanager
def _plain_attention(torch: Any) -> Iterator[None]:
    """Encoder layers as their parts, and not as one operator that does all of it."""
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)


def _exported(torch: Any, module: Any, rows: tuple[Any, ...]) -> Any:
    """What the module computes for inputs of these shapes, in core operators."""
    from torch.export.exported_program import default_decompositions

    with warnings.catch_warnings(), torch.no_grad(), _plain_attention(torch):
        warnings.simplefilter("ignore")
        try:
            program = torch.export.export(module, rows, strict=False)
            table = default_decompositions()
            for name in KEPT:
                packet = getattr(torch.ops.aten, name)
                for overload in packet.overloads():
                    table.pop(getattr(packet, overload), None)
            return program.run_decompositions(table)
        except Exception as problem:
            shapes = ", ".join(str(tuple(row.shape)) for row in rows)
            lines = [line for line in str(problem).strip().splitlines() if line.strip()]
            raise TargetError(
                f"torch.export cannot say what this {type(module).__name__} computes for inputs of shape {shapes}: "
                f"{type(problem).__name__}: {lines[0] if lines else ''}"
            ) from problem


def _read(torch: Any, program: Any, rows: tuple[Any, ...], builder: Builder) -> tuple[Graph, tuple[int, ...], int]:
    """The graph, the shape of its output, and how many outputs there are if there are several."""
    shapes = [tuple(row.shape) for row in rows]
    sizes = [int(np.prod(shape)) for shape in shapes]
    starts = np.cumsum([0, *sizes])
    inputs = iter(
        Tensor(builder.input, np.arange(start, start + size).reshape(shape))
        for start, size, shape in zip(starts, sizes, shapes, strict=False)
    )
    values: dict[Any, Any] = {}
    specs = {spec.arg.name: spec for spec in program.graph_signature.input_specs}
    for node in program.graph.nodes:
        if node.op == "placeholder":
            spec = specs[node.name]
            values[node] = next(inputs) if spec.kind.name == "USER_INPUT" else _constant(torch, program, spec.target)
        elif node.op == "get_attr":
            values[node] = _double(torch, getattr(program.graph_module, node.target))
        elif node.op == "call_function":
            values[node] = _called(torch, builder, node, values)
    output = next(node for node in program.graph.nodes if node.op == "output")
    kinds = [spec.kind.name for spec in program.graph_signature.output_specs]
    found = [
        _as_operand(values[each])
        for each, kind in zip(output.args[0], kinds, strict=True)
        if kind == "USER_OUTPUT" and each is not None
    ]
    if len(found) == 1:
        return finished(builder.graph(flat(builder, found[0]))), shape_of(found[0]), 0
    whole_output = joined(builder, [moved(each, np.ravel) for each in found], 0)
    return finished(builder.graph(flat(builder, whole_output))), shape_of(whole_output), len(found)


def _constant(torch: Any, program: Any, name: str) -> Any:
    found = program.state_dict[name] if name in program.state_dict else program.constants[name]
    return _double(torch, found)


def _double(torch: Any, tensor: Any) -> Any:
    """A constant of torch, its numbers as doubles: exact for all formats."""
    tensor = tensor.detach().cpu()
    return tensor.to(torch.float64) if tensor.is_floating_point() else tensor


def _as_operand(value: Any) -> Any:
    """Constants of torch as arrays; everything else as it is."""
    if isinstance(value, list | tuple):
        return type(value)(_as_operand(each) for each in value)
    return value.numpy() if family_of(value) == "torch" and hasattr(value, "numpy") else value


def _called(torch: Any, builder: Builder, node: Any, values: dict[Any, Any]) -> Any:
    given = torch.fx.node.map_arg((node.args, node.kwargs), lambda each: values[each])
    arguments, named = given
    name = getattr(node.target, "__name__", str(node.target)).split(".")[0]
    if node.target is operator.getitem:
        return arguments[0][arguments[1]]
    named = {
        key: torch.float64 if key == "dtype" and value is not None and value.is_floating_point else value
        for key, value in named.items()
    }
    if not _any_tensor(given):
        return node.target(*arguments, **named)
    try:
        if name in MOVES:
            return _moved(torch, node.target, arguments, named)
        if name in PROBED:
            return _probed(torch, builder, node.target, arguments, named)
        if name not in OPERATORS:
            raise unsupported(name, _where(node), KNOWN)
        return OPERATORS[name](builder, *_as_operand(tuple(arguments)), **_as_operand_names(named))
    except TargetError as problem:
        if name not in KNOWN:
            raise
        raise TargetError(f"{name}{_where(node)}: {problem}") from None
    except (TypeError, ValueError, IndexError, RuntimeError) as problem:
        raise TargetError(f"the operator {name}{_where(node)} is not read in this form: {problem}") from problem


def _as_operand_names(named: dict[str, Any]) -> dict[str, Any]:
    return {key: _as_operand(value) for key, value in named.items()}


def _any_tensor(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return any(map(_any_tensor, value))
    return any(map(_any_tensor, value.values())) if isinstance(value, dict) else isinstance(value, Tensor)


def _moved(torch: Any, target: Any, arguments: Any, named: dict[str, Any]) -> Any:
    """An operator that moves numbers, on the places themselves: place p is the number p + 1, and zero stays zero."""
    nodes = {each.node for each in arguments if isinstance(each, Tensor)}
    places = [torch.from_numpy(each.places + 1.0) if isinstance(each, Tensor) else each for each in arguments]
    named.pop("dtype", None)
    if target in (torch.ops.aten.view.default, torch.ops.aten._unsafe_view.default):
        target = torch.ops.aten.reshape.default  # places lie in memory in another order than torch's own numbers
    result = target(*places, **named)

    def back(found: Any) -> Any:
        if isinstance(found, list | tuple):
            return tuple(map(back, found))
        check_shape(found.shape)
        return Tensor(next(iter(nodes)), np.rint(found.numpy()).astype(np.int64) - 1)

    return back(result)


def _probed(torch: Any, builder: Builder, target: Any, arguments: Any, named: dict[str, Any]) -> Tensor:
    """A linear operator, which treats rows of a batch alike, by its images of all unit vectors."""
    x = arguments[0]
    check_shape((x.size, x.size), "a linear map")
    if x.shape[0] != 1:
        raise TargetError("its first axis is not that of a batch")
    images = target(torch.eye(x.size, dtype=torch.float64).reshape(x.size, *x.shape[1:]), *arguments[1:], **named)
    shape = (1, *images.shape[1:])
    matrix = images.reshape(x.size, -1).numpy().T
    rows, entries = np.nonzero(matrix)
    return linear(builder, x, rows, entries, matrix[rows, entries], 0.0, shape)


def _where(node: Any) -> str:
    """Where an operator stands: its layer, and the line of the program."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    path, kind = stack[-1][:2] if stack else ("", "")
    kind = kind if isinstance(kind, str) else kind.__name__
    place = f" in the layer {path} ({kind.split('.')[-1]})" if path else " in the module's own forward"
    lines = [line.strip() for line in (node.meta.get("stack_trace") or "").splitlines() if line.strip()]
    return place + (f", at `{lines[-1]}`" if lines and not path else "")


def _rows(example: Any, batched: bool) -> Array:
    array = example.double().numpy()
    return np.asarray(array.reshape(len(array), -1) if batched else array.reshape(1, -1))


def _run(torch: Any, module: Any, inputs: Array, rows: tuple[Any, ...], batched: list[bool], sizes: list[int]) -> Array:
    """The module's own results for inputs (n, inputs), a batch at once where it takes batches."""
    parts = np.split(inputs, np.cumsum(sizes)[:-1], axis=1)
    tensors = [
        torch.from_numpy(np.ascontiguousarray(part)).to(row.dtype).reshape(len(inputs), *row.shape[int(first) :])
        for part, row, first in zip(parts, rows, batched, strict=True)
    ]
    with torch.no_grad():
        if all(batched):
            return _flat_outputs(torch, module(*tensors), len(inputs))
        found = []
        for place in range(len(inputs)):
            one = [each[place : place + 1] if b else each[place] for each, b in zip(tensors, batched, strict=True)]
            found.append(_flat_outputs(torch, module(*one), 1))
        return np.concatenate(found)


def _flat_outputs(torch: Any, result: Any, rows: int) -> Array:
    """All outputs of a module, row by row."""
    arrays = [np.asarray(part.detach().double().numpy()) for part in torch.utils._pytree.tree_leaves(result)]
    if any(array.size % rows for array in arrays):
        raise TargetError(
            f"the module returns shape {arrays[0].shape} for {rows} rows: an output for each row is needed"
        )
    return np.concatenate([array.reshape(rows, -1) for array in arrays], axis=1)
