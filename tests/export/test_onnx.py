"""`model.to_onnx()`: a graph of primitives that ONNX Runtime runs, in both formats, written out or fused."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from helpers.models.networks import random_network

import headsmith as hs

over = hs.tokens
BOTH = pytest.mark.parametrize("fused", [False, True], ids=["textbook", "fused"])


def run(model: Any, inputs: Any, **options: Any) -> Any:
    """What ONNX Runtime makes of the model."""
    written = model.to_onnx(**options)
    onnx.checker.check_model(written, full_check=True)
    assert [(each.domain, each.version) for each in written.opset_import] == [("", 17)]
    quiet = onnxruntime.SessionOptions()
    quiet.log_severity_level, quiet.intra_op_num_threads = 3, 1
    session = onnxruntime.InferenceSession(written.SerializeToString(), quiet)
    return session.run(None, {"x": inputs.astype(model.transformer.dtype)})[0]


def room(model: Any) -> float:
    return float(2.0 * model.certificate.parts["rounding"] + model.certificate.parts["leak"])


@BOTH
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("tokens", [1, 4])
def test_networks(tokens: int, causal: bool, dtype: str, fused: bool, rng: np.random.Generator) -> None:
    model = hs.compile(random_network([3, 6, 5, 2]), (-1, 1), 1e-2, tokens=tokens, dtype=dtype)
    for batch, length in ((1, 1), (7, 3)):
        inputs = rng.uniform(-1, 1, (batch, 3) if tokens == 1 else (batch, length, 3))
        found, wanted = run(model, inputs, fused=fused, causal=causal), model(inputs, causal=causal)
        assert found.dtype == wanted.dtype
        assert found.shape == wanted.shape
        assert np.abs(found - wanted).max() <= room(model)


@BOTH
@pytest.mark.parametrize("causal", [False, True])
def test_sequences_of_any_length(causal: bool, fused: bool, rng: np.random.Generator) -> None:
    for program in (lambda x: x * over.mean(x), over.max, lambda x: over.attend(x[:, 0], x[:, 0], x[:, 0])):
        model = hs.compile_sequence(program, tokens=5, domain=(-1, 1), error=1e-3, causal=causal)
        for length in (1, 4, 5):
            inputs = rng.uniform(-1, 1, (3, length, 1))
            assert np.abs(run(model, inputs, fused=fused) - model(inputs)).max() <= room(model)


def test_weights_are_those_of_the_model_bit_for_bit() -> None:
    model = hs.compile(random_network([3, 6, 5, 2]), (-1, 1), 1e-2, dtype="float32")
    held = {each.name: onnx.numpy_helper.to_array(each) for each in model.to_onnx().graph.initializer}
    for name, value in model.plain().tensors.items():
        if name.endswith("weight"):
            assert np.array_equal(held[name], value.T)
    fused = {each.name: onnx.numpy_helper.to_array(each) for each in model.to_onnx(fused=True).graph.initializer}
    for number, layer in enumerate(model.transformer.layers):
        for place, link in enumerate(layer.banks[0].write):
            assert np.array_equal(fused[f"layers.{number}.sink.0.write.{place}"], link.weights.T)


def test_without_onnx_it_says_what_to_install() -> None:
    code = "import sys; sys.modules['onnx'] = None; import headsmith as hs; hs.compile('x', (-1, 1), 1e-3).to_onnx()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert 'this needs onnx: pip install "headsmith[onnx]"' in done.stderr
