"""A model as JSON says the same as the model."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.models.gallery import MODELS

import headsmith as hs
from headsmith.core.functions import FUNCTIONS
from headsmith.kernel.core.functions import FUNCTIONS as KNOWN
from headsmith.studio.page import asset, json_text
from headsmith.studio.view import lemma, network_lines, python_lines, refuse_unknown, sparse, view, view_or_summary


def filled(matrix: dict[str, Any]) -> np.ndarray:
    flat = np.zeros(int(np.prod(matrix["shape"])))
    flat[matrix["at"]] = matrix["values"]
    return flat.reshape(matrix["shape"])


@pytest.mark.parametrize("name", MODELS)
def test_every_matrix_reads_back_as_the_same_doubles(name: str, gallery: Any) -> None:
    model = gallery[name]
    read, dense = json.loads(json_text(view(model))), model.dense()
    for key in ("references", "W_E", "W_pos", "W_U"):
        assert np.array_equal(filled(read[key]), getattr(dense, key).reshape(read[key]["shape"]))
    assert np.array_equal(filled(read["b_E"])[0], dense.b_E)
    assert read["b_U"] == dense.b_U.tolist()
    for heads, layer in zip(read["layers"], dense.layers, strict=True):
        for place, head in enumerate(heads):
            for key in ("W_Q", "W_K", "W_V", "W_O"):
                assert np.array_equal(filled(head[key]), getattr(layer, key)[place])
            assert head["kind"] in head["name"]
            assert head["text"]
    for written, layer in zip(read["neurons"], dense.layers, strict=True):
        for key in ("W_gate", "W_up", "W_down") if layer.neurons else ():
            assert np.array_equal(filled(written[key]), getattr(layer, key))
        assert (written is None) == (layer.neurons == 0)
    assert read["certificate"]["error"] == model.certificate.error


def test_a_view_tells_what_a_head_does_and_why(gallery: Any) -> None:
    (head,) = view(gallery["product"])["layers"][0]
    assert head["text"] == "x*y"
    assert "looks at itself with a weight that is affine in s" in head["words"][0]
    for kind in ("sink", "table", "gate", "mean", "boltzmann", "move", "attend"):
        assert "emma" in lemma(kind) or "Guarantee" in lemma(kind)


@pytest.mark.parametrize("limit", ["MOST_NONZEROS", "MOST_PARAMETERS", "MOST_TOKENS"])
def test_large_models_are_refused_with_the_number(limit: str, gallery: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"headsmith.studio.view.{limit}", 0)
    with pytest.raises(hs.HeadsmithError, match=r"the model has [\d,]+ .* at most 0"):
        refuse_unknown(gallery["product"])


def test_what_a_page_cannot_run_is_told_with_certificate_and_bill(
    gallery: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kind of head that a page has not learned to run yet: the rest is shown, and the reason."""
    monkeypatch.setattr("headsmith.studio.view.RUN", ("sink",))
    found = view_or_summary(gallery["product"], verified=True)
    assert found["cannot"] == "the model has gate units; a page runs heads of the kinds sink"
    assert "layers" not in found
    assert found["certificate"]["error"] == gallery["product"].certificate.error
    assert "cannot" not in view_or_summary(gallery["network"])


def test_a_matrix_of_zeros_is_no_entries() -> None:
    assert sparse(np.zeros((2, 3))) == {"shape": [2, 3], "at": [], "values": []}


def test_the_lines_of_python_make_the_model(gallery: Any) -> None:
    lines = python_lines(["x*y"], {"x": (-1.0, 1.0), "y": (-1.0, 1.0)}, error=1e-6)
    found: dict[str, Any] = {}
    exec(lines.partition("model.save")[0], found)
    assert found["model"].certificate == gallery["product"].certificate


def test_the_lines_of_a_network_make_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez("net.npz", W0=[[1.0, -1.0]], b0=[0.0], W1=[[1.0]], b1=[0.0])
    found: dict[str, Any] = {}
    exec(network_lines("net.npz", {"x0": (-1.0, 1.0), "x1": (-1.0, 1.0)}, error=1e-3, recipe="relu"), found)
    assert found["model"].certificate.error <= 1e-3
    assert Path("model.safetensors").exists()


BUILT_IN = {*KNOWN, "power"} & FUNCTIONS.keys()
"""Other tests define functions of their own, which a page does not know."""


def test_every_named_function_is_known_to_pages() -> None:
    for name in BUILT_IN:
        assert f"{name}:" in asset("target.js") or name == "erf", name
