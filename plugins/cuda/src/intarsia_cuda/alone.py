# SPDX-License-Identifier: Apache-2.0
"""Single kernels of a plan, for the executor that walks it. Imports no compiler."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, cast

from msgspec.structs import replace

from intarsia_runtime.artifact.plan import CallPlan, KernelStep, all_steps
from intarsia_runtime.errors import ArtifactError
from intarsia_runtime.size import value_of

from .device import CopyIn, CopyOut, GpuDevice, Launch, Work
from .memory import aligned, bytes_of
from .program import DeviceProgram, Start, start_sizes

if TYPE_CHECKING:
    import numpy as np


def closed_start(start: Start, dims: Sequence[int]) -> Start | None:
    """Return how a kernel is started where sizes are numbers; ``None`` if it has no blocks."""
    return replace(start, dims=tuple(dims)) if min(dims) > 0 else None


class LoneKernels:
    """Runs kernels of a plan one by one; all arguments are copied there and back.

    Args:
        program: How they are started.
        plan: The plan.
        device: Where they run.
    """

    def __init__(self, program: DeviceProgram, plan: CallPlan, device: GpuDevice) -> None:
        self._program, self._device = program, device
        self._names = {
            step.function: step.sizes
            for step in all_steps(plan.steps)
            if isinstance(step, KernelStep)
        }

    def kernel(self, name: str, *sizes: int) -> Callable[..., None]:
        """Return a kernel.

        Args:
            name: Of the plan's function.
            sizes: Values of the size variables that it takes.

        Raises:
            ArtifactError: There is no such kernel.
        """
        if name not in self._program.functions:
            raise ArtifactError(f"the unit has no kernel '{name}'", hint="compile the model again")
        values = dict(zip(self._names.get(name, ()), sizes, strict=True))
        first = self._program.reads[name]
        ready: list[_LoneRun] = []

        def run(*arrays: np.ndarray) -> None:
            if not ready:
                ready.append(_LoneRun(self._device, [array.nbytes for array in arrays]))
                ready[0].record(self._launches(name, values, ready[0].places))
            lone = ready[0]
            for host, array in zip(lone.staged, arrays, strict=True):
                host[...] = bytes_of(array)
            lone.replay()
            for host, array in zip(lone.staged[first:], arrays[first:], strict=True):
                bytes_of(array)[...] = host
            if sizes:  # the next run may have others
                ready.pop().close()

        return run

    def _launches(
        self, name: str, values: Mapping[str, int], places: Sequence[int]
    ) -> list[Launch]:
        launches: list[Launch] = []
        for kernel, numbers in self._program.functions[name]:
            start = self._program.kernels[kernel]
            dims = [value_of(size, values) for size in start_sizes(start)]
            closed = closed_start(start, dims)
            if closed is not None:
                taken = tuple([values[size] for size in start.sizes])
                args = tuple([places[n] for n in numbers])
                launches.append(Launch(kernel, closed, args, taken))
        return launches


class _LoneRun:
    """Memory of one kernel's arguments, and what it does.

    Args:
        device: Where it runs.
        sizes: Bytes of the arguments.
    """

    def __init__(self, device: GpuDevice, sizes: Sequence[int]) -> None:
        self._device = device
        self.places = [device.reserve(aligned(size)) for size in sizes]
        self.staged = [device.staging(size) for size in sizes]
        self.replay = cast("Callable[[], None]", None)  # until it is recorded

    def record(self, launches: Sequence[Launch]) -> None:
        """Put launches between the copies of all arguments."""
        pairs = list(zip(self.places, self.staged, strict=True))
        work: list[Work] = [CopyIn(place, host) for place, host in pairs]
        work += launches
        work += [CopyOut(host, place) for place, host in pairs]
        self.replay = self._device.record(work)

    def close(self) -> None:
        """Give everything back."""
        self._device.forget(self.replay)
        for address in self.places:
            self._device.release(address)
        for memory in self.staged:
            self._device.unstage(memory)
