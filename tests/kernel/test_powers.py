"""Rule Power: what is known of Newton's iteration by norms, and of nothing else."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from helpers.models.carried import contents_of
from kernel.test_step_rule import changed, facts

from headsmith.kernel.core.arithmetic import Interval
from headsmith.kernel.core.check import proved
from headsmith.kernel.core.errors import Refused
from headsmith.kernel.rules.steps import Power, entries, factors, power_of, solution, spectrum, triangle

NEWTON = "newton's iteration in context"
BOX = Interval(-np.ones(3), np.ones(3))


def run(level: int, rate: float, kept: float, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Q_k and w_k in plain arithmetic."""
    matrix = kept * np.eye(x.shape[1]) - rate * (x.T @ x) / len(x)
    vector = rate * (x.T @ y) / len(x)
    for _ in range(level):
        matrix, vector = matrix @ matrix, vector + matrix @ vector
    return matrix, vector


@pytest.mark.parametrize("level", [0, 1, 2, 4])
@pytest.mark.parametrize(("rate", "kept"), [(0.3, 1.0), (0.6, 0.9), (0.5, 0.7)])
def test_spectrum_entries_and_length_hold(level: int, rate: float, kept: float) -> None:
    """Theorem: eigenvalues, entries and lengths of exact iterates lie within their bounds, for any examples."""
    matrix, vector = Power(0, level, 0, -1, rate, kept), Power(1, level, 0, 1, rate, kept)
    found = [BOX, Interval(-np.ones(1), np.ones(1))]
    values, stored, most = spectrum(matrix, BOX), entries(matrix, found), float(solution(vector, *found).value)
    rows, columns, _ = triangle(3)
    random, largest = np.random.default_rng(level), 0.0
    for _ in range(200):
        count = int(random.integers(1, 5))
        x, y = np.sign(random.normal(size=(count, 3))), np.sign(random.normal(size=count))
        x *= random.choice([1.0, random.uniform()])
        exact, w = run(level, rate, kept, x, y)
        eigenvalues = np.linalg.eigvalsh(exact)
        assert values.low - 1e-12 <= eigenvalues.min()
        assert eigenvalues.max() <= values.high + 1e-12
        assert np.all(stored.low - 1e-12 <= exact[rows, columns])
        assert np.all(exact[rows, columns] <= stored.high + 1e-12)
        assert np.linalg.norm(w) <= most
        largest = max(largest, float(np.linalg.norm(w)))
    assert largest > 0.4 * most


def test_the_factors_of_a_doubling_hold() -> None:
    """Theorem: a square moves by at most its factor times what Q moves by, and w + Qw by at most its two factors."""
    known = {0: Power(0, 0, 0, -1, 0.5, 0.9), 1: Power(1, 0, 0, 1, 0.5, 0.9)}
    found, margin = [BOX, Interval(-np.ones(1), np.ones(1))], 1e-3
    square = factors(Power(2, 1, 0, -1, 0.5, 0.9, 0), found, known, margin)[0]
    applied = factors(Power(3, 1, 0, 1, 0.5, 0.9, 0, 1), found, known, margin)
    random = np.random.default_rng(0)
    for _ in range(200):
        x, y = np.sign(random.normal(size=(2, 3))), np.sign(random.normal(size=2))
        q, w = run(0, 0.5, 0.9, x, y)
        e, d = (margin * np.sign(random.normal(size=shape)) for shape in ((3, 3), 3))
        e = np.triu(e) + np.triu(e, 1).T
        moved = np.linalg.norm((q + e) @ (q + e) - q @ q)
        assert moved <= float(square.value) * np.linalg.norm(e)
        moved = float(np.linalg.norm((w + d) + (q + e) @ (w + d) - w - q @ w))
        assert moved <= float(applied[1].value) * np.linalg.norm(d) + float(applied[0].value) * np.linalg.norm(e)
    q, _ = run(0, 0.5, 0.9, np.zeros((1, 3)), np.zeros(1))
    e = margin * np.ones((3, 3))
    assert np.linalg.norm((q + e) @ (q + e) - q @ q) > 0.99 * float(square.value) * np.linalg.norm(e)


def test_beyond_a_rate_of_two_nothing_is_known() -> None:
    """If Q_0 may have an eigenvalue below -1, its powers may be anything."""
    assert spectrum(Power(0, 2, 0, -1, 0.7, 1.0), BOX).high == np.inf
    assert solution(Power(0, 2, 0, 1, 0.7, 1.0), BOX, BOX).value == np.inf
    assert solution(Power(0, 0, 0, 1, -0.7, 1.0), BOX, BOX).value == np.inf


def test_what_is_no_power_is_refused() -> None:
    """One sum that is another one, a causal mean, another rate, a vector of another level: none is a power."""
    found = facts(NEWTON)
    circuit, regions, powers = found.circuit, found.proof.regions, found.proof.powers
    squares = [power for power in powers.values() if power.level and power.vector < 0]
    applied = [power for power in powers.values() if power.vector >= 0]
    assert squares
    assert applied
    for power in (squares[0], applied[0]):
        weights = list(circuit.nodes[power.output].weights)
        weights[-1] = weights[-1].copy()
        weights[-1][0] = np.roll(weights[-1][0], 1)
        with pytest.raises(Refused):
            power_of(changed(circuit, power.output, weights=tuple(weights)), regions, power.output, powers)
        with pytest.raises(Refused):
            power_of(circuit, regions, power.output, {})
        stands = {**regions, power.factors[0]: regions[power.inner]}
        with pytest.raises((Refused, LookupError)):  # both refuse a file (check.DAMAGE)
            power_of(circuit, stands, power.output, powers)
    # Margins are about entries: an eighth of w, in sums that are eight times as large, is no power.
    output, factor = circuit.nodes[applied[0].output], applied[0].factors[1]
    eighth = changed(circuit, factor, weights=tuple(each / 8.0 for each in circuit.nodes[factor].weights))
    eighth = changed(eighth, applied[0].output, weights=(output.weights[0], 8.0 * output.weights[1]))
    with pytest.raises(Refused, match="copy of entries"):
        power_of(eighth, regions, applied[0].output, powers)
    later = {**powers, applied[0].vector: replace(powers[applied[0].vector], rate=0.1)}
    with pytest.raises(Refused):
        power_of(circuit, regions, applied[0].output, later)
    first = next(power for power in powers.values() if not power.level and power.labels < 0)
    pool = circuit.nodes[first.output].arguments[0]
    with pytest.raises(Refused):
        power_of(changed(circuit, pool, causal=True), regions, first.output, {})
    header, tensors = contents_of(NEWTON)
    header["proof"]["powers"].append(header["proof"]["circuit"]["output"])
    with pytest.raises(Refused):
        proved(header, tensors)
