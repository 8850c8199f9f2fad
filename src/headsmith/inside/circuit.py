"""circuit.json: what every head of a model does, as data. Ground truth for tools that look for circuits.

target, domain, error, parts        what the model computes, where, and how closely, proven
tokens                              which tokens are constant, and how many data tokens there may be
directions                          the registers of the residual stream, with their columns
layers[i].heads[j]                  name, kind, what it computes and how, registers that it reads and writes, features
                                    of its queries and keys, and its share of the proven error
layers[i].neurons[j]                the same of products and gates, in a layer that is a SwiGLU block
outputs                             what is read out, as sums of registers
"""

from __future__ import annotations

from decimal import ROUND_CEILING, Context, Decimal
from typing import Any, Protocol

from headsmith.inside.anatomy import Anatomy, Head, LayerView, Unit
from headsmith.inside.meanings import Model, read_text
from headsmith.inside.shares import Share
from headsmith.language.describe import outputs_text
from headsmith.transformer.heads.stream import RESERVED
from headsmith.transformer.ir import layout


class Anatomical(Model, Protocol):
    """A model that can be taken apart."""

    @property
    def anatomy(self) -> Anatomy: ...


def circuit(model: Anatomical) -> dict[str, Any]:
    """The whole model as data."""
    transformer, certificate, box = model.transformer, model.certificate, model.box
    names = zip(box.names, box.low.tolist(), box.high.tolist(), strict=True)
    readout = [read_text(transformer.readout, row, transformer.sizes) for row in range(transformer.outputs)]
    return {
        "format": "headsmith circuit",
        "version": 1,
        "target": outputs_text(model.wanted, 400),
        "domain": {name: [low, high] for name, low, high in names},
        "error": certificate.error,
        "parts": dict(certificate.parts),
        "tokens": {
            "sink": transformer.sink_tokens,
            "grid": transformer.grid_tokens,
            "data": transformer.tokens,
        },
        "directions": {
            name: {"columns": [place.start, place.stop], "constant": _constant(model, name)}
            for name, place in layout(transformer).items()
        },
        "layers": [_layer(layer) for layer in model.anatomy.layers],
        "outputs": [
            {"is": text, "plus": float(constant)}
            for text, constant in zip(readout, transformer.readout_bias, strict=True)
        ],
    }


def _layer(layer: LayerView) -> dict[str, Any]:
    heads = {"heads": [_head(head) for head in layer.heads]}
    return heads | ({"neurons": [_unit(unit) for unit in layer.neurons]} if layer.neurons else {})


def _unit(unit: Unit) -> dict[str, Any]:
    return {
        "name": unit.name,
        "kind": unit.kind,
        "computes": unit.computes,
        "how": [unit.sentence],
        "reads": list(unit.reads),
        "writes": list(unit.writes),
        "share_of_error": _share(unit.share),
    }


def _share(share: Share | None) -> dict[str, float] | None:
    """The last digits depend on the machine's matrix products; these do not."""
    return None if share is None else {name: _short(value) for name, value in share.items()}


def _head(head: Head) -> dict[str, Any]:
    return {
        "name": head.name,
        "index": head.index,
        "kind": head.kind,
        "computes": head.computes,
        "how": list(head.sentences),
        "reads": list(head.reads),
        "writes": list(head.writes),
        "features": list(head.features),
        "share_of_error": _share(head.share),
    }


def _constant(model: Model, name: str) -> bool:
    """Whether no head writes the register."""
    return name in RESERVED or name in model.transformer.positional


def _short(value: float) -> float:
    """A bound, rounded up to a few digits."""
    return float(Decimal(value).normalize(Context(prec=4, rounding=ROUND_CEILING)))
