# SPDX-License-Identifier: Apache-2.0
"""Cost: what a call costs where, and what a region costs beyond its calls.

The model, in whole picoseconds so that sums are exact and equal on every machine:

* A *heavy* call (convolution, product of matrices, reduction, normalization, pooling) costs the
  larger of its arithmetic and its traffic, by the speeds of its owner's
  :class:`~intarsia_ir.performance.Performance`; on the fallback also the launch of a kernel. A
  *light* call (element-wise work, moving of data) costs nothing where its neighbours are: it is
  fused with them. What a plugin states of a match
  (:meth:`~intarsia_ir.regions.support.Support.yes`) holds instead.
* What was measured (:class:`~intarsia_ir.partition.measured.MeasuredSeconds`) holds instead of the
  model, but not instead of what a plugin states: a region of a match alone, less its launch and
  its borders, is what the match costs.
* A region costs a launch, and a copy of every value that enters or leaves it: latency and bytes.

The cost of a placement is the sum over calls and regions, where the regions are those that
:func:`~intarsia_ir.partition.merge.merge` makes of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import Enum
from types import MappingProxyType

from msgspec import Struct

from intarsia_ir.graph.expr import Call, Constant, Expr
from intarsia_ir.graph.typical import TYPICAL_VALUES
from intarsia_ir.performance import Performance, RelativePerformance
from intarsia_ir.regions.work import count_bytes, count_flops, is_heavy

from .annotate import ClaimedMatch
from .measured import MeasuredSeconds, signature_of_calls

PICOSECONDS = 10**12


class Plan(Enum):
    """How regions are chosen."""

    GREEDY = "greedy"  # every call an accelerator takes goes to the first that takes it
    COST = "cost"  # the placement that costs least, by the model of this module


class CostSource(Enum):
    """Where a cost comes from."""

    STATED = "stated"  # by the plugin, in seconds or in operations
    PRESUMED = "presumed"  # its plugin states nothing, and is presumed to be fast: no cost at all
    MEASURED = "measured"
    ESTIMATED = "estimated"  # by the model, from arithmetic and traffic


class PricedDevice(Struct, frozen=True):
    """A part of a target, as far as costs ask.

    Attributes:
        kind: Name of its kind.
        device_type: DLPack device type: where its memory is.
    """

    kind: str
    device_type: int


class Prices(Struct, frozen=True):
    """What everything costs on one target, in picoseconds.

    Attributes:
        fallback: Speeds of the fallback.
        accelerators: Speeds of each accelerator, by kind.
        measured: What was measured; ``None`` if nothing was.
        silent: Kinds that state no performance. Their regions and borders cost nothing, nor do
            their claims without a stated cost: the user put them in front.
        typical: What size variables are taken for.
    """

    fallback: Performance
    accelerators: Mapping[str, Performance]
    measured: MeasuredSeconds | None = None
    silent: frozenset[str] = frozenset()
    typical: Mapping[str, int] = TYPICAL_VALUES

    @classmethod
    def presumed(cls, kinds: Sequence[str]) -> Prices:
        """Return the prices of accelerators of which nothing is known but their names."""
        base = Performance()
        return cls(base, dict.fromkeys(kinds, replace(base, flops=2 * base.flops)))

    @classmethod
    def of(
        cls,
        fallback: PricedDevice,
        accelerators: Sequence[PricedDevice],
        measured: MeasuredSeconds | None = None,
        stated: Mapping[str, Performance | RelativePerformance] = MappingProxyType({}),
        typical: Mapping[str, int] = TYPICAL_VALUES,
    ) -> Prices:
        """Return the prices of a target's parts.

        Args:
            fallback: Compiles what no accelerator takes.
            accelerators: In the order of the target.
            measured: What was measured.
            stated: What the hook ``performance`` answered, by kind.
            typical: What size variables are taken for.

        A fallback that states no :class:`Performance` is taken to be an ordinary CPU. One that is
        stated in multiples of the fallback's speed works in the fallback's memory if it is the same
        type of device.
        """
        own = stated.get(fallback.kind)
        base = own if isinstance(own, Performance) else Performance()
        return cls(
            base,
            {
                part.kind: _against(base, part, fallback, stated.get(part.kind))
                for part in accelerators
            },
            measured,
            frozenset(part.kind for part in accelerators if part.kind not in stated),
            typical,
        )

    def own(self, call: Call) -> int:
        """Return what the fallback needs for a call."""
        if not is_heavy(call):
            return 0
        if self.measured is not None:
            seconds = self.measured.own.get(signature_of_calls([call]))
            if seconds is not None:
                return _picoseconds(seconds)
        return _picoseconds(self.fallback.launch) + self._roofline(self.fallback, [call])

    def source(self, claimed: ClaimedMatch) -> CostSource:
        """Return where the cost of a match on an accelerator comes from."""
        if claimed.support.seconds is not None:
            return CostSource.STATED
        if self._measured(claimed) is not None:
            return CostSource.MEASURED
        if claimed.support.flops is not None:
            return CostSource.STATED
        return CostSource.PRESUMED if claimed.kind in self.silent else CostSource.ESTIMATED

    def _measured(self, claimed: ClaimedMatch) -> int | None:
        """What was measured of a match, without region and borders."""
        if self.measured is None:
            return None
        key = claimed.kind, signature_of_calls(claimed.match.calls)
        seconds = self.measured.claims.get(key)
        if seconds is None:
            return None
        match = claimed.match
        values = dict.fromkeys(v for v in match.inputs if not isinstance(v, Constant))
        borders = [self.bytes(value) for value in (*values, match.root)]
        outside = self.launch(claimed.kind) + sum(self.crossing(claimed.kind, b) for b in borders)
        return max(0, _picoseconds(seconds) - outside)

    def claim(self, claimed: ClaimedMatch) -> int:
        """Return what an accelerator needs for a match, without region and borders."""
        speed = self.accelerators[claimed.kind]
        if claimed.support.seconds is not None:
            return _picoseconds(claimed.support.seconds)
        measured = self._measured(claimed)
        if measured is not None:
            return measured
        if claimed.support.flops is not None:
            return _picoseconds(claimed.support.flops / speed.flops)
        return 0 if claimed.kind in self.silent else self._roofline(speed, claimed.match.calls)

    def bytes(self, value: Expr) -> int:
        """Return the size of a value."""
        return count_bytes(value.type, values=self.typical)

    def _roofline(self, speed: Performance, calls: Sequence[Call]) -> int:
        """The larger of arithmetic and traffic of each heavy call."""
        total = 0.0
        for call in calls:
            if is_heavy(call):
                types = (call.type, *(arg.type for arg in call.args))
                moved = count_bytes(*types, values=self.typical)
                flops = count_flops(call, self.typical)
                total += max(flops / speed.flops, moved / speed.bandwidth)
        return _picoseconds(total)

    def launch(self, kind: str) -> int:
        """Return what calling a region costs."""
        return 0 if kind in self.silent else _picoseconds(self.accelerators[kind].launch)

    def crossing(self, kind: str, size: int) -> int:
        """Return what a value of ``size`` bytes costs that enters or leaves a region."""
        if kind in self.silent:
            return 0
        speed = self.accelerators[kind]
        copy = 0.0 if speed.copy_bandwidth is None else size / speed.copy_bandwidth
        return _picoseconds(speed.copy_latency + copy)


def _against(
    base: Performance,
    part: PricedDevice,
    fallback: PricedDevice,
    stated: Performance | RelativePerformance | None,
) -> Performance:
    """Return the speeds of an accelerator in front of a fallback with the speeds ``base``."""
    if isinstance(stated, Performance):
        return stated
    factor = RelativePerformance().flops if stated is None else stated.flops
    speed = replace(base, flops=factor * base.flops, copy_bandwidth=None, copy_latency=0.0)
    if part.device_type == fallback.device_type:
        return speed
    return replace(speed, copy_bandwidth=base.bandwidth, copy_latency=1e-5)


def _picoseconds(seconds: float) -> int:
    return round(seconds * PICOSECONDS)
