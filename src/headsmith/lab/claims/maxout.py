"""Claims M1 and M2: maxout networks and continuous piecewise linear functions, in two layouts.

    recipe relu      token by token, a maximum is a tree of sink heads
    recipe maxout    one token for each affine piece, as in the paper: attention takes the maximum

The constructions are ours; the claims are those of the paper.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from headsmith.compile import compile
from headsmith.lab.claims.audit import audit
from headsmith.lab.claims.recipe import Counted, exponent
from headsmith.lab.claims.rows import Finding, Rows, claim, judged, need
from headsmith.language.cpwl import difference_of_max_affine, max_min
from headsmith.language.graph import Maximum, Minimum, Relu
from headsmith.language.lattice import from_regions
from headsmith.language.maxout import MaxoutNetwork
from headsmith.model import Compiled
from headsmith.plan.reading import Target, as_graph
from headsmith.report.falsify import errors_at, falsify
from headsmith.sequence.approximate import approximate

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
    found = [_size(*shape) for shapes in GROWN.values() for shape in shapes]
    return judged(
        "ranks 2 to 8, widths 8 to 64 at rank 4, depths 1 to 4 at rank 4, error 1e-3 on [-1, 1]; recipes relu, maxout; "
        "every bill counted again from the written-out matrices",
        [row for row, _ in found],
        _size_summary,
        _size_faults,
        lambda figure: (
            f"with a token for each piece {figure['smallest_nonzeros_per_parameter']:.3f} to "
            f"{figure['largest_nonzeros_per_parameter']:.3f} non-zeros per parameter (exponent "
            f"{figure['width_exponent']:.3f} in width; all matrices written out, at most "
            f"{figure['largest_dense_per_parameter']:.3g}), 2 L - 1 layers for L maxout layers; token by token "
            f"{figure['heads_per_comparison']:.3g} (k - 1) heads for a unit of rank k, "
            f"{figure['layers_per_tree_level']:.3g} ceil(log2 k) layers for a layer, at most "
            f"{figure['token_by_token_largest_at_depth_two']:.3f} non-zeros per parameter at two layers, "
            f"{figure['token_by_token_largest_per_layer']:.3f} (1 + L) at L"
        ),
        [counted for _, counted in found],
    )


GROWN = {
    "rank": [([8, 16, 16, 2], rank) for rank in (2, 3, 4, 8)],
    "width": [([width, width, width, 2], 4) for width in (8, 16, 32, 64)],
    "depth": [([16, *[16] * depth, 2], 4) for depth in (1, 2, 4)],
}


def _size_summary(rows: Rows) -> dict[str, Any]:
    ranks, widths = len(GROWN["rank"]), len(GROWN["width"])
    ratios, wide = [row["pieces_nonzeros_ratio"] for row in rows], rows[ranks : ranks + widths]
    sizes = [[row[name] for row in wide] for name in ("network_parameters", "pieces_nonzeros")]
    return {
        "largest_nonzeros_per_parameter": max(ratios),
        "smallest_nonzeros_per_parameter": min(ratios),
        "largest_dense_per_parameter": max(row["pieces_dense_ratio"] for row in rows),
        "width_exponent": exponent(*sizes),
        "token_by_token_largest_at_depth_two": max(row["nonzeros_ratio"] for row in rows[: ranks + widths]),
        "token_by_token_largest_per_layer": max(row["nonzeros_ratio"] / (1 + row["depth"]) for row in rows),
        "heads_per_comparison": max(row["heads"] / row["comparisons"] for row in rows),
        "layers_per_tree_level": max(row["layers"] / row["tree_depth"] for row in rows),
    }


def _size_faults(rows: Rows) -> list[str]:
    found = _size_summary(rows)
    most, wide = found["largest_nonzeros_per_parameter"], found["width_exponent"]
    shallow, each = found["token_by_token_largest_at_depth_two"], found["token_by_token_largest_per_layer"]
    return [
        *need(most <= 2.5, f"{most:.3f} non-zeros per parameter with a token for each piece"),
        *need(wide <= 1.05, f"an exponent of {wide:.3f} in width"),
        *need(all(row["pieces_layers"] == 2 * row["depth"] - 1 for row in rows), "other layers than 2 L - 1"),
        *need(shallow <= 3.0, f"{shallow:.3f} non-zeros per parameter token by token, at two layers"),
        *need(each <= 1.0, f"{each:.3f} (1 + L) non-zeros per parameter token by token"),
        *need(found["heads_per_comparison"] <= 1.0, "more heads than comparisons"),
        *need(found["layers_per_tree_level"] <= 1.0, "more layers than levels of the trees"),
    ]


def _size(widths: list[int], rank: int) -> Counted:
    network = random_maxout(widths, rank)
    models = [compile(network, (-1.0, 1.0), 1e-3, recipe=recipe) for recipe in ("relu", "maxout")]
    units, depth = sum(widths[1:-1]), len(widths) - 2
    row = {
        "rank": rank,
        "width": max(widths[1:-1]),
        "depth": depth,
        "comparisons": (rank - 1) * units,
        "tree_depth": math.ceil(math.log2(rank)) * depth,
    }
    own = [
        (rank if place < depth else 1) * (before + 1) * after for place, (before, after) in enumerate(pairwise(widths))
    ]
    bills = [{name: getattr(model.bill, name) for name in COUNTED} for model in models]
    return row | _ratios(network.parameters, *bills), row | _ratios(sum(own), *map(audit, models))


COUNTED = ("layers", "heads", "d_model", "nonzeros", "parameters")


def _ratios(parameters: int, tree: Mapping[str, Any], pieces: Mapping[str, Any]) -> dict[str, Any]:
    """Figures of both layouts, from their bills or from a second count."""
    return {
        "network_parameters": parameters,
        "pieces_nonzeros": pieces["nonzeros"],
        "pieces_nonzeros_ratio": pieces["nonzeros"] / parameters,
        "pieces_dense_ratio": pieces["parameters"] / parameters,
        "pieces_layers": pieces["layers"],
        "pieces_heads": pieces["heads"],
        "nonzeros": tree["nonzeros"],
        "nonzeros_ratio": tree["nonzeros"] / parameters,
        "dense_ratio": tree["parameters"] / parameters,
        "heads": tree["heads"],
        "layers": tree["layers"],
        "d_model": tree["d_model"],
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
    found = [_compiled(name, *target) for name, target in targets.items()]
    found += [
        _approximated("sin(x) from its Hessian", math.sin, {"x": (0.0, 3.0)}, 1e-2, hessian=1.0),
        _approximated("|(x, y)| from its Lipschitz constant", math.hypot, SQUARE, 0.1, lipschitz=1.0),
        _approximated("sin(2x + y) from its Hessian", _wave, SQUARE, 2e-2, hessian=[[4.0, 2.0], [2.0, 1.0]]),
    ]
    return judged(
        "five functions from their pieces at error 1e-3, three callables from grids; the falsifier on each",
        [row for row, _ in found],
        _piecewise_summary,
        _piecewise_faults,
        lambda figure: (
            f"one attention layer and at most {figure['heads_in_one_layer']} heads with a token for each piece; token "
            f"by token one head per comparison or hinge, up to {figure['most_layers']} layers"
        ),
        [counted for _, counted in found],
    )


def _piecewise_summary(rows: Rows) -> dict[str, Any]:
    return {
        "most_layers": max(row["layers"] for row in rows),
        "heads_in_one_layer": max(row["heads"] for row in rows if row["recipe"] == "maxout"),
    }


def _piecewise_faults(rows: Rows) -> list[str]:
    single, sampled = [row for row in rows if row["recipe"] == "maxout"], [row for row in rows if "nodes" in row]
    met = [row["found"] <= row["certified"] <= row["asked"] for row in rows]
    against = [
        row["found_against_function"] <= row["certified"] + row["interpolation"] <= row["asked"] for row in sampled
    ]
    return [
        *need(all(met), "an error is larger than certified, or certified larger than asked"),
        *need(all(against), "a callable is further off than interpolation and certificate say, or than asked"),
        *need(all(row["heads"] <= row["gates"] for row in rows), "more heads than hinges and comparisons"),
        *need(all(row["layers"] == 1 for row in single), "several layers with a token for each piece"),
    ]


def _difference(rising: Piecewise, falling: Piecewise = ()) -> MaxoutNetwork:
    """max of some pieces minus max of others: one maxout unit for each, and an affine layer."""
    units = [unit for unit in (rising, falling) if unit]
    weights = np.array([[slope for slope, _ in unit] for unit in units]).swapaxes(0, 1)
    bias = np.array([[shift for _, shift in unit] for unit in units]).T
    return MaxoutNetwork([(weights, bias), ([[1.0, -1.0][: len(units)]], [0.0])])


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


def _compiled(name: str, target: Target, recipe: str) -> Counted:
    model = compile(target, (-1.0, 1.0), 1e-3, recipe=recipe)
    return _told(name, recipe, 1e-3, model, GATES[name])


def _told(name: str, recipe: str, asked: float, model: Compiled, gates: int) -> Counted:
    """A row, and a second count of it; `gates` are its hinges and comparisons, by hand."""
    worst = falsify(model)
    row = {"target": name, "recipe": recipe, "asked": asked, "certified": model.certificate.error}
    row |= {"found": float(errors_at(model, worst.input).max()), "gates": _gates(model.graph)}
    row |= {name: getattr(model.bill, name) for name in ("heads", "layers", "nonzeros")}
    return row, {"asked": asked, "gates": gates} | audit(model, worst)


GATES = {
    "maximum of 16 pieces in 4 variables": 15,
    "difference of maxima of 16 in 4 variables": 30,
    "max-min, 8 groups of 4 in 3 variables": 8 * 3 + 7,
    "the same difference, token by token": 30,
    "pyramid from 4 regions": 3,
}


def _approximated(name: str, function: Any, domain: Any, error: float, **stated: Any) -> Counted:
    """Found and certified: of the model against its interpolant. Against the function the stated bound comes on top."""
    made = approximate(function, domain, error, recipe="relu", **stated)
    box = made.model.box
    points = np.random.default_rng(0).uniform(box.low, box.high, (4000, box.size))
    wanted = np.array([function(*point) for point in points.tolist()])
    row, counted = _told(name, "relu", error, made.model, _gates(made.model.graph))
    grid = {"interpolation": made.interpolation, "nodes": made.grid.nodes}
    nodes = int(np.prod([len(np.unique(points)) for points in made.grid.points.T]))
    row |= grid | {"found_against_function": float(np.abs(made(points)[:, 0] - wanted).max())}
    bound = made.smoothness.bound(made.grid.steps)
    textbook = np.abs(made.model(points)[:, 0] - wanted).max()
    return row, counted | {"interpolation": bound, "nodes": nodes, "found_against_function": float(textbook)}
