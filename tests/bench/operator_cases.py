# SPDX-License-Identifier: Apache-2.0
"""The single operators that ``tests.bench.operators`` compares: a table, read as data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx

IMAGE = (1, 64, 56, 56)
SAME = {"pads": [1] * 4}
LAST = np.array([1])


@dataclass(frozen=True)
class Case:
    """An operator on data of one shape.

    Attributes:
        name: For the table.
        op: ONNX's name.
        shape: Of the data.
        operands: The others: shapes of random elements of ``dtype``, or arrays.
        attrs: Attributes.
        dtype: Element type of the data and of random operands.
        opset: Of the model.
        given: How many of the operands are inputs of the model; the others are constants.
        results: How many results are asked for.
    """

    name: str
    op: str
    shape: tuple[int, ...]
    operands: Sequence[tuple[int, ...] | np.ndarray | np.generic] = ()
    attrs: Mapping[str, object] = field(default_factory=dict[str, object])
    dtype: object = np.float32
    opset: int = 18
    given: int = 0
    results: int = 1

    def save(self, path: Path) -> dict[str, np.ndarray]:
        """Write the model; return its inputs."""
        drawn = np.random.default_rng(0)
        arrays = [
            self._random(drawn, one) if isinstance(one, tuple) else np.asarray(one)
            for one in self.operands
        ]
        names = [f"w{number}" for number in range(len(arrays))]
        outputs = [f"y{number}" for number in range(self.results)]
        data = {"x": self._random(drawn, self.shape)}
        data |= dict(zip(names[: self.given], arrays, strict=False))
        rest = zip(arrays[self.given :], names[self.given :], strict=True)
        graph = onnx.helper.make_graph(
            [onnx.helper.make_node(self.op, ["x", *names], outputs, **self.attrs)],
            "one",
            [onnx.helper.make_tensor_value_info(n, _kind(a), a.shape) for n, a in data.items()],
            [onnx.helper.make_empty_tensor_value_info(name) for name in outputs],
            [onnx.numpy_helper.from_array(array, name) for array, name in rest],
        )
        opset = [onnx.helper.make_opsetid("", self.opset)]
        onnx.save(onnx.helper.make_model(graph, opset_imports=opset, ir_version=9), path)
        return data

    def _random(self, drawn: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        dtype = np.dtype(self.dtype)
        if dtype == np.bool_:
            return drawn.integers(0, 2, shape).astype(dtype)
        if dtype.kind in "iu":
            low = 0 if dtype.kind == "u" else -100
            return drawn.integers(low, 100, shape).astype(dtype)
        return drawn.standard_normal(shape).astype(dtype)


def _kind(array: np.ndarray) -> int:
    return onnx.helper.np_dtype_to_tensor_dtype(array.dtype)


def cases() -> list[Case]:
    """Return what models are made of, in common shapes and in awkward ones."""
    return [
        *_convolutions(),
        *_products(),
        *_windows(),
        *_rows(),
        *_reductions(),
        *_moves(),
        *_places(),
        *_recurrent(),
        *_elementwise(),
        *_types(),
    ]


def _convolutions() -> list[Case]:
    half = np.float16
    transposed = [
        Case(
            f"conv_transpose {k}x{k}, stride {s}",
            *("ConvTranspose", (1, 64, 32, 32), [(64, 32, k, k)]),
            {"strides": [s, s], "pads": [p] * 4},
        )
        for k, s, p in ((4, 2, 1), (3, 2, 1), (2, 2, 0), (3, 1, 1))
    ]
    return [
        Case("conv 1-D", "Conv", (1, 64, 1000), [(64, 64, 5)], {"pads": [2, 2]}),
        Case("conv 3-D", "Conv", (1, 16, 8, 28, 28), [(16, 16, 3, 3, 3)], {"pads": [1] * 6}),
        Case(
            "conv 3-D, 4 groups",
            *("Conv", (1, 16, 8, 28, 28), [(16, 4, 3, 3, 3)], {"pads": [1] * 6, "group": 4}),
        ),
        Case("conv in 4 groups", "Conv", (1, 64, 28, 28), [(64, 16, 3, 3)], {**SAME, "group": 4}),
        Case("conv, weights given", "Conv", (1, 64, 28, 28), [(64, 64, 3, 3)], SAME, given=1),
        Case(
            "conv 1x1, weights given", "Conv", (1, 128, 28, 28), [(128, 128, 1, 1)], given=1
        ),
        Case(
            "conv depthwise, weights given",
            *("Conv", IMAGE, [(64, 1, 3, 3)], {**SAME, "group": 64}),
            given=1,
        ),
        Case("conv of primes", "Conv", (1, 13, 31, 29), [(17, 13, 3, 3)], SAME),
        Case("conv float16", "Conv", (1, 32, 28, 28), [(32, 32, 3, 3)], SAME, half),
        Case("conv_transpose 1-D", "ConvTranspose", (1, 64, 1000), [(64, 32, 4)], {"strides": [2]}),
        *transposed,
    ]  # fmt: skip


def _products() -> list[Case]:
    return [
        Case("matmul float16", "MatMul", (256, 256), [(256, 256)], dtype=np.float16),
        Case("matmul float64", "MatMul", (256, 256), [(256, 256)], dtype=np.float64),
        Case("matmul int32", "MatMul", (128, 128), [(128, 128)], dtype=np.int32, given=1),
        Case("matmul, one row", "MatMul", (1, 2048), [(2048, 2048)]),
        Case("matmul of stacks", "MatMul", (8, 64, 64), [(8, 64, 64)]),
        Case("matmul of primes", "MatMul", (127, 131), [(131, 137)]),
        Case("matmul of two inputs", "MatMul", (256, 256), [(256, 256)], given=1),
        Case("matmul of attention, QK", "MatMul", (12, 128, 64), [(12, 64, 128)], given=1),
        Case("matmul of attention, PV", "MatMul", (12, 128, 128), [(12, 128, 64)], given=1),
        Case("matmul of a token, PV", "MatMul", (12, 1, 512), [(12, 512, 64)], given=1),
        Case("gemm, B transposed", "Gemm", (64, 512), [(256, 512), (256,)], {"transB": 1}, given=1),
        Case("gemm, A transposed", "Gemm", (512, 64), [(512, 256), (256,)], {"transA": 1}, given=1),
        Case("matmul, a vector", "MatMul", (1024, 1024), [(1024,)], given=1),
        Case("einsum", "Einsum", (2, 64, 8, 32), [(2, 64, 8, 32)],
             {"equation": "bqhd,bkhd->bhqk"}, given=1),
    ]  # fmt: skip


def _windows() -> list[Case]:
    return [
        Case("max_pool 3x3", "MaxPool", (1, 64, 112, 112), attrs={"kernel_shape": [3, 3],
             "strides": [2, 2], **SAME}),
        Case("max_pool 2x2", "MaxPool", IMAGE, attrs={"kernel_shape": [2, 2],
             "strides": [2, 2]}),
        Case("avg_pool 5x5", "AveragePool", IMAGE, attrs={"kernel_shape": [5, 5],
             "pads": [2] * 4}),
        Case("avg_pool 2x2", "AveragePool", IMAGE, attrs={"kernel_shape": [2, 2],
             "strides": [2, 2]}),
        Case("global_avg_pool", "GlobalAveragePool", (1, 512, 7, 7)),
        Case("max_pool 1-D", "MaxPool", (1, 64, 1000), attrs={"kernel_shape": [3],
             "strides": [2]}),
        Case("max_pool 3-D", "MaxPool", (1, 16, 16, 28, 28), attrs={"kernel_shape": [2] * 3,
             "strides": [2] * 3}),
        Case("pad reflect", "Pad", IMAGE, [np.array([0, 0, 1, 1, 0, 0, 1, 1])],
             {"mode": "reflect"}),
        Case("pad edge", "Pad", IMAGE, [np.array([0, 0, 1, 1, 0, 0, 1, 1])], {"mode": "edge"}),
        Case("pad", "Pad", IMAGE, [np.array([0, 0, 1, 1, 0, 0, 1, 1])]),
        Case("lrn", "LRN", (1, 64, 28, 28), attrs={"size": 5}),
        *(
            Case(f"resize {mode}", "Resize", (1, 32, 28, 28),
                 [np.empty(0, np.float32), np.array([1, 1, 2, 2], np.float32)], {"mode": mode})
            for mode in ("nearest", "linear", "cubic")
        ),
        Case("resize linear, corners", "Resize", (1, 32, 28, 28),
             [np.empty(0, np.float32), np.empty(0, np.float32), np.array([1, 32, 65, 65])],
             {"mode": "linear", "coordinate_transformation_mode": "align_corners"}),
        Case("grid_sample", "GridSample", (1, 32, 28, 28), [(1, 28, 28, 2)], given=1,
             attrs={"mode": "bilinear"}),
        Case("roi_align", "RoiAlign", (1, 32, 28, 28), [
             np.array([[0, 0, 20, 20], [3, 3, 9, 15]] * 8, np.float32), np.zeros(16, np.int64)],
             {"output_height": 7, "output_width": 7, "sampling_ratio": 2}, given=2),
    ]  # fmt: skip


def _rows() -> list[Case]:
    return [
        Case("softmax", "Softmax", (64, 1000)),
        Case("softmax, short rows", "Softmax", (12, 128, 128)),
        Case("softmax, 10 classes", "Softmax", (1000, 10)),
        Case("log_softmax", "LogSoftmax", (64, 1000)),
        Case("softmax of channels", "Softmax", IMAGE, attrs={"axis": 1}),
        Case("layer_norm", "LayerNormalization", (128, 768), [(768,), (768,)]),
        Case("layer_norm of 4096", "LayerNormalization", (16, 4096), [(4096,), (4096,)]),
        Case("layer_norm of 97", "LayerNormalization", (128, 97), [(97,), (97,)]),
        Case("instance_norm", "InstanceNormalization", IMAGE, [(64,), (64,)]),
        Case("instance_norm, large", "InstanceNormalization", (1, 32, 128, 128), [(32,), (32,)]),
        Case("group_norm", "GroupNormalization", (1, 64, 64, 64), [(64,), (64,)],
             {"num_groups": 8}, opset=21),
        Case("batch_norm", "BatchNormalization", IMAGE,
             [(64,), (64,), (64,), np.full(64, 0.5, np.float32)]),
        Case("lp_normalization", "LpNormalization", (64, 1000), attrs={"axis": 1}),
        Case("hardmax", "Hardmax", (64, 1000)),
        Case("cumsum", "CumSum", (64, 1024), [np.array(1)]),
        Case("cumsum of axis 0", "CumSum", (64, 1024), [np.array(0)]),
    ]  # fmt: skip


def _reductions() -> list[Case]:
    image = (8, 128, 256)
    return [
        Case("reduce_mean", "ReduceMean", (64, 3136), [LAST]),
        Case("reduce_max", "ReduceMax", (64, 1000), [LAST]),
        Case("reduce_sum of axis 0", "ReduceSum", (512, 512), [np.array([0])]),
        Case("reduce_sum of the middle", "ReduceSum", image, [LAST]),
        Case("reduce_max of the middle", "ReduceMax", image, [LAST]),
        Case("reduce_mean of all", "ReduceMean", (512, 500)),
        Case("reduce_sum of 7", "ReduceSum", (10_000, 7), [LAST]),
        Case("reduce_l2", "ReduceL2", (64, 1000), [LAST]),
        Case("reduce_log_sum_exp", "ReduceLogSumExp", (64, 1000), [LAST]),
        Case("reduce_prod", "ReduceProd", (64, 1000), [LAST]),
        Case("reduce_sum int64", "ReduceSum", (64, 1000), [LAST], dtype=np.int64),
        Case("reduce_sum int32", "ReduceSum", (64, 1000), [LAST], dtype=np.int32),
        Case("reduce_max int32", "ReduceMax", (64, 1000), [LAST], dtype=np.int32),
        Case("reduce_max int8", "ReduceMax", (64, 1000), [LAST], dtype=np.int8),
        Case("reduce_sum float64", "ReduceSum", (64, 1000), [LAST], dtype=np.float64),
        Case("argmax", "ArgMax", (64, 1000), attrs={"axis": 1}),
        Case("argmax of axis 0", "ArgMax", (64, 1000), attrs={"axis": 0}),
        Case("argmax of channels", "ArgMax", (1, 21, 128, 128), attrs={"axis": 1}),
        Case("argmax int32", "ArgMax", (64, 1000), attrs={"axis": 1}, dtype=np.int32),
        Case("argmin float64", "ArgMin", (64, 1000), attrs={"axis": 1}, dtype=np.float64),
    ]


def _moves() -> list[Case]:
    image = (64, 127, 65)
    return [
        Case("transpose 0231", "Transpose", IMAGE, attrs={"perm": [0, 2, 3, 1]}),
        Case("transpose 0312", "Transpose", (1, 56, 56, 64), attrs={"perm": [0, 3, 1, 2]}),
        Case("transpose 021", "Transpose", image, attrs={"perm": [0, 2, 1]}),
        Case("transpose 102", "Transpose", image, attrs={"perm": [1, 0, 2]}),
        Case("transpose 210", "Transpose", image, attrs={"perm": [2, 1, 0]}),
        Case("transpose of heads", "Transpose", (1, 128, 12, 64), attrs={"perm": [0, 2, 1, 3]}),
        Case("transpose int8", "Transpose", IMAGE, attrs={"perm": [0, 2, 3, 1]}, dtype=np.int8),
        Case("transpose float16", "Transpose", IMAGE, attrs={"perm": [0, 2, 3, 1]},
             dtype=np.float16),
        Case("transpose int64", "Transpose", (512, 300), attrs={"perm": [1, 0]}, dtype=np.int64),
        Case("depth_to_space", "DepthToSpace", IMAGE, attrs={"blocksize": 2}),
        Case("space_to_depth", "SpaceToDepth", IMAGE, attrs={"blocksize": 2}),
        Case("concat of channels", "Concat", IMAGE, [IMAGE], {"axis": 1}, given=1),
        Case("concat of columns", "Concat", (1000, 33), [(1000, 31)], {"axis": 1}, given=1),
        Case("split of channels", "Split", IMAGE, [np.array([32, 32])], {"axis": 1}, results=2),
        Case("split of columns", "Split", (1000, 99), [np.array([33, 33, 33])], {"axis": 1},
             results=3),
        Case("slice by 2", "Slice", (512, 512), [np.array([0, 0]), np.array([512, 512]),
             np.array([0, 1]), np.array([1, 2])]),
        Case("slice backwards", "Slice", (512, 512), [np.array([-1]), np.array([-9999]),
             np.array([1]), np.array([-1])]),
        Case("expand", "Expand", (512, 1), [np.array([512, 300])]),
        Case("tile", "Tile", (100, 37), [np.array([3, 5])]),
        Case("where", "Where", (256, 256), [np.ones((256, 256), np.float32),
             np.zeros((256, 256), np.float32)], dtype=np.bool_, given=2),
        Case("where, mask of attention", "Where", (1, 1, 128, 128),
             [np.ones((12, 128, 128), np.float32), np.float32([-1e9])], dtype=np.bool_, given=1),
        Case("add, a column", "Add", (512, 500), [(512, 1)], given=1),
        Case("add, a row", "Add", (512, 500), [(500,)], given=1),
        Case("mul, row by column", "Mul", (512, 1), [(1, 500)], given=1),
        Case("add of channels", "Add", IMAGE, [(1, 64, 1, 1)], given=1),
        Case("trilu", "Trilu", (512, 500)),
    ]  # fmt: skip


def _places() -> list[Case]:
    thousand = np.arange(0, 1000, 3)
    return [
        Case("gather", "Gather", (1000, 256), [thousand]),
        Case("gather of axis 1", "Gather", (256, 1000), [thousand], {"axis": 1}, given=1),
        Case("gather of axis 1 of 3", "Gather", (16, 500, 64), [thousand % 500], {"axis": 1},
             given=1),
        Case("gather_elements", "GatherElements", (256, 1000),
             [np.random.default_rng(1).integers(0, 1000, (256, 300))], {"axis": 1}, given=1),
        Case("gather_nd", "GatherND", (1000, 64), [np.arange(0, 1000, 10)[:, None]], given=1),
        Case("scatter_nd", "ScatterND", (1000, 64), [np.arange(0, 1000, 10)[:, None], (100, 64)]),
        Case("scatter_elements", "ScatterElements", (256, 1000),
             [np.tile(np.arange(0, 1000, 4), (256, 1)), (256, 250)], {"axis": 1}, given=2),
        Case("one_hot", "OneHot", (1000,), [np.array(100), np.float32([0, 1])], dtype=np.int64),
        Case("top_k of 8400", "TopK", (1, 8400), [np.array([300])], results=2),
        Case("top_k of rows", "TopK", (64, 1000), [np.array([5])], results=2),
        Case("non_max_suppression", "NonMaxSuppression", (1, 1000, 4),
             [(1, 20, 1000), np.array([100]), np.float32([0.5]), np.float32([0.3])], given=1),
        Case("reverse_sequence", "ReverseSequence", (64, 32, 16),
             [np.full(32, 40)], {"time_axis": 0, "batch_axis": 1}),
    ]  # fmt: skip


def _recurrent() -> list[Case]:
    return [
        _unit("lstm", "LSTM", 4, (50, 1, 64), 64),
        _unit("gru", "GRU", 3, (50, 1, 64), 64),
        _unit("lstm of 512", "LSTM", 4, (20, 1, 512), 512),
        _unit("gru of 512", "GRU", 3, (20, 1, 512), 512),
        _unit("lstm, batch of 8", "LSTM", 4, (20, 8, 128), 128),
    ]


def _unit(name: str, op: str, gates: int, shape: tuple[int, int, int], hidden: int) -> Case:
    """A recurrent network, its weights so small that rounding does not grow with the steps."""
    drawn = np.random.default_rng(3)
    sizes = ((1, gates * hidden, shape[2]), (1, gates * hidden, hidden))
    weights = [(drawn.standard_normal(size) / hidden**0.5).astype(np.float32) for size in sizes]
    return Case(name, op, shape, weights, {"hidden_size": hidden})


def _elementwise() -> list[Case]:
    names = ("Exp", "Log", "Tanh", "Sigmoid", "Erf", "Softplus", "Sin", "Sqrt", "Round", "Gelu")
    more = ("HardSwish", "LeakyRelu", "Elu", "Neg", "Reciprocal", "Mish", "Atan", "Softsign")
    lone = [Case(name.lower(), name, (100_000,), opset=20) for name in (*names, *more)]
    binary = [
        Case(f"{name.lower()} of two", name, (99_991,), [(99_991,)], given=1)
        for name in ("Add", "Div", "Max")
    ]
    positive = np.abs(np.random.default_rng(2).standard_normal(100_000)).astype(np.float32)
    return [
        *lone,
        *binary,
        Case("pow of two", "Pow", (100_000,), [positive], given=1),
        Case("pow of 3", "Pow", (100_000,), [np.float32(3)]),
        Case("pow of 1.7", "Pow", (100_000,), [np.float32(1.7)]),
        Case("clip", "Clip", (100_000,), [np.float32(-1), np.float32(1)]),
        Case("greater", "Greater", (100_000,), [(100_000,)], given=1),
        Case("mod", "Mod", (100_000,), [np.int32([7])], dtype=np.int32),
        Case("div int64", "Div", (100_000,), [np.int64([7])], dtype=np.int64),
        Case("sum of three", "Sum", (100_000,), [(100_000,), (100_000,)], given=2),
        Case("p_relu", "PRelu", IMAGE, [(64, 1, 1)]),
    ]


def _types() -> list[Case]:
    scale, zero = np.float32(0.1), np.uint8(128)
    casts = [
        Case(f"cast {np.dtype(a).name} to {b}", "Cast", (100_000,), dtype=a,
             attrs={"to": getattr(onnx.TensorProto, b.upper())})
        for a, b in ((np.float32, "float16"), (np.float16, "float"), (np.float32, "int32"),
                     (np.int64, "float"), (np.float32, "int8"), (np.float32, "int64"))
    ]  # fmt: skip
    return [
        *casts,
        Case("add float16", "Add", (100_000,), [(100_000,)], dtype=np.float16, given=1),
        Case("add float64", "Add", (100_000,), [(100_000,)], dtype=np.float64, given=1),
        Case("add int64", "Add", (100_000,), [(100_000,)], dtype=np.int64, given=1),
        Case("mul int64", "Mul", (100_000,), [(100_000,)], dtype=np.int64, given=1),
        Case("sigmoid float16", "Sigmoid", (100_000,), dtype=np.float16),
        Case("exp float64", "Exp", (100_000,), dtype=np.float64),
        Case("tanh float64", "Tanh", (100_000,), dtype=np.float64),
        Case("relu float16", "Relu", (100_000,), dtype=np.float16),
        Case("relu int8", "Relu", (100_000,), dtype=np.int8),
        Case("softmax float16", "Softmax", (64, 1000), dtype=np.float16),
        Case("softmax float64", "Softmax", (64, 1000), dtype=np.float64),
        Case("layer_norm float16", "LayerNormalization", (128, 768), [(768,), (768,)],
             dtype=np.float16, opset=17),
        Case("max_pool int8", "MaxPool", IMAGE, attrs={"kernel_shape": [2, 2],
             "strides": [2, 2]}, dtype=np.int8),
        Case("quantize", "QuantizeLinear", (100_000,), [scale, zero]),
        Case("dequantize", "DequantizeLinear", (100_000,), [scale, zero], dtype=np.uint8),
        Case("qlinear_conv", "QLinearConv", (1, 64, 28, 28), [scale, zero,
             np.ones((64, 64, 3, 3), np.int8), scale, np.int8(0), scale, zero], SAME, np.uint8),
        Case("qlinear_matmul", "QLinearMatMul", (128, 256), [scale, zero,
             np.ones((256, 256), np.int8), scale, np.int8(0), scale, zero], dtype=np.uint8),
        Case("matmul_integer", "MatMulInteger", (128, 256), [(256, 256)], dtype=np.uint8),
        Case("dynamic_quantize", "DynamicQuantizeLinear", (100_000,), results=3),
    ]  # fmt: skip
