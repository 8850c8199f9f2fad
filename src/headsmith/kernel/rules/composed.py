"""Rule Composed: a network and its function are compared piece by piece.

A network N and a function F are compared on a box in one of two ways. One is a tree of cells (rule Approximates),
perhaps in other coordinates (rule Turned). The other is a list of pieces. A piece pairs a node n of N with a node f of
F, and says which earlier pairs it reads; the first pair are the inputs. Cut at the pairs that it reads, n is a function
P of them and f a function T. With v the values of the network there, and w those of the function,

    n - f  =  P(v) - T(w)  =  (P(v) - T(v))  +  (T(v) - T(w)).

The first is at most `own`, by comparing P with T on the boxes of what is read, again in one of the two ways. The boxes
are convex and hold v and w, so the second is at most the sum of |dT| |v - w|, with bounds of the slopes of T over the
boxes. f lies where T does on the boxes, and n within `own` of that. The last pair are the outputs.

F may be written in another way first, which rule Same shows to be the same function.

Rule Turned: cells may be those of other coordinates. A proof may carry matrices M and K with M K = I, exactly. Then
every x of the box is M u for u = K x, and u lies in the intervals K box. So a bound of |N(M u) - F(M u)| for all u
there is one of |N(x) - F(x)| on the box. Gates that read x + y and x - y cross cells of x and y; in these coordinates
they lie along them.
"""

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from ..core.arithmetic import Array, Interval, Upper, interval, joined
from ..core.errors import Refused, refuse, spend
from ..core.graph import Graph, Node, needed, read_graph
from ..core.ranges import node_range
from ..core.reading import Tensors, field, items, mapping, real, text, whole
from ..core.same import Forms
from ..core.slopes import reference_slopes
from .approximates import check_approximation, refuse_others

MOST_READ = 1 << 10


@dataclass(frozen=True, eq=False)
class Pair:
    """A node of the network and one of the function, a box round the values of both, and how far they may be apart."""

    nodes: tuple[int, int]
    box: Interval
    error: Upper


def check_composition(network: Graph, wanted: Graph, box: Interval, stored: Any, tensors: Tensors) -> Pair:
    """The outputs, with a bound of |N - F| on the box for each. Raises Refused where there is none."""
    graphs = network, _rewritten(wanted, box, stored, tensors)
    refuse_others(*graphs)
    if "pieces" not in stored:
        return _on_cells(graphs, box, stored)
    pairs = [Pair((0, 0), box, Upper(np.zeros(len(box.low))))]
    for each in items(stored["pieces"]):
        read = [pairs[whole(place, 0, len(pairs) - 1)] for place in items(field(each, "reads"))]
        pairs.append(checked_piece(graphs, read, each, tensors))
    refuse(pairs[-1].nodes != (graphs[0].output, graphs[1].output), "the last piece of a composition is not the output")
    return pairs[-1]


def _rewritten(wanted: Graph, box: Interval, stored: Any, tensors: Tensors) -> Graph:
    """Another graph of the same function, which is defined on the box."""
    if "rewritten" not in mapping(stored):
        return wanted
    other, forms = read_graph(stored["rewritten"], tensors), Forms()
    refuse_others(wanted, other)
    if forms.of(wanted, [wanted.output]) != forms.of(other, [other.output]) or not slopes_of(wanted, box)[0].finite():
        raise Refused("what is approximated is written as another function, or may not be defined everywhere")
    return other


def _on_cells(graphs: tuple[Graph, Graph], box: Interval, stored: Any) -> Pair:
    around = box
    if "turned" in stored:
        M, around = turned(box, stored["turned"])
        graphs = cut(graphs[0], graphs[0].output, [0], M), cut(graphs[1], graphs[1].output, [0], M)
    own, mine, reach = check_approximation(*graphs, around, text(field(stored, "approximation")))
    return Pair((graphs[0].output, graphs[1].output), reach.hull(reach.widened(own).meet(mine)), own)


def turned(box: Interval, stored: Any) -> tuple[Array, Interval]:
    """Rule Turned: M, and where u lies."""
    size, matrices = len(box.low), []
    for name in ("M", "K"):
        rows = [[real(each) for each in items(row)] for row in items(field(stored, name))]
        if len(rows) != size or any(len(row) != size for row in rows):
            raise Refused(f"coordinates are turned by matrices of {size} rows and columns")
        matrices.append(np.array(rows))
    M, K = matrices
    found = M @ interval(K)
    if not (np.array_equal(found.low, np.eye(size)) and np.array_equal(found.high, np.eye(size))):
        raise Refused("coordinates are turned by matrices that are not exactly inverse to each other")
    return M, (K @ box[:, None])[:, 0]


def checked_piece(graphs: tuple[Graph, Graph], read: list[Pair], stored: Any, tensors: Tensors) -> Pair:
    """The pair of a piece that reads these."""
    last = [len(graph.nodes) - 1 for graph in graphs]
    nodes = whole(field(stored, "network"), 0, last[0]), whole(field(stored, "function"), 0, last[1])
    box, moved = joined([pair.box for pair in read]), np.concatenate([pair.error.value for pair in read])
    refuse(len(moved) > MOST_READ, f"a piece reads {len(moved)} numbers, and may read {MOST_READ}")
    stops, every = [[pair.nodes[side] for pair in read] for side in (0, 1)], np.eye(len(moved))
    ours, theirs = (cut(graphs[side], nodes[side], stops[side], every) for side in (0, 1))
    found = check_composition(ours, theirs, box, stored, tensors)
    arriving = (slopes_of(theirs, box)[1].magnitude * moved).sum(axis=1) if moved.any() else 0.0
    return Pair(nodes, found.box, found.error + arriving)


def cut(graph: Graph, output: int, stops: list[int], M: Array) -> Graph:
    """A node as a function of u, where M u are the components of the stops, one after the other."""
    ends = np.cumsum([0, *(graph.nodes[stop].size for stop in stops)])
    nodes, places = [Node("input", len(M), names=tuple(map(str, range(len(M)))))], dict[int, int]()
    for stop, (start, end) in zip(stops, pairwise(ends), strict=True):
        places[stop] = len(nodes)
        nodes.append(Node("affine", graph.nodes[stop].size, (0,), (M[start:end],), np.zeros(end - start)))
    for number in needed(graph, [output], stops):
        if number not in places:
            node = graph.nodes[number]
            refuse(node.kind == "input", f"a piece for node {output} reads inputs, and does not say so")
            places[number] = len(nodes)
            nodes.append(replace(node, arguments=tuple(places[argument] for argument in node.arguments)))
    return Graph(tuple(nodes), places[output])


def slopes_of(graph: Graph, box: Interval) -> tuple[Interval, Interval]:
    """Where the output lies, (size,), and its slopes by each input, (size, inputs), over a box. Infinite where they are
    not known; where some node may not be defined, the output is infinite, too."""
    spend(2000.0 * sum(node.size for node in graph.nodes) * len(box.low))
    known, defined = [(box[:, None], interval(np.eye(len(box.low))))], True
    for node in graph.nodes[1:]:
        read = [known[argument] for argument in node.arguments]
        reach = node_range(node, [each for each, _ in read])
        if node.kind == "affine":
            parts = [weights @ slopes for weights, (_, slopes) in zip(node.weights, read, strict=True)]
        else:
            ((z, _), *_), wide = read, [each[:, 0] for each, _ in read]
            edges = [Interval(z.low > 0.0, ~(z.high <= 0.0))] if node.kind == "relu" else reference_slopes(node, wide)
            columns = [edge.mapped(lambda end: end.reshape(-1, 1)) for edge in edges]
            parts = [slopes * column for column, (_, slopes) in zip(columns, read, strict=True)]
        known.append((reach, sum(parts, start=interval(np.zeros((node.size, len(box.low)))))))
        defined = defined and reach.finite()
    reach, slopes = known[graph.output]
    return reach[:, 0] if defined else Interval(*(sign * np.full(len(reach.low), np.inf) for sign in (-1, 1))), slopes
