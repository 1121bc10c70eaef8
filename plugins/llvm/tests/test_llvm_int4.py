# SPDX-License-Identifier: Apache-2.0
"""MatMulNBits with 4 bits over open rows, from ONNX to machine code, against ONNX Runtime.

With accuracy level 4 both quantize rows in the same way and add the same integers up: what is left
is the order of the sums of blocks in float32. A product that fits no half of a level is rounded
alike, so that results differ no more than those of floats.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

import intarsia
from intarsia_runtime.load import load

FLOAT = onnx.TensorProto.FLOAT


def saved(path: Path, depth: int, columns: int, block: int, *, zeros: bool, level: int) -> Path:
    """A product of ``x`` ``[B, T, depth]``."""
    rng = np.random.default_rng(depth)
    blocks = -(-depth // block)
    weights = [
        rng.integers(0, 256, (columns, blocks, block // 2)).astype(np.uint8),
        rng.random(columns * blocks).astype(np.float32) / 8,
        rng.integers(0, 256, columns * -(-blocks // 2)).astype(np.uint8),
    ][: 3 if zeros else 2]
    attrs = {"K": depth, "N": columns, "bits": 4, "block_size": block, "accuracy_level": level}
    names = ["w", "s", "z"][: len(weights)]
    node = helper.make_node("MatMulNBits", ["x", *names], ["y"], domain="com.microsoft", **attrs)
    graph = helper.make_graph(
        [node],
        "product",
        [helper.make_tensor_value_info("x", FLOAT, ["B", "T", depth])],
        [helper.make_tensor_value_info("y", FLOAT, None)],
        [numpy_helper.from_array(w, name) for w, name in zip(weights, names, strict=True)],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return path


@pytest.mark.parametrize(
    ("depth", "columns", "block", "zeros"),
    [
        (64, 128, 32, False),
        (96, 64, 16, True),
        (64, 72, 32, True),
        (80, 40, 32, True),
        (128, 64, 128, True),
        (3072, 64, 32, True),
    ],
)
@pytest.mark.parametrize("target", ["llvm", "llvm -mcpu=x86-64-v3", "llvm -mcpu=x86-64", "c"])
@pytest.mark.parametrize("level", [0, 4])
def test_any_number_of_rows(
    tmp_path: Path, depth: int, columns: int, block: int, zeros: bool, target: str, level: int
) -> None:
    model = saved(tmp_path / "product.onnx", depth, columns, block, zeros=zeros, level=level)
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    intarsia.build(model, target).save(tmp_path / "product.intarsia")
    with load(tmp_path / "product.intarsia") as executable:
        few = [(1, 1), (1, 2), (1, 3), (5, 1), (2, 3), (1, 7), (3, 5), (1, 0), (1, 19)]
        for batch, rows in (*few, (1, 20), (3, 7), (1, 29), (2, 21)):
            x = np.random.default_rng(rows).standard_normal((batch, rows, depth))
            given = {"x": x.astype(np.float32)}
            (got,) = executable.run(given).values()
            (want,) = session.run(None, given)
            atol = 1e-3 if depth < 1024 else 1e-2
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=atol)
