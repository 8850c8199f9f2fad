"""Headsmith compiles ReLU networks into softmax transformers, with a proof of the error and a bill of the cost.

The public names below load what they need on first use, so that the command line answers before numpy is imported.
"""

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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

_HOME = {
    "Certificate": "certify.certificate",
    "CertificateError": "core.errors",
    "Compiled": "compile",
    "DomainError": "core.errors",
    "FileFormatError": "core.errors",
    "HeadsmithError": "core.errors",
    "Network": "source.network",
    "TargetError": "core.errors",
    "UnreachableError": "core.errors",
    "compile": "compile",
    "load": "compile",
    "verify": "compile",
}


class _Package(ModuleType):
    """This package as a module: public names are found on first use; no submodule hides one of the same name."""

    def __getattr__(self, name: str) -> Any:
        if name not in _HOME:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(f"{self.__name__}.{_HOME[name]}"), name)
        setattr(self, name, value)
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        # Importing headsmith.compile, the module, binds its name here; hs.compile stays the function.
        if not (name in _HOME and isinstance(value, ModuleType)):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *__all__})


sys.modules[__name__].__class__ = _Package
