"""Claims M3 and M4: linear regions grow exponentially with depth; softmax at finite scale keeps the function.

Nothing is assumed: zigzags are compiled, and the pieces of the attention counted from its matrices
(lab/regions/attention_pieces.py); lab/regions/zigzag.py counts those of the same maxima of affine forms. The
constructions are ours.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np

from headsmith.compile import compile
from headsmith.core.arrays import Array
from headsmith.lab.claims.audit import audit
from headsmith.lab.claims.recipe import Counted, exponent
from headsmith.lab.claims.rows import Finding, Rows, claim, judged, need
from headsmith.lab.regions.attention_pieces import pieces_of
from headsmith.lab.regions.levels import levels_of
from headsmith.lab.regions.soften import measure, soften
from headsmith.lab.regions.zigzag import attention_block, feed_forward_block, growth
from headsmith.language.maxout import MaxoutNetwork
from headsmith.language.network import Network
from headsmith.model import Compiled


@claim("M3", "linear regions grow exponentially with depth", tag="abstract")
def exponential_regions() -> Finding:
    """Zigzags of P pieces composed L times, compiled; the pieces of the attention are counted from its own matrices."""
    found = [_gates(*shape) for shape in GATED] + [_pieces(*shape) for shape in PIECED]
    return judged(
        f"{len(GATED)} zigzag networks as gates of hardmax attention, {len(PIECED)} with a token for each piece "
        "(compiled for softmax at 0.1, run with hardmax); pieces counted on [0, 1] from the matrices, in exact "
        "fractions",
        [row for row, _ in found],
        _growth_summary,
        _growth_faults,
        lambda figure: (
            f"P^L pieces, up to {figure['most_regions']}: in L layers of at most P gates each, with weights up to "
            f"{figure['weight_of_gates']:.3g}; and in 2 L - 1 layers of maxima, of ceil((P-1)/2)+1 tokens, with "
            f"weights up to {figure['weight_of_maxima']:.3g} for softmax to be within 0.1"
        ),
        [counted for _, counted in found],
    )


GATED = tuple((pieces, depth) for pieces in (2, 3, 5, 8) for depth in (1, 2, 3, 4, 5, 6) if pieces**depth <= 150)
PIECED = ((2, 1), (2, 2), (2, 4), (3, 1), (3, 2), (3, 3), (5, 1), (5, 2))


def _gates(pieces: int, depth: int) -> Counted:
    """The zigzag as a ReLU network, every gate a hardmax head."""
    layers, reader = [], np.ones((1, 1))
    for block in [feed_forward_block(pieces)] * depth:
        forms = np.array([forms[1] for _, forms in block.heads])
        layers.append((forms[:, :1] * reader, forms[:, 1]))
        reader = np.array([[sign for sign, _ in block.heads]])
    network = Network([*layers, (reader, [0.0])], transposed=False)
    model = compile(network, (0.0, 1.0), 1e-6, attention="hardmax")
    return _counted("gates", pieces, depth, model, np.ones((1, 1)))


def _pieces(pieces: int, depth: int) -> Counted:
    """The zigzag as a maxout network, a token for each of its affine pieces."""
    layers, reader = [], np.ones((1, 1))
    for block in [attention_block(pieces)] * depth:
        ranks = [[forms[min(rank, len(forms) - 1)] for _, forms in block.heads] for rank in range(block.tokens)]
        layers.append((np.array([[slope * reader[0] for slope, _ in each] for each in ranks]), np.array(ranks)[..., 1]))
        reader = np.array([[sign for sign, _ in block.heads]])
    model = compile(MaxoutNetwork([*layers, (reader, [0.0])]), (0.0, 1.0), 0.1, recipe="maxout")
    return _counted("maxima", pieces, depth, model, np.eye(model.transformer.tokens))


def _counted(layout: str, pieces: int, depth: int, model: Compiled, inputs: Array) -> Counted:
    row = {
        "layout": layout,
        "pieces": pieces,
        "depth": depth,
        "regions": len(pieces_of(model.dense(), inputs, 0.0, 1.0)),
    }
    row |= {name: getattr(model.bill, name) for name in ("layers", "heads", "data_tokens", "parameters", "max_weight")}
    forms = growth(pieces, depth, layout="attention" if layout == "maxima" else "feed-forward")
    return row, row | audit(model) | {"regions": forms.regions}


def _growth_summary(rows: Rows) -> dict[str, Any]:
    gates, maxima = ([row for row in rows if row["layout"] == layout] for layout in ("gates", "maxima"))
    return {
        "most_regions": max(row["regions"] for row in rows),
        "weight_of_gates": max(row["max_weight"] for row in gates),
        "weight_of_maxima": max(row["max_weight"] for row in maxima),
    }


def _growth_faults(rows: Rows) -> list[str]:
    gates, maxima = ([row for row in rows if row["layout"] == layout] for layout in ("gates", "maxima"))
    tokens = [row["data_tokens"] == -(-(row["pieces"] - 1) // 2) + 1 for row in maxima]
    return [
        *need(all(row["regions"] == row["pieces"] ** row["depth"] for row in rows), "a count is not P^L"),
        *need(all(row["layers"] == row["depth"] for row in gates), "gates take other layers than L"),
        *need(all(row["heads"] <= row["pieces"] * row["depth"] for row in gates), "gates take more heads than P L"),
        *need(all(row["layers"] == 2 * row["depth"] - 1 for row in maxima), "maxima take other layers than 2 L - 1"),
        *need(all(tokens), "maxima take other tokens than ceil((P-1)/2)+1"),
    ]


@claim("M4", "softmax at finite scale keeps the hardmax partition's function up to W((k-1)/e)/b", tag="ours")
def finite_scale() -> Finding:
    """The worst error of one head for k pieces at scale b, and that of a partition of the plane, against the lemma."""
    found = [_softened_head(pieces, scale) for pieces in (2, 3, 8, 64, 1024) for scale in (1.0, 10.0, 1e3)]
    levels = levels_of(f"max({', '.join(PLANE)})", ["x", "y"])
    grid = np.stack(np.meshgrid(*[np.linspace(-1.0, 1.0, 301)] * 2), axis=-1).reshape(-1, 2)
    found += [_softened_plane(row, grid) for row in soften(levels, grid, [2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0])]
    return judged(
        "15 heads of 2 to 1024 pieces; a partition of the plane into 5 regions at 7 scales",
        [row for row, _ in found],
        _soft_summary,
        _soft_faults,
        lambda figure: (
            f"sharp: the worst error found is {figure['least_attained']:.9f} of the bound or more; in the plane it "
            f"falls like b^{figure['exponent_in_b']:.2f} and stays within the bound"
        ),
        [counted for _, counted in found],
    )


PLANE = ("x", "y", "-x - y", "0.4 + 0.5*x", "0.6 - y")


def _softened_head(pieces: int, scale: float) -> Counted:
    row = asdict(measure(pieces, scale))
    row["attained"] = row["found"] / row["bound"]
    return row, {"pieces": pieces, "scale": scale, "bound": _lambert((pieces - 1) / np.e) / scale}


def _softened_plane(row: Any, grid: Array) -> Counted:
    """The row, and the same from the definition of a softmax mean."""
    x, y = grid.T
    forms = np.stack([x, y, -x - y, 0.4 + 0.5 * x, 0.6 - y])
    weights = np.exp(row.scale * (forms - forms.max(axis=0)))
    error = np.abs((weights * forms).sum(axis=0) / weights.sum(axis=0) - forms.max(axis=0)).max()
    told = {"scale": row.scale, "found": row.found, "bound": row.bound}
    return told, told | {"found": float(error), "bound": _lambert((len(PLANE) - 1) / np.e) / row.scale}


def _lambert(value: float) -> float:
    """w with w e^w = value, by Newton's iteration."""
    w = np.log1p(value)
    for _ in range(50):
        w -= (w * np.exp(w) - value) / (np.exp(w) * (1.0 + w))
    return float(w)


def _soft_summary(rows: Rows) -> dict[str, Any]:
    heads, plane = [row for row in rows if "pieces" in row], [row for row in rows if "pieces" not in row]
    return {
        "least_attained": min(row["attained"] for row in heads),
        "most_attained": max(row["attained"] for row in heads),
        "exponent_in_b": exponent([row["scale"] for row in plane], [row["found"] for row in plane]),
    }


def _soft_faults(rows: Rows) -> list[str]:
    found, heads = _soft_summary(rows), [row for row in rows if "pieces" in row]
    told = [abs(row["attained"] * row["bound"] - row["found"]) <= 1e-9 * row["found"] for row in heads]
    return [
        *need(all(told), "a share is not what was found over the bound"),
        *need(found["least_attained"] >= 1.0 - 1e-9, "the bound is not reached"),
        *need(found["most_attained"] <= 1.0 + 1e-12, "an error is above the bound"),
        *need(all(row["found"] <= row["bound"] * (1.0 + 1e-12) for row in rows), "an error is above the bound"),
        *need(-1.15 < found["exponent_in_b"] < -0.9, f"the exponent is {found['exponent_in_b']:.3f}"),
    ]
