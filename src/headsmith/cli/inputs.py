"""What the command line reads and writes: formulas, networks in files, domains, tables of inputs and outputs."""

from __future__ import annotations

import csv
import math
import os
import re
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from typing import IO, Any

import numpy as np

from headsmith.core.arrays import Array
from headsmith.core.errors import DomainError, TargetError
from headsmith.core.figures import count
from headsmith.core.folders import replaced
from headsmith.language.formula import parse
from headsmith.model import Compiled
from headsmith.readers.imported import Imported
from headsmith.readers.weight_files import FILES, ReadNetwork, read_network
from headsmith.readers.weight_files import read_npz as read_npz
from headsmith.sequence.compiled import CompiledSequence
from headsmith.sequence.universal import Universal

_FILE = re.compile(r"[\w./\\~-]+\.[A-Za-z]{2,}\w*")
"""What is rather a file's name than a formula."""


def read_target(
    texts: Sequence[str], shape: Sequence[int] | None = None, allow_pickle: bool = False
) -> tuple[ReadNetwork | list[str], tuple[str, ...]]:
    """The target that a command names, and its inputs: a file with a network, or formulas, one output each."""
    if len(texts) == 1 and texts[0].lower().endswith(FILES):
        network = read_network(texts[0], shape, allow_pickle)
        return network, network.names
    for text in texts:
        if _FILE.fullmatch(text) or os.path.isfile(text):
            raise TargetError(
                f"{text}: not a target that can be read; give formulas, or a file with a network: .onnx, .safetensors "
                f"or .npz with weights W0, b0, W1, b1, ..."
            )
    formulas = [text.strip() for text in texts]
    return formulas, parse(formulas)[0]


def network_data(target: Any) -> dict[str, Any]:
    """What is said about a network that was read from a file; nothing about other targets."""
    if not isinstance(target, Imported):
        return {}
    return {"network": {"notes": target.notes, "difference": target.difference}}


def read_shape(text: str | None) -> list[int] | None:
    """Whole numbers with commas or an x between them; None where nothing is given."""
    if text is None:
        return None
    try:
        return [int(each) for each in re.split("[,x]", text)]
    except ValueError:
        raise TargetError(f"cannot read the shape {text!r}; write its sizes without the batch, as in 1,8,8") from None


def read_costs(texts: Sequence[str]) -> dict[str, float] | None:
    """NAME=WEIGHT, each once; None where there are none."""
    weights: dict[str, float] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or name in weights or not _is_number(value):
            raise TargetError(f"cannot read the cost {text!r}; write NAME=WEIGHT once for each, as in heads=2")
        weights[name] = float(value)
    return weights or None


def read_numbers(text: str | None) -> list[int] | None:
    """Whole numbers that are separated by commas; None where nothing is given."""
    if text is None:
        return None
    try:
        return [int(each) for each in text.split(",")]
    except ValueError:
        raise DomainError(f"cannot read the outputs {text!r}; write numbers and commas, as in 0,2") from None


def read_point(texts: Sequence[str], names: Sequence[str]) -> Array:
    """One row of inputs from NAME=VALUE texts."""
    values: dict[str, float] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        # x0 is as good as x[:, 0], which a shell would want quoted.
        name = _full(name.strip(), names)
        if not equals or name in values:
            raise DomainError(f"cannot read the input {text!r}; write NAME=VALUE once for each of {_some(names)}")
        values[name] = _number(value, f"input {name}")
    missing, unknown = [name for name in names if name not in values], [name for name in values if name not in names]
    if missing or unknown:
        problem = f"no value for {_some(missing)}" if missing else f"there is no input {_some(unknown)}"
        raise DomainError(f"{problem}; the inputs are {_some(names)}")
    return np.array([[values[name] for name in names]])


PIPE = "-"
"""In place of a file's name: standard input."""


def read_rows(path: str, names: Sequence[str]) -> tuple[Array, list[str]]:
    """The rows of a .csv file, or with "-" of standard input, and where each of them stands. A header names columns, in
    any order; without one, they are in the inputs' order."""
    if path != PIPE and not os.path.exists(path):
        raise DomainError(f"{path}: no such file")
    try:
        with nullcontext(sys.stdin) if path == PIPE else open(path, newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file)
            lines = [(reader.line_num, line) for line in reader if any(cell.strip() for cell in line)]
    except (UnicodeDecodeError, csv.Error, OSError) as problem:
        raise DomainError(f"{path}: not a readable .csv file ({problem})") from None
    path = "standard input" if path == PIPE else path
    if not lines:
        raise DomainError(f"{path}: no rows; give one row of inputs a line, under a header {_some(names)}")
    columns, width = list(range(len(names))), len(names)
    header = [cell.strip() for cell in lines[0][1]]
    if not any(_is_number(cell) for cell in header):
        columns, width, lines = _columns(path, header, names), len(header), lines[1:]
    elif len(header) != len(names):
        raise DomainError(
            f"{path}: {len(header)} columns and no header, for {len(names)} inputs: {_some(names)}{_semicolons(header)}"
        )
    places = [
        f"{path}, row {row}{f' (line {number})' if number != row else ''}" for row, (number, _) in enumerate(lines, 1)
    ]
    rows = [_row(line, columns, width, names, where) for where, (_, line) in zip(places, lines, strict=True)]
    return np.array(rows).reshape(-1, len(names)), places


def _columns(path: str, header: Sequence[str], names: Sequence[str]) -> list[int]:
    """Where in the header each input stands; x0 is as good as x[:, 0], which holds a comma."""
    places = []
    for name in names:
        short = _short(name)
        found = [place for place, cell in enumerate(header) if cell in (name, short)]
        if len(found) != 1:
            problem = "no column" if not found else f"{len(found)} columns"
            raise DomainError(
                f"{path}: the header has {problem} {short}; it has {_some(header)}, and the inputs are {_some(names)}"
                f"{_semicolons(header)}"
            )
        places.append(found[0])
    return places


def _short(name: str) -> str:
    return re.sub(r"^x\[:, (\d+)\]$", r"x\1", name)


def _full(given: str, names: Sequence[str]) -> str:
    return next((name for name in names if _short(name) == given), given)


def _semicolons(header: Sequence[str]) -> str:
    return "; columns are separated by commas, not semicolons" if any(";" in cell for cell in header) else ""


def _row(line: Sequence[str], columns: Sequence[int], width: int, names: Sequence[str], where: str) -> list[float]:
    if len(line) != width:
        raise DomainError(f"{where}: {count(len(line), 'column')}; there should be {width}")
    return [_number(line[column], f"{where}, {name}") for column, name in zip(columns, names, strict=True)]


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _number(text: str, where: str) -> float:
    try:
        return float(text)
    except ValueError:
        shown = f"{text!r} is not a number" if text.strip() else "nothing is given"
        raise DomainError(f"{where}: {shown}") from None


def input_names(model: Compiled | Universal) -> tuple[str, ...]:
    """The names of a row's numbers: of the inputs, or of a token's features."""
    if isinstance(model, Universal):
        return tuple(f"x[:, {feature}]" for feature in range(model.features))
    return model.box.names


def assumption(model: Compiled | Universal) -> str | None:
    """What a certificate takes for granted of its target: nothing, unless it was sampled."""
    return model.assumed if isinstance(model, Universal) else None


def outside_rows(model: Compiled | Universal, rows: Array) -> Any:
    """Which numbers of the rows lie outside the model's domain."""
    if isinstance(model, Universal):
        low, high = (end.reshape(-1, model.features) for end in (model.box.low, model.box.high))
        each = np.arange(len(rows)) % model.tokens
        return ~((rows >= low[each]) & (rows <= high[each]))
    return ~model.box.contains(rows)


def refuse_outside(model: Compiled | Universal, rows: Array, places: Sequence[str]) -> None:
    """Raise DomainError that names the first number outside the domain, and where it stands."""
    wrong = np.argwhere(outside_rows(model, rows))
    if not len(wrong):
        return
    row, column = map(int, wrong[0])
    place = row % model.tokens * model.features + column if isinstance(model, Universal) else column
    low, high = float(model.box.low[place]), float(model.box.high[place])
    value = float(rows[row, column])
    given = f"{places[row] + ': ' if places else ''}input {input_names(model)[column]} = {value!r}"
    if not math.isfinite(value):
        raise DomainError(f"{given} is no finite number")
    raise DomainError(
        f"{given} lies outside its domain [{low!r}, {high!r}]; the certificate holds only inside (compile for a larger "
        "domain, or give --outside to run without any promise)"
    )


def run_rows(model: Compiled | Universal, rows: Array, *, causal: bool) -> Array:
    """The model's outputs for rows of inputs, inside the domain or not: each row alone, or as sequences of the model's
    token count."""
    if isinstance(model, Universal):
        return _run_sampled(model, rows, causal)
    # A sequence program knows its own mask.
    mask: Any = causal if causal or not isinstance(model, CompiledSequence) else None
    tokens = model.transformer.tokens
    if model.blocks or (tokens == 1 and not isinstance(model, CompiledSequence)):
        return model(rows, causal=mask, outside="allow")
    parts = [model(rows[start : start + tokens], causal=mask, outside="allow") for start in range(0, len(rows), tokens)]
    return np.concatenate(parts) if parts else np.zeros((0, model.transformer.outputs))


def _run_sampled(model: Universal, rows: Array, causal: bool) -> Array:
    """Run a model of a callable, which takes whole sequences, on rows."""
    if causal:
        raise DomainError("the model of a sampled callable runs without a mask: every token looks at all of them")
    if len(rows) % model.tokens:
        raise DomainError(
            f"{count(len(rows), 'row')}; the model takes sequences of exactly {count(model.tokens, 'token')}, one a row"
        )
    outputs = model(rows.reshape(-1, model.tokens, model.features), outside="allow")
    return outputs.reshape(len(rows), -1)


def sequences_text(model: Compiled | Universal, rows: Array) -> str | None:
    """How the rows were divided into sequences, where there is more than one."""
    if not isinstance(model, CompiledSequence | Universal) or len(rows) <= model.tokens:
        return None
    number = -(-len(rows) // model.tokens)
    return f"{len(rows)} rows were run as {number} sequences of at most {count(model.tokens, 'token')}"


def write_rows(path: str | None, outputs: Array) -> None:
    """Outputs as .csv with a header y0, y1, ...: to a file, completely or not at all, or to standard output."""
    if path is None:
        return _write_csv(sys.stdout, outputs)
    with replaced(path) as temporary, open(temporary, "w", newline="", encoding="utf-8") as file:
        _write_csv(file, outputs)


def _write_csv(file: IO[str], outputs: Array) -> None:
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([f"y{index}" for index in range(outputs.shape[1])])
    writer.writerows(outputs.tolist())


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
