# SPDX-License-Identifier: Apache-2.0
"""More single operators for ``tests.bench.operators``: forms and shapes that models are made of."""

from __future__ import annotations

import numpy as np
import onnx

from .operator_cases import LAST, PICTURE, SAME, Case

SMALL = (1, 512, 7, 7)
TOKENS = (1, 197, 768)


def model_cases() -> list[Case]:
    """Return forms of operators taken from networks for pictures, text and sound."""
    return [
        *_convolutions(),
        *_products(),
        *_pools(),
        *_resized(),
        *_normalized(),
        *_reduced(),
        *_moved(),
        *_elementwise(),
        *_quantized(),
    ]


def _convolutions() -> list[Case]:
    def depthwise(name: str, channels: int, size: int, kernel: int, stride: int) -> Case:
        attrs = {"group": channels, "strides": [stride] * 2, "pads": [kernel // 2] * 4}
        weights = (channels, 1, kernel, kernel)
        return Case(name, "Conv", (1, channels, size, size), [weights, (channels,)], attrs)

    return [
        depthwise("conv depthwise 7x7", 96, 56, 7, 1),
        depthwise("conv depthwise 5x5, stride 2", 120, 28, 5, 2),
        depthwise("conv depthwise 3x3", 144, 56, 3, 1),
        Case("conv 7x7, stride 2, of a photo", "Conv", (1, 3, 224, 224), [(64, 3, 7, 7), (64,)],
             {"strides": [2, 2], "pads": [3] * 4}),
        Case("conv 16x16, stride 16", "Conv", (1, 3, 224, 224), [(192, 3, 16, 16), (192,)],
             {"strides": [16, 16]}),
        Case("conv 3x3", "Conv", PICTURE, [(64, 64, 3, 3), (64,)], SAME),
        Case("conv 3x3, stride 2", "Conv", PICTURE, [(128, 64, 3, 3)], {**SAME, "strides": [2, 2]}),
        Case("conv 3x3, dilated", "Conv", (1, 64, 28, 28), [(64, 64, 3, 3)],
             {"dilations": [2, 2], "pads": [2] * 4}),
        Case("conv 1x1", "Conv", PICTURE, [(256, 64, 1, 1), (256,)]),
        Case("conv 1x1, stride 2", "Conv", PICTURE, [(128, 64, 1, 1)], {"strides": [2, 2]}),
        Case("conv 1x1 of 7x7", "Conv", SMALL, [(512, 512, 1, 1)]),
        Case("conv 1x1 to one channel", "Conv", PICTURE, [(1, 64, 1, 1)]),
        Case("conv 5x5", "Conv", (1, 32, 28, 28), [(64, 32, 5, 5)], {"pads": [2] * 4}),
        Case("conv 1-D depthwise", "Conv", (1, 256, 200), [(256, 1, 31)],
             {"group": 256, "pads": [15, 15]}),
        Case("conv of sound", "Conv", (1, 1, 16000), [(64, 1, 10)], {"strides": [5]}),
        Case("conv, batch of 8", "Conv", (8, 32, 28, 28), [(32, 32, 3, 3)], SAME),
        Case("conv_transpose 4x4, depthwise", "ConvTranspose", (1, 32, 28, 28), [(32, 1, 4, 4)],
             {"strides": [2, 2], "pads": [1] * 4, "group": 32}),
    ]  # fmt: skip


def _products() -> list[Case]:
    return [
        Case("matmul of tokens", "MatMul", (1, 128, 768), [(768, 768)]),
        Case("matmul, batch by one", "MatMul", (12, 128, 64), [(64, 64)], given=1),
        Case("matmul, one by batch", "MatMul", (128, 64), [(12, 64, 64)], given=1),
        Case("matmul, batches spread", "MatMul", (4, 1, 64, 64), [(1, 4, 64, 64)], given=1),
        Case("matmul of a token, QK", "MatMul", (12, 1, 64), [(12, 64, 512)], given=1),
        Case("matmul to one column", "MatMul", (512, 512), [(512, 1)]),
        Case("matmul to ten columns", "MatMul", (256, 512), [(512, 10)]),
        Case("gemm of one row", "Gemm", (1, 1280), [(1000, 1280), (1000,)], {"transB": 1}),
        Case("gemm, weights and row given", "Gemm", (1, 512), [(256, 512)], {"transB": 1}, given=1),
        Case("einsum, trace", "Einsum", (16, 64, 64), attrs={"equation": "bii->b"}),
        Case("einsum, outer", "Einsum", (256,), [(300,)], {"equation": "i,j->ij"}, given=1),
        Case("einsum, mix", "Einsum", (4, 128, 64), [(64, 8, 16)], {"equation": "bsd,dhe->bhse"}),
    ]  # fmt: skip


def _pools() -> list[Case]:
    def pool(name: str, op: str, shape: tuple[int, ...], kernel: int, stride: int) -> Case:
        attrs = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [kernel // 2] * 4}
        return Case(name, op, shape, attrs=attrs)

    return [
        pool("max_pool 3x3 of 28", "MaxPool", (1, 192, 28, 28), 3, 1),
        pool("max_pool 3x3 of 13", "MaxPool", (1, 256, 13, 13), 3, 2),
        pool("max_pool 3x3 of 7", "MaxPool", SMALL, 3, 1),
        pool("max_pool 5x5", "MaxPool", (1, 256, 20, 20), 5, 1),
        pool("max_pool 13x13", "MaxPool", (1, 256, 20, 20), 13, 1),
        pool("avg_pool 3x3", "AveragePool", (1, 192, 28, 28), 3, 1),
        pool("avg_pool 3x3 of 7", "AveragePool", SMALL, 3, 1),
        Case("avg_pool 7x7", "AveragePool", SMALL, attrs={"kernel_shape": [7, 7]}),
        Case("avg_pool 2x2 of 14", "AveragePool", (1, 256, 14, 14),
             attrs={"kernel_shape": [2, 2], "strides": [2, 2]}),
        Case("avg_pool 1-D", "AveragePool", (1, 64, 1000),
             attrs={"kernel_shape": [25], "pads": [12, 12]}),
        Case("max_pool with ceil_mode", "MaxPool", (1, 64, 55, 55),
             attrs={"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}),
        Case("max_pool, places too", "MaxPool", PICTURE, attrs={"kernel_shape": [2, 2],
             "strides": [2, 2]}, results=2),
        Case("global_max_pool", "GlobalMaxPool", SMALL),
        Case("global_avg_pool of 56", "GlobalAveragePool", PICTURE),
        Case("lp_pool", "LpPool", PICTURE, attrs={"kernel_shape": [2, 2], "strides": [2, 2]}),
    ]  # fmt: skip


def _resized() -> list[Case]:
    def resize(name: str, shape: tuple[int, ...], scale: float, **attrs: object) -> Case:
        scales = np.array([1, 1, scale, scale], np.float32)
        return Case(name, "Resize", shape, [np.empty(0, np.float32), scales], attrs)

    asymmetric = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    return [
        resize("resize nearest of 40", (1, 128, 40, 40), 2, mode="nearest", **asymmetric),
        resize("resize linear of 40", (1, 64, 40, 40), 2, mode="linear"),
        resize("resize linear to half", PICTURE, 0.5, mode="linear"),
        resize("resize linear of a photo", (1, 3, 256, 256), 0.875, mode="linear"),
        Case("resize to classes", "Resize", (1, 21, 33, 33), [
             np.empty(0, np.float32), np.empty(0, np.float32), np.array([1, 21, 257, 257])],
             {"mode": "linear"}),
        Case("grid_sample nearest", "GridSample", (1, 32, 28, 28), [(1, 28, 28, 2)], given=1,
             attrs={"mode": "nearest"}),
        Case("depth_to_space CRD", "DepthToSpace", (1, 36, 56, 56),
             attrs={"blocksize": 3, "mode": "CRD"}),
        Case("pad a photo", "Pad", (1, 3, 224, 224), [np.array([0, 0, 3, 3, 0, 0, 3, 3])]),
        Case("pad channels", "Pad", PICTURE, [np.array([0, 0, 0, 0, 0, 16, 0, 0])]),
    ]  # fmt: skip


def _normalized() -> list[Case]:
    return [
        Case("layer_norm of tokens", "LayerNormalization", TOKENS, [(768,), (768,)]),
        Case("layer_norm of 64", "LayerNormalization", (1024, 64), [(64,), (64,)]),
        Case("group_norm, 32 groups", "GroupNormalization", (1, 320, 32, 32), [(320,), (320,)],
             {"num_groups": 32}, opset=21),
        Case("instance_norm of 7", "InstanceNormalization", SMALL, [(512,), (512,)]),
        Case("instance_norm of a line", "InstanceNormalization", (1, 64, 1000), [(64,), (64,)]),
        Case("mean_variance_normalization", "MeanVarianceNormalization", PICTURE,
             attrs={"axes": [2, 3]}),
        Case("softmax of 21", "Softmax", (8400, 21)),
        Case("softmax of 2", "Softmax", (8732, 2)),
        Case("softmax of attention", "Softmax", (1, 12, 197, 197)),
        Case("softmax of words", "Softmax", (1, 50_257)),
        Case("softmax of the middle", "Softmax", (1, 4, 16, 8400), attrs={"axis": 2}),
    ]  # fmt: skip


def _reduced() -> list[Case]:
    planes = np.array([2, 3])
    return [
        Case("reduce_mean of planes", "ReduceMean", PICTURE, [planes]),
        Case("reduce_mean of channels", "ReduceMean", PICTURE, [LAST]),
        Case("reduce_max of channels", "ReduceMax", PICTURE, [LAST]),
        Case("reduce_mean of tokens", "ReduceMean", TOKENS, [np.array([1])]),
        Case("reduce_mean of a token", "ReduceMean", TOKENS, [np.array([2])]),
        Case("reduce_sum_square", "ReduceSumSquare", (64, 1000), [LAST]),
        Case("reduce_min", "ReduceMin", (64, 1000), [LAST]),
        Case("reduce_l1", "ReduceL1", (64, 1000), [LAST]),
        Case("reduce_sum of outer", "ReduceSum", (8, 128, 256), [np.array([0, 2])]),
        Case("argmax of words", "ArgMax", (1, 50_257), attrs={"axis": 1}),
        Case("argmin of rows", "ArgMin", (1000, 10), attrs={"axis": 1}),
        Case("top_k of 1000", "TopK", (1, 1000), [np.array([5])], results=2),
        Case("top_k of channels", "TopK", (1, 64, 1000), [np.array([3])], {"axis": 1}, results=2),
    ]  # fmt: skip


def _moved() -> list[Case]:
    words = np.random.default_rng(4).integers(0, 5000, 128)
    return [
        Case("transpose of a photo", "Transpose", (1, 224, 224, 3), attrs={"perm": [0, 3, 1, 2]}),
        Case("transpose of a photo, last", "Transpose", (1, 3, 224, 224),
             attrs={"perm": [0, 2, 3, 1]}),
        Case("transpose uint8 of a photo", "Transpose", (1, 224, 224, 3),
             attrs={"perm": [0, 3, 1, 2]}, dtype=np.uint8),
        Case("transpose of keys", "Transpose", (1, 128, 12, 64), attrs={"perm": [0, 2, 3, 1]}),
        Case("transpose of groups", "Transpose", (1, 8, 29, 28, 28),
             attrs={"perm": [0, 2, 1, 3, 4]}),
        Case("transpose of windows", "Transpose", (8, 7, 8, 7, 96),
             attrs={"perm": [0, 2, 1, 3, 4]}),
        Case("concat of pictures", "Concat", (1, 256, 28, 28), [(1, 64, 28, 28)], {"axis": 1},
             given=1),
        Case("concat of tokens", "Concat", (1, 1, 768), [(1, 196, 768)], {"axis": 1}, given=1),
        Case("concat, last", "Concat", (1, 8400, 4), [(1, 8400, 80)], {"axis": 2}, given=1),
        Case("split in three", "Split", (1, 197, 2304), [np.array([768] * 3)], {"axis": 2},
             results=3),
        Case("slice a crop", "Slice", PICTURE, [np.array([4, 4]), np.array([52, 52]),
             np.array([2, 3])]),
        Case("slice channels", "Slice", PICTURE, [np.array([16]), np.array([48]), np.array([1])]),
        Case("slice every second", "Slice", (1, 3, 224, 224), [np.array([0, 0]),
             np.array([224, 224]), np.array([2, 3]), np.array([2, 2])]),
        Case("gather of words", "Gather", (5000, 768), [words]),
        Case("gather of one", "Gather", TOKENS, [np.array(0)], {"axis": 1}),
        Case("gather of columns", "Gather", (1, 8400, 84), [np.array([1, 0, 3, 2])], {"axis": 2}),
        Case("gather_elements of axis 0", "GatherElements", (1000, 256),
             [np.random.default_rng(1).integers(0, 1000, (300, 256))], {"axis": 0}, given=1),
        Case("scatter_nd of rows", "ScatterND", (1, 512, 64), [
             np.stack([np.zeros(100, np.int64), np.arange(0, 500, 5)], 1), (100, 64)], given=2),
        Case("scatter_elements, added", "ScatterElements", (1000, 64),
             [np.random.default_rng(1).integers(0, 1000, (500, 64)), (500, 64)],
             {"axis": 0, "reduction": "add"}, given=2),
        Case("tile of rows", "Tile", (1, 77, 768), [np.array([2, 1, 1])]),
        Case("expand of heads", "Expand", (1, 4, 1, 128, 64), [np.array([1, 4, 3, 128, 64])]),
        Case("cumsum int64", "CumSum", (64, 1024), [np.array(1)], dtype=np.int64),
        Case("range of places", "CumSum", (1, 8400), [np.array(1)], dtype=np.int32),
    ]  # fmt: skip


def _elementwise() -> list[Case]:
    names = ("Abs", "Ceil", "Floor", "Sign", "Cos", "Relu", "HardSigmoid", "Selu", "Celu", "Tan")
    more = ("Asin", "Sinh", "Acosh", "Atanh", "ThresholdedRelu", "Identity")
    lone = [Case(name.lower(), name, (100_000,)) for name in (*names, *more)]
    flags = [
        Case(f"{name.lower()} of flags", name, (100_000,), [(100_000,)], dtype=np.bool_, given=1)
        for name in ("And", "Xor")
    ]
    pairs = [
        Case(f"{name.lower()} of two", name, (100_000,), [(100_000,)], given=1)
        for name in ("Sub", "Mul", "Min", "Equal", "LessOrEqual")
    ]
    casts = [
        Case(f"cast {np.dtype(a).name} to {b}", "Cast", (100_000,), dtype=a,
             attrs={"to": onnx.TensorProto.DataType.Value(b.upper())})
        for a, b in ((np.uint8, "float"), (np.bool_, "float"), (np.float32, "bool"),
                     (np.int32, "int64"), (np.int64, "int32"), (np.float64, "float"),
                     (np.float32, "double"), (np.float32, "uint8"))
    ]  # fmt: skip
    channel = (1, 64, 1, 1)
    return [
        *lone,
        *flags,
        *pairs,
        *casts,
        Case("gelu by tanh", "Gelu", (100_000,), attrs={"approximate": "tanh"}, opset=20),
        Case("pow of 2", "Pow", (100_000,), [np.float32(2)]),
        Case("pow of 0.5", "Pow", (100_000,), [np.float32(0.5)]),
        Case("mul of channels", "Mul", PICTURE, [channel], given=1),
        Case("mul of a plane", "Mul", PICTURE, [(1, 1, 56, 56)], given=1),
        Case("add of tokens", "Add", TOKENS, [(768,)]),
        Case("add of two pictures", "Add", PICTURE, [PICTURE], given=1),
        Case("mul by a number", "Mul", PICTURE, [np.float32(0.125)]),
        Case("not", "Not", (100_000,), dtype=np.bool_),
        Case("isnan", "IsNaN", (100_000,)),
        Case("fmod", "Mod", (100_000,), [np.float32([0.7])], {"fmod": 1}),
        Case("bit_shift", "BitShift", (100_000,), [np.uint32([3])], {"direction": "RIGHT"},
             np.uint32),
        Case("equal int64", "Equal", (100_000,), [(100_000,)], dtype=np.int64, given=1),
        Case("sub int32", "Sub", (100_000,), [(100_000,)], dtype=np.int32, given=1),
        Case("mul float16", "Mul", (100_000,), [(100_000,)], dtype=np.float16, given=1),
        Case("mean of three", "Mean", (100_000,), [(100_000,), (100_000,)], given=2),
    ]  # fmt: skip


def _quantized() -> list[Case]:
    scale, zero = np.float32(0.1), np.uint8(128)
    scales, zeros = np.full(64, 0.1, np.float32), np.zeros(64, np.int8)
    return [
        Case("quantize by channel", "QuantizeLinear", PICTURE, [scales, zeros], {"axis": 1}),
        Case("dequantize by channel", "DequantizeLinear", (64, 1000), [scales, zeros],
             {"axis": 0}, np.int8),
        Case("qlinear_conv 1x1", "QLinearConv", PICTURE, [scale, zero,
             np.ones((128, 64, 1, 1), np.int8), scale, np.int8(0), scale, zero], dtype=np.uint8),
        Case("qlinear_conv depthwise", "QLinearConv", PICTURE, [scale, zero,
             np.ones((64, 1, 3, 3), np.int8), scale, np.int8(0), scale, zero],
             {**SAME, "group": 64}, np.uint8),
        Case("conv_integer", "ConvInteger", (1, 64, 28, 28), [np.ones((64, 64, 3, 3), np.int8)],
             SAME, np.uint8),
        Case("max_pool uint8", "MaxPool", PICTURE, attrs={"kernel_shape": [3, 3],
             "strides": [2, 2], **SAME}, dtype=np.uint8),
        Case("resize nearest uint8", "Resize", (1, 32, 28, 28),
             [np.empty(0, np.float32), np.array([1, 1, 2, 2], np.float32)], {"mode": "nearest"},
             np.uint8),
    ]  # fmt: skip
