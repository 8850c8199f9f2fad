"""Files of the version before load as they did, prove what they proved, and are saved as files of this version."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.attacks import saved
from helpers.effort import cases

import headsmith as hs
from headsmith.kernel.core.check import check_file
from headsmith.kernel.core.errors import Refused

SAMPLES = Path(__file__).parent.parent / "samples" / "version2"
NAMES = {path.stem: path for path in sorted(SAMPLES.glob("*.safetensors"))}
SLOW = {"newton", "composition", "learner", "causal", "kernel_regression", "apart", "neurons", "universal_a_softmax"}


def inputs(model: Any) -> Any:
    """A few inputs of a model of any kind."""
    if isinstance(model, hs.Universal):
        return (
            np.random.default_rng(0)
            .uniform(model.box.low, model.box.high, (3, model.box.size))
            .reshape(3, model.transformer.tokens, -1)
        )
    shape = (model.lengths[-1], model.box.size) if isinstance(model, hs.CompiledSequence) else (model.box.size,)
    if type(model) is hs.Compiled and model.transformer.tokens > 1 and not model.blocks:
        shape = (model.transformer.tokens, model.box.size)
    return np.random.default_rng(0).uniform(model.box.low, model.box.high, (3, *shape))


@pytest.mark.parametrize("name", cases(NAMES, SLOW))
def test_a_file_of_the_version_before(name: str, tmp_path: Path) -> None:
    """It holds the same claim and the same model; the kernel alone says which version it reads."""
    before, _ = saved.read(NAMES[name])
    assert before["version"] == 2
    model, proved = hs.load(NAMES[name]), hs.verify(NAMES[name])
    assert proved.error == model.certificate.error == before["claim"]["error"]
    with pytest.raises(Refused, match="format version 2; this kernel reads 3"):
        check_file(NAMES[name])
    model.save(tmp_path / "new.safetensors")
    again = hs.load(tmp_path / "new.safetensors")
    assert check_file(tmp_path / "new.safetensors").error <= proved.error
    assert type(again) is type(model)
    points = inputs(model)
    assert np.array_equal(model(points), again(points))
    assert np.abs(model(points)).max() > 0.0
    assert again.explain() == model.explain()


def test_a_learner_keeps_its_matrix() -> None:
    learner = hs.load(NAMES["learner"])
    assert isinstance(learner, hs.in_context.Learner)
    assert np.array_equal(learner.preconditioner, [[1.0, 0.5], [0.0, 1.0]])
