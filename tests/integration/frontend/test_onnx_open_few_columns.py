# SPDX-License-Identifier: Apache-2.0
"""Products of open sizes with fewer columns than a vector."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from tests.unit.frontend.onnx_models import model, node

import intarsia
from intarsia_runtime.errors import ModelError

FORMS = {
    "matrices": ("MatMul", ("M", "K"), ("K", "N"), {}),
    "batches": ("MatMul", ("B", "M", "K"), ("B", "K", "N"), {}),
    "one for all": ("MatMul", (2, "M", "K"), ("K", "N"), {}),
    "transposed": ("Gemm", ("K", "M"), ("K", "N"), {"transA": 1}),
}


@pytest.mark.parametrize("target", ["llvm", "llvm -mcpu=haswell", "c"])
@pytest.mark.parametrize("form", FORMS)
def test_products_of_few_columns(form: str, target: str) -> None:
    """Rows around 64 and K around 256 are the borders of the parts that are computed at a time."""
    op, a, b, attrs = FORMS[form]
    proto = model([node(op, "a b", "s", **attrs), node("Relu", "s")], {"a": a, "b": b})
    rng = np.random.default_rng(7)
    with intarsia.build(proto, target).load(threads=1) as executable:
        for m, k, n in [
            (1, 1, 1), (3, 0, 2), (64, 256, 15), (65, 257, 7), (5, 600, 12), (130, 255, 3),
            (0, 5, 4), (9, 513, 1), (70, 40, 17),
        ]:  # fmt: skip
            sizes = {"M": m, "K": k, "N": n, "B": 2}
            x, y = (
                rng.standard_normal([sizes.get(size, size) for size in shape]).astype(np.float32)
                for shape in (a, b)
            )
            wanted = (x.T if "transA" in attrs else x).astype(float) @ y
            found = executable.run({"a": x, "b": y})["y"]
            np.testing.assert_allclose(found, np.maximum(wanted, 0), rtol=1e-4, atol=1e-4)


CLASSIFIERS = {
    "MatMul": {},
    "Gemm": {"transB": 1},
    "FusedMatMul": {"domain": "com.microsoft"},
    "Einsum": {"equation": "ab,bc->ac"},
}


@pytest.mark.parametrize("target", ["llvm", "c", "dnnl, llvm"])
@pytest.mark.parametrize("op", CLASSIFIERS)
def test_a_weight_says_how_long_rows_of_computed_sizes_are(op: str, target: str) -> None:
    """A classifier of one image whose height and width are open: the weight has 48 rows."""
    rng = np.random.default_rng(3)
    weight = rng.standard_normal((48, 10)).astype(np.float32)
    stored = {"w": weight.T.copy() if op == "Gemm" else weight}
    last = node(op, "f w", "y", **CLASSIFIERS[op])
    nodes = [node("Relu", "x", "r"), node("Flatten", "r", "f"), last]
    proto = model(nodes, {"x": (1, 3, "H", "W")}, weights=stored)
    with intarsia.build(proto, target).load(threads=1) as executable:
        for height, width in ((4, 4), (1, 16), (8, 2)):
            x = rng.standard_normal((1, 3, height, width)).astype(np.float32)
            wanted = np.maximum(x, 0).reshape(1, -1).astype(float) @ weight
            np.testing.assert_allclose(executable.run({"x": x})["y"], wanted, rtol=1e-4, atol=1e-4)
        with pytest.raises(ModelError, match="is 60, not 48"):
            executable.run({"x": np.zeros((1, 3, 4, 5), np.float32)})


@pytest.mark.parametrize("target", ["llvm", "c"])
def test_a_layer_reads_columns_of_an_image_of_open_height(target: str) -> None:
    """Text recognition: columns of 3 channels and H rows are the steps, and the weight has 12."""
    rng = np.random.default_rng(3)
    stored = {
        "w": rng.standard_normal((1, 32, 12)).astype(np.float32),
        "r": rng.standard_normal((1, 32, 8)).astype(np.float32),
        "shape": np.array([0, 1, -1], np.int64),
    }
    nodes = [
        node("Transpose", "x", "t", perm=[3, 0, 1, 2]),
        node("Reshape", "t shape", "s"),
        node("LSTM", "s w r", "y", hidden_size=8),
    ]
    proto = model(nodes, {"x": (1, 3, "H", "W")}, weights=stored)
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    with intarsia.build(proto, target).load(threads=1) as executable:
        for width in (1, 5, 18):
            given = {"x": rng.standard_normal((1, 3, 4, width)).astype(np.float32)}
            (wanted,) = session.run(None, given)
            np.testing.assert_allclose(executable.run(given)["y"], wanted, rtol=1e-4, atol=1e-4)
