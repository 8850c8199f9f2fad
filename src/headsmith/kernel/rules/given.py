"""Rule Given: how far a network that somebody brings, with softmax attention, is from a function.

A file may hold a network N and a function F of the same inputs, a box, an order m and the cells of a tree of halvings.
On each cell all nodes of both are Taylor models (taylor.py, averages.py), and N - F is one, too: what both have in
common cancels before anything is bounded. Nothing says where the cells come from.

Kinks of F. Where F = S + sum over k of c_k max over p of L_kp, with S and L whatever they hold,

    N - F  is one of  N - S - sum c_k L_kp, for some choice of the p's that no other one beats on the whole cell;
    N - F <= N - S - sum c_k sum_p u_kp L_kp  if all c_k >= 0, and >= if all c_k <= 0, for any u_kp >= 0 of sum 1.

The u_kp are those that make the linear part small: then a kink costs the square of the cell's width. All other gates,
of an argument in [low, high], are p z + (between 0 and the larger of -p low and (1 - p) high), p = high / (high - low).
"""

from collections.abc import Collection
from dataclasses import dataclass
from functools import partial
from itertools import product as every
from typing import Any

import numpy as np

from ..core.arithmetic import PRECISIONS, Array, Interval, Precision, Upper, interval, rational
from ..core.errors import refuse
from ..core.functions import run
from ..core.graph import Graph, Node, dense, needed, read_graph
from ..core.reading import Tensors, digest, field, items, real, text, whole
from ..core.table import polynomial_range, read_cells
from .approximates import MOST_CELLS, ends_of, middle_of
from .averages import average
from .runs import rounding_of
from .taylor import Form, affine, basis_of, constant, function, product, settled

KINKS = ("relu", "maximum", "minimum")
KINDS = {"input", "affine", "expression", "average", *KINKS}
MOST_CHOICES, MOST_ORDER, MOST_CLOSER = 16, 10, 64
AT_ONCE, MOST_BATCH, MOST_HELD = 1 << 21, 512, 1 << 26  # numbers that a node holds, cells, and numbers of all nodes


def inputs_on(ends: Interval, order: int) -> Form:
    """The inputs on cells with these ends (inputs, cells): each is an affine form of a coordinate of its own."""
    middle = middle_of(ends)
    radius = (interval(ends.high) - middle).hull(interval(middle) - ends.low).high
    wide = np.flatnonzero((radius > 0.0).any(axis=1))
    basis = basis_of(max(len(wide), 1), order)
    found = np.zeros((len(middle), 1 + len(wide), middle.shape[1]))
    found[:, 0], found[wide, 1 + np.arange(len(wide))] = middle, radius[wide]
    return Form(basis, found, Upper(np.zeros(middle.shape)))


def forms_of(graph: Graph, inputs: Form) -> dict[int, Form]:
    """The nodes that the output needs, on the cells."""
    known = {0: inputs}
    for number in needed(graph, [graph.output]):
        node = graph.nodes[number]
        if node.kind != "input":
            known[number] = _node(node, [known[each] for each in node.arguments], inputs)
    return known


def _node(node: Node, read: list[Form], like: Form) -> Form:
    match node.kind:
        case "affine":
            return affine([dense(each) for each in node.weights], read, node.constants, like)
        case "average":
            return average(read[0], read[1], node.keys, node.size * node.keys // read[0].rest.value.shape[0])
        case "expression":
            return _zero(like, node.size).plus(run(node.program, read, partial(_linear, like), function, product))
        case "relu":
            return _gate(read[0])
        case _:
            # max(a, b) = b + relu(a - b), and min(a, b) = b - relu(b - a).
            sign, found = 1.0 if node.kind == "maximum" else -1.0, read[0]
            for other in read[1:]:
                found = other.plus(_gate(_scaled(found.plus(other, -1.0), sign)), sign)
            return found


def _scaled(form: Form, sign: float) -> Form:
    return Form(form.basis, sign * form.coefficients, form.rest)


def _gate(form: Form) -> Form:
    reach = form.reach
    low, high = reach.low, reach.high
    share = np.where(low >= 0.0, 1.0, np.where(high <= 0.0, 0.0, high / (high - low)))
    share = np.where(np.isfinite(share), share, 0.0)
    most = np.maximum((interval(-low) * share).high, ((interval(1.0) - share) * high).high)
    slack = constant(form.basis, Interval(np.zeros_like(most), np.maximum(most, 0.0)))
    found = _zero(form, len(low)).plus(form, share).plus(slack)
    return settled(found, reach.relu())


def _linear(like: Form, terms: list[tuple[Any, Form]], number: Any) -> Form:
    cells = like.rest.value.shape[-1]
    found = constant(like.basis, rational(number) + np.zeros((1, cells)))
    for coefficient, form in terms:
        near = rational(coefficient)
        found = found.plus(form, near.low)
        found = Form(found.basis, found.coefficients, found.rest + (form.size + form.rest) * near.width)
    return found


def _zero(like: Form, size: int) -> Form:
    return constant(like.basis, interval(np.zeros((size, like.rest.value.shape[-1]))))


# The difference -----------------------------------------------------------------------------------------------------


def difference(network: Graph, wanted: Graph, inputs: Form, ours: dict[int, Form]) -> Interval:
    """Bounds of N - F, from the Taylor models of N."""
    theirs = forms_of(wanted, inputs)
    mine, other = ours[network.output], theirs[wanted.output]
    found = range_of(mine.plus(other, -1.0))
    smooth, kinks = kinks_of(wanted, theirs)
    if kinks:
        found = found.meet(_with_kinks(mine.plus(smooth, -1.0), kinks))
    finite = [np.isfinite(form.rest.value).all(axis=0) for forms in (ours, theirs) for form in forms.values()]
    return found.where(np.all(finite, axis=0))


def range_of(form: Form) -> Interval:
    """Where a form lies on the cells: of a t + b t^2 exactly for each variable, of all other terms by their sizes."""
    held = form.grown(max(form.coefficients.shape[-2], form.basis.starts[3]))
    exponents = form.basis.exponents[: held.shape[-2]]
    return polynomial_range(interval(np.moveaxis(held, -2, -1)), exponents).widened(form.rest)


@dataclass(frozen=True, eq=False)
class Kink:
    """`factors` (outputs,) times the largest of `pieces`, forms of one component."""

    factors: Array
    pieces: tuple[Form, ...]


def kinks_of(graph: Graph, known: dict[int, Form]) -> tuple[Form, list[Kink]]:
    """The output as S and kinks that it reads by sums alone, with exact factors; others stay what they are in S."""
    like, output = known[0], graph.output
    slopes = {output: interval(np.eye(graph.nodes[output].size))}
    for number in sorted(known, reverse=True):
        node = graph.nodes[number]
        if number in slopes and node.kind == "affine":
            for weights, read in zip(node.weights, node.arguments, strict=True):
                more = (dense(weights).T @ slopes[number].mapped(np.transpose)).mapped(np.transpose)
                slopes[read] = slopes[read] + more if read in slopes else more
    ends = [number for number in slopes if graph.nodes[number].kind != "affine"]
    inner = {each for end in ends for each in needed(graph, graph.nodes[end].arguments)}
    kinks, held, choices = list[Kink](), {**known}, 1
    for number in ends:
        node, slope = graph.nodes[number], slopes[number]
        if node.kind not in KINKS or number in inner or not np.array_equal(slope.low, slope.high):
            continue
        sign, used = -1.0 if node.kind == "minimum" else 1.0, np.flatnonzero(slope.low.any(axis=0))
        terms = [known[each] for each in node.arguments] + [_zero(like, node.size)] * (node.kind == "relu")
        choices *= len(terms) ** len(used)
        if choices > MOST_CHOICES:
            break
        kinks += [Kink(sign * slope.low[:, c], tuple(_scaled(each[[c]], sign) for each in terms)) for c in used]
        held[number] = _zero(like, node.size)
    for number in sorted(slopes):
        node = graph.nodes[number]
        if node.kind == "affine":
            held[number] = _node(node, [held[each] for each in node.arguments], like)
    return held[output], kinks


def _with_kinks(rest: Form, kinks: list[Kink]) -> Interval:
    """Bounds of rest - sum of kinks."""
    cells = rest.rest.value.shape[-1]
    alive = []
    for kink in kinks:
        below = [[range_of(mine.plus(other, -1.0)).high[0] < 0.0 for other in kink.pieces] for mine in kink.pieces]
        alive.append([~np.any(each, axis=0) for each in below])
    low, high = np.full(rest.rest.value.shape, np.inf), np.full(rest.rest.value.shape, -np.inf)
    for choice in every(*(range(len(kink.pieces)) for kink in kinks)):
        gap, there = rest, np.ones(cells, dtype=bool)
        for kink, mine, chosen in zip(kinks, alive, choice, strict=True):
            gap, there = gap.plus(kink.pieces[chosen], -kink.factors[:, None]), there & mine[chosen]
        reach = range_of(gap)
        low = np.where(there, np.minimum(low, reach.low), low)  # what is no number stays so
        high = np.where(there, np.maximum(high, reach.high), high)
    mixed = rest
    for kink, shares in zip(kinks, _shares(rest, kinks), strict=True):
        total, largest = np.abs(1.0 - shares.sum(axis=0)) + 2.0**-50, Upper(np.zeros(cells))
        for share, piece in zip(shares, kink.pieces, strict=True):
            mixed = mixed.plus(piece, -kink.factors[:, None] * share)
            largest = Upper(np.maximum(largest.value, (piece.size + piece.rest).value[0]))
        # Doubles that are no exact shares: what is missing of 1, or too much, and what products of factors round.
        mixed = Form(mixed.basis, mixed.coefficients, mixed.rest + largest * np.abs(kink.factors)[:, None] * total)
    reach, factors = range_of(mixed), np.stack([kink.factors for kink in kinks])
    above, below = np.all(factors >= 0.0, axis=0)[:, None], np.all(factors <= 0.0, axis=0)[:, None]
    return Interval(np.where(below, np.fmax(low, reach.low), low), np.where(above, np.fmin(high, reach.high), high))


def _shares(rest: Form, kinks: list[Kink]) -> list[Array]:
    """For each kink shares (pieces, outputs, cells) that make the linear part of rest - sum of kinks small. Data."""
    whole, lines = rest.basis.starts[-1], slice(1, rest.basis.starts[2])
    gap = rest.grown(whole)[:, lines].copy()
    pieces = [np.concatenate([piece.grown(whole)[:, lines] for piece in kink.pieces]) for kink in kinks]
    found = [np.zeros((len(each), len(gap), gap.shape[-1])) for each in pieces]
    for share, kink, lead in zip(found, kinks, pieces, strict=True):
        share[0] = 1.0
        gap -= kink.factors[:, None, None] * lead[0]
    for _ in range(4):
        for share, kink, lead in zip(found, kinks, pieces, strict=True):
            for place in range(len(lead)):
                now = (share[:, :, None] * lead[:, None]).sum(axis=0)
                step = kink.factors[:, None, None] * (lead[place] - now)
                length = (step * step).sum(axis=1)
                move = np.clip(np.where(length > 0.0, (gap * step).sum(axis=1) / length, 0.0), 0.0, 1.0)
                gap -= move[:, None] * step
                share *= 1.0 - move
                share[place] += move
    return [np.nan_to_num(each) for each in found]


# The statement ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Statement:
    """For every input in the domain and every output: |run(network, x) - function(x)| <= error, `run` in floating point
    of `dtype` (runs.py says what is assumed of it), and the function in exact arithmetic. `parts` belong to the worst
    output and add up to the error; `outputs` has a bound for each.
    `network` and `function` are digests of what was compared (reading.digest)."""

    error: float
    parts: dict[str, float]
    outputs: tuple[float, ...]
    dtype: str
    domain: tuple[tuple[str, float, float], ...]
    order: int
    cells: int
    network: str
    function: str


def check_given(header: Any, tensors: Tensors) -> Statement:
    """What a file proves of a network that somebody gave. Raises Refused where it proves nothing."""
    stored, domain = field(header, "given"), field(header, "domain")
    network, wanted = (read_graph(field(stored, name), tensors) for name in ("network", "function"))
    kinds = {node.kind for graph in (network, wanted) for node in graph.nodes}
    refuse(not kinds <= KINDS, f"there is no rule for {', '.join(sorted(kinds - KINDS))} in a given network")
    inputs = [graph.nodes[0].names for graph in (network, wanted)]
    sizes = [graph.nodes[graph.output].size for graph in (network, wanted)]
    refuse(inputs[0] != inputs[1] or sizes[0] != sizes[1], "a network lacks the inputs and outputs of its function")
    low, high = ([real(end) for end in items(field(domain, name))] for name in ("low", "high"))
    refuse(not len(low) == len(high) == len(inputs[0]), "the domain does not have an interval for each input")
    refuse(any(a > b for a, b in zip(low, high, strict=True)), "the domain has an empty interval")
    box, order = Interval(np.array(low), np.array(high)), whole(field(stored, "order"), 2, MOST_ORDER)
    dtype = text(field(stored, "dtype"))
    refuse(dtype not in ("float64", "float32"), f"there is no rule for a given network in {dtype}")
    wide = int(np.sum(box.high > box.low))
    cells, runs = (ends_of(box, read_cells(text(field(stored, each)), wide, MOST_CELLS)) for each in ("cells", "runs"))
    gap = gap_on(network, wanted, box, cells, order)
    closer = {whole(each) for each in items(field(stored, "closer"), MOST_CLOSER)}
    rounding = rounding_on(network, box, runs, PRECISIONS[dtype], closer)
    total = gap + rounding
    refuse(not np.isfinite(total.value).all(), "no finite bound of the network against the function, on these cells")
    worst, about = int(np.argmax(total.value)), tuple(zip(inputs[0], low, high, strict=True))
    parts = {"difference": float(gap.value[worst]), "rounding": float(rounding.value[worst])}
    names = (digest(field(stored, each), tensors) for each in ("network", "function"))
    error, outputs, count = float(total.value[worst]), tuple(total.value.tolist()), cells.low.shape[1]
    return Statement(error, parts, outputs, dtype, about, order, count, *names)


def gap_on(network: Graph, wanted: Graph, box: Interval, ends: Interval, order: int) -> Upper:
    """For each output a bound of |N - F| on cells of a box."""
    found, batch = np.zeros(network.nodes[network.output].size), batch_of(network, wanted, box, order)
    for at in range(0, ends.low.shape[1], batch):
        inputs = inputs_on(ends[:, at : at + batch], order)
        gap = difference(network, wanted, inputs, forms_of(network, inputs)).magnitude
        found = np.maximum(found, gap.value.max(axis=1))
    return Upper(found)


def rounding_on(network: Graph, box: Interval, ends: Interval, precision: Precision, closer: Collection[int]) -> Upper:
    """For each output a bound of how far a run of N is from N, on cells of a box."""
    found, batch = np.zeros(network.nodes[network.output].size), batch_of(network, network, box, 2)
    for at in range(0, ends.low.shape[1], batch):
        forms = forms_of(network, inputs_on(ends[:, at : at + batch], 2))
        found = np.maximum(found, rounding_of(network, forms, precision, closer).value.max(axis=1))
    return Upper(found)


def batch_of(network: Graph, wanted: Graph, box: Interval, order: int) -> int:
    """How many cells are looked at at once."""
    monomials = len(basis_of(max(int(np.sum(box.high > box.low)), 1), order).exponents)
    held = [node.size * max(node.keys, 1) for graph in (network, wanted) for node in graph.nodes]
    refuse(monomials * sum(held) > MOST_HELD, "the Taylor models of the network are too large to be compared")
    return int(min(max(AT_ONCE // (monomials * max(held)), 1), MOST_BATCH))
