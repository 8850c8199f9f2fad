"""What to say about a function that is not known: why it cannot be computed, what to write instead, or a near name.

>>> explained("floor", ["sin", "cos"])
': it jumps, and no continuous model computes a jump; sign(x, gap) and step(x, gap) are jumps with a stated width'
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

JUMPS = "it jumps, and no continuous model computes a jump; sign(x, gap) and step(x, gap) are jumps with a stated width"
CHOOSES = "a transformer computes one formula for all inputs; write max, min, relu, clip, or step(x, gap) for a choice"
REASONS = {
    **dict.fromkeys(("floor", "ceil", "round", "around", "rint", "trunc", "fix", "int"), JUMPS),
    **dict.fromkeys(("mod", "fmod", "remainder", "floor_divide", "divmod", "modf", "frac"), JUMPS),
    **dict.fromkeys(("where", "piecewise", "select", "if", "ifelse", "iif"), CHOOSES),
    **dict.fromkeys(("greater", "greater_equal", "less", "less_equal", "equal", "not_equal"), CHOOSES),
    **dict.fromkeys(("argmax", "argmin", "argsort", "isnan", "isfinite", "isinf", "logical_not"), CHOOSES),
    **dict.fromkeys(("heaviside", "Heaviside", "theta"), "write step(x, gap)"),
    **dict.fromkeys(("sgn", "signum"), "write sign(x, gap)"),
    **dict.fromkeys(("arctan2", "atan2", "angle"), "it jumps where x < 0 and y = 0; write arctan(y/x) where x > 0"),
    **dict.fromkeys(("ln", "loge", "logarithm"), "write log(x), the natural logarithm"),
    **dict.fromkeys(("log10", "lg"), "write log(x)/log(10)"),
    **dict.fromkeys(("log2", "ld"), "write log(x)/log(2)"),
    "exp2": "write 2**x",
    "square": "write x**2",
    "cube": "write x**3",
    "cbrt": "write x**(1/3), for x >= 0",
    "reciprocal": "write 1/x",
    **dict.fromkeys(("sec", "secant"), "write 1/cos(x)"),
    **dict.fromkeys(("csc", "cosec"), "write 1/sin(x)"),
    **dict.fromkeys(("cot", "cotan", "ctg"), "write cos(x)/sin(x)"),
    **dict.fromkeys(("tg", "tangent"), "write tan(x)"),
    **dict.fromkeys(("arcsinh", "asinh"), "write log(x + sqrt(x**2 + 1)), for x >= 0"),
    **dict.fromkeys(("arccosh", "acosh"), "write log(x + sqrt(x**2 - 1)), for x >= 1"),
    **dict.fromkeys(("arctanh", "atanh"), "write log((1 + x)/(1 - x))/2, for -1 < x < 1"),
    "sinc": "write sin(x)/x, for x that is never 0",
    "erfc": "write 1 - erf(x)",
    **dict.fromkeys(("logistic", "expit"), "write sigmoid(x)"),
    **dict.fromkeys(("silu", "swish", "SiLU"), "write x*sigmoid(x)"),
    "mish": "write x*tanh(softplus(x))",
    **dict.fromkeys(("leaky_relu", "LeakyReLU", "prelu"), "write max(x, 0.01*x)"),
    "elu": "write max(x, 0) + exp(min(x, 0)) - 1",
    "softsign": "write x/(1 + abs(x))",
    **dict.fromkeys(("hardtanh", "hard_tanh"), "write clip(x, -1, 1)"),
    **dict.fromkeys(("sum", "add"), "write x + y"),
    **dict.fromkeys(("prod", "mul", "multiply"), "write x*y"),
    **dict.fromkeys(("mean", "average", "avg"), "write (x + y)/2"),
    "sub": "write x - y",
    "div": "write x/y",
    **dict.fromkeys(("maximum", "fmax", "amax"), "write max(x, y)"),
    **dict.fromkeys(("minimum", "fmin", "amin"), "write min(x, y)"),
    **dict.fromkeys(("absolute", "fabs"), "write abs(x)"),
    **dict.fromkeys(("real", "imag", "conj", "complex", "sqrtm"), "values are real numbers"),
    **dict.fromkeys(("diff", "integrate", "grad"), "formulas do not differentiate or integrate"),
    **dict.fromkeys(("random", "rand", "randn", "normal"), "a compiled model computes the same for the same input"),
}
IN_ARB = {
    **{name: name for name in ("gamma", "lgamma", "rgamma", "lambertw", "zeta", "ei", "si", "ci", "erfi", "airy_ai")},
    **{"Gamma": "gamma", "loggamma": "lgamma", "gammaln": "lgamma", "airy": "airy_ai", "airyai": "airy_ai"},
    **{"expi": "ei", "airybi": "airy_bi", "airy_bi": "airy_bi", "fresnel_s": "fresnel_s", "fresnel_c": "fresnel_c"},
}
"""Functions that Arb has on power series, by the names that they are called by."""


def explained(name: str, known: Iterable[str]) -> str:
    """The reason, the replacement or the nearest known name, to be put behind a message; empty where nothing fits."""
    names = list(known)
    if name in REASONS:
        return f": {REASONS[name]}"
    if name in IN_ARB:
        return f': add it with hs.function("{name}", lambda x: x.{IN_ARB[name]}())'
    return suggestion(name, names)


def suggestion(name: str, known: Iterable[str], likeness: float = 0.75) -> str:
    """The known name that was probably meant: the same in another case, or all but a letter or so of it."""
    names = list(known)
    same = [each for each in names if each.lower() == name.lower()]
    close = same or difflib.get_close_matches(name, names, n=1, cutoff=likeness)
    return f"; did you mean {close[0]}?" if close else ""
