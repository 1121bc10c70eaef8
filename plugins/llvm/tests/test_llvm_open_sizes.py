# SPDX-License-Identifier: Apache-2.0
"""Programs of open sizes as machine code: any size, one artifact, clear refusals."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import intarsia
from intarsia.cli.main import main
from intarsia_ir.graph.expr import Expr, Function, Var, constant, make_tuple
from intarsia_ir.graph.module import IRModule
from intarsia_ir.graph.types import TensorType, variable
from intarsia_ir.ops.evaluate import evaluate
from intarsia_llvm.link import undefined_symbols
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import ModelError, UsageError
from intarsia_runtime.executors.open import OpenExecutor
from intarsia_runtime.load import load
from intarsia_runtime.size import Size
from intarsia_testkit.expressions import apply

N, S = variable("N"), variable("S")
SIZES = [(1, 1), (2, 3), (1, 16), (3, 37), (1, 130), (2, 8), (2, 8)]


def x(name: str, *shape: Size) -> Var:
    """An input of an open size."""
    return Var(name, TensorType(shape, DType.FLOAT32))


def weight(*shape: int) -> Expr:
    """A constant."""
    rng = np.random.default_rng(sum(shape))
    return constant((rng.random(shape, np.float32) - 0.5) / 4)


def layer() -> IRModule:
    """A layer of a transformer: products of open sizes, softmax, layer norm, GELU."""
    tokens = x("tokens", N, S, 32)
    q, k, v = (apply("matmul", tokens, weight(32, 32)) for _ in range(3))
    scores = apply("nn.softmax", apply("matmul", q, k, transpose_b=True), axis=2)
    summed = apply("add", tokens, apply("matmul", scores, v))
    normed = apply("nn.layer_norm", summed, weight(32), weight(32), axis=2)
    grown = apply("nn.gelu", apply("add", apply("matmul", normed, weight(32, 70)), weight(70)))
    result = apply("add", apply("matmul", grown, weight(70, 32)), normed)
    body = make_tuple((result, apply("mean", result, axes=(1,))))
    return IRModule.from_function(Function((tokens,), body, ("tokens", "pooled")))


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("open") / "layer.intarsia"
    intarsia.build(layer(), "llvm").save(path)
    return path


def tokens(n: int, s: int) -> np.ndarray:
    return np.random.default_rng(n + s).random((n, s, 32), np.float32)


@pytest.mark.parametrize("threads", [1, 2])
def test_one_artifact_runs_any_size(artifact: Path, threads: int) -> None:
    with load(artifact, threads=threads) as executable:
        assert isinstance(executable, OpenExecutor)
        assert executable.threads == threads
        assert [spec.shape for spec in executable.inputs] == [("N", "S", 32)]
        assert [spec.shape for spec in executable.outputs] == [("N", "S", 32), ("N", 32)]
        for n, s in SIZES:
            given = tokens(n, s)
            got = executable.run({"tokens": given})
            want = evaluate(layer().main, {"tokens": given})
            assert list(got) == ["tokens", "pooled"]
            for mine, theirs in zip(got.values(), want, strict=True):
                np.testing.assert_allclose(mine, theirs, rtol=2e-4, atol=1e-5)


def calls_of_run(executable: OpenExecutor, given: np.ndarray) -> int:
    """Return how many functions a run calls, those of Python and of C."""
    counts = Counter[str]()
    sys.setprofile(lambda frame, event, argument: counts.update([event]))
    try:
        executable.run([given])
    finally:
        sys.setprofile(None)
    return counts["call"] + counts["c_call"]


def test_the_first_run_of_a_new_size_calls_few_functions_more_than_the_next(artifact: Path) -> None:
    with load(artifact, threads=1) as executable:
        assert isinstance(executable, OpenExecutor)
        executable.run([tokens(3, 37)])  # larger ones: the workspace grows no more
        calls = [calls_of_run(executable, tokens(2, 9)) for _ in range(2)]
        assert calls[0] - calls[1] <= 30, calls


def test_outputs_have_their_shapes_in_the_frame(artifact: Path) -> None:
    with load(artifact) as executable:
        assert isinstance(executable, OpenExecutor)
        for n, s in ((2, 5), (1, 3)):
            executable.run([tokens(n, s)])
            given, *made = executable._arguments.tensors
            assert given.shape[:3] == [n, s, 32]
            assert [tensor.shape[: tensor.ndim] for tensor in made] == [[n, s, 32], [n, 32]]
            assert not any(tensor.strides for tensor in (given, *made))


def test_a_run_into_arrays(artifact: Path) -> None:
    with load(artifact) as executable:
        given = tokens(2, 5)
        made = executable.run([given])
        into = {name: np.zeros_like(array) for name, array in made.items()}
        executable.run_into([given], into)
        for name, array in made.items():
            np.testing.assert_array_equal(into[name], array)


def test_a_profile_has_every_step(artifact: Path) -> None:
    with load(artifact, executor="graph") as executable:
        assert isinstance(executable, OpenExecutor)
        rows = executable.profile({"tokens": tokens(1, 9)}, 2)
        assert len(rows) == len(executable.passport.plan.steps)
        assert sum(row.share for row in rows) == pytest.approx(1)
        with pytest.raises(UsageError, match="cannot take the median of 0 runs"):
            executable.profile({"tokens": tokens(1, 9)}, 0)


def test_inputs_that_do_not_fit_are_refused(artifact: Path) -> None:
    with load(artifact) as executable:
        with pytest.raises(ModelError, match=r"input 'tokens' must be float32 \(N, S, 32\)"):
            executable.run({"tokens": np.zeros((1, 4), np.float32)})
        with pytest.raises(ModelError, match=r"where N = 1, S = 4, got float32 \(1, 4, 31\)"):
            executable.run({"tokens": np.zeros((1, 4, 31), np.float32)})
        with pytest.raises(ModelError, match="got float64"):
            executable.run({"tokens": np.zeros((1, 4, 32))})
        executable.close()
        with pytest.raises(ModelError, match="the executable was closed"):
            executable.run({"tokens": tokens(1, 2)})


def test_an_executor_that_needs_numbers_is_refused(artifact: Path) -> None:
    with pytest.raises(UsageError, match="does not run a program of open sizes"):
        load(artifact, executor="elsewhere")


def test_sizes_of_several_inputs_must_go_together(tmp_path: Path) -> None:
    a, b = x("a", N, S), x("b", S, N)
    product = apply("matmul", a, b)
    path = tmp_path / "m.intarsia"
    intarsia.build(IRModule.from_function(Function((a, b), product)), "llvm").save(path)
    with load(path) as executable:
        given = [np.ones((2, 5), np.float32), np.ones((5, 2), np.float32)]
        np.testing.assert_array_equal(executable.run(given)["output_0"], np.full((2, 2), 5))
        with pytest.raises(ModelError, match=r"input 'b' must be float32 \(S, N\) where N = 2"):
            executable.run([given[0], given[0]])


@pytest.mark.parametrize("processor", ["native", "haswell"])
@pytest.mark.parametrize(
    ("rows", "depth", "columns", "attrs"),
    [
        (9, 8, 5000, {}),  # some blocks of columns side by side
        (30, 7, 45, {}),
        (5, 40, 33, {"transpose_a": True}),
        (17, 33, 50, {"transpose_b": True}),
        (1, 64, 19, {"transpose_b": True}),  # a row by rows
        (4, 5, 3, {}),
    ],
)
def test_products_of_known_sizes_for_an_open_batch(
    tmp_path: Path, rows: int, depth: int, columns: int, attrs: dict[str, object], processor: str
) -> None:
    shapes = (depth, rows) if "transpose_a" in attrs else (rows, depth), (depth, columns)
    if "transpose_b" in attrs:
        shapes = shapes[0], (columns, depth)
    a, b = (x(name, N, 2, *shape) for name, shape in zip("ab", shapes, strict=True))
    path = tmp_path / "m.intarsia"
    module = IRModule.from_function(Function((a, b), apply("matmul", a, b, **attrs)))
    target = "llvm" if processor == "native" else f"llvm -mcpu={processor}"
    intarsia.build(module, target).save(path)
    rng = np.random.default_rng(0)
    with load(path, threads=2) as executable:
        for batch in (1, 3, 0):
            given = [rng.standard_normal((batch, 2, *shape), np.float32) for shape in shapes]
            left = given[0].swapaxes(2, 3) if "transpose_a" in attrs else given[0]
            right = given[1].swapaxes(2, 3) if "transpose_b" in attrs else given[1]
            (got,) = executable.run(given).values()
            np.testing.assert_allclose(got, left @ right, rtol=1e-4, atol=1e-4)


def test_nothing_of_size_zero_is_touched(artifact: Path) -> None:
    with load(artifact) as executable:
        got = executable.run({"tokens": tokens(0, 4)})
        assert got["tokens"].shape == (0, 4, 32)
        assert got["pooled"].shape == (0, 32)


def test_a_file_with_open_sizes_compiles_from_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def info(name: str, shape: list[str | int]) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)

    nodes = [
        helper.make_node("Softmax", ["x"], ["s"], axis=1),
        helper.make_node("Shape", ["s"], ["n"]),
        helper.make_node("ConstantOfShape", ["n"], ["z"]),
        helper.make_node("Add", ["s", "z"], ["y"]),
    ]
    graph = helper.make_graph(nodes, "g", [info("x", ["N", "S"])], [info("y", ["N", "S"])])
    opset = [helper.make_opsetid("", 17)]
    model, artifact = tmp_path / "m.onnx", tmp_path / "m.intarsia"
    onnx.save(helper.make_model(graph, opset_imports=opset), model)
    assert main(["compile", str(model), "--target", "llvm", "-o", str(artifact)]) == 0
    assert main(["explain", str(model), "--target", "llvm"]) == 0
    capsys.readouterr()
    assert main(["inspect", str(artifact)]) == 0
    assert "slots, as large as the run's sizes need" in capsys.readouterr().out
    np.savez(tmp_path / "x.npz", x=np.ones((3, 5), np.float32))
    given = ["--inputs", str(tmp_path / "x.npz"), "--verify", "--model", str(model), "--profile"]
    assert main(["run", str(artifact), *given]) == 0
    shown = capsys.readouterr().out
    assert "verify y: ok" in shown
    assert "nn.softmax" in shown


def test_results_that_are_inputs_are_copied_without_libc(tmp_path: Path) -> None:
    """A library that calls ``memcpy`` would be linked three times."""
    words = Var("words", TensorType((N, S), DType.UINT8))
    same = Function((words,), make_tuple((words,)), ("same",))
    made = intarsia.build(IRModule.from_function(same), "llvm")
    (unit,) = made.units
    assert undefined_symbols(unit.files["lib.so"]) == frozenset()
    made.save(tmp_path / "copy.intarsia")
    with load(tmp_path / "copy.intarsia") as executable:
        for n, s in ((0, 3), (1, 1), (1, 63), (1, 64), (5, 13), (3, 64), (7, 91)):
            given = np.random.default_rng(n * s).integers(0, 256, (n, s), np.uint8)
            np.testing.assert_array_equal(executable.run({"words": given})["same"], given)
