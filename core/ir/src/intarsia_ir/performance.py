# SPDX-License-Identifier: Apache-2.0
"""What devices do in a second, as plugins state it; the plan by cost compares them."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from intarsia_runtime.errors import TargetError


@dataclass(frozen=True, slots=True, kw_only=True)
class Performance:
    """The speeds of a device, for comparing devices; orders of magnitude are enough.

    Attributes:
        flops: Arithmetic operations a second that its kernels reach; a multiply-add is two.
        bandwidth: Bytes a second between its memory and its arithmetic.
        launch: Seconds that calling a region costs beyond its work; of a backend, a kernel.
        copy_bandwidth: Bytes a second at which values cross to it and back; ``None`` if it computes
            in the fallback's memory.
        copy_latency: Seconds for each value that crosses, whatever its size.
    """

    flops: float = 2e10
    bandwidth: float = 1e10
    launch: float = 1e-6
    copy_bandwidth: float | None = None
    copy_latency: float = 0.0

    def __post_init__(self) -> None:
        speeds = (self.flops, self.bandwidth, 1 if (c := self.copy_bandwidth) is None else c)
        if not all(0 < speed < inf for speed in speeds):
            raise TargetError("a Performance needs speeds above 0", where=str(self))
        if not all(0 <= time < inf for time in (self.launch, self.copy_latency)):
            raise TargetError("a Performance needs times of 0 or more", where=str(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class RelativePerformance:
    """The speed of an accelerator, in multiples of the speed of its target's fallback.

    Attributes:
        flops: Arithmetic operations a second, in multiples; all else is equal. Values are copied
            across its border if the device types differ.
    """

    flops: float = 2.0

    def __post_init__(self) -> None:
        if not 0 < self.flops < inf:
            raise TargetError("a RelativePerformance needs a factor above 0", where=str(self))
