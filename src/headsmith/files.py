"""Saved models of either kind, by one door: compiled ones (compile.py) and sampled ones (sequence/universal.py)."""

from __future__ import annotations

import os

from headsmith.certify.certificate import Certificate
from headsmith.compile import Compiled
from headsmith.compile import load as load_compiled
from headsmith.compile import verify as verify_compiled
from headsmith.export.file import kind_of
from headsmith.sequence.universal import Universal, load_universal
from headsmith.sequence.universal_file import KIND


def load(path: str | os.PathLike[str]) -> Compiled | Universal:
    """Read a saved model back, bit for bit. Its certificate is the stored one: `verify` re-derives it."""
    return load_universal(path) if kind_of(path) == KIND else load_compiled(path)


def verify(model: Compiled | Universal | str | os.PathLike[str]) -> Certificate:
    """Re-derive the certificate from the stored weights. Raises CertificateError if less can be proven than is
    claimed.

    Of a sampled callable the certificate says: the model is within the error of every function that has the stated
    Lipschitz bound and, at the nodes, the stored answers; `Universal.check` samples the callable again.
    """
    found = load(model) if isinstance(model, str | os.PathLike) else model
    return found.verify() if isinstance(found, Universal) else verify_compiled(found)
