# SPDX-License-Identifier: Apache-2.0
"""Sizes of a run that no memory holds, or that do not go together, are refused, and nothing dies.

A dimension may have any size where another is 0, so sizes need no memory to be hostile.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import intarsia
from intarsia_runtime.errors import IntarsiaError, ModelError, ResourceError
from intarsia_runtime.load import load
from intarsia_runtime.loading import PlanExecutable

F, I64 = TensorProto.FLOAT, TensorProto.INT64
Shape = Sequence[int | str]


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: dict[str, Shape],
    *,
    weights: Sequence[onnx.TensorProto] = (),
    integers: Sequence[str] = (),
) -> onnx.ModelProto:
    """A model whose output is ``y``."""
    infos = [
        helper.make_tensor_value_info(name, I64 if name in integers else F, shape)
        for name, shape in inputs.items()
    ]
    graph = helper.make_graph(nodes, "g", infos, [onnx.ValueInfoProto(name="y")], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def node(kind: str, *inputs: str, output: str = "y", **attributes: object) -> onnx.NodeProto:
    return helper.make_node(kind, inputs, [output], **attributes)


def floats(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


@pytest.fixture(scope="module")
def gram(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlanExecutable]:
    """The softmax of ``x @ x.T``, whose temporaries and result have N * N elements."""
    nodes = [
        node("Transpose", "x", output="t", perm=[1, 0]),
        node("MatMul", "x", "t", output="p"),
        node("Softmax", "p"),
    ]
    path = tmp_path_factory.mktemp("gram") / "m.intarsia"
    intarsia.build(model(nodes, {"x": ["N", "S"]}), "llvm").save(path)
    with load(path, threads=1) as executable:
        yield executable


@pytest.mark.parametrize("rows", [1 << 31, 1 << 32, 3 << 31, 1 << 33, 1 << 36])
def test_bytes_that_wrap_around_are_refused(gram: PlanExecutable, rows: int) -> None:
    with pytest.raises(ResourceError, match="more bytes than 62 bits can count") as caught:
        gram.run({"x": floats(rows, 0)})
    assert caught.value.exit_code == 8


def test_a_dimension_along_which_loops_would_not_end_is_refused(gram: PlanExecutable) -> None:
    with pytest.raises(ResourceError, match=r"S = 1099511627776 is more than .* largest size"):
        gram.run({"x": floats(0, 1 << 40)})


def test_a_result_that_no_memory_holds_is_refused(gram: PlanExecutable) -> None:
    with pytest.raises(ResourceError, match="no memory for"):
        gram.run({"x": floats(1 << 22, 1)})


def test_a_copy_that_no_memory_holds_is_refused(gram: PlanExecutable) -> None:
    endless = np.lib.stride_tricks.as_strided(floats(1), (1 << 34, 1 << 20), (0, 0))
    with pytest.raises(ResourceError, match="no memory for a copy of input 'x'"):
        gram.run({"x": endless})


def test_a_run_after_a_refused_one_is_right(gram: PlanExecutable) -> None:
    with pytest.raises(ResourceError):
        gram.run({"x": floats(1 << 33, 0)})
    assert gram.run({"x": floats(0, 3)})["y"].shape == (0, 0)
    backwards = np.arange(12, dtype=np.float32).reshape(3, 4)[::-1, ::-1]
    product = backwards @ backwards.T
    wanted = np.exp(product - product.max(1, keepdims=True))
    wanted /= wanted.sum(1, keepdims=True)
    tiny = float(np.finfo(np.float32).tiny)  # a softmax has no subnormal results
    np.testing.assert_allclose(gram.run({"x": backwards})["y"], wanted, rtol=1e-5, atol=tiny)


def weight(name: str, *shape: int) -> onnx.TensorProto:
    return numpy_helper.from_array(np.ones(shape, np.float32), name)


def ints(name: str, *values: int) -> onnx.TensorProto:
    return numpy_helper.from_array(np.array(values, np.int64), name)


TOGETHER = {
    "window": (
        model([node("Conv", "x", "w")], {"x": ["N", 1, "H", 4]}, weights=[weight("w", 1, 1, 3, 3)]),
        (floats(1, 1, 2, 4),),
        "a window must fit into what it moves over: 3, more than H = 2",
    ),
    "pool": (
        model([node("MaxPool", "x", kernel_shape=[3, 3])], {"x": ["N", 1, "H", 4]}),
        (floats(1, 1, 0, 4),),
        "a window must fit into what it moves over: 3, more than H",
    ),
    "transposed": (
        model(
            [node("ConvTranspose", "x", "w", pads=[1, 0, 1, 0])],
            {"x": ["N", 1, "H", 4]},
            weights=[weight("w", 1, 1, 2, 2)],
        ),
        (floats(1, 1, 1, 4),),
        "the padding must leave some of the result",
    ),
    "reflected": (
        model([node("Pad", "x", "p", mode="reflect")], {"x": ["N"]}, weights=[ints("p", 3, 3)]),
        (floats(3),),
        "there must be elements to fill with: 4, more than N = 3",
    ),
    "edge": (
        model([node("Pad", "x", "p", mode="edge")], {"x": ["N"]}, weights=[ints("p", 3, 3)]),
        (floats(0),),
        "there must be elements to fill with: 1, more than N = 0",
    ),
    "picked": (
        model([node("Gather", "x", "i")], {"x": ["N"], "i": ["M"]}, integers=["i"]),
        (floats(0), np.zeros(2, np.int64)),
        "what is indexed must have elements",
    ),
    "picked across": (
        model(
            [node("GatherElements", "x", "i", axis=1)],
            {"x": ["N", 3], "i": ["M", 2]},
            integers=["i"],
        ),
        (floats(2, 3), np.zeros((4, 2), np.int64)),
        "indices must lie within the data: M = 4, more than N = 2",
    ),
    "scattered": (
        model(
            [node("ScatterElements", "x", "i", "u", axis=1)],
            {"x": ["N", 3], "i": ["M", 2], "u": ["M", 2]},
            integers=["i"],
        ),
        (floats(2, 3), np.zeros((90, 2), np.int64), floats(90, 2)),
        "updates must fit the data: M = 90, more than N = 2",
    ),
    "chosen": (
        model([node("ArgMax", "x", axis=1)], {"x": ["N", "S"]}),
        (floats(2, 0),),
        "there must be elements to choose from: min\\(1, N\\) = 1, more than S = 0",
    ),
    "blocks": (
        model([node("SpaceToDepth", "x", blocksize=2)], {"x": [1, 1, "H", 4]}),
        (floats(1, 1, 3, 4),),
        "a block must divide height and width",
    ),
    "parameters": (
        model([node("Gemm", "x", "w")], {"x": ["N", "S"]}, weights=[weight("w", 4, 5)]),
        (floats(2, 3),),
        r"input 'x' must be float32 \(N, 4\) where N = 2, got float32 \(2, 3\)",
    ),
    "recurrent": (
        model(
            [node("GRU", "x", "w", "r", hidden_size=2)],
            {"x": ["T", "B", "S"]},
            weights=[weight("w", 1, 6, 3), weight("r", 1, 6, 2)],
        ),
        (floats(2, 1, 4),),
        r"input 'x' must be float32 \(T, B, 3\)",
    ),
}


@pytest.mark.parametrize("name", TOGETHER)
def test_sizes_that_do_not_go_together_are_refused(name: str, tmp_path: Path) -> None:
    made, inputs, words = TOGETHER[name]
    intarsia.build(made, "llvm").save(tmp_path / "m.intarsia")
    with (
        load(tmp_path / "m.intarsia", threads=1) as executable,
        pytest.raises(ModelError, match=words) as caught,
    ):
        executable.run(list(inputs))
    assert caught.value.exit_code == 3


def test_a_last_window_may_hang_over(tmp_path: Path) -> None:
    pool = node("MaxPool", "x", kernel_shape=[3], strides=[2], ceil_mode=1)
    intarsia.build(model([pool], {"x": [1, 1, "W"]}), "llvm").save(tmp_path / "m.intarsia")
    with load(tmp_path / "m.intarsia", threads=1) as executable:
        for width, wanted in ((2, [1]), (3, [2]), (4, [2, 3])):
            given = np.arange(width, dtype=np.float32).reshape(1, 1, width)
            assert executable.run({"x": given})["y"].tolist() == [[wanted]]


@pytest.mark.parametrize(("data", "other"), [(["N", 3, "M"], [1, 1, 2]), (["M"], [2])])
def test_an_open_size_beside_a_number_is_that_number(
    data: Shape, other: Shape, tmp_path: Path
) -> None:
    made = model(
        [node("Add", "x", "z"), node("PRelu", "y", "z", output="p")], {"x": data, "z": other}
    )
    intarsia.build(made, "llvm").save(tmp_path / "m.intarsia")
    with load(tmp_path / "m.intarsia", threads=1) as executable:
        shape = [size if isinstance(size, int) else {"N": 5, "M": 2}[size] for size in data]
        result = executable.run({"x": np.ones(shape, np.float32), "z": np.ones(other, np.float32)})
        np.testing.assert_array_equal(result["y"], np.full(shape, 2))
        shape[-1] = 3
        with pytest.raises(IntarsiaError):
            executable.run({"x": np.ones(shape, np.float32), "z": np.ones(other, np.float32)})


def test_nothing_comes_of_nothing_and_too_large_sizes_are_refused(tmp_path: Path) -> None:
    made = model([node("Exp", "x")], {"x": ["N", "S"]})
    intarsia.build(made, "llvm").save(tmp_path / "m.intarsia")
    with load(tmp_path / "m.intarsia", threads=1) as executable:
        assert executable.run({"x": floats(3, 0)})["y"].shape == (3, 0)
        assert executable.run({"x": floats(1 << 36, 0)})["y"].shape == (1 << 36, 0)
        with pytest.raises(ResourceError, match="the largest size of a dimension"):
            executable.run({"x": floats(1 << 40, 0)})
        endless = np.lib.stride_tricks.as_strided(floats(1), (1 << 29, 1 << 29), (0, 0))
        with pytest.raises(ResourceError, match=r"no memory for|too large"):
            executable.run({"x": endless})


def test_a_transposed_convolution_whose_result_is_cut_has_its_declared_size(tmp_path: Path) -> None:
    made = model(
        [node("ConvTranspose", "x", "w", strides=[1, 3], pads=[0, 0, 0, 1])],
        {"x": ["N", 1, "H", "W"]},
        weights=[weight("w", 1, 1, 1, 2)],
    )
    intarsia.build(made, "llvm").save(tmp_path / "m.intarsia")
    with load(tmp_path / "m.intarsia", threads=1) as executable:
        given = np.ones((2, 1, 2, 3), np.float32)
        wanted = np.tile(np.array([1, 1, 0, 1, 1, 0, 1], np.float32), (2, 1, 2, 1))
        np.testing.assert_array_equal(executable.run({"x": given})["y"], wanted)


def test_a_slice_to_the_end_has_no_large_size(tmp_path: Path) -> None:
    made = model(
        [node("Slice", "x", "begin", "end", "axes")],
        {"x": ["N", "M"]},
        weights=[ints("begin", 1, 1), ints("end", (1 << 63) - 1, -(1 << 63)), ints("axes", 0, 1)],
    )
    intarsia.build(made, "llvm").save(tmp_path / "m.intarsia")
    with load(tmp_path / "m.intarsia", threads=1) as executable:
        assert executable.run({"x": floats(5, 4)})["y"].shape == (4, 0)


def test_more_conditions_than_elements_are_refused(tmp_path: Path) -> None:
    made = model([node("Compress", "x", "c", axis=0)], {"x": ["N"], "c": ["M"]})
    made.graph.input[1].type.tensor_type.elem_type = TensorProto.BOOL
    intarsia.build(made, "llvm").save(tmp_path / "m.intarsia")
    with load(tmp_path / "m.intarsia", threads=1) as executable:
        chosen = np.array([True, False, True])
        given = np.arange(5, dtype=np.float32)
        assert executable.run({"x": given, "c": chosen})["y"].tolist() == [0, 2]
        with pytest.raises(ModelError, match=r"an element to choose: M = 3, more than N = 2"):
            executable.run({"x": given[:2], "c": chosen})


def test_a_slice_of_nothing_is_reshaped() -> None:
    """The proof that a batch may be cut met a division by 0."""
    made = model([node("Squeeze", "x", "a")], {"x": [0, 1, "N"]}, weights=[ints("a", 1)])
    artifact = intarsia.build(made, "llvm")
    assert artifact.load().run({"x": floats(0, 1, 3)})["y"].shape == (0, 3)
