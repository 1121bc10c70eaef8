# SPDX-License-Identifier: Apache-2.0
"""Real models agree with ONNX Runtime on every target."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import intarsia

from .real_models import DIGITS, MODELS, RealModel

BY_NAME = {model.name: model for model in MODELS}
ALL_TO_DNNL = "dnnl -min-gain=0 -min-grain=0 -max-windows=100, llvm"
"""By its own defaults it leaves nearly all of these models to the fallback, which has its tests."""
TARGETS = ("llvm", ALL_TO_DNNL)


@cache
def expected_of(name: str) -> dict[str, np.ndarray]:
    """ONNX Runtime's results without graph optimization."""
    model = BY_NAME[name]
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(
        str(model.path), options, providers=["CPUExecutionProvider"]
    )
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, model.random_inputs()), strict=True))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_agrees_with_onnxruntime(tmp_path: Path, model: RealModel, target: str) -> None:
    module = intarsia.from_onnx(model.path, shapes=model.shapes or None)
    artifact = intarsia.build(module, target=target)
    # oneDNN loses special values in maxima and exponentials: the fallback has Magika's softmax, and
    # the layers that only it has: silero's LSTM.
    least = 80 if model.name == "magika" else 70 if model.name.startswith("silero") else 85
    assert artifact.placement.percent > least or target != ALL_TO_DNNL
    path = artifact.save(tmp_path / "model.intarsia")
    found = intarsia.load(path).run(model.random_inputs())
    want = expected_of(model.name)
    assert list(found) == list(want)
    for name, array in want.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_allclose(found[name], array, rtol=1e-3, atol=1e-4, err_msg=name)


@pytest.mark.parametrize("target", TARGETS)
def test_digits_are_recognized(tmp_path: Path, target: str) -> None:
    samples = np.load(DIGITS.path.parent / "samples.npz")
    path = intarsia.build(DIGITS.path, target=target).save(tmp_path / "digits.intarsia")
    executable = intarsia.load(path)
    answers = [executable.run({"image": x[None]})["probability"].argmax() for x in samples["image"]]
    assert (np.array(answers) == samples["label"]).mean() >= 30 / 32
