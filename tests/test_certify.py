"""Attention that somebody brings is certified: what is proven holds, is hardly more than what is attained, and can be
checked again from a file."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import headsmith as hs
from headsmith.cli.group import commands
from headsmith.kernel.core.check import checked
from headsmith.kernel.core.errors import Refused
from headsmith.kernel.core.reading import read

SQUARE = {"x": (-1.0, 1.0), "y": (-1.0, 1.0)}


def product_matrices(spike: bool = False, seed: int = 0) -> dict[str, Any]:
    """One head over constant tokens that knows x y roughly, as a trained one does; with a spike, a token more wins in a
    corner that few points see."""
    random = np.random.default_rng(seed)
    slopes = np.array([[2.0, 2.0], [-2.0, -2.0], [2.0, -2.0], [-2.0, 2.0]]) + 0.1 * random.normal(size=(4, 2))
    values, offsets = np.array([1.0, 1.0, -1.0, -1.0]), 0.1 * random.normal(size=4)
    if spike:
        slopes = np.vstack([slopes, [300.0, 300.0]])
        values, offsets = np.append(values, 5.0), np.append(offsets, -300.0 * 1.96)
    # Columns: x, y, a one at the data token; then what reference tokens hold: slopes, offset, value, and the output.
    references = np.hstack(
        [np.zeros((len(values), 3)), slopes, offsets[:, None], values[:, None], np.zeros((len(values), 1))]
    )
    W_E, b_E = np.eye(2, 8), np.zeros(8)
    b_E[[2, 5]] = 1.0, -1000.0  # the data token's own score is far below the others
    W_Q, W_K, W_V, W_O = np.zeros((8, 3)), np.zeros((8, 3)), np.zeros((8, 1)), np.zeros((1, 8))
    W_Q[[0, 1, 2], [0, 1, 2]] = W_K[[3, 4, 5], [0, 1, 2]] = W_V[6, 0] = W_O[0, 7] = 1.0
    return {
        "references": references,
        "W_E": W_E,
        "b_E": b_E,
        "W_Q": W_Q,
        "W_K": W_K,
        "W_V": W_V,
        "W_O": W_O,
        "W_U": np.eye(8)[:, 7:],
    }


def run(matrices: dict[str, Any], points: Any) -> Any:
    """What a textbook computes with these matrices, for points (n, inputs)."""
    rows = points @ matrices["W_E"] + matrices["b_E"]
    keys = np.concatenate(
        [np.broadcast_to(matrices["references"], (len(rows), *matrices["references"].shape)), rows[:, None]], axis=1
    )
    scores = np.einsum("nd,dh,nkh->nk", rows, matrices["W_Q"], keys @ matrices["W_K"])
    shares = np.exp(scores - scores.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    found = np.einsum("nk,nkv->nv", shares, keys @ matrices["W_V"]) @ matrices["W_O"]
    return ((rows + found) @ matrices["W_U"])[:, 0]


def attacked(matrices: dict[str, Any], count: int, seed: int = 0) -> float:
    """The largest |head - x y| at points at random, a third of them on faces."""
    random = np.random.default_rng(seed)
    points = random.uniform(-1.0, 1.0, (count, 2))
    points[: count // 3, 0] = random.choice([-1.0, 1.0], count // 3)
    points[:100] = 1.0 - np.linspace(0.0, 0.01, 200).reshape(100, 2)
    return float(np.abs(run(matrices, points) - points.prod(axis=1)).max())


def test_the_bound_holds_and_is_hardly_more_than_what_is_attained() -> None:
    matrices = product_matrices()
    certified = hs.certify(matrices, "x*y", SQUARE, ratio=1.05)
    assert certified.verdict == "proven"
    assert certified.ratio <= 1.05
    assert 0.99 * certified.found <= attacked(matrices, 20_000) <= certified.error


def test_a_planted_spike_is_found_or_the_answer_stays_open() -> None:
    """A corner in which the head is 5 and not 1: whatever was found before, the bound is never below."""
    matrices = product_matrices(spike=True)
    worst = attacked(matrices, 1_000)
    certified = hs.certify(matrices, "x*y", SQUARE, ratio=1.1)
    assert worst > 1.0
    assert certified.error >= worst
    assert certified.verdict == "proven"
    assert min(certified.worst.values()) > 0.99


def test_less_than_what_is_attained_is_never_proven() -> None:
    certified = hs.certify(product_matrices(), "x*y", SQUARE, ratio=0.98, timeout=1.5)
    assert certified.verdict == "open"
    assert certified.error >= certified.found


def test_a_file_is_checked_again_and_says_in_words_what_it_proves(tmp_path: Path) -> None:
    certified = hs.certify(product_matrices(), "x*y", SQUARE, ratio=1.2)
    certified.save(tmp_path / "proof.safetensors")
    proven = hs.verify(tmp_path / "proof.safetensors")
    assert proven.error == certified.error
    assert proven.network == certified.statement.network
    assert "x*y" in str(proven)
    assert "-1 <= x <= 1" in str(proven)


def forged(path: Path, change: Any) -> tuple[Any, Any]:
    """The header and the tensors of a file, changed."""
    header, tensors = read(path)
    tensors = {name: np.array(each) for name, each in tensors.items()}
    change(header, tensors)
    return header, tensors


def test_changed_weights_trees_and_claims_are_refused_or_proven_anew(tmp_path: Path) -> None:
    """Whatever is changed: if the kernel accepts, what is claimed is true of what the file holds."""
    path = tmp_path / "proof.safetensors"
    matrices = product_matrices()
    hs.certify(matrices, "x*y", SQUARE, ratio=1.02).save(path)
    cells = read(path)[0]["given"]["cells"]

    def weights(header: Any, tensors: Any) -> None:
        for name, each in tensors.items():
            if name.startswith("network"):
                tensors[name] = each * 1.01

    def claim(header: Any, tensors: Any) -> None:
        header["claim"]["error"] *= 0.9

    def dropped(header: Any, tensors: Any) -> None:
        header["given"]["cells"] = cells[:-1]

    def wider(header: Any, tensors: Any) -> None:
        header["domain"]["high"][0] = 2.0

    def lower(header: Any, tensors: Any) -> None:
        header["given"]["order"] = 2

    def infinite(header: Any, tensors: Any) -> None:
        tensors[next(name for name in tensors if name.startswith("network"))][...] = np.inf

    for change in (weights, claim, dropped, wider, lower, infinite):
        with pytest.raises(Refused):
            checked(*forged(path, change))
    for place in (each for each, mark in enumerate(cells) if mark != "0"):
        with pytest.raises(Refused):  # a cut that became a cell leaves marks over
            checked(*forged(path, partial(_closed, cells=cells, place=place)))


def _closed(header: Any, _: Any, cells: str, place: int) -> None:
    header["given"]["cells"] = f"{cells[:place]}0{cells[place + 1 :]}"


def test_a_compiled_model_is_certified_by_a_second_road() -> None:
    """By Taylor models of its matrices: no less than what the falsifier finds, and hardly more than its certificate."""
    wide, narrow = {"x": (-3.0, 3.0)}, {"x": (-1.0, 1.0)}
    for target, domain, error in [("x*y", SQUARE, 1e-3), ("sin(x)", wide, 1e-6), ("relu(x)", narrow, 1e-2)]:
        model = hs.compile(target, domain, error)
        certified = hs.certify(model, target, domain, ratio=1.1)
        assert certified.verdict == "proven"
        assert hs.falsify(model, effort=500).error <= certified.error <= 1.101 * model.certificate.error


def test_modules_of_torch_are_read_and_certified() -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)

    class Pair(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.embed = torch.nn.Linear(1, 8)
            self.layer = torch.nn.TransformerEncoderLayer(
                8, 2, 16, 0.0, activation="gelu", batch_first=True, norm_first=True
            )
            self.output = torch.nn.Linear(8, 1)

        def forward(self, x: Any) -> Any:
            return self.output(self.layer(self.embed(x[..., None]) + torch.arange(2.0)[:, None]).mean(1))

    module = Pair().eval()
    certified = hs.certify(module, "x + y", SQUARE, ratio=1.05)
    points = torch.rand(2_000, 2) * 2.0 - 1.0
    with torch.no_grad():
        found = float((module(points)[:, 0] - points.sum(1)).abs().max())
    assert certified.verdict == "proven"
    assert found <= certified.error + 1e-5 <= 1.06 * certified.found


def test_extreme_scores_and_small_domains() -> None:
    """Scores of 1e5 and equal ones, one constant token, a domain that is a point or has a side that is one."""
    base = product_matrices()
    sharp = {**base, "W_Q": 5e4 * base["W_Q"]}
    equal = {**base, "W_Q": 0.0 * base["W_Q"]}
    single = {**base, "references": base["references"][:1]}
    for matrices in (sharp, equal, single):
        for domain in (SQUARE, {"x": (0.25, 0.25), "y": (-0.5, 0.5)}, {"x": (0.25, 0.25), "y": (0.5, 0.5)}):
            certified = hs.certify(matrices, "x*y", domain, ratio=3.0, order=3, timeout=0.3, dtype="float64")
            low, high = (np.array([ends[side] for ends in domain.values()]) for side in (0, 1))
            points = np.random.default_rng(0).uniform(low, high, (500, 2))
            with np.errstate(all="ignore"):
                seen = np.abs(run(matrices, points) - points.prod(axis=1)).max()
            assert seen <= certified.error


def test_an_input_where_an_error_is_exceeded_disproves_it() -> None:
    """The difference there lies between doubles that are above what was asked."""
    certified = hs.certify(product_matrices(), "x*y", SQUARE, within=0.01, timeout=1.0)
    worst = np.array([[*certified.worst.values()]])
    assert certified.verdict == "disproved"
    assert abs(run(product_matrices(), worst)[0] - worst.prod()) >= certified.found - 1e-12 > 0.01
    assert certified.error >= certified.found


def test_the_command_line_takes_matrices_and_draws_the_cells(tmp_path: Path) -> None:
    np.savez(tmp_path / "head.npz", **product_matrices())
    files = ["-o", str(tmp_path / "proof.safetensors"), "--plot", str(tmp_path / "error.png")]
    given = ["certify", str(tmp_path / "head.npz"), "x*y", "--domain", "-1:1", "--order", "4", "--json", *files]
    answer = json.loads(CliRunner().invoke(commands, given).output)
    assert answer["verdict"] == "proven"
    assert hs.verify(tmp_path / "proof.safetensors").error == answer["error"]
    assert (tmp_path / "error.png").stat().st_size > 1000


def test_what_is_no_number_never_counts_as_closed() -> None:
    """A function that is not defined everywhere on the domain is refused, and so are weights that overflow."""
    with pytest.raises(hs.HeadsmithError):
        hs.certify(product_matrices(), "log(x) + y", SQUARE, timeout=1.0)
    huge = {**product_matrices(), "W_Q": 1e300 * product_matrices()["W_Q"]}
    with pytest.raises(hs.HeadsmithError):
        hs.certify(huge, "x*y", SQUARE, timeout=1.0)


@pytest.mark.campaign
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("spike", [False, True])
def test_a_million_points_are_never_further_off_than_proven(seed: int, spike: bool) -> None:
    matrices = product_matrices(spike, seed)
    certified = hs.certify(matrices, "x*y", SQUARE, ratio=1.05)
    assert certified.verdict == "proven"
    assert attacked(matrices, 1_000_000, seed) <= certified.error
