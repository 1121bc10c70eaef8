# SPDX-License-Identifier: Apache-2.0
"""The text of kernels and the program beside it: no device is asked."""

from __future__ import annotations

import json

import numpy as np
import pytest

import intarsia
from intarsia_ir.tir.buffer import Buffer
from intarsia_ir.tir.expr import IntImm, Load, TirVar
from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.tir.stmt import For, ForKind, Store
from intarsia_opencl.source import print_source
from intarsia_opencl.target import OpenclOptions
from intarsia_runtime.artifact.archive import open_artifact
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import UnsupportedError

from .running import lowered
from .test_opencl_models import DIGITS


def increment(extent, dtype=DType.FLOAT32):
    source, target, i = (
        Buffer("half", (extent,), dtype),
        Buffer("out", (extent,), dtype),
        TirVar("i"),
    )
    body = Store(target, (i,), Load(source, (i,), dtype, 1) + 1.0)
    return PrimFunc("f", (source, target), 1, For(i, IntImm(extent), ForKind.PARALLEL, body))


def text_of(function, **options):
    return print_source([function], OpenclOptions(**options)).text


def test_a_kernel_is_opencl_c():
    text = text_of(increment(100))
    head = "__kernel __attribute__((reqd_work_group_size(128, 1, 1))) void kernel_f_k0("
    assert text.partition(head)[2] == (
        f"__global const float *restrict half_1,\n{' ' * len(head)}"
        "__global float *restrict out)\n"
        "{\n"
        "    const int block = (int)get_group_id(0);\n"
        "    const int thread = (int)get_local_id(0);\n"
        "    if (((block * 128) + thread) < 100) {\n"
        "        out[(block * 128) + thread] = half_1[(block * 128) + thread] + 1.0f;\n"
        "    }\n"
        "}\n"
    )


def test_positions_take_64_bits_where_32_are_too_few():
    assert "const long block" in text_of(increment(1 << 31))


def test_the_extension_of_float64_is_asked_for_where_kernels_need_it():
    assert "cl_khr_fp64" in text_of(increment(100, DType.FLOAT64))
    assert "cl_khr_fp64" not in text_of(increment(100))


def test_a_device_without_float64():
    with pytest.raises(UnsupportedError, match=r"-fp64=false has not: kernel_f_k0\n  hint"):
        text_of(increment(100, DType.FLOAT64), fp64=False)


def test_the_kernel_in_float64_is_named_alone(make_target):
    target = make_target(fp64=False)
    wide = lowered(target, "exp", [np.zeros(9)], {}).module.functions[0]
    with pytest.raises(UnsupportedError, match=r"has not: kernel_exp_0_k0\n"):
        print_source([increment(100), wide], target.options)


def test_without_fmad_products_and_sums_stay_apart():
    assert "\n#pragma OPENCL FP_CONTRACT OFF\n" in text_of(increment(9), fmad=False)
    assert "FP_CONTRACT" not in text_of(increment(9))


def test_float16_needs_no_extension():
    text = text_of(increment(100, DType.FLOAT16))
    assert "vload_half(0, " in text
    assert "vstore_half_rte(" in text
    assert "cl_khr_fp16" not in text


def test_an_artifact_is_text_and_the_same_byte_for_byte(tmp_path):
    target = "opencl -device-type=gpu -max-work-group-size=128"
    files = [
        intarsia.build(DIGITS / "digits.onnx", target=target).save(tmp_path / name)
        for name in ("a.intarsia", "b.intarsia")
    ]
    assert files[0].read_bytes() == files[1].read_bytes()
    unit = open_artifact(files[0]).unit_files("main")
    assert set(unit) == {"kernels.cl", "program.json"}
    program = json.loads(bytes(unit["program.json"]))
    assert program["device_type"] == "gpu"
    assert program["group_items"] == 128
    assert 0 < program["local_bytes"] <= 32768
    assert not program["fp64"]
