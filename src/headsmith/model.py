"""A compiled model: a transformer with its target, its certificate and its bill, and all that one can do with it: run,
save and verify it, look inside, hand it to other tools."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import numpy as np

from headsmith.core.arrays import Array, reals
from headsmith.core.certificate import Certificate
from headsmith.core.errors import CertificateError, DomainError, TargetError
from headsmith.core.intervals import Box
from headsmith.core.rounding import Dtype
from headsmith.core.second import second_opinion
from headsmith.export.file import Contents, Form, header_of, write_file
from headsmith.export.formats import To
from headsmith.export.onnx_builder import refuse_large
from headsmith.export.onnx_model import fused_onnx, textbook_onnx
from headsmith.export.plain import Plain, Takes, called, plain
from headsmith.export.stock import StockModel, as_stock
from headsmith.inside import notebook
from headsmith.inside.anatomy import Anatomy, Directions, LayerView
from headsmith.inside.causal import Causal, causal_of
from headsmith.inside.circuit import circuit
from headsmith.inside.disguise import Disguised, disguise
from headsmith.inside.edits import Edited, Patched, Runner, ablated, patched
from headsmith.inside.explain import HEADS, explain
from headsmith.inside.intermediates import head_names, run_with_cache
from headsmith.inside.meanings import Meanings
from headsmith.inside.places import places
from headsmith.inside.shares import Share, head_shares
from headsmith.kernel.core.check import checked
from headsmith.kernel.core.reading import VERSION
from headsmith.language.builder import masks
from headsmith.language.graph import Graph
from headsmith.language.labels import Circuit, Labels, circuit_of
from headsmith.language.stored import Proof
from headsmith.plan.circuits.pieces import in_blocks
from headsmith.prove.prove import refusals
from headsmith.run.numpy_runner import refuse_length, run
from headsmith.transformer.bill import Bill, bill
from headsmith.transformer.dense import DenseTransformer, dense
from headsmith.transformer.dimensions import Dimensions, dimensions
from headsmith.transformer.ir import Transformer


@dataclass(frozen=True, eq=False)
class Compiled:
    """A transformer with its target, its certificate and its bill. Call it with an array (..., inputs), or by names."""

    graph: Graph
    box: Box
    transformer: Transformer
    certificate: Certificate
    bill: Bill
    proof: Proof | None = None
    approximates: Graph | None = None
    labels: Labels = field(default_factory=Labels)

    def __repr__(self) -> str:
        return notebook.short(type(self).__name__, self)

    def _repr_html_(self) -> str:
        return notebook.html(type(self).__name__, self)

    def explain(self, heads: int = HEADS) -> str:
        """The model in words: its tokens, what it holds at first, layer by layer and head by head, what it returns. Of
        each bank of heads at most `heads` are told one by one."""
        return explain(self, heads)

    @property
    def wanted(self) -> Graph:
        """What the certificate is about: the graph that the heads compute, or what that approximates."""
        return self.graph if self.approximates is None else self.approximates

    @property
    def sympy(self) -> Any:
        """What the certificate is about as an expression of sympy (an extra), with numbers as exact rationals; a list
        of them, for several outputs."""
        expressions = import_module("headsmith.readers.sympy_expressions").as_sympy(self.wanted)
        return expressions[0] if len(expressions) == 1 else expressions

    @property
    def blocks(self) -> bool:
        """Whether the inputs are laid out over tokens, one for each affine piece."""
        return self.certificate.blocks > 0

    @cached_property
    def computed(self) -> Circuit:
        """What the heads compute: the circuit of the proof, without what says what it stands for."""
        if self.proof is None:
            raise CertificateError("the model carries no proof, which says what its heads compute")
        return circuit_of(self.proof, self.graph)

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
        scores and weights: quicker, and under the same certificate (run/closed_forms.py).
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
        if self.blocks:
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
        blocks = self.blocks
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
        write_file(path, self.contents(proof))

    def contents(self, proof: bool = True) -> Contents:
        """What a file holds."""
        parts = (self.graph, self.box, self.transformer, self.certificate, self._form())
        return Contents(*parts, self.proof if proof else None, self.approximates, self.labels)

    def verify(self) -> Certificate:
        """Re-derive the certificate from the weights. Raises CertificateError if less can be proven than is claimed."""
        return verify(self)

    def dense(self) -> DenseTransformer:
        """The model with every matrix written out, as a textbook transformer stores them: the reference tokens' rows,
        W_E, b_E and W_pos that make data tokens, W_Q, W_K, W_V and W_O of every head of every layer, W_U and b_U that
        read the output (see transformer/dense.py). For small models: a matrix is d_model wide."""
        return dense(self.transformer)

    @property
    def dimensions(self) -> Dimensions:
        """The shapes of all matrices, layer by layer, with the laws that they follow: a table that also writes itself
        as Markdown, LaTeX and csv (see transformer/dimensions.py)."""
        return dimensions(self.transformer)

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
        other: dict[str, Any] = {} if model.attention == "softmax" else {"attention": model.attention}
        if other and model.alone:
            # Tokens see themselves and the prefix alone: what is called with many points runs them one by one.
            other["alone"] = True
            return called(model.inputs, model.outputs, model.tokens, "points", False, model.dtype) | other
        self._refuse_mask(causal)
        refuse_length(model, model.tokens, causal)
        if mask not in self.certificate.masks:
            proven = " and ".join(self.certificate.masks)
            raise DomainError(f"the certificate is about {proven} attention: nothing is proven under a {mask} mask")
        takes: Takes = "points" if model.tokens == 1 else "sequences"
        takes = "blocks" if self.blocks else takes
        return called(model.inputs, model.outputs, model.tokens, takes, causal, model.dtype) | other

    def _refuse_closed_forms(self, fused: bool) -> None:
        if fused and self.transformer.attention != "softmax":
            raise TargetError(
                f"the model has {self.transformer.attention} attention, and closed forms for other tools are those of "
                "softmax heads: without fused, attention itself runs there"
            )

    def to_torch(self, *, fused: bool = False, causal: bool = False, dtype: Dtype | None = None) -> Any:
        """The model as a torch.nn.Module: linear maps and scaled_dot_product_attention, layer by layer, with a place
        for forward hooks at every head (run/torch_model.py); `fused`, through closed forms of the heads
        (run/torch_fused.py). It takes what the model takes, and does not refuse inputs outside the domain.

        The certificate covers both in the model's own dtype (docs/runtimes.md); another `dtype` rounds the weights, and
        nothing is proven of that.
        """
        from headsmith.run.torch_runtime import fused_module, textbook_module

        self._refuse_closed_forms(fused)
        if fused:
            return fused_module(self.transformer, self.called(causal=causal), dtype)
        return textbook_module(self.plain(causal=causal), dtype)

    def to_onnx(self, *, fused: bool = False, causal: bool = False) -> Any:
        """The model as an onnx.ModelProto of opset 17 (export/onnx_model.py), which ONNX Runtime runs in the model's
        dtype; `fused`, through closed forms. Its input x is (batch, inputs), or (batch, m, inputs) for sequences."""
        self._refuse_closed_forms(fused)
        if fused:
            return fused_onnx(self.transformer, self.called(causal=causal))
        refuse_large(self.bill.parameters * np.dtype(self.transformer.arithmetic).itemsize)
        return textbook_onnx(self.plain(causal=causal))

    def to_stock(self, architecture: str = "llama", vocabulary: int = 0, language_model: bool = False) -> StockModel:
        """The model as a stock one, "llama" or "gpt2": weights and a configuration that transformers loads without
        code of ours, under a certificate of its own, in a Llama the model's (export/stock.py). It must be compiled in
        float32. With a `vocabulary` of so many numbers, every variable has a token of its own, "x=0.25 y=-0.5" is a
        prompt, and the model is compiled anew for that (prompts.py). A `language_model` has the outputs as its first
        logits, and not as those of a classifier."""
        model = import_module("headsmith.sequence.prompts").prompted(self) if vocabulary else self
        return as_stock(model.contents(), architecture, vocabulary, language_model)

    def export(self, folder: str | os.PathLike[str], to: To, **options: Any) -> Path:
        """Write the model into a new folder for another tool, with its proof: "torch", "onnx", "huggingface",
        "transformerlens", "circuit", "rocq", "llama" or "gpt2"; options: fused, causal, vocabulary,
        language_model (report/exporting.py)."""
        # It draws a picture as well, with what is built upon this module.
        written: Path = import_module("headsmith.report.exporting").export(self, folder, to, **options)
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
    def places(self) -> list[str]:
        """All places that `ablate`, `patch` and `run(cache=True)` know, by name: "layer 1 / sink head 0", which is also
        "layer 1 / head 0" and "a0.h0", and "layer 1 / register z2" (inside/places.py)."""
        return places(self.transformer)

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

    def circuit(self, *, damages: bool = True, unique: bool = False, seed: int = 0) -> dict[str, Any]:
        """What every head does, as data that JSON can hold: ground truth for interpretability (inside/circuit.py).
        Edges are proven true or false, with witnesses unless `damages` are not wanted; with `unique`, it is also proven
        how many edges may be cut at once (inside/necessity.py)."""
        return circuit(self, damages=damages, unique=unique, seed=seed)

    def causal(self) -> Causal:
        """What the model computes as a causal model, in exact steps: its variables can be set (inside/causal.py)."""
        return causal_of(self)

    def disguise(
        self, level: int | None = None, *, seed: int = 0, amplitude: float | None = None, **wanted: Any
    ) -> Disguised:
        """Other matrices that compute the same, with a certificate of their own (inside/disguise.py): by a level of 0
        to 3, or by name: balance, compress, rotate, mix, permute, split, decoys=n, whispers=n."""
        return disguise(self, level, seed, amplitude, **wanted)

    def _form(self) -> Form:
        """How a file says what kind of model this is."""
        return Form()


def parts_of(compiled: Compiled) -> dict[str, Any]:
    """The fields that every compiled model has, by name."""
    return {each.name: getattr(compiled, each.name) for each in fields(Compiled)}


def compiled_from(contents: Contents) -> Compiled:
    """What a file holds as a model. Its certificate is the stored one: `verify` re-derives it."""
    cost = bill(contents.transformer, contents.certificate.max_score)
    parts = (contents.graph, contents.box, contents.transformer, contents.certificate, cost)
    return Compiled(*parts, contents.proof, contents.approximates, contents.labels)


def verify(compiled: Compiled) -> Certificate:
    """Re-derive the certificate from what a file of the model holds. Raises CertificateError if less can be proven than
    is claimed."""
    if compiled.proof is None:
        raise CertificateError("the model carries no proof: it was saved without one")
    tensors: dict[str, Any] = {}
    header = {"version": VERSION, **json.loads(json.dumps(header_of(compiled.contents(), tensors)))}
    with refusals():
        found = checked(header, tensors)
        certificate = Certificate.claimed(header["claim"], found.domain)
    return replace(certificate, second=second_opinion(header, tensors, found.parts["rounding"]))


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
