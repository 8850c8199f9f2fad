"""circuit.json of a sampled callable's model: heads that gather the tokens, and one that looks up the answer."""

from __future__ import annotations

from typing import Any

from headsmith.core.certificate import Certificate
from headsmith.core.intervals import Box
from headsmith.sequence.universal_cache import HEADS, WRITTEN
from headsmith.sequence.universal_model import Architecture, Attention, layout

READS = {"gather": ["x"], "table": ["gathered", "position"]}


def universal_circuit(
    model: Attention, architecture: Architecture, box: Box, certificate: Certificate
) -> dict[str, Any]:
    """The whole model as data, as inside/circuit.py has it; shares are not told."""
    columns = layout(model.tokens, model.features, model.outputs, architecture)
    names = zip(box.names, box.low.tolist(), box.high.tolist(), strict=True)
    layers = []
    for number, layer in enumerate(model.layers):
        kind = HEADS[number]
        heads = [
            {
                "name": f"layer {number + 1} / {kind} head {place}",
                "index": place,
                "kind": kind,
                "computes": f"the features of token {place}" if kind == "gather" else "a Gaussian mean of the samples",
                "reads": READS[kind],
                "writes": [WRITTEN[number]],
                "share_of_error": None,
            }
            for place in range(len(layer))
        ]
        layers.append({"heads": heads})
    return {
        "format": "headsmith circuit",
        "version": 1,
        "target": f"a callable of sequences ({model.tokens}, {model.features}), sampled",
        "domain": {name: [low, high] for name, low, high in names},
        "error": certificate.error,
        "parts": dict(certificate.parts),
        "tokens": {"sink": 0, "grid": len(model.prefix), "data": model.tokens},
        "directions": {name: {"columns": [place.start, place.stop]} for name, place in columns.items()},
        "layers": layers,
    }
