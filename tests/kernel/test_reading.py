"""One reader of files: what the kernel does not know is refused at any depth, and what steers a run is what is claimed.

The header is read first; of tensors those that it names, once their types and sizes are known.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.attacks import saved
from helpers.models.carried import MODELS, contents_of, model_of

import headsmith as hs
from headsmith.kernel.core import reading
from headsmith.kernel.core.check import check_file, checked
from headsmith.kernel.core.errors import Refused
from headsmith.kernel.core.fields import EXTENSIONS

NAMED = ("initial", "positional")
"""Objects whose fields are names of registers."""


@pytest.mark.parametrize("name", [each for each in MODELS if each in ("product", "sort of three", "circuit")])
def test_a_field_that_is_not_known_is_refused_wherever_it_is(name: str) -> None:
    header, tensors = contents_of(name)
    checked(header, tensors)
    objects = [place for place in saved.containers(header) if isinstance(_at(header, place), dict)]
    for place in objects:
        if (place[-1:] and place[-1] in (*NAMED, "parts")) or place[:2] == ("extensions", "labels"):
            continue
        with pytest.raises(Refused, match=r"more|unknown|claim|says"):
            checked(saved.put(header, (*place, "more"), 0), tensors)


def _at(value: Any, place: tuple[Any, ...]) -> Any:
    for key in place:
        value = value[key]
    return value


@pytest.mark.parametrize("name", [*EXTENSIONS, "others"])
def test_extensions_have_names(name: str) -> None:
    """Those that are known may hold anything: nothing of it is proved, or steers a run."""
    header, tensors = contents_of("product")
    header["extensions"][name] = {"anything": [1, "two"]}
    if name in EXTENSIONS:
        checked(header, tensors)
    else:
        with pytest.raises(Refused, match="others"):
            checked(header, tensors)


@pytest.fixture(scope="module")
def learner(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("learner") / "learner.safetensors"
    hs.in_context.least_squares(1, 2, 3, error=1e-2, preconditioner=[[1.0, 0.5], [0.0, 1.0]]).save(path)
    return path


@pytest.mark.parametrize("field", ["kind", "causal", "grid", "preconditioner", "the matrix"])
def test_what_steers_a_run_is_claimed(learner: Path, tmp_path: Path, field: str) -> None:
    """A file whose matrix was swapped, or that is to be called in another way, is not the one that is claimed."""
    header, tensors = saved.read(learner)
    if field == "the matrix":
        tensors["preconditioner"] = tensors["preconditioner"][::-1].copy()
    else:
        header["run"][field] = {"kind": "sequence", "causal": True, "grid": "rows", "preconditioner": None}[field]
    saved.write(tmp_path / "other", header, tensors)
    with pytest.raises(hs.CertificateError, match="claim: run"):
        hs.verify(tmp_path / "other")
    with pytest.raises(Refused, match="claim: run"):
        check_file(tmp_path / "other")


def test_tensors_that_no_text_names_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And none is before all sizes are known."""
    header, tensors = contents_of("product")
    header = {"version": reading.VERSION, **header}
    saved.write(tmp_path / "large", header, {**tensors, "unnamed": np.zeros(10**6)})
    read = reading.read(tmp_path / "large")[1]
    assert "unnamed" not in read
    assert sum(each.size for each in read.values()) < 10**4
    monkeypatch.setattr(reading, "MOST_NUMBERS", 10)
    with pytest.raises(Refused, match="numbers, and this kernel reads 10"):
        reading.read(tmp_path / "large")


class PanicException(BaseException):
    """What the library raises where there is no memory left."""


@pytest.mark.parametrize("raised", [MemoryError, PanicException])
def test_without_memory_a_file_is_refused(raised: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model_of("product").save(tmp_path / "model")

    def opened(*_: Any, **__: Any) -> Any:
        raise raised

    monkeypatch.setattr(reading, "safe_open", opened)
    with pytest.raises(Refused, match="more memory than there is"):
        check_file(tmp_path / "model")
    for reader in (hs.load, hs.verify):
        with pytest.raises(hs.FileFormatError, match="more memory than there is"):
            reader(tmp_path / "model")


def test_folders_in_place_of_files(tmp_path: Path) -> None:
    """Refused by both entry points, whichever file it is."""
    from headsmith.report.exporting import export

    hs.compile("x*y", (-1, 1), 1e-2, dtype="float32").save(tmp_path / "model")
    export(tmp_path / "model", tmp_path / "stock", "llama")
    for name in sorted([*os.listdir(tmp_path / "stock"), "picture.png"]):
        path = tmp_path / "stock" / name
        before = path.read_bytes() if path.is_file() else None
        path.unlink(missing_ok=True)
        path.mkdir()
        with pytest.raises(hs.HeadsmithError):
            hs.verify(tmp_path / "stock")
        with pytest.raises(Refused):
            check_file(tmp_path / "stock")
        path.rmdir()
        if before is not None:
            path.write_bytes(before)
    assert hs.verify(tmp_path / "stock").error >= check_file(tmp_path / "stock").error


FORGERIES: dict[str, tuple[str, Any]] = {
    "other tokens first": ("tokenizer.json", lambda whole: whole["post_processor"]["single"].pop(0)),
    "another splitter": ("tokenizer.json", lambda whole: whole.update(pre_tokenizer={"type": "Whitespace"})),
    "a word for all that is none": ("tokenizer.json", lambda whole: whole["model"].update(unk_token="x=0.5")),
    "truncation": ("tokenizer.json", lambda whole: whole.update(truncation={"max_length": 2})),
    "another class": ("tokenizer_config.json", lambda whole: whole.update(tokenizer_class="BertTokenizer")),
    "code": ("tokenizer_config.json", lambda whole: whole.update(auto_map={"AutoTokenizer": ["x.Y", None]})),
}


@pytest.fixture(scope="module")
def spoken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("spoken") / "stock"
    hs.compile("x*y", (-1, 1), 1e-2, dtype="float32").export(folder, "llama", vocabulary=4)
    assert hs.verify(folder).error >= check_file(folder).error
    return folder


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forged_tokenizer_is_refused_by_both(name: str, spoken: Path, tmp_path: Path) -> None:
    folder = tmp_path / "forged"
    shutil.copytree(spoken, folder)
    file, change = FORGERIES[name]
    whole = json.loads((folder / file).read_text())
    change(whole)
    (folder / file).write_text(json.dumps(whole))
    with pytest.raises(Refused, match="tokenizer"):
        check_file(folder)
    with pytest.raises(hs.CertificateError):
        hs.verify(folder)
