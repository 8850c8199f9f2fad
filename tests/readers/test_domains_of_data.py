"""The domain of data holds every row, with a margin; what is no data is refused with its place."""

from __future__ import annotations

import numpy as np
import pytest

import headsmith as hs
from headsmith.core.errors import DomainError


def test_every_row_lies_inside(rng) -> None:
    data = rng.normal(size=(30, 3))
    data[:, 1] = 7.0
    for margin in (0.0, 0.1, 2.0):
        pairs = hs.domain_of(data, margin)
        low, high = np.array(pairs).T
        assert (data >= low).all()
        assert (data <= high).all()
        assert high[0] - low[0] == pytest.approx((1 + 2 * margin) * np.ptp(data[:, 0]))
        assert (low[1], high[1]) == (7.0 - margin, 7.0 + margin)


def test_a_frame_gives_names() -> None:
    class Frame:
        columns = ("age", "dose")

        def __array__(self, dtype=None, copy=None):
            return np.array([[1.0, 2.0], [3.0, 4.0]], dtype=dtype)

    assert hs.domain_of(Frame(), 0.0) == {"age": (1.0, 3.0), "dose": (2.0, 4.0)}


def test_what_is_no_data_is_refused() -> None:
    with pytest.raises(DomainError, match="row 1, column 0 of the data is nan"):
        hs.domain_of([[1.0, 2.0], [np.nan, 3.0]])
    with pytest.raises(DomainError, match="encode words"):
        hs.domain_of([["a", "b"]])
    with pytest.raises(DomainError, match="one row for each example"):
        hs.domain_of([1.0, 2.0])
    with pytest.raises(DomainError, match="margin is -1"):
        hs.domain_of([[1.0], [2.0]], -1)


def test_data_in_place_of_a_domain_is_told_what_to_do(rng) -> None:
    network = hs.Network([(rng.normal(size=(2, 3)), np.zeros(2)), (rng.normal(size=(1, 2)), np.zeros(1))])
    data = rng.normal(size=(10, 3))
    with pytest.raises(DomainError, match=r"hs\.domain_of\(data\)"):
        hs.compile(network, data, error=1e-2)
    assert hs.compile(network, hs.domain_of(data), error=1e-2).certificate.error <= 1e-2
