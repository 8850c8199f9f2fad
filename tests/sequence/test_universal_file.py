"""Universal models as files. The theorem: from the stored matrices and what is stated of f, the error holds for every f
that is as stated and has the stored answers. A changed number is refused, or the error is that of the changed model."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest
from helpers.attacks import saved

import headsmith as hs
from headsmith.cli import main
from headsmith.core.arrays import Array
from headsmith.kernel.core.check import PARTS, check_file, proved
from headsmith.kernel.core.errors import Refused
from headsmith.kernel.core.reading import digest
from headsmith.language.graph import Graph, Sampled
from headsmith.sequence.universal import Universal
from headsmith.sequence.universal_inputs import sample
from headsmith.sequence.universal_model import Architecture, points_of
from headsmith.transformer.ir import arrays

ONE: Architecture = "one layer and a softmax"
TWO: Architecture = "two layers"


def sorted_rows(x: Array) -> Array:
    """Every number of the output moves by at most what an input moves by."""
    return np.sort(x, axis=0)


def made(function: Callable[[Array], Any] = sorted_rows, **options: Any) -> Universal:
    options = {"tokens": 2, "domain": (-1, 1), "error": 0.3, "lipschitz": 1.0, "norm": np.inf, **options}
    model = hs.compile_sequence(function, **options)
    assert isinstance(model, Universal)
    return model


@pytest.fixture(scope="module", params=[TWO, ONE])
def model(request: pytest.FixtureRequest) -> Universal:
    return made(architecture=request.param)


@pytest.fixture
def path(model: Universal, tmp_path: Path) -> Path:
    model.save(tmp_path / "model.safetensors")
    return tmp_path / "model.safetensors"


# Round trips --------------------------------------------------------------------------------------------------------


def test_everything_comes_back_to_the_bit(model: Universal, path: Path, rng: np.random.Generator) -> None:
    again = hs.load(path)
    assert isinstance(again, Universal)
    stored, kept = ([array.tobytes() for _, array in arrays(each.transformer)] for each in (again, model))
    assert stored == kept
    points = rng.uniform(-1.0, 1.0, (20, 2, 1))
    np.testing.assert_array_equal(again(points), model(points))
    assert (again.parts, again.counts, again.bill) == (model.parts, model.counts, model.bill)
    assert (again.proven, again.assumed, again.certificate) == (model.proven, model.assumed, model.certificate)
    assert isinstance(hs.load(path), Universal)
    again.save(path.with_suffix(".again"))
    assert saved.read(path)[0] == saved.read(path.with_suffix(".again"))[0]


def test_verify_takes_a_model_a_path_and_a_string(model: Universal, path: Path) -> None:
    proven = [hs.verify(each) for each in (model, path, str(path), hs.load(path))]
    assert all(certificate == model.certificate for certificate in proven)
    assert set(proven[0].parts) == {"approximation", "softmax", "leak", "rounding"}
    assert proven[0].error == model.error <= 0.3
    assert sum(proven[0].parts.values()) <= proven[0].error * (1.0 + 1e-15)


def test_a_file_is_complete_or_absent(model: Universal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(sys.modules["headsmith.export.file"], "save_file", fails)
    with pytest.raises(OSError, match="full"):
        model.save(tmp_path / "model.safetensors")
    assert list(tmp_path.iterdir()) == []


def test_the_kernel_checks_the_file_alone(model: Universal, path: Path) -> None:
    """A graph, a model and a proof like all others; what rests on the stated bound is in the claim, in words."""
    found = check_file(path)
    assert found.error == pytest.approx(model.error)
    (words,) = found.assumes
    assert "|f(x) - f(y)| <= largest L_i |x_i - y_i|, L = [1.0, 1.0]" in words
    assert f"within {model.node.evaluation!r} of the answers" in words
    assert hs.verify(path).assumes == found.assumes == model.certificate.assumes
    header, _ = saved.read(path)
    assert "kind" not in header
    assert [node["kind"] for node in header["source"]["nodes"]].count("sampled") == 1


# The oracle ---------------------------------------------------------------------------------------------------------


def kernel_mean(model: Universal, point: Array) -> list[Any]:
    """The exact Gaussian mean of the answers that the matrices hold, to forty digits; the grid from the domain."""
    low, high = model.box.low.tolist(), model.box.high.tolist()
    width = mpmath.mpf(model.width)
    nodes = product(*([mpmath.mpf(2 * k - p + 1) / 2 for k in range(p)] for p in model.counts))
    t = [
        p * (mpmath.mpf(x) - (mpmath.mpf(a) + b) / 2) / (mpmath.mpf(b) - a) if a < b else mpmath.mpf(0)
        for x, a, b, p in zip(point.tolist(), low, high, model.counts, strict=True)
    ]
    weights = [mpmath.exp(-width * sum((s - g) ** 2 for s, g in zip(t, node, strict=True))) for node in nodes]
    answers, total = model.answers, mpmath.fsum(weights)
    columns = answers.reshape(len(answers), -1).T.tolist()
    return [mpmath.fsum(w * a for w, a in zip(weights, column, strict=True)) / total for column in columns]


def beside(model: Universal, count: int, rng: np.random.Generator) -> Array:
    """Points (count, D) that are random, at the ends of the domain, at knots or in the middles between them."""
    low, high = model.box.low, model.box.high
    found = rng.uniform(low, high, (count, len(low)))
    for axis, knots in enumerate(model.axes.knots):
        special = np.concatenate([knots, (knots[1:] + knots[:-1]) / 2.0, [low[axis], high[axis]]])
        found[:, axis] = np.where(rng.random(count) < 0.5, rng.choice(special, count), found[:, axis])
    return np.asarray(np.clip(found, low, high))


SMALL: dict[str, dict[str, Any]] = {
    "two tokens": {"tokens": 2, "grid": 5},
    "one token": {"tokens": 1, "grid": 9},
    "one token, two features": {"tokens": 1, "features": 2, "outputs": 2, "grid": 4},
    "three tokens": {"tokens": 3, "grid": 2},
    "uneven": {"tokens": 2, "grid": [7, 1], "domain": [[(-1, 3)], [(0.25, 0.5)]]},
    "a point": {"tokens": 2, "grid": 3, "domain": [[(-1, 1)], [(0.3, 0.3)]]},
    "narrow": {"tokens": 2, "grid": 4, "width": 900.0},
    "wide": {"tokens": 2, "grid": 4, "width": 1.0},
    "huge": {"tokens": 2, "grid": 4, "domain": (-1e200, 1e200)},
    "tiny": {"tokens": 2, "grid": 4, "domain": (-1e-200, 1e-200)},
    "far": {"tokens": 2, "grid": 4, "domain": (1e5, 1e5 + 4.0)},
}


@pytest.mark.one_in(5)
@pytest.mark.parametrize("architecture", [TWO, ONE])
@pytest.mark.parametrize("name", SMALL)
def test_the_run_is_the_kernel_mean(name: str, architecture: Architecture, rng: np.random.Generator) -> None:
    options = {"domain": (-1, 1), "lipschitz": 1.0, "norm": np.inf, "architecture": architecture, **SMALL[name]}
    found = hs.universal(sorted_rows, **options)
    points = beside(found, 12, rng)
    outputs = found(points.reshape(12, found.tokens, -1))
    # Rounding of the input moves the mean, by up to c/2 of what it may move f by.
    allowed = found.parts["leak"] + (1.0 + found.width / 2.0) * found.parts["rounding"]
    with mpmath.workdps(40):
        for point, output in zip(points, outputs, strict=True):
            for got, exact in zip(output.reshape(-1).tolist(), kernel_mean(found, point), strict=True):
                assert abs(mpmath.mpf(got) - exact) <= allowed
    assert hs.verify(found).error == found.error


def rolled(x: Array) -> Array:
    """Every token gets its neighbour: a permutation."""
    return np.roll(x, 1, axis=0)


def largest(x: Array) -> Array:
    return np.full(x.shape, x.max())


def distance(x: Array) -> Array:
    return np.full((len(x), 1), np.abs(x - 0.125).sum())


def tent(x: Array) -> Array:
    """How far every number is from the next multiple of 1/4: on [-1, 1], zero at all knots of four cells, at the
    middles between them and at the ends."""
    return np.abs(4.0 * x - np.rint(4.0 * x)) / 4.0


CALLABLES: dict[str, tuple[Callable[[Array], Any], dict[str, Any]]] = {
    "sort of three": (sorted_rows, {"tokens": 3, "error": 0.4}),
    "maximum of three": (largest, {"tokens": 3, "error": 0.4}),
    "permutation": (rolled, {"tokens": 3, "features": 1, "error": 0.4}),
    "permutation of pairs": (rolled, {"tokens": 2, "features": 2, "error": 0.8}),
    "distance": (distance, {"error": 0.3, "norm": 1}),
    "tent": (tent, {"error": 0.2, "norm": 2}),
    "constant": (lambda x: np.full((2, 1), 3.0), {"error": 1e-9, "lipschitz": 0.0}),
    "zero": (lambda x: np.zeros((2, 3)), {"error": 1e-300, "lipschitz": 0.0}),
    "one token": (largest, {"tokens": 1, "error": 1e-2}),
    "flat list": (lambda x: x[::-1, 0].tolist(), {"error": 0.2}),
    "tiny": (largest, {"domain": (-1e-170, 1e-170), "error": 3e-171, "norm": 2}),
    "huge": (largest, {"domain": (-1e170, 1e170), "error": 3e169, "norm": 2}),
    "a point": (sorted_rows, {"domain": (0.5, 0.5), "error": 1e-9}),
    "half a point": (sorted_rows, {"domain": [[(0.5, 0.5)], [(-1, 1)]], "error": 0.05}),
}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("architecture", [TWO, ONE])
@pytest.mark.parametrize("name", CALLABLES)
def test_the_error_holds(name: str, architecture: Architecture, rng: np.random.Generator) -> None:
    function, options = CALLABLES[name]
    found = made(function, architecture=architecture, **options)
    corners = points_of([np.unique(ends) for ends in zip(found.box.low, found.box.high, strict=True)])
    tied = np.clip(np.repeat(rng.uniform(found.box.low[0], found.box.high[0], (40, 1)), found.box.size, axis=1), -1, 1)
    points = np.vstack([corners, beside(found, 300, rng), np.clip(tied, found.box.low, found.box.high)])
    wanted = sample(function, points, found.tokens, found.transformer.outputs)
    apart = np.abs(found(points.reshape(len(points), found.tokens, -1)) - wanted)
    assert apart.max() <= found.error <= options["error"]
    assert hs.verify(found).error == found.error
    assert found.check(function) == 0.0


@pytest.mark.one_in(4)
@pytest.mark.parametrize("width", [1.0, 2.725, 100.0])
@pytest.mark.parametrize("norm", [1, 2, np.inf])
def test_the_error_holds_for_every_function_and_is_attained(
    norm: float, width: float, rng: np.random.Generator
) -> None:
    """Of all f with the stored answers and the bound, one is the largest everywhere and one the smallest."""

    def target(x: Array) -> Array:
        return np.full((2, 1), 2.0 * np.linalg.norm((x - 0.1).reshape(-1), norm))

    found = hs.universal(target, 2, domain=(-1, 1), grid=[4, 7], lipschitz=2.0 + 1e-9, norm=norm, width=width)
    knots, answers = points_of(found.axes.knots), found.answers[None, :, 0, 0]
    points = beside(found, 1000, rng)
    far = 2.0 * np.linalg.norm(points[:, None] - knots, norm, axis=-1)
    smallest, largest = (answers - far).max(axis=1), (answers + far).min(axis=1)
    outputs = found(points.reshape(-1, 2, 1))[:, 0, 0]
    assert 0.7 * found.error <= max((outputs - smallest).max(), (largest - outputs).max()) <= found.error


def test_squares_of_tiny_steps_do_not_vanish() -> None:
    """All samples are zero, and the target is not: what is proven must not rest on steps whose squares are 0."""

    def zigzag(x: Array) -> Array:
        return 1e-200 * tent(x * 1e200)

    found = hs.universal(zigzag, 1, domain=(-1e-200, 1e-200), grid=4, lipschitz=1.0, evaluation=0.0)
    assert not found.answers.any()
    point = np.array([[0.125e-200]])
    assert 1e-201 < np.abs(zigzag(point) - found(point)).max() <= found.error


# Damage -------------------------------------------------------------------------------------------------------------

CHANGES: dict[str, Callable[[float], float]] = {
    "more": lambda value: value + 1.0,
    "twice": lambda value: 2.0 * value + 0.5,
    "negative": lambda value: -value - 1e-3,
    "nan": lambda value: np.nan,
    "infinite": lambda value: np.inf,
}


def far_off(path: Path, rng: np.random.Generator) -> float:
    """How far the model of a file is from the mean of its answers next to the input, by its own textbook run, less what
    the file proves: at most zero if the proof is right."""
    model = hs.load(path)
    assert isinstance(model, Universal)
    found = hs.falsify(model, effort=100, seed=int(rng.integers(1000)))
    return float(found.error) - check_file(path).error


@pytest.mark.one_in(3)
@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_number_is_refused_or_covered(
    model: Universal, path: Path, change: str, rng: np.random.Generator
) -> None:
    """Some entries of every tensor: the kernel refuses the file, or what it proves holds of the changed model."""
    header, tensors = saved.read(path)
    for name, array in tensors.items():
        if array.dtype != np.float64:
            continue
        places = list(np.ndindex(array.shape))
        for place in [places[i] for i in rng.permutation(len(places))[:3]]:
            changed = array.copy()
            changed[place] = CHANGES[change](float(array[place]))
            saved.write(path, header, {**tensors, name: changed})
            try:
                hs.verify(path)
            except hs.HeadsmithError:
                continue
            assert far_off(path, rng) <= 0.0, (name, place)


def test_the_answers_are_what_the_proof_is_about(model: Universal, path: Path) -> None:
    """An answer that no f with the stated bound has beside its neighbours is refused. Another one is the answer of
    another f: the claim names another target, and the callable, sampled again, shows the difference. A model that does
    not hold the answers of its target is refused."""
    header, tensors = saved.read(path)
    (node,) = (each for each in header["source"]["nodes"] if each["kind"] == "sampled")
    held = next(name for name in tensors if name.endswith(".values"))
    for amount, refused in ((1.5, True), (1e-3, False)):
        changed = {**tensors, held: tensors[held].copy(), node["answers"]: tensors[node["answers"]].copy()}
        changed[held][0, 3] += amount
        saved.write(path, header, changed)
        with pytest.raises(Refused, match="does not hold the answers"):
            check_file(path)
        changed[node["answers"]].reshape(changed[held].shape)[0, 3] += amount
        saved.write(path, header, changed)
        with pytest.raises(Refused):
            check_file(path)
        other = digest(header["source"], changed)
        saved.write(path, saved.put(header, ("claim", "target"), other), changed)
        if refused:
            with pytest.raises(Refused, match="stated Lipschitz bound is false"):
                check_file(path)
            with pytest.raises(hs.CertificateError):
                hs.verify(path)
        else:
            assert check_file(path).error == pytest.approx(model.error)
        again = hs.load(path)
        assert isinstance(again, Universal)
        with pytest.raises(hs.TargetError, match="the callable differs from that by"):
            again.check(sorted_rows)


def test_a_forged_statement_is_refused(model: Universal, path: Path) -> None:
    """A smaller Lipschitz bound, a smaller evaluation, another norm, other steps, a larger domain: the claim says what
    it rests on, so another statement is another claim; and no bound becomes smaller than it is."""
    header, tensors = saved.read(path)
    nodes = header["source"]["nodes"]
    place = next(number for number, each in enumerate(nodes) if each["kind"] == "sampled")
    forged: list[tuple[Any, dict[str, Any]]] = []
    for field, factor in (("lipschitz", 0.99), ("lipschitz", -1.0), ("scale", 1.01), ("scale", 0.0)):
        name = nodes[place][field]
        forged.append((header, {**tensors, name: factor * tensors[name]}))
    for field, value in (("norm", "2"), ("norm", "0"), ("evaluation", 0.0), ("evaluation", -1.0)):
        forged.append((saved.put(header, ("source", "nodes", place, field), value), tensors))
    for end in ("low", "high"):
        wider = [1.01 * each for each in header["domain"][end]]
        forged.append((saved.put(header, ("domain", end), wider), tensors))
        forged.append((saved.put(header, ("domain", end), wider[:1]), tensors))
    forged.append((saved.put(header, ("claim", "assumes"), []), tensors))
    forged.append((saved.drop(header, ("claim", "assumes")), tensors))
    answers = tensors[nodes[place]["answers"]]
    forged.append(
        (header, {**tensors, nodes[place]["answers"]: answers.reshape(len(answers), -1, 1, answers.shape[-1])})
    )
    for changed, with_tensors in forged:
        saved.write(path, changed, with_tensors)
        with pytest.raises(Refused):
            check_file(path)
        with pytest.raises(hs.HeadsmithError):
            hs.verify(path)


def test_a_coarser_grid_cannot_claim_a_finer_one(path: Path) -> None:
    """Keys of another width, of shifted nodes, of other blocks: the bound is that of the keys that are there."""
    header, tensors = saved.read(path)
    slope, offset = (next(name for name in tensors if name.endswith(end)) for end in (".slope", ".offset"))
    flat = {**tensors, slope: tensors[slope] * 0.5, offset: tensors[offset] * 0.5}
    shifted = {**tensors, slope: tensors[slope] + np.array([0.1, 0.0, 0.0])}
    swapped = {**tensors, slope: np.roll(tensors[slope], tensors[slope].shape[1] // 2, axis=1)}
    for changed in (flat, shifted, swapped):
        saved.write(path, header, changed)
        with pytest.raises(Refused, match="is claimed, and"):
            check_file(path)


def test_cut_files_are_refused(path: Path) -> None:
    whole = path.read_bytes()
    for length in (0, 7, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(hs.FileFormatError):
            hs.load(path)


def test_a_claim_that_is_too_small_is_refused(model: Universal, path: Path) -> None:
    header, tensors = saved.read(path)
    for part in (name for name in PARTS if model.certificate.parts[name]):
        smaller = {**model.certificate.parts, part: 0.99 * model.certificate.parts[part]}
        claimed = replace(model.certificate, parts=smaller)
        with pytest.raises(hs.CertificateError, match=f"parts {part}"):
            hs.verify(replace(model, certificate=claimed))
        less = 0.99 * header["claim"]["parts"][part]
        saved.write(path, saved.put(header, ("claim", "parts", part), less), tensors)
        with pytest.raises(Refused, match=f"parts {part}"):
            check_file(path)


def test_a_tampered_record_proves_nothing() -> None:
    """A model that was made for one target, stated to be of a smaller bound, a larger domain, a finer grid."""
    found = made()
    node = found.node

    def stating(**changes: Any) -> Universal:
        other = replace(node, **changes)
        nodes = tuple(other if isinstance(each, Sampled) else each for each in found.graph.nodes)
        return replace(found, graph=Graph(nodes, found.graph.output))

    wider = hs.universal(sorted_rows, 2, domain=(-2, 2), grid=2, lipschitz=1.0).box
    forged = [
        replace(found, box=wider),
        stating(lipschitz=2.0 * node.lipschitz),
        stating(lipschitz=0.5 * node.lipschitz),
    ]
    forged += [stating(scale=2.0 * node.scale), stating(evaluation=0.1), stating(answers=node.answers + 0.1)]
    softer = hs.universal(sorted_rows, 2, domain=(-1, 1), grid=found.counts, lipschitz=1.0, norm=np.inf, width=2.0)
    forged.append(replace(found, transformer=softer.transformer))
    for each in forged:
        with pytest.raises(hs.CertificateError):
            hs.verify(each)


# Running and looking ------------------------------------------------------------------------------------------------


def test_every_intermediate_has_a_name(model: Universal, rng: np.random.Generator) -> None:
    x = rng.uniform(-1.0, 1.0, (2, 1))
    outputs, cache = model.run(x, cache=True)
    np.testing.assert_allclose(outputs, model(x), atol=1e-14)
    np.testing.assert_array_equal(model.run(x), model(x))
    prefix = model.bill.reference_tokens
    np.testing.assert_allclose(cache["layer 1 / register gathered"], np.repeat(x.T, 2, axis=0), atol=1e-15)
    for token in range(2):
        looks = cache[f"layer 1 / move head {token} / pattern"]
        np.testing.assert_allclose(looks[:, prefix + token], 1.0)
    last = cache["layer 2 / table head 0 / pattern" if model.architecture == TWO else "softmax / pattern"]
    np.testing.assert_allclose(last.sum(axis=1), 1.0)
    np.testing.assert_array_equal(cache["embedding / register x"][prefix:], x)
    with pytest.raises(hs.DomainError, match="one sequence"):
        model.run(np.zeros((3, 2, 1)), cache=True)


@pytest.mark.parametrize("shape", [(1, 1), (3, 1), (2, 2), (3,), (), (0, 1)])
def test_another_number_of_tokens_is_refused(model: Universal, shape: tuple[int, ...]) -> None:
    assert model.lengths == (2,)
    with pytest.raises(hs.DomainError, match=r"the model takes \(\.\.\., 2, 1\): all tokens, exactly 2"):
        model(np.zeros(shape))
    with pytest.raises(hs.DomainError):
        model.run(np.zeros(shape), cache=True)


def test_check_finds_another_callable() -> None:
    found = made(error=0.6)
    assert found.check(sorted_rows) == 0.0
    assert 0.0 < found.check(lambda x: sorted_rows(x) + 2.0**-51) <= 2.0 * found.parts["evaluation"]
    with pytest.raises(hs.TargetError, match="the model holds"):
        found.check(lambda x: sorted_rows(x) + 1e-6)
    with pytest.raises(hs.TargetError, match="Lipschitz bound is false"):
        found.check(lambda x: sorted_rows(x) + 9.0 * (np.abs(x) == 1.0))


def command(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    with pytest.raises(SystemExit) as done:
        main(list(arguments))
    shown = capsys.readouterr()
    return int(done.value.code or 0), shown.out + shown.err


def test_the_command_line(model: Universal, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, text = command(capsys, "verify", str(path))
    assert code == 0
    assert "verified: proved by the large kernel alone" in text
    assert "assumed, and not proved: node" in text
    code, text = command(capsys, "verify", str(path), "--json")
    found = json.loads(text)["certificate"]
    assert found["error"] == pytest.approx(model.error)
    assert found["assumes"] == list(model.certificate.assumes)
    code, text = command(capsys, "bill", str(path), "--json")
    assert json.loads(text)["bill"]["reference_tokens"] == model.bill.reference_tokens
    rows = path.with_suffix(".csv")
    rows.write_text("0.5\n-0.25\n-1\n1\n")
    code, text = command(capsys, "run", str(path), "--csv", str(rows), "--json")
    wanted = model([[[0.5], [-0.25]], [[-1.0], [1.0]]]).reshape(-1, 1)
    assert json.loads(text)["outputs"] == wanted.tolist()
    for arguments, message in {
        ("run", "--input", "x[:, 0]=0.5"): "1 row; the model takes sequences of exactly 2 tokens",
        ("run", "--csv", str(rows), "--causal"): "without a mask",
    }.items():
        code, text = command(capsys, arguments[0], str(path), *arguments[1:])
        assert (code, message in text) == (1, True), text


def test_a_scale_of_zero_hides_no_lipschitz_bound(tmp_path: Path) -> None:
    """A coordinate without steps is zero everywhere. Else f(t) = 1e9 t is as stated, zero at the only node, and 476
    away from the model at the ends of the domain."""
    model = hs.universal(lambda x: 0.0 * x, 1, 1, 1, (-1, 1), grid=1, lipschitz=1.0, norm=1)
    model.save(tmp_path / "model.safetensors")
    header, tensors = saved.read(tmp_path / "model.safetensors")
    header["domain"] = {"low": [-(2.0**-20)], "high": [2.0**-20]}
    changed = dict(tensors)
    for name in tensors:
        if name.endswith((".scale", ".lipschitz")):
            changed[name] = np.full_like(tensors[name], 0.0 if name.endswith("scale") else 1e9)
    with pytest.raises(Refused, match="scale is zero"):
        proved(header, changed)
    header["domain"] = {"low": [0.0], "high": [0.0]}
    assert proved(header, changed).error < 1e-300
