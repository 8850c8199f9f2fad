"""Arrays inside an intermediate representation are float64 and read-only."""

from __future__ import annotations

import numpy as np
import pytest

from headsmith.core.arrays import frozen, frozen_indices
from headsmith.core.errors import (
    CertificateError,
    DomainError,
    FileFormatError,
    HeadsmithError,
    TargetError,
    UnreachableError,
)


@pytest.mark.parametrize("values", [[1, 2], np.arange(3), np.ones(2, dtype=np.float32), [[1.5]]])
def test_frozen_is_read_only_float64(values) -> None:
    array = frozen(values)
    assert array.dtype == np.float64
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 7.0


def test_frozen_does_not_lock_the_callers_array() -> None:
    mine = np.ones(3)
    frozen(mine)
    mine[0] = 2.0
    assert mine[0] == 2.0


def test_indices_are_read_only_integers() -> None:
    array = frozen_indices([1, 2])
    assert array.dtype == np.int64
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 0
    assert frozen_indices([]).dtype == np.int64


@pytest.mark.parametrize("values", [[1.5], np.array([1.0]), [True], np.array([np.nan])])
def test_indices_are_never_rounded(values) -> None:
    with pytest.raises(ValueError, match="indices must be integers"):
        frozen_indices(values)


def test_every_error_is_a_headsmith_error_and_a_value_error() -> None:
    for kind in (TargetError, DomainError, CertificateError, FileFormatError, UnreachableError):
        assert issubclass(kind, HeadsmithError)
        assert issubclass(kind, ValueError)
    error = UnreachableError("no", part="rounding", smallest=1e-3)
    assert (error.part, error.smallest, str(error)) == ("rounding", 1e-3, "no")
