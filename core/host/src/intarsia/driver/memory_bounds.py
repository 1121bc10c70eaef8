# SPDX-License-Identifier: Apache-2.0
"""What a model needs of a device's memory, and what the device has: hardware tags bound a build.

A microcontroller keeps weights in its flash, and everything else in its RAM. Other devices keep
both in one memory: a GPU in its own, a cloud instance in the machine's.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from intarsia_ir.hardware.tags import MAIN_MEMORY, Hardware
from intarsia_runtime.artifact.plan import CallPlan
from intarsia_runtime.artifact.size_bounds import bounds_of, upper_bound
from intarsia_runtime.artifact.unit import CompiledUnit
from intarsia_runtime.errors import ResourceError

from ..host.host import Host
from ..target.kind import TargetKind
from ..target.target import CompositeTarget

FLASH, RAM = "flash", "sram"
"""Names of a microcontroller's levels of memory."""

_CPU = 1  # DLPack's kDLCPU


class MemoryBound(Struct, frozen=True):
    """A level of memory that a model has to fit into.

    Attributes:
        name: Of the level.
        size: Its bytes.
        holds_weights: Whether the weights lie there.
        holds_values: Whether workspace, inputs and outputs lie there.
    """

    name: str
    size: int
    holds_weights: bool
    holds_values: bool


def memory_bounds(host: Host, target: CompositeTarget) -> tuple[MemoryBound, ...]:
    """Return the levels of memory that bound what is compiled for a target; those of known size.

    They are those of the hardware tag that the target was made from, or of the fallback's kind.
    """
    hardware = host.hardware_of(target)
    sizes = {level.name: level.size for level in host.memory_of(target)}
    if hardware is not None and _is_microcontroller(host, hardware, sizes):
        bounds = [MemoryBound(FLASH, sizes.get(FLASH, 0), True, False)]
        bounds.append(MemoryBound(RAM, sizes.get(RAM, 0), False, True))
    else:
        name = _main_level(target.fallback.kind, sizes)
        bounds = [MemoryBound(name, sizes.get(name, 0), True, True)]
    return tuple(bound for bound in bounds if bound.size)


def check_memory_bounds(
    host: Host,
    target: CompositeTarget,
    plan: CallPlan,
    weights: Iterable[int],
    *,
    regions: Sequence[CompiledUnit] = (),
    allow_overflow: bool = False,
) -> None:
    """Refuse a model that does not fit into the memory of the device it is compiled for.

    Code is not counted: what is refused cannot fit, what passes may still be too large.

    Args:
        host: Knows the hardware.
        target: What the model is compiled for.
        plan: The call plan of the model.
        weights: Bytes of each weight.
        regions: The units of accelerators, with what they say of their own memory.
        allow_overflow: Warn instead.

    Raises:
        ResourceError: It does not fit; the message has what it needs and what there is.
    """
    bounds = memory_bounds(host, target)
    if not bounds:
        return
    constant = sum(weights) + sum(unit.weight_bytes for unit in regions)
    ascending = sorted(regions, key=lambda unit: unit.scratch_bytes)
    scratch = {unit.loader: unit.scratch_bytes for unit in ascending}  # the largest of each loader
    workspace = plan.workspace_bytes + sum(scratch.values())
    sizes = bounds_of(plan)  # of open sizes that have no bound only the weights are known
    tensors = [upper_bound(spec.bytes, sizes) or 0 for spec in (*plan.inputs, *plan.outputs)]
    values = workspace + sum(tensors)
    rows = [
        (bound, constant * bound.holds_weights + values * bound.holds_values) for bound in bounds
    ]
    if all(need <= bound.size for bound, need in rows):
        return
    hardware = host.hardware_of(target)
    device = hardware.name if hardware else target.fallback.kind.name
    needs = " and ".join(f"{need:,} of {row.size:,} bytes of {row.name}" for row, need in rows)
    message = (
        f"the model does not fit into '{device}': it needs {needs} (weights {constant:,}, "
        f"workspace {workspace:,}, inputs and outputs {values - workspace:,})"
    )
    if allow_overflow:
        warnings.warn(message, stacklevel=2)
        return
    raise ResourceError(
        message,
        hint="use a smaller or a quantized model, or a larger device; "
        "--allow-overflow compiles it anyway",
    )


def _is_microcontroller(host: Host, hardware: Hardware, sizes: Mapping[str, int]) -> bool:
    table = host.hardware()
    return any(table.get(name).kind == "mcu" for name in hardware.lineage) or (
        FLASH in sizes and RAM in sizes and MAIN_MEMORY not in sizes
    )


def _main_level(kind: TargetKind, sizes: Mapping[str, int]) -> str:
    """The level in which a device keeps weights and values."""
    own = kind.memory[0].name if kind.memory else ""
    return MAIN_MEMORY if kind.device_type == _CPU and MAIN_MEMORY in sizes else own
