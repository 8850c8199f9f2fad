"""A certified model inside a stock architecture, which everybody's tools load without code of ours: a Llama, so far.

The kernel says what the configuration and the weights must be (kernel/stock.py, with the proof that norms, rotations
and empty MLPs change nothing): here they are asked for, written, and called. Numbers enter as `inputs_embeds`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from headsmith.core.certificate import Certificate
from headsmith.core.errors import CertificateError, DomainError, TargetError
from headsmith.export.file import Contents, header_of
from headsmith.export.plain import Plain
from headsmith.kernel.errors import Refused
from headsmith.kernel.stock import stock

Architecture = Literal["llama"]
ARCHITECTURES: tuple[Architecture, ...] = get_args(Architecture)

Singles = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class StockModel:
    """A certified model as a stock one: `config` and `tensors` are its config.json and model.safetensors. Called with
    numbers, it runs the stock architecture in numpy, in float32; `embed` makes the `inputs_embeds` of any runtime.

    A sequence begins with `reference_tokens` tokens that hold no data; the outputs are the logits of those after them.
    """

    config: Mapping[str, Any]
    tensors: Mapping[str, Singles]
    certificate: Certificate
    reference_tokens: int
    tokens: int
    names: Sequence[str]

    def __repr__(self) -> str:
        width, layers = self.config["hidden_size"], self.config["num_hidden_layers"]
        numbers = sum(value.size for value in self.tensors.values())
        return (
            f"<StockModel: {self.config['architectures'][0]}, {layers} layers, width {width}, {numbers:,} weights, "
            f"error <= {self.certificate.error:.4g}>"
        )

    def embed(self, x: Any) -> Singles:
        """`inputs_embeds` (..., tokens, width) for numbers (..., inputs) or, of a model of sequences, (..., m,
        inputs)."""
        values = np.asarray(x, dtype=np.float32)
        sequences = self.tokens > 1
        if values.ndim < 1 + sequences or values.shape[-1] != len(self.names):
            wanted = f"(..., m, {len(self.names)})" if sequences else f"(..., {len(self.names)})"
            raise DomainError(f"the stock model takes numbers of shape {wanted}; got shape {values.shape}")
        values = values if sequences else values[..., None, :]
        length = values.shape[-2]
        if not 1 <= length <= self.tokens:
            raise DomainError(f"a sequence has 1 to {self.tokens} tokens; got {length}")
        table, first = self.tensors["model.embed_tokens.weight"], self.reference_tokens
        rows = np.broadcast_to(table[: first + length], (*values.shape[:-2], first + length, table.shape[1])).copy()
        inputs = first + self.tokens
        rows[..., first:, :] += values @ table[inputs : inputs + len(self.names)]
        return rows

    def __call__(self, x: Any) -> Singles:
        """The outputs, (..., outputs) or (..., m, outputs): the stock architecture, run in numpy."""
        from headsmith.run.llama import logits

        found = logits(self.config, self.tensors, self.embed(x))[..., self.reference_tokens :, :]
        return found if self.tokens > 1 else found[..., -1, :]

    @property
    def plain(self) -> Plain:
        """Configuration and weights, for files."""
        return Plain(dict(self.config), dict(self.tensors))


def as_stock(contents: Contents, architecture: str) -> StockModel:
    """The stock model of a certified one. Raises TargetError, with the reason, where a stock one cannot hold it."""
    if architecture not in ARCHITECTURES:
        raise TargetError(f"unknown architecture {architecture!r}; choose one of {', '.join(ARCHITECTURES)}")
    if contents.proof is None:
        raise CertificateError("the model carries no proof: it was saved without one")
    tensors: dict[str, Any] = {}
    try:
        found = stock(_as_read(header_of(contents, tensors)), tensors)
    except Refused as problem:
        raise TargetError(f"this model does not go into a stock {architecture}: {problem}") from None
    model = contents.transformer
    references = found.config["max_position_embeddings"] - model.tokens
    return StockModel(
        found.config, found.weights, Certificate.of(found.certificate), references, model.tokens, contents.box.names
    )


def _as_read(value: Any) -> Any:
    """Data as it comes back from a file: lists in place of tuples."""
    if isinstance(value, Mapping):
        return {name: _as_read(each) for name, each in value.items()}
    return [_as_read(each) for each in value] if isinstance(value, list | tuple) else value
