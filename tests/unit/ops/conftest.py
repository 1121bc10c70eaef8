# SPDX-License-Identifier: Apache-2.0
"""One check for every operator: type rule, reference and compute rule agree."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from intarsia_ir.graph.types import TensorType, TupleType
from intarsia_ir.ops import OPERATORS
from intarsia_ir.ops.arrays import numpy_dtype
from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.tir.interp import evaluate
from intarsia_ir.tir.interp import run as run_kernel
from intarsia_ir.tir.tensor import placeholder
from intarsia_ir.tir.verify import verify_func
from intarsia_runtime.dtype import DType

WRONG_BEFORE_1_23 = frozenset({"Gather", "OneHot", "ScatterElements", "ScatterND"})
"""Operators whose reference evaluator mistakes operands that the specification allows."""

TOLERANCE = {"float16": 2e-3, "bfloat16": 2e-2, "float32": 2e-5, "float64": 1e-10}


def type_of(array: np.ndarray) -> TensorType:
    return TensorType(array.shape, DType(array.dtype.name))


def assert_same(actual: np.ndarray, wanted: np.ndarray, *, what: str) -> None:
    assert actual.shape == wanted.shape, what
    assert actual.dtype == wanted.dtype, what
    tolerance = TOLERANCE.get(wanted.dtype.name)
    if tolerance is None:
        np.testing.assert_array_equal(actual, wanted, err_msg=what)
        return
    wide = np.float64
    np.testing.assert_allclose(
        actual.astype(wide), wanted.astype(wide), rtol=tolerance, atol=tolerance, err_msg=what
    )


def _run(name: str, inputs: tuple[np.ndarray, ...], attrs: dict[str, Any]) -> list[np.ndarray]:
    op = OPERATORS[name]
    values = op.Attrs(**attrs)
    result = op.type_rule(values, *(type_of(x) for x in inputs))
    types = result.fields if isinstance(result, TupleType) else (result,)
    found = op.reference(values, *inputs)
    references = list(found) if isinstance(found, tuple) else [found]
    assert [type_of(r) for r in references] == list(types), "reference and type rule"
    if op.loops is not None:
        _check_loops(name, op.loops(values, *(type_of(x) for x in inputs)), inputs, references)
        return references
    assert op.compute is not None
    feeds = {placeholder(f"x{n}", x.shape, DType(x.dtype.name)): x for n, x in enumerate(inputs)}
    tensors = op.compute(values, *feeds)
    tensors = tensors if isinstance(tensors, tuple) else (tensors,)
    for tensor, reference in zip(tensors, references, strict=True):
        assert TensorType(tensor.shape, tensor.dtype) == type_of(reference)
        assert_same(evaluate(tensor, feeds), reference, what=f"compute of {name}")
    return references


def _check_loops(
    name: str,
    kernel: PrimFunc,
    inputs: tuple[np.ndarray, ...],
    references: list[np.ndarray],
) -> None:
    verify_func(kernel)
    made = [np.zeros(b.shape, numpy_dtype(b.dtype)) for b in kernel.output_params]
    given = [x.reshape(b.shape) for x, b in zip(inputs, kernel.input_params, strict=True)]
    run_kernel(kernel, *given, *made)
    for mine, reference in zip(made, references, strict=True):
        assert_same(mine.reshape(reference.shape), reference, what=f"loops of {name}")


@pytest.fixture
def run_operator() -> Callable[..., list[np.ndarray]]:
    """``run_operator(name, *inputs, **attrs)``: references, which the compute rule gave too."""

    def run(name: str, *inputs: np.ndarray, **attrs: Any) -> list[np.ndarray]:
        return _run(name, inputs, attrs)

    return run


@pytest.fixture
def check_operator(run_operator: Callable[..., list[np.ndarray]]) -> Callable[..., None]:
    """``check_operator(wanted, name, *inputs, **attrs)``: and the reference is ``wanted``."""

    def check(wanted: Any, name: str, *inputs: np.ndarray, **attrs: Any) -> None:
        wanted = list(wanted) if isinstance(wanted, list | tuple) else [wanted]
        for actual, expected in zip(run_operator(name, *inputs, **attrs), wanted, strict=True):
            assert_same(actual, np.asarray(expected), what=f"reference of {name}")

    return check


@pytest.fixture
def onnx_node() -> Callable[..., Any]:
    """``onnx_node(op_type, *inputs, **attrs)``: the first result of ONNX's reference evaluator.

    A test whose oracle is wrong in the installed release is skipped.
    """
    older = tuple(map(int, onnx.__version__.split(".")[:2])) < (1, 23)

    def run(
        op_type: str, *inputs: np.ndarray | None, opset: int = 21, outputs: int = 1, **attrs: Any
    ) -> Any:
        if older and op_type in WRONG_BEFORE_1_23:
            pytest.skip(f"onnx {onnx.__version__} computes {op_type} of some operands wrongly")
        names = ["" if x is None else f"x{n}" for n, x in enumerate(inputs)]
        results = [f"y{n}" for n in range(outputs)]
        node = onnx.helper.make_node(op_type, names, results, **attrs)
        unknown = onnx.TensorProto.UNDEFINED
        infos = [onnx.helper.make_tensor_value_info(n, unknown, None) for n in names if n]
        outs = [onnx.helper.make_tensor_value_info(n, unknown, None) for n in results]
        graph = onnx.helper.make_graph([node], "g", infos, outs)
        model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)])
        feeds = {n: x for n, x in zip(names, inputs, strict=True) if x is not None}
        with np.errstate(all="ignore"):
            found = ReferenceEvaluator(model).run(None, feeds)
        return found[0] if outputs == 1 else list(found)

    return run
