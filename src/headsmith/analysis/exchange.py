"""Exchanges: a token and its partner compare their values, one keeps the smaller and the other the larger.

    m = x at the partner (a move)            r = x - relu(x - m - c) + relu(m - x - c')          c, c' >= 0

c and c' are constants of the tokens: 0 on the side that acts, at least the width of x's range on the side that does
not. c = 0 leaves the minimum, c' = 0 the maximum; this is one stage of a sorting network across tokens.

Theorem. Let d = x - m and phi(d) = relu(d - c) - relu(-d - c'), so that r = x - phi(d). For any c, c' >= 0 at most one
of the two gates is open, phi rises with slopes in [0, 1], and phi(d) lies between 0 and d. Hence
  range    r lies between x and m: wherever x lies at all tokens, r does too;
  errors   if x is off by D_i at token i and by D_p at its partner, r is off by (1 - s) D_i + s D_p with s in [0, 1]:
           by no more than x is anywhere.

This is about the values of x at all tokens at once, and a bound of a deviation is one for every token. So tokens need
not share x, as they must for a gradient step, and there are no copies of it that could be uneven.

A partner that is not there (a move of -1, which fetches 0) is no partner: 0 need not lie in the range of x.
Recognising is exact: every weight is 1 or -1, every constant is looked at, and nothing else is added.
"""

from __future__ import annotations

import itertools
from fractions import Fraction

from headsmith.source.graph import Affine, Graph, Move, Positional, Relu, Term, once_for_graph


@once_for_graph
def exchanges(graph: Graph) -> dict[int, tuple[int, frozenset[int]]]:
    """All exchanges whose inside nobody else reads, by their results: (x, the nodes from the move to r)."""
    if not any(isinstance(node, Move) for node in graph.nodes):
        return {}
    readers: dict[int, set[int]] = {graph.output: {len(graph.nodes)}}
    for number, read in enumerate(graph.reads):
        for argument in read:
            readers.setdefault(argument, set()).add(number)
    found = {}
    for number in range(len(graph.nodes)):
        each = exchange(graph, number)
        if each is not None and all(readers.get(inner, set()) <= each[1] for inner in each[1] - {number}):
            found[number] = each
    return found


def exchange(graph: Graph, number: int) -> tuple[int, frozenset[int]] | None:
    """(x, the nodes from the move to r) if node `number` is the r of an exchange. Who else reads them is not looked
    at."""
    node = graph.nodes[number]
    if not isinstance(node, Affine) or node.size != 1 or node.bias[0] != 0.0 or len(node.terms) != 3:
        return None
    for kept, falling, rising in itertools.permutations(node.terms):
        source = kept.node
        if tuple(map(_weight, (kept, falling, rising))) != (1.0, -1.0, 1.0):
            continue
        sides = [_side(graph, source, gate.node, sign) for gate, sign in ((falling, 1.0), (rising, -1.0))]
        first, second = sides
        if first is not None and second is not None and first[0] == second[0]:
            return source, frozenset({number, falling.node, rising.node, *first, *second})
    return None


def _side(graph: Graph, source: int, gate: int, sign: float) -> tuple[int, int] | None:
    """(m, the gate's argument) if the gate is relu(sign (x - m) - c), x being node `source` and c >= 0 everywhere."""
    relu = graph.nodes[gate]
    if not isinstance(relu, Relu):
        return None
    argument = graph.nodes[relu.argument]
    if not isinstance(argument, Affine) or argument.size != 1:
        return None
    weights = {term.node: _weight(term) for term in argument.terms}
    if len(weights) < len(argument.terms):
        return None
    moves = [each for each in weights if _fetches(graph, each, source)]
    if weights.pop(source, None) != sign or len(moves) != 1 or weights.pop(moves[0]) != -sign:
        return None
    constant = [Fraction(float(argument.bias[0]))]
    for each, weight in weights.items():
        table = graph.nodes[each]
        if len(weights) > 1 or not isinstance(table, Positional) or weight is None:
            return None
        ends = (table.values.min(), table.values.max())
        constant = [constant[0] + Fraction(weight) * Fraction(float(end)) for end in ends]
    return (moves[0], relu.argument) if max(constant) <= 0 else None


def _fetches(graph: Graph, number: int, source: int) -> bool:
    """Whether the node is the source's value at some token, wherever it is."""
    node = graph.nodes[number]
    return isinstance(node, Move) and node.argument == source and node.size == 1 and -1 not in node.targets


def _weight(term: Term) -> float | None:
    """The weight of a term that is one number."""
    return float(term.weights.reshape(-1)[0]) if term.weights.size == 1 else None
