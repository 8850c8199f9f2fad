"""Headsmith compiles ReLU networks into explicit softmax transformers, with a proof of the error and a bill of the cost."""

from headsmith.certify.certificate import Certificate
from headsmith.compile import Compiled, compile, load, verify
from headsmith.core.errors import (
    CertificateError,
    DomainError,
    FileFormatError,
    HeadsmithError,
    TargetError,
    UnreachableError,
)
from headsmith.source.network import Network

__version__ = "0.1.0"

__all__ = [
    "Certificate",
    "CertificateError",
    "Compiled",
    "DomainError",
    "FileFormatError",
    "HeadsmithError",
    "Network",
    "TargetError",
    "UnreachableError",
    "compile",
    "load",
    "verify",
]
