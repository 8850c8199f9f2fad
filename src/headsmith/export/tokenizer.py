"""A tokenizer for prompts of numbers, as two files that transformers reads: a prompt is the reference tokens, which the
tokenizer puts first by itself, and a word for each variable, "x=0.25 y=-0.5". What is no word is refused, not guessed;
in a language model it is padding, which holds nothing, for tools try the tokenizer on words of their own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from headsmith.core.errors import TargetError

PAD, UNKNOWN = "<pad>", "<unknown>"
MOST = 1 << 16


def numbers(low: float, high: float, steps: int) -> list[Fraction]:
    """All multiples of a power of two in an interval; the smallest power that makes no more than `steps` steps."""
    if steps < 1 or steps > MOST:
        raise TargetError(f"a vocabulary of {steps} numbers; it must have 1 to {MOST}")
    first, last = Fraction(low), Fraction(high)
    if first == last:
        return [first]
    exponent = math.ceil(math.log2(last - first) - math.log2(steps) - 1e-9)
    step = Fraction(2) ** exponent
    return [step * count for count in range(math.ceil(first / step), math.floor(last / step) + 1)]


def word(name: str, value: Fraction) -> str:
    """What stands for a number, in a prompt: all of its digits."""
    digits = 0
    while (value * 10**digits).denominator > 1:
        digits += 1
    return f"{name}={float(value):.{digits}f}"


def words(domain: Sequence[tuple[str, float, float]], steps: int, first: int) -> dict[str, int]:
    """The words for all numbers of all variables, with their rows."""
    every = [word(name, value) for name, low, high in domain for value in numbers(low, high, steps)]
    for name, _, _ in domain:
        if not name.isidentifier():
            raise TargetError(f"the input {name!r} cannot be asked for in a prompt: name it with letters and digits")
    return {each: first + place for place, each in enumerate(every)}


def tokenizer(
    references: int, tokens: int, names: Sequence[str], known: Mapping[str, int], unknown: str = UNKNOWN
) -> tuple[Any, Any]:
    """tokenizer.json and tokenizer_config.json: the words of a stock model, in the order of its rows."""
    leading = [f"<reference {place}>" for place in range(references)]
    special = [*leading, *(f"<data {place}>" for place in range(tokens)), *(f"<input {name}>" for name in names), PAD]
    single = [
        *({"SpecialToken": {"id": each, "type_id": 0}} for each in leading),
        {"Sequence": {"id": "A", "type_id": 0}},
    ]
    options = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    whole = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": place, "content": each, **options} for place, each in enumerate(special)],
        "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": single,
            "pair": [*single, {"Sequence": {"id": "B", "type_id": 0}}],
            "special_tokens": {
                each: {"id": each, "ids": [place], "tokens": [each]} for place, each in enumerate(leading)
            },
        },
        "decoder": None,
        "model": {
            "type": "WordLevel",
            "vocab": {each: place for place, each in enumerate(special)} | dict(known),
            "unk_token": unknown,
        },
    }
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        # A classifier answers at the last token: without a token for it, transformers refuses to pad. Tools that put a
        # first token in front of what a language model reads find that it is there already.
        **({"pad_token": PAD, "bos_token": (*leading, PAD)[0], "eos_token": PAD} if unknown == PAD else {}),
        "model_max_length": references + tokens,
        "clean_up_tokenization_spaces": False,
    }
    return whole, config
