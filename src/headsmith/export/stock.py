"""A certified model inside a stock architecture, which everybody's tools load without code of ours.

The kernel says what the configuration and the weights must be (kernel/rules/llama.py and gpt2.py, with the proof that
norms, rotations and empty MLPs change nothing, or how much): here they are asked for, written, and called. Numbers
enter as `inputs_embeds`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from headsmith.core.certificate import Certificate
from headsmith.core.errors import CertificateError, DomainError, TargetError
from headsmith.export.file import Contents, header_of
from headsmith.export.plain import Plain
from headsmith.export.tokenizer import words
from headsmith.kernel.core.errors import Refused
from headsmith.kernel.rules.stock import stock

Architecture = Literal["llama", "gpt2"]
ARCHITECTURES: tuple[Architecture, ...] = get_args(Architecture)

Singles = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class StockModel:
    """A certified model as a stock one: `config` and `tensors` are its config.json and model.safetensors. Called with
    numbers, it runs the stock architecture in numpy, in float32; `embed` makes the `inputs_embeds` of any runtime.

    A sequence begins with `reference_tokens` tokens that hold no data; the outputs are the logits of those after them.
    With a vocabulary, `words` are its words for numbers with their ids: every variable has a token, and the last one
    answers. Then the model takes prompts, "x=0.25 y=-0.5".
    """

    config: Mapping[str, Any]
    tensors: Mapping[str, Singles]
    certificate: Certificate
    reference_tokens: int
    tokens: int
    names: Sequence[str]
    words: Mapping[str, int]

    def __repr__(self) -> str:
        width, layers = self.table.shape[1], self.config.get("num_hidden_layers", self.config.get("n_layer"))
        weights = sum(value.size for value in self.tensors.values())
        return (
            f"<StockModel: {self.config['architectures'][0]}, {layers} layers, width {width}, {weights:,} weights, "
            f"error <= {self.certificate.error:.4g}>"
        )

    @property
    def table(self) -> Singles:
        """The embedding, one row for each token and each input."""
        return next(
            value for name, value in self.tensors.items() if name.endswith(("embed_tokens.weight", "wte.weight"))
        )

    @property
    def sequences(self) -> bool:
        """Whether every token has an answer of its own."""
        return self.tokens > 1 and not self.words

    def embed(self, x: Any) -> Singles:
        """`inputs_embeds` (..., tokens, width) for numbers (..., inputs) or, of a model of sequences, (..., m,
        inputs)."""
        values = np.asarray(x, dtype=np.float32)
        if values.ndim < 1 + self.sequences or values.shape[-1] != len(self.names):
            wanted = f"(..., m, {len(self.names)})" if self.sequences else f"(..., {len(self.names)})"
            raise DomainError(f"the stock model takes numbers of shape {wanted}; got shape {values.shape}")
        if self.words:
            ends = np.array([each[1:] for each in self.certificate.domain])
            middles = ((ends[:, 0] + ends[:, 1]) / 2.0).astype(np.float32)
            values = np.where(np.eye(len(self.names), dtype=bool)[: self.tokens], values[..., None, :], middles)
        elif not self.sequences:
            values = values[..., None, :]
        length = values.shape[-2]
        if not 1 <= length <= self.tokens:
            raise DomainError(f"a sequence has 1 to {self.tokens} tokens; got {length}")
        table, first = self.table, self.reference_tokens
        rows = np.broadcast_to(table[: first + length], (*values.shape[:-2], first + length, table.shape[1])).copy()
        inputs = first + self.tokens
        rows[..., first:, :] += values @ table[inputs : inputs + len(self.names)]
        return rows

    def ids(self, prompt: str) -> list[int]:
        """`input_ids` of a prompt: the reference tokens, and a word for each variable, in their order."""
        found = prompt.split()
        names = [each.partition("=")[0] for each in found]
        if not self.words or names != list(self.names):
            wanted = " ".join(f"{name}=..." for name in self.names)
            raise DomainError(f"the prompt {prompt!r} is not {wanted}" if self.words else "there is no vocabulary")
        for each in found:
            if each not in self.words:
                raise DomainError(f"{each!r} is not in the vocabulary of {len(self.words)} words")
        return [*range(self.reference_tokens), *(self.words[each] for each in found)]

    def __call__(self, x: Any) -> Singles:
        """The outputs, (..., outputs) or (..., m, outputs), for numbers or a prompt: the stock model in numpy."""
        run = import_module(f"headsmith.run.{self.config['model_type']}").logits
        embeds = self.table[self.ids(x)] if isinstance(x, str) else self.embed(x)
        found = run(self.config, self.tensors, embeds)[..., self.reference_tokens :, : len(self.config["id2label"])]
        return np.asarray(found if self.sequences else found[..., -1, :])

    @property
    def plain(self) -> Plain:
        """Configuration and weights, for files."""
        return Plain(dict(self.config), dict(self.tensors))


def as_stock(contents: Contents, architecture: str, vocabulary: int = 0, language_model: bool = False) -> StockModel:
    """The stock model of a certified one, with words for `vocabulary` numbers of each variable; a language model, whose
    first logits are the outputs, or a classifier. Raises TargetError, with the reason, where a stock model cannot hold
    it."""
    if architecture not in ARCHITECTURES:
        raise TargetError(f"unknown architecture {architecture!r}; choose one of {', '.join(ARCHITECTURES)}")
    if contents.proof is None:
        raise CertificateError("the model carries no proof: it was saved without one")
    model, tensors, box = contents.transformer, dict[str, Any](), contents.box
    domain = list(zip(box.names, box.low.tolist(), box.high.tolist(), strict=True))
    first = model.reference_tokens + model.tokens + model.inputs + 1
    known = words(domain, vocabulary, first) if vocabulary else {}
    try:
        found = stock(
            _as_read(header_of(contents, tensors)), tensors, architecture, words=known, language=language_model
        )
    except Refused as problem:
        raise TargetError(f"this model does not go into a stock {architecture}: {problem}") from None
    length = found.config["max_position_embeddings" if architecture == "llama" else "n_positions"]
    certificate = Certificate.of(found.certificate)
    return StockModel(found.config, found.weights, certificate, length - model.tokens, model.tokens, box.names, known)


def _as_read(value: Any) -> Any:
    """Data as it comes back from a file: lists in place of tuples."""
    if isinstance(value, Mapping):
        return {name: _as_read(each) for name, each in value.items()}
    return [_as_read(each) for each in value] if isinstance(value, list | tuple) else value
