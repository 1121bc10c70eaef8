# SPDX-License-Identifier: Apache-2.0
"""The target kind ``tensorrt`` and its options."""

from __future__ import annotations

from dataclasses import dataclass

from intarsia.plugin.accelerator import Role, TargetError, TargetKind, option

from .sdk import MODULES

ARCHITECTURES = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_120", "sm_121")
"""What TensorRT-RTX builds for without a GPU."""

TURING = "sm_75"

ON_THE_GPU = (
    *("sm_87", "sm_88", "sm_90", "sm_90a", "sm_100", "sm_100a", "sm_103", "sm_103a"),
    *("sm_110", "sm_110a", "sm_120a", "sm_121a"),
)
"""GPUs that TensorRT builds for where they are, and TensorRT-RTX does not."""


@dataclass(frozen=True, kw_only=True)
class TensorrtOptions:
    """What a user may set."""

    library: str = option(
        "auto", doc="which edition builds the engines", choices=("auto", *MODULES)
    )
    arch: str = option(
        "auto",
        doc="compute capability that TensorRT-RTX builds for: auto takes that of the backend"
        " behind, or sm_80 if it has none; TensorRT builds for the GPU here",
        choices=("auto", *ARCHITECTURES, *ON_THE_GPU),
    )
    fp16: bool = option(False, doc="compute in float16, but for sums, softmax and normalizations")
    tf32: bool = option(False, doc="round factors of float32 products to TF32")
    int8: bool = option(True, doc="take quantized operators, as quantize and dequantize layers")
    workspace: int = option(
        0, doc="most bytes of scratch memory of an engine; 0 leaves it to the library", minimum=0
    )
    dynamic_batch: tuple[int, ...] = option(
        (),
        doc="least, usual and largest first dimension of an engine: an optimization profile",
        minimum=1,
    )
    timing_cache: str = option(
        "", doc="file in which TensorRT keeps measured times between builds; TensorRT-RTX has none"
    )
    remove_no_mac_regions: bool = option(
        False, doc="give back regions without a convolution, product or reduction"
    )

    @property
    def capability(self) -> str:
        """What TensorRT-RTX builds for."""
        return "sm_80" if self.arch == "auto" else self.arch


def canonicalize(options: TensorrtOptions) -> TensorrtOptions:
    """Check the sizes of a profile.

    Raises:
        TargetError: They are not three, or not in order.
    """
    sizes = options.dynamic_batch
    if sizes and (len(sizes) != 3 or list(sizes) != sorted(sizes)):
        raise TargetError(
            f"-dynamic-batch={','.join(map(str, sizes))} is not the least, the usual and the"
            " largest size",
            hint="-dynamic-batch=1,8,32",
            option="dynamic-batch",
        )
    return options


TENSORRT = TargetKind(
    name="tensorrt",
    role=Role.ACCELERATOR,
    options=TensorrtOptions,
    summary="TensorRT: convolution, matrix product, pooling, normalization, element-wise, indexing",
    follows=("arch",),
)
