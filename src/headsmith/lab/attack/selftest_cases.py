"""What the self-test compiles: random targets of every class, with random domains, errors, recipes and formats.

A class is a name and a maker: a function of a random generator that returns a compiled model. Makers are small on
purpose: a false bound shows in small models as well, and more of them can be tried.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from headsmith.core.rounding import Dtype
from headsmith.transformer.heads.attentions import SHARP

Random = np.random.Generator
Maker = Callable[[Random], Any]

NUMBERS = (1.0, -1.0, 0.5, 2.0, 0.1, -0.3, 0.7, 3.0, 0.2)
SMOOTH = ("sin", "cos", "tanh", "sigmoid", "softplus", "gelu", "erf", "exp")


def network(rng: Random) -> Any:
    """A ReLU network of one to three layers; some gates never cross zero."""
    from headsmith import Network, compile

    widths = [int(rng.integers(1, 4)), *rng.integers(1, 6, int(rng.integers(1, 4))).tolist(), int(rng.integers(1, 3))]
    layers = []
    for inputs, outputs in pairwise(widths):
        weights = rng.normal(size=(outputs, inputs)) * (rng.random((outputs, inputs)) < 0.8) / np.sqrt(inputs)
        layers.append((weights, rng.normal(size=outputs) * float(rng.choice([0.1, 0.5, 2.0]))))
    dtype = _format(rng)
    error = 10.0 ** -float(rng.uniform(1.5, 3.0 if dtype == "float32" else 7.0))
    scale = 10.0 ** float(rng.choice([-3.0, 0.0, 0.0, 2.0]))
    return compile(
        Network(layers),
        (-scale, scale),
        error=error * max(1.0, scale),
        dtype=dtype,
        tokens=int(rng.choice([1, 1, 3])),
    )


def deep_network(rng: Random) -> Any:
    """A network of layers that share their registers."""
    from headsmith import Network, compile

    depth = int(rng.integers(4, 8))
    widths = [int(rng.integers(1, 4)), *rng.integers(8, 12, depth).tolist(), 1]
    layers = []
    for inputs, outputs in pairwise(widths):
        weights = rng.normal(size=(outputs, inputs)) * float(rng.choice([0.3, 1.0, 1.4])) / np.sqrt(inputs)
        layers.append((weights * rng.choice([1.0, 1e-3], (outputs, 1)), rng.normal(size=outputs) * 0.1))
    tokens = int(rng.choice([1, 1, 3]))
    return compile(Network(layers), (-1, 1), error=1e-2, dtype=_format(rng), tokens=tokens)


def formula(recipe: str) -> Maker:
    """Random formulas by one recipe: of one variable, or with products and maxima of two. (Fitting a table of two
    variables to anything else takes minutes.)"""

    def make(rng: Random) -> Any:
        from headsmith import compile

        kinds = {"relu": "pm", "ramp": "pm", "native": "fsq", "auto": "pmf", "swiglu": "ppmsq"}[recipe]
        if recipe == "native" and rng.random() < 0.3:
            kinds = "p"
        count = 1 if kinds == "p" else int(rng.integers(1, 3))
        terms = [_term(rng, kinds, alone=kinds == "fsq") for _ in range(count)]
        text = " + ".join(f"{rng.choice(NUMBERS)}*({term})" for term in terms)
        dtype: Dtype = _format(rng) if recipe != "relu" else "float64"
        error = 10.0 ** -float(rng.uniform(1.0, 1.6 if recipe in ("relu", "ramp") else 3.0))
        width = float(rng.choice([0.1, 1.0, 1.0, 2.0])) if recipe in ("native", "swiglu") else 1.0
        domain = {name: (-width, width) for name in ("x", "y") if name in text}
        return compile(text, domain, error=error, recipe=recipe, dtype=dtype)

    return make


def other_attention(rng: Random) -> Any:
    """A small network under another attention than softmax, of one token or several, a program over tokens, or a
    polynomial under linear attention."""
    from headsmith import Network, compile, compile_sequence, relu
    from headsmith.sequence import tokens as over

    kind: Any = rng.choice(["hardmax", "sparsemax", "sigmoid", "relu", "elu+1", "linear"])
    if kind == "linear":
        text = f"{rng.choice(NUMBERS)}*{_term(rng, 'p', alone=False)}*{_term(rng, 'p', alone=False)} + x*y"
        return compile(text, (-2, 2), error=1e-3, dtype=_format(rng), attention=kind)
    error = 10.0 ** -float(rng.uniform(1.0, 3.0))
    tokens = int(rng.integers(2, 5)) if kind != "elu+1" and rng.random() < 0.7 else 1
    if tokens > 1 and rng.random() < 0.5:
        programs: list[Any] = [over.sort, lambda x: relu(over.shift(x, 1) - x)]
        if kind in SHARP:
            programs += [lambda x: over.max(x) - over.mean(x), lambda x: over.mean(relu(x)) + over.min(x)]
        program, given = programs[int(rng.integers(len(programs)))], {"dtype": _format(rng), "attention": kind}
        return compile_sequence(program, tokens=tokens, domain=(-1, 1), error=error, **given)
    widths = [2, int(rng.integers(1, 5)), int(rng.integers(1, 5)), 1]
    layers = [(rng.normal(size=(outputs, inputs)), rng.normal(size=outputs)) for inputs, outputs in pairwise(widths)]
    return compile(Network(layers), (-1, 1), error=error, dtype=_format(rng), attention=kind, tokens=tokens)


def _squares(rng: Random, pieces: int) -> tuple[Any, Any, Any]:
    """a b by chords of the square of a + b and of a - b: forms and biases of gates that lie along neither, and the
    weights of their sum, some of them a little off."""
    ends = np.arange(pieces) * (2.0 / pieces)
    # |u| on [0, 2] by its pieces: slopes 2 (k + 1/2) h rise by 2 h at each knot, and the first is h.
    slopes = np.full(pieces, 4.0 / pieces) - (np.arange(pieces) == 0) * (2.0 / pieces)
    forms = np.repeat([[1.0, 1.0], [-1.0, -1.0], [1.0, -1.0], [-1.0, 1.0]], pieces, axis=0)
    weights = np.concatenate([slopes, slopes, -slopes, -slopes]) / 4.0
    return forms, -np.tile(ends, 4), weights * (1.0 + rng.choice([0.0, 1e-3]) * rng.normal(size=len(weights)))


def product_by_squares(rng: Random) -> Any:
    """x y by squares."""
    from headsmith import Network, compile

    pieces = int(rng.integers(1, 4))
    forms, bias, weights = _squares(rng, pieces)
    network = Network([(forms, bias), (weights[None], [0.0])], names=["x", "y"])
    error = 1.3 / pieces**2 / 4.0 + 0.05
    return compile(network, (-1, 1), error=error, dtype=_format(rng), approximates="x*y")


def product_of_three(rng: Random) -> Any:
    """(x y) z by squares: a composition, z carried by two gates, which is proved piece by piece."""
    from headsmith import Network, compile

    pieces = int(rng.integers(1, 3))
    (first, bias, inner), (second, thresholds, outer) = (_squares(rng, pieces) for _ in range(2))
    count = len(bias)
    gates = np.zeros((count + 2, 3))
    gates[:count, :2], gates[count:, 2] = first, [1.0, -1.0]
    held = np.zeros((2, count + 2))
    held[0, :count], held[1, count:] = inner, [1.0, -1.0]
    layers = [(gates, np.append(bias, [0.0, 0.0])), (second @ held, thresholds), (outer[None], [0.0])]
    network, error = Network(layers, names=list("xyz"), transposed=False), 3.0 / pieces**2 / 4.0 + 0.2
    return compile(network, (-1, 1), error=error, dtype=_format(rng), approximates="x*y*z")


def approximator(rng: Random) -> Any:
    """A network with the function that it was made for: chords between knots, of one input or of a sum of two; some of
    its weights are a little off."""
    from headsmith import Network, compile
    from headsmith.core.functions import FUNCTIONS

    kind = rng.random()
    if kind < 0.4:
        return product_by_squares(rng) if kind < 0.25 else product_of_three(rng)
    names, start, far = list("xy")[: int(rng.integers(1, 3))], 0.0, 0.0
    rows, biases, last = list[Any](), list[float](), list[float]()
    chosen = [str(each) for each in rng.choice(SMOOTH, len(names))]
    for place, name in enumerate(chosen):
        ends = np.sort([-1.0, *rng.uniform(-1.0, 1.0, int(rng.integers(1, 6))), 1.0])
        between, values = np.linspace(-1.0, 1.0, 1001), FUNCTIONS[name].value(ends, None).astype(np.float64)
        slopes = np.diff(values) / np.diff(ends)
        rows += [np.eye(len(names))[place]] * len(slopes)
        biases, last, start = [*biases, *(-ends[:-1])], [*last, *np.diff(slopes, prepend=0.0)], start + float(values[0])
        far += float(np.abs(np.interp(between, ends, values) - FUNCTIONS[name].value(between, None)).max())
    weights = np.array(last) * (1.0 + rng.choice([0.0, 1e-3]) * rng.normal(size=len(last)))
    network = Network([(np.array(rows), biases), (weights[None], [start])], names=names, transposed=False)
    formula = " + ".join(f"{name}({each})" for name, each in zip(chosen, names, strict=True))
    return compile(network, (-1, 1), error=1.2 * far + 0.05, dtype=_format(rng), approximates=formula)


def pieces(rng: Random) -> Any:
    """The largest of several affine forms, with a token for each."""
    from headsmith import compile

    forms = [f"{rng.choice(NUMBERS)}*x + {rng.choice(NUMBERS)}*y + {rng.choice(NUMBERS)}" for _ in range(3)]
    sign = rng.choice(["", "-", "y/2 - "])
    return compile(f"{sign}max({', '.join(forms)})", (-1, 1), error=1e-2, recipe="maxout", dtype=_format(rng))


def of_16_bits(rng: Random) -> Any:
    """Networks, formulas and programs over sequences in bfloat16 and float16, close to the smallest error there is."""
    from headsmith import Network, UnreachableError, compile, compile_sequence
    from headsmith.sequence import tokens as over

    dtype: Dtype = "float16" if rng.random() < 0.5 else "bfloat16"
    weights = [rng.normal(size=shape) for shape in ((3, 2), (3, 3), (1, 3))]
    network = Network([(each, rng.normal(size=len(each))) for each in weights])
    a, tokens = float(rng.choice(NUMBERS)), int(rng.choice([1, 1, 3]))
    makers: list[Callable[[float], Any]] = [
        lambda error: compile(network, (-1, 1), error, dtype=dtype, tokens=tokens),
        lambda error: compile(f"{rng.choice(SMOOTH)}(x) + {a}*y", (-1, 1), error, dtype=dtype, tokens=tokens),
        lambda error: compile(f"x*y + {a}", (-1, 1), error, dtype=dtype),
        lambda error: compile_sequence(
            lambda x: over.max(x) + a * over.mean(x), tokens=3, domain=(-1, 1), error=error, dtype=dtype
        ),
    ]
    chosen = makers[int(rng.integers(len(makers)))]
    state = rng.bit_generator.state
    try:
        return chosen(1e-5)
    except UnreachableError as refusal:
        rng.bit_generator.state = state
        return chosen(refusal.smallest * float(rng.uniform(1.0, 4.0)))


def _format(rng: Random) -> Dtype:
    return "float32" if rng.random() < 0.3 else "float64"


def _term(rng: Random, kinds: str, alone: bool) -> str:
    """One non-linear term, of x and y or of x `alone`."""
    forms = ["x", f"(x + {rng.choice(NUMBERS)})", f"({rng.choice(NUMBERS)}*x)"]
    forms += [] if alone else [f"({rng.choice(NUMBERS)}*x + {rng.choice(NUMBERS)}*y)", "y"]
    first, second = (str(each) for each in rng.choice(forms, 2))
    match str(rng.choice(list(kinds))):
        case "p":
            return f"{first}*{second}"
        case "m":
            return f"{rng.choice(['max', 'min'])}({first}, {second})"
        case "f":
            return f"{rng.choice(SMOOTH)}({first})"
        case "s":
            return f"{rng.choice(SMOOTH)}({first})*{rng.choice(SMOOTH)}({first})"
        case _:
            return f"{first}/(3 + sin({second}))"


def program(rng: Random) -> Any:
    """A program over the tokens of a sequence."""
    from headsmith import compile_sequence
    from headsmith.sequence import tokens as over

    causal, tokens = bool(rng.random() < 0.4), int(rng.integers(2, 6))
    a, b = (float(each) for each in rng.choice(NUMBERS, 2))
    programs: dict[str, Callable[[Any], Any]] = {
        "mean": lambda x: a * over.mean(x) + b * x,
        "max": lambda x: over.max(a * x) + b * x,
        "min": lambda x: over.min(x) - b * over.mean(x),
        "before": lambda x: a * over.shift(x, 1) + b * x,
        "centred": lambda x: over.max(x - over.mean(x)),
        "attention": lambda x: over.attend(a * x, b * x, x),
        "average": lambda x: over.moving_average(x, 2),
        "positions": lambda x: x + a * over.position(x),
    }
    if not causal:
        programs["after"] = lambda x: over.shift(x, -1) + b * x
        programs["sort"] = lambda x: over.sort(x)
    dtype = _format(rng)
    error = 10.0 ** -float(rng.uniform(1.0, 2.5))
    programs["products"] = lambda x: over.mean(a * x * x) * (x - b)
    name = str(rng.choice(sorted(programs)))
    recipe = "swiglu" if name == "products" and rng.random() < 0.7 else "auto"
    chosen = programs[name]
    return compile_sequence(
        chosen, tokens=tokens, domain=(-1, 1), error=error, causal=causal, dtype=dtype, recipe=recipe
    )


def learner(rng: Random) -> Any:
    """Regression from examples in the context, by kernels or by gradient descent."""
    from headsmith import in_context

    features, examples = int(rng.integers(1, 3)), int(rng.integers(2, 4))
    if rng.random() < 0.5:
        return in_context.kernel_regression(float(rng.uniform(0.4, 1.0)), features, examples, error=1e-3)
    return in_context.least_squares(int(rng.integers(1, 3)), features, examples, error=1e-2)


def circuit(rng: Random) -> Any:
    """A circuit to be rewritten: a sketch, or that of a compiled model."""
    from headsmith.lab.attack.drafts import draft_of
    from headsmith.lab.attack.file_attack import saved
    from headsmith.lab.attack.forged_seeds import SEEDS

    name = str(rng.choice([*SEEDS, "compiled"]))
    if name != "compiled":
        return SEEDS[name](rng)
    makers = [network, formula("native"), formula("relu"), formula("ramp"), formula("swiglu"), program]
    return draft_of(*saved(makers[int(rng.integers(len(makers)))](rng))) or SEEDS["gates"](rng)


CLASSES: dict[str, Maker] = {
    "networks": network,
    "deep networks": deep_network,
    "formulas, native": formula("native"),
    "formulas, relu": formula("relu"),
    "formulas, ramp": formula("ramp"),
    "formulas, auto": formula("auto"),
    "formulas, maxout": pieces,
    "formulas, swiglu": formula("swiglu"),
    "other attentions": other_attention,
    "16 bits": of_16_bits,
    "approximators": approximator,
    "sequence programs": program,
    "learners": learner,
    "rewritten circuits": circuit,
}
