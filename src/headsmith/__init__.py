"""Headsmith compiles formulas and ReLU networks into softmax transformers, with a proven error and a bill.

The public names below load what they need on first use, so that the command line answers before numpy is imported.
"""

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headsmith import signal
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
    from headsmith.lab.iprm.model import Reasoner, iprm
    from headsmith.lab.regions.enumeration import regions
    from headsmith.lab.regions.result import Region, Regions
    from headsmith.language.cpwl import difference_of_max_affine, max_min
    from headsmith.language.lattice import from_regions
    from headsmith.language.library import (
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
    from headsmith.language.maxout import MaxoutNetwork, maxout
    from headsmith.language.network import Network
    from headsmith.language.own import function
    from headsmith.model import Compiled
    from headsmith.plan.rows import plan
    from headsmith.readers.imported import Imported
    from headsmith.readers.onnx_files import from_onnx
    from headsmith.readers.sklearn_models import from_sklearn
    from headsmith.readers.torch_modules import from_torch
    from headsmith.report.falsify import falsify
    from headsmith.report.plots import plot
    from headsmith.sequence import in_context, tokens
    from headsmith.sequence.approximate import Approximation, approximate
    from headsmith.sequence.compiled import CompiledSequence, compile_sequence
    from headsmith.sequence.universal import Universal, universal
    from headsmith.transformer import head_models as heads
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
    "Approximation": "sequence.approximate",
    "Certificate": "core.certificate",
    "CertificateError": "core.errors",
    "Compiled": "model",
    "CompiledSequence": "sequence.compiled",
    "DomainError": "core.errors",
    "FileFormatError": "core.errors",
    "HeadsmithError": "core.errors",
    "Imported": "readers.imported",
    "MaxoutNetwork": "language.maxout",
    "Network": "language.network",
    "Reasoner": "lab.iprm.model",
    "Region": "lab.regions.result",
    "Regions": "lab.regions.result",
    "TargetError": "core.errors",
    "Universal": "sequence.universal",
    "UnreachableError": "core.errors",
    "abs": "language.library",
    "absolute": "language.library",
    "approximate": "sequence.approximate",
    "arccos": "language.library",
    "arcsin": "language.library",
    "arctan": "language.library",
    "b_spline": "language.library",
    "clip": "language.library",
    "compile": "compile",
    "compile_sequence": "sequence.compiled",
    "cos": "language.library",
    "cosh": "language.library",
    "difference_of_max_affine": "language.cpwl",
    "erf": "language.library",
    "exp": "language.library",
    "expm1": "language.library",
    "falsify": "report.falsify",
    "from_onnx": "readers.onnx_files",
    "from_regions": "language.lattice",
    "from_sklearn": "readers.sklearn_models",
    "from_torch": "readers.torch_modules",
    "function": "language.own",
    "gaussian": "language.library",
    "gelu": "language.library",
    "heads": "transformer.head_models",
    "in_context": "sequence.in_context",
    "inverse": "language.library",
    "iprm": "lab.iprm.model",
    "j0": "language.library",
    "j1": "language.library",
    "load": "files",
    "log": "language.library",
    "log1p": "language.library",
    "matmul": "language.library",
    "max_min": "language.cpwl",
    "maximum": "language.library",
    "maxout": "language.maxout",
    "median": "language.library",
    "minimum": "language.library",
    "norm": "language.library",
    "piecewise_linear": "language.library",
    "plan": "plan.rows",
    "plot": "report.plots",
    "polynomial": "language.library",
    "rational": "language.library",
    "regions": "lab.regions.enumeration",
    "relu": "language.library",
    "sigmoid": "language.library",
    "sign": "language.library",
    "signal": "lab.signal",
    "sin": "language.library",
    "sinh": "language.library",
    "softmax": "language.library",
    "softplus": "language.library",
    "sort": "language.library",
    "sqrt": "language.library",
    "step": "language.library",
    "tan": "language.library",
    "tanh": "language.library",
    "tokens": "sequence.tokens",
    "top_k": "language.library",
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
