# SPDX-License-Identifier: Apache-2.0
"""Numbers of oneDNN's C API version 3, by the names that region programs use.

They are part of the library's ABI: equal in every 3.x release.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType

BF16, F32, S32 = 2, 3, 4
DTYPES: Mapping[str, int] = MappingProxyType({"float32": F32, "int32": S32, "int8": 5, "uint8": 6})
BYTES: Mapping[int, int] = MappingProxyType({BF16: 2, F32: 4, S32: 4, 5: 1, 6: 1})
FORWARD_INFERENCE = 96
ANY_TAG = 1
BLOCKED = 2
USER_SCRATCHPAD = 1
USE_GLOBAL_STATS, USE_SCALE, USE_SHIFT = 1, 2, 4
CONVOLUTION_DIRECT = 1
DECONVOLUTION_DIRECT = 10
LRN_ACROSS_CHANNELS = 0xAFF
SOFTMAX_ACCURATE, SOFTMAX_LOG = 0x30000, 0x30001


class Arg(IntEnum):
    """Role of a memory in one execution of a primitive."""

    SRC = 1
    SRC_1 = 2
    DST = 17
    WEIGHTS = 33
    BIAS = 41
    MEAN = 49
    VARIANCE = 50
    SCALE = 51
    SHIFT = 52
    SCRATCHPAD = 80
    MULTIPLE_SRC = 1024
    SCALES_OF = 4096
    ZERO_POINT_OF = 8192
    POST_OP = 32768


class Query(IntEnum):
    """What to ask a descriptor."""

    IMPLEMENTATION = 8
    STRIDES = 14
    SRC = 129
    WEIGHTS = 131
    DST = 133
    SCRATCHPAD = 136
    ARGUMENT = 255
    RANK = 256
    DIMS = 257
    PADDED_DIMS = 260
    FORMAT_KIND = 262
    INNER_BLOCKS = 263
    INNER_SIZES = 264
    INNER_AXES = 265


ELTWISE: Mapping[str, int] = MappingProxyType(
    {
        name: 0x20 + index
        for index, name in enumerate(
            [
                "relu",
                "tanh",
                "elu",
                "square",
                "abs",
                "sqrt",
                "linear",
                "soft_relu",
                "hardsigmoid",
                "logistic",
                "exp",
                "gelu_tanh",
                "swish",
                "log",
                "clip",
                "clip_v2",
                "pow",
                "gelu_erf",
                "round",
                "mish",
                "hardswish",
            ]
        )
    }
)
BINARY: Mapping[str, int] = MappingProxyType(
    {
        name: 0x1FFF0 + index
        for index, name in enumerate(
            ["add", "mul", "max", "min", "div", "sub", "ge", "gt", "le", "lt", "eq", "ne"]
        )
    }
)
POOLING: Mapping[str, int] = MappingProxyType(
    {"max": 0x1FF, "avg_include_padding": 0x2FF, "avg_exclude_padding": 0x3FF}
)
REDUCTION: Mapping[str, int] = MappingProxyType(
    {name: 0x2FFF2 + index for index, name in enumerate(["max", "min", "sum", "mul", "mean"])}
)
RESAMPLING: Mapping[str, int] = MappingProxyType({"nearest": 0x2FFF0, "linear": 0x2FFF1})
FPMATH: Mapping[str, int] = MappingProxyType(
    {"strict": 0, "bf16": 1, "f16": 2, "any": 3, "tf32": 4}
)
STATUS: Mapping[int, str] = MappingProxyType(
    {
        1: "out of memory",
        2: "invalid arguments",
        3: "not implemented by this library for this machine",
        4: "no further implementation",
        5: "runtime error",
        6: "not required",
    }
)
