"""Small files that would keep the compiler busy for minutes are refused at once, and what is just below is not."""

import pytest

from headsmith.core.errors import TargetError
from headsmith.language.builder import Builder
from headsmith.language.graph import Graph
from headsmith.language.limits import MOST_FUNCTIONS
from headsmith.readers.imported import Imported


def imported(graph: Graph) -> Imported:
    return Imported(graph, "net.onnx", (1,), (1,))


def squared(times: int, factor: float = 1.0, constant: float = 0.0) -> Graph:
    builder = Builder(("x",))
    node = builder.input
    for _ in range(times):
        node = builder.affine([(builder.product(node, node), [factor])], [constant])
    return builder.graph(node)


def test_powers_end_at_64() -> None:
    for exponent in (1e9, -1e9, 64.5):
        builder = Builder(("x",))
        with pytest.raises(TargetError, match="it takes a value to the power"):
            imported(builder.graph(builder.function("power", builder.input, exponent)))
    builder = Builder(("x",))
    imported(builder.graph(builder.function("power", builder.input, 64.0)))


@pytest.mark.parametrize("factor", [1.0, 0.5])
def test_squarings_in_a_row_are_a_power(factor: float) -> None:
    """Six are x^64, whatever they are multiplied with on the way; a seventh is too much, and so are sixty."""
    imported(squared(6, factor))
    for times in (7, 60):
        with pytest.raises(TargetError, match="to the power 128"):
            imported(squared(times, factor))


def test_polynomials_that_are_no_powers_are_not_counted_as_such() -> None:
    imported(squared(10, 0.5, 0.25))


def test_functions_one_by_one_are_counted_and_layers_count_once() -> None:
    def sines(count: int, size: int) -> Graph:
        builder = Builder(("x",))
        forms = [builder.affine([(0, [[k + 1.0]] * size)], [0.0] * size) for k in range(count)]
        terms = [(builder.function("sin", form), [[1.0] * size]) for form in forms]
        return builder.graph(builder.affine(terms, [0.0]))

    imported(sines(MOST_FUNCTIONS, 1))
    imported(sines(2, 3000))
    with pytest.raises(TargetError, match="it has 513 products, quotients and functions"):
        imported(sines(MOST_FUNCTIONS + 1, 1))
