"""Is a model what its certificate says? Of a file, two kernels answer, and nothing else is loaded."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headsmith.core.certificate import Certificate
from headsmith.core.errors import CertificateError, FileFormatError
from headsmith.core.second import second_opinion
from headsmith.kernel.core.check import checked
from headsmith.kernel.core.errors import Refused
from headsmith.kernel.core.reading import VERSION, read_any

if TYPE_CHECKING:
    from headsmith.core.proven import Proven


def verify(model: Any) -> Any:
    """Prove the certificate again, from the weights and the proof that the model carries. Raises CertificateError if
    less can be proved than is claimed, or if the two kernels disagree (core/second.py), and FileFormatError where there
    is no such file. The certificate's `proved_by` says who proved it, and `second` what the small kernel says.

    `model` is the path of a saved model or of an exported folder, or a model of any kind. Of a sampled callable the
    certificate says: the model is within the error of every function that has the stated Lipschitz bound and, at the
    nodes, the stored answers; `Universal.check` samples the callable again. Of a file that `hs.certify` wrote, it is
    what was proven of the given weights (core/proven.py): print it to read it in words. Of a file that holds a lower
    bound, it is what was proven of all heads of a shape (kernel/rules/lower_bound.py).
    """
    if isinstance(model, str | os.PathLike) and not os.path.isdir(model):
        return verified_file(model)
    from headsmith.files import model_of, verify_folder

    if isinstance(model, str | os.PathLike):
        return verify_folder(model)

    return model_of(model).verify()


def verified_file(path: str | os.PathLike[str]) -> Any:
    """What a file claims, if the kernel proves that from the proof in it."""
    try:
        header, tensors = read_any(path)
        stored = header.get("version") == VERSION
        if not stored:
            from headsmith.export.converter import converted

            header, tensors = converted(header, tensors)
    except (Refused, KeyError, TypeError, AttributeError) as problem:
        raise FileFormatError(f"{os.fspath(path)}: {problem}") from None
    try:
        if "lower_bound" in header:
            from headsmith.kernel.rules.lower_bound import check_bound

            return check_bound(header, tensors)
        found = checked(header, tensors)
    except Refused as problem:
        raise CertificateError(f"{os.fspath(path)}: {problem}") from None
    if "given" in header:
        return _proven(header, tensors)
    try:
        second = second_opinion(header, tensors, found.parts["rounding"], path if stored else None)
    except CertificateError as problem:
        raise CertificateError(f"{os.fspath(path)}: {problem}") from None
    return replace(Certificate.claimed(header["claim"], found.domain), second=second)


def _proven(header: Any, tensors: Any) -> Proven:
    """What a file about a given network claims, in words."""
    from headsmith.core.proven import Proven
    from headsmith.language.describe import outputs_text
    from headsmith.language.stored import read_graph

    function = read_graph(header["given"]["function"], tensors.__getitem__)
    ends = (header["domain"]["low"], header["domain"]["high"])
    return Proven.claimed(header["claim"], [*zip(function.input.names, *ends, strict=True)], outputs_text(function))


def stock_certificate(folder: str | os.PathLike[str]) -> Certificate:
    """What the kernel proves of the stock model in a folder: its weights and its configuration, norms and all."""
    from headsmith.kernel.rules.stock import check_folder

    try:
        return Certificate.of(check_folder(folder))
    except Refused as problem:
        raise CertificateError(f"{os.fspath(folder)}: {problem}") from None
