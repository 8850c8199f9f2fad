"""Laws: no bill above them at any error, and they fall with one file or one weight. Frontiers: marks and bounds."""

import numpy as np
import pytest

import headsmith as hs


@pytest.fixture(scope="module")
def square():
    return hs.law("x**2", (-1, 1), errors=(1e-4, 1e-1))


def test_no_error_costs_more_than_the_law(square):
    """x**2 by ReLU circuits: N = 2^h pieces make the error (2 / N)^2 / 8, in h heads."""
    low, high = square.errors
    slope, rest = square.formula("heads")
    for error in np.exp(np.random.default_rng(0).uniform(np.log(low), np.log(high), 200)):
        heads = square.heads(error)
        assert heads <= slope * np.log2(1 / error) + rest + 1e-9
        # A quarter of the error is a head more, and a step of the law may come one head early.
        assert heads <= np.ceil(np.log2(2 / np.sqrt(8 * 0.998 * error))) + 1
    some = float(np.sqrt(low * high))
    assert hs.compile("x**2", (-1, 1), some, recipe="relu").bill.heads <= square.heads(some)
    with pytest.raises(hs.TargetError, match="the law is about"):
        square.heads(low / 2)


def test_a_law_in_words_and_for_papers(square):
    assert square.text.startswith("For every error e from")
    assert square.latex().count("\\begin") == square.latex().count("\\end") == 4
    assert "x\\^{}2" in square.latex()


def test_a_law_falls_with_its_files(square, tmp_path):
    saved = square.save(tmp_path / "law")
    saved.check()
    file = tmp_path / "law" / "1.safetensors"
    before = file.read_bytes()
    changed = bytearray(before)
    changed[-3] ^= 1
    file.write_bytes(bytes(changed))
    with pytest.raises(hs.CertificateError, match="not the file"):
        saved.check()
    file.unlink()
    with pytest.raises(hs.CertificateError, match="missing"):
        saved.check()


def test_a_frontier_has_marks_and_bounds(tmp_path):
    rows = hs.frontier("x*y", (-1, 1), recipe="relu", layers=1, heads=[2, 4])
    assert next(row.limits for row in rows) == (("layers", 1), ("heads", 2))
    assert rows[1].error < rows[0].error
    assert rows.pareto
    assert rows.markdown().count("\n") == len(rows) + 1
    assert rows.csv().startswith("limit layers,limit heads,error")
    rows.draw(tmp_path / "frontier.png")
    with pytest.raises(hs.TargetError, match="a list of limits"):
        hs.frontier("x*y", (-1, 1), layers=1)
