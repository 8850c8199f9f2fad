"""Exchanges between tokens do not expand errors: a sorting network of any depth is off by what its heads commit.

Theorem. For c, c' >= 0 the value r = x - relu(x - m - c) + relu(m - x - c') lies between x and m, and if x and m are
off by D and D', r is off by a weighted mean of D and D'. The kernel recognises exactly this, and nothing like it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from helpers.attacks.proving import proven
from helpers.attacks.sequences import worst_ratio
from helpers.effort import tried
from hypothesis import given
from hypothesis import strategies as st

import headsmith as hs
from headsmith.core.intervals import Box
from headsmith.language.builder import Builder
from headsmith.language.graph import Graph
from headsmith.plan.analysis.flow import exchanges
from headsmith.plan.analysis.ranges import ranges
from headsmith.sequence.compiled import sequence_graph

numbers = st.fractions(min_value=-3, max_value=3, max_denominator=64)
constants = st.fractions(min_value=0, max_value=4, max_denominator=64)


def exchanged(x: Fraction, m: Fraction, c: Fraction, other: Fraction) -> Fraction:
    return x - max(x - m - c, Fraction(0)) + max(m - x - other, Fraction(0))


@given(numbers, numbers, constants, constants)
def test_the_result_lies_between_the_two(x: Fraction, m: Fraction, c: Fraction, other: Fraction) -> None:
    assert min(x, m) <= exchanged(x, m, c, other) <= max(x, m)


@given(numbers, numbers, numbers, numbers, constants, constants)
def test_errors_are_averaged(x: Fraction, m: Fraction, d: Fraction, e: Fraction, c: Fraction, other: Fraction) -> None:
    off = exchanged(x + d, m + e, c, other) - exchanged(x, m, c, other)
    assert min(d, e) <= off <= max(d, e)


@dataclass(frozen=True)
class Stage:
    """One exchange of 3 tokens as a graph; every number in it can be changed."""

    kept: float = 1.0
    falling: float = -1.0
    rising: float = 1.0
    bias: float = 0.0
    own: tuple[float, float] = (1.0, -1.0)
    fetched: tuple[float, float] = (-1.0, 1.0)
    masks: tuple[float, float] = (-1.0, 1.0)
    biases: tuple[float, float] = (0.0, -2.0)
    shut: tuple[float, float, float] = (0.0, 2.0, 0.0)
    targets: tuple[int, int, int] = (1, 0, 2)

    def parts(self, b: Builder, x: int) -> dict[str, int]:
        moved, mask = b.move(x, self.targets), b.positional(np.array(self.shut)[:, None])
        sides = [
            b.affine([(x, [[own]]), (moved, [[fetched]]), (mask, [[weight]])], [bias])
            for own, fetched, weight, bias in zip(self.own, self.fetched, self.masks, self.biases, strict=True)
        ]
        gates = [b.relu(side) for side in sides]
        terms: list[tuple[int, Any]] = [(x, [[self.kept]]), (gates[0], [[self.falling]]), (gates[1], [[self.rising]])]
        return {
            "move": moved,
            "mask": mask,
            "side": sides[0],
            "gate": gates[1],
            "result": b.affine(terms, [self.bias]),
        }

    def graph(self) -> Graph:
        b = Builder(["x"])
        return b.graph(self.parts(b, 0)["result"])


def kinds(graph: Graph) -> list[str]:
    return ["exchange" for _ in exchanges(graph)]


JUST_BELOW, JUST_ABOVE = np.nextafter(1.0, 0.0), np.nextafter(1.0, 2.0)


class TestRecognition:
    """What is taken for an exchange is one, exactly."""

    def test_an_exchange(self) -> None:
        graph = Stage().graph()
        assert kinds(graph) == ["exchange"]
        found = ranges(graph, Box(("x",), np.array([-1.0]), np.array([1.0])))[graph.output]
        assert (found.low[0], found.high[0]) == (-1.0, 1.0)

    @pytest.mark.parametrize(
        "change",
        [
            {"shut": (0.0, 0.0, 0.0), "biases": (0.0, 0.0)},
            {"shut": (0.5, 0.25, 1.0)},
            {"biases": (-1e-300, -2.0)},
            {"masks": (-3.0, 1.0)},
            {"targets": (2, 2, 2)},
        ],
        ids=str,
    )
    def test_any_constants_and_any_partners_will_do(self, change: dict[str, Any]) -> None:
        assert kinds(Stage(**change).graph()) == ["exchange"]

    @pytest.mark.parametrize(
        "change",
        [
            {"kept": JUST_BELOW},
            {"kept": JUST_ABOVE},
            {"kept": -1.0},
            {"falling": -JUST_ABOVE},
            {"falling": 1.0, "rising": -1.0},
            {"rising": JUST_BELOW},
            {"bias": 5e-324},
            {"own": (JUST_ABOVE, -1.0)},
            {"own": (1.0, -JUST_BELOW)},
            {"own": (-1.0, 1.0), "fetched": (1.0, -1.0)},
            {"fetched": (-JUST_BELOW, 1.0)},
            {"fetched": (-1.0, 0.0)},
            {"fetched": (-1.0, -1.0)},
            {"masks": (-1.0, JUST_ABOVE)},
            {"masks": (1.0, 1.0)},
            {"masks": (-1.0, 1.0), "shut": (0.0, np.nextafter(2.0, 3.0), 0.0)},
            {"biases": (0.0, -np.nextafter(2.0, 0.0))},
            {"biases": (5e-324, -2.0)},
            {"shut": (-5e-324, 2.0, 0.0)},
            {"targets": (1, 0, -1)},
        ],
        ids=str,
    )
    def test_a_number_that_is_off(self, change: dict[str, Any]) -> None:
        assert kinds(replace(Stage(), **change).graph()) == []

    def test_a_partner_that_is_not_there(self) -> None:
        """It fetches 0, and the smaller of x and 0 need not lie in the range of x."""
        graph = Stage(targets=(1, 0, -1)).graph()
        found = ranges(graph, Box(("x",), np.array([0.5]), np.array([1.0])))[graph.output]
        assert found.low[0] <= 0.0

    @pytest.mark.parametrize("part", ["move", "side", "gate"])
    def test_what_is_read_from_outside(self, part: str) -> None:
        b = Builder(["x"])
        parts = Stage().parts(b, 0)
        graph = b.graph(b.affine([(parts["result"], [[1.0]]), (parts[part], [[1.0]])], [0.0]))
        assert kinds(graph) == []

    def test_what_enters_and_leaves_may_be_read_by_anybody(self) -> None:
        b = Builder(["x"])
        parts = Stage().parts(b, 0)
        terms = [(parts[name], [[1.0]]) for name in ("result", "mask")]
        assert kinds(b.graph(b.affine([(0, [[1.0]]), *terms], [0.0]))) == ["exchange"]

    def test_an_inner_node_that_is_the_output(self) -> None:
        b = Builder(["x"])
        parts = Stage().parts(b, 0)
        assert kinds(b.graph(parts["gate"])) == []

    def test_two_moves(self) -> None:
        """Both gates must compare with the same partner."""
        b = Builder(["x"])
        moves = [b.move(0, targets) for targets in ([1, 0, 2], [2, 1, 0])]
        signs = (1.0, -1.0)
        gates = [b.relu(b.affine([(0, [[s]]), (m, [[-s]])], [0.0])) for s, m in zip(signs, moves, strict=True)]
        terms = [(0, [[1.0]]), (gates[0], [[-1.0]]), (gates[1], [[1.0]])]
        assert kinds(b.graph(b.affine(terms, [0.0]))) == []

    def test_a_move_of_something_else(self) -> None:
        b = Builder(["x"])
        x = b.affine([(0, [[1.0]])], [0.0])
        moved = b.move(0, [1, 0, 2])
        gates = [b.relu(b.affine([(x, [[s]]), (moved, [[-s]])], [0.0])) for s in (1.0, -1.0)]
        assert kinds(b.graph(b.affine([(x, [[1.0]]), (gates[0], [[-1.0]]), (gates[1], [[1.0]])], [0.0]))) == []

    def test_a_term_too_many(self) -> None:
        """Half of x twice is x, but it is not looked through; twice the constants are not constants of one token."""
        b = Builder(["x"])
        moved, mask = b.move(0, [1, 0, 2]), b.positional([[0.0], [2.0], [0.0]])
        for extra in ([(0, [[0.5]])], [(mask, [[-1.0]]), (mask, [[-1.0]])], [(b.relu(0), [[0.0]])]):
            own = [(0, [[0.5 if extra[0][0] == 0 else 1.0]])]
            first = b.relu(b.affine([*own, (moved, [[-1.0]]), *extra], [0.0]))
            second = b.relu(b.affine([(0, [[-1.0]]), (moved, [[1.0]])], [0.0]))
            result = b.affine([(0, [[1.0]]), (first, [[-1.0]]), (second, [[1.0]])], [0.0])
            assert kinds(b.graph(result)) == []

    def test_vectors(self) -> None:
        """Distances of steps are 2-norms over the components: a partner's components may each be the worst."""
        b = Builder(["x", "y"])
        moved, eye = b.move(0, [1, 0]), np.ones(2)
        gates = [b.relu(b.affine([(0, s * eye), (moved, -s * eye)], [0.0, 0.0])) for s in (1.0, -1.0)]
        graph = b.graph(b.affine([(0, eye), (gates[0], -eye), (gates[1], eye)], [0.0, 0.0]))
        assert kinds(graph) == []


def chain(stages: int) -> Graph:
    """So many exchanges of 3 tokens, of neighbours in turn."""
    b, x = Builder(["x"]), 0
    for stage in range(stages):
        targets, shut = ((1, 0, 2), (0.0, 2.0, 0.0)) if stage % 2 else ((0, 2, 1), (0.0, 0.0, 2.0))
        x = Stage(targets=targets, shut=shut).parts(b, x)["result"]
    return b.graph(x)


def test_ranges_stay_and_errors_add_up() -> None:
    """Node by node, ranges would triple with every stage, and errors grow fivefold."""
    for stages in (3, 12):
        graph = chain(stages)
        assert kinds(graph) == ["exchange"] * stages
        assert ranges(graph, Box(("x",), np.array([-1.0]), np.array([1.0])))[graph.output].magnitude[0] == 1.0
    short, long = (hs.compile(chain(stages), (-1, 1), error=1e-6, tokens=3).certificate for stages in (3, 12))
    # Four times the stages, in registers that hold four times the terms; were errors to grow fivefold, 5^9 times.
    assert long.parts["rounding"] <= 32.0 * short.parts["rounding"]
    assert short.parts["rounding"] <= 8e-14
    assert long.parts["rounding"] <= 2.4e-12


@pytest.mark.parametrize("error", [0.3, 1e-3])
def test_certified_and_never_violated(error: float, rng: np.random.Generator) -> None:
    """With a large error the gates are soft, and what is off at one stage is what the next one compares."""
    model = hs.compile(chain(5), (-1, 1), error=error, tokens=3)
    ratio = worst_ratio(model, model.certificate.outputs, rng, count=120)
    assert 0.02 < ratio <= 1.0


def test_a_stage_that_expands_is_bounded_as_such(rng: np.random.Generator) -> None:
    """x - 1.5 relu(x - m) + relu(m - x) is no exchange: what is proven for it is larger, and true."""
    b = Builder(["x"])
    x = 0
    for targets in ((1, 0, 2), (0, 2, 1)) * 2:
        x = Stage(falling=-1.5, targets=targets, shut=(0.0, 0.0, 0.0), biases=(0.0, 0.0)).parts(b, x)["result"]
    graph = b.graph(x)
    assert kinds(graph) == []
    model = hs.compile(graph, (-1, 1), error=0.5, tokens=3)
    assert worst_ratio(model, model.certificate.outputs, rng, count=120) <= 1.0


@pytest.mark.again
def test_a_target_that_is_not_the_model(rng: np.random.Generator) -> None:
    """Masks and partners of another stage, in the target or in the model: refused, or what is proven is true."""
    program = sequence_graph(hs.tokens.sort, 3, 1, (-1, 1), False)
    model = hs.compile(program, (-1, 1), error=1e-2, tokens=3)
    changes = [(number, each) for number, node in enumerate(model.graph.nodes) for each in _changes(node)]
    assert changes
    for place in rng.permutation(len(changes))[: tried(len(changes), 4)]:
        number, change = changes[place]
        nodes = (*model.graph.nodes[:number], change, *model.graph.nodes[number + 1 :])
        changed = replace(model, graph=replace(model.graph, nodes=nodes))
        try:
            found = proven(changed)
        except hs.HeadsmithError:
            continue
        assert worst_ratio(changed, found.outputs, rng, count=40, steps=2, exact=False) <= 1.0 + 1e-6


def _changes(node: Any) -> list[Any]:
    if hasattr(node, "targets"):
        return [replace(node, targets=node.targets[::-1]), replace(node, targets=(-1, *node.targets[1:]))]
    if hasattr(node, "values"):
        return [replace(node, values=node.values * factor) for factor in (0.0, -1.0, 0.5, 1.0 + 1e-9)]
    if hasattr(node, "terms") and len(node.terms) == 3:
        first = replace(node.terms[0], weights=node.terms[0].weights * (1.0 + 1e-3))
        return [replace(node, terms=(first, *node.terms[1:])), replace(node, bias=node.bias + 1e-3)]
    return []
