"""The process that compiles: it reads one request a line, and writes lines of JSON: progress, then done or failed.

It runs apart from the server, within a limit of memory, so that whatever a target costs, the page stays. An answer
never has a path of this machine or a traceback in it. What a job leaves behind is files in the folder that its request
names.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from headsmith.studio.remains import end_with

PAUSE = 0.05
"""Seconds between two words about the same step, at least."""

MODEL, VIEW, PAGE = "model.safetensors", "view.json", "page.html"
"""The files of a model, in its folder."""

NETWORKS = (".npz", ".onnx", ".safetensors")
"""Files with networks that may be dropped."""

EXPORTS = ("onnx", "huggingface", "torch", "transformerlens", "circuit")
"""What models are written for, each as a .zip file of that name."""

Tell = Callable[[str, float], None]


def main(memory: int, studio: int) -> None:
    """Answer requests from standard input until it ends, with at most so many bytes of memory; `studio` is the process
    that asks, and without it this one ends."""
    end_with(studio)
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    # Whatever else is printed must not get among the answers.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)

    def say(**words: Any) -> None:
        answers.write(json.dumps(words) + "\n")
        answers.flush()

    import headsmith.studio.view  # noqa: F401  what every request needs, before the first one comes

    say(ready=True)
    for line in sys.stdin:
        request = json.loads(line)
        told, last = "", 0.0

        def tell(text: str, share: float) -> None:
            nonlocal told, last
            if text != told or time.monotonic() - last >= PAUSE:
                told, last = text, time.monotonic()
                say(progress=[str(text)[:200], float(share)])

        try:
            say(done=HANDLERS[request["do"]](request, tell))
        except BaseException as problem:
            say(failed=failure(problem, request))


def failure(problem: BaseException, request: dict[str, Any]) -> dict[str, Any]:
    """What went wrong, in words that may be shown: no path of this machine, no traceback."""
    from headsmith.core.errors import HeadsmithError

    if isinstance(problem, MemoryError):
        return {"kind": "MemoryError", "message": "this takes more memory than the studio may use"}
    if isinstance(problem, RecursionError):
        return {"kind": "RecursionError", "message": "the target is nested too deeply"}
    if not isinstance(problem, HeadsmithError):
        kind = type(problem).__name__
        return {"kind": "internal", "message": f"the compiler failed unexpectedly ({kind}): please report this target"}
    message = str(problem)
    for folder in (request.get("folder"), request.get("uploads"), request.get("models")):
        message = message.replace(f"{folder}{os.sep}", "") if folder else message
    found: dict[str, Any] = {"kind": type(problem).__name__, "message": message[:2000]}
    smallest = getattr(problem, "smallest", None)
    if isinstance(smallest, float) and 0.0 < smallest < float("inf"):
        found["smallest"] = smallest
    return found


def compile_target(request: dict[str, Any], tell: Tell) -> dict[str, Any]:
    """Compile a formula, or a network that was dropped."""
    from headsmith.compile import compile
    from headsmith.readers.weight_files import read_network
    from headsmith.studio.asked import asked_of
    from headsmith.studio.view import network_lines, python_lines

    asked = asked_of(request.get("asked"))
    options = {"error": asked.error, "recipe": asked.recipe, "dtype": asked.dtype, "tokens": asked.tokens}
    plain = {"error": None, "recipe": "auto", "dtype": "float64", "tokens": 1}
    changed = {name: value for name, value in options.items() if value != plain[name]}
    if asked.file:
        network = read_network(str(upload(request, asked.file, *NETWORKS)))
        domain = asked.domain_of(network.names)
        model = compile(network, domain, progress=tell, **options)  # type: ignore[arg-type]
        name, notes = asked.file.partition("-")[2], getattr(network, "notes", ())
        lines = network_lines(name, domain, **changed)
        return keep(model, request, lines, title=f"the network in {name}", notes=notes)
    domain = asked.domain_of(asked.names())
    model = compile(asked.formula, domain, progress=tell, **options)  # type: ignore[arg-type]
    return keep(model, request, python_lines(asked.formula, domain, **changed), title=asked.formula)


def compile_example(request: dict[str, Any], tell: Tell) -> dict[str, Any]:
    """Compile an example of the gallery."""
    from headsmith.studio.gallery import chosen

    model, lines, title = chosen(request.get("name"), request.get("values", {}), tell)
    return keep(model, request, lines, title=title)


def open_model(request: dict[str, Any], tell: Tell) -> dict[str, Any]:
    """Read a model that was dropped, and prove its certificate again."""
    from headsmith.files import load
    from headsmith.verify import verify

    path = upload(request, request.get("file"), ".safetensors")
    tell("reading the file", 0.1)
    model = load(path)
    tell("proving its certificate again", 0.3)
    verify(path)
    return keep(model, request, f"import headsmith as hs\n\nmodel = hs.load({request['file']!r})\n", verified=True)


def upload(request: dict[str, Any], name: Any, *endings: str) -> Path:
    """The file that was dropped under this name."""
    from headsmith.core.errors import FileFormatError

    path = Path(request["uploads"]) / os.path.basename(str(name))
    if not str(name).lower().endswith(endings) or not path.is_file():
        raise FileFormatError(f"{os.path.basename(str(name))[:80]}: not among the files of this studio; drop it again")
    return path


def keep(
    model: Any,
    request: dict[str, Any],
    python: str,
    *,
    title: str = "",
    verified: bool = False,
    notes: Sequence[str] = (),
) -> dict[str, Any]:
    """Write the model and its view into the job's folder. `notes` tell what reading a network left out or changed."""
    from headsmith.studio.page import json_text
    from headsmith.studio.view import view_or_summary

    folder = Path(request["folder"])
    folder.mkdir(exist_ok=True)
    model.save(folder / MODEL)
    found = view_or_summary(model, title=title, python=python, verified=verified, file=folder / MODEL)
    (folder / VIEW).write_text(json_text(found | {"notes": list(notes)}), encoding="utf-8")
    return {}


def plan_target(request: dict[str, Any], tell: Tell) -> dict[str, Any]:
    """All recipes side by side, at the error that is asked for and at two larger ones."""
    from headsmith.plan.rows import plan
    from headsmith.readers.weight_files import read_network
    from headsmith.report.data import as_data
    from headsmith.studio.asked import asked_of

    asked = asked_of(request.get("asked"))
    network = read_network(str(upload(request, asked.file, *NETWORKS))) if asked.file else None
    domain = asked.domain_of(asked.names() if network is None else network.names)
    errors = [asked.error * factor for factor in (1e4, 1e2, 1.0) if asked.error * factor <= 0.1] or [asked.error]
    wanted = asked.formula if network is None else network
    rows = plan(wanted, domain, errors, tokens=asked.tokens, dtype=asked.dtype, progress=tell)
    names = ("recipe", "variant", "error", "certified", "pareto", "ratio", "bill")
    return {"rows": [as_data({name: getattr(row, name) for name in names}) for row in rows], "latex": rows.latex()}


def run_model(request: dict[str, Any], tell: Tell) -> dict[str, Any]:
    """What Python's own runner returns for a table of inputs."""
    import numpy as np

    from headsmith.core.errors import DomainError
    from headsmith.files import load

    model = load(Path(request["models"]) / request["model"] / MODEL)
    try:
        rows = np.array(request.get("rows"), dtype=np.float64)
    except (TypeError, ValueError):
        raise DomainError("the rows are no table of numbers") from None
    if rows.ndim != 2 or rows.size > 100_000 or not np.isfinite(rows).all():
        raise DomainError("the rows are no table of numbers")
    return {"outputs": np.asarray(model(rows, outside="allow"), dtype=np.float64).tolist()}


def write_page(request: dict[str, Any], tell: Tell) -> dict[str, Any]:
    """Write the page of a model beside its file."""
    from headsmith.studio.page import page_html

    folder = Path(request["models"]) / request["model"]
    text = page_html(json.loads((folder / VIEW).read_text(encoding="utf-8")))
    (folder / PAGE).write_text(text, encoding="utf-8")
    return {}


def export_model(request: dict[str, Any], tell: Tell) -> dict[str, Any]:
    """Write a model for another tool, with its proof, as one .zip file beside it."""
    from headsmith.core.errors import TargetError
    from headsmith.report.exporting import export

    to, folder = str(request.get("to")), Path(request["models"]) / request["model"]
    if to not in EXPORTS:
        raise TargetError(f"models are exported to {', '.join(EXPORTS)}, not to {to[:20]!r}")
    with tempfile.TemporaryDirectory(dir=folder) as place:
        export(folder / MODEL, Path(place) / to, to)  # type: ignore[arg-type]
        made = shutil.make_archive(str(Path(place) / "made"), "zip", place, to)
        os.replace(made, folder / f"{to}.zip")
    return {}


HANDLERS: dict[str, Callable[[dict[str, Any], Tell], dict[str, Any]]] = {
    "compile": compile_target,
    "example": compile_example,
    "open": open_model,
    "plan": plan_target,
    "run": run_model,
    "page": write_page,
    "export": export_model,
}

if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
