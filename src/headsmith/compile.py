"""The compiler, on one page: target -> source graph -> transformer -> certificate -> bill.

    graph, box   = what is wanted, exactly                          source/
    found        = where every node can lie on the domain           source/ranges.py
    met          = table heads (lower/native.py) or ReLU circuits (lower/plan.py, circuits/) for all non-linear nodes,
                   the cheapest recipe that is certified            lower/recipes.py
    transformer  = registers and heads, then scales                 lower/lower.py, lower/budget.py
    proof        = why it is right, step by step                    lower/prove.py
    certificate  = what the kernel finds the proof to prove         kernel/  (knows nothing of all the others)
    bill         = what it costs                                    transformer/bill.py

`lower/meet.py` repeats the middle lines until the certificate is within the asked error.
"""

from __future__ import annotations

import math
import numbers
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property, partial
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import numpy as np

from headsmith.circuits.assemble import Choice
from headsmith.circuits.pieces import Arrangement, Pieces, in_blocks
from headsmith.core.arrays import Array, reals
from headsmith.core.certificate import Certificate
from headsmith.core.errors import CertificateError, DomainError, TargetError, UnreachableError
from headsmith.core.intervals import Box, Interval, as_box
from headsmith.core.rounding import PRECISIONS, Dtype
from headsmith.export.file import Contents, Form, write_file
from headsmith.export.formats import To
from headsmith.export.onnx_model import fused_onnx, textbook_onnx
from headsmith.export.plain import Plain, Takes, called, plain
from headsmith.export.stored import Proof
from headsmith.inside import notebook
from headsmith.inside.anatomy import Anatomy, Directions, LayerView
from headsmith.inside.circuit import circuit
from headsmith.inside.edits import Edited, Patched, Runner, ablated, patched
from headsmith.inside.explain import HEADS, explain
from headsmith.inside.meanings import Meanings
from headsmith.inside.shares import Share, head_shares
from headsmith.intermediates import head_names, run_with_cache
from headsmith.kernel.functions import FUNCTIONS as KNOWN
from headsmith.lower.meet import Met, Request
from headsmith.lower.prove import checked_again
from headsmith.lower.recipes import as_cost, meet
from headsmith.progress import Report, Shown, shown
from headsmith.run.numpy_runner import refuse_length, run
from headsmith.source.describe import describe
from headsmith.source.fixed import without_fixed
from headsmith.source.foreign import advice
from headsmith.source.formula import formula_graph
from headsmith.source.fuse import Fusion, fuse
from headsmith.source.graph import Approximated, Function, Graph, arguments
from headsmith.source.imported import Imported
from headsmith.source.layers import in_layers
from headsmith.source.maxout import MaxoutNetwork
from headsmith.source.network import Network
from headsmith.source.ranges import ranges
from headsmith.source.trace import graph_of
from headsmith.source.views import masks
from headsmith.transformer.bill import Bill, bill
from headsmith.transformer.dense import DenseTransformer, dense
from headsmith.transformer.ir import Transformer

Target = Network | MaxoutNetwork | Imported | Graph | str | Sequence[str] | Callable[..., Any]
RECIPES = ("auto", "native", "relu", "ramp", "maxout")

LARGEST = 1e100
"""Beyond this the weights of tables and gates would leave the range of doubles."""
MOST_TOKENS = 1 << 20
"""Data tokens in one sequence."""


def compile(
    target: Target,
    domain: Any = None,
    error: float = 1e-6,
    *,
    recipe: str = "auto",
    tokens: int = 1,
    dtype: Dtype = "float64",
    max_layers: int | None = None,
    cost: Mapping[str, float] | None = None,
    progress: Shown = None,
) -> Compiled:
    """Compile `target` into a softmax transformer that is provably within `error` of it everywhere on `domain`.

    `target` is a formula ("x*y + sin(z)"), a list of formulas (several outputs), a Python function of traced
    values, or a Network. `recipe` "relu" takes the published route, "native" table heads, "ramp" and "maxout" their
    own kinds of heads, "auto" the cheapest of all;
    `cost` weighs layers, heads, reference_tokens, max_weight (default: in that order). `max_layers` limits the depth.
    `domain` is (low, high) for every input, a sequence of such pairs, or {"name": (low, high), ...}. `tokens` is how
    many data tokens one sequence may hold. `progress` is True for a bar on standard error, False for none, None (the
    default) for a bar where standard error is a terminal, or a function that is called with what is being done (a
    text) and how much of that is done (from 0 to 1).

    Raises UnreachableError where the error cannot be met: its `smallest` is an error that compiles when asked for, and
    `part` the part of the certificate that blocks.
    """
    if recipe not in RECIPES:
        raise TargetError(f"unknown recipe {recipe!r}; choose one of {', '.join(RECIPES)}")
    order = as_cost(cost)
    with shown(progress) as report, np.errstate(over="ignore", invalid="ignore"):
        request = as_request(target, domain, error, tokens, dtype, max_layers, report)
        met = meet(request, recipe, order)
    return compiled_of(request, met)


def compiled_of(request: Request, met: Met) -> Compiled:
    """The certified model with its target and its bill."""
    billed = bill(met.transformer, met.certificate.max_score)
    parts = (request.graph, met.choices, request.box, met.transformer, met.certificate, billed, met.fusion)
    return Compiled(*parts, met.proof)


def as_request(
    target: Target,
    domain: Any,
    error: float,
    tokens: int,
    dtype: Dtype,
    max_layers: int | None = None,
    progress: Report | None = None,
) -> Request:
    """What is wanted, checked: the target as a graph, and where all of its nodes can lie."""
    _check_options(error, tokens, dtype, max_layers)
    if progress is not None:
        progress("reading the target and finding the ranges of its values", 0.0)
    graph = as_graph(target, domain)
    if not graph.input.size:
        raise TargetError("the target has no inputs: a constant needs no transformer; name a variable in its domain")
    box = as_box(domain, graph.input.names)
    _refuse_programs(graph)
    # Numbers beyond the format become infinite bounds, which the kernel refuses by name.
    with np.errstate(over="ignore", invalid="ignore"):
        found = ranges(graph, box)
        _refuse_overflow(graph, found)
        graph = in_layers(without_fixed(graph, found))
        found = ranges(graph, box)
    return Request(graph, box, found, float(error), int(tokens), dtype, max_layers, progress=progress)


@dataclass(frozen=True, eq=False)
class Compiled:
    """A transformer with its target, its certificate and its bill. Call it with an array (..., inputs), or by names."""

    graph: Graph
    choices: Mapping[int, Choice]
    box: Box
    transformer: Transformer
    certificate: Certificate
    bill: Bill
    fusion: Arrangement = None
    proof: Proof | None = None

    def __repr__(self) -> str:
        return notebook.short(type(self).__name__, self)

    def _repr_html_(self) -> str:
        return notebook.html(type(self).__name__, self)

    def explain(self, heads: int = HEADS) -> str:
        """The model in words: its tokens, what it holds at first, layer by layer and head by head, what it returns. Of
        each bank of heads at most `heads` are told one by one."""
        return explain(self, heads)

    @property
    def fused(self) -> Graph:
        """The target as the heads see it: what `choices` is about."""
        return fuse(self.graph, self.fusion) if isinstance(self.fusion, Fusion) else self.graph

    def __call__(
        self,
        *arrays: Any,
        outside: Literal["refuse", "allow"] = "refuse",
        causal: bool = False,
        hardmax: bool = False,
        fused: bool = False,
        **named: Any,
    ) -> Array:
        """Run the model.

        One data token: an array (..., inputs) gives (..., outputs). `tokens=n` at compile time: (..., m, inputs) with m
        <= n gives (..., m, outputs), each of the m rows a token of the same sequence. By name, inputs broadcast and
        single outputs lose their axis. `hardmax` runs the limit of large scales: gates, maxima and moves are then exact
        (up to rounding), and nothing is promised of tables. `fused` evaluates closed forms of the heads in place of
        scores and weights: quicker, and under the same certificate (run/fused.py).
        """
        return self._call(partial(run, hardmax=hardmax, fused=fused), arrays, named, outside, causal)

    def _call(
        self, runner: Runner, arrays: tuple[Any, ...], named: dict[str, Any], outside: str, causal: bool
    ) -> Array:
        """What a runner makes of the inputs, which are checked and laid out as sequences."""
        check_outside(outside)
        inputs = self._inputs(arrays, named)
        self._refuse_mask(causal)
        if outside != "allow":
            self.box.refuse_outside(inputs)
        if isinstance(self.fusion, Pieces):
            laid = in_blocks(inputs.reshape(-1, inputs.shape[-1]), self.transformer.tokens)
            shape = (*inputs.shape[:-1], self.transformer.outputs)
            result = runner(self.transformer, laid)[:, 0].reshape(shape)
            return np.asarray(result[..., 0] if named and self.transformer.outputs == 1 else result)
        tokens = self.transformer.tokens
        if tokens > 1 and (inputs.ndim < 2 or not 1 <= inputs.shape[-2] <= tokens):
            raise DomainError(
                f"this model takes sequences (..., m, inputs) with 1 <= m <= {tokens}; got shape {inputs.shape}"
            )
        length = 1 if tokens == 1 else inputs.shape[-2]
        shape = inputs.shape if tokens == 1 else inputs.shape[:-2]
        sequences = inputs.reshape(-1, length, inputs.shape[-1])
        result = runner(self.transformer, sequences, causal=causal)
        lead = shape[:-1] if tokens == 1 else (*shape, length)
        result = result.reshape(*lead, self.transformer.outputs)
        return np.asarray(result[..., 0] if named and self.transformer.outputs == 1 else result)

    def run(self, array: Any, *, cache: bool = False, causal: bool = False) -> Any:
        """Run the model on an array. With `cache`, on one sequence (or one point), and return also every intermediate
        by its name: of each head "layer 1 / sink head 0: relu(x - y) / pattern", or for short "layer 1 / sink head 0 /
        pattern", and in the same way its queries, keys, scores, values and output; and the registers after each layer
        (see intermediates.py)."""
        if not cache:
            return self(array, causal=causal)
        inputs = self._inputs((array,), {})
        self._refuse_mask(causal)
        self.box.refuse_outside(inputs)
        blocks = isinstance(self.fusion, Pieces)
        point = inputs.ndim == 1 and (blocks or self.transformer.tokens == 1)
        if blocks and not point:
            raise DomainError(f"intermediates are those of one point ({self.box.size},); got shape {inputs.shape}")
        table = in_blocks(inputs[None], self.transformer.tokens)[0] if blocks else inputs[None] if point else inputs
        outputs, found = run_with_cache(self.transformer, table, causal=causal, meanings=Meanings(self))
        return (outputs[0] if point else outputs), found

    def _refuse_mask(self, causal: bool) -> None:
        """Means, maxima and attention over tokens are those of one mask."""
        if not masks(self.graph) <= {causal}:
            wanted = "without a causal mask" if causal else "causal=True"
            raise DomainError(f"this model was compiled for another mask: run it {wanted}")

    def _inputs(self, arrays: tuple[Any, ...], named: dict[str, Any]) -> Array:
        names = ", ".join(self.box.names[:8]) + (", ..." if self.box.size > 8 else "")
        if len(arrays) == 1 and not named:
            if isinstance(arrays[0], Mapping):
                raise DomainError(f"inputs by name are given as model(**inputs), for {names}")
            inputs = real_inputs(arrays[0])
            if inputs.ndim == 0 or inputs.shape[-1] != self.box.size:
                name = self.box.names[0]
                hint = f": write model({name}=...), or model(array[..., None])" if self.box.size == 1 else ""
                raise DomainError(f"expected an array (..., {self.box.size}); got shape {inputs.shape}{hint}")
            return inputs
        missing, unknown = [name for name in self.box.names if name not in named], [*named.keys() - set(self.box.names)]
        if arrays or missing or unknown:
            problem = f"there is no input {unknown[0]}; " if unknown else ""
            problem += f"nothing is given for {missing[0]}; " if named and missing and not arrays else ""
            raise DomainError(f"{problem}give one array (..., {self.box.size}), or each of {names} by name")
        each = [real_inputs(named[name], f"input {name}") for name in self.box.names]
        try:
            return np.stack(np.broadcast_arrays(*each), axis=-1)
        except ValueError:
            shapes = ", ".join(f"{name} {value.shape}" for name, value in zip(self.box.names, each, strict=True))
            raise DomainError(f"the inputs' shapes do not fit together: {shapes}") from None

    def save(self, path: str | os.PathLike[str], *, proof: bool = True) -> None:
        """Write everything to one safetensors file, completely or not at all. With `proof`, the file carries what
        `python -m headsmith.kernel` needs to check it alone."""
        parts = (self.graph, self.choices, self.box, self.transformer, self.certificate, self.fusion)
        write_file(path, Contents(*parts, self._form(), self.proof if proof else None))

    def verify(self) -> Certificate:
        """Re-derive the certificate from the weights. Raises CertificateError if less can be proven than is claimed."""
        return verify(self)

    def dense(self) -> DenseTransformer:
        """The model with every matrix written out, as a textbook transformer stores them: the reference tokens' rows,
        W_E, b_E and W_pos that make data tokens, W_Q, W_K, W_V and W_O of every head of every layer, W_U and b_U that
        read the output (see transformer/dense.py). For small models: a matrix is d_model wide."""
        return dense(self.transformer)

    def plain(self, *, causal: bool = False) -> Plain:
        """The model's weights as tensors by name, with a configuration, for other tools (export/plain.py). The mask is
        the one that the model is to run with."""
        return plain(self.dense(), self.called(causal=causal), self.head_names())

    def head_names(self) -> list[list[str]]:
        """What the heads of each layer are called, and what they compute: "sink head 0: relu(x - y)"."""
        texts = Meanings(self).heads
        layers = enumerate(self.transformer.layers)
        named = [head_names(layer, number + 1, texts[number]) for number, layer in layers]
        return [[name.partition(" / ")[2] for name in layer] for layer in named]

    def called(self, *, causal: bool = False) -> dict[str, Any]:
        """How the model is called, for other tools (export/plain.py)."""
        model, mask = self.transformer, "causal" if causal else "full"
        self._refuse_mask(causal)
        refuse_length(model, model.tokens, causal)
        if mask not in self.certificate.masks:
            proven = " and ".join(self.certificate.masks)
            raise DomainError(f"the certificate is about {proven} attention: nothing is proven under a {mask} mask")
        takes: Takes = "points" if model.tokens == 1 else "sequences"
        takes = "blocks" if isinstance(self.fusion, Pieces) else takes
        return called(model.inputs, model.outputs, model.tokens, takes, causal, model.dtype)

    def to_torch(self, *, fused: bool = False, causal: bool = False, dtype: Dtype | None = None) -> Any:
        """The model as a torch.nn.Module: linear maps and scaled_dot_product_attention, layer by layer, with a place
        for forward hooks at every head (run/torch_model.py); `fused`, through closed forms of the heads
        (run/torch_fused.py). It takes what the model takes, and does not refuse inputs outside the domain.

        The certificate covers both in the model's own dtype (docs/runtimes.md); another `dtype` rounds the weights, and
        nothing is proven of that.
        """
        from headsmith.run.torch_runtime import fused_module, textbook_module

        if fused:
            return fused_module(self.transformer, self.called(causal=causal), dtype)
        return textbook_module(self.plain(causal=causal), dtype)

    def to_onnx(self, *, fused: bool = False, causal: bool = False) -> Any:
        """The model as an onnx.ModelProto of opset 17 (export/onnx_model.py), which ONNX Runtime runs in the model's
        dtype; `fused`, through closed forms. Its input x is (batch, inputs), or (batch, m, inputs) for sequences."""
        if fused:
            return fused_onnx(self.transformer, self.called(causal=causal))
        return textbook_onnx(self.plain(causal=causal))

    def export(
        self, folder: str | os.PathLike[str], to: To, *, fused: bool = False, causal: bool | None = None
    ) -> Path:
        """Write the model into a new folder for another tool, with its proof: "torch", "onnx", "huggingface",
        "transformerlens" or "circuit" (see report/exporting.py)."""
        # It draws a picture as well, with what is built upon this module.
        written: Path = import_module("headsmith.report.exporting").export(self, folder, to, fused=fused, causal=causal)
        return written

    def ablate(self, *heads: str, mean_over: Any = None, causal: bool = False) -> Edited:
        """The model without some heads, by name: "layer 1 / head 0", or "layer 1 / sink head 0". They return zero, or
        with `mean_over` what they return on average over these inputs. What comes back is called like the model, and
        says what the certificate still proves (inside/edits.py)."""
        return ablated(self, heads, mean_over, causal)

    def patch(self, array: Any, source: Any, *places: str, causal: bool = False) -> Patched:
        """Run on `array`, but with activations of a run on `source`, of the same shape: outputs of heads ("layer 1 /
        head 0") or registers after a layer ("layer 1 / register z2", "embedding / register z1"). What comes back has
        the `outputs`, and says what the certificate still proves of them (inside/edits.py)."""
        return patched(self, array, source, places, causal)

    def through(self, runner: Runner, array: Any, outside: str = "refuse", causal: bool = False) -> Array:
        """What another runner, run(transformer, sequences, causal=...), makes of an array of inputs."""
        return self._call(runner, (array,), {}, outside, causal)

    @property
    def directions(self) -> Directions:
        """The columns of the residual stream by name."""
        return Directions(self.transformer)

    @cached_property
    def anatomy(self) -> Anatomy:
        """The model taken apart: layers, heads, matrices, shares of the error (inside/anatomy.py)."""
        return Anatomy(self, self._shares)

    @property
    def layers(self) -> tuple[LayerView, ...]:
        """The layers, whose heads print what they do: model.layers[0].heads[3]."""
        return self.anatomy.layers

    def _shares(self) -> list[list[Share]] | None:
        """How much of the error each head accounts for, by the kernel's own figures."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.safetensors")
            self.save(path)
            return head_shares(path)

    def circuit(self) -> dict[str, Any]:
        """What every head does, as data that JSON can hold: ground truth for interpretability (inside/circuit.py)."""
        return circuit(self)

    def _form(self) -> Form | None:
        """How a file says what kind of model this is."""
        return None


def parts_of(compiled: Compiled) -> dict[str, Any]:
    """The fields that every compiled model has, by name."""
    return {each.name: getattr(compiled, each.name) for each in fields(Compiled)}


def compiled_from(contents: Contents) -> Compiled:
    """What a file holds as a model. Its certificate is the stored one: `verify` re-derives it."""
    cost = bill(contents.transformer, contents.certificate.max_score)
    return Compiled(
        contents.graph,
        contents.choices,
        contents.box,
        contents.transformer,
        contents.certificate,
        cost,
        contents.fusion,
        contents.proof,
    )


def verify(compiled: Compiled) -> Certificate:
    """Re-derive the certificate from the stored weights. Raises CertificateError if less can be proven than is
    claimed."""
    if compiled.proof is None:
        raise CertificateError("the model carries no proof: it was saved without one")
    parts = (compiled.graph, compiled.box, compiled.transformer, compiled.proof)
    return checked_again(*parts, compiled.certificate.claim)


def as_graph(target: Target, domain: Any = None) -> Graph:
    """The target as a source graph. The names of a formula's variables are the domain's, where it has names."""
    names = list(domain) if isinstance(domain, Mapping) else None
    match target:
        case Network() | MaxoutNetwork() | Imported():
            return target.graph
        case Graph():
            return target
        case str():
            return formula_graph(target, names)
        case list() | tuple() if target and all(isinstance(each, str) for each in target):
            return formula_graph(list(target), names)
    told = advice(target)
    if told is not None:
        raise TargetError(told)
    if callable(target):
        return graph_of(target, names)
    raise TargetError(
        f"cannot compile a {type(target).__name__}; give a formula (or a list of them), a function, or a "
        "headsmith.Network"
    )


def _refuse_overflow(graph: Graph, found: Sequence[Interval]) -> None:
    for number, interval in enumerate(found):
        if not np.isfinite(interval.magnitude).all():
            raise UnreachableError(
                f"the values of {describe(graph, number)} may go beyond float64 on this domain: shrink it, or the "
                "weights",
                part="rounding",
                smallest=math.inf,
            )
        node = graph.nodes[number]
        sizes = [float(np.max(found[each].magnitude, initial=0.0)) for each in (number, *arguments(node))]
        if isinstance(node, Approximated) and max(sizes) > LARGEST:
            raise UnreachableError(
                f"{describe(graph, number)} meets numbers as large as {max(sizes):.3g} on this domain; heads multiply "
                f"and look up numbers up to {LARGEST:g}: scale the inputs, or shrink the domain",
                part="rounding",
                smallest=math.inf,
            )


def _refuse_programs(graph: Graph) -> None:
    """Raise TargetError for functions that the kernel does not know: nothing can be proved of them from a file."""
    for node in graph.nodes:
        if isinstance(node, Function) and node.name not in KNOWN and node.name != "power":
            raise TargetError(
                f"{node.name} is a function of your own that is given as a program on power series: a file cannot "
                f"hold it, so that nothing could be proved of it. Give it as a formula of known functions, "
                f"hs.function({node.name!r}, 'sin(x)*x'), which is put in where it is called; or sample it, "
                f"hs.approximate(function, domain, error, lipschitz=L)"
            )


def real_inputs(values: Any, what: str = "the input") -> Array:
    """Numbers to run on; DomainError where they are none, or not all of the same length."""
    try:
        return reals(values)
    except (TypeError, ValueError) as problem:
        raise DomainError(f"{what} is no array of real numbers: {problem}") from None


def check_outside(outside: str) -> None:
    """Raise TargetError unless this says what is done with inputs outside the domain."""
    if outside not in ("refuse", "allow"):
        raise TargetError(f'outside is {outside!r}; it must be "refuse" or "allow"')


def check_error(error: float) -> None:
    """Raise TargetError unless this is an error that one can ask for."""
    if not (isinstance(error, numbers.Real) and np.isfinite(float(error)) and error > 0.0):
        raise TargetError(f"error is {error!r}; it must be a positive finite number")


def check_counts(**numbers: Any) -> None:
    """Raise TargetError unless all of these are positive integers."""
    for name, number in numbers.items():
        if isinstance(number, bool) or not isinstance(number, int | np.integer) or number < 1:
            raise TargetError(f"{name} is {number!r}; it must be a positive integer")


def _check_options(error: float, tokens: int, dtype: str, max_layers: int | None) -> None:
    check_error(error)
    if not isinstance(tokens, numbers.Integral) or tokens < 1:
        raise TargetError(f"tokens is {tokens!r}; it must be a positive integer")
    if tokens > MOST_TOKENS:
        raise TargetError(f"tokens is {tokens}; a sequence has at most {MOST_TOKENS} data tokens")
    if max_layers is not None and (not isinstance(max_layers, int) or max_layers < 1):
        raise TargetError(f"max_layers is {max_layers!r}; it must be a positive integer, or None")
    if dtype not in PRECISIONS:
        raise TargetError(f"unknown dtype {dtype!r}; choose one of {', '.join(PRECISIONS)}")
