# SPDX-License-Identifier: Apache-2.0
"""A whole quantized model: placed, compiled, packed, and its reference result."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import intarsia
from intarsia_runtime.errors import WorkerLost
from intarsia_testkit.qdq_models import channelled_residual_net

from .tools import needs_vela

pytestmark = needs_vela


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_a_simulated_model_against_onnx_runtime(dtype: str, tmp_path: Path) -> None:
    model = channelled_residual_net(dtype).SerializeToString()
    artifact = intarsia.build(model, "ethos-u -simulate -accelerator-config=ethos-u85-256, c")
    (region,) = artifact.placement.regions
    assert len(region.nodes) >= 0.75 * artifact.placement.nodes
    assert artifact.placement.offloaded == 0
    assert f"SIMULATED: {len(region.nodes)} nodes of 'ethos-u' by NumPy" in str(artifact.placement)
    path = tmp_path / "model.intarsia"
    artifact.save(path)
    members = zipfile.ZipFile(path).namelist()
    assert "units/ethos_u_0/command_stream.bin" in members
    assert "units/ethos_u_0/estimate.json" in members
    image = np.random.default_rng(3).normal(size=(1, 3, 16, 16)).astype(np.float32)
    # Without VNNI, its 8-bit products saturate in 16 bits by default.
    exact = onnxruntime.SessionOptions()
    if dtype == "uint8":
        exact.add_session_config_entry("session.x64quantprecision", "1")
    (right,) = onnxruntime.InferenceSession(model, exact).run(None, {"image": image})
    found = np.asarray(intarsia.load(path).run({"image": image})["scores"])
    quantum = 0.04
    assert np.abs(found - right).max() <= 2 * quantum + 1e-6
    assert np.abs(right).max() > 20 * quantum


def test_what_is_compiled_for_the_device_is_not_run_here(tmp_path: Path) -> None:
    model = channelled_residual_net("int8").SerializeToString()
    artifact = intarsia.build(model, "ethos-u, c", require_offload=75)
    with pytest.raises(WorkerLost, match="region 'ethos_u_0' is compiled for an Ethos-U"):
        artifact.load()
