# SPDX-License-Identifier: Apache-2.0
"""Calls of regions from plans of open sizes: shapes and sizes of the run, and tables by them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from intarsia_ir.tir.module import TensorModule
from intarsia_llvm.codegen import tir_codegen
from intarsia_runtime.abi import AnyValue, ArgumentBlock, DLTensor, SafeCall
from intarsia_runtime.artifact.plan import (
    Argument,
    ArgumentSource,
    CallPlan,
    OpenSizes,
    RegionStep,
    SizeSource,
    TensorSpec,
)
from intarsia_runtime.dtype import DType
from intarsia_runtime.size import variable

N, M = variable("N"), variable("M")
SHAPE: Any = (N, M + 1)
TURNED: Any = (M, 2 * N)
F32 = DType.FLOAT32

AddTable = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64)


class Tables(ctypes.Structure):
    """``struct open_tables`` of ``intarsia_runtime.loading``."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("tensors", "sizes", "count")),
        *((name, ctypes.c_void_p) for name in ("keys", "tables", "used")),
        ("clock", ctypes.c_int64),
        ("add", ctypes.c_void_p),
        ("last", ctypes.c_int64),
    )


class Table(ctypes.Structure):
    """``struct table``."""

    _fields_ = tuple((name, ctypes.c_int64) for name in ("b", "bs", "n", "s", "failed", "status"))


def plan() -> CallPlan:
    arguments = (
        Argument(ArgumentSource.INPUT, 0, SHAPE, F32),
        Argument(ArgumentSource.WORKSPACE, 0, (4,), F32),
        Argument(ArgumentSource.OUTPUT, 0, TURNED, F32),
    )
    return CallPlan(
        (TensorSpec("x", SHAPE, F32), TensorSpec("n", (M,), F32)),
        (TensorSpec("y", TURNED, F32),),
        (),
        ("r",),
        0,
        (RegionStep(0, arguments, sizes=("M", "N")),),
        OpenSizes((SizeSource("N", 0, 0), SizeSource("M", 1, 0)), (), (16,)),
    )


@pytest.fixture
def library(tmp_path: Path, make_target: Callable[[], Any]) -> ctypes.CDLL:
    unit = tir_codegen(TensorModule((), plan()), make_target())
    (tmp_path / "lib.so").write_bytes(unit.files["lib.so"])
    return ctypes.CDLL(str(tmp_path / "lib.so"))


def address(function: object) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0  # type: ignore[arg-type]


def test_a_region_gets_the_shapes_and_sizes_of_the_run(library: ctypes.CDLL) -> None:
    seen: list[tuple[Any, ...]] = []

    def region(handle: int, args: int, count: int, _result: int) -> int:
        values = (AnyValue * count).from_address(args)
        tensors = [DLTensor.from_address(value.value) for value in values[:3]]
        shapes = [tuple(tensor.shape[: tensor.ndim]) for tensor in tensors]
        seen.append((shapes, [(v.type_index, v.value) for v in values[3:]], handle))
        return 0

    callback = SafeCall(region)
    frame = (ctypes.c_int64 * 8)(3, 5)
    context = (ctypes.c_void_p * 4)(4096, address(callback), 7, ctypes.addressof(frame))
    assert library.intarsia_plan_sizes(frame) == 0
    specs = (
        TensorSpec("x", (3, 6), F32),
        TensorSpec("n", (5,), F32),
        TensorSpec("y", (5, 6), F32),
    )
    block = ArgumentBlock(specs, ctypes.addressof(context))
    for tensor in block.tensors:
        tensor.data = 8192
    main = SafeCall(address(library["__tvm_ffi_main"]))
    assert main(None, block.address, block.count, block.result_address) == 0
    assert seen == [([(3, 6), (4,), (5, 6)], [(1, 5), (1, 3)], 7)]


def test_tables_are_chosen_by_sizes(library: ctypes.CDLL) -> None:
    ran: list[int] = []
    asked: list[list[int]] = []

    def note(number: int, _b: int, _c: int, _d: int) -> int:
        ran.append(number or 0)
        return 0

    step = ctypes.CFUNCTYPE(
        ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p
    )(note)
    steps = [(ctypes.c_int64 * 5)(address(step), 100 + n, 0, 0, 0) for n in range(3)]
    rows = [Table(0, 0, 1, ctypes.addressof(one), -1, 0) for one in steps]
    keys = (ctypes.c_int64 * 6)()
    pointers = (ctypes.c_void_p * 3)(*(ctypes.addressof(row) for row in rows))
    used = (ctypes.c_int64 * 3)()

    def add(args: int, count: int) -> int:
        values = (AnyValue * count).from_address(args)
        sizes = [value.value for value in values[1:]]
        asked.append(sizes)
        if len(asked) > 3:
            return -1
        number = tables.count
        keys[2 * number : 2 * number + 2] = sizes
        tables.count = number + 1
        return number

    callback = AddTable(add)
    places = [ctypes.addressof(array) for array in (keys, pointers, used)]
    tables = Tables(1, 2, 0, *places, 0, address(callback), 0)

    def run(*sizes: int, tensors: int = 1) -> int:
        args = (AnyValue * (tensors + len(sizes)))()
        for slot, size in zip(args[tensors:], sizes, strict=True):
            slot.type_index, slot.value = 1, size
        for number, size in enumerate(sizes, start=tensors):
            args[number].type_index, args[number].value = 1, size
        count = tensors + len(sizes)
        return int(library.intarsia_run_open_steps(ctypes.byref(tables), args, count, None))

    for sizes in ((3, 4), (3, 4), (4, 3), (3, 4), (9, 9), (4, 3)):
        assert run(*sizes) == 0
    assert ran == [100, 100, 101, 100, 102, 101]
    assert asked == [[3, 4], [4, 3], [9, 9]]
    assert (list(used), tables.clock, tables.last) == ([4, 6, 5], 6, 1)
    assert run(1, 1) == -1  # nobody adds a table
    assert run(3) == -1  # one size is missing
    assert run(3, 4) == 0
