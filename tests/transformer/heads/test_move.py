"""The move head: one head copies linear forms from the token that a constant address names, or nothing.

Theorem: |out - what the addressee holds| <= leak + rounding; with a gain of 40 that is rounding alone.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from helpers.attacks import saved
from helpers.theorems import banks as models
from hypothesis import given
from hypothesis import strategies as st

from headsmith.core.errors import CertificateError, DomainError, HeadsmithError
from headsmith.core.rounding import PRECISIONS
from headsmith.export.file import read_file, write_file
from headsmith.lab import heads as head_models
from headsmith.run.numpy_runner import patterns, run
from headsmith.transformer.heads.move import (
    NOTHING,
    MoveBank,
    addresses,
    constant_address,
    permutation_address,
    shift_address,
    targets,
)
from headsmith.transformer.heads.stream import DATA, Link
from headsmith.transformer.ir import Transformer

each_dtype = pytest.mark.parametrize("dtype", ["float64", "float32"])
each_mask = pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
each_surrounding = pytest.mark.parametrize("how", models.SURROUNDINGS)

TOKENS = 5
BACKWARDS = [NOTHING, 0, 1, 0, 4]
"""Where five tokens fetch from: never ahead."""


def bank(gain: float = 30.0) -> MoveBank:
    """x0 - x1/2 + 1/4 and x1, written as they are, and the first once more."""
    read = (Link("x", [[1.0, -0.5], [0.0, 1.0]]), Link(DATA, [[0.25]]))
    return MoveBank([-1, -1], [0, 1], read, (Link("out", [[1.0, 0.0], [0.5, 1.0]]),), "address", gain, 60.0)


def model(how: str, dtype: str, wanted: list[int] = BACKWARDS, gain: float = 30.0) -> Transformer:
    table = addresses(wanted, len(wanted))
    return models.surround(bank(gain), how, len(wanted), dtype, positional={"address": table})


# ---- the theorem ----------------------------------------------------------------------------------------------------


@each_dtype
@pytest.mark.parametrize("tokens", [2, 3, 8, 13])
def test_shifts_broadcasts_and_permutations(tokens, dtype, rng) -> None:
    x = models.stored(rng.uniform(-1, 1, (1, tokens, 3)), dtype)
    room = 4.0 * PRECISIONS[dtype].unit_roundoff
    for offset in (tokens, 2, 1, 0, -1, 1 - tokens):
        wanted = np.zeros_like(x)
        for place in range(tokens):
            if 0 <= place - offset < tokens:
                wanted[0, place] = x[0, place - offset]
        assert np.abs(run(head_models.move(tokens, offset, inputs=3, dtype=dtype), x) - wanted).max() <= room
    for index in (0, tokens - 1):
        broadcast = head_models.move(tokens, address=constant_address(tokens, index), inputs=3, dtype=dtype)
        assert np.abs(run(broadcast, x) - x[:, index : index + 1]).max() <= room
        assert broadcast.reference_tokens == 0
    order = rng.permutation(tokens).tolist()
    permuted = head_models.move(tokens, address=permutation_address(order), inputs=3, dtype=dtype)
    assert np.abs(run(permuted, x) - x[:, order]).max() <= room
    if tokens == 8:
        exchanged = [place ^ 5 for place in range(8)]
        model = head_models.move(8, address=permutation_address(exchanged), inputs=3, dtype=dtype)
        assert np.abs(run(model, x) - x[:, exchanged]).max() <= room


# ---- addresses ------------------------------------------------------------------------------------------------------


class TestAddresses:
    @given(st.integers(2, 40).flatmap(lambda n: st.tuples(st.just(n), st.lists(st.integers(-1, n - 1), min_size=1))))
    def test_they_can_be_read_back(self, case) -> None:
        tokens, wanted = case
        assert targets(addresses(wanted, tokens), tokens).tolist() == wanted

    def test_what_is_no_address(self) -> None:
        for wanted in ([-2], [5], [0, 7]):
            with pytest.raises(DomainError, match="must name one of"):
                addresses(wanted, 5)
        with pytest.raises(DomainError, match="two tokens"):
            addresses([0], 1)
        with pytest.raises(DomainError, match="no permutation"):
            permutation_address([0, 0, 1])
        with pytest.raises(DomainError, match="not both"):
            head_models.move(4)
        with pytest.raises(DomainError, match="not both"):
            head_models.move(4, 1, shift_address(4, 1))


class TestWhoIsMissing:
    def test_short_sequences(self, rng) -> None:
        """What the first tokens fetch must be there."""
        ahead = head_models.move(4, -1)
        with pytest.raises(
            DomainError, match=r"layer 0, move bank: token 2 fetches from token 3, but the sequence has 3"
        ):
            run(ahead, np.zeros((1, 3, 1)))
        with pytest.raises(DomainError, match="has 3 tokens"):
            patterns(ahead, np.zeros((3, 1)))
        behind, x = head_models.move(4, 1), rng.uniform(-1, 1, (1, 4, 1))
        for length in (1, 2, 3, 4):
            assert np.abs(run(behind, x[:, :length]) - run(behind, x)[:, :length]).max() <= 1e-15

    def test_causal_masks(self) -> None:
        with pytest.raises(DomainError, match="token 0 fetches from token 1, which a causal mask hides"):
            run(head_models.move(4, -1), np.zeros((1, 4, 1)), causal=True)
        run(head_models.move(4, 0), np.zeros((1, 4, 1)), causal=True)


# ---- runner, textbook, bill, file -----------------------------------------------------------------------------------


@each_surrounding
class TestTheBankInAModel:
    @each_mask
    @each_dtype
    @pytest.mark.parametrize("length", [4, 5])
    def test_runner_equals_textbook(self, how, causal, dtype, length, rng) -> None:
        models.agrees_with_textbook(model(how, dtype), length, causal, rng)

    @each_dtype
    def test_runner_equals_textbook_without_nothing(self, how, dtype, rng) -> None:
        mixed = model(how, dtype, [3, 0, 1, 4, 2])
        assert mixed.sink_tokens == int(how != "alone")
        models.agrees_with_textbook(mixed, 5, False, rng)

    @each_mask
    def test_attention_is_real(self, how, causal, rng) -> None:
        models.attention_is_real(model(how, "float64"), 4, causal, rng)

    @each_mask
    def test_chunks(self, how, causal, rng, monkeypatch) -> None:
        models.batches_and_chunks_change_nothing(model(how, "float64"), causal, rng, monkeypatch)

    @pytest.mark.parametrize("gain", [30.0, 4000.0])
    @pytest.mark.parametrize("wanted", [BACKWARDS, [1, 0, 1]], ids=repr)
    def test_bill(self, how, gain, wanted) -> None:
        models.bill_counts_the_matrices(model(how, "float64", wanted, gain))

    @each_dtype
    def test_file(self, how, dtype, tmp_path, rng) -> None:
        models.file_brings_it_back(model(how, dtype), tmp_path / "model", rng)


def test_links_may_read_positional_registers(rng) -> None:
    """Learned position embeddings, so to speak: added to a mean's values here."""
    places = rng.uniform(-1, 1, (TOKENS, 2))
    mine = replace(bank(), read=(*bank().read, Link("places", [[2.0, 0.0], [0.0, 1.0]])))
    table = {"address": addresses(BACKWARDS, TOKENS), "places": places}
    for how in models.SURROUNDINGS:
        models.agrees_with_textbook(models.surround(mine, how, TOKENS, "float64", positional=table), 4, True, rng)


@pytest.mark.parametrize("place", [("layers", 0, 0, "address"), ("positional",), ("positional", "address")])
def test_a_damaged_file_is_refused(place, tmp_path) -> None:
    path = tmp_path / "model"
    write_file(path, models.contents(model("alone", "float64")))
    header, tensors = saved.read(path)
    for new in (None, "nobody", "readout_bias", [], -3):
        saved.write(path, saved.put(header, ("transformer", *place), new), tensors)
        with pytest.raises(HeadsmithError):
            read_file(path)
    saved.write(path, saved.drop(header, ("transformer", *place)), tensors)
    with pytest.raises(HeadsmithError):
        read_file(path)


class TestTheCheckerRefuses:
    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"address": "x"}, "must be a positional register"),
            ({"address": "nobody"}, "must be a positional register"),
            ({"node": [], "component": [], "read": (), "write": ()}, "outputs of shape"),
            ({"component": [0]}, "array of shape"),
            ({"write": (Link("address", np.ones((4, 2))),)}, "is written"),
            ({"write": (Link("position", np.ones((3, 2))),)}, "is written"),
            ({"gain": np.nan}, "not finite"),
        ],
        ids=repr,
    )
    def test_what_does_not_fit(self, changes, message) -> None:
        with pytest.raises(CertificateError, match=message):
            models.with_bank(model("gates", "float64"), MoveBank, **changes)

    @pytest.mark.parametrize(
        "row",
        [[1, 1, 1, 1], [0, 0, 0, 0], [0, 0, 0, 2], [1, 1, 0, 0], [-1, -1, -1, 0], [2, 1, 1, 0], [1, -1, 1, 1e-300]],
    )
    def test_rows_that_are_no_address(self, row) -> None:
        """Of five tokens; (-1, -1, -1) would be token 7."""
        table = addresses(BACKWARDS, TOKENS).copy()
        table[2] = row
        with pytest.raises(CertificateError, match="row 2 of address is the address of no token"):
            replace(model("alone", "float64"), positional={"address": table})

    @pytest.mark.parametrize("shape", [(4, 4), (5, 3), (6, 4), (5,), (5, 4, 1)])
    def test_tables_of_another_shape(self, shape) -> None:
        with pytest.raises(CertificateError, match="positional values of address have shape"):
            replace(model("alone", "float64"), positional={"address": np.ones(shape)})

    def test_constants_are_never_written(self) -> None:
        mine = model("alone", "float64")
        with pytest.raises(CertificateError, match="constant register address is written"):
            replace(mine, embedding=(*mine.embedding, Link("address", np.ones((4, 2)))))
        with pytest.raises(CertificateError, match="initial value of address"):
            replace(mine, initial={"address": np.ones(4)})
        for name in ("position", "data", "nobody"):
            with pytest.raises(CertificateError, match=f"positional values of {name}"):
                replace(mine, positional={**mine.positional, name: np.ones((5, 3))})
        with pytest.raises(CertificateError, match="not finite"):
            replace(mine, positional={**mine.positional, "side": np.full((5, 2), np.nan)}, initial={})

    def test_a_single_token_has_nobody_to_fetch_from(self) -> None:
        with pytest.raises(CertificateError, match="nobody to fetch from"):
            models.build([[bank()]], 1, "float64", positional={"address": np.zeros((1, 1))})
