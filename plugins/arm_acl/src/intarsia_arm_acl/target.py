# SPDX-License-Identifier: Apache-2.0
"""The target kind ``arm_acl`` and its options."""

from __future__ import annotations

from dataclasses import dataclass

from intarsia.plugin.accelerator import Role, TargetKind, option


@dataclass(frozen=True, kw_only=True)
class ArmAclOptions:
    """What a user may set."""

    acl_root: str = option(
        "", doc="folder with the library's headers and .so files; empty takes the system's"
    )
    compiler: str = option("", doc="C++ compiler for AArch64; empty finds one")
    opt_level: int = option(0, doc="effort of the C++ compiler; the kernels are the library's")
    compile_timeout: int = option(
        600, doc="seconds that the C++ compiler may take for a region", minimum=1
    )
    num_threads: int = option(
        0, doc="threads of the library; 0 takes what the run asks for", minimum=0, maximum=1024
    )


ARM_ACL = TargetKind(
    name="arm_acl",
    role=Role.ACCELERATOR,
    options=ArmAclOptions,
    summary="Arm Compute Library: convolution, matrix product, pooling, element-wise, fp32, int8",
    arches=("aarch64",),
)
