"""The first pass: what is wanted, exactly. A target of any kind becomes a graph, its domain and options are checked,
and the range of every node is found."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from headsmith.core.errors import TargetError, UnreachableError
from headsmith.core.foreign import advice
from headsmith.core.intervals import Box, Interval, as_box
from headsmith.core.progress import Report
from headsmith.core.rounding import HALVES, PRECISIONS, Dtype
from headsmith.kernel.core.functions import FUNCTIONS as KNOWN
from headsmith.language.builder import mixes, multiplied_out
from headsmith.language.describe import describe
from headsmith.language.formula import formula_graph, parse
from headsmith.language.graph import Approximated, Attend, Function, Graph, Input, Move, Pool
from headsmith.language.maxout import MaxoutNetwork
from headsmith.language.network import Network
from headsmith.language.trace import graph_of, names_of
from headsmith.plan.analysis.ranges import linear_ranges, ranges
from headsmith.plan.request import Request
from headsmith.plan.rewrite.simplify import balanced, in_layers, without_fixed
from headsmith.readers.imported import Imported
from headsmith.transformer.heads.attentions import (
    ATTENTIONS,
    BANKS,
    MASKS,
    NO_MIXING,
    NOT_AMONG,
    ONE_TOKEN,
    AttentionKind,
    MaskKind,
)

Target = Network | MaxoutNetwork | Imported | Graph | str | Sequence[str] | Callable[..., Any]

RECIPES = ("auto", "native", "relu", "ramp", "maxout", "swiglu")

LARGEST = 1e100
"""Beyond this the weights of tables and gates would leave the range of doubles."""
MOST_TOKENS = 1 << 20
"""Data tokens in one sequence."""


def read(
    target: Target,
    domain: Any,
    error: float,
    tokens: int,
    dtype: Dtype,
    max_layers: int | None = None,
    progress: Report | None = None,
) -> Request:
    """What is wanted, checked: the target as a graph, and where all of its nodes can lie."""
    _check_options(error, tokens, dtype, max_layers)
    if progress is not None:
        progress("reading the target and finding the ranges of its values", 0.0)
    graph = balanced(as_graph(target, domain))
    if not graph.input.size:
        raise TargetError("the target has no inputs: a constant needs no transformer; name a variable in its domain")
    box = as_box(domain, graph.input.names)
    _refuse_programs(graph)
    # Numbers beyond the format become infinite bounds, which the kernel refuses by name.
    with np.errstate(over="ignore", invalid="ignore"):
        found = ranges(graph, box)
        _refuse_overflow(graph, found)
        graph = in_layers(without_fixed(graph, found))
        found = linear_ranges(graph, box, ranges(graph, box))
    return Request(graph, box, found, float(error), int(tokens), dtype, max_layers, progress=progress)


def multiplied(request: Request) -> Request:
    """The same request, with whole powers written as products: for neurons and linear attention, which multiply."""
    graph = multiplied_out(request.graph)
    return replace(request, graph=graph, ranges=ranges(graph, request.box))


def with_attention(request: Request, attention: AttentionKind, alone: bool) -> Request:
    """The request for heads of one kind of attention. Raises TargetError where tokens take from each other what this
    attention does not give them."""
    known = BANKS.get(attention, {*NO_MIXING})
    for node in request.graph.nodes:
        wanted = [name for name, kind in (("attend", Attend), ("mean", Pool), ("move", Move)) if isinstance(node, kind)]
        if not known >= {*wanted}:
            raise TargetError(f"there is no head for what tokens take from each other here: {NO_MIXING[wanted[0]]}")
    return replace(request, attention=attention, alone=alone)


def sees_itself_alone(recipe: str, dtype: str, attention: str, mask: str | None, tokens: int) -> bool:
    """Whether data tokens are to see themselves and reference tokens alone. TargetError where the options do not go
    together."""
    if recipe not in RECIPES:
        raise TargetError(f"unknown recipe {recipe!r}; choose one of {', '.join(RECIPES)}")
    if recipe == "swiglu" and dtype in HALVES:
        raise TargetError(f"nothing is proven of neurons in {dtype}: recipe 'swiglu' is for float32 and float64")
    if attention not in ATTENTIONS or (mask is not None and mask not in MASKS):
        wrong, known = ("attention", ATTENTIONS) if attention not in ATTENTIONS else ("mask", MASKS)
        given = attention if wrong == "attention" else mask
        raise TargetError(f"unknown {wrong} {given!r}; choose one of {', '.join(known)}")
    if attention == "softmax":
        if mask == "self+prefix" and recipe == "maxout":
            raise TargetError("recipe 'maxout' has a token for each piece, which must see the others")
        return mask == "self+prefix"
    if recipe not in ("auto", "relu", "native" if attention == "linear" else "relu"):
        raise TargetError(f"recipe {recipe!r} is for softmax attention; under {attention} attention leave it out")
    if tokens > 1 and mask != "self+prefix" and attention in ONE_TOKEN:
        raise TargetError(
            f"{attention} attention is certified for data tokens that see themselves and the prefix alone "
            f"({NOT_AMONG[attention]}): with tokens={tokens}, ask hs.compile for mask='self+prefix'"
        )
    return tokens == 1 or mask == "self+prefix"


def refuse_mask(mask: MaskKind | None, proven: Sequence[str]) -> None:
    """Raise TargetError where a model is proven under other masks than the one that is asked for."""
    if mask is not None and mask not in proven:
        masks = " and ".join(proven)
        raise TargetError(f"nothing can be proven of this model under a {mask} mask: it is proven under {masks}")


def as_graph(target: Target, domain: Any = None) -> Graph:
    """The target as a source graph. The names of a formula's variables are the domain's, where it has names."""
    names = list(domain) if isinstance(domain, Mapping) else None
    match target:
        case Network() | MaxoutNetwork() | Imported():
            return target.graph
        case Graph():
            return target
        case str():
            return formula_graph(target, names)
        case list() | tuple() if target and all(isinstance(each, str) for each in target):
            return formula_graph(list(target), names)
    told = advice(target)
    if told is not None:
        raise TargetError(told)
    if callable(target):
        return graph_of(target, names)
    raise TargetError(
        f"cannot compile a {type(target).__name__}; give a formula (or a list of them), a function, or a "
        "headsmith.Network"
    )


def paired(target: Target, approximates: Target, domain: Any) -> tuple[Graph, Graph, Box]:
    """A network and what it approximates, as graphs with the same inputs and as many outputs, and their domain.

    Inputs are paired by name: the names are those of the domain, where it has others than the network; else the
    network's own, if the formula has no others. A formula of other variables, as many as the network has inputs, and in
    alphabetical order, names the inputs, and so do the parameters of a function.
    """
    network = as_graph(target, domain)
    if mixes(network):
        raise TargetError("what a network approximates is a function of one token: this target mixes tokens")
    names = _names(network.input.names, approximates, domain)
    if len(names) != network.input.size:
        raise TargetError(f"the network has {network.input.size} inputs, and what it approximates {len(names)}")
    wanted = as_graph(approximates, dict.fromkeys(names, (0.0, 1.0)))
    sizes = [graph.nodes[graph.output].size for graph in (network, wanted)]
    if sizes[0] != sizes[1] or wanted.input.size != len(names) or mixes(wanted):
        raise TargetError(
            f"the network has {sizes[0]} outputs of {len(names)} inputs, and what it approximates {sizes[1]} of "
            f"{wanted.input.size}: give one formula for each output"
        )
    _refuse_programs(wanted)
    renamed = [Graph((Input(names), *graph.nodes[1:]), graph.output) for graph in (network, wanted)]
    own = network.input.names
    given = as_box(domain, own if isinstance(domain, Mapping) and {*own} == {*domain} else names)
    box = Box(names, given.low, given.high)
    ranges(renamed[1], box)  # where it is not defined, this says so
    return renamed[0], renamed[1], box


def _names(own: tuple[str, ...], approximates: Target, domain: Any) -> tuple[str, ...]:
    if isinstance(domain, Mapping) and {*own} != {*domain}:
        return tuple(domain)
    if isinstance(approximates, Network | MaxoutNetwork | Imported | Graph):
        return own
    if callable(approximates):
        return names_of(approximates)
    used, _ = parse(approximates)
    if {*used} <= {*own}:
        return own
    if len(used) != len(own) or list(used) != sorted(used):
        raise TargetError(
            f"the inputs of the network are {', '.join(own[:6])}, and the formula has {', '.join(used[:6])}: say which "
            "is which by a domain with names, {'x': (low, high), ...}, in the order of the inputs"
        )
    return used


def _refuse_overflow(graph: Graph, found: Sequence[Interval]) -> None:
    magnitudes = [interval.magnitude for interval in found]
    for number, node in enumerate(graph.nodes):
        if not np.isfinite(magnitudes[number]).all():
            raise UnreachableError(
                f"the values of {describe(graph, number)} may go beyond float64 on this domain: shrink it, or the "
                "weights",
                part="rounding",
                smallest=math.inf,
            )
        largest = max(float(np.max(magnitudes[each], initial=0.0)) for each in (number, *graph.reads[number]))
        if isinstance(node, Approximated) and largest > LARGEST:
            raise UnreachableError(
                f"{describe(graph, number)} meets numbers as large as {largest:.3g} on this domain; heads multiply "
                f"and look up numbers up to {LARGEST:g}: scale the inputs, or shrink the domain",
                part="rounding",
                smallest=math.inf,
            )


def _refuse_programs(graph: Graph) -> None:
    """Raise TargetError for functions that the kernel does not know: nothing can be proved of them from a file."""
    for node in graph.nodes:
        if isinstance(node, Function) and node.name not in KNOWN and node.name != "power":
            raise TargetError(
                f"{node.name} is a function of your own that is given as a program on power series: a file cannot "
                f"hold it, so that nothing could be proved of it. Give it as a formula of known functions, "
                f"hs.function({node.name!r}, 'sin(x)*x'), which is put in where it is called; or sample it, "
                f"hs.approximate(function, domain, error, lipschitz=L)"
            )


def check_error(error: float) -> None:
    """Raise TargetError unless this is an error that one can ask for."""
    if not (isinstance(error, numbers.Real) and np.isfinite(float(error)) and error > 0.0):
        raise TargetError(f"error is {error!r}; it must be a positive finite number")


def check_counts(**numbers: Any) -> None:
    """Raise TargetError unless all of these are positive integers."""
    for name, number in numbers.items():
        if isinstance(number, bool) or not isinstance(number, int | np.integer) or number < 1:
            raise TargetError(f"{name} is {number!r}; it must be a positive integer")


def _check_options(error: float, tokens: int, dtype: str, max_layers: int | None) -> None:
    check_error(error)
    if not isinstance(tokens, numbers.Integral) or tokens < 1:
        raise TargetError(f"tokens is {tokens!r}; it must be a positive integer")
    if tokens > MOST_TOKENS:
        raise TargetError(f"tokens is {tokens}; a sequence has at most {MOST_TOKENS} data tokens")
    if max_layers is not None and (not isinstance(max_layers, int) or max_layers < 1):
        raise TargetError(f"max_layers is {max_layers!r}; it must be a positive integer, or None")
    if dtype not in PRECISIONS:
        raise TargetError(f"unknown dtype {dtype!r}; choose one of {', '.join(PRECISIONS)}")
