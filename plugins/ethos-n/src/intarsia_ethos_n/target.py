# SPDX-License-Identifier: Apache-2.0
"""The target kind ``ethos-n`` and its options."""

from __future__ import annotations

from dataclasses import dataclass, fields

from intarsia.plugin.accelerator import Memory, Role, TargetError, TargetKind, option

from .variants import VARIANTS, Variant

SRAM_BANK = 16 * 1024
"""A bank's memory is a multiple of this."""

SRAM_LEAST = 32 * 1024
SRAM_MOST = 128 * 1024
SRAM_OTHERS = (56 * 1024, 256 * 1024)
"""Sizes of a bank beside the multiples between the least and the most."""


@dataclass(frozen=True, kw_only=True)
class EthosNOptions:
    """What a user may set."""

    variant: str = option(
        "n78-4tops-4ple",
        doc="which Ethos-N78: operations a second and PLE ratio",
        choices=tuple(VARIANTS),
    )
    sram_size: int = option(0, doc="bytes of on-chip memory; 0 takes the variant's", minimum=0)
    ethosn_root: str = option(
        "", doc="folder of the Support Library: include/ and lib/; empty takes ETHOSN_ROOT"
    )
    simulate: bool = option(
        False, doc="compute regions by NumPy on this machine when run: no Ethos-N takes part"
    )
    performance: bool = option(False, doc="estimate the performance of each region")
    min_macs: int = option(
        1, doc="drop regions with fewer multiply-accumulates than this", minimum=0
    )
    strategy0: bool = option(True, doc="the compiler may use strategy 0")
    strategy1: bool = option(True, doc="the compiler may use strategy 1")
    strategy3: bool = option(True, doc="the compiler may use strategy 3")
    strategy4: bool = option(True, doc="the compiler may use strategy 4")
    strategy6: bool = option(True, doc="the compiler may use strategy 6")
    strategy7: bool = option(True, doc="the compiler may use strategy 7")
    block_config_16x16: bool = option(True, doc="the compiler may use blocks of 16x16")
    block_config_32x8: bool = option(True, doc="the compiler may use blocks of 32x8")
    block_config_8x32: bool = option(True, doc="the compiler may use blocks of 8x32")
    block_config_16x8: bool = option(True, doc="the compiler may use blocks of 16x8")
    block_config_8x16: bool = option(True, doc="the compiler may use blocks of 8x16")
    block_config_8x8: bool = option(True, doc="the compiler may use blocks of 8x8")
    intermediate_compression: bool = option(True, doc="compress activations in memory")
    disable_winograd: bool = option(False, doc="multiply every product of a convolution")
    strict_precision: bool = option(False, doc="prefer precision where it costs speed")

    @property
    def memory(self) -> Variant:
        """The variant, with the memory that the user gave."""
        found = VARIANTS[self.variant]
        return Variant(self.sram_size, found.srams) if self.sram_size else found

    def switches(self) -> tuple[str, ...]:
        """Return what the compiler is told, as words ``name=0|1``."""
        return tuple(
            f"{field.name.replace('_', '-')}={int(value)}"
            for field in fields(self)
            if field.name not in _OTHERS
            for value in (vars(self)[field.name],)
        )


_OTHERS = ("variant", "sram_size", "ethosn_root", "simulate", "performance", "min_macs")


def canonicalize(options: EthosNOptions) -> EthosNOptions:
    """Check the memory.

    Raises:
        TargetError: The variant's banks cannot have this size.
    """
    size, banks = options.sram_size, VARIANTS[options.variant].srams
    if size == 0:
        return options
    bank = size // banks
    plain = SRAM_LEAST <= bank <= SRAM_MOST and bank % SRAM_BANK == 0
    if size % banks or not (plain or bank in SRAM_OTHERS):
        raise TargetError(
            f"-sram-size={size}: {options.variant} has {banks} banks, each of a multiple of"
            f" {SRAM_BANK} from {SRAM_LEAST} to {SRAM_MOST}, or of"
            f" {' or '.join(map(str, SRAM_OTHERS))} bytes",
            hint=f"its own size is {VARIANTS[options.variant].sram}",
            option="sram-size",
        )
    return options


ETHOS_N = TargetKind(
    name="ethos-n",
    role=Role.ACCELERATOR,
    options=EthosNOptions,
    summary="Ethos-N78: 8-bit convolution, fully connected, pooling, element-wise",
    memory=(Memory("global", 64, 0),),
    channels_last=True,
)
