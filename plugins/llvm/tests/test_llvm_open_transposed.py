# SPDX-License-Identifier: Apache-2.0
"""Products with a transposed matrix whose K is open: panels in the workspace, or dot products."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import intarsia
from intarsia_ir.graph.expr import Function, Var, constant
from intarsia_ir.graph.module import IRModule
from intarsia_ir.graph.types import TensorType, variable
from intarsia_runtime.dtype import DType
from intarsia_testkit.expressions import apply

FLAGS = Path("/proc/cpuinfo").read_text()
CPUS = [
    pytest.param(
        cpu, marks=pytest.mark.skipif(flag not in FLAGS, reason=f"this processor has no {flag}")
    )
    for cpu, flag in (("native", "sse2"), ("haswell", "avx2"), ("x86-64", "sse2"))
]
DEPTHS = (0, 1, 3, 4, 7, 8, 15, 16, 17, 63, 64, 65, 130, 300)


def check(
    cpu: str, shapes: tuple[tuple[str | int, ...], ...], sizes: list[dict[str, int]], dtype: DType
) -> None:
    """Compare one artifact with NumPy at all sizes."""
    names = {name for shape in shapes for name in shape if isinstance(name, str)}
    known = {name: variable(name) for name in names}
    a, b = (
        Var(name, TensorType(tuple(known.get(size, size) for size in shape), dtype))
        for name, shape in zip("ab", shapes, strict=True)
    )
    product = apply("matmul", a, b, transpose_b=True)
    body = apply("multiply", product, constant(np.asarray(0.5, dtype.value)))
    module = IRModule.from_function(Function((a, b), body))
    with intarsia.build(module, f"llvm -mcpu={cpu}").load(threads=2) as executable:
        for numbers in sizes:
            rng = np.random.default_rng(sum(numbers.values()))
            given = [
                rng.standard_normal([numbers.get(size, size) for size in shape]).astype(dtype.value)
                for shape in shapes
            ]
            (got,) = executable.run(given).values()
            want = given[0].astype(np.float64) @ given[1].swapaxes(-1, -2) / 2
            close = 1e-11 if dtype is DType.FLOAT64 else 2e-5
            np.testing.assert_allclose(got, want, rtol=close, atol=20 * close, err_msg=f"{numbers}")


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("dtype", [DType.FLOAT32, DType.FLOAT64])
def test_sizes_that_are_all_open(cpu: str, dtype: DType) -> None:
    sizes = [
        {"M": m, "N": n, "K": k}
        for m, n in ((1, 1), (1, 70), (3, 33), (4, 31), (5, 32), (7, 500), (40, 40), (65, 9))
        for k in DEPTHS
    ]
    check(cpu, (("M", "K"), ("N", "K")), sizes, dtype)


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize(("rows", "columns"), [("M", 48), (2, 70), (9, "N"), (20, 33)])
def test_a_batch_whose_rows_or_columns_are_known(
    cpu: str, rows: str | int, columns: str | int
) -> None:
    sizes = [{"B": 3, "M": m, "N": n, "K": k} for m, n in ((1, 5), (6, 37)) for k in DEPTHS]
    check(cpu, (("B", rows, "K"), ("B", columns, "K")), sizes, DType.FLOAT32)
