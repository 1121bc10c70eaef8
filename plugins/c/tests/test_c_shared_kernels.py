# SPDX-License-Identifier: Apache-2.0
"""Layers of open sizes that differ in these alone are one function; those of fixed ones are not."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import intarsia
from intarsia_ir.graph.expr import Expr, Function, Var
from intarsia_ir.graph.module import IRModule
from intarsia_ir.graph.types import TensorType, variable
from intarsia_ir.ops.evaluate import evaluate
from intarsia_runtime.artifact.archive import open_artifact
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import ToolchainError
from intarsia_runtime.size import Size
from intarsia_testkit.expressions import apply, weight

from .calling import STRICT

C = f"c -cflags={','.join(STRICT)}"
POOL = {"kernel": (2, 2), "strides": (2, 2), "padding": ((0, 1), (0, 1)), "dilation": (1, 1)}
SAME = {"strides": (1, 1), "padding": ((1, 1), (1, 1)), "dilation": (1, 1), "groups": 1}
CALL = re.compile(r"^\{\n    (?:\(void\).*\n    )*kernel_(\w+_any)\(", re.MULTILINE)


def pyramid(*sizes: Size) -> IRModule:
    """Three equal layers, each on pictures of half the size of the one before."""
    data = Var("data", TensorType((sizes[0], 8, *sizes[1:]), DType.FLOAT32))
    value: Expr = data
    for _ in range(3):
        value = apply("nn.relu", apply("nn.conv", value, weight(8, 8, 3, 3), **SAME))
        value = apply("nn.max_pool", value, **POOL)
    return IRModule.from_function(Function((data,), value))


def source_of(path: Path) -> str:
    return open_artifact(path).unit_files("main")["model.c"].decode()


def test_equal_layers_of_open_sizes_are_one_function(tmp_path: Path) -> None:
    model = pyramid(*map(variable, "BHW"))
    intarsia.build(model, C).save(tmp_path / "net.intarsia")
    with intarsia.load(tmp_path / "net.intarsia", threads=1) as executable:
        for size in ((1, 16, 16), (2, 9, 31), (1, 1, 1)):
            rng = np.random.default_rng(sum(size))
            data = rng.standard_normal((size[0], 8, *size[1:])).astype(np.float32)
            (wanted,) = evaluate(model.main, {"data": data}, model)
            (found,) = executable.run({"data": data}).values()
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
    called = Counter(CALL.findall(source_of(tmp_path / "net.intarsia")))
    assert {called["cpu_conv_nn_relu_0_any"], called["cpu_max_pool_0_any"]} == {3}


def test_layers_of_fixed_sizes_are_functions_of_their_own(tmp_path: Path) -> None:
    intarsia.build(pyramid(1, 16, 16), C).save(tmp_path / "net.intarsia")
    assert CALL.findall(source_of(tmp_path / "net.intarsia")) == []


def test_parts_of_a_long_source_are_compiled_side_by_side(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = unit_of(tmp_path / "whole.intarsia")
    monkeypatch.setattr("intarsia_c.codegen.PART_LENGTH", 1)
    parts = unit_of(tmp_path / "parts.intarsia")
    again = unit_of(tmp_path / "again.intarsia")
    assert parts == again
    assert {**parts, "lib.so": b""} == {**whole, "lib.so": b""}
    data = np.random.default_rng(0).standard_normal((1, 8, 16, 16)).astype(np.float32)
    found: list[bytes] = []
    for name in ("whole", "parts"):
        with intarsia.load(tmp_path / f"{name}.intarsia", threads=1) as executable:
            found += [executable.run({"data": data}).popitem()[1].tobytes()]
    assert found[0] == found[1]


def unit_of(path: Path) -> dict[str, bytes]:
    intarsia.build(pyramid(1, 16, 16), C).save(path)
    return {name: bytes(text) for name, text in open_artifact(path).unit_files("main").items()}


def test_what_the_compiler_says_of_a_part_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("intarsia_c.codegen.PART_LENGTH", 1)
    monkeypatch.setattr("intarsia_c.codegen.SHARED_KERNEL", "#error lost\n")
    with pytest.raises(ToolchainError, match=r"(?s)'cc' failed.*kernels_1\.c.*lost"):
        intarsia.build(pyramid(1, 16, 16), C)
