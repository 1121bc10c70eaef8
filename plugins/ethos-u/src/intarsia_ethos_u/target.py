# SPDX-License-Identifier: Apache-2.0
"""The target kind ``ethos-u`` and its options."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

from intarsia.plugin.accelerator import Memory, Role, TargetError, TargetKind, option

ACCELERATORS = (
    "ethos-u55-32",
    "ethos-u55-64",
    "ethos-u55-128",
    "ethos-u55-256",
    "ethos-u65-256",
    "ethos-u65-512",
    "ethos-u85-128",
    "ethos-u85-256",
    "ethos-u85-512",
    "ethos-u85-1024",
    "ethos-u85-2048",
)
"""Configurations by Vela's names; the last number is multiply-accumulates in a cycle."""


@dataclass(frozen=True, kw_only=True)
class EthosUOptions:
    """What a user may set."""

    accelerator_config: str = option(
        "ethos-u55-256", doc="which Ethos-U, and its multipliers", choices=ACCELERATORS
    )
    system_config: str = option(
        "", doc="section System_Config of -config; empty takes Arm's for the accelerator"
    )
    memory_mode: str = option(
        "", doc="section Memory_Mode of -config; empty takes Arm's for the accelerator"
    )
    config: str = option("Arm/vela.ini", doc="Vela's file of system configurations")
    optimise: str = option("performance", doc="what Vela prefers", choices=("performance", "size"))
    arena_cache_size: int = option(
        0, doc="bytes of the arena that Vela may plan with; 0 takes the memory mode's", minimum=0
    )
    vela: str = option("", doc="path of the program vela; empty finds it")
    simulate: bool = option(
        False, doc="compute regions by NumPy on this machine when run: no Ethos-U takes part"
    )
    keep_tosa: bool = option(False, doc="keep the TOSA flatbuffer of each region in the artifact")
    min_macs: int = option(
        1, doc="drop regions with fewer multiply-accumulates than this", minimum=0
    )

    @property
    def family(self) -> str:
        """The first two parts of the configuration: ``ethos-u85``."""
        return self.accelerator_config.rsplit("-", 1)[0]

    @property
    def system(self) -> tuple[str, str]:
        """System configuration and memory mode: the user's, or Arm's for the accelerator."""
        system, mode = DEFAULT_SYSTEMS[self.family]
        return self.system_config or system, self.memory_mode or mode


DEFAULT_SYSTEMS = MappingProxyType(
    {
        "ethos-u55": ("Ethos_U55_High_End_Embedded", "Shared_Sram"),
        "ethos-u65": ("Ethos_U65_High_End", "Dedicated_Sram_384KB"),
        "ethos-u85": ("Ethos_U85_SYS_DRAM_Mid", "Dedicated_Sram_384KB"),
    }
)
"""What ``Arm/vela.ini`` means for each family: system configuration and memory mode."""


def canonicalize(options: EthosUOptions) -> EthosUOptions:
    """Check what the types do not say.

    Raises:
        TargetError: There is no file of configurations to take the sections from.
    """
    if not options.config:
        raise TargetError(
            "-config is empty", hint="leave it away for Arm/vela.ini", option="config"
        )
    return options


ETHOS_U = TargetKind(
    name="ethos-u",
    role=Role.ACCELERATOR,
    options=EthosUOptions,
    summary="Ethos-U: 8-bit convolution, matrix product, pooling, element-wise",
    memory=(Memory("global", 16, 0),),
    channels_last=True,
)
