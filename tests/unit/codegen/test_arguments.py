# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import numpy as np
import pytest

from intarsia_loops.codegen.arguments import FAULTS, dlpack_code, faults_of
from intarsia_runtime.artifact.plan import TensorSpec
from intarsia_runtime.dtype import DType


def test_faults_name_the_argument_and_what_it_must_be() -> None:
    said = faults_of("input 'x'", TensorSpec("x", (3,), DType.INT8))
    assert len(said) == len(FAULTS)
    assert all(text.startswith("input 'x' ") for text in said)
    assert said[2].endswith("it must be int8")
    assert said[3].endswith("it must be (3,)")
    assert faults_of("y", TensorSpec("y", (), DType.BOOL))[3].endswith("it must be ()")


@pytest.mark.parametrize("dtype", [d for d in DType if d is not DType.BFLOAT16], ids=str)
def test_codes_are_those_of_dlpack(dtype: DType) -> None:
    """As NumPy exports them: a capsule begins with address, device, rank, and then the type."""
    ctypes = pytest.importorskip("ctypes")
    capsule = np.zeros(1, dtype.value).__dlpack__()
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    start = pointer(capsule, b"dltensor")
    code, bits = (ctypes.c_uint8 * 2).from_address(start + 20)
    assert (code, bits) == (dlpack_code(dtype), dtype.bits)
