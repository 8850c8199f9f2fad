"""Claims R4 to R7 fail where a model costs more or errs more than it may. That they hold, and that every figure counts,
is tested in test_claim_mutations.py."""

from headsmith.lab.claims.formulas import FormulaCase, bill_row, cheapest, faults, folds, gain


def test_a_bill_has_its_figures() -> None:
    case = FormulaCase("multiplication", "x*y", {"x": (-1, 1), "y": (-2, 2)}, lambda _: 10)
    row, counted = bill_row(case, 1e-2, "relu")
    assert row["domain"] == "[-1, 1] x [-2, 2]"
    assert counted["parameters"] == row["parameters"]
    assert faults([row]) == []
    assert faults([{**row, "heads": 11}])
    assert faults([{**row, "certified": 2e-2}])
    assert faults([{**row, "found": 2.0 * row["certified"]}])


def test_the_law_of_folds() -> None:
    law = folds(1.0, 2)
    assert [law(error) for error in (1e-2, 1e-4, 1e-6)] == [8, 14, 20]


def test_auto_must_be_the_cheapest() -> None:
    case = FormulaCase("multiplication", "x*y", {"x": (-1, 1), "y": (-1, 1)})
    relu, native, auto = (bill_row(case, 1e-6, recipe)[0] for recipe in ("relu", "native", "auto"))
    assert (native["layers"], native["heads"]) == (1, 1)
    assert cheapest([relu, native, auto])
    assert not cheapest([relu, native, {**auto, "heads": 2}])
    assert gain([relu, native, auto]) > 100
