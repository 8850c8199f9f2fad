"""Models that are asked in words: "x=0.25 y=-0.5" is one token for each variable, and the last one answers.

The function of m variables becomes a program over m tokens. Token j holds a value of variable j, and of the others the
middle of their domain. Every token fetches each variable from its token, if that came before, and computes the function
of what it has: at the last token that is all of them. So the proof covers every prompt, like any sequence.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from headsmith.compile import compile
from headsmith.core.errors import TargetError, UnreachableError
from headsmith.language.builder import Builder, moved
from headsmith.language.graph import Graph, Move, Pool
from headsmith.model import Compiled


def prompted(model: Compiled, error: float | None = None) -> Compiled:
    """The model that takes one variable a token, compiled anew, by neurons if it has any; within the same error unless
    another one is given, or within the smallest possible, where fetching variables rounds more than that."""
    if model.approximates is not None:
        raise TargetError("a model with words is compiled anew, from its network alone: leave out what it approximates")
    if model.transformer.tokens > 1 or any(isinstance(node, Move | Pool) for node in model.graph.nodes):
        raise TargetError("prompts of numbers are for functions of variables; this is a model of sequences")
    if model.box.size == 1:
        return model
    options: dict[str, Any] = {"tokens": model.box.size, "dtype": model.transformer.dtype}
    options |= {"recipe": "swiglu"} if model.bill.neurons else {}
    graph, wanted = prompt_graph(model.graph), model.certificate.error if error is None else error
    try:
        return compile(graph, model.box, wanted, **options)
    except UnreachableError as problem:
        if error is not None or not math.isfinite(problem.smallest):
            raise
        return compile(graph, model.box, problem.smallest, **options)


def prompt_graph(graph: Graph) -> Graph:
    """The function of a token's inputs as one of m tokens, the j-th of which brings input j."""
    names, count = graph.input.names, graph.input.size
    builder = Builder(names)
    terms = [(builder.input, np.diag(np.eye(count)[count - 1]))]
    for place in range(count - 1):
        own = builder.affine([(builder.input, np.eye(count)[place : place + 1])], np.zeros(1))
        fetched = builder.move(own, [place if token >= place else token for token in range(count)])
        terms.append((fetched, np.eye(count)[:, place : place + 1]))
    places = {0: builder.affine(terms, np.zeros(count))}
    for number, node in enumerate(graph.nodes[1:], 1):
        places[number] = builder.add(moved(node, places))
    return builder.graph(places[graph.output])
