# SPDX-License-Identifier: Apache-2.0
"""The target kind ``dnnl`` and its options."""

from __future__ import annotations

from dataclasses import dataclass

from intarsia.plugin.accelerator import Role, TargetKind, option


@dataclass(frozen=True, kw_only=True)
class DnnlOptions:
    """What a user may set."""

    num_threads: int = option(
        0, doc="threads of a primitive; 0 takes what the run asks for", minimum=0, maximum=1024
    )
    fpmath_mode: str = option(
        "strict",
        doc="what fp32 convolutions and matrix products may compute in; with bf16, values between"
        " them are kept in it",
        choices=("strict", "bf16", "tf32", "any"),
    )
    int8: str = option(
        "auto",
        doc="take products of 8-bit integers: auto if this processor adds them in 32 bits"
        " (VNNI, dot products), and then running needs that too, and if the library may use its"
        " matrix unit; on whatever processor builds",
        choices=("auto", "on", "off"),
    )
    special: str = option(
        "library",
        doc="NaN and infinities: library leaves them to it, and where NaN reaches a ReLU, clip,"
        " hard sigmoid or maximum, a number comes out; exact gives those to the fallback, and"
        " computes ReLU by an exponential: 1.05 to 1.5 times the time of a convolution",
        choices=("library", "exact"),
    )
    library: str = option("", doc="path of libdnnl.so.3; empty finds it when the model is loaded")
    prepack: bool = option(
        True,
        doc="store weights in the layout that the library of the building machine wants; one"
        " that wants another reorders them when the model is loaded, as it does all without this",
    )
    min_flops: int = option(
        1,
        doc="slow: regions with fewer operations than this; element-wise operators count as none",
        minimum=0,
    )
    min_gain: int = option(
        2,
        doc="slow: regions where the library is less than this many percent faster than the"
        " fallback's code, by what was measured for the instructions that both may use on this"
        " processor; 0 keeps them",
        minimum=0,
        maximum=100,
    )
    min_reuse: int = option(
        200,
        doc="slow: regions whose convolutions do fewer operations than this for each byte of"
        " images at their border, which the library reorders; 0 keeps them",
        minimum=0,
    )
    max_windows: int = option(
        20,
        doc="slow: regions of which 3x3 convolutions of stride 1 are more than this part of the"
        " operations, in percent: the fallback computes them with fewer; 100 keeps them",
        minimum=0,
        maximum=100,
    )
    min_grain: int = option(
        10_000_000,
        doc="slow: regions of a dozen operators or more that do fewer operations each than this,"
        " as a call of the library costs; 0 keeps them",
        minimum=0,
    )


DNNL = TargetKind(
    name="dnnl",
    role=Role.ACCELERATOR,
    options=DnnlOptions,
    summary="oneDNN: convolution, matrix product, pooling, normalization, fp32 and int8",
)
