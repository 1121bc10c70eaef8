# SPDX-License-Identifier: Apache-2.0
"""The machine that code is generated for: all that a process which only compiles has to know."""

from __future__ import annotations

from typing import NamedTuple


class CodegenMachine(NamedTuple):
    """What code generation needs to know.

    Attributes:
        triple: LLVM's name of the machine.
        cpu: Processor whose features code may use, for LLVM.
        features: LLVM's feature string.
        lanes: Elements of type float32 in a vector register.
        registers: Vector registers.
        cpu_features: What a machine must have, as the Linux kernel names it.
        half: Whether instructions convert float16.
        dot: Whether an instruction adds up four products of bytes.
        signed_dot: Whether an instruction adds up four products of signed bytes.
        signed_matrix: Whether one multiplies two rows of signed bytes by two columns.
        signed_pairs: Whether one multiplies signed bytes, and others add up neighbours (NEON).
        pairs: Whether one adds up two products of 16-bit integers, in all lanes.
        byte_pairs: Whether one adds up two products of bytes in 16 bits, in all lanes.
        bare: Whether there is no operating system, as on a microcontroller.
        scale: Whether an instruction multiplies floats by powers of two.
        amx: Whether there is a unit that multiplies matrices of bytes.
        amx_bf16: Whether there is one for bfloat16, which may multiply float32.
        bf16_dot: Whether one adds up two products of bfloat16, and may (AVX512-BF16).
        bf16_matrix: Whether an instruction multiplies two rows of bfloat16 by two columns, and may.
        half_sums: Whether one multiplies and adds float16, and sums may be of it.
        bfloat: Whether instructions convert bfloat16, and may: they take subnormal numbers for 0.
    """

    triple: str
    cpu: str
    tune: str
    features: str
    lanes: int
    registers: int
    cpu_features: tuple[str, ...]
    half: bool
    dot: bool = False
    bare: bool = False
    scale: bool = False
    amx: bool = False
    amx_bf16: bool = False
    bfloat: bool = False
    pairs: bool = False
    byte_pairs: bool = False
    signed_dot: bool = False
    signed_matrix: bool = False
    signed_pairs: bool = False
    bf16_dot: bool = False
    bf16_matrix: bool = False
    half_sums: bool = False

    @property
    def follows_mode(self) -> bool:
        """Whether products are computed in a type of 16 bits that the user allows."""
        return self.amx_bf16 or self.bf16_dot or self.bf16_matrix or self.half_sums

    @property
    def packed_lanes(self) -> int:
        """Words that x86 packs to bytes: a vector of AVX2, or two of AVX-512; else 0."""
        features = self.features.split(",")
        if self.registers == 32:
            return 32 if "+avx512bw" in features else 0
        return 8 if "+avx2" in features else 0

    @property
    def byte_tables(self) -> int:
        """What looks up bytes in tables: 2 is ``vpermi2b``, 1 is ``vpermi2w``; 0 if neither is."""
        features = self.features.split(",")
        if self.registers < 32 or self.lanes < 16 or "+avx512bw" not in features:
            return 0
        return 2 if "+avx512vbmi" in features else 1
