"""Headsmith compiles formulas and ReLU networks into softmax transformers, with a proven error and a bill.

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
    from headsmith.source.library import (
        abs,
        absolute,
        b_spline,
        clip,
        cos,
        erf,
        exp,
        function,
        gaussian,
        gelu,
        inverse,
        log,
        matmul,
        maximum,
        median,
        minimum,
        norm,
        piecewise_linear,
        polynomial,
        rational,
        relu,
        sigmoid,
        sin,
        softmax,
        softplus,
        sort,
        sqrt,
        tanh,
        top_k,
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
    "abs",
    "absolute",
    "b_spline",
    "clip",
    "compile",
    "cos",
    "erf",
    "exp",
    "function",
    "gaussian",
    "gelu",
    "inverse",
    "load",
    "log",
    "matmul",
    "maximum",
    "median",
    "minimum",
    "norm",
    "piecewise_linear",
    "polynomial",
    "rational",
    "relu",
    "sigmoid",
    "sin",
    "softmax",
    "softplus",
    "sort",
    "sqrt",
    "tanh",
    "top_k",
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
    "abs": "source.library",
    "absolute": "source.library",
    "b_spline": "source.library",
    "clip": "source.library",
    "compile": "compile",
    "cos": "source.library",
    "erf": "source.library",
    "exp": "source.library",
    "function": "source.library",
    "gaussian": "source.library",
    "gelu": "source.library",
    "inverse": "source.library",
    "load": "compile",
    "log": "source.library",
    "matmul": "source.library",
    "maximum": "source.library",
    "median": "source.library",
    "minimum": "source.library",
    "norm": "source.library",
    "piecewise_linear": "source.library",
    "polynomial": "source.library",
    "rational": "source.library",
    "relu": "source.library",
    "sigmoid": "source.library",
    "sin": "source.library",
    "softmax": "source.library",
    "softplus": "source.library",
    "sort": "source.library",
    "sqrt": "source.library",
    "tanh": "source.library",
    "top_k": "source.library",
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
