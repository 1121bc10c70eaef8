# SPDX-License-Identifier: Apache-2.0
"""The reference executor: order, branches, memory, and inputs that do not fit."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from intarsia_ir.graph.expr import (
    CallFunction,
    Function,
    GlobalVar,
    If,
    Let,
    Var,
    call,
    constant,
    get_item,
    make_tuple,
)
from intarsia_ir.graph.module import IRModule
from intarsia_ir.graph.types import TensorType, TupleType, variable
from intarsia_ir.ops import OPERATORS
from intarsia_ir.ops.evaluate import evaluate
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import ModelError, VerifyError

F32 = TensorType((2,), DType.FLOAT32)
ADD, RELU, NEG = OPERATORS["add"], OPERATORS["nn.relu"], OPERATORS["negative"]


def arr(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def test_long_chain_does_not_recurse() -> None:
    x = Var("x", F32)
    value = x
    for _ in range(5_000):
        value = call(ADD, value, x)
    assert evaluate(Function((x,), value), {"x": arr(1, 2)})[0].tolist() == [5_001, 10_002]


def test_shared_values_and_several_outputs() -> None:
    x = Var("x", F32)
    shared = call(NEG, x)
    body = make_tuple([shared, call(ADD, shared, shared), x, shared])
    found = evaluate(Function((x,), body), {"x": arr(1, -2)})
    assert [value.tolist() for value in found] == [[-1, 2], [-2, 4], [1, -2], [-1, 2]]


def test_only_the_chosen_branch_is_evaluated() -> None:
    x, c = Var("x", F32), Var("c", TensorType((), DType.BOOL))
    poison = call(NEG, Var("nowhere", F32))
    shared = call(RELU, x)
    body = call(ADD, If(c, call(NEG, shared), poison, F32), shared)
    found = evaluate(Function((x, c), body), {"x": arr(3, -2), "c": np.array(True)})
    assert found[0].tolist() == [0, 0]
    with pytest.raises(VerifyError, match="'nowhere' is used but not defined"):
        evaluate(Function((x, c), body), {"x": arr(3, -2), "c": np.array(False)})


def test_let_binds_its_variable() -> None:
    x, v = Var("x", F32), Var("v", F32)
    body = Let(v, call(NEG, x), call(ADD, v, call(ADD, v, constant(arr(1, 1)))), F32)
    assert evaluate(Function((x,), body), {"x": arr(1, 2)})[0].tolist() == [-1, -3]


def test_called_functions() -> None:
    p, x = Var("p", F32), Var("x", F32)
    inner = Function((p,), make_tuple([call(NEG, p), call(RELU, p)]))
    called = CallFunction(GlobalVar("region"), (x,), TupleType((F32, F32)))
    main = Function((x,), call(ADD, get_item(called, 0), get_item(called, 1)))
    module = IRModule({"main": main, "region": inner})
    assert evaluate(main, {"x": arr(1, -2)}, module)[0].tolist() == [0, 2]
    with pytest.raises(VerifyError, match="calls '@region', but no module is given"):
        evaluate(main, {"x": arr(1, -2)})


def test_values_are_dropped_after_their_last_use() -> None:
    x = Var("x", TensorType((1 << 20,), DType.FLOAT32))
    value = x
    for _ in range(200):
        value = call(NEG, value)
    tracemalloc.start()
    evaluate(Function((x,), value), {"x": np.ones(1 << 20, np.float32)})
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10 * (4 << 20)


@pytest.mark.parametrize(
    "inputs, fragment",
    [
        ({"x": arr(1, 2)}, "input 'z' is missing"),
        ({"x": arr(1, 2), "z": arr(1, 2), "q": arr()}, "'q' is no input; inputs: x, z"),
        ({"x": arr(1, 2), "z": arr(1, 2, 3)}, "input 'z' must be"),
        ({"x": arr(1, 2).astype(np.float64), "z": arr(1, 2)}, "of float64"),
        ({"x": np.ones((2, 1), np.float32), "z": arr(1, 2)}, "got shape (2, 1)"),
    ],
)
def test_inputs_that_do_not_fit(inputs: dict, fragment: str) -> None:
    symbolic = TensorType((variable("N"),), DType.FLOAT32)
    x, z = Var("x", symbolic), Var("z", symbolic)
    with pytest.raises(ModelError) as caught:
        evaluate(Function((x, z), call(ADD, x, z)), inputs)
    assert fragment in str(caught.value)


def test_parameter_that_is_no_tensor() -> None:
    x = Var("x", TupleType((F32,)))
    with pytest.raises(ModelError, match="parameter 'x' is no tensor"):
        evaluate(Function((x,), get_item(x, 0)), {"x": arr(1)})
