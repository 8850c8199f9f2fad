"""Compiled models as torch modules. torch is an extra, and is imported here alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headsmith.core.errors import HeadsmithError, TargetError
from headsmith.core.extras import install
from headsmith.core.rounding import PRECISIONS
from headsmith.export.plain import Plain
from headsmith.transformer.ir import Transformer


def textbook_module(model: Plain, dtype: str | None) -> Any:
    """The model of run/torch_model.py with its weights."""
    torch = _torch()
    from headsmith.run.torch_model import build

    config = model.config | {"dtype": _checked(dtype, model.config["dtype"])}
    tensors = {
        name: torch.tensor(value, dtype=getattr(torch, config["dtype"])) for name, value in model.tensors.items()
    }
    return build(config, tensors)


def fused_module(transformer: Transformer, config: Mapping[str, Any], dtype: str | None) -> Any:
    """The model of run/torch_fused.py with its weights."""
    torch = _torch()
    from headsmith.run.torch_fused import Fused

    return Fused(transformer, config, getattr(torch, _checked(dtype, config["dtype"])))


def _checked(dtype: str | None, own: str) -> str:
    if dtype is not None and dtype not in PRECISIONS:
        raise TargetError(f"unknown dtype {dtype!r}; choose one of {', '.join(PRECISIONS)}")
    return dtype or own


def _torch() -> Any:
    try:
        import torch
    except ImportError:
        raise HeadsmithError(f"to_torch needs torch: {install('torch')}") from None
    return torch
