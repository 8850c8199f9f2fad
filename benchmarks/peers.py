"""Side by side with Tracr, on programs that both can express: reverse and sort a sequence. `make peers` runs it in an
environment of its own.

Tracr works on a finite vocabulary, whose tokens are here the numbers 0 to n - 1; Headsmith on all real numbers of that
interval, within a proven error of 1e-3. Times are the processor's, of one compilation after the imports, both in one
run; parameters are all numbers that a model stores, zeros included.
"""

from __future__ import annotations

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


def main() -> None:
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


if __name__ == "__main__":
    main()
