"""Headsmith compiles formulas and ReLU networks into softmax transformers, with a proven error and a bill.

The public names are those of `__init__.pyi`, each with the module that it lives in. They load what they need on first
use, so that the command line answers before numpy is imported.
"""

import importlib
import sys
from types import ModuleType
from typing import Any

__version__ = "0.1.0"

with open(f"{__file__}i", encoding="utf-8") as _stub:
    _LINES = [line.split() for line in _stub if line.startswith("from ")]
_HOMES = {name: (home, there) for _, home, _, there, _, name in _LINES}
"""Where each public name lives: `from HOME import THERE as NAME`, line by line."""

__all__ = sorted(_HOMES)


class _Package(ModuleType):
    """This package as a module: public names are found on first use; no submodule hides one of the same name."""

    def __getattr__(self, name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        home, there = _HOMES[name]
        value = getattr(importlib.import_module(home), there, None) or importlib.import_module(f"{home}.{there}")
        setattr(self, name, value)
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        # Importing headsmith.compile, the module, binds its name here; hs.compile stays the function.
        if not (name in _HOMES and isinstance(value, ModuleType) and value.__name__ == f"{self.__name__}.{name}"):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *__all__})


sys.modules[__name__].__class__ = _Package
