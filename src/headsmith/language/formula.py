"""Formulas as text: a small parser that writes expressions down as it reads, and evaluates no code.

    formula ::= sum ("," sum)*                              one output each
    sum     ::= product (("+" | "-") product)*
    product ::= signed (("*" | "/") signed)*
    signed  ::= ("+" | "-") signed | power
    power   ::= atom ("**" signed)?
    atom    ::= number | name | name "(" sum ("," sum)* ")" | "(" sum ")"

Names are variables, the constants pi and e, and the functions of `CALLS` and of core.functions. Every error shows the
text with a mark under the place.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

from headsmith.core.errors import TargetError
from headsmith.core.functions import FUNCTIONS
from headsmith.language import library
from headsmith.language.describe import describe
from headsmith.language.expression import Recorder, constant
from headsmith.language.graph import Graph
from headsmith.language.trace import Traced, graph_of
from headsmith.language.unknown import explained, suggestion

__all__ = ["CALLS", "CONSTANTS", "describe", "formula_graph", "parse"]

LARGEST_DEPTH = 60
LARGEST_TEXT = 100_000

CONSTANTS = {"pi": math.pi, "e": math.e}


@dataclass(frozen=True)
class ParsedCall:
    """A function that formulas can call, with as many arguments as it takes."""

    function: Callable[..., Any]
    least: int = 1
    most: float = 1


def _user_power(x: Any, exponent: Any) -> Any:
    return x**exponent


ONE_ARGUMENT = (
    *(
        "exp",
        "expm1",
        "log",
        "log1p",
        "sqrt",
        "sin",
        "cos",
        "tan",
        "arcsin",
        "arccos",
        "arctan",
        "sinh",
        "cosh",
        "tanh",
    ),
    *("sigmoid", "softplus", "gelu", "erf", "gaussian", "relu", "j0", "j1"),
)
CALLS: dict[str, ParsedCall] = {
    **{name: ParsedCall(getattr(library, name)) for name in ONE_ARGUMENT},
    "asin": ParsedCall(library.arcsin),
    "acos": ParsedCall(library.arccos),
    "atan": ParsedCall(library.arctan),
    "sign": ParsedCall(library.sign, 1, 2),
    "step": ParsedCall(library.step, 1, 2),
    "abs": ParsedCall(library.absolute),
    "max": ParsedCall(library.maximum, 1, math.inf),
    "min": ParsedCall(library.minimum, 1, math.inf),
    "clip": ParsedCall(library.clip, 3, 3),
    "median": ParsedCall(library.median, 1, math.inf),
    "norm": ParsedCall(lambda *values: library.norm(values), 1, math.inf),
    "hypot": ParsedCall(lambda *values: library.norm(values), 1, math.inf),
    "pow": ParsedCall(_user_power, 2, 2),
}

_TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)|(?P<name>[^\W\d]\w*)|(?P<sign>\*\*|//|[<>=!]=|\S))",
    re.UNICODE,
)
HINTS = {
    "^": "write ** for powers",
    "//": "there is no integer division, which jumps; write /",
    "%": "there is no remainder, which jumps",
    ".": "attributes are not read; formulas know plain names only",
    "[": "indexing and lists are not read; give each variable its own name, and outputs with commas between them",
    "(": "an operator is missing before it",
    "{": "write parentheses ( )",
    "]": "write parentheses ( )",
    "}": "write parentheses ( )",
    ")": "there is no parenthesis to close",
    "=": "a formula is one expression, without =",
    "|": "write abs(x) for |x|",
    "!": "there is no factorial",
    ";": "write a comma between outputs",
    ":": "write a comma between outputs",
    "#": "there are no comments in formulas",
    "&": "formulas have no conditions; use min or max",
    "~": "formulas have no conditions; use min or max",
    "@": "write products and sums out, or compile a Python function with numpy's @",
    "\u221a": "write sqrt(x)",
    **dict.fromkeys("\u00b7\u00d7\u22c5\u2217", "write * for products"),
    **dict.fromkeys("\u2212\u2013\u2014", "write the minus sign of the keyboard, -"),
    **dict.fromkeys("\u00f7\u2044\u2215", "write / for quotients"),
    **dict.fromkeys("'\"`\u201c\u201d\u2018\u2019", "a formula has no quotes inside, and no derivatives f'"),
}
SUPERSCRIPTS = {"\u00b2": 2, "\u00b3": 3, "\u2074": 4, "\u2075": 5}
MODULES = ("np", "numpy", "math", "hs", "headsmith", "torch", "tf", "jnp", "sp", "scipy", "cmath")
NO_NUMBERS = ("inf", "infinity", "nan")
_KEYWORDS = {"lambda", "if", "else", "and", "or", "not", "for", "in", "is", "import", "def", "None", "True", "False"}


def _keyword(name: str) -> str:
    return (
        f"{name!r} is a word of Python, and formulas are not Python: there are no conditions and no loops, and a "
        f"variable needs another name"
    )


@dataclass(frozen=True)
class Token:
    kind: str
    text: str
    place: int


def parse(text: Any, names: Sequence[str] | None = None) -> tuple[tuple[str, ...], tuple[Traced, ...]]:
    """The variables and the outputs of a formula, or of a list of formulas.

    With `names` those are the variables, in that order, and no other name is known. Without, every name that is neither
    a function nor a constant is a variable, in order of first appearance.
    """
    formulas = [text] if isinstance(text, str) else list(text) if isinstance(text, list | tuple) else []
    if not formulas or not all(isinstance(formula, str) for formula in formulas):
        raise TargetError(f"a formula is a string, or a list of strings; got {text!r}")
    _check_names(names)
    recorder = Recorder()
    known = list(names) if names is not None else []
    for name in known:
        recorder.variable(name)
    outputs = [output for formula in formulas for output in _Parser(formula, recorder, known, names is None).outputs()]
    return tuple(known), tuple(outputs)


def formula_graph(text: Any, names: Sequence[str] | None = None) -> Graph:
    """The source graph of a formula, or of a list of formulas."""
    variables, outputs = parse(text, names)
    return graph_of(outputs, variables)


def _check_names(names: Sequence[str] | None) -> None:
    for name in names or ():
        if not isinstance(name, str) or not name.isidentifier() or name in _KEYWORDS:
            raise TargetError(
                f"the domain names a variable {name!r}, which no formula can write: a name has letters, digits and _, "
                f"and is no word of Python"
            )
        if name in CALLS or name in CONSTANTS:
            what = "function" if name in CALLS else "constant"
            raise TargetError(
                f"the domain names a variable {name!r}, but in formulas that is a {what}; choose another name"
            )


class _Parser:
    def __init__(self, text: str, recorder: Recorder, names: list[str], open_names: bool) -> None:
        self.text, self.recorder, self.names, self.open_names = text, recorder, names, open_names
        self.depth = 0
        self.tokens = self._tokens()
        self.place = 0

    def outputs(self) -> list[Traced]:
        found = [self._sum()]
        while self._take(","):
            found.append(self._sum())
        if self.next.kind != "end":
            self._unexpected()
        return found

    # Tokens.

    def _tokens(self) -> list[Token]:
        if len(self.text) > LARGEST_TEXT:
            raise TargetError(f"the formula has {len(self.text)} characters; at most {LARGEST_TEXT} are read")
        tokens, place = [], 0
        text = self.text.rstrip()
        while place < len(text):
            match = _TOKEN.match(text, place)
            assert match is not None
            kind = str(match.lastgroup)
            tokens.append(Token(kind, match.group(kind), match.start(kind)))
            place = match.end()
        return [*tokens, Token("end", "", len(text))]

    @property
    def next(self) -> Token:
        return self.tokens[self.place]

    def _advance(self) -> Token:
        token = self.next
        self.place += token.kind != "end"
        return token

    def _take(self, sign: str) -> Token | None:
        return self._advance() if self.next.kind == "sign" and self.next.text == sign else None

    # The grammar, with errors of the operations themselves shown at their place.

    def _sum(self) -> Traced:
        value = self._product()
        while token := self._take("+") or self._take("-"):
            other = self._product()
            value = self._at(token, (lambda a, b: a + b) if token.text == "+" else (lambda a, b: a - b), value, other)
        return value

    def _product(self) -> Traced:
        value = self._signed()
        while token := self._take("*") or self._take("/"):
            other = self._signed()
            value = self._at(token, (lambda a, b: a * b) if token.text == "*" else (lambda a, b: a / b), value, other)
        return value

    def _signed(self) -> Traced:
        negative = False
        while token := self._take("-") or self._take("+"):
            negative ^= token.text == "-"
        value = self._power()
        return -value if negative else value

    def _power(self) -> Traced:
        value = self._atom()
        if token := self._take("**"):
            with_depth = self._nested(token, self._signed)
            return self._at(token, lambda a, b: a**b, value, with_depth)
        return value

    def _atom(self) -> Traced:
        token = self._advance()
        if token.kind == "number":
            return self._number(token)
        if token.kind == "name":
            return self._call(token) if self.next.text == "(" else self._name(token)
        if token.text == "(":
            value = self._nested(token, self._sum)
            self._close(token)
            return value
        if token.kind == "end":
            self._fail(
                token, "the formula ends where a value is expected" if self.text.strip() else "the formula is empty"
            )
        self.place -= 1
        self._unexpected()

    def _number(self, token: Token) -> Traced:
        if not math.isfinite(float(token.text)):
            self._fail(token, f"the constant {token.text} is not a finite double")
        after = self.next
        if after.kind == "name" and after.text in ("i", "j") and after.text not in self.names:
            self._fail(after, f"{token.text}{after.text} is a complex number, and values are real")
        if after.kind == "name" and after.place == token.place + len(token.text) and after.text not in self.names:
            with_base = token.text == "0" and len(after.text) > 1 and after.text[0] in "xXbBoO"
            if with_base or after.text.startswith("_"):
                self._fail(token, f"{token.text}{after.text} is not read as a number; write it in plain decimal digits")
        if after.kind == "name" or after.text == "(":
            self._fail(after, f"an operator is missing; write {token.text}*{after.text}")
        return Traced(self.recorder, constant(float(token.text)))

    def _name(self, token: Token) -> Traced:
        name = token.text
        if name in CONSTANTS and name not in self.names:
            return Traced(self.recorder, constant(CONSTANTS[name]))
        if name in _KEYWORDS:
            self._fail(token, _keyword(name))
        if name in CALLS:
            self._fail(token, f"{name} is a function; write {name}(...), and choose another name for a variable")
        if name not in self.names:
            if not self.open_names:
                self._unknown_name(token)
            self.names.append(name)
        return Traced(self.recorder, self.recorder.variable(name))

    def _call(self, token: Token) -> Traced:
        call = _call_of(token.text)
        if call is None:
            if token.text in _KEYWORDS and token.text not in ("if",):
                self._fail(token, _keyword(token.text))
            if token.text in self.names or token.text in CONSTANTS:
                self._fail(self.next, f"an operator is missing; write {token.text}*(...)")
            self._fail(token, f"unknown function {token.text!r}{explained(token.text, CALLS)}")
        opening = self._advance()
        arguments = [] if self.next.text == ")" else [self._nested(opening, self._sum)]
        while self._take(","):
            arguments.append(self._nested(opening, self._sum))
        self._close(opening)
        if not call.least <= len(arguments) <= call.most:
            more = "or more" if call.most == math.inf else f"or {call.most:g}"
            wanted = f"{call.least}" if call.least == call.most else f"{call.least} {more}"
            plural = "" if wanted == "1" else "s"
            self._fail(token, f"{token.text} takes {wanted} argument{plural}, not {len(arguments)}")
        return self._at(token, call.function, *arguments)

    def _nested(self, token: Token, read: Callable[[], Traced]) -> Traced:
        self.depth += 1
        if self.depth > LARGEST_DEPTH:
            self._fail(token, f"the formula is nested more than {LARGEST_DEPTH} deep")
        value = read()
        self.depth -= 1
        return value

    def _at(self, token: Token, operation: Callable[..., Any], *arguments: Traced) -> Traced:
        try:
            result = operation(*arguments)
        except TargetError as problem:
            self._fail(token, str(problem))
        assert isinstance(result, Traced)
        return result

    # Errors.

    def _close(self, opening: Token) -> None:
        if self._take(")"):
            return
        if self.next.kind == "end":
            self._fail(opening, "this parenthesis is never closed")
        self._unexpected()

    def _unknown_name(self, token: Token) -> NoReturn:
        if self.next.text == "." and token.text in MODULES:
            self._fail(token, f"formulas know plain names only: write sin(x), without {token.text}.")
        if token.text.lower() in NO_NUMBERS:
            self._fail(token, f"{token.text} is not a number that a formula can hold: constants are finite doubles")
        for superscript, power in SUPERSCRIPTS.items():
            if token.text.endswith(superscript):
                self._fail(token, f"{token.text} is not read; write {token.text[:-1]}**{power}")
        hint = suggestion(token.text, [*self.names, *CONSTANTS], 0.65)
        known = ", ".join(self.names[:8]) or "none"
        self._fail(token, f"unknown name {token.text!r}{hint}: the domain has intervals for {known} only")

    def _unexpected(self) -> NoReturn:
        token = self.next
        if token.kind == "end":
            self._fail(token, "the formula ends where a value is expected")
        if token.kind == "name" and token.text not in _KEYWORDS:
            self._fail(token, f"an operator is missing before {token.text}")
        hint = HINTS.get(token.text, "")
        if self.place and self.tokens[self.place - 1].text == "," and token.text == ")":
            hint = "a value is missing after the comma"
        if token.text in {"<", ">", "<=", ">=", "==", "!="}:
            hint = "formulas do not compare; use max, min, relu, clip, or step(x, gap) for a choice"
        if token.text in _KEYWORDS:
            hint = "formulas have no conditions, loops or functions of their own; use max, min, relu, clip or step"
        self._fail(token, f"{token.text!r} is not expected here" + (f": {hint}" if hint else ""))

    def _fail(self, token: Token, message: str) -> NoReturn:
        start = max(0, token.place - 60)
        line = self.text[start : start + 120].replace("\n", " ").replace("\t", " ")
        mark = "^" * max(1, min(len(token.text), 120 - (token.place - start)))
        raise TargetError(f"{message}\n    {line}\n    {' ' * (token.place - start)}{mark}") from None


def _call_of(name: str) -> ParsedCall | None:
    """A function of `CALLS`, or one that was registered with core.functions."""
    if name in CALLS:
        return CALLS[name]
    return ParsedCall(partial(library.apply, name)) if name in FUNCTIONS and name != "power" else None
