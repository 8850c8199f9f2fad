"""`headsmith signal`, its pictures, and the claims about signal propagation, which can fail."""

import json
from pathlib import Path

import pytest

import headsmith as hs
from headsmith.cli import main
from headsmith.lab.claims import signal as signal_claims
from headsmith.lab.claims.rows import select


def shell(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[str, str, object]:
    with pytest.raises(SystemExit) as stopped:
        main([str(each) for each in arguments])
    captured = capsys.readouterr()
    return captured.out, captured.err, stopped.value.code


def test_the_recurrences_from_the_command_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    picture = tmp_path / "signal.png"
    out, _, code = shell(capsys, "signal", "--norm", "derf", "--alpha", 1, "--depth", 64, "-o", picture)
    assert code == 0
    assert "33.8714" in out
    assert picture.stat().st_size > 10_000
    out, _, _ = shell(capsys, "signal", "--norm", "derf", "--alpha", 1, "--depth", 64, "--json")
    found = json.loads(out)
    assert found["J"][-1] == pytest.approx(33.87141, abs=6e-6)
    assert found["J_to_output"][0] == pytest.approx(found["J"][-1])
    assert len(found["q"]) == len(found["p"]) == 65
    assert (found["norm"], found["alpha"], found["tokens"]) == ("derf", 1.0, 196)


def test_all_settings_reach_the_theory(capsys: pytest.CaptureFixture[str]) -> None:
    options = {"tokens": 9, "q0": 2.0, "p0": 0.3, "sigma_o": 0.4, "sigma_v": 0.5, "sigma_1": 0.6, "sigma_2": 0.7}
    options |= {"sigma_qk": 0.8, "depth": 3}
    texts = [text for name, value in options.items() for text in (f"--{name.replace('_', '-')}", value)]
    out, _, _ = shell(
        capsys, "signal", "--norm", "dyt", "--alpha", 0.5, "--alpha", 2, "--finite-tokens", *texts, "--json"
    )
    expected = hs.signal.apjn("dyt", alpha=[0.5, 2.0], finite_tokens=True, **options)  # type: ignore[arg-type]
    assert json.loads(out)["J"] == expected.J.tolist()


def test_measuring_from_the_command_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    small = ("--depth", 2, "--tokens", 4, "--width", 16, "--networks", 3)
    out, _, code = shell(capsys, "signal", "--measure", *small, "-o", tmp_path / "measured.png", "--json")
    found = json.loads(out)
    assert code == 0
    assert len(found["J"]) == len(found["J_standard_error"]) == len(found["theory"]["J"]) == 3
    out, _, _ = shell(capsys, "signal", "--measure", *small)
    assert "J measured" in out


def test_the_gains_of_a_saved_model(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "product.safetensors"
    hs.compile("x*y", {"x": (-1, 1), "y": (-1, 1)}, error=1e-3).save(path)
    out, _, code = shell(capsys, "signal", path, "--samples", 20, "-o", tmp_path / "gains.png")
    assert code == 0
    assert "certified" in out
    found = json.loads(shell(capsys, "signal", path, "--samples", 20, "--json")[0])
    assert all(average <= bound for average, bound in zip(found["average"], found["certified"], strict=True))


def test_mistakes_are_one_message(capsys: pytest.CaptureFixture[str]) -> None:
    assert "unknown norm 'rms'" in shell(capsys, "signal", "--norm", "rms")[1]
    assert "one alpha at a time" in shell(capsys, "signal", "--measure", "--alpha", 1, "--alpha", 2)[1]
    out, _, code = shell(capsys, "signal", "--depth", 0, "--json")
    assert code == 1
    assert json.loads(out)["error"]["kind"] == "TargetError"


@pytest.mark.usefixtures("coarse_pictures")
def test_the_figures_of_the_literature(tmp_path: Path) -> None:
    assert [Path(each).name for each in hs.signal.draw_figures(tmp_path, networks=2)] == [
        "stream.png",
        "gradients.png",
        "residual.png",
    ]


def test_the_reference_values_are_a_claim_that_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    assert signal_claims.recurrences().holds
    monkeypatch.setitem(signal_claims.REFERENCE, ("derf", 1.0), 33.87142)
    assert not signal_claims.recurrences().holds


def test_the_exponents_are_a_claim_that_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    honest, again = signal_claims._growth, signal_claims._growth_again
    monkeypatch.setattr(signal_claims, "_growth", lambda norm, alpha, last: honest(norm, alpha, 8))
    monkeypatch.setattr(signal_claims, "_growth_again", lambda norm, alpha, last: again(norm, alpha, 8))
    # At 256 blocks the exponent of LayerNorm has not settled yet.
    assert not signal_claims.growth().holds


def test_the_measurement_is_a_claim_that_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signal_claims, "NETWORKS", 12)
    found = signal_claims.measurement()
    # Few networks have large standard errors: the row must not pass by being vague.
    assert not found.holds
    assert len(found.figure["rows"]) == 5


def test_rows_say_where_they_come_from() -> None:
    assert [row.tag for row in select(["A1", "A2", "A3"])] == ["abstract"] * 3
