"""One file: it loads back bit-equal; anything that is not a complete model of this version is refused with a clear
error and nothing else."""

from __future__ import annotations

import contextlib
import json
import os
import stat
import struct
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from pathlib import Path

import numpy as np
import pytest
from helpers.attacks import saved
from helpers.models.networks import random_network, shifted_network
from safetensors.numpy import save_file

import headsmith as hs

MIXED = shifted_network([3, 6, 6, 2], 4, -1.0, 1.0, ["active", "free", "dead"])
NAMED = hs.Network([(np.eye(2), np.zeros(2)), (np.ones((1, 2)), [0.0])], names=["width", "höhe"])
MODELS: dict[str, Callable[[], hs.Compiled]] = {
    "plain": lambda: hs.compile(random_network([3, 5, 4, 2]), (-1, 1), error=1e-4),
    "tokens": lambda: hs.compile(MIXED, [(-1, 1), (-0.5, 1), (0, 1)], error=1e-4, tokens=4),
    "float32": lambda: hs.compile(MIXED, (-1, 1), error=1e-1, tokens=3, dtype="float32"),
    "no heads": lambda: hs.compile(random_network([3, 2]), (-1, 1), error=1e-4),
    "names": lambda: hs.compile(NAMED, {"width": (-1, 1), "höhe": (0, 2)}, error=1e-4),
}


@pytest.fixture(scope="module", params=MODELS)
def model(request) -> hs.Compiled:
    return MODELS[request.param]()


@pytest.fixture(scope="module")
def small() -> hs.Compiled:
    return hs.compile(random_network([2, 3, 1]), (-1, 1), error=1e-3)


def same(left, right) -> bool:
    """Equal to the bit, however deep."""
    if is_dataclass(left):
        return type(left) is type(right) and all(
            same(getattr(left, field.name), getattr(right, field.name)) for field in fields(left)
        )
    if isinstance(left, np.ndarray):
        return left.dtype == right.dtype and left.shape == right.shape and left.tobytes() == right.tobytes()
    if isinstance(left, tuple | list):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    return type(left) is type(right) and left == right


OPTIONAL = ("regions", "tables", "views", "steps", "bends", "alike", "powers", "norms", "linear")
"""Lists of a proof that may be left out where they are empty: a proof that needs one is then refused."""


class TestRoundTrip:
    def test_everything_comes_back_to_the_bit(self, model, tmp_path) -> None:
        path = tmp_path / "model.safetensors"
        model.save(path)
        assert same(hs.load(path), model)

    def test_outputs_are_equal_to_the_bit(self, model, tmp_path, rng) -> None:
        model.save(tmp_path / "model.safetensors")
        again = hs.load(tmp_path / "model.safetensors")
        tokens = model.transformer.tokens
        x = rng.uniform(0, 1, (20, model.box.size) if tokens == 1 else (20, tokens, model.box.size))
        assert np.array_equal(again(x), model(x))

    def test_a_second_trip_gives_the_same_bytes(self, model, tmp_path) -> None:
        first, second = tmp_path / "1", tmp_path / "2"
        model.save(first)
        hs.load(first).save(second)
        assert saved.read(first)[0] == saved.read(second)[0]
        assert first.stat().st_size == second.stat().st_size

    def test_verify_takes_a_model_a_path_and_a_string(self, model, tmp_path) -> None:
        path = tmp_path / "model.safetensors"
        model.save(path)
        for subject in (model, path, str(path)):
            assert hs.verify(subject).error == pytest.approx(model.certificate.error, rel=1e-9)

    def test_strings_and_paths_name_files(self, small, tmp_path) -> None:
        small.save(str(tmp_path / "a"))
        small.save(tmp_path / "b")
        assert same(hs.load(tmp_path / "a"), hs.load(str(tmp_path / "b")))

    def test_a_name_without_a_folder_goes_to_the_current_one(self, small, tmp_path, monkeypatch) -> None:
        monkeypatch.chdir(tmp_path)
        small.save("model.safetensors")
        assert os.listdir() == ["model.safetensors"]

    def test_the_file_has_ordinary_permissions(self, small, tmp_path) -> None:
        small.save(tmp_path / "model")
        mask = os.umask(0)
        os.umask(mask)
        assert stat.S_IMODE((tmp_path / "model").stat().st_mode) == 0o666 & ~mask


class TestWriting:
    """Completely or not at all."""

    def test_saving_replaces_the_old_file(self, small, model, tmp_path) -> None:
        path = tmp_path / "model"
        small.save(path)
        model.save(path)
        assert same(hs.load(path), model)
        assert os.listdir(tmp_path) == ["model"]

    def test_a_missing_folder_leaves_nothing_behind(self, small, tmp_path) -> None:
        with pytest.raises(OSError):
            small.save(tmp_path / "missing" / "model")
        assert os.listdir(tmp_path) == []

    def test_a_folder_in_the_way_leaves_nothing_behind(self, small, tmp_path) -> None:
        (tmp_path / "model").mkdir()
        with pytest.raises(OSError):
            small.save(tmp_path / "model")
        assert os.listdir(tmp_path) == ["model"]
        assert os.listdir(tmp_path / "model") == []

    @pytest.mark.parametrize("where", ["save_file", "os.replace", "os.chmod"])
    def test_an_existing_file_survives_a_failed_write(self, small, model, tmp_path, monkeypatch, where) -> None:
        path = tmp_path / "model"
        small.save(path)
        before = path.read_bytes()

        def full(*_args, **_options):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(f"headsmith.export.file.{where}", full)
        with pytest.raises(OSError, match="No space left"):
            model.save(path)
        assert path.read_bytes() == before
        assert os.listdir(tmp_path) == ["model"]


class TestRefusals:
    """FileFormatError, with the path, whatever the file is."""

    def load_and_verify(self, path: Path) -> None:
        hs.load(path)
        hs.verify(path)

    def refused(self, path: Path, message: str) -> None:
        with pytest.raises(hs.FileFormatError, match=message) as refusal:
            hs.load(path)
        assert str(path) in str(refusal.value)
        with pytest.raises(hs.FileFormatError):
            hs.verify(path)

    def test_no_file(self, tmp_path) -> None:
        self.refused(tmp_path / "nowhere", "no such file")

    def test_a_folder(self, tmp_path) -> None:
        self.refused(tmp_path, "no such file|folder|directory")

    @pytest.mark.parametrize(
        "content", [b"", b"\0", b"hello", b"PK\x03\x04" + bytes(100), bytes(8), bytes(1000), b"\xff" * 64]
    )
    def test_not_a_safetensors_file(self, tmp_path, content) -> None:
        path = tmp_path / "file"
        path.write_bytes(content)
        self.refused(path, "not a complete safetensors file")

    def test_truncated_at_every_kind_of_place(self, small, tmp_path) -> None:
        path = tmp_path / "model"
        small.save(path)
        content = path.read_bytes()
        (header,) = struct.unpack("<Q", content[:8])
        cuts = {
            0,
            1,
            7,
            8,
            9,
            8 + header // 2,
            8 + header - 1,
            8 + header,
            8 + header + 1,
            len(content) - 8,
            len(content) - 1,
        }
        for cut in sorted(cuts | set(range(0, len(content), 97))):
            path.write_bytes(content[:cut])
            self.refused(path, "not a complete safetensors file")

    def test_longer_than_it_should_be(self, small, tmp_path) -> None:
        path = tmp_path / "model"
        small.save(path)
        path.write_bytes(path.read_bytes() + b"more")
        self.refused(path, "not a complete safetensors file")

    def test_a_foreign_safetensors_file(self, tmp_path) -> None:
        path = tmp_path / "foreign"
        for metadata in (None, {"format": "pt"}):
            save_file({"weight": np.ones((2, 2))}, path, metadata=metadata)
            self.refused(path, "not written by headsmith")

    @pytest.mark.parametrize("version", [0, 99, -1, "1", None, 1.5, [1]])
    def test_another_version(self, small, tmp_path, version) -> None:
        path = tmp_path / "model"
        small.save(path)
        header, tensors = saved.read(path)
        saved.write(path, {**header, "version": version}, tensors)
        self.refused(path, "format version .*; this release reads version")

    @pytest.mark.parametrize(
        "text", ["", "{", "null", "[]", "3", '"text"', "{}", '{"version": 1}', "[" * 100_000, "NaN"]
    )
    def test_a_damaged_header(self, small, tmp_path, text) -> None:
        path = tmp_path / "model"
        small.save(path)
        saved.write(path, text, saved.read(path)[1])
        self.refused(path, "damaged|version")

    def test_a_long_text_is_not_repeated(self, small, tmp_path) -> None:
        path = tmp_path / "model"
        small.save(path)
        header, tensors = saved.read(path)
        header["transformer"]["readout_bias"] = "x" * 100_000
        saved.write(path, header, tensors)
        with pytest.raises(hs.FileFormatError, match="damaged") as found:
            hs.load(path)
        assert len(str(found.value)) <= len(str(path)) + 300

    def test_any_missing_entry(self, model, tmp_path) -> None:
        """Drop every key of the header in turn: refused, or (an entry of a list) refused by the checkers with a
        Headsmith error. A proof may do without one of its views or bounds, or without lists that it has no use for, and
        then proves the same or is refused."""
        path = tmp_path / "model"
        model.save(path)
        header, tensors = saved.read(path)
        for place in [place for place in saved.containers(header) if place]:
            saved.write(path, saved.drop(header, place), tensors)
            view = place[:2] in {("proof", name) for name in ("views", "norms", "linear")} and len(place) == 3
            if place[0] == "extensions":
                assert hs.verify(path).error == model.certificate.error  # what a proof does without
                continue
            if view or (place[0] == "proof" and len(place) == 2 and place[1] in OPTIONAL):
                with contextlib.suppress(hs.CertificateError):
                    assert hs.verify(path).error == model.certificate.error
                continue
            with pytest.raises(hs.HeadsmithError):
                self.load_and_verify(path)

    @pytest.mark.parametrize("junk", [None, "junk", -1, 10**30, 1e400, [], {}, [[]], {"a": 1}, float("nan"), True])
    def test_any_entry_of_another_type(self, small, tmp_path, junk) -> None:
        """Put junk in every place of the header: never a foreign exception."""
        path = tmp_path / "model"
        small.save(path)
        header, tensors = saved.read(path)
        places = {place for place, _ in saved.leaves(header)} | {place for place in saved.containers(header) if place}
        for place in sorted(places, key=str):
            saved.write(path, saved.put(header, place, junk), tensors)
            with contextlib.suppress(hs.HeadsmithError):
                hs.verify(path)

    def test_any_missing_tensor(self, model, tmp_path) -> None:
        path = tmp_path / "model"
        model.save(path)
        header, tensors = saved.read(path)
        for name in tensors:
            saved.write(path, header, {key: value for key, value in tensors.items() if key != name})
            if name.startswith("proof."):
                with pytest.raises(hs.CertificateError, match="is missing"):
                    hs.verify(path)
            else:
                with pytest.raises(hs.FileFormatError, match="damaged"):
                    hs.load(path)
                with pytest.raises(hs.CertificateError, match="is missing"):
                    hs.verify(path)

    @pytest.mark.parametrize(
        "change",
        [
            lambda t: t[:-1],
            lambda t: t[None],
            lambda t: t.reshape(-1)[:1].reshape(()),
            lambda t: np.concatenate([t, t]),
            lambda t: np.zeros((0,), t.dtype),
            lambda t: t.astype(np.float16),
            lambda t: t.astype(np.bool_),
            lambda t: t.astype(np.uint8),
            lambda t: np.full(t.shape, np.nan),
        ],
    )
    def test_any_tensor_of_another_shape_or_type(self, small, tmp_path, change) -> None:
        """Never a foreign exception, and never a larger claim than can be proven."""
        path = tmp_path / "model"
        small.save(path)
        header, tensors = saved.read(path)
        for name, value in tensors.items():
            with np.errstate(invalid="ignore"):
                changed = np.ascontiguousarray(change(value))
            saved.write(path, header, {**tensors, name: changed})
            with contextlib.suppress(hs.HeadsmithError):
                hs.verify(path)

    def test_the_certificate_claims_too_much(self, small, tmp_path) -> None:
        path = tmp_path / "model"
        small.save(path)
        header, tensors = saved.read(path)
        for claim in (
            0.0,
            -1.0,
            small.certificate.error / 2,
            small.certificate.error * (1 - 1e-6),
            float("nan"),
            float("-inf"),
        ):
            saved.write(path, saved.put(header, ("claim", "error"), claim), tensors)
            with pytest.raises(hs.HeadsmithError, match=r"can be proved|is no number|no JSON"):
                hs.verify(path)

    def test_numbers_survive_json(self, small, tmp_path) -> None:
        """Gains and domain ends stand in the header as decimals that read back to the same double."""
        path = tmp_path / "model"
        small.save(path)
        header, _ = saved.read(path)
        again = json.loads(json.dumps(header))
        assert again == header
        assert hs.load(path).box.low.tolist() == header["domain"]["low"]


def test_the_same_target_gives_the_same_file_whatever_the_hash_seed() -> None:
    """Sets of words have another order in every process: nothing that is written may depend on it."""
    script = (
        "import hashlib, headsmith as hs\n"
        "model = hs.compile_sequence(lambda x: x - hs.tokens.mean(x), tokens=8, domain=(-1, 1), error=1e-9)\n"
        "proof = model.proof\n"
        "print(proof.stored, [hashlib.sha256(each.tobytes()).hexdigest() for each in proof.tensors.values()])"
    )
    printed = [
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert printed[0] == printed[1] != ""
