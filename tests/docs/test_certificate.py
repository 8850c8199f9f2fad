"""A second checker, written from docs/certificate.md alone, comes to the kernel's bounds.

It knows the simplest class: a network with one hidden layer of ReLU gates, one token, float64, one bank of sink heads.
Numbers are exact fractions, so it shares no arithmetic with the kernel. Section numbers are those of the document.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest
from helpers.models.networks import random_network
from safetensors import safe_open

import headsmith as hs
from headsmith.kernel.core.check import check_file

ROUNDOFF, TINY, EXP_ULPS = Fraction(1, 2**53), Fraction(1, 2**1022), 4
LAMBERT = Fraction(float(mpmath.lambertw(mpmath.exp(-1)).real))
EXP = Fraction(202, 100) * EXP_ULPS * ROUNDOFF + 4 * TINY  # 12.1

Matrix = list[list[Fraction]]
Vector = list[Fraction]
Form = dict[tuple[int, int], Fraction]
"""A row: coefficients of (node, component); (-1, 0) is the constant."""


def gamma(k: int) -> Fraction:
    """k roundings, as a share of what is rounded."""
    return k * ROUNDOFF / (1 - k * ROUNDOFF)


def exact(array: Any) -> Any:
    """Doubles as fractions, in lists of the same shape."""
    return [exact(each) for each in array] if np.ndim(array) else Fraction(float(array))


def matrix(array: Any) -> Matrix:
    """2.1: a vector is a diagonal matrix."""
    rows: Matrix = exact(np.diag(array) if np.ndim(array) == 1 else array)
    return rows


def added(*forms: tuple[Fraction, Form]) -> Form:
    """The sum of forms, each times a factor."""
    total: Form = {}
    for factor, form in forms:
        for key, value in form.items():
            total[key] = total.get(key, Fraction(0)) + factor * value
    return total


@dataclass
class Register:
    """11: forms, magnitudes, those of rounded products, the sum of any terms, that of all sums, the number of terms."""

    forms: list[Form]
    magnitude: Vector
    products: Vector
    most: Vector
    sums: Vector
    count: list[int]

    def write(self, weights: Matrix, forms: list[Form], below: Vector, above: Vector) -> None:
        """Add weights times forms that lie within [-below, above]."""
        for row, each in enumerate(weights):
            terms = sum(w != 0 for w in each)
            self.forms[row] = added((Fraction(1), self.forms[row]), *zip(each, forms, strict=True))
            ends = list(zip(each, below, above, strict=True))
            self.magnitude[row] += sum(abs(w) * max(a, b) for w, a, b in ends)
            self.products[row] += sum(abs(w) * max(a, b) for w, a, b in ends if not power_of_two(w))
            rising = sum(w * b if w > 0 else -w * a for w, a, b in ends)
            falling = sum(w * a if w > 0 else -w * b for w, a, b in ends)
            most = max(rising, falling)
            self.sums[row] += terms * self.most[row] + max(terms - 1, 0) * most + self.count[row] * most
            self.most[row] += most
            self.count[row] += terms

    @property
    def rounding(self) -> Vector:
        """What the sum is off by."""
        rows = zip(self.sums, self.products, self.magnitude, self.count, strict=True)
        return [
            ROUNDOFF * (sums + 2 * products) + gamma(count + 2) ** 2 * size + (count + 1) * TINY
            for sums, products, size, count in rows
        ]


@dataclass
class Read:
    """11, for one row that is read."""

    form: Form
    stored: Fraction
    size: Fraction
    share: Fraction
    single: bool
    columns: int

    def rounded(self, known: Fraction) -> Fraction:
        """What is rounded, of something that is at most `known` but for what registers are off by."""
        size = min(self.size, known + self.stored) if self.single else self.size
        return self.share * size + self.columns * TINY


def power_of_two(weight: Fraction) -> bool:
    """Whether a product with it is exact."""
    return abs(np.frexp(float(weight))[0]) in (0.0, 0.5)


def read_rows(links: Any, tensors: Any, stream: dict[str, Register], rows: int) -> list[Read]:
    """What is read through links."""
    found = []
    for row in range(rows):
        form, stored, size, columns, weights_read = Form(), Fraction(0), Fraction(0), 0, list[Fraction]()
        for link in links:
            weights, register = matrix(tensors[link["weights"]]), stream[link["register"]]
            columns += len(weights[0])
            if not link["first"] <= row < link["first"] + len(weights):
                continue
            each = weights[row - link["first"]]
            form = added((Fraction(1), form), *zip(each, register.forms, strict=True))
            for weight, magnitude, off in zip(each, register.magnitude, register.rounding, strict=True):
                stored += abs(weight) * off
                size += abs(weight) * (magnitude + off)
            weights_read += [weight for weight in each if weight]
        single = len(weights_read) <= 1
        share = Fraction(0) if single and all(map(power_of_two, weights_read)) else gamma(2 + len(weights_read))
        found.append(Read(form, stored, size, share, single, columns))
    return found


def difference(left: Form, right: Form, magnitudes: dict[int, Vector]) -> Fraction:
    """11, rule Read."""
    gap = added((Fraction(1), left), (Fraction(-1), right))
    return sum((abs(v) * (magnitudes[n][c] if n >= 0 else 1) for (n, c), v in gap.items()), Fraction(0))


def certified(path: Path) -> tuple[list[Fraction], dict[str, Fraction], Fraction]:
    """The bound of each output, the parts of the worst one, and the largest score."""
    with safe_open(path, framework="np") as file:
        header = json.loads(file.metadata()["headsmith"])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    low, high = (exact(header["domain"][name]) for name in ("low", "high"))
    model, nodes = header["transformer"], header["proof"]["circuit"]["nodes"]
    ((bank,),), ((role,),) = model["layers"], header["proof"]["roles"]
    assert (model["tokens"], model["dtype"], bank["kind"]) == (1, "float64", "sink")
    assert not any(header["proof"][name] for name in ("regions", "tables"))
    gate_of = list(zip(tensors[role["node"]].tolist(), tensors[role["component"]].tolist(), strict=True))

    # 7 Range, 10.2 Stable and 11 circuit forms, node by node.
    ranges: list[list[tuple[Fraction, Fraction]]] = []
    forms: list[list[Form]] = []
    for number, node in enumerate(nodes):
        if node["kind"] == "input":
            ranges.append(list(zip(low, high, strict=True)))
            forms.append([{(number, i): Fraction(1)} for i in range(len(low))])
        elif node["kind"] == "affine":
            bias = exact(tensors[node["bias"]])
            (term,) = node["terms"]
            weights, argument = matrix(tensors[term["weights"]]), term["node"]
            ends = [
                [(w * a, w * b) if w >= 0 else (w * b, w * a) for w, (a, b) in zip(row, ranges[argument], strict=True)]
                for row in weights
            ]
            ranges.append(
                [(b + sum(a for a, _ in r), b + sum(a for _, a in r)) for b, r in zip(bias, ends, strict=True)]
            )
            rows = [
                added(*zip(row, forms[argument], strict=True), (b, {(-1, 0): Fraction(1)}))
                for row, b in zip(weights, bias, strict=True)
            ]
            forms.append(rows)
        else:
            around = ranges[node["argument"]]
            ranges.append([(max(a, Fraction(0)), max(b, Fraction(0))) for a, b in around])
            rows = []
            for component, (a, b) in enumerate(around):
                if (number, component) in gate_of:
                    rows.append({(number, component): Fraction(1)})
                else:
                    assert a >= 0 or b <= 0, "a gate without a head crosses zero"
                    rows.append(forms[node["argument"]][component] if b > 0 else {})
            forms.append(rows)

    # 11 Registers, and what the bank reads.
    magnitudes = {0: [max(abs(a), abs(b)) for a, b in ranges[0]]}
    stream: dict[str, Register] = {}
    for each in model["registers"]:
        values = (
            exact(tensors[model["initial"][each["name"]]])
            if each["name"] in model["initial"]
            else [Fraction(0)] * each["size"]
        )
        values = [Fraction(1)] if each["name"] == "data" else values
        sizes, sums = [abs(v) for v in values], [Fraction(0) for _ in values]
        count, forms_held = [int(size > 0) for size in sizes], [{(-1, 0): v} for v in values]
        stream[each["name"]] = Register(forms_held, sizes, [*sums], [*sizes], sums, count)
    for link in model["embedding"]:
        weights, first = matrix(tensors[link["weights"]]), link["first"]
        part = slice(first, first + len(weights[0]))
        low, high = ([max(sign * e[end], Fraction(0)) for e in ranges[0][part]] for sign, end in ((-1, 0), (1, 1)))
        stream[link["register"]].write(weights, forms[0][part], low, high)
    reads = read_rows(bank["read"], tensors, stream, len(gate_of))

    # 12.2 Sink; nothing arrives in front of the first layer, there is no grid, no other token, and nothing drifts.
    scales = [exact(tensors[bank[name]]) for name in ("query_scale", "key_scale")]
    below, rounding, outputs, under, scores = [], [], [], [], [Fraction(bank["reference_gain"])]
    for (number, component), read, query, key in zip(gate_of, reads, *scales, strict=True):
        argument = nodes[number]["argument"]
        a, b = ranges[argument][component]
        deviation = difference(read.form, forms[argument][component], magnitudes)
        read_off = read.rounded(max(abs(a), abs(b)) + deviation)
        off = deviation + read.stored + read_off
        size = max(abs(a), abs(b)) + off
        steep, relative, absolute = query * key, gamma(2 + 3), 2 * EXP + Fraction(1, 2**60)
        near = size * (relative * steep * size + absolute) / 4
        far = (Fraction("0.448") * relative + Fraction("0.229") * absolute) / steep
        below.append(min(LAMBERT / steep, size / 2))
        held, lost = max(max(b, Fraction(0)) + off, below[-1]), (size + 1) * 4 * (2 + 2) * TINY
        sums = gamma(2 + 1 + 2) * held + lost
        rounding.append(off + read_off + min(near, far) + sums)
        reach = min(size + gamma(2 * 2 + 4) * size + lost, held + sums)
        outputs.append(min(max(b, Fraction(0)) + below[-1] + rounding[-1], reach))
        under.append(min(below[-1] + rounding[-1], reach))
        scores.append(size * steep)
        magnitudes.setdefault(number, [Fraction(0)] * len(forms[number]))[component] = outputs[-1]
    for link in bank["write"]:
        weights, first = matrix(tensors[link["weights"]]), link["first"]
        part = slice(first, first + len(weights[0]))
        computed: list[Form] = [{key: Fraction(1)} for key in gate_of[part]]
        stream[link["register"]].write(weights, computed, under[part], outputs[part])

    # 14 Gain, 17 Sum. The output is a form of the gates, so its coefficients are their gains.
    bias = exact(tensors[model["readout_bias"]])
    totals, parts = [], []
    for row, read in enumerate(read_rows(model["readout"], tensors, stream, len(bias))):
        form = forms[header["proof"]["circuit"]["output"]][row]
        gains = [form.get(key, Fraction(0)) for key in gate_of]
        sides = [sum(max(sign * g, Fraction(0)) * e for g, e in zip(gains, below, strict=True)) for sign in (1, -1)]
        off = difference(added((Fraction(1), read.form), (bias[row], {(-1, 0): Fraction(1)})), form, magnitudes)
        rounded = sum((abs(g) * e for g, e in zip(gains, rounding, strict=True)), Fraction(0))
        known = max(map(abs, ranges[header["proof"]["circuit"]["output"]][row])) + max(sides) + rounded + off
        biased = gamma(4 + read.columns) * (read.size + abs(bias[row])) + read.columns * TINY
        rounded += off + read.stored + (biased if bias[row] else read.rounded(known))
        parts.append({"approximation": Fraction(0), "softmax": max(sides), "leak": Fraction(0), "rounding": rounded})
        totals.append(sum(parts[-1].values()))
    return totals, parts[totals.index(max(totals))], max(scores)


@pytest.mark.parametrize(("widths", "error"), [((2, 3, 1), 1e-3), ((2, 5, 2), 1e-6), ((3, 8, 1), 1e-11)])
def test_the_document_is_enough_to_reproduce_the_bound(widths: tuple[int, ...], error: float, tmp_path: Path) -> None:
    """The bound of every output, every part and the largest score, to 1e-6; but what rounding costs, which the kernel
    rounds outwards itself, to 5 %."""
    path = tmp_path / "network.safetensors"
    domain = np.tile([-1.0, 1.0], (widths[0], 1))
    hs.compile(random_network(widths, 7), domain, error=error).save(path)
    kernel, (outputs, parts, score) = check_file(path), certified(path)
    assert list(map(float, outputs)) == pytest.approx(list(kernel.outputs), rel=1e-6)
    assert float(max(outputs)) == pytest.approx(kernel.error, rel=1e-6)
    for name in ("approximation", "softmax", "leak"):
        assert float(parts[name]) == pytest.approx(kernel.parts[name], rel=1e-6)
    assert float(parts["rounding"]) == pytest.approx(kernel.parts["rounding"], rel=0.05)
    assert float(score) == pytest.approx(kernel.max_score, rel=1e-6)
    assert float(max(outputs)) <= error
