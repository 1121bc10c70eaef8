# SPDX-License-Identifier: Apache-2.0
"""Products of open sizes with fewer columns than a vector."""

from __future__ import annotations

import numpy as np
import pytest
from tests.unit.frontend.onnx_models import model, node

import intarsia

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
