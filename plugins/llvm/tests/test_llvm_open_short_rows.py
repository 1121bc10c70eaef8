# SPDX-License-Identifier: Apache-2.0
"""Versions for rows of open sizes that fill no vector: right, and nothing for LLVM to vectorize."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

import intarsia
from intarsia_ir.graph.expr import Expr, Function, Var, constant
from intarsia_ir.graph.module import IRModule
from intarsia_ir.graph.types import TensorType, variable
from intarsia_ir.ops.evaluate import evaluate
from intarsia_llvm import codegen, compile_pool
from intarsia_llvm.machine import CodegenMachine
from intarsia_llvm.optimize import SCHEDULED
from intarsia_runtime.dtype import DType
from intarsia_testkit.expressions import apply

B, M, N = variable("B"), variable("M"), variable("N")
ROWS = ((1, 1), (2, 3), (3, 15), (14, 14), (16, 7), (33, 5), (29, 13), (5, 31), (17, 17))


def attention(batch: int, rows: int, columns: int) -> tuple[IRModule, dict[str, np.ndarray]]:
    """Scores of queries and keys, and their softmax."""
    queries = Var("queries", TensorType((B, M, 32), DType.FLOAT32))
    keys = Var("keys", TensorType((B, 32, N), DType.FLOAT32))
    scores = apply("nn.softmax", apply("matmul", queries, keys), axis=2)
    rng = np.random.default_rng(rows)
    given = {
        "queries": rng.standard_normal((batch, rows, 32)).astype(np.float32),
        "keys": rng.standard_normal((batch, 32, columns)).astype(np.float32),
    }
    return IRModule.from_function(Function((queries, keys), scores)), given


def sound(batch: int, length: int) -> tuple[IRModule, dict[str, np.ndarray]]:
    """A convolution with one output, as the last one of a vocoder."""
    data = Var("data", TensorType((B, 16, N), DType.FLOAT32))
    rng = np.random.default_rng(7)
    taps = constant(rng.standard_normal((1, 16, 7)).astype(np.float32))
    attrs = {"strides": (1,), "padding": ((3, 3),), "dilation": (1,), "groups": 1}
    value: Expr = apply("tanh", apply("nn.conv", data, taps, **attrs))
    given = {"data": rng.standard_normal((batch, 16, length)).astype(np.float32)}
    return IRModule.from_function(Function((data,), value)), given


@pytest.fixture
def texts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What LLVM compiles."""
    found: list[str] = []

    def compile_objects(
        parts: Iterable[str], machine: CodegenMachine, level: int, *, expected: int = 1
    ) -> tuple[bytes, ...]:
        found.extend(parts)
        return compile_pool.compile_objects(found, machine, level, expected=expected)

    monkeypatch.setattr(codegen, "compile_objects", compile_objects)
    return found


def test_products_of_few_columns_and_their_softmax(tmp_path: Path, texts: list[str]) -> None:
    model, _ = attention(1, 1, 1)
    intarsia.build(model, "llvm").save(tmp_path / "net.intarsia")
    assert texts
    assert all(SCHEDULED in text for text in texts)
    with intarsia.load(tmp_path / "net.intarsia", threads=1) as executable:
        for rows, columns in ROWS:
            _, given = attention(2, rows, columns)
            (wanted,) = evaluate(model.main, given, model)
            (found,) = executable.run(given).values()
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-6)


def test_rows_of_one_output_that_are_shorter_than_a_tile(tmp_path: Path, texts: list[str]) -> None:
    model, _ = sound(1, 1)
    intarsia.build(model, "llvm").save(tmp_path / "net.intarsia")
    assert texts
    assert all(SCHEDULED in text for text in texts)
    with intarsia.load(tmp_path / "net.intarsia", threads=1) as executable:
        for length in (1, 2, 7, 8, 15, 16, 17, 31, 47, 48, 63, 65, 111, 113):
            _, given = sound(2, length)
            (wanted,) = evaluate(model.main, given, model)
            (found,) = executable.run(given).values()
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
