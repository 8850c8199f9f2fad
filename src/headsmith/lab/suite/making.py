"""The suite as a whole: folders of models from one seed, and an index.

    hs.suite.make("suite", seed=0, models=10)     ten families x ten models x four levels
    for folder in hs.suite.load("suite"): ...
    hs.suite.verify("suite")

Level 0 is the plain model; 1 balanced, compressed, mixed, permuted and rotated; 2 with heads in parts and idle ones; 3
compiled sharper than is claimed, with whispers that use up the rest. The same seed makes the same suite, and a private
one is a seed that nobody knows: the models are others, and so are the disguises.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from headsmith.core.errors import CertificateError, FileFormatError, TargetError
from headsmith.lab.suite.families import FAMILIES
from headsmith.lab.suite.folder import VERSION, Folder, verify_folder, write_folder
from headsmith.transformer.heads.table import TableBank

ERROR = 1e-3
"""What every model is claimed to be off by at most."""

ROOM = 1.3
"""A disguise may be claimed to be off by so much more, where rounding needs it."""

WHISPERED = 0.9
"""Which part of the error whispers use up."""

LARGEST, MOST_DRAWN = 256.0, 16
"""Tables hold numbers of at most this size; so many targets are drawn until they do."""

INDEX = "index.json"

Line = Callable[[str], None]


def make(
    folder: str | os.PathLike[str],
    seed: int = 0,
    *,
    families: Sequence[str] = (),
    models: int = 10,
    levels: Sequence[int] = (0, 1, 2, 3),
    progress: Line | None = None,
) -> list[Folder]:
    """Write a suite into a new folder, from a seed."""
    wanted = list(families) or list(FAMILIES)
    if unknown := [name for name in wanted if name not in FAMILIES]:
        raise TargetError(f"there is no family {unknown[0]!r}; there are {', '.join(FAMILIES)}")
    if not set(levels) <= {0, 1, 2, 3} or models < 1:
        raise TargetError("levels are 0 to 3, and of each family there is one model at least")
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    if (path / INDEX).exists():
        raise FileExistsError(f"{path}: holds a suite already; name a new folder")
    made = []
    for family in wanted:
        for number in range(models):
            for level in levels:
                made.append(_one(path, family, seed, number, level))
                if progress is not None:
                    progress(f"{made[-1].name}: {made[-1].told['target']} {made[-1].told['edges']}")
    index = {"format": "headsmith suite", "version": VERSION, "seed": seed, "folders": [each.name for each in made]}
    (path / INDEX).write_text(json.dumps(index, indent=1) + "\n", encoding="utf-8")
    return made


def drawn(family: str, seed: int, number: int, level: int) -> tuple[Any, str]:
    """The model of a family, in its disguise, and what it computes."""
    place = list(FAMILIES).index(family)
    usual, sharp, text = _plain(family, seed, number)
    plain = sharp if level == 3 else usual
    if level == 0:
        return plain, text
    amplitude = WHISPERED * (ERROR - plain.certificate.error)
    disguise_seed = int(np.random.default_rng([seed, place, number, level]).integers(1 << 31))
    hidden = plain.disguise(level, seed=disguise_seed, amplitude=amplitude)
    over = hidden.certificate.error - ERROR
    if level == 3 and 0.0 < over < amplitude / 2.0:
        # What rounding takes, whispers must leave.
        hidden = plain.disguise(level, seed=disguise_seed, amplitude=amplitude - 1.1 * over)
    return hidden, text


@lru_cache(maxsize=4)
def _plain(family: str, seed: int, number: int) -> tuple[Any, Any, str]:
    """The plain model of a family, and a sharper one of the same target, which is drawn again where tables hold numbers
    so large that rounding in another basis would matter."""
    place, text = list(FAMILIES).index(family), ""
    for attempt in range(MOST_DRAWN):
        made = []
        for error in (ERROR, FAMILIES[family].sharp):
            model, text = FAMILIES[family].make(np.random.default_rng([seed, place, number, attempt]), error)
            made.append(model)
        if all(_held(model) <= LARGEST for model in made):
            return made[0], made[1], text
    raise CertificateError(f"{family} {number}: {MOST_DRAWN} targets were drawn, and tables hold large numbers in all")


def _held(model: Any) -> float:
    """The largest number that a table holds."""
    banks = [bank for layer in model.transformer.layers for bank in layer.banks if isinstance(bank, TableBank)]
    return max((float(np.max(np.abs(bank.values))) for bank in banks), default=0.0)


def _one(path: Path, family: str, seed: int, number: int, level: int) -> Folder:
    model, text = drawn(family, seed, number, level)
    name = f"{family}-{number}-level{level}"
    error = max(ERROR, model.certificate.error)
    if error > ROOM * ERROR:
        raise CertificateError(f"{name}: the disguise is off by {error:g}: rounding takes too much")
    told = {
        "format": "headsmith suite model",
        "version": VERSION,
        "name": name,
        "family": family,
        "seed": seed,
        "number": number,
        "level": level,
        "target": text,
        "error": error,
        "data_seed": seed * 1000 + number,
        "words": family == "words",
        "unique": False,
    }
    return write_folder(path / name, model, told)


def load(folder: str | os.PathLike[str]) -> list[Folder]:
    """The folders of a suite, or the one folder that this is."""
    path = Path(folder)
    if (path / "suite.json").exists():
        return [Folder(path)]
    try:
        index = json.loads((path / INDEX).read_text(encoding="utf-8"))
        return [Folder(path / str(name)) for name in index["folders"]]
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise FileFormatError(f"{path}: no suite ({problem})") from None


def verify(folder: str | os.PathLike[str], progress: Line | None = None) -> list[Folder]:
    """Prove a suite: every folder, and that it is what its seed makes. CertificateError where anything is not so."""
    found = []
    for each in load(folder):
        found.append(verified(each))
        if progress is not None:
            progress(f"{each.name}: proved")
    return found


def verified(folder: Folder) -> Folder:
    """Prove one folder. Trained networks are not trained again: their weights are in the proof."""
    told = folder.told
    try:
        family, seed, number, level = (told[name] for name in ("family", "seed", "number", "level"))
        known = family in FAMILIES and all(type(each) is int and each >= 0 for each in (seed, number, level))
    except KeyError:
        known = False
    if not known or told.get("name") != f"{family}-{number}-level{level}":
        raise CertificateError(f"{folder.path}: suite.json names no model of a family")
    if told.get("data_seed") != seed * 1000 + number or told.get("words") is not (family == "words"):
        raise CertificateError(f"{folder.path}: suite.json has other seeds than its model")
    again, text = drawn(family, seed, number, level)
    if told["target"] != text:
        raise CertificateError(f"{folder.path}: the target of this seed is {text}")
    return verify_folder(folder.path, again)


def folders(given: str | os.PathLike[str]) -> Iterator[Folder]:
    """Those of a suite, one after the other."""
    yield from load(given)
