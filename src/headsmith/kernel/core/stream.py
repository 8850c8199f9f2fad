"""What the registers hold on the data tokens while the layers are walked, and how well that is known.

Read.  A register is an affine form of the input and of what heads compute: sum of M_n v_n + constant, over circuit
nodes n that are the input, positional constants, or have heads. It follows from the stored weights alone: the embedding
adds weights times the input, every head adds its weights times the node that it stands for. What a bank reads is
compared with the form of the circuit node that it should read; the difference is its `deviation`, an error like any
other. Matrices are intervals, points where no number was rounded.

Account.  A register is a sum: its initial value, the embedding's products, the products that heads write. In floating
point, in any order, each product is off by u of itself, and each of the additions by u of the sum that it returns: a
sum of some of the terms (adding zero is exact). The additions of k terms, in any order, are the inner nodes of a binary
tree, of which at most k - s + 1 have s leaves or more; so that their results add up to at most M_2 + ... + M_k, if M_s
bounds the sum of any s terms: that of the s largest that can be positive, or of the s largest that can be negative.
What was rounded before enlarges these sums by gamma_k of all sizes, and a term that underflows loses at most a smallest
normal number. On reference
tokens it should be zero; `drift` bounds what arrives there.

Clear.  A head that looks at its own token alone returns what it reads, X, up to e. Where X is a register as it is, and
the head adds -1 times that to the same register, the register afterwards holds -e and what other heads add in that
layer: its form starts anew, and so does its account. What it held, and how far that was off, has gone, both being the
same number in X and in what is returned. Only the sum of the layer, in any order, also has the terms X and X + e: their
share of its rounding, and e, are what is `left`. (A head that adds something else to other registers carries the form
that it reads along, and how far it is off.) The sink's head looks at the sink alone, where X is what has drifted there;
any other reference token looks at the sink, too, and what drifted there does not cancel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter, neg
from typing import Any

import numpy as np

from .arithmetic import FLOAT64, Array, Interval, Precision, Upper, Weights, interval, joined, largest, smallest
from .errors import refuse
from .graph import Graph, dense
from .model import RESERVED, Bank, Link, Model
from .softmax import Local
from .sparse import Sparse, added, entries_of, entrywise, multiplied, parts_of, sparse_of, summed

CONSTANT = -1  # the number of what is 1 at every token

# Nodes, each with the matrix that multiplies it: an interval matrix, a sparse one of intervals, or a vector for a
# diagonal one.
Part = Any
Form = Mapping[int, Part]


@dataclass(frozen=True, eq=False)
class Register:
    """The form of a register; a bound of the sum of absolute values of its terms, of the sum of any of them, and of all
    that is rounded, added up: the sums that additions return, and products twice; how many terms there are, a bound of
    its value on reference tokens, and of what is left of what it held before; of formats that hold fewer bits, a bound
    of all that was held, added up, and how often that was."""

    form: Form
    magnitude: Upper
    most: Upper
    rounded: Upper
    count: Array
    drift: Upper
    left: Upper
    kept: Upper
    often: Array

    def off(self, precision: Precision) -> Upper:
        """How far the register is from its form."""
        gamma, tiny = precision.gamma(self.count + 2, self.often), precision.smallest_normal
        rounded = self.rounded * precision.unit_roundoff + self.kept * precision.held
        return rounded + gamma * gamma * self.magnitude + (self.count + self.often + 1.0) * tiny + self.left

    def plus(self, form: Form, weights: Weights, outputs: Interval, fine: bool) -> Register:
        """With more terms: weights times outputs, which are added to the form already. M_s is taken to be the largest
        of all unless `fine` (and rows are about as long as each other); of old and new terms together, to be no more
        than both."""
        count, most = _terms(weights), (weights @ outputs).magnitude
        sums = most * np.maximum(count - 1.0, 0.0)
        even = not isinstance(weights, Sparse) or len(weights) * weights.most <= 8 * weights.size
        if fine and weights.ndim == 2 and even:
            terms, columns = weights.packed() if isinstance(weights, Sparse) else (weights, slice(None))
            above, below = Upper(outputs.high[columns]), Upper(-outputs.low[columns])
            rising, falling = np.maximum(terms, 0.0), np.maximum(-terms, 0.0)
            each = Upper(rising) * above + Upper(falling) * below, Upper(rising) * below + Upper(falling) * above
            ordered = [Upper(-np.sort(-side.value, axis=1)).running() for side in each]
            sums = (largest(*ordered)[:, 1:] * (np.arange(1, terms.shape[1]) < count[:, None])).sum()
        size, exact = weights @ outputs.magnitude, _fine(entries_of(weights))
        rounding = entrywise(weights, lambda each: np.where(exact, 0.0, each)) if exact.any() else weights
        products = rounding @ outputs.magnitude if exact.any() else size
        rounded = self.rounded + self.most * count + sums + most * self.count + products * 2.0
        # What is added is held, and so is the register after that.
        kept, often = self.kept + (self.most * np.sign(count) + most + most), self.often + 2.0 * np.sign(count)
        found = replace(self, form=form, magnitude=self.magnitude + size, rounded=rounded, kept=kept, often=often)
        return replace(found, most=self.most + most, count=self.count + count)


Stream = Mapping[str, Register]


def constant(values: Array) -> Form:
    """The form without nodes."""
    return {CONSTANT: interval(values[:, None])}


def basis(node: int, size: int) -> Form:
    """The form that is a node."""
    return {node: interval(np.ones(size))}


def image(weights: Weights, form: Form) -> Form:
    """weights @ form."""
    return {node: _product(weights, part) for node, part in form.items()}


def _product(weights: Weights, part: Part) -> Part:
    diagonal = not isinstance(part, Sparse) and part.low.ndim == 1
    if diagonal and _is_point(part) and np.all(part.low == 1.0):
        return entrywise(weights, interval)
    if weights.ndim == 1 and np.all(weights == 1.0):
        return part
    if diagonal and isinstance(weights, Sparse):
        left = weights.kept(part.magnitude.value[weights.columns] != 0.0)
        plain = _is_point(part) and np.isin(part.low, (0.0, 1.0)).all()
        return left.changed(interval if plain else lambda values: part[left.columns] * values)
    if isinstance(part, Sparse) and weights.ndim == 1:
        right = part.kept(weights[part.rows] != 0.0)
        return right.changed(lambda values: values * weights[right.rows])
    if isinstance(part, Sparse):
        return multiplied(sparse_of(weights), part, joined)
    return part * weights if diagonal else weights @ part


def _is_point(part: Part) -> bool:
    ends = entries_of(part)
    return ends.low is ends.high or np.array_equal(ends.low, ends.high)


def _scattered(part: Part) -> Part:
    """A part that is not diagonal as it is; a diagonal one by its entries, of which one end differs from zero."""
    if isinstance(part, Sparse) or part.low.ndim == 2:
        return part
    ends = sparse_of(part.magnitude.value)
    return Sparse(ends.shape, ends.rows, ends.columns, part[ends.rows])


def _written_out(part: Part) -> Interval:
    if isinstance(part, Sparse):
        return Interval(*(part.changed(attrgetter(end)).written() for end in ("low", "high")))
    found: Interval = part.mapped(dense)
    return found


def _alike(parts: list[Part]) -> list[Part]:
    """Parts as matrices if one of them is, else sparse if one of them is, else diagonal as they are."""
    if any(not isinstance(part, Sparse) and part.low.ndim == 2 for part in parts):
        return [_written_out(part) for part in parts]
    return [_scattered(part) for part in parts] if any(isinstance(part, Sparse) for part in parts) else parts


def _sum(left: Part, right: Part) -> Part:
    first, second = _alike([left, right])
    return added([first, second], joined) if isinstance(first, Sparse) else first + second


def plus(left: Form, right: Form) -> Form:
    """The sum of two forms."""
    parts = dict(left)
    for node, part in right.items():
        parts[node] = _sum(parts[node], part) if node in parts else part
    return parts


def rows_of(form: Form, rows: Any) -> Form:
    """Some rows of a form."""
    first = np.array_equal(rows, np.arange(len(rows)))
    return {n: part if first and len(rows) == _height(part) else _scattered(part)[rows] for n, part in form.items()}


def _height(part: Part) -> int:
    return len(part) if isinstance(part, Sparse) else len(part.low)


def _tall(first: int, rows: int, array: Array) -> Array:
    """An array at rows first, first + 1, ... of a taller one that is zero elsewhere."""
    tall = np.zeros((rows, *array.shape[1:]))
    tall[first : first + len(array)] = array
    return tall


def _placed(part: Part, first: int, rows: int) -> Part:
    """The same for a part; a diagonal one does not stay so."""
    found = _scattered(part)
    if isinstance(found, Sparse):
        return Sparse((rows, found.shape[1]), found.rows + first, found.columns, found.values)
    return found.mapped(partial(_tall, first, rows))


def difference(left: Form, right: Form, rows: int, magnitudes: Mapping[int, Upper]) -> Upper:
    """A bound of |left - right|, row by row, for nodes within their magnitudes; infinite where a node that nobody has
    computed yet matters."""
    total = Upper(np.zeros(rows))
    for node in left.keys() | right.keys():
        parts = _alike([form[node] for form in (left, right) if node in form])
        ends = [parts_of(entrywise(part, attrgetter("low"))) for part in parts]
        if len(parts) == 1 or not all(map(_is_point, parts)) or not all(map(np.array_equal, *ends)):
            gap = _sum(parts[0], entrywise(parts[1], neg)) if len(parts) > 1 else parts[0]
            sizes = entrywise(gap, lambda values: values.magnitude.value)
            total = total + sizes @ magnitudes.get(node, Upper(np.full(sizes.shape[-1], np.inf)))
    return total


# The walk -----------------------------------------------------------------------------------------------------------


def start(model: Model, circuit: Graph, inputs: Interval) -> dict[str, Register]:
    """The registers before the first layer, for inputs that lie around zero, within `inputs`."""
    stream = {}
    for name, size in model.sizes.items():
        values = model.initial.get(name, np.zeros(size))
        form, sizes = constant(values), np.abs(values)
        if name in RESERVED:
            form, sizes = constant(np.ones(size)), np.ones(size)
        if name in model.positional:
            form, sizes = _positional(circuit, model.positional[name]), np.abs(model.positional[name]).max(axis=0)
        zero, held = Upper(np.zeros(size)), Upper(sizes)
        stream[name] = Register(form, held, held, zero, np.sign(sizes), zero, zero, zero, zero.value)
    role, fine = (np.zeros(model.inputs, dtype=np.int64), np.arange(model.inputs)), model.precision is not FLOAT64
    for link in model.embedding:
        stream[link.register] = _written(stream[link.register], link, circuit, role, inputs, fine)
    return stream


def _positional(circuit: Graph, table: Array) -> Form:
    """The first circuit node with these constants, up to the rounding of a format; else the hull of what it holds."""
    for number, node in enumerate(circuit.nodes):
        if node.kind == "positional" and node.constants.shape == table.shape:
            off = (interval(table) - node.constants).magnitude.value.max(axis=0)
            if np.all(off <= 1e-6 * np.abs(node.constants).max(axis=0)):
                return {**basis(number, node.size), CONSTANT: Interval(-off, off)[:, None]}
    return {CONSTANT: interval(table).over(0)[:, None]}


def write(stream: Stream, bank: Bank, circuit: Graph, outputs: Interval, spilled: Upper, fine: bool) -> Stream:
    """The registers after the heads of a bank have added their outputs, which lie around zero: within `outputs` on data
    tokens and `spilled` on reference tokens. Rounding is looked at closely if `fine`."""
    after = dict(stream)
    for link in bank.write:
        written = _written(after[link.register], link, circuit, (bank.node, bank.component), outputs, fine)
        if bank.kind == "swiglu":  # as two terms, each of which may be all of it (swiglu.py)
            written = written.plus(written.form, link.weights, outputs[link.columns], fine)
        after[link.register] = replace(written, drift=written.drift + link.weights @ spilled[link.columns])
    return after


def copy(stream: Stream, layer: Sequence[Bank], bank: Bank, local: Local, model: Model) -> Stream:
    """Rule Clear: the registers after the heads of a bank have added what they read, before the others of the layer."""
    refuse(sum(each.copies for each in layer) > 1, "two banks of a layer stand for what they read")
    after, off, alone = dict(stream), local.leak + local.rounding, model.references == model.sink_tokens
    for link in sorted(bank.write, key=lambda each: not _cancels(each, bank)):
        register, mine, spilled = after[link.register], link.columns, local.spilled[link.columns]
        if register is stream[link.register] and _cancels(link, bank):
            others = [each for other in layer for each in other.write if each.register == link.register]
            terms = 4 + sum(int(_terms(each.weights).max()) for each in others)
            gone = register.magnitude + register.off(model.precision) + local.reach[mine]
            left = off[mine] + model.precision.gamma(terms) * gone + terms * model.precision.smallest_normal
            drift = spilled - register.drift.value if alone else register.drift + spilled
            drift = drift + model.precision.gamma(terms) * (register.drift + spilled)
            form, two = constant(np.zeros(len(link.weights))), np.full(len(link.weights), 2.0)
            after[link.register] = Register(form, left, left, left * 3.0, two, drift, left, left, two)
            continue
        links = [each for each in bank.read if _meets(each.rows, mine)]
        form = image(link.weights, read(stream, links, np.arange(mine.start, mine.stop)))
        stored, *_ = read_bounds(stream, links, bank.forms, model.precision)
        outputs = Interval(-local.reach[mine].value, local.reach[mine].value)
        added = register.plus(plus(register.form, form), link.weights, outputs, False)
        drift, left = register.drift + link.weights @ spilled, register.left + link.weights @ (off + stored)[mine]
        after[link.register] = replace(added, drift=drift, left=left)
    return after


def _meets(left: slice, right: slice) -> bool:
    return bool(left.start < right.stop and right.start < left.stop)


def _cancels(link: Link, bank: Bank) -> bool:
    """Whether a bank adds -1 times what a register holds to the register itself."""
    links = [each for each in bank.read if _meets(each.rows, link.columns)]
    same = [(each.register, each.first, each.weights.ndim) for each in links] == [(link.register, link.first, 1)]
    return same and link.weights.ndim == 1 and bool(np.all(link.weights == -1.0) and np.all(links[0].weights == 1.0))


def _written(register: Register, link: Link, circuit: Graph, role: Any, outputs: Interval, fine: bool) -> Register:
    form, (nodes, components) = register.form, (each[link.columns] for each in role)
    for number in np.unique(nodes).tolist():
        mine, size, weights = np.flatnonzero(nodes == number), circuit.nodes[number].size, link.weights
        if not np.array_equal(components[mine], np.arange(size)) or len(mine) < len(nodes):
            weights = _renumbered(link.weights, np.where(nodes == number, components, -1), size)
        form = plus(form, image(weights, basis(number, size)))
    return register.plus(form, link.weights, outputs[link.columns], fine)


def _renumbered(weights: Weights, places: Any, width: int) -> Weights:
    """Weights whose column k is column places[k] of a matrix of this width; -1 stands for nowhere."""
    if weights.ndim == 1 or isinstance(weights, Sparse):
        rest = sparse_of(weights)
        rest = rest.kept(places[rest.columns] >= 0)
        return summed((len(weights), width), rest.rows, places[rest.columns], rest.values)
    found = np.zeros((len(weights), width))
    found[:, places[places >= 0]] = weights[:, places >= 0]
    return found


def read(stream: Stream, links: Sequence[Link], rows: Any) -> Form:
    """What is read through links into these rows, whose numbers rise."""
    total: Form = {}
    for link in links:
        start, stop = np.searchsorted(rows, [link.rows.start, link.rows.stop]).tolist()
        if start == stop:
            continue
        picked = rows[start:stop] - link.first
        weights = link.weights if len(picked) == len(link.weights) else sparse_of(link.weights)[picked]
        for node, part in image(weights, stream[link.register].form).items():
            total = plus(total, {node: part if _height(part) == len(rows) else _placed(part, start, len(rows))})
    return total


def read_bounds(
    stream: Stream, links: Sequence[Link], rows: int, precision: Precision, known: Upper | None = None, scale: Any = 1.0
) -> tuple[Upper, Upper, Upper, Upper]:
    """Of the forms that links read, by their weights and by the same times a scale: how far registers are off, the
    rounding of the read itself, the sum of the absolute values that are added, and what is read on reference tokens.
    `known` may bound what is read, but for what registers are off by: a single product is rounded relatively to what it
    is, and not to the terms of its register."""
    tiny = precision.smallest_normal
    stored, sizes, drift = (Upper(np.zeros(rows)) for _ in range(3))
    terms, copied, columns = np.zeros(rows), np.ones(rows, dtype=bool), 0
    for link in links:
        register, place = stream[link.register], partial(_tall, link.first, rows)
        each = register.off(precision)
        stored = stored + place((link.weights @ each).value)
        sizes = sizes + place((link.weights @ (register.magnitude + each)).value)
        away = register.drift + precision.gamma(register.count + 2, register.often) * register.drift
        away = away + (register.count + register.often) * tiny
        drift = drift + place((link.weights @ Upper(np.where(register.drift.value > 0.0, away.value, 0.0))).value)
        terms[link.rows] += _terms(link.weights)
        copied[link.rows] &= _terms(entrywise(link.weights, lambda each: ~_fine(each))) == 0
        columns += link.weights.shape[-1]
    # One number times a power of two is read as it is. Several are only added up, and two are rounded as their sum is.
    as_is, added = precision.exact & copied & (terms <= 1), precision.exact & copied & _fine(scale)
    share = precision.gamma(np.where(as_is, 0.0, np.where(added, terms - 1.0, terms + 2.0)), 0)
    reached, held = stored + (sizes if known is None else known), np.where(as_is, 0.0, precision.held)
    read = share * smallest(sizes, np.where(terms <= 1 + added, reached.value, np.inf)) + (columns + 1.0) * tiny
    # Weights times a scale are stored as one number each; that of a single product counts with its score.
    products = sizes * np.where((terms <= 1) | _fine(scale), 0.0, precision.held)
    return stored, read + (reached + read) * held + products, sizes, drift + precision.gamma(terms + 2) * drift


def _terms(weights: Weights) -> Any:
    """How many weights of each row are not zero."""
    if isinstance(weights, Sparse):
        return weights.kept(weights.values != 0.0).counts
    return (weights != 0.0).reshape(len(weights), -1).sum(axis=1)


def _fine(weights: Array | float) -> Any:
    """Which weights are zero or powers of two, of an ordinary size: products with them are exact."""
    sizes = np.abs(weights)  # of a double, 12 bits are its sign and exponent; the others are zero for powers of two
    return (sizes.view(np.int64) << 12 == 0) & ((sizes == 0.0) | ((sizes >= 2.0**-20) & (sizes <= 2.0**20)))
