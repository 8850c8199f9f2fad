"""Headsmith compiles formulas and ReLU networks into softmax transformers, with a proven error and a bill.

The public names below load what they need on first use, so that the command line answers before numpy is imported.
"""

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headsmith import head_models as heads
    from headsmith import signal
    from headsmith.approximate import Approximation, approximate
    from headsmith.compile import compile
    from headsmith.core.certificate import Certificate
    from headsmith.core.errors import (
        CertificateError,
        DomainError,
        FileFormatError,
        HeadsmithError,
        TargetError,
        UnreachableError,
    )
    from headsmith.files import load
    from headsmith.iprm.model import Reasoner, iprm
    from headsmith.model import Compiled
    from headsmith.plan import plan
    from headsmith.regions.enumeration import regions
    from headsmith.regions.result import Region, Regions
    from headsmith.report.falsify import falsify
    from headsmith.report.plots import plot
    from headsmith.sequence import in_context, tokens
    from headsmith.sequence.compiled import CompiledSequence, compile_sequence
    from headsmith.sequence.universal import Universal, universal
    from headsmith.source.cpwl import difference_of_max_affine, max_min
    from headsmith.source.imported import Imported
    from headsmith.source.lattice import from_regions
    from headsmith.source.library import (
        abs,
        absolute,
        arccos,
        arcsin,
        arctan,
        b_spline,
        clip,
        cos,
        cosh,
        erf,
        exp,
        expm1,
        gaussian,
        gelu,
        inverse,
        j0,
        j1,
        log,
        log1p,
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
        sign,
        sin,
        sinh,
        softmax,
        softplus,
        sort,
        sqrt,
        step,
        tan,
        tanh,
        top_k,
    )
    from headsmith.source.maxout import MaxoutNetwork, maxout
    from headsmith.source.network import Network
    from headsmith.source.onnx_files import from_onnx
    from headsmith.source.own import function
    from headsmith.source.sklearn_models import from_sklearn
    from headsmith.source.torch_modules import from_torch
    from headsmith.verify import verify

__version__ = "0.1.0"

__all__ = [
    "Approximation",
    "Certificate",
    "CertificateError",
    "Compiled",
    "CompiledSequence",
    "DomainError",
    "FileFormatError",
    "HeadsmithError",
    "Imported",
    "MaxoutNetwork",
    "Network",
    "Reasoner",
    "Region",
    "Regions",
    "TargetError",
    "Universal",
    "UnreachableError",
    "abs",
    "absolute",
    "approximate",
    "arccos",
    "arcsin",
    "arctan",
    "b_spline",
    "clip",
    "compile",
    "compile_sequence",
    "cos",
    "cosh",
    "difference_of_max_affine",
    "erf",
    "exp",
    "expm1",
    "falsify",
    "from_onnx",
    "from_regions",
    "from_sklearn",
    "from_torch",
    "function",
    "gaussian",
    "gelu",
    "heads",
    "in_context",
    "inverse",
    "iprm",
    "j0",
    "j1",
    "load",
    "log",
    "log1p",
    "matmul",
    "max_min",
    "maximum",
    "maxout",
    "median",
    "minimum",
    "norm",
    "piecewise_linear",
    "plan",
    "plot",
    "polynomial",
    "rational",
    "regions",
    "relu",
    "sigmoid",
    "sign",
    "signal",
    "sin",
    "sinh",
    "softmax",
    "softplus",
    "sort",
    "sqrt",
    "step",
    "tan",
    "tanh",
    "tokens",
    "top_k",
    "universal",
    "verify",
]

_HOME = {
    "Approximation": "approximate",
    "Certificate": "core.certificate",
    "CertificateError": "core.errors",
    "Compiled": "model",
    "CompiledSequence": "sequence.compiled",
    "DomainError": "core.errors",
    "FileFormatError": "core.errors",
    "HeadsmithError": "core.errors",
    "Imported": "source.imported",
    "MaxoutNetwork": "source.maxout",
    "Network": "source.network",
    "Reasoner": "iprm.model",
    "Region": "regions.result",
    "Regions": "regions.result",
    "TargetError": "core.errors",
    "Universal": "sequence.universal",
    "UnreachableError": "core.errors",
    "abs": "source.library",
    "absolute": "source.library",
    "approximate": "approximate",
    "arccos": "source.library",
    "arcsin": "source.library",
    "arctan": "source.library",
    "b_spline": "source.library",
    "clip": "source.library",
    "compile": "compile",
    "compile_sequence": "sequence.compiled",
    "cos": "source.library",
    "cosh": "source.library",
    "difference_of_max_affine": "source.cpwl",
    "erf": "source.library",
    "exp": "source.library",
    "expm1": "source.library",
    "falsify": "report.falsify",
    "from_onnx": "source.onnx_files",
    "from_regions": "source.lattice",
    "from_sklearn": "source.sklearn_models",
    "from_torch": "source.torch_modules",
    "function": "source.own",
    "gaussian": "source.library",
    "gelu": "source.library",
    "heads": "head_models",
    "in_context": "sequence.in_context",
    "inverse": "source.library",
    "iprm": "iprm.model",
    "j0": "source.library",
    "j1": "source.library",
    "load": "files",
    "log": "source.library",
    "log1p": "source.library",
    "matmul": "source.library",
    "max_min": "source.cpwl",
    "maximum": "source.library",
    "maxout": "source.maxout",
    "median": "source.library",
    "minimum": "source.library",
    "norm": "source.library",
    "piecewise_linear": "source.library",
    "plan": "plan",
    "plot": "report.plots",
    "polynomial": "source.library",
    "rational": "source.library",
    "regions": "regions.enumeration",
    "relu": "source.library",
    "sigmoid": "source.library",
    "sign": "source.library",
    "signal": "signal",
    "sin": "source.library",
    "sinh": "source.library",
    "softmax": "source.library",
    "softplus": "source.library",
    "sort": "source.library",
    "sqrt": "source.library",
    "step": "source.library",
    "tan": "source.library",
    "tanh": "source.library",
    "tokens": "sequence.tokens",
    "top_k": "source.library",
    "universal": "sequence.universal",
    "verify": "verify",
}


class _Package(ModuleType):
    """This package as a module: public names are found on first use; no submodule hides one of the same name."""

    def __getattr__(self, name: str) -> Any:
        if name not in _HOME:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        module = importlib.import_module(f"{self.__name__}.{_HOME[name]}")
        # A name that its module does not define stands for the module itself.
        value = getattr(module, name, module)
        setattr(self, name, value)
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        # Importing headsmith.compile, the module, binds its name here; hs.compile stays the function.
        if not (name in _HOME and isinstance(value, ModuleType)):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *__all__})


sys.modules[__name__].__class__ = _Package
