"""Assembly: the identities by which products, quotients, maxima and minima become affine and relu nodes are exact.

Theorem. With the fragments' own errors taken out, the circuit equals the target: for every point, in fractions,

    product     circuit = x y   + (e_plus(c x + y) - e_minus(c x - y)) / (4 c)
    quotient    circuit = x / y + y (e_plus((x + Z) / y) - e_minus((x - Z) / y)) / (4 Z),           e(t) = q(t) - t^2
    function    circuit = f(x)  + e(x),  max and min exactly,

component by component, for any width, any positive powers of two c and Z, either sign of y.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from helpers.oracles.exact import exact, exact_nodes

from headsmith.core.errors import HeadsmithError
from headsmith.language.builder import Builder
from headsmith.language.graph import Affine, Graph, Relu
from headsmith.plan.circuits.assemble import Assembly, Choice, assemble, is_circuit, with_own_output
from headsmith.plan.circuits.fragment import Fragment, depth
from headsmith.plan.circuits.square import square

BAD = [0.0, -1.0, 3.0, 0.3, 1.0 + 2.0**-52, 1.0 - 2.0**-53, np.nan, np.inf, -np.inf]


def square_of(low: float, high: float, radices: tuple[int, ...], centred: bool = True) -> Fragment:
    return square(low, high, radices, centred)


def two_vectors(width: int) -> tuple[Builder, int, int]:
    """Inputs x0.., y0..; nodes for the vector x and the vector y."""
    builder = Builder([f"{letter}{i}" for letter in "xy" for i in range(width)])
    eye, none = np.eye(width), np.zeros((width, width))
    left = builder.affine([(builder.input, np.hstack([eye, none]))], np.zeros(width))
    right = builder.affine([(builder.input, np.hstack([none, eye]))], np.zeros(width))
    return builder, left, right


def error_of(fragment: Fragment, at: Fraction) -> Fraction:
    """q(t) - t^2 of a square fragment, at any rational t."""
    graph = fragment.graph
    scaled = [Fraction(at)]
    values: list[list[Fraction]] = [scaled]
    for node in graph.nodes[1:]:
        if isinstance(node, Relu):
            values.append([max(value, Fraction(0)) for value in values[node.argument]])
            continue
        assert isinstance(node, Affine)
        total = [Fraction(b) for b in node.bias.tolist()]
        for term in node.terms:
            rows = np.diag(term.weights) if term.diagonal else term.weights
            for row, weights in enumerate(rows.tolist()):
                total[row] += sum(
                    (Fraction(w) * v for w, v in zip(weights, values[term.node], strict=True)), Fraction(0)
                )
        values.append(total)
    return values[graph.output][0] - at * at


def product_of(width: int, balance: float, plus: Fragment, minus: Fragment) -> tuple[Graph, Assembly]:
    builder, left, right = two_vectors(width)
    target = builder.graph(builder.product(left, right))
    choice = Choice("product", None, (plus, minus), {"balance": balance})
    return target, assemble(target, {target.output: choice})


def quotient_of(width: int, sign: float, shift: float, plus: Fragment, minus: Fragment) -> tuple[Graph, Assembly]:
    builder, top, bottom = two_vectors(width)
    target = builder.graph(builder.quotient(top, bottom))
    choice = Choice("quotient", None, (plus, minus), {"sign": sign, "shift": shift})
    return target, assemble(target, {target.output: choice})


@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.parametrize("balance", [1.0, 0.25, 8.0, 2.0**-40, 2.0**70])
def test_the_identity_of_products(width: int, balance: float, rng: np.random.Generator) -> None:
    plus, minus = square_of(-3.0, 2.0, (2, 3)), square_of(-1.0, 4.0, (3,), centred=False)
    _, assembly = product_of(width, balance, plus, minus)
    assert is_circuit(assembly.circuit)
    assert assembly.circuit.gates == width * (3 + 2)
    c = Fraction(balance)
    for _ in range(5):
        point = rng.normal(size=2 * width)
        found = exact(assembly.circuit, point)
        for x, y, value in zip(map(Fraction, point[:width]), map(Fraction, point[width:]), found, strict=True):
            assert value == x * y + (error_of(plus, c * x + y) - error_of(minus, c * x - y)) / (4 * c)


@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("shift", [1.0, 0.125, 64.0])
def test_the_identity_of_quotients(width: int, sign: float, shift: float, rng: np.random.Generator) -> None:
    """The perspective: y q(s / y) for y > 0, and -y for a denominator that is negative."""
    plus, minus = square_of(-3.0, 2.0, (2, 3)), square_of(-1.0, 4.0, (3,), centred=False)
    _, assembly = quotient_of(width, sign, shift, plus, minus)
    assert is_circuit(assembly.circuit)
    assert assembly.circuit.gates == width * (3 + 2)
    shifted = Fraction(shift)
    for _ in range(5):
        point = np.concatenate([rng.normal(size=width), sign * rng.uniform(0.2, 3.0, size=width)])
        found = exact(assembly.circuit, point)
        for x, y, value in zip(map(Fraction, point[:width]), map(Fraction, point[width:]), found, strict=True):
            top, bottom = Fraction(sign) * x, Fraction(sign) * y
            rest = error_of(plus, (top + shifted) / bottom) - error_of(minus, (top - shifted) / bottom)
            assert value == x / y + bottom * rest / (4 * shifted)


def test_a_function_of_a_vector_is_its_fragment_on_every_component(rng: np.random.Generator) -> None:
    builder = Builder(["a", "b", "c"])
    target = builder.graph(builder.function("square", builder.input))
    parameters = square_of(-1.0, 1.0, (2, 2, 3))
    assembly = assemble(target, {target.output: Choice("square", None, (parameters,))})
    (splice,) = assembly.splices
    assert assembly.circuit.gates == 3 * 4
    assert depth(assembly.circuit) == 3
    for _ in range(5):
        point = rng.uniform(-1, 1, 3)
        nodes = exact_nodes(assembly.circuit, point)
        for component, value in enumerate(nodes[assembly.places[target.output]]):
            inner = exact_nodes(splice.fragment.graph, [point[component]])
            assert value == inner[splice.fragment.graph.output][0]
            # Fragment node k stands at circuit node first + k - 1, copy after copy.
            for place in range(1, len(inner)):
                width = len(inner[place])
                copies = nodes[splice.first + place - 1]
                assert copies[component * width : (component + 1) * width] == inner[place]


@pytest.mark.parametrize("width", [1, 4])
@pytest.mark.parametrize("count", range(1, 10))
@pytest.mark.parametrize("largest", [True, False])
def test_trees_of_any_arity(width: int, count: int, largest: bool, rng: np.random.Generator) -> None:
    """Theorem: max and min of n vectors are exact with n - 1 gates a component, ceil(log2 n) deep."""
    builder = Builder([f"x{i}" for i in range(count * width)])
    eye = np.eye(count * width)
    parts = [builder.affine([(builder.input, eye[i * width : (i + 1) * width])], np.zeros(width)) for i in range(count)]
    target = builder.graph(builder.maximum(parts) if largest else builder.minimum(parts))
    assembly = assemble(target, {})
    assert assembly.circuit.gates == (count - 1) * width
    assert depth(assembly.circuit) == int(np.ceil(np.log2(count)))
    for _ in range(4):
        point = rng.integers(-3, 4, size=count * width) / 4.0
        wanted = getattr(np, "max" if largest else "min")(point.reshape(count, width), axis=0)
        assert exact(assembly.circuit, point) == [Fraction(value) for value in wanted.tolist()]


def test_maximum_and_minimum_of_a_pair_share_their_gate() -> None:
    builder = Builder(["x", "y"])
    x, y = (builder.affine([(builder.input, np.eye(2)[i : i + 1])], np.zeros(1)) for i in range(2))
    top, bottom, again = builder.maximum([x, y]), builder.minimum([x, y]), builder.maximum([x, y])
    target = builder.graph(builder.affine([(top, [1.0]), (bottom, [-3.0]), (again, [1.0])], [0.0]))
    assembly = assemble(target, {})
    assert assembly.circuit.gates == 1
    assert len(assembly.extrema) == 3
    assert exact(assembly.circuit, [0.75, -0.5]) == [Fraction(3)]
    assert exact(assembly.circuit, [-0.5, 0.75]) == [Fraction(3)]


def test_extrema_are_what_they_say(rng: np.random.Generator) -> None:
    builder = Builder(["a", "b", "c", "d", "e"])
    parts = [builder.affine([(builder.input, np.eye(5)[i : i + 1])], [0.0]) for i in range(5)]
    target = builder.graph(builder.affine([(builder.maximum(parts), [1.0]), (builder.minimum(parts), [1.0])], [0.0]))
    assembly = assemble(target, {})
    # The first two pairs are shared; what is above them is not.
    assert assembly.circuit.gates == 2 * 4 - 2
    for _ in range(10):
        nodes = exact_nodes(assembly.circuit, rng.normal(size=5))
        for item in assembly.extrema:
            pick = max if item.largest else min
            assert nodes[item.node][0] == pick(nodes[item.left][0], nodes[item.right][0])


def test_a_circuit_is_its_own_circuit() -> None:
    builder = Builder(["x"])
    target = builder.graph(builder.relu(builder.affine([(builder.input, [2.0])], [1.0])))
    assembly = assemble(target, {})
    assert assembly.circuit.nodes[: len(target.nodes)] == target.nodes
    assert assembly.places == {0: 0, 1: 1, 2: 2}
    # The output is an affine node that nothing else reads.
    assert isinstance(assembly.circuit.nodes[assembly.circuit.output], Affine)
    assert with_own_output(assembly.circuit) is assembly.circuit


def test_an_output_that_is_read_again_gets_a_copy() -> None:
    builder = Builder(["x"])
    line = builder.affine([(builder.input, [2.0])], [1.0])
    builder.relu(line)
    circuit = with_own_output(builder.graph(line))
    assert circuit.output == len(circuit.nodes) - 1
    assert exact(circuit, [0.5]) == [Fraction(2)]


def test_what_the_output_does_not_need_needs_no_choice() -> None:
    builder = Builder(["x"])
    builder.function("exp", builder.input)
    target = builder.graph(builder.function("square", builder.input))
    assert assemble(target, {2: Choice("square", None, (square_of(-1.0, 1.0, (2,)),))}).circuit.gates == 1


@pytest.mark.parametrize("kind", ["function", "product", "quotient"])
def test_a_missing_choice_is_refused(kind: str) -> None:
    builder, left, right = two_vectors(2)
    match kind:
        case "function":
            node = builder.function("exp", left)
        case "product":
            node = builder.product(left, right)
        case _:
            node = builder.quotient(left, right)
    with pytest.raises(HeadsmithError, match=f"node {node}"):
        assemble(builder.graph(node), {})


@pytest.mark.parametrize("balance", BAD)
def test_a_balance_that_is_no_power_of_two_is_refused(balance: float) -> None:
    square = square_of(-2.0, 2.0, (2,))
    with pytest.raises(HeadsmithError, match=r"balance|power of two|finite"):
        product_of(1, balance, square, square)


@pytest.mark.parametrize("shift", BAD)
def test_a_shift_that_is_no_power_of_two_is_refused(shift: float) -> None:
    square = square_of(-2.0, 2.0, (2,))
    with pytest.raises(HeadsmithError, match=r"shift|power of two|finite"):
        quotient_of(1, 1.0, shift, square, square)


@pytest.mark.parametrize("sign", [0.0, 0.5, 2.0, -0.5, -2.0, np.nan, np.inf])
def test_a_sign_other_than_plus_or_minus_one_is_refused(sign: float) -> None:
    square = square_of(-2.0, 2.0, (2,))
    with pytest.raises(HeadsmithError):
        quotient_of(1, sign, 1.0, square, square)


def test_an_unknown_family_is_refused() -> None:
    builder = Builder(["x"])
    target = builder.graph(builder.function("exp", builder.input))
    with pytest.raises(HeadsmithError, match="nobody"):
        assemble(target, {target.output: Choice("nobody")})
