"""Side by side with Tracr and torchwright, on what both can express. `make peers` runs it in an environment of its own.

**Tracr**: reverse and sort a sequence. It works on a finite vocabulary, whose tokens are here the numbers 0 to n - 1;
Headsmith on all real numbers of that interval, within a proven error of 1e-3. Times are the processor's, of one
compilation after the imports, both in one run; parameters are all numbers that a model stores, zeros included.

**torchwright**: functions of one or two numbers, within 0.01. It computes in feed-forward blocks (ReLU or SwiGLU) and
asks for a grid; given is the coarsest uniform one (of 1/x a geometric one, as it makes them itself) with which the
function, interpolated in exact arithmetic, stays within that error, and the smallest power of two for d_model that it
takes. Its error is the largest on 2,001 inputs that were tried: an estimate. Headsmith's is proven, and its arithmetic
is attention alone.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import headsmith as hs

LENGTHS = (5, 10)


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    """What a call returns, and the processor's time."""
    start = time.process_time()
    found = call()
    return found, time.process_time() - start


def by_tracr(program: str, length: int) -> tuple[str, float, int, int, str]:
    import jax
    from tracr.compiler import compiling, lib
    from tracr.rasp import rasp

    # Sorting by keys needs them to be at least one; the vocabulary is moved by one.
    first = 1 if program == "sort" else 0
    made = (
        lib.make_reverse(rasp.tokens)
        if program == "reverse"
        else lib.make_sort(rasp.tokens, rasp.tokens, max_seq_len=length, min_key=1)
    )
    vocabulary = set(range(first, first + length))
    model, seconds = timed(
        lambda: compiling.compile_rasp_to_model(made, vocab=vocabulary, max_seq_len=length, compiler_bos="bos")
    )
    weights = jax.tree_util.tree_leaves(model.params)
    given = np.random.default_rng(0).permutation(sorted(vocabulary)).tolist()
    wanted = given[::-1] if program == "reverse" else sorted(given)
    right = model.apply(["bos", *given]).decoded[1:] == wanted
    parameters, nonzeros = (sum(int(count(each)) for each in weights) for count in (np.size, np.count_nonzero))
    return "Tracr", seconds, parameters, nonzeros, "right" if right else "wrong on a permutation of its vocabulary"


def by_headsmith(program: str, length: int) -> tuple[str, float, int, int, str]:
    over = hs.tokens
    made = over.sort if program == "sort" else lambda x: over.gather(x, range(length - 1, -1, -1))
    model, seconds = timed(
        lambda: hs.compile_sequence(made, tokens=length, domain=(0, length - 1), error=1e-3, progress=False)
    )
    bill = model.bill
    return "Headsmith", seconds, bill.parameters, bill.nonzeros, f"error <= {model.certificate.error:.2g}, proven"


FUNCTIONS: dict[str, tuple[str, dict[str, tuple[float, float]], Callable[..., Any]]] = {
    "sin": ("sin(x)", {"x": (-math.pi, math.pi)}, np.sin),
    "exp": ("exp(x)", {"x": (-1.0, 1.0)}, np.exp),
    "1/x": ("1/x", {"x": (0.1, 10.0)}, lambda x: 1.0 / x),
    "x*y": ("x*y", {"x": (-1.0, 1.0), "y": (-1.0, 1.0)}, np.multiply),
    "x*y, SwiGLU": ("x*y", {"x": (-1.0, 1.0), "y": (-1.0, 1.0)}, np.multiply),
    "min": ("min(x, y)", {"x": (-1.0, 1.0), "y": (-1.0, 1.0)}, np.minimum),
}
ERROR = 0.01


def by_torchwright(name: str) -> tuple[str, float, int, int, int, str]:
    import torch
    from torchwright import compile_headless
    from torchwright.ops.inout_nodes import create_input
    from torchwright.ops.relu import arithmetic_ops as relu
    from torchwright.ops.swiglu import arithmetic_ops as swiglu

    _, domain, exact = FUNCTIONS[name]
    x, *rest = (create_input(each, 1, value_range=interval) for each, interval in domain.items())
    if name == "x*y":
        # A step of 0.4 is the coarsest that divides the interval and stays within the error.
        node, hidden = relu.multiply_2d(x, rest[0], 1.0, 1.0, step1=0.4, step2=0.4), 64
    elif name == "x*y, SwiGLU":
        node, hidden = swiglu.multiply(x, rest[0]), 8
    elif name == "min":
        node, hidden = relu.min(x, rest[0]), 8
    else:
        grid = coarsest(exact, *domain["x"], geometric=name == "1/x")
        node, hidden = relu.piecewise_linear(x, grid.tolist(), lambda at: float(exact(at))), len(grid) + 2
    start = time.process_time()
    for width in (8, 16, 32, 64, 128):
        try:
            model = compile_headless(node, d=width, d_head=8, d_hidden=hidden)
            break
        except Exception as problem:  # it says in many ways that the width is too small
            reason = problem
    else:
        raise RuntimeError(f"torchwright does not compile {name}") from reason
    seconds = time.process_time() - start
    random = np.random.default_rng(0)
    given = np.stack([random.uniform(low, high, 2001) for low, high in domain.values()], axis=-1)
    if len(domain) == 1:
        given = np.linspace(*domain["x"], 2001)[:, None]
    with torch.no_grad():
        found = np.array([model(torch.tensor(row[None], dtype=torch.float32)).item() for row in given])
    worst = float(np.abs(found - exact(*given.T)).max())
    arrays = [each for layer in model.net.layers for each in tensors(layer)]
    sizes = (sum(each.numel() for each in arrays), sum(int(torch.count_nonzero(each)) for each in arrays))
    assert sizes[0] == sum(layer.num_params() for layer in model.net.layers)
    return "torchwright", seconds, len(model.net.layers), *sizes, f"error {worst:.2g} found (an estimate)"


def tensors(layer: Any) -> list[Any]:
    """The weights of one of torchwright's layers."""
    parts = [layer.attn.attn, *vars(layer.mlp).values()]
    found = [value for part in parts for name, value in getattr(part, "__dict__", {}).items() if "_matrix" in name]
    return found + [part.output_bias for part in parts if hasattr(part, "output_bias")]


def coarsest(exact: Callable[..., Any], low: float, high: float, geometric: bool) -> Any:
    """The grid of fewest knots on which interpolation stays within the error."""
    fine = np.linspace(low, high, 200_001)
    for knots in range(2, 1000):
        grid = np.geomspace(low, high, knots) if geometric else np.linspace(low, high, knots)
        if np.abs(np.interp(fine, grid, exact(grid)) - exact(fine)).max() <= ERROR:
            return grid
    raise RuntimeError("no grid is fine enough")


def by_headsmith_alone(name: str) -> tuple[str, float, int, int, int, str]:
    formula, domain, _ = FUNCTIONS[name]
    model, seconds = timed(lambda: hs.compile(formula, domain, ERROR, progress=False))
    bill = model.bill
    told = f"error <= {model.certificate.error:.2g}, proven"
    return "Headsmith", seconds, bill.layers, bill.parameters, bill.nonzeros, told


def functions() -> None:
    print("| function | by | compile | times the shorter | layers | parameters | not zero | result |")
    print("|---|---|---:|---:|---:|---:|---:|---|")
    for name in FUNCTIONS:
        rows = [by_headsmith_alone(name), by_torchwright(name)]
        shorter = min(seconds for _, seconds, *_ in rows)
        for by, seconds, layers, parameters, nonzeros, result in rows:
            print(
                f"| {name} | {by} | {seconds:.2f} s | {seconds / shorter:.1f} | {layers} | {parameters:,} | "
                f"{nonzeros:,} | {result} |",
                flush=True,
            )


def programs() -> None:
    print("| program | tokens | by | compile | times the shorter | parameters | not zero | result |")
    print("|---|---:|---|---:|---:|---:|---:|---|")
    for program in ("reverse", "sort"):
        for length in LENGTHS:
            rows = [by_headsmith(program, length), by_tracr(program, length)]
            shorter = min(seconds for _, seconds, *_ in rows)
            for name, seconds, parameters, nonzeros, result in rows:
                print(
                    f"| {program} | {length} | {name} | {seconds:.2f} s | {seconds / shorter:.1f} | {parameters:,} | "
                    f"{nonzeros:,} | {result} |"
                )


def main() -> None:
    programs()
    print()
    functions()


if __name__ == "__main__":
    main()
