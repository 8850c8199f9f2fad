"""One verb for all that can be measured: random transformers, compiled models, and models of the user's own."""

from __future__ import annotations

import sys
from typing import Any

from headsmith.core.errors import TargetError
from headsmith.lab.signal.estimate import Measured, estimate
from headsmith.lab.signal.gain import Gains, block_gains, compiled_gains
from headsmith.lab.signal.moments import NORMS, norm_named
from headsmith.lab.signal.theory import Settings
from headsmith.model import Compiled

NETWORK = ("width", "hidden", "heads", "networks", "probes", "seed")


def measure(model: Any = None, inputs: Any = None, **options: Any) -> Measured | Gains:
    """Measure how gradients grow.

    `measure(norm="derf", alpha=1, depth=12, tokens=16, width=192, networks=8, probes=4, seed=0)` draws random
    transformers and estimates q, p and J by Hutchinson's method, with standard errors: a `Measured`. It takes the
    options of `apjn` (one alpha) and `width`, `hidden` (of the MLP, 4 width), `heads`, `networks`, `probes`, `seed`.

    `measure(compiled, samples=64, seed=0)` gives the gain of every layer of a compiled model on its domain: the
    average, the largest found, and a certified bound. A `Gains`.

    `measure(blocks, inputs, samples=16, seed=0)` does the same for a model of your own, a list of functions h -> h of
    numpy arrays, or of torch modules (a torch Sequential is such a list), at `inputs`; nothing is certified then.
    """
    if model is None or (isinstance(model, str) and model.lower() in NORMS):
        if inputs is not None:
            raise TargetError("random transformers make their own inputs, from q0 and p0")
        return _random(dict(options) if model is None else {"norm": model, **options})
    if isinstance(model, str):
        norm_named(model)
    if isinstance(getattr(model, "model", None), Compiled):
        # Learners in context and approximations of callables hold a compiled model.
        model = model.model
    if isinstance(model, Compiled):
        if inputs is not None:
            raise TargetError("a compiled model is measured on its domain; give samples and seed, no inputs")
        return compiled_gains(model, **_only(options, ("samples", "seed")))
    blocks = _blocks(model)
    if inputs is None:
        raise TargetError("give the inputs at which your blocks are measured: measure(blocks, inputs)")
    return block_gains(blocks, inputs, **_only(options, ("samples", "seed", "step")))


def _random(options: dict[str, Any]) -> Measured:
    known = tuple(Settings.__dataclass_fields__)
    _only(options, (*known, *NETWORK))
    settings = {"depth": 12, "tokens": 16, **{name: options[name] for name in options if name in known}}
    return estimate(Settings(**settings), **{name: options[name] for name in options if name in NETWORK})


def _only(options: dict[str, Any], known: tuple[str, ...]) -> dict[str, Any]:
    unknown = [name for name in options if name not in known]
    if unknown:
        raise TargetError(f"unknown option {', '.join(unknown)}; there are {', '.join(known)}")
    return options


def _blocks(model: Any) -> list[Any]:
    """A list of blocks from a list, from a torch Sequential or ModuleList, or from one block."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(model, torch.nn.Sequential | torch.nn.ModuleList):
        return list(model)
    if callable(model):
        return [model]
    try:
        return list(model)
    except TypeError:
        raise TargetError(
            f"cannot measure a {type(model).__name__}; give a compiled model, a list of functions h -> h, or no model "
            'and norm="layernorm", "derf" or "dyt"'
        ) from None
