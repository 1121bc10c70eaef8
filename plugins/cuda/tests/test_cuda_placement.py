# SPDX-License-Identifier: Apache-2.0
"""Nodes that the user sends from the device to the backend that drives it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import intarsia

DIGITS = Path(__file__).resolve().parents[3] / "tests" / "e2e" / "models" / "digits"


def test_a_node_moves_to_the_host_of_the_device() -> None:
    pytest.importorskip("intarsia_llvm", reason="it compiles what runs on the host")
    image = np.load(DIGITS / "samples.npz")["image"][:1]
    target = "cuda -emulate, llvm"
    moved = intarsia.build(DIGITS / "digits.onnx", target, place={"node_softmax*": "llvm"})
    assert [row.nodes for row in moved.placement.regions] == [("node_softmax",)]
    alone = intarsia.build(DIGITS / "digits.onnx", target)
    assert not alone.placement.regions
    results = []
    for built in (moved, alone):
        with built.load() as model:
            results.append([model.run({"image": image})["probability"] for _ in range(2)])
    np.testing.assert_array_equal(*results[0])
    np.testing.assert_allclose(results[0][0], results[1][0], rtol=1e-4, atol=1e-6)
