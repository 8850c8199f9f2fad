"""Sequence programs, compiled: a function of a table (tokens, features) becomes a certified transformer.

def centred(x):
    return x - x.mean(axis=0)

model = hs.compile_sequence(centred, tokens=16, features=3, domain=(-1, 1), error=1e-6)
model(table)                   # (m, 3) -> (m, 3) for any m from 1 to 16

A function that cannot be traced is sampled, if a Lipschitz bound is stated (sequence/universal.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, overload

import numpy as np

from headsmith.compile import compile
from headsmith.core.arrays import Array
from headsmith.core.errors import DomainError, HeadsmithError, TargetError
from headsmith.core.intervals import as_box
from headsmith.core.progress import Shown
from headsmith.core.rounding import Dtype
from headsmith.export.file import Form
from headsmith.export.plain import Plain, called, plain
from headsmith.inside.edits import Runner
from headsmith.language.builder import masks
from headsmith.language.columns import Columns
from headsmith.language.evaluation import evaluate
from headsmith.language.expression import Value, build, combine
from headsmith.language.graph import Attend, Graph, Move, Pool, Positional
from headsmith.language.network import Network
from headsmith.language.trace import Traced, outputs_of
from headsmith.model import Compiled, parts_of, real_inputs
from headsmith.plan.reading import check_counts
from headsmith.sequence.flattened import flattened_graph
from headsmith.sequence.recorder import SequenceRecorder
from headsmith.sequence.sampled import HINT, sampled
from headsmith.sequence.tokens import over_tokens
from headsmith.sequence.universal import MAX_NODES, Universal
from headsmith.sequence.universal_model import Architecture
from headsmith.transformer.heads.attentions import AttentionKind


@dataclass(frozen=True, eq=False, repr=False)
class CompiledSequence(Compiled):
    """A transformer for sequences, with its target, its certificate and its bill. Call it with an array
    (..., tokens, features)."""

    masked: bool = False
    """Whether it runs under a causal mask."""

    @property
    def tokens(self) -> int:
        """How many tokens a sequence may have."""
        return self.transformer.tokens

    @property
    def lengths(self) -> tuple[int, ...]:
        """The numbers of tokens that the program takes: those at which no token fetches from one that is not there."""
        return lengths(self.graph, self.tokens)

    def __call__(
        self,
        *arrays: Any,
        outside: Literal["refuse", "allow"] = "refuse",
        causal: bool | None = None,
        hardmax: bool = False,
        fused: bool = False,
        **named: Any,
    ) -> Array:
        """Run the model: (..., m, features) gives (..., m, outputs); for one feature, (m,) will do as well."""
        if named or len(arrays) != 1:
            what = f"the argument {next(iter(named))!r}" if named else f"{len(arrays)} arrays"
            raise DomainError(
                f"a sequence model takes one array (..., m, {self.box.size}), not {what}. There is no padding and no "
                f"mask: run sequences of different lengths one by one"
            )
        self._refuse_other_mask(causal)
        inputs = self.table(arrays[0])
        return super().__call__(inputs, outside=outside, causal=self.masked, hardmax=hardmax, fused=fused)

    def run(self, array: Any, *, cache: bool = False, causal: bool | None = None) -> Any:
        """Run the model. With `cache`, on one sequence (m, features), and return also every intermediate by its name:
        "layer 1 / move head 0 / pattern", "layer 2 / register z2" (see intermediates.py)."""
        if not cache:
            return self(array, causal=causal)
        return super().run(self.table(array), cache=True, causal=self.masked)

    def plain(self, *, causal: bool | None = None) -> Plain:
        """The model's weights as tensors by name, with a configuration, for other tools (export/plain.py)."""
        return plain(self.dense(), self.called(causal=causal), self.head_names())

    def called(self, *, causal: bool | None = None) -> dict[str, Any]:
        """How the model is called, for other tools (export/plain.py)."""
        self._refuse_other_mask(causal)
        super().called(causal=self.masked)
        model = self.transformer
        found = called(model.inputs, model.outputs, model.tokens, "sequences", self.masked, model.dtype, self.lengths)
        return found if model.attention == "softmax" else found | {"attention": model.attention}

    def to_torch(self, *, fused: bool = False, causal: bool | None = None, dtype: Dtype | None = None) -> Any:
        """The model as a torch.nn.Module, under the program's own mask (see Compiled.to_torch)."""
        self._refuse_other_mask(causal)
        return super().to_torch(fused=fused, causal=self.masked, dtype=dtype)

    def to_onnx(self, *, fused: bool = False, causal: bool | None = None) -> Any:
        """The model as an onnx.ModelProto, under the program's own mask (see Compiled.to_onnx)."""
        self._refuse_other_mask(causal)
        return super().to_onnx(fused=fused, causal=self.masked)

    def _refuse_other_mask(self, causal: bool | None) -> None:
        if causal not in (None, self.masked):
            raise DomainError(f"this program was compiled with causal={self.masked}: another mask computes another one")

    def through(self, runner: Runner, array: Any, outside: str = "refuse", causal: bool | None = None) -> Array:
        """What another runner, run(transformer, sequences, causal=...), makes of an array of inputs."""
        return self._call(runner, (self.table(array),), {}, outside, self.masked)

    def _form(self) -> Form:
        return Form("sequence", self.masked)

    def table(self, array: Any) -> Array:
        """The input as (..., m, features), refused where the program does not take it."""
        inputs = real_inputs(array)
        if inputs.ndim == 1 and self.box.size == 1:
            inputs = inputs[:, None]
        if inputs.ndim < 2 or inputs.shape[-1] != self.box.size:
            raise DomainError(f"expected an array (..., m, {self.box.size}) of m tokens; got shape {inputs.shape}")
        length, allowed = inputs.shape[-2], self.lengths
        if length not in allowed:
            raise DomainError(
                f"a sequence of {length} token{'' if length == 1 else 's'}; this program takes {_text(allowed)}"
            )
        return inputs

    def target(self, array: Any, dtype: Any = np.float64) -> Any:
        """What the program should return, in floating point of `dtype`: the target itself, not the model."""
        return evaluate(self.graph, self.table(array), dtype)


@overload
def compile_sequence(
    function: Callable[[Any], Any],
    *,
    tokens: int,
    features: int = 1,
    domain: Any = None,
    error: float = 1e-6,
    causal: bool = False,
    recipe: str = "auto",
    dtype: Dtype = "float64",
    max_layers: int | None = None,
    cost: Mapping[str, float] | None = None,
    attention: AttentionKind = "softmax",
    progress: Shown = None,
    lipschitz: None = None,
) -> CompiledSequence: ...


@overload
def compile_sequence(
    function: Callable[[Array], Any],
    *,
    tokens: int,
    features: int = 1,
    domain: Any = None,
    error: float = 1e-6,
    max_layers: int | None = None,
    lipschitz: float | Sequence[Sequence[float]] | Array,
    norm: float = 2,
    evaluation: float | None = None,
    outputs: int | None = None,
    architecture: Architecture = "two layers",
    max_nodes: int = MAX_NODES,
) -> Universal: ...


def compile_sequence(
    function: Callable[[Any], Any],
    *,
    tokens: int,
    features: int = 1,
    domain: Any = None,
    error: float = 1e-6,
    causal: bool = False,
    recipe: str = "auto",
    dtype: Dtype = "float64",
    max_layers: int | None = None,
    cost: Mapping[str, float] | None = None,
    attention: AttentionKind = "softmax",
    progress: Shown = None,
    lipschitz: float | Sequence[Sequence[float]] | Array | None = None,
    norm: float = 2,
    evaluation: float | None = None,
    outputs: int | None = None,
    architecture: Architecture = "two layers",
    max_nodes: int = MAX_NODES,
) -> CompiledSequence | Universal:
    """Compile `function`, which maps a table (m, features) to a table (m, outputs), for up to `tokens` tokens.

    `function` is traced: it gets a stand-in for the table, x, of which x[:, j] is a value that every token has. What it
    computes token by token is written as ever (x[:, 0] * x[:, 1], hs.exp, hs.maximum); what a token takes from others
    with `hs.tokens` (mean, max, sum, shift, sort, ...) or x.mean(axis=0). A value meets a table column by column. What
    it returns is one such value, a list of them (the columns of the output) or a table. With `causal`, tokens see the
    tokens so far alone. `domain` is (low, high) for every feature, or a pair for each. `attention` is the kind of all
    heads, as in `compile`: under "hardmax" and "sparsemax" tokens take means, maxima and moves from each other, under
    "sigmoid" and "relu" moves.

    Guarantee: |model - function| <= certificate.error at every token of every sequence of a length in `lengths` whose
    tokens lie in the domain.

    With `lipschitz` the function is sampled instead, and the model is a `Universal`: any callable of arrays of exactly
    (tokens, features) numbers with |f(X) - f(Y)| <= lipschitz |X - Y| for every output number, in the `norm` 1, 2 or
    infinity of all of them, or sum L_ij |X_ij - Y_ij| for an array of bounds. Its results may be off by `evaluation`;
    `outputs` is found by one call unless given; `architecture` and `max_nodes` are those of `universal`. That the
    callable is as stated is assumed, the rest is proven.

    Which: trace whatever can be traced. Errors of 1e-9 are then within reach, nothing is assumed, and shorter sequences
    run too. Sample what cannot be, for few numbers and moderate errors: it takes some (L width / error)^(tokens
    features) reference tokens, however smooth the target is.
    """
    if lipschitz is not None:
        _refuse_sizes(function, tokens, features)
        return sampled(
            function,
            int(tokens),
            int(features),
            domain,
            error,
            architecture=architecture,
            max_layers=max_layers,
            outputs=outputs,
            options={"causal": causal, "recipe": recipe, "dtype": dtype, "cost": cost, "attention": attention},
            lipschitz=lipschitz,
            norm=norm,
            evaluation=evaluation,
            max_nodes=max_nodes,
        )
    given = {"norm": norm != 2, "evaluation": evaluation is not None, "outputs": outputs is not None}
    given |= {"architecture": architecture != "two layers", "max_nodes": max_nodes != MAX_NODES}
    for name in (name for name, changed in given.items() if changed):
        raise TargetError(f"{name} is for a callable that is sampled: give its Lipschitz bound (lipschitz) as well")
    if isinstance(function, Network):
        _refuse_network(tokens, features, causal)
        graph = flattened_graph(function, int(tokens), int(features), domain)
    else:
        graph = sequence_graph(function, tokens, features, domain, causal)
    compiled = compile(
        graph,
        as_box(domain, graph.input.names),
        error,
        recipe=recipe,
        tokens=tokens,
        dtype=dtype,
        max_layers=max_layers,
        cost=cost,
        attention=attention,
        progress=progress,
    )
    return sequence_of(compiled, bool(causal))


def sequence_of(compiled: Compiled, causal: bool | None = None) -> CompiledSequence:
    """A compiled model as a sequence model. Without `causal`, the mask is the one that its target needs."""
    mask = True in masks(compiled.graph) if causal is None else causal
    return CompiledSequence(**parts_of(compiled), masked=mask)


def mixes(graph: Graph) -> bool:
    """Whether tokens take anything from each other, or depend on their place."""
    return any(isinstance(node, Pool | Move | Attend | Positional) for node in graph.nodes)


def sequence_graph(function: Callable[[Any], Any], tokens: int, features: int, domain: Any, causal: bool) -> Graph:
    """The source graph of a sequence program."""
    _refuse_sizes(function, tokens, features)
    names = tuple(f"x[:, {index}]" for index in range(int(features)))
    recorder = SequenceRecorder(int(tokens), bool(causal), as_box(domain, names))
    columns = Columns([Traced(recorder, recorder.variable(name)) for name in names], over_tokens)
    try:
        outputs = [output.value for output in outputs_of(_flat(function(columns)), recorder)]
    except TargetError as problem:
        raise problem if causal else TargetError(f"{problem}; {HINT}") from problem
    except HeadsmithError:
        raise
    except (TypeError, AttributeError, ValueError, IndexError) as problem:
        raise TargetError(f"the function cannot be traced: {problem}; {HINT}") from problem
    graph = build(recorder, outputs, names)
    if recorder.full_length and lengths(graph, recorder.tokens) != (recorder.tokens,):
        outputs[0] = _guarded(recorder, outputs[0])
        graph = build(recorder, outputs, names)
    return graph


def _refuse_network(tokens: Any, features: Any, causal: bool) -> None:
    check_counts(tokens=tokens, features=features)
    if causal:
        raise TargetError("a network of the whole sequence looks at all tokens: it cannot be causal")


def _refuse_sizes(function: Any, tokens: Any, features: Any) -> None:
    check_counts(tokens=tokens, features=features)
    if not callable(function):
        raise TargetError(f"a sequence program is a function of a table (tokens, features); got {function!r}")


def lengths(graph: Graph, tokens: int) -> tuple[int, ...]:
    """The lengths of sequences at which no token fetches from a token that is not there."""
    moves = [np.array(node.targets) for node in graph.nodes if isinstance(node, Move)]
    if not moves:
        return tuple(range(1, tokens + 1))
    furthest = np.max([np.maximum.accumulate(targets) for targets in moves], axis=0)
    return tuple(length for length in range(1, tokens + 1) if furthest[length - 1] < length)


def _guarded(recorder: SequenceRecorder, output: Value) -> Value:
    """The output plus a zero that is fetched from the last token. A sum is n times a mean, which is right for n tokens
    alone: with this the model itself, saved or exported, refuses any other number."""
    return combine(output, Fraction(1), recorder.guard())


def _flat(result: Any) -> Any:
    if isinstance(result, np.ndarray) and result.ndim and result.dtype != object:
        raise TargetError(
            f"the function returned an array of numbers {result.shape}: write hs.tokens.constants(x, [...]) for one "
            "number for each token"
        )
    if isinstance(result, Columns):
        return list(result.values)
    return [_flat(item) for item in result] if isinstance(result, list | tuple) else result


def _text(allowed: tuple[int, ...]) -> str:
    if len(allowed) == 1:
        return f"exactly {allowed[0]} (a sum, a sort or a look ahead needs them all)" if allowed[0] > 1 else "one"
    if allowed == tuple(range(allowed[0], allowed[-1] + 1)):
        return f"{allowed[0]} to {allowed[-1]}"
    return ", ".join(map(str, allowed))
