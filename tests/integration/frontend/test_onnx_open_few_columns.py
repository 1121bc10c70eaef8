# SPDX-License-Identifier: Apache-2.0
"""Products of open sizes with fewer columns than a vector."""

from __future__ import annotations

import numpy as np
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


@pytest.mark.parametrize("target", ["llvm", "c", "dnnl, llvm"])
@pytest.mark.parametrize(("op", "attrs"), [("MatMul", {}), ("Gemm", {"transB": 1})])
def test_a_weight_says_how_long_rows_of_computed_sizes_are(
    op: str, attrs: dict[str, int], target: str
) -> None:
    """A classifier of one image whose height and width are open: the weight has 48 rows."""
    rng = np.random.default_rng(3)
    weight = rng.standard_normal((48, 10)).astype(np.float32)
    stored = {"w": weight.T.copy() if attrs else weight}
    nodes = [node("Relu", "x", "r"), node("Flatten", "r", "f"), node(op, "f w", "y", **attrs)]
    proto = model(nodes, {"x": (1, 3, "H", "W")}, weights=stored)
    with intarsia.build(proto, target).load(threads=1) as executable:
        for height, width in ((4, 4), (1, 16), (8, 2)):
            x = rng.standard_normal((1, 3, height, width)).astype(np.float32)
            wanted = np.maximum(x, 0).reshape(1, -1).astype(float) @ weight
            np.testing.assert_allclose(executable.run({"x": x})["y"], wanted, rtol=1e-4, atol=1e-4)
        with pytest.raises(ModelError, match="sizes that are multiplied must be equal"):
            executable.run({"x": np.zeros((1, 3, 4, 5), np.float32)})
