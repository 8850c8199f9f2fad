"""Rule Step: gradient steps and soft thresholds do not expand distances, and the kernel believes it only of those."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from helpers.models.carried import contents_of

from headsmith.kernel.core.arithmetic import Interval, Upper
from headsmith.kernel.core.check import box_of, facts_of, proved
from headsmith.kernel.core.errors import Refused
from headsmith.kernel.core.flow import gains
from headsmith.kernel.core.graph import PRODUCT, QUOTIENT, Graph, Node, read_graph
from headsmith.kernel.core.model import read_model
from headsmith.kernel.core.proof import Region, read_proof
from headsmith.kernel.core.walk import Facts
from headsmith.kernel.rules.steps import Step, _expansion, length, step_of, steps_of

RIDGE, LASSO = "ridge regression in context", "lasso in context"


@cache
def facts(name: str) -> Facts:
    header, tensors = contents_of(name)
    target = read_graph(header["source"], tensors)
    model = read_model(header["transformer"], tensors, header["proof"]["roles"])
    return facts_of(target, model, read_proof(header["proof"], tensors, target), box_of(header["domain"], target))


def changed(graph: Graph, number: int, **fields: Any) -> Graph:
    nodes = list(graph.nodes)
    nodes[number] = replace(nodes[number], **fields)
    return replace(graph, nodes=tuple(nodes))


def descent(name: str = RIDGE) -> tuple[Facts, Step]:
    found = facts(name)
    return found, next(step for step in found.proof.steps.values() if not step.gates)


@pytest.mark.parametrize(("kept", "rate"), [(1.0, 0.3), (0.8, 0.9), (0.5, 0.1), (1.0, -0.2)])
def test_the_factor_of_a_descent_is_attained(kept: float, rate: float) -> None:
    """Theorem: |(kept - rate c x x^T) C| <= factor |C|, with equality for x at a corner and C along or across it."""
    size, slope = Upper(np.array([1.0, 0.5, 0.25])), Interval(np.zeros(1), np.ones(1))
    bound = float(_expansion(Step(0, 0, kept, rate), size, slope).value)
    x = size.value
    steepest = np.abs(np.linalg.eigvalsh(kept * np.eye(3) - rate * np.outer(x, x))).max()
    assert bound == pytest.approx(max(steepest, abs(kept)), rel=1e-12)
    random = np.random.default_rng(0)
    for _ in range(100):
        weights, signs = random.dirichlet(np.ones(4)), random.uniform(-1.0, 1.0, (4, 3)) * x
        step = kept * np.eye(3) - rate * sum(w * np.outer(s, s) for w, s in zip(weights, signs, strict=True))
        assert np.linalg.norm(step, 2) <= bound


def test_an_error_that_all_tokens_share_moves_the_output_no_further_than_the_gain_says() -> None:
    """The gain of a mean, by norms, is above what shared errors do in exact steps; and far below the entrywise gain."""
    found, step = descent()
    steps, output = found.slopes.steps, found.circuit.output
    gain = gains(found.circuit, found.slopes.of, output, steps, found.slopes.norms)[step.pool]
    assert gain.common is not None
    assert float(gain.common.value[0]) < 0.5 * float(gain.anywhere.size.value.sum())
    later = [each for each in found.proof.steps if each > step.output]
    random, most = np.random.default_rng(1), 0.0
    for _ in range(300):
        x, query = np.sign(random.normal(size=(5, 3))), np.sign(random.normal(size=3))
        error = random.normal(size=3)
        moved = -step.rate * error / np.linalg.norm(error)
        for _ in later:
            moved = step.kept * moved - step.rate * (x.T @ (x @ moved)) / len(x)
        most = max(most, abs(float(query @ moved)))
    assert 0.3 * float(gain.common.value[0]) < most <= float(gain.common.value[0])


@pytest.mark.parametrize("name", [RIDGE, "least squares in context"])
def test_the_length_of_a_descent_holds(name: str) -> None:
    """Theorem: |w'| <= length, for any weights, features and labels in their ranges."""
    found, step = descent(name)
    random = np.random.default_rng(2)
    for scale in (0.1, 1.0, 10.0):
        bound = float(length(step, found.circuit, found.ranges, Upper(scale)).value)
        for _ in range(200):
            x, y = np.sign(random.normal(size=(4, 1, len(found.ranges[step.source].low)))), random.uniform(-1, 1, 4)
            x, w = x[:, 0], random.normal(size=x.shape[-1])
            w *= scale / np.linalg.norm(w)
            after = step.kept * w - step.rate * ((x @ w - y) @ x) / len(x)
            assert np.linalg.norm(after) <= bound


@pytest.mark.parametrize("shared", [True, False])
def test_weights_of_a_descent_are_the_same_at_all_tokens(shared: bool) -> None:
    """w' = w - mean(x (x w - y)) at x = 1, y = 0 is 0 if all tokens have the same w. With w = 1 at one of eight tokens
    and -1 at the others it is 1.75 there, beyond the length 1 of a descent: such a node is no step."""
    nodes = [Node("input", 3, names=("w", "x", "y"))]

    def added(kind: str, *arguments: int, **fields: Any) -> int:
        nodes.append(Node(kind, 1, arguments, **fields))
        return len(nodes) - 1

    def total(*terms: tuple[int, Any]) -> int:
        weights = tuple(np.asarray(each, dtype=np.float64) for _, each in terms)
        return added("affine", *(number for number, _ in terms), weights=weights, constants=np.zeros(1))

    def product(left: int, right: int) -> Region:
        reference, computed = (added("expression", left, right, program=PRODUCT) for _ in range(2))
        output = total((computed, [1.0]))
        return Region(output, reference, (left, right), frozenset({computed, output}), 1e-3, None)

    w, x, y = (total((0, row[None])) for row in np.eye(3))
    w = added("pool", w, name="mean") if shared else w
    inner = product(w, x)
    gradient = product(total((inner.output, [1.0]), (y, [-1.0])), x)
    output = total((w, [1.0]), (added("pool", gradient.output, name="mean"), [-1.0]))
    circuit, regions = Graph(tuple(nodes), output), {each.output: each for each in (inner, gradient)}
    if not shared:
        with pytest.raises(Refused, match="same at all tokens"):
            step_of(circuit, regions, output)
        return
    step, ranges_ = (
        step_of(circuit, regions, output),
        [Interval(-np.ones(node.size), np.ones(node.size)) for node in nodes],
    )
    ranges_[y] = Interval(np.zeros(1), np.zeros(1))
    assert float(length(step, circuit, ranges_, Upper(1.0)).value) == pytest.approx(1.0)


def test_what_is_no_step_is_refused() -> None:
    """Other features in one of the products, other weights, a causal mean, a bias: none is a step of descent."""
    found, step = descent()
    circuit, regions = found.circuit, found.proof.regions
    assert step_of(circuit, regions, step.output).features == step.features
    node, reference = circuit.nodes[step.output], regions[step.inner].stands_for
    weights = circuit.nodes[step.residual].weights
    wrong = [
        changed(circuit, reference, program=QUOTIENT),
        changed(circuit, step.residual, weights=(np.eye(3), *weights[1:])),
        changed(circuit, step.pool, causal=True),
        changed(circuit, step.pool, name="max"),
        changed(circuit, step.output, weights=(node.weights[0], np.array([-0.1, -0.2, -0.3]))),
        changed(circuit, step.output, constants=np.ones(3)),
    ]
    for forged in wrong:
        with pytest.raises(Refused):
            step_of(forged, regions, step.output)
    other = replace(regions[step.inner], arguments=(step.source, 3))
    with pytest.raises(Refused, match="same features"):
        step_of(circuit, {**regions, step.inner: other}, step.output)
    with pytest.raises(Refused, match="not a product"):
        step_of(circuit, {**regions, step.inner: replace(other, margin=None)}, step.output)


def test_a_sum_that_stands_for_something_else_is_no_part_of_a_step() -> None:
    """The exact value of a region's output is what it stands for, whatever its weights are."""
    found, step = descent()
    forged = {**found.proof.regions, step.residual: replace(found.proof.regions[step.inner], output=step.residual)}
    with pytest.raises(Refused, match="not the step"):
        step_of(found.circuit, forged, step.output)
    lasso = facts(LASSO)
    threshold = next(each for each in lasso.proof.steps.values() if each.gates)
    region = next(iter(lasso.proof.regions.values()))
    (above,) = lasso.circuit.nodes[threshold.gates[0]].arguments
    with pytest.raises(Refused, match="not a product"):
        step_of(lasso.circuit, {above: region}, threshold.output)


def test_what_is_added_to_the_curve_of_a_step_lies_outside_of_it() -> None:
    """f(x . w) - x . w is no f(x . w) + rest: its slope is not that of f."""
    found, step = descent("logistic regression in context")
    residual = found.circuit.nodes[step.residual]
    (score,) = found.circuit.nodes[step.curve].arguments
    weights = (residual.weights[0], -np.ones((residual.size, 1)))
    forged = changed(found.circuit, step.residual, arguments=(step.curve, score), weights=weights)
    with pytest.raises(Refused, match="outside of the step"):
        step_of(forged, found.proof.regions, step.output)


def test_what_a_step_descends_from_is_no_rest_of_its_residual() -> None:
    """x . w + K w is no x . w + rest: what an error of w does through K w is not in the factor of the step. (A file
    with K = 50 was off by 15 times its bound.)"""
    found, step = descent()
    residual = found.circuit.nodes[step.residual]
    weights = (*residual.weights, np.full(residual.size, 50.0))
    forged = changed(found.circuit, step.residual, arguments=(*residual.arguments, step.source), weights=weights)
    with pytest.raises(Refused, match="outside of the step"):
        step_of(forged, found.proof.regions, step.output)


def test_a_descent_has_no_gates() -> None:
    """K (relu(w) - relu(-w) - w) is zero, for what the gates are; but one that cannot cross zero may have no head, and
    passes what w is off by as it is. So forms that cancel do not say that errors do."""
    found, step = descent("logistic regression in context")
    (score,), size = found.circuit.nodes[step.curve].arguments, found.circuit.nodes[step.source].size
    ones, zero = np.ones(size), np.zeros(size)
    more = [Node("affine", size, (step.source,), (-ones,), zero)]
    more += [Node("relu", size, (step.source,)), Node("relu", size, (score,))]

    def moved(number: int) -> int:
        return number + 3 if number >= score else number

    old = [replace(node, arguments=tuple(map(moved, node.arguments))) for node in found.circuit.nodes]
    rows = tuple(np.full((1, size), weight) for weight in (50.0, -50.0, -50.0))
    added = replace(old[score], weights=(*old[score].weights, *rows))
    added = replace(added, arguments=(*added.arguments, score + 1, score + 2, step.source))
    forged = Graph((*old[:score], *more, added, *old[score + 1 :]), moved(found.circuit.output))
    regions = {
        moved(number): replace(
            region, stands_for=moved(region.stands_for), arguments=tuple(map(moved, region.arguments))
        )
        for number, region in found.proof.regions.items()
    }
    with pytest.raises(Refused, match="without gates"):
        step_of(forged, regions, moved(step.output))


def test_a_threshold_of_components_in_another_order_is_refused() -> None:
    """It is the same function, but the slopes of its gates are those of other components."""
    found = facts(LASSO)
    step = next(step for step in found.proof.steps.values() if step.gates)
    turned, (above, _) = np.eye(2)[::-1], (found.circuit.nodes[gate].arguments[0] for gate in step.gates)
    forged = changed(found.circuit, above, weights=(turned,))
    forged = changed(forged, step.output, weights=(turned, found.circuit.nodes[step.output].weights[1]))
    with pytest.raises(Refused, match="threshold"):
        step_of(forged, found.proof.regions, step.output)


def test_a_step_that_is_read_from_outside_is_refused() -> None:
    """If somebody else reads the products of a step, the step is no longer all that an error does."""
    header, tensors = contents_of(RIDGE)
    number = header["proof"]["steps"][-1]
    header["proof"]["steps"].append(header["proof"]["circuit"]["output"])
    with pytest.raises(Refused):
        proved(header, tensors)
    header, tensors = contents_of(RIDGE)
    nodes, output = header["proof"]["circuit"]["nodes"], header["proof"]["circuit"]["output"]
    pool = nodes[number]["terms"][1]["node"]
    tensors["none"] = np.zeros((1, 3))
    nodes[output]["terms"].append({"node": pool, "weights": "none"})
    with pytest.raises(Refused, match="read from outside"):
        proved(header, tensors)


def test_a_threshold_whose_gates_are_not_both_heads_does_not_pass_for_one() -> None:
    """An active gate without a head, and a dead one with a head, add up to a slope of 2."""
    found = facts(LASSO)
    step = next(step for step in found.proof.steps.values() if step.gates)
    slopes = found.slopes.steps.slopes[step.output]
    assert np.all(slopes.high == 1.0)
    assert np.all(slopes.low == 0.0)
    forged = dict(found.slopes.gates)
    forged[step.gates[0]] = Interval(np.ones(2), np.ones(2))
    other = steps_of(found.proof, found.ranges, found.slopes.of, forged)
    assert np.all(other.slopes[step.output].high == 2.0)


def test_a_threshold_below_zero_is_refused() -> None:
    """relu(w + t) - relu(-w + t) has a slope of 2 round zero."""
    found = facts(LASSO)
    step = next(step for step in found.proof.steps.values() if step.gates)
    circuit = found.circuit
    for gate in step.gates:
        circuit = changed(circuit, circuit.nodes[gate].arguments[0], constants=np.full(2, 0.1))
    with pytest.raises(Refused, match="threshold"):
        step_of(circuit, {}, step.output)
