"""Claims M1 and M2: maxout networks and continuous piecewise linear functions, in two layouts.

    recipe relu      token by token, a maximum is a tree of sink heads
    recipe maxout    one token for each affine piece, as in the paper: attention takes the maximum

The constructions are ours; the claims are those of the paper.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from headsmith.approximate import approximate
from headsmith.compile import compile
from headsmith.reading import Target, as_graph
from headsmith.report.claims import Finding, claim
from headsmith.report.falsify import falsify
from headsmith.report.recipe_claims import exponent
from headsmith.source.cpwl import difference_of_max_affine, max_min
from headsmith.source.graph import Maximum, Minimum, Relu
from headsmith.source.lattice import from_regions
from headsmith.source.maxout import MaxoutNetwork

Piecewise = Sequence[tuple[Any, float]]
"""Affine pieces (a, c)."""


def random_maxout(widths: Sequence[int], rank: int, seed: int = 0) -> MaxoutNetwork:
    """Maxout layers of these widths and an affine last one; rows have absolute sum 1, so that deep ones stay tame."""
    random = np.random.default_rng(seed)
    layers = []
    for index, (before, after) in enumerate(pairwise(widths)):
        lead = (rank, after) if index < len(widths) - 2 else (after,)
        weights = random.standard_normal((*lead, before))
        weights /= np.abs(weights).sum(axis=-1, keepdims=True)
        layers.append((weights, 0.1 * random.standard_normal(lead)))
    return MaxoutNetwork(layers)


@claim("M1", "maxout networks at comparable complexity", tag="abstract")
def comparable_size() -> Finding:
    """Grow rank, width and depth in turn; parameters of the transformer over parameters of the maxout network.

    One token for each piece: the ratio of non-zeros is a constant. Token by token it is one at fixed depth: of
    max(a, b) = b + relu(a - b) the b is a linear path, and every later layer hears it.
    """
    grown = {
        "rank": [_size([8, 16, 16, 2], rank) for rank in (2, 3, 4, 8)],
        "width": [_size([width, width, width, 2], 4) for width in (8, 16, 32, 64)],
        "depth": [_size([16, *[16] * depth, 2], 4) for depth in (1, 2, 4)],
    }
    rows = [row for each in grown.values() for row in each]
    ratios = [row["pieces_nonzeros_ratio"] for row in rows]
    wide = exponent(*([row[name] for row in grown["width"]] for name in ("network_parameters", "pieces_nonzeros")))
    dense = [row["pieces_dense_ratio"] for row in rows]
    shallow = [row["nonzeros_ratio"] for row in grown["rank"] + grown["width"]]
    each_layer = max(row["nonzeros_ratio"] / (1 + row["depth"]) for row in rows)
    layers = max(row["layers"] / row["tree_depth"] for row in rows)
    heads = max(row["heads"] / row["comparisons"] for row in rows)
    holds = max(ratios) <= 2.5 and wide <= 1.05 and all(row["pieces_layers"] == 2 * row["depth"] - 1 for row in rows)
    holds = holds and max(shallow) <= 3.0 and each_layer <= 1.0 and layers <= 1.0 and heads <= 1.0
    deep = grown["depth"][-1]
    figures = (
        f"with a token for each piece {min(ratios):.3f} to {max(ratios):.3f} non-zeros per parameter (exponent "
        f"{wide:.3f} in width; all matrices written out, {min(dense):.3g} to {max(dense):.3g}), 2 L - 1 layers for L "
        f"maxout layers; token by token {heads:.3g} (k - 1) heads for a unit of rank k, {layers:.3g} ceil(log2 k) "
        f"layers for a layer, {min(shallow):.3f} to {max(shallow):.3f} non-zeros per parameter at two layers, "
        f"{deep['nonzeros_ratio']:.3f} at {deep['depth']}"
    )
    return Finding(
        ran="ranks 2 to 8, widths 8 to 64 at rank 4, depths 1 to 4 at rank 4, error 1e-3 on [-1, 1]; recipes relu, "
        "maxout",
        figure={
            "largest_nonzeros_per_parameter": max(ratios),
            "smallest_nonzeros_per_parameter": min(ratios),
            "largest_dense_per_parameter": max(dense),
            "width_exponent": wide,
            "token_by_token_largest_at_depth_two": max(shallow),
            "token_by_token_largest_per_layer": each_layer,
            "heads_per_comparison": heads,
            "layers_per_tree_level": layers,
            "rows": rows,
        },
        holds=holds,
        verdict=_verdict(holds, figures),
    )


def _size(widths: list[int], rank: int) -> dict[str, Any]:
    network = random_maxout(widths, rank)
    tree, pieces = (compile(network, (-1.0, 1.0), 1e-3, recipe=recipe).bill for recipe in ("relu", "maxout"))
    return {
        "rank": rank,
        "width": max(widths[1:-1]),
        "depth": len(widths) - 2,
        "network_parameters": network.parameters,
        "pieces_nonzeros": pieces.nonzeros,
        "pieces_nonzeros_ratio": pieces.nonzeros / network.parameters,
        "pieces_dense_ratio": pieces.parameters / network.parameters,
        "pieces_layers": pieces.layers,
        "pieces_heads": pieces.heads,
        "nonzeros": tree.nonzeros,
        "nonzeros_ratio": tree.nonzeros / network.parameters,
        "dense_ratio": tree.parameters / network.parameters,
        "comparisons": (rank - 1) * sum(widths[1:-1]),
        "heads": tree.heads,
        "tree_depth": math.ceil(math.log2(rank)) * (len(widths) - 2),
        "layers": tree.layers,
        "d_model": tree.d_model,
    }


@claim("M2", "any continuous piecewise linear function", tag="abstract")
def piecewise_linear_functions() -> Finding:
    """Functions from their pieces, and callables from their values on triangulated grids; certified, falsified.

    Every such function is a difference of two maxima of affine pieces: with a token for each piece, one layer.
    """
    rising, falling = _pieces(2, 16, 4)
    targets: dict[str, tuple[Target, str]] = {
        "maximum of 16 pieces in 4 variables": (_difference(rising), "maxout"),
        "difference of maxima of 16 in 4 variables": (_difference(rising, falling), "maxout"),
        "max-min, 8 groups of 4 in 3 variables": (max_min(_pieces(8, 4, 3)), "relu"),
        "the same difference, token by token": (difference_of_max_affine(rising, falling), "relu"),
        "pyramid from 4 regions": (from_regions(PYRAMID, (-1.0, 1.0)), "relu"),
    }
    rows = [_compiled(name, *target) for name, target in targets.items()]
    rows += [
        _approximated("sin(x) from its Hessian", math.sin, {"x": (0.0, 3.0)}, 1e-2, hessian=1.0),
        _approximated("|(x, y)| from its Lipschitz constant", math.hypot, SQUARE, 0.1, lipschitz=1.0),
        _approximated("sin(2x + y) from its Hessian", _wave, SQUARE, 2e-2, hessian=[[4.0, 2.0], [2.0, 1.0]]),
    ]
    holds = all(row["found"] <= row["certified"] <= row["asked"] and row["heads"] <= row["gates"] for row in rows)
    holds = holds and all(row.get("found_against_function", row["certified"]) <= row["asked"] for row in rows)
    single = [row for row in rows if row["recipe"] == "maxout"]
    holds = holds and all(row["layers"] == 1 for row in single)
    deepest, most = max(row["layers"] for row in rows), max(row["heads"] for row in single)
    return Finding(
        ran="five functions from their pieces at error 1e-3, three callables from grids; the falsifier on each",
        figure={"most_layers": deepest, "heads_in_one_layer": most, "rows": rows},
        holds=holds,
        verdict=_verdict(
            holds,
            f"one attention layer and at most {most} heads with a token for each piece; token by token one head per "
            f"comparison or hinge, up to {deepest} layers",
        ),
    )


def _difference(rising: Piecewise, falling: Piecewise = ()) -> MaxoutNetwork:
    """max of some pieces minus max of others: one maxout unit for each, and an affine layer."""
    units = [unit for unit in (rising, falling) if unit]
    weights = np.array([[slope for slope, _ in unit] for unit in units]).swapaxes(0, 1)
    bias = np.array([[shift for _, shift in unit] for unit in units]).T
    return MaxoutNetwork([(weights, bias), ([[1.0, -1.0][: len(units)]], [0.0])])


def _verdict(holds: bool, figures: str) -> str:
    return f"holds with these constants: {figures}" if holds else f"fails: {figures}"


SQUARE = {"x": (-1.0, 1.0), "y": (-1.0, 1.0)}
PYRAMID: list[tuple[tuple[int, int], int, Any]] = [
    ((1, 0), 0, ([[-1, 1], [-1, -1]], [0, 0])),
    ((-1, 0), 0, ([[1, 1], [1, -1]], [0, 0])),
    ((0, 1), 0, ([[1, -1], [-1, -1]], [0, 0])),
    ((0, -1), 0, ([[1, 1], [-1, 1]], [0, 0])),
]
"""max(|x|, |y|): four regions, each where one coordinate with one sign is the largest."""


def _wave(x: float, y: float) -> float:
    return math.sin(2.0 * x + y)


def _pieces(groups: int, members: int, inputs: int) -> list[list[tuple[Any, float]]]:
    random = np.random.default_rng(groups * members)
    return [
        [(random.standard_normal(inputs), float(random.standard_normal())) for _ in range(members)]
        for _ in range(groups)
    ]


def _gates(target: Target) -> int:
    """Hinges and comparisons of a graph of affine nodes, gates, maxima and minima."""
    graph = as_graph(target)
    return sum(
        node.size * (1 if isinstance(node, Relu) else len(node.arguments) - 1)
        for node in graph.nodes
        if isinstance(node, Relu | Maximum | Minimum)
    )


def _compiled(name: str, target: Target, recipe: str) -> dict[str, Any]:
    model = compile(target, (-1.0, 1.0), 1e-3, recipe=recipe)
    return {
        "target": name,
        "recipe": recipe,
        "asked": 1e-3,
        "certified": model.certificate.error,
        "found": falsify(model).error,
        "gates": _gates(target),
        "heads": model.bill.heads,
        "layers": model.bill.layers,
        "nonzeros": model.bill.nonzeros,
    }


def _approximated(name: str, function: Any, domain: Any, error: float, **stated: Any) -> dict[str, Any]:
    """Found and certified: of the model against its interpolant. Against the function the stated bound comes on top."""
    made = approximate(function, domain, error, recipe="relu", **stated)
    box = made.model.box
    points = np.random.default_rng(0).uniform(box.low, box.high, (4000, box.size))
    wanted = np.array([function(*point) for point in points.tolist()])
    return {
        "target": name,
        "recipe": "relu",
        "asked": error,
        "certified": made.compiled,
        "found": falsify(made.model).error,
        "interpolation": made.interpolation,
        "found_against_function": float(np.abs(made(points)[:, 0] - wanted).max()),
        "nodes": made.grid.nodes,
        "gates": _gates(made.model.graph),
        "heads": made.bill.heads,
        "layers": made.bill.layers,
        "nonzeros": made.bill.nonzeros,
    }
