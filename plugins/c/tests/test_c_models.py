# SPDX-License-Identifier: Apache-2.0
"""Whole models, from the file to numbers, against ONNX Runtime."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

import intarsia

from .calling import STRICT, exact_session
from .made_models import quantized, saved, separable

DIGITS = Path(__file__).resolve().parents[3] / "tests" / "e2e" / "models" / "digits"
C = f"c -opt-level=2 -cflags={','.join(STRICT)}"


@pytest.mark.parametrize("make", [separable, quantized])
def test_agrees_with_onnxruntime(tmp_path, make):
    path, x = saved(tmp_path, make)
    session = exact_session(str(path))
    (want,) = session.run(None, {"x": x})
    artifact = intarsia.build(path, target=C).save(tmp_path / "model.intarsia")
    got = intarsia.load(artifact).run({"x": x})["y"]
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("accelerator", ["", "dnnl"])
def test_digits_are_recognized(tmp_path, accelerator):
    if accelerator and importlib.util.find_spec(f"intarsia_{accelerator}") is None:
        pytest.skip(f"intarsia-{accelerator} is not installed, so nothing can stand in front of C")
    target = f"{accelerator}, {C}" if accelerator else C
    samples = np.load(DIGITS / "samples.npz")
    artifact = intarsia.build(DIGITS / "digits.onnx", target=target).save(tmp_path / "d.intarsia")
    model = intarsia.load(artifact)
    answers = [model.run({"image": x[None]})["probability"].argmax() for x in samples["image"]]
    assert (np.array(answers) == samples["label"]).mean() >= 30 / 32
