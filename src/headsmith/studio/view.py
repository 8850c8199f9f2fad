"""A model as JSON: all that a page needs to run it, to draw it and to tell it in words.

The matrices are those of `model.dense()`, so what runs in the browser is the textbook's attention. A matrix is
{"shape": [rows, columns], "at": [...], "values": [...]}: its entries that are not zero, at row * columns + column.
Numbers are written so that they read back as the same doubles.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from headsmith.core.arrays import Array
from headsmith.core.certificate import MEANING
from headsmith.core.errors import HeadsmithError
from headsmith.core.figures import bound, count, shortened
from headsmith.core.program import Call, Linear, Over, Program
from headsmith.core.prose import blocks_of
from headsmith.files import Model
from headsmith.inside.explain import bank_sentences, domain_text, readout_lines
from headsmith.inside.meanings import Meanings, without_kind
from headsmith.inside.shares import head_shares
from headsmith.lab.iprm.model import Reasoner
from headsmith.language.describe import outputs_text
from headsmith.language.graph import Affine, Expression, Function, Graph, Relu
from headsmith.language.stored import node_data
from headsmith.model import Compiled
from headsmith.report.data import as_data
from headsmith.sequence.compiled import CompiledSequence
from headsmith.sequence.learner import Learner
from headsmith.sequence.universal import Universal
from headsmith.studio.extras import checks, regions_data
from headsmith.transformer.bill import bill_rows
from headsmith.transformer.dense import DenseLayer
from headsmith.transformer.heads import attentions
from headsmith.transformer.heads.kinds import KINDS
from headsmith.transformer.ir import Bank

MOST_NONZEROS, MOST_PARAMETERS, MOST_TOKENS = 300_000, 60_000_000, 1024
"""Larger models are not sent to a browser: numbers that are not zero, matrices written out, tokens."""

EVALUATED = (
    *("input", "affine", "relu", "maximum", "minimum", "product", "hypotenuse", "quotient", "function"),
    *("expression", "positional", "pool", "move", "attend"),
)
"""The kinds of nodes that pages evaluate: see assets/target.js."""

RUN = tuple(KINDS)
"""The kinds of heads and neurons that pages run, as the matrices of `model.dense()`: see assets/model.js."""

MOST_WORDS = 400
"""So many heads of a bank are told in words."""


def view(
    model: Model, *, title: str = "", python: str = "", verified: bool = False, file: str | os.PathLike[str] = ""
) -> dict[str, Any]:
    """The model as JSON. `title` is the target as it was typed, `python` are the lines that make the model; `verified`
    tells that its proof was just checked. From the `file` that holds it comes each head's share of the proven error."""
    found = summary(model, title=title, python=python, verified=verified)
    refuse_unknown(model)
    found |= _compiled(model)
    shares = head_shares(file) if file else None
    # A model that ends in a softmax without tokens has no heads there: it has a layer less than its proof.
    for heads, proven in zip(found["layers"], shares or (), strict=False):
        for head, share in zip(heads, proven if heads else (), strict=True):
            head["share"] = dict(share)
    return found | {"checks": checks(model), "regions": regions_data(model)}


def summary(model: Model, *, title: str = "", python: str = "", verified: bool = False) -> dict[str, Any]:
    """What is shown of a model of any size: certificate and bill."""
    certificate, box = model.certificate, model.box
    return {
        "kind": kind_of(model),
        "title": title or _title(model),
        "where": domain_text(box),
        "names": list(box.names),
        "low": box.low.tolist(),
        "high": box.high.tolist(),
        "certificate": as_data(certificate)
        | {"shown": bound(certificate.error), "meaning": {name: MEANING.get(name, "") for name in certificate.parts}},
        "assumed": model.assumed if isinstance(model, Universal) else None,
        "verified": verified,
        "bill": [list(row) for row in bill_rows(model.bill)],
        "latex": model.bill.latex(),
        "python": python,
        "explain": model.explain(),
    }


def view_or_summary(model: Model, **told: Any) -> dict[str, Any]:
    """The view, or, of a model that a page cannot run, its summary: `cannot` says why."""
    try:
        return view(model, **told)
    except HeadsmithError as problem:
        told.pop("file", None)
        return summary(model, **told) | {"cannot": str(problem)}


def refuse_unknown(model: Model) -> None:
    """Raise HeadsmithError where a model is too large for a page, or has something that pages do not run."""
    cost = model.bill
    kinds = {bank.kind for layer in model.transformer.layers for bank in layer.banks}
    for kind in sorted(kinds - set(RUN)):
        raise HeadsmithError(f"the model has {kind} units; a page runs heads of the kinds {', '.join(RUN)}")
    for what, size, most in (
        ("weights that are not zero", cost.nonzeros, MOST_NONZEROS),
        ("entries in its matrices", cost.parameters, MOST_PARAMETERS),
        ("data tokens", cost.data_tokens, MOST_TOKENS),
    ):
        if size > most:
            raise HeadsmithError(f"the model has {size:,} {what}; a page shows and runs models of at most {most:,}")


def kind_of(model: Model) -> str:
    """What kind of model it is: function, sequence, learner, reasoner or sampled."""
    match model:
        case Learner():
            return "learner"
        case Reasoner():
            return "reasoner"
        case CompiledSequence():
            return "sequence"
        case Universal():
            return "sampled"
    return "function"


def sparse(matrix: Array) -> dict[str, Any]:
    """The entries that are not zero, and where they stand."""
    flat = np.ascontiguousarray(matrix).reshape(-1)
    at = np.flatnonzero(flat)
    return {"shape": list(np.atleast_2d(matrix).shape), "at": at.tolist(), "values": flat[at].tolist()}


def _title(model: Model) -> str:
    match model:
        case Learner():
            return model.explain(0).partition("\n")[0].rstrip(".")
        case Universal():
            return f"a callable of sequences of {count(model.tokens, 'token')}, sampled"
    return outputs_text(model.wanted, 160)


def _matrices(model: Model) -> dict[str, Any]:
    """What every kind of model has: the matrices around its layers."""
    written = model.dense()
    last = None if written.last is None else [sparse(part) for part in written.last]
    return {
        "width": written.d_model,
        "registers": [[name, columns.start, columns.stop] for name, columns in written.columns.items()],
        "references": sparse(written.references.reshape(-1, written.d_model)),
        "W_E": sparse(written.W_E),
        "b_E": sparse(written.b_E),
        "W_pos": sparse(written.W_pos),
        "W_U": sparse(written.W_U),
        "b_U": written.b_U.tolist(),
        "last": last,
        "layers": [[_head(layer, head) for head in range(len(layer.W_Q))] for layer in written.layers],
        "neurons": [_neurons(layer) if layer.neurons else None for layer in written.layers],
    }


def _neurons(layer: DenseLayer) -> dict[str, Any]:
    return {name: sparse(getattr(layer, name)) for name in ("W_gate", "W_up", "W_down")}


def _head(layer: DenseLayer, head: int) -> dict[str, Any]:
    return {name: sparse(getattr(layer, name)[head]) for name in ("W_Q", "W_K", "W_V", "W_O")}


def _compiled(model: Compiled) -> dict[str, Any]:
    transformer, meanings, blocks = model.transformer, Meanings(model), model.blocks
    found = _matrices(model)
    kinds: dict[str, None] = {}
    # A last layer that stands as a softmax without tokens is no attention, and has no heads to show.
    for place, layer in enumerate(transformer.layers[: len(found["layers"])]):
        heads, names = iter(found["layers"][place]), iter(meanings.heads[place])
        counts: dict[str, int] = {}
        if layer.neurons:
            units = model.layers[place].neurons[:MOST_WORDS]
            found["neurons"][place]["units"] = [[each.computes, each.sentence] for each in units]
            continue
        for bank in layer.banks:
            kinds[bank.kind] = None
            words = list(bank_sentences(meanings, bank, MOST_WORDS))
            exact = _exact(meanings, bank)
            for number in range(bank.heads):
                counts[bank.kind] = counts.get(bank.kind, -1) + 1
                next(heads).update(
                    kind=bank.kind,
                    name=f"{bank.kind} head {counts[bank.kind]}",
                    text=without_kind(next(names)),
                    words=words[number] if number < len(words) else [],
                    exact=exact[number] if exact else None,
                )
    lengths = model.lengths if isinstance(model, CompiledSequence | Universal) else range(1, transformer.tokens + 1)
    if isinstance(model, Universal):
        # The domain is that of the flattened input; a page knows one interval for each feature of all tokens.
        low, high = (each.reshape(transformer.tokens, -1) for each in (model.box.low, model.box.high))
        found |= {"names": [f"x[:, {feature}]" for feature in range(model.features)]}
        found |= {"low": low.max(axis=0).tolist(), "high": high.min(axis=0).tolist()}
    return found | {
        "sinks": transformer.sink_tokens,
        "tokens": transformer.tokens,
        "lengths": [transformer.tokens] if blocks else list(lengths),
        "blocks": blocks,
        "causal": isinstance(model, CompiledSequence) and model.masked,
        "held": [{name: shortened(text, 120) for name, text in each.items()} for each in meanings.registers],
        "attention": transformer.attention,
        "readout": readout_lines(model),
        "lemmas": {kind: [as_data(block) for block in blocks_of(lemma(kind, transformer.attention))] for kind in kinds},
        "target": target_data(model.graph),
        "learner": _learner(model) if isinstance(model, Learner) else None,
    }


def lemma(kind: str, attention: str = "softmax") -> str:
    """What a kind of head computes, and why that is true: the text that opens its module. Other attentions have their
    lemmas in one place."""
    other = kind != "product" and attention != "softmax"
    home = attentions if other else sys.modules[KINDS[kind].__module__]
    return (home.__doc__ or "").strip()


def _exact(meanings: Meanings, bank: Bank) -> list[Any] | None:
    """For each head of a table or of products what it stands for: one program for each of its outputs. All other kinds
    are exact where attention is sharp, and need none."""
    if not bank.approximates:
        return None
    programs = [_program(meanings.node(int(node))) for node in bank.node]
    each = len(programs) // bank.heads
    return [programs[first : first + each] for first in range(0, len(programs), each)]


def _program(node: Any) -> dict[str, Any] | None:
    match node:
        case Expression():
            return program_data(node.program)
        case Function():
            return program_data(Program(1, (Call(node.name, 0, node.parameter),)))
        case Relu():
            return {"variables": 1, "steps": [["call", "relu", 0, None]]}
    return None


def program_data(program: Program) -> dict[str, Any]:
    """A program as JSON: as in a file, but with its rational numbers rounded to doubles."""
    steps: list[list[Any]] = []
    for step in program.steps:
        match step:
            case Linear():
                steps.append(["linear", [[float(c), operand] for c, operand in step.terms], float(step.constant)])
            case Call():
                steps.append(["call", step.name, step.operand, step.parameter])
            case Over():
                steps.append(["over", step.numerator, step.denominator])
            case _:
                steps.append(["times", step.left, step.right])
    return {"variables": program.variables, "steps": steps}


def target_data(graph: Graph) -> dict[str, Any] | None:
    """The target as JSON: the nodes as a file holds them, with their numbers beside them. None where a node is of a
    kind that pages do not evaluate, as samples of a callable are."""
    nodes = []
    for node in graph.nodes:
        data = node_data(node, lambda place: place, lambda name, values, kind=None: _plain(values))
        for place, term in enumerate(node.terms if isinstance(node, Affine) else ()):
            data["terms"][place]["weights"] = _plain(np.asarray(term.weights))
        if data["kind"] not in EVALUATED:
            return None
        if isinstance(node, Expression):
            data["program"] = program_data(node.program)
        nodes.append(data)
    return {"nodes": nodes, "output": graph.output}


def _plain(values: Array) -> Any:
    """A vector as numbers, a matrix by its entries that are not zero."""
    return values.tolist() if values.ndim == 1 else sparse(values)


def _learner(model: Learner) -> dict[str, Any]:
    return {"features": model.features, "rule": as_data(model.rule), "preconditioned": model.preconditioner is not None}


def network_lines(name: str, domain: Mapping[str, tuple[float, float]], **options: Any) -> str:
    """The lines that compile the network in a file again."""
    intervals = set(domain.values())
    where = intervals.pop() if len(intervals) == 1 else dict(domain)
    given = "".join(f", {name}={value!r}" for name, value in options.items())
    return (
        "import headsmith as hs\nfrom headsmith.readers.weight_files import read_network\n\n"
        f"model = hs.compile(read_network({name!r}), {where!r}{given})\nmodel.save('model.safetensors')\n"
    )


def python_lines(target: Sequence[str] | str, domain: Any, **options: Any) -> str:
    """The lines that compile a formula again."""
    given = "".join(f", {name}={value!r}" for name, value in options.items())
    shown = target if isinstance(target, str) else list(target)
    if isinstance(shown, list) and len(shown) == 1:
        shown = shown[0]
    return (
        f"import headsmith as hs\n\nmodel = hs.compile({shown!r}, {domain!r}{given})\nmodel.save('model.safetensors')\n"
    )
