# SPDX-License-Identifier: Apache-2.0
"""A whole quantised model: placed, compiled, packed, and its reference result."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from intarsia_testkit.qdq_models import channelled_residual_net

import intarsia

from .tools import needs_vela

pytestmark = needs_vela


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_a_quantised_model_against_onnx_runtime(dtype: str, tmp_path: Path) -> None:
    model = channelled_residual_net(dtype).SerializeToString()
    artifact = intarsia.build(
        model, "ethos-u -accelerator-config=ethos-u85-256, c", require_offload=75
    )
    path = tmp_path / "model.intarsia"
    artifact.save(path)
    members = zipfile.ZipFile(path).namelist()
    assert "units/ethos_u_0/command_stream.bin" in members
    assert "units/ethos_u_0/estimate.json" in members
    image = np.random.default_rng(3).normal(size=(1, 3, 16, 16)).astype(np.float32)
    (right,) = onnxruntime.InferenceSession(model).run(None, {"image": image})
    found = np.asarray(intarsia.load(path).run({"image": image})["scores"])
    quantum = 0.04
    assert np.abs(found - right).max() <= 2 * quantum + 1e-6
    assert np.abs(right).max() > 20 * quantum
