"""Rule Given: no Taylor model is further from the truth than its rest says, whatever the network and the cell are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from flint import arb
from helpers.effort import tried
from helpers.oracles import given as oracle

from headsmith.kernel.core.arithmetic import FLOAT32, Interval
from headsmith.kernel.rules.given import forms_of, inputs_on
from headsmith.kernel.rules.runs import rounding_of
from headsmith.language.builder import Builder
from headsmith.language.evaluation import evaluate
from headsmith.language.graph import Graph
from headsmith.plan.analysis.flow import kernel_graph
from headsmith.readers import operators
from headsmith.readers.over_axes import attention, dense, normalised
from headsmith.readers.tensors import add, flat, joined, shape_of, whole

WIDTH = 4


def network(random: Any, inputs: int) -> Graph:
    """Attention over a few tokens, perhaps constant ones too, perhaps twice, with norms, masks and gates."""
    builder, scale = Builder([f"x{place}" for place in range(inputs)], attention=True), random.choice([0.3, 1, 3, 10])
    normal = random.normal
    stream = dense(builder, whole(builder, 0, (inputs, 1)), normal(size=(WIDTH, 1)), normal(size=WIDTH))
    stream = add(builder, stream, normal(size=(inputs, WIDTH)))
    if random.random() < 0.3:
        stream = joined(builder, [normal(size=(int(random.integers(1, 6)), WIDTH)), stream], 0)
    for _ in range(int(random.integers(1, 3))):
        read = normalised(builder, stream, (-1,), 1e-5) if random.random() < 0.4 else stream
        sides = [dense(builder, read, normal(size=(WIDTH, WIDTH)) * k, normal(size=WIDTH) * k) for k in (scale, 1, 1)]
        mask = np.tri(shape_of(stream)[-2], dtype=bool) if random.random() < 0.3 else None
        found = attention(builder, *sides, mask, 0.5)
        stream = add(builder, stream, dense(builder, found, normal(size=(WIDTH, WIDTH)), normal(size=WIDTH)))
        gate = random.choice(["gelu", "tanh", "sigmoid", "relu", "silu", "exp", "sin", "none"])
        if gate != "none":
            wide = dense(builder, stream, normal(size=(WIDTH, WIDTH)) * 0.5, normal(size=WIDTH) * 0.5)
            own = {"relu": operators.relu, "silu": operators.silu}.get(str(gate))
            wide = operators.function(builder, str(gate), wide) if own is None else own(builder, wide)
            stream = add(builder, stream, dense(builder, wide, normal(size=(WIDTH, WIDTH)), normal(size=WIDTH)))
    return builder.graph(flat(builder, stream))


def cells(random: Any, inputs: int) -> Interval:
    """Cells of many sizes; some of them, and some of their sides, are points."""
    size = random.choice([0.5, 0.1, 0.01, 1e-4, 1e-6, 1e-9, 0.0], 6) * random.uniform(0.3, 1.0, (inputs, 6))
    centre = random.uniform(-1.0, 1.0, (inputs, 6))
    return Interval(centre - size, centre + size)


@pytest.mark.again
def test_no_point_is_further_from_a_taylor_model_than_its_rest() -> None:
    """Of every node, at points inside and on faces, in balls of 240 bits."""
    close = []
    for seed in range(tried(400, 40)):
        random = np.random.default_rng(seed)
        inputs = int(random.integers(1, 4))
        graph, ends = network(random, inputs), cells(random, inputs)
        start = inputs_on(ends, int(random.integers(2, 8 if inputs == 1 else 5)))
        with np.errstate(all="ignore"):
            forms = forms_of(kernel_graph(graph), start)
        for cell in range(6):
            low, high = ends.low[:, cell], ends.high[:, cell]
            inside = random.uniform(low, high)
            point = np.clip(np.where(random.random(inputs) < 0.4, random.choice([low, high]), inside), low, high)
            close += distances(graph, forms, start, point, cell)
    assert max(close) <= 1.0
    assert max(close) > 0.9  # no rest is above what it must be by much everywhere


def distances(graph: Graph, forms: dict[int, Any], start: Any, point: Any, cell: int) -> list[float]:
    """For every node how far the truth is from its polynomial, as a share of its rest, rounded downwards."""
    exact, radii, wide = oracle.values(graph, [arb(each) for each in point.tolist()]), start.coefficients, []
    for place in range(len(point)):
        along = np.flatnonzero(radii[place, 1:, cell])
        for variable in along:
            step = arb(float(radii[place, 1 + variable, cell]))
            wide.append((int(variable), (arb(float(point[place])) - arb(float(radii[place, 0, cell]))) / step))
    found = []
    for number, form in forms.items():
        terms = [oracle.monomial(row, wide) for row in form.basis.exponents[: form.coefficients.shape[1]].tolist()]
        for component, coefficients in enumerate(form.coefficients[:, :, cell].tolist()):
            rest = float(form.rest.value[component, cell])
            polynomial = sum((arb(each) * term for each, term in zip(coefficients, terms, strict=True)), start=arb(0))
            away = abs(exact[number][component] - polynomial)
            if np.isfinite(rest) and away > 0:
                found.append(float((away / arb(rest)).lower()) if rest else np.inf)
    return found


@pytest.mark.again
def test_no_run_in_float32_is_further_off_than_its_rounding_part() -> None:
    """At points that float32 holds, with float32 weights, against the same in float64."""
    shares = []
    for seed in range(tried(200, 20)):
        random = np.random.default_rng(seed)
        inputs = int(random.integers(1, 4))
        graph = network(random, inputs)
        centre = random.uniform(-1.0, 1.0, (inputs, 1))
        ends = Interval(centre - 0.01, centre + 0.01)
        with np.errstate(all="ignore"):
            forms = forms_of(kernel_graph(graph), inputs_on(ends, 2))
            bound = rounding_of(kernel_graph(graph), forms, FLOAT32, ()).value[:, 0]
        points = random.uniform(ends.low[:, 0], ends.high[:, 0], (50, inputs)).astype(np.float32)
        points = points[np.all((points >= ends.low[:, 0]) & (points <= ends.high[:, 0]), axis=1)]
        off = np.abs(
            evaluate(graph, points, np.float32).astype(np.float64) - evaluate(graph, points.astype(np.float64))
        )
        shares.append(float(np.max(off.max(axis=0, initial=0.0) / np.maximum(bound, 1e-300))))
    assert max(shares) <= 1.0
