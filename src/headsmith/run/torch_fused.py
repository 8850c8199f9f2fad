"""A compiled transformer in PyTorch through the closed forms of its heads (run/closed_forms.py), bank by bank: nearly
as fast as the network that was compiled, differentiable, and under the same certificate.

    module.layers[0].sink               all sink heads of the first layer: a place for forward hooks; its output is what
                                        the heads return, (batch, tokens, heads)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from headsmith.core.figures import count
from headsmith.core.sparse import SparseArray
from headsmith.run.closed_forms import first_rows
from headsmith.run.torch_model import inside, laid_out, refuse
from headsmith.transformer.heads.attend import AttendBank
from headsmith.transformer.heads.move import TARGETS
from headsmith.transformer.heads.stream import Link
from headsmith.transformer.heads.table import TableBank
from headsmith.transformer.ir import Bank, Layer, Transformer

Stream = dict[str, torch.Tensor]


class FusedLinear(nn.Module):
    """Links between the stream and a bank, an input or an output."""

    def __init__(self, links: tuple[Link, ...], dtype: torch.dtype) -> None:
        super().__init__()
        self.places = tuple((link.register, link.first, link.rows, link.columns) for link in links)
        self.weights = nn.ParameterList(nn.Parameter(_tensor(link.weights, dtype)) for link in links)

    def read(self, stream: Stream, size: int) -> torch.Tensor:
        """The linear forms of the stream, side by side."""
        parts = []
        for (register, first, rows, _), weights in zip(self.places, self.weights, strict=True):
            if register in stream:
                part = _times(stream[register], weights)
                whole = first == 0 and rows == size
                parts.append(part if whole else functional.pad(part, (first, size - first - rows)))
        return sum(parts[1:], parts[0]).to(self.weights[0].dtype)

    def write(self, values: torch.Tensor, added: Stream) -> None:
        """Add what is made of `values` to what the registers get."""
        for (register, first, _, columns), weights in zip(self.places, self.weights, strict=True):
            whole = first == 0 and columns == values.shape[-1]
            part = _times(values if whole else values[..., first : first + columns], weights)
            added[register] = added[register] + part if register in added else part


class Heads(nn.Module):
    """All heads of one kind in one layer."""

    def __init__(self, transformer: Transformer, bank: Bank, causal: bool, dtype: torch.dtype) -> None:
        super().__init__()
        self.kind, self.readers, self.causal = bank.kind, bank.readers, causal
        self.units = count(bank.neurons or bank.heads, f"{bank.kind} {'neuron' if bank.neurons else 'head'}")
        self.arguments = bank.arguments if isinstance(bank, TableBank) else 1
        self.parts = bank.parts if isinstance(bank, AttendBank) else ()
        self.read, self.write = FusedLinear(bank.read, dtype), FusedLinear(bank.write, dtype)
        for name, value in bank.constants(transformer).items():
            if name == TARGETS:
                self.register_buffer(name, torch.tensor(value))
            else:
                self.register_parameter(name, nn.Parameter(_tensor(value, inside(dtype))))

    def extra_repr(self) -> str:
        return self.units

    def forward(self, reads: torch.Tensor) -> torch.Tensor:
        # Of 16 bits, heads compute in float32 (their own numbers are stored so), and what they return is rounded.
        return self.means(reads.to(inside(reads.dtype))).to(reads.dtype)

    def means(self, reads: torch.Tensor) -> torch.Tensor:
        """What the heads return, for what they read."""
        match self.kind:
            case "swiglu":
                x, y = reads[..., 0::2], reads[..., 1::2]
                return functional.silu(x) * y - functional.silu(-x) * y
            case "sink" | "silu":
                return reads * torch.sigmoid(reads * self.scale)
            case "table":
                scores = self.offset
                for place in range(self.arguments):
                    scores = reads[..., place :: self.arguments, None] * self.slope[place] + scores
                return torch.einsum("bthk,hkm->bthm", scores.softmax(-1), self.values).flatten(2)
            case "gate":
                scores = reads[..., 0::2, None] * self.slope + self.offset
                return scores.softmax(-1)[..., 0] * reads[..., 1::2]
            case "mean":
                if self.causal:
                    return reads.cumsum(1) * self.share[: reads.shape[1]]
                return reads.mean(1, keepdim=True).expand_as(reads)
            case "boltzmann":
                return _softmax_mean(reads, reads * self.scale, self.causal)
            case "move":
                return reads[:, self.targets[: reads.shape[1]]] * self.there[: reads.shape[1]]
            case "attend":
                query, key, value = (reads[..., part] for part in self.parts)
                return _masked(query @ key.transpose(1, 2), self.causal).softmax(-1) @ value
        raise NotImplementedError(f"a bank of {self.kind} heads has no closed form here")


class FusedLayer(nn.Module):
    """One layer: banks side by side, by the names of their kinds."""

    def __init__(self, transformer: Transformer, layer: Layer, causal: bool, dtype: torch.dtype) -> None:
        super().__init__()
        for bank in layer.banks:
            name = bank.kind if not hasattr(self, bank.kind) else f"{bank.kind}_{len(self._modules)}"
            self.add_module(name, Heads(transformer, bank, causal, dtype))

    def forward(self, stream: Stream) -> Stream:
        added: Stream = {}
        for each in self.children():
            each.write.write(each(each.read.read(stream, each.readers)), added)
        return _sum(stream, added, next(iter(stream.values())).dtype)


class Fused(nn.Module):
    """The whole model. It takes what the compiled model takes."""

    def __init__(self, transformer: Transformer, config: Mapping[str, Any], dtype: torch.dtype) -> None:
        super().__init__()
        self.config = dict(config)
        rows = first_rows(transformer)
        self.registers = tuple(rows)
        self.rows = nn.ParameterList(nn.Parameter(_tensor(value, dtype)) for value in rows.values())
        self.embedding = FusedLinear(transformer.embedding, dtype)
        causal = config["causal"]
        self.layers = nn.ModuleList(FusedLayer(transformer, layer, causal, dtype) for layer in transformer.layers)
        self.readout = FusedLinear(transformer.readout, dtype)
        self.bias = nn.Parameter(_tensor(transformer.readout_bias, dtype))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        refuse(self.config, x.shape)
        inputs = laid_out(self.config, x.to(self.bias.dtype))
        tokens = inputs.shape[1]
        stream: Stream = {name: rows[:tokens] for name, rows in zip(self.registers, self.rows, strict=True)}
        added: Stream = {}
        self.embedding.write(inputs, added)
        stream = _sum(stream, added, inputs.dtype)
        for layer in self.layers:
            stream = layer(stream)
        outputs = self.readout.read(stream, len(self.bias)) + self.bias
        outputs = outputs.expand(len(inputs), tokens, -1)
        outputs = outputs if self.config["takes"] == "sequences" else outputs[:, 0]
        return outputs.reshape(*x.shape[:-1], len(self.bias))


def _sum(stream: Stream, added: Stream, dtype: torch.dtype) -> Stream:
    """The stream, and all that its registers get in a layer: in 16 bits that is rounded once, before it is added. Where
    several banks write to one register, the certificate does not count that sums are rounded between them."""
    rounded = {register: values.to(dtype) for register, values in added.items()}
    return {**stream, **{name: stream[name] + each if name in stream else each for name, each in rounded.items()}}


def _softmax_mean(values: torch.Tensor, scores: torch.Tensor, causal: bool) -> torch.Tensor:
    """The mean of values (batch, token, head) over tokens, weighed by their own scores."""
    if not causal:
        return (scores.softmax(1) * values).sum(1, keepdim=True).expand_as(values)
    tokens = values.shape[1]
    scores = scores.transpose(1, 2)[:, :, None].expand(-1, -1, tokens, -1)
    return (_masked(scores, True).softmax(-1) @ values.transpose(1, 2)[..., None])[..., 0].transpose(1, 2)


def _masked(scores: torch.Tensor, causal: bool) -> torch.Tensor:
    """Scores (..., query token, key token) without those of keys that lie ahead."""
    if not causal:
        return scores
    ahead = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
    return scores.masked_fill(ahead, float("-inf"))


def _times(values: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Weights (to, from), or those of a diagonal, times values (..., from); in float32, if these have 16 bits."""
    values, weights = (each.to(inside(each.dtype)) for each in (values, weights))
    if weights.is_sparse:
        flat = values.reshape(-1, values.shape[-1])
        return torch.sparse.mm(weights, flat.T).T.reshape(*values.shape[:-1], -1)
    return values * weights if weights.ndim == 1 else functional.linear(values, weights)


def _tensor(values: Any, dtype: torch.dtype) -> torch.Tensor:
    if isinstance(values, SparseArray):
        places = torch.tensor(np.stack([values.rows, values.columns]))
        return torch.sparse_coo_tensor(
            places, torch.tensor(values.values), values.shape, dtype=dtype, check_invariants=True, is_coalesced=True
        )
    return torch.tensor(np.ascontiguousarray(values), dtype=dtype)
