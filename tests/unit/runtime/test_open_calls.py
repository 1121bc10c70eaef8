# SPDX-License-Identifier: Apache-2.0
"""Python functions that native code calls with sizes of the run."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from intarsia_runtime.abi import ArgumentBlock, SafeCall, hosted_call, point_at
from intarsia_runtime.artifact.plan import TensorSpec
from intarsia_runtime.dtype import DType
from intarsia_runtime.size import variable

ROWS: Any = (variable("N"), 3)


def test_a_hosted_function_gets_arrays_of_the_runs_shapes() -> None:
    seen: list[tuple[int, ...]] = []
    failures: list[BaseException] = []

    def double(given: np.ndarray, result: np.ndarray) -> None:
        seen.append(given.shape)
        result[...] = 2 * given

    specs = tuple(TensorSpec(name, ROWS, DType.FLOAT32) for name in "xy")
    native = hosted_call(double, specs, failures.append)
    call = SafeCall(ctypes.cast(native, ctypes.c_void_p).value or 0)
    for rows in (2, 0, 5):
        given = np.arange(3 * rows, dtype=np.float32).reshape(rows, 3)
        result = np.zeros_like(given)
        closed = tuple(TensorSpec(s.name, given.shape, s.dtype) for s in specs)
        block = ArgumentBlock(closed, trailing=(rows,))
        for tensor, array in zip(block.tensors, (given, result), strict=True):
            tensor.data = array.ctypes.data
        assert call(None, block.address, block.count, block.result_address) == 0
        np.testing.assert_array_equal(result, 2 * given)
    assert seen == [(2, 3), (0, 3), (5, 3)]
    assert not failures


def test_an_argument_block_points_at_arrays_that_are_read_only_or_empty() -> None:
    arrays = [np.ones((2, 3), np.float32), np.zeros((0, 3), np.float32), np.ones((2, 3))]
    block = ArgumentBlock([TensorSpec("x", (2, 3), DType.FLOAT32)] * 3)
    for writeable in (True, False):
        arrays[2].flags.writeable = writeable
        point_at(block.tensors, arrays)
        assert [tensor.data for tensor in block.tensors] == [a.ctypes.data for a in arrays]
