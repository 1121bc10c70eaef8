# SPDX-License-Identifier: Apache-2.0
"""Kinds for the tests of targets: two CPU backends, a GPU backend, two accelerators, aliases."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from intarsia.target.kind import Role, TargetKind
from intarsia.target.kind_table import KindTable
from intarsia.target.options import option
from intarsia.target.target import Target
from intarsia_runtime.errors import TargetError


@dataclass(frozen=True, kw_only=True)
class CpuOptions:
    mcpu: str = option("generic", doc="processor")
    mattr: tuple[str, ...] = option((), doc="features")
    num_threads: int = option(0, doc="threads", minimum=0, maximum=1024)
    fast_math: bool = option(False, doc="relax")
    vectorize: bool = option(True, doc="use vectors")
    scale: float = option(1.0, doc="a number", minimum=-1e9)
    tiles: tuple[int, ...] = option((8, 8), doc="tile sizes", minimum=1)


@dataclass(frozen=True, kw_only=True)
class NpuOptions:
    variant: str = option("n78", doc="hardware", choices=("n77", "n78"))
    level: Literal[0, 1, 2] = option(1, doc="effort")
    accelerator_config: str = option("", doc="configuration")
    sram: int = option(64, doc="kB", flag="sram-size")


@dataclass(frozen=True, kw_only=True)
class NoOptions:
    pass


def fill_in(target: Target[CpuOptions]) -> Target[CpuOptions]:
    options = target.options
    if options.fast_math and options.mcpu == "strict":
        raise TargetError("-fast-math does not go with -mcpu=strict", option="fast-math")
    if options.mcpu == "native":
        return replace(target, options=replace(options, mcpu="host-cpu"))
    return target


KINDS = KindTable.of(
    TargetKind("loops", Role.BACKEND, CpuOptions),
    TargetKind("c99", Role.BACKEND, NoOptions),
    TargetKind("gpu", Role.BACKEND, CpuOptions, device_type=2, host="loops"),
    TargetKind("orphan", Role.BACKEND, NoOptions, device_type=2),
    TargetKind("npu", Role.ACCELERATOR, NpuOptions),
    TargetKind("ethos-like", Role.ACCELERATOR, NpuOptions),
    aliases={
        "fast": "npu -variant=n77, loops",
        "cpu": "loops -num-threads=1",
        "both": "ethos-like, fast",
        "round": "square",
        "square": "round",
        "wrong": "npu -variant=n99, loops",
    },
    canonical={"loops": fill_in},
)
