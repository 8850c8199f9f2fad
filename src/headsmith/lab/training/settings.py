"""How training is done: the options of `hs.train`, checked."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

from headsmith.core.errors import TargetError

STARTS = ("random", "compiled", "perturbed")


@dataclass(frozen=True)
class Settings:
    """How training is done; every field is an option of `hs.train`."""

    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    starts: tuple[str, ...] = STARTS
    steps: int = 2000
    rates: tuple[float, ...] = (0.1, 0.03, 0.01)
    iterations: int = 60
    polish: bool = True
    noise: float = 0.1
    zeros: bool = True
    certify: bool = True


def settings_of(**options: Any) -> Settings:
    """Options as settings, checked: a number of seeds stands for the first ones."""
    names = [each.name for each in fields(Settings)]
    unknown = sorted(options.keys() - {*names})
    if unknown:
        raise TargetError(f"train has no option {unknown[0]}; it has {', '.join(names)}, error and shape")
    seeds = options.get("seeds", 5)
    options["seeds"] = tuple(range(seeds)) if isinstance(seeds, int) else tuple(int(seed) for seed in seeds)
    for name in ("starts", "rates"):
        if name in options:
            given = options[name]
            options[name] = (given,) if isinstance(given, str | float | int) else tuple(given)
    found = Settings(**options)
    wrong = {
        "seeds": not found.seeds or min(found.seeds) < 0 or len({*found.seeds}) < len(found.seeds),
        "starts": not found.starts or not {*found.starts} <= {*STARTS},
        "steps": not isinstance(found.steps, int) or found.steps < 1,
        "rates": not found.rates or not all(0.0 <= rate < math.inf for rate in found.rates),
        "iterations": not isinstance(found.iterations, int) or found.iterations < 0,
        "noise": not 0.0 <= found.noise < math.inf,
    }
    for name, bad in wrong.items():
        if bad:
            raise TargetError(f"{name} is {getattr(found, name)!r}; {_WANTED[name]}")
    return found


_WANTED = {
    "seeds": "give a positive number of seeds, or a list of different seeds, none negative",
    "starts": f"choose among {', '.join(STARTS)}",
    "steps": "a positive integer is needed",
    "rates": "finite numbers that are not negative are needed",
    "iterations": "an integer that is not negative is needed",
    "noise": "a finite number that is not negative is needed",
}
