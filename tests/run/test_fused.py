"""`model(x, fused=True)`: closed forms take the place of scores and weights. The same function, under the same
certificate, nearly as fast as the network itself."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from helpers.models.networks import random_network
from helpers.oracles.exact import extended
from helpers.oracles.textbook import Rounded

import headsmith as hs
from headsmith.kernel.core.arithmetic import EXP_ULPS
from headsmith.transformer.heads.sink import SinkBank

over = hs.tokens


@pytest.mark.one_in(3)
@pytest.mark.parametrize("formula", ["x*y", "exp(x) + sin(y)", "max(x, y, x*y)", "relu(x - y)", "x / (2 + y)"])
@pytest.mark.parametrize("tokens", [1, 3])
def test_formulas(formula: str, tokens: int, rng: np.random.Generator) -> None:
    model = hs.compile(formula, (-1, 1), 1e-2, tokens=tokens)
    points = rng.uniform(-1, 1, (50, tokens, 2))
    points = points[:, 0] if tokens == 1 else points
    parts = model.certificate.parts
    apart = np.abs(model(points, fused=True) - model(points)).max()
    assert apart <= parts["leak"] + 2 * parts["rounding"]


@pytest.mark.parametrize(
    "program",
    [
        lambda x: x - over.mean(x),
        over.max,
        lambda x: over.shift(x, 1),
        lambda x: over.attend(x[:, 0], x[:, 0], x[:, 0]),
    ],
    ids=["mean", "max", "shift", "attend"],
)
@pytest.mark.parametrize("causal", [False, True])
def test_sequences(program: Any, causal: bool, rng: np.random.Generator) -> None:
    model = hs.compile_sequence(program, tokens=5, domain=(-1, 1), error=1e-4, causal=causal)
    tables = rng.uniform(-1, 1, (20, 5, 1))
    found = model(tables, fused=True)
    assert np.abs(found - model(tables)).max() <= model.certificate.error
    for table, answer in zip(tables, found, strict=True):
        assert np.abs(answer - model.target(table, np.longdouble)).max() <= model.certificate.error


def test_hardmax_has_no_closed_forms() -> None:
    with pytest.raises(hs.DomainError, match="hardmax or fused, not both"):
        hs.compile("relu(x)", (-1, 1), 1e-3)(0.5 * np.ones(1), fused=True, hardmax=True)


@pytest.mark.parametrize("push", ["up", "down", "in", "out", "random"])
def test_the_certificate_holds_for_the_worst_rounding_of_a_fused_run(push: str, rng: np.random.Generator) -> None:
    """Every operation off by a whole unit roundoff of float32, exp by its full allowance; the error asked for is nearly
    the smallest that float32 can meet, so that rounding is most of the bound."""
    network = random_network([3, 5, 4, 2], 7)
    with pytest.raises(hs.UnreachableError) as refusal:
        hs.compile(network, (-1, 1), error=1e-7, dtype="float32")
    model = hs.compile(network, (-1, 1), error=2.0 * refusal.value.smallest, dtype="float32")
    arithmetic = Rounded(2.0**-24, 2 * EXP_ULPS, push, rng)
    for point in rng.uniform(-1, 1, (12, 3)):
        wanted = extended(network.graph, point[None])[0]
        assert np.abs(fused_by_hand(model, point, arithmetic) - wanted).max() <= model.certificate.error


def fused_by_hand(model: hs.Compiled, point: Any, arithmetic: Rounded) -> Any:
    """z / (1 + e^(-b z)) for every sink head, in an arithmetic of our choice."""
    transformer = model.transformer
    stream: dict[str, list[list[float]]] = {each.name: [[] for _ in range(each.size)] for each in transformer.registers}
    stream |= {name: [[float(v)] for v in value] for name, value in {"data": [1.0], **transformer.initial}.items()}
    values = [arithmetic.input(x) for x in point]

    def linear(link: Any, given: list[float]) -> list[float]:
        rows = np.diag(link.weights) if link.weights.ndim == 1 else link.weights
        return [
            arithmetic.total([arithmetic.product(float(w), v) for w, v in zip(row, given, strict=True)]) for row in rows
        ]

    def held(register: str) -> list[float]:
        return [arithmetic.total(terms) for terms in stream[register]]

    def write(link: Any, given: list[float]) -> None:
        for terms, value in zip(stream[link.register], linear(link, given[link.sources]), strict=True):
            terms.append(value)

    for link in transformer.embedding:
        write(link, values)
    for layer in transformer.layers:
        (bank,) = layer.banks
        assert isinstance(bank, SinkBank)
        reads: list[list[float]] = [[] for _ in range(bank.heads)]
        for link in bank.read:
            for terms, value in zip(reads[link.reads], linear(link, held(link.register)), strict=True):
                terms.append(value)
        outputs = []
        for terms, query, key in zip(reads, bank.query_scale, bank.key_scale, strict=True):
            z = arithmetic.total(terms)
            score = arithmetic.product(arithmetic.product(-float(query), float(key)), z)
            power = arithmetic.exp(min(score, 700.0))
            outputs.append(arithmetic.quotient(z, arithmetic.total([1.0, power])))
        for link in bank.write:
            write(link, outputs)
    totals: list[list[float]] = [[float(bias)] for bias in transformer.readout_bias]
    for link in transformer.readout:
        for terms, value in zip(totals[link.reads], linear(link, held(link.register)), strict=True):
            terms.append(value)
    return np.array([arithmetic.total(terms) for terms in totals])


def test_a_wide_network_in_one_batch(rng: np.random.Generator) -> None:
    """784-1024-1024-10 on a batch of 1,024, both ways within the certificate; benchmarks/runtimes.py measures the
    times."""
    widths = (784, 1024, 1024, 10)
    layers = [(rng.normal(0, b**-0.5, (a, b)), rng.normal(0, 0.1, a)) for b, a in pairwise(widths)]
    model = hs.compile(hs.Network(layers), (0, 1), 1e-3)
    inputs = rng.uniform(0, 1, (1024, 784))

    def network(values: Any) -> Any:
        for number, (weights, bias) in enumerate(layers):
            values = (np.maximum(values, 0.0) if number else values) @ weights.T + bias
        return values

    assert np.abs(model(inputs) - network(inputs)).max() <= model.certificate.error
    assert np.abs(model(inputs, fused=True) - network(inputs)).max() <= model.certificate.error
