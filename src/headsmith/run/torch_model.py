"""A compiled transformer in PyTorch, as textbooks write it: linear maps, scaled_dot_product_attention, nothing else.

This file stands alone: it needs torch, a configuration and weights. Folders that Headsmith exports hold a copy of it.
The residual stream has reference tokens first, which are constants, then data tokens. There is no normalisation, and
scores are not divided by anything. A layer is attention, or a SwiGLU block where the model has such. A model of 16 bits
(bfloat16, float16) computes every linear map and all of attention in float32, and rounds what they return. A model may
have another attention than softmax, and tokens that see themselves and the reference tokens alone (config "attention"
and "alone").

    model(x)                            x is (..., inputs), or (..., m, inputs) for a model of sequences of m tokens
    model.layers[0].heads[3]            the place for forward hooks at one head: its output is the head's mean of
                                        values, (batch, tokens, d_value), and what a hook returns takes its place
    model.layers[0].pattern(stream)     where every head looks: (batch, heads, query token, key token)
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel


def inside(dtype: torch.dtype) -> torch.dtype:
    """The format in which sums, scores and powers of e are computed."""
    return torch.float32 if dtype in (torch.bfloat16, torch.float16) else dtype


class TorchLinear(nn.Linear):
    """A linear map that adds up in float32 where its numbers have 16 bits."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kind = inside(x.dtype)
        if kind == x.dtype:
            return super().forward(x)
        sums = functional.linear(x.to(kind), self.weight.to(kind)).to(x.dtype)
        return sums if self.bias is None else sums + self.bias


class TorchHead(nn.Module):
    """What one head returns passes through here as it is; `name` says what it computes."""

    def __init__(self, name: str = "") -> None:
        super().__init__()
        self.name = name

    def forward(self, mean: torch.Tensor) -> torch.Tensor:
        return mean

    def extra_repr(self) -> str:
        return self.name


class TorchAttention(nn.Module):
    """One layer: heads side by side, which add what they return to the stream."""

    def __init__(self, config: Mapping[str, Any], layer: Mapping[str, Any], dtype: torch.dtype) -> None:
        super().__init__()
        heads, d_head, d_value, d_model = layer["heads"], layer["d_head"], layer["d_value"], config["d_model"]
        self.count, self.causal, self.kind = heads, config["causal"], config.get("attention", "softmax")
        self.alone, self.prefix = config.get("alone", False), config["reference_tokens"]
        self.query = TorchLinear(d_model, heads * d_head, bias=False, dtype=dtype)
        self.key = TorchLinear(d_model, heads * d_head, bias=False, dtype=dtype)
        self.value = TorchLinear(d_model, heads * d_value, bias=False, dtype=dtype)
        self.output = TorchLinear(heads * d_value, d_model, bias=False, dtype=dtype)
        self.heads = nn.ModuleList(TorchHead(name) for name in layer["names"])

    def forward(self, stream: torch.Tensor) -> torch.Tensor:
        query, key, value = (self.apart(part(stream)) for part in (self.query, self.key, self.value))
        query, key, value = (part.to(inside(part.dtype)) for part in (query, key, value))
        if self.kind == "softmax" and not self.alone:
            with sdpa_kernel(SDPBackend.MATH):
                means = functional.scaled_dot_product_attention(query, key, value, is_causal=self.causal, scale=1.0)
        else:
            means = weights_of(self.kind, query, key, self.visible(stream)) @ value
        means = means.to(stream.dtype)
        if any(head._forward_hooks or head._forward_pre_hooks for head in self.heads):
            means = torch.stack([head(mean) for head, mean in zip(self.heads, means.unbind(1), strict=True)], dim=1)
        return stream + self.output(means.transpose(1, 2).flatten(2))

    def pattern(self, stream: torch.Tensor) -> torch.Tensor:
        """Where every head looks: (batch, heads, query token, key token)."""
        query, key = (self.apart(part(stream)).to(inside(stream.dtype)) for part in (self.query, self.key))
        return weights_of(self.kind, query, key, self.visible(stream))

    def visible(self, stream: torch.Tensor) -> torch.Tensor:
        """Which key tokens a query token sees."""
        every = torch.ones(stream.shape[1], stream.shape[1], dtype=torch.bool, device=stream.device)
        if self.alone:
            every = torch.eye(stream.shape[1], dtype=torch.bool, device=stream.device)
            every[:, : self.prefix] = True
        return every.tril() if self.causal else every

    def apart(self, values: torch.Tensor) -> torch.Tensor:
        """(batch, tokens, heads * width) as (batch, heads, tokens, width)."""
        return values.unflatten(2, (self.count, -1)).transpose(1, 2)


class Neurons(nn.Module):
    """One layer that is a SwiGLU block: every token for itself."""

    def __init__(self, d_model: int, layer: Mapping[str, Any], dtype: torch.dtype) -> None:
        super().__init__()
        self.heads = nn.ModuleList()
        self.gate = TorchLinear(d_model, layer["neurons"], bias=False, dtype=dtype)
        self.up = TorchLinear(d_model, layer["neurons"], bias=False, dtype=dtype)
        self.down = TorchLinear(layer["neurons"], d_model, bias=False, dtype=dtype)

    def forward(self, stream: torch.Tensor) -> torch.Tensor:
        return stream + self.down(functional.silu(self.gate(stream)) * self.up(stream))


def layer_of(config: Mapping[str, Any], layer: Mapping[str, Any], dtype: torch.dtype) -> nn.Module:
    """A layer from its configuration."""
    return Neurons(config["d_model"], layer, dtype) if layer.get("neurons") else TorchAttention(config, layer, dtype)


class TorchTransformer(nn.Module):
    """The whole model, from a configuration; its weights come by `load_state_dict`."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        self.config = dict(config)
        dtype, d_model = getattr(torch, config["dtype"]), config["d_model"]
        tokens, laid = config["tokens"], config["tokens"] if config["takes"] == "blocks" else 1
        self.embed = TorchLinear(config["inputs"] * laid, d_model, dtype=dtype)
        self.positions = nn.Parameter(torch.zeros(tokens, d_model, dtype=dtype))
        self.references = nn.Parameter(torch.zeros(config["reference_tokens"], d_model, dtype=dtype))
        self.layers = nn.ModuleList(layer_of(config, layer, dtype) for layer in config["layers"])
        if config["answers"] is None:
            self.unembed = TorchLinear(d_model, config["outputs"], dtype=dtype)
        else:
            self.last = TorchLinear(d_model, config["answers"], dtype=dtype)
            self.answers = TorchLinear(config["answers"], config["outputs"], bias=False, dtype=dtype)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        refuse(self.config, x.shape)
        stream = self.stream(x)
        for layer in self.layers:
            stream = layer(stream)
        outputs = self.read(stream[:, len(self.references) :])
        outputs = outputs if self.config["takes"] == "sequences" else outputs[:, 0]
        return outputs.reshape(*x.shape[:-1], self.config["outputs"])

    def stream(self, x: torch.Tensor) -> torch.Tensor:
        """The residual stream (batch, tokens, d_model) before the first layer."""
        x = laid_out(self.config, x.to(self.references.dtype))
        data = self.embed(x) + self.positions[: x.shape[1]]
        return torch.cat([self.references.expand(len(x), -1, -1), data], dim=1)

    def read(self, stream: torch.Tensor) -> torch.Tensor:
        """The outputs at data tokens."""
        if self.config["answers"] is None:
            return self.unembed(stream)
        return self.answers(self.last(stream).softmax(-1))


def weights_of(kind: str, query: torch.Tensor, key: torch.Tensor, visible: torch.Tensor) -> torch.Tensor:
    """Where queries look, among the keys that they see."""
    if kind == "elu+1":
        query, key = (torch.where(each > 0.0, each + 1.0, each.clamp(max=0.0).exp()) for each in (query, key))
        products = (query @ key.transpose(2, 3)).masked_fill(~visible, 0.0)
        return products / products.sum(-1, keepdim=True)
    scores = query @ key.transpose(2, 3)
    if kind in ("sigmoid", "relu", "linear"):
        weights = 1.0 / (1.0 + (-scores).exp()) if kind == "sigmoid" else scores
        return (weights.relu() if kind == "relu" else weights).masked_fill(~visible, 0.0)
    scores = scores.masked_fill(~visible, float("-inf"))
    if kind == "softmax":
        return scores.softmax(-1)
    scores = scores - scores.amax(-1, keepdim=True)
    if kind == "hardmax":
        largest = (scores == 0.0).to(scores.dtype)
        return largest / largest.sum(-1, keepdim=True)
    # sparsemax: the largest scores lose the same, so that what is left of them has the sum one.
    ordered = scores.sort(-1, descending=True).values.clamp(min=-2.0)
    counts, sums = torch.arange(1, scores.shape[-1] + 1, dtype=scores.dtype, device=scores.device), ordered.cumsum(-1)
    kept = (1.0 + counts * ordered > sums).sum(-1, keepdim=True)
    return (scores - (sums.gather(-1, kept - 1) - 1.0) / kept).relu()


def build(config: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]) -> TorchTransformer:
    """A model with its weights; every tensor must be there, and no other."""
    model = TorchTransformer(config)
    model.load_state_dict(dict(tensors))
    return model


def load(folder: str) -> TorchTransformer:
    """The model in a folder that Headsmith exported to torch."""
    from safetensors.torch import load_file

    with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    return build(config, load_file(os.path.join(folder, "model.safetensors")))


def refuse(config: Mapping[str, Any], shape: torch.Size) -> None:
    """Raise ValueError for what is no input of a model."""
    inputs, runs, sequences = config["inputs"], config["lengths"], config["takes"] == "sequences"
    if len(shape) < 1 + sequences or shape[-1] != inputs:
        wanted = f"(..., m, {inputs}) of m tokens" if sequences else f"(..., {inputs})"
        raise ValueError(f"expected a tensor {wanted}; got shape {tuple(shape)}")
    if sequences and not any(first <= shape[-2] <= last for first, last in runs):
        allowed = " or ".join(f"{first} to {last}" if first < last else f"{first}" for first, last in runs)
        raise ValueError(f"a sequence of {shape[-2]} tokens; this model takes {allowed}")


def laid_out(config: Mapping[str, Any], x: torch.Tensor) -> torch.Tensor:
    """Inputs as sequences (batch, token, inputs): one token, several, or one for each block of the same inputs."""
    match config["takes"]:
        case "points":
            return x.reshape(-1, 1, config["inputs"])
        case "blocks":
            places = torch.eye(config["tokens"], dtype=x.dtype, device=x.device)
            return (x.reshape(-1, 1, 1, config["inputs"]) * places[:, :, None]).flatten(2)
        case _:
            return x.reshape(-1, x.shape[-2], config["inputs"])
