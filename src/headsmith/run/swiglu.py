"""Neurons of SwiGLU blocks at work on a batch of sequences: two silus for a product, one for a gate."""

from __future__ import annotations

from typing import Any

from headsmith.heads.swiglu import SiluBank, SwigluBank, silu
from headsmith.run.attention import Attention


def neuron_outputs(attention: Attention, bank: SwigluBank | SiluBank) -> Any:
    """What the neurons of each output add up to: (batch, token, outputs)."""
    reads = attention.reads(bank)
    if isinstance(bank, SiluBank):
        scale = bank.scale.astype(attention.dtype)
        return silu(reads * scale) / scale
    x, y = reads[..., 0::2], reads[..., 1::2]
    return silu(x) * y - silu(-x) * y
