"""What the registers hold on the data tokens while the layers are walked, and how well that is known.

Read.  A register is an affine form of the input and of what heads compute: sum of M_n v_n + constant, over circuit
nodes n that are the input, positional constants, or have heads. It follows from the stored weights alone: the embedding
adds weights times the input, every head adds its weights times the node that it stands for. What a bank reads is
compared with the form of the circuit node that it should read; the difference is its `deviation`, an error like any
other. Matrices are intervals, points where no number was rounded.

Account.  A register is a sum: its initial value, the embedding's products, the products that heads write. In floating
point, in any order, that sum is off by at most gamma_k times the sum of absolute values, k the number of terms whose
weights are not zero (adding zero is exact), and loses at most a smallest normal number for each term. On reference
tokens it should be zero; `drift` bounds what arrives there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .arithmetic import Array, Interval, Precision, Upper, interval
from .errors import Refused
from .graph import Graph, dense
from .model import DATA, RESERVED, Bank, Link, Model


@dataclass(frozen=True, eq=False)
class Form:
    """sum over nodes of parts[node] @ node + constant; a part is an interval matrix, or a vector for a diagonal one."""

    parts: Mapping[int, Interval]
    constant: Interval


@dataclass(frozen=True, eq=False)
class Register:
    """The form of a register; a bound of the sum of absolute values of its terms, how many terms there are, and a bound
    of its value on reference tokens."""

    form: Form
    magnitude: Upper
    count: int
    drift: Upper


Stream = Mapping[str, Register]


def constant(values: Any) -> Form:
    """The form without nodes."""
    return Form({}, interval(values))


def basis(node: int, size: int) -> Form:
    """The form that is a node."""
    return Form({node: interval(np.ones(size))}, interval(np.zeros(size)))


def image(weights: Array, form: Form) -> Form:
    """weights @ form."""
    parts = {node: _product(weights, part) for node, part in form.parts.items()}
    return Form(parts, weights @ form.constant)


def _product(weights: Array, part: Interval) -> Interval:
    if part.low.ndim == 1 and _is_point(part) and np.all(part.low == 1.0):
        return interval(weights)
    if weights.ndim == 1 and np.all(weights == 1.0):
        return part
    if part.low.ndim == 1:
        return part * weights
    return weights @ part


def _is_point(part: Interval) -> bool:
    return part.low is part.high or np.array_equal(part.low, part.high)


def plus(left: Form, right: Form) -> Form:
    """The sum of two forms."""
    parts = dict(left.parts)
    for node, part in right.parts.items():
        if node in parts and parts[node].low.ndim != part.low.ndim:
            parts[node], part = (Interval(dense(each.low), dense(each.high)) for each in (parts[node], part))
        parts[node] = parts[node] + part if node in parts else part
    return Form(parts, left.constant + right.constant)


def rows_of(form: Form, rows: Any) -> Form:
    """Some rows of a form."""
    if np.array_equal(rows, np.arange(len(form.constant.low))):
        return form
    parts = {
        node: Interval(dense(part.low)[rows], dense(part.high)[rows]) if part.low.ndim == 1 else part[rows]
        for node, part in form.parts.items()
    }
    return Form(parts, form.constant[rows])


def _placed(form: Form, first: int, rows: int) -> Form:
    """The form at rows first, first + 1, ... of a taller one that is zero elsewhere."""
    size = len(form.constant.low)
    if size == rows:
        return form
    parts = {
        node: Interval(*(_tall(dense(end), first, rows) for end in (part.low, part.high)))
        for node, part in form.parts.items()
    }
    ends = (form.constant.low, form.constant.high)
    return Form(parts, Interval(*(_tall(end, first, rows) for end in ends)))


def _tall(array: Array, first: int, rows: int) -> Array:
    tall = np.zeros((rows, *array.shape[1:]))
    tall[first : first + len(array)] = array
    return tall


def difference(left: Form, right: Form, magnitudes: Mapping[int, Upper]) -> Upper:
    """A bound of |left - right|, row by row, for nodes within their magnitudes; infinite where a node that nobody has
    computed yet matters."""
    total = (left.constant - right.constant).magnitude
    for node in left.parts.keys() | right.parts.keys():
        pair = [form.parts.get(node) for form in (left, right)]
        gap = _gap(*pair)
        if gap is None:
            continue
        if node not in magnitudes:
            touched = gap.value != 0.0 if gap.value.ndim == 1 else (gap.value != 0.0).any(axis=1)
            total = total + np.where(touched, np.inf, 0.0)
        else:
            total = total + gap.value @ magnitudes[node]
    return total


def _gap(left: Interval | None, right: Interval | None) -> Upper | None:
    """A bound of the difference of two parts, entry by entry; None where they are equal."""
    if left is None or right is None:
        only = left if left is not None else right
        assert only is not None
        return only.magnitude
    if left.low.ndim != right.low.ndim:
        left, right = (Interval(dense(each.low), dense(each.high)) for each in (left, right))
    if _is_point(left) and _is_point(right) and (left.low is right.low or np.array_equal(left.low, right.low)):
        return None
    return (left - right).magnitude


# The walk -----------------------------------------------------------------------------------------------------------


def start(model: Model, circuit: Graph, inputs: Upper) -> dict[str, Register]:
    """The registers before the first layer; `inputs` bounds the absolute values of the inputs."""
    stream = {}
    for name, size in model.sizes.items():
        values = model.initial.get(name, np.zeros(size))
        form, sizes = constant(values), np.abs(values)
        if name in RESERVED:
            form, sizes = constant(np.ones(size)), np.ones(size)
        if name in model.positional:
            form, sizes = _positional(circuit, model.positional[name]), np.abs(model.positional[name]).max(axis=0)
        stream[name] = Register(form, Upper(sizes), 1, Upper(np.zeros(size)))
    if DATA in stream and len(stream[DATA].form.constant.low) != 1:
        raise Refused("the register of data tokens has one column")
    for link in model.embedding:
        node = np.zeros(model.inputs, dtype=np.int64)
        stream[link.register] = _written(stream[link.register], link, circuit, node, np.arange(model.inputs), inputs)
    return stream


def _positional(circuit: Graph, table: Array) -> Form:
    """The first circuit node with these constants, up to the rounding of a format; else the hull of what it holds."""
    for number, node in enumerate(circuit.nodes):
        if node.kind == "positional" and node.constants.shape == table.shape:
            off = (interval(table) - node.constants).magnitude.value.max(axis=0)
            if np.all(off <= 1e-6 * np.abs(node.constants).max(axis=0)):
                return Form(basis(number, node.size).parts, Interval(-off, off))
    return Form({}, Interval(table.min(axis=0), table.max(axis=0)))


def write(stream: Stream, bank: Bank, circuit: Graph, magnitude: Upper, spilled: Upper) -> dict[str, Register]:
    """The registers after the heads of a bank have added their outputs, of at most `magnitude` on data tokens and
    `spilled` on reference tokens."""
    after = dict(stream)
    for link in bank.write:
        written = _written(after[link.register], link, circuit, bank.node, bank.component, magnitude)
        drift = written.drift + link.weights @ spilled[link.columns]
        after[link.register] = Register(written.form, written.magnitude, written.count, drift)
    return after


def _written(register: Register, link: Link, circuit: Graph, nodes: Any, components: Any, magnitude: Upper) -> Register:
    form, nodes, components = register.form, nodes[link.columns], components[link.columns]
    for number in np.unique(nodes).tolist():
        mine = np.flatnonzero(nodes == number)
        size = circuit.nodes[number].size
        weights = link.weights
        if not np.array_equal(components[mine], np.arange(size)) or len(mine) < len(nodes):
            weights = np.zeros((len(link.weights), size))
            weights[:, components[mine]] = dense(link.weights)[:, mine]
        form = plus(form, image(weights, basis(number, size)))
    added = link.weights @ magnitude[link.columns]
    count = register.count + int(_terms(link.weights).max(initial=0))
    return Register(form, register.magnitude + added, count, register.drift)


def read(stream: Stream, links: Sequence[Link], rows: int) -> Form:
    """What is read through links."""
    total = constant(np.zeros(rows))
    for link in links:
        total = plus(total, _placed(image(link.weights, stream[link.register].form), link.first, rows))
    return total


def read_bounds(
    stream: Stream, links: Sequence[Link], rows: int, precision: Precision
) -> tuple[Upper, Upper, Upper, Upper]:
    """For each form that is read: the rounding of the registers, of the read itself, the sum of the absolute values
    that are added, and what is read on reference tokens."""
    tiny = precision.smallest_normal
    stored, sizes, drift = (Upper(np.zeros(rows)) for _ in range(3))
    terms, copied, columns = np.full(rows, 4), np.ones(rows, dtype=bool), 0
    for link in links:
        register, mine = stream[link.register], link.rows
        each = precision.gamma(register.count + 2) * register.magnitude + (register.count + 1) * tiny
        stored = _added(stored, mine, link.weights @ each)
        sizes = _added(sizes, mine, link.weights @ (register.magnitude + each))
        away = register.drift + precision.gamma(register.count + 2) * register.drift
        drift = _added(
            drift, mine, link.weights @ Upper(np.where(away.value > 0.0, (away + tiny * register.count).value, 0.0))
        )
        terms[mine] += _terms(link.weights)
        copied[mine] &= _copies(link.weights)
        columns += link.weights.shape[-1]
    drift = drift + precision.gamma(terms) * drift
    rounded = precision.gamma(terms) * sizes + columns * tiny
    # One number times a power of two is read as it is.
    rounded = Upper(np.where(copied & (terms <= 5), columns * tiny, rounded.value))
    return stored, rounded, sizes, drift


def _added(total: Upper, rows: slice, more: Upper) -> Upper:
    value = total.value.copy()
    value[rows] = (total[rows] + more).value
    return Upper(value)


def _terms(weights: Array) -> Any:
    """How many weights of each row are not zero."""
    return (dense(weights) != 0.0).sum(axis=1) if weights.ndim == 2 else (weights != 0.0).astype(np.int64)


def _copies(weights: Array) -> Any:
    """Which rows have no weights but powers of two, of an ordinary size."""
    sizes = np.abs(weights)
    fine = (sizes == 0.0) | ((np.frexp(sizes)[0] == 0.5) & (sizes >= 2.0**-20) & (sizes <= 2.0**20))
    return fine.all(axis=1) if fine.ndim == 2 else fine
