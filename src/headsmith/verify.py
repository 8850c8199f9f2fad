"""Is a model what its certificate says? Of a file, the kernel answers, and nothing else is loaded."""

from __future__ import annotations

import os
from typing import Any

from headsmith.core.certificate import Certificate
from headsmith.core.errors import CertificateError, FileFormatError
from headsmith.kernel.core.check import checked
from headsmith.kernel.core.errors import Refused
from headsmith.kernel.core.reading import VERSION, read_any


def verify(model: Any) -> Certificate:
    """Prove the certificate again, from the weights and the proof that the model carries. Raises CertificateError if
    less can be proved than is claimed, and FileFormatError where there is no such file.

    `model` is the path of a saved model or of an exported folder, or a model of any kind. Of a sampled callable the
    certificate says: the model is within the error of every function that has the stated Lipschitz bound and, at the
    nodes, the stored answers; `Universal.check` samples the callable again.
    """
    if isinstance(model, str | os.PathLike) and not os.path.isdir(model):
        return verified_file(model)
    from headsmith.files import model_of, verify_folder

    if isinstance(model, str | os.PathLike):
        return verify_folder(model)

    return model_of(model).verify()


def verified_file(path: str | os.PathLike[str]) -> Certificate:
    """What a file claims, if the kernel proves that from the proof in it."""
    try:
        header, tensors = read_any(path)
        if header.get("version") != VERSION:
            from headsmith.export.converter import converted

            header, tensors = converted(header, tensors)
    except (Refused, KeyError, TypeError, AttributeError) as problem:
        raise FileFormatError(f"{os.fspath(path)}: {problem}") from None
    try:
        return Certificate.claimed(header["claim"], checked(header, tensors).domain)
    except Refused as problem:
        raise CertificateError(f"{os.fspath(path)}: {problem}") from None


def stock_certificate(folder: str | os.PathLike[str]) -> Certificate:
    """What the kernel proves of the stock model in a folder: its weights and its configuration, norms and all."""
    from headsmith.kernel.rules.stock import check_folder

    try:
        return Certificate.of(check_folder(folder))
    except Refused as problem:
        raise CertificateError(f"{os.fspath(folder)}: {problem}") from None
