"""hs.plan and `headsmith plan`: rows in order, fronts that brute force confirms, the relu recipe beside them."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.effort import CAMPAIGN

import headsmith as hs
from headsmith.cli import main
from headsmith.report.falsify import falsify
from headsmith.report.plan_plot import draw_plan
from headsmith.report.tables import plan_table

MEASURES = ("layers", "heads", "reference_tokens", "data_tokens", "max_weight")
ERRORS = (1e-2, 1e-4, 1e-6)
TARGETS: dict[str, tuple[Any, dict[str, tuple[float, float]]]] = {
    "product": ("x*y", {"x": (-1, 1), "y": (-1, 1)}),
    "reciprocal": ("1/x", {"x": (0.1, 1)}),
    "two ways": ("sin(x)*y", {"x": (-1, 1), "y": (0, 1)}),
    "gelu": ("gelu(x)", {"x": (-5, 5)}),
    "kink": ("abs(x)", {"x": (-1, 1)}),
}


def errors_of(name: str) -> tuple[float, ...]:
    """The errors of a plan: a search for many tokens takes long, so some have fewer in `make test`."""
    return ERRORS if CAMPAIGN else ERRORS[: {"reciprocal": 1, "two ways": 1, "gelu": 1}.get(name, 3)]


@pytest.fixture(scope="module")
def plans() -> Callable[[str], list[Any]]:
    """Plans by name, each made once."""
    made: dict[str, list[Any]] = {}

    def plan(name: str) -> list[Any]:
        if name not in made:
            made[name] = hs.plan(*TARGETS[name], errors_of(name))
        return made[name]

    return plan


def costs(row: Any) -> tuple[float, ...]:
    bill = row.bill
    return bill.layers, bill.heads, bill.reference_tokens + bill.data_tokens, bill.max_weight


def measured(row: Any) -> tuple[float, ...]:
    return tuple(float(getattr(row.bill, name)) for name in MEASURES)


@pytest.mark.again
@pytest.mark.parametrize("name", TARGETS)
def test_rows(name: str, plans: Callable[[str], list[Any]]) -> None:
    rows = plans(name)
    assert [row.error for row in rows] == sorted((row.error for row in rows), reverse=True)
    for error in errors_of(name):
        mine = [row for row in rows if row.error == error]
        (gates,) = [row for row in mine if row.recipe == "relu"]
        assert gates.ratio == 1.0
        assert all(costs(a) <= costs(b) for a, b in pairwise(mine))
        assert len({(measured(row), row.recipe) for row in mine}) == len(mine)
        for row in mine:
            assert row.certified <= error
            assert row.certified == row.compiled.certificate.error
            dominated = any(
                all(x <= y for x, y in zip(measured(other), measured(row), strict=True))
                and measured(other) != measured(row)
                for other in mine
            )
            assert row.pareto is not dominated
            sizes = [each.bill.heads * each.bill.layers for each in (gates, row)]
            assert row.ratio == pytest.approx(sizes[0] / sizes[1])


@pytest.mark.again
@pytest.mark.parametrize("name", TARGETS)
def test_the_cheapest_row_is_what_compile_makes_or_cheaper(name: str, plans: Callable[[str], list[Any]]) -> None:
    for error in errors_of(name):
        best = next(row for row in plans(name) if row.error == error)
        bill = hs.compile(*TARGETS[name], error).bill
        assert measured(best)[:3] <= (bill.layers, bill.heads, bill.reference_tokens)
        assert falsify(best.compiled, effort=300).ratio <= 1.0


def test_a_product_takes_a_hundredth_of_the_relu_recipe(plans: Callable[[str], list[Any]]) -> None:
    best = next(row for row in plans("product") if row.error == 1e-6)
    assert (best.bill.layers, best.bill.heads) == (1, 1)
    assert best.ratio > 100


def test_fused_more_or_less(plans: Callable[[str], list[Any]]) -> None:
    variants = {row.variant.split(",")[0] for row in plans("two ways") if row.recipe == "native"}
    assert variants == {"expressions of two variables", "expressions of one variable"}


def test_what_is_piecewise_linear_has_no_tables(plans: Callable[[str], list[Any]]) -> None:
    recipes = [row.recipe for row in plans("kink")]
    assert recipes.count("relu") == recipes.count("maxout") == len(ERRORS)
    assert "native" not in recipes


def test_progress_is_told() -> None:
    told: list[tuple[str, float]] = []
    hs.plan("exp(x)", {"x": (0, 1)}, (1e-2, 1e-3), progress=lambda text, done: told.append((text, done)))
    shares = [done for _, done in told]
    assert shares == sorted(shares)
    assert shares[0] == 0.0
    assert told[-1] == ("done", 1.0)
    assert any("1e-03" in text or "0.001" in text for text, _ in told)
    assert any("relu" in text for text, _ in told)


def test_the_users_weights_decide_the_order() -> None:
    target, domain = TARGETS["reciprocal"]
    by_weight = hs.plan(target, domain, [1e-4], cost={"max_weight": 1.0})
    by_tokens = hs.plan(target, domain, [1e-4], cost={"reference_tokens": 1.0, "layers": 1e-3})
    weights = [row.bill.max_weight for row in by_weight]
    assert weights == sorted(weights)
    assert by_tokens[0].recipe == "relu"
    assert by_weight[0].recipe == "native"
    costs = [row.bill.reference_tokens + 1e-3 * row.bill.layers for row in by_tokens]
    assert costs == sorted(costs)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"errors": []}, "at least one error"),
        ({"errors": [0.0]}, "error is"),
        ({"errors": [-1.0]}, "error is"),
        ({"cost": {"beauty": 1.0}}, "no cost named 'beauty'"),
        ({"cost": {"heads": -1.0}}, "the weight of heads"),
        ({"cost": {"heads": float("nan")}}, "the weight of heads"),
        ({"tokens": 0}, "tokens is 0"),
        ({"dtype": "float8"}, "unknown dtype"),
    ],
)
def test_options_that_make_no_plan(options: dict[str, Any], says: str) -> None:
    with pytest.raises(hs.TargetError, match=says):
        hs.plan("x*y", {"x": (0, 1), "y": (0, 1)}, **{"errors": [1e-2], **options})


def test_an_error_beyond_reach_is_refused() -> None:
    with pytest.raises(hs.UnreachableError):
        hs.plan("exp(x)", {"x": (0, 1)}, [1e-18])


def test_several_tokens_and_single_precision() -> None:
    rows = hs.plan("x*y", {"x": (-1, 1), "y": (-1, 1)}, [1e-2], tokens=4, dtype="float32")
    assert {row.recipe for row in rows} == {"native", "relu"}
    for row in rows:
        assert row.compiled.certificate.tokens == 4
        assert row.compiled.certificate.dtype == "float32"
        sequence = np.random.default_rng(0).uniform(-1, 1, (3, 4, 2))
        assert np.abs(row.compiled(sequence)[..., 0] - sequence[..., 0] * sequence[..., 1]).max() <= row.certified


def test_the_table_has_every_row(plans: Callable[[str], list[Any]]) -> None:
    rows = plans("product")
    table = plan_table(rows)
    assert table.row_count == len(rows)
    assert [str(cell) for cell in table.columns[0].cells if cell] == ["0.01", "0.0001", "1e-06"]


@pytest.mark.usefixtures("coarse_pictures")
@pytest.mark.parametrize("name", ["product", "two ways", "kink"])
def test_the_picture(name: str, plans: Callable[[str], list[Any]], tmp_path: Path) -> None:
    draw_plan(plans(name), tmp_path / "plan.png", name)
    assert (tmp_path / "plan.png").read_bytes().startswith(b"\x89PNG")


GROWTH = ["plan", "exp(x)", "--domain", "x=0:1", "--error", "1e-2", "--error", "1e-4", "--error", "1e-6"]


def shell(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    printed = capsys.readouterr()
    return int(ended.value.code or 0), printed.out, printed.err


def test_the_command_prints_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = shell(capsys, *GROWTH, "--json")
    assert (code, err) == (0, "")
    rows = json.loads(out)["rows"]
    assert [row["error"] for row in rows] == sorted((row["error"] for row in rows), reverse=True)
    assert {row["recipe"] for row in rows} == {"native", "ramp", "relu"}
    for row in rows:
        assert row["certified"] <= row["error"]
        assert row["ratio"] >= 1.0 or row["recipe"] == "ramp"
        assert set(MEASURES) <= set(row["bill"])
    best = next(row for row in rows if row["error"] == 1e-6)
    assert (best["bill"]["layers"], best["bill"]["heads"]) == (1, 1)
    assert best["pareto"]


@pytest.mark.usefixtures("coarse_pictures")
def test_the_command_shows_the_front_and_draws_it(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    picture = tmp_path / "plan.png"
    code, out, _ = shell(capsys, "plan", "exp(x)", "--domain", "0:1", "--error", "1e-2", "-o", str(picture))
    assert code == 0
    assert "native" in out
    assert "relu" in out
    assert f"drawn into {picture}" in out.replace("\n", "")
    assert picture.read_bytes().startswith(b"\x89PNG")
    _, everything, _ = shell(capsys, "plan", "exp(x)", "--domain", "0:1", "--error", "1e-2", "--all")
    assert everything.count("native") >= out.count("native")


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["--cost", "beauty=1"], 1, "beauty"),
        (["--cost", "heads"], 1, "NAME=WEIGHT"),
        (["--error", "-1"], 1, "error"),
        (["--error", "tiny"], 2, "tiny"),
        (["-o", "plan.txt"], 1, ".png"),
    ],
)
def test_mistakes_are_one_message(
    arguments: list[str],
    code: int,
    says: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    ended, out, err = shell(capsys, "plan", "x*y", "--domain", "0:1", *arguments)
    assert (ended, out) == (code, "")
    assert says in err
    assert not list(tmp_path.iterdir())
