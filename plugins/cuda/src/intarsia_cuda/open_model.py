# SPDX-License-Identifier: Apache-2.0
"""A model of open sizes on its device: laid out anew where sizes change. Imports no compiler.

What a run does follows from the plan and is put together once, with expressions for sizes. Where
sizes change, each expression is computed once, memory grows if it is too small, and launches get
their numbers of blocks, addresses and sizes. The first run of a layout gives its work to the stream
piece by piece; the second one records it as a graph, which the following ones start.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, cast

from msgspec import Struct, field

from intarsia_runtime.artifact.plan import CallPlan, OpenSizes
from intarsia_runtime.artifact.plan_sizes import slot_offsets
from intarsia_runtime.artifact.plan_walk import step_arguments
from intarsia_runtime.errors import ResourceError
from intarsia_runtime.loading import LoadRequest
from intarsia_runtime.size import Dim, Size, product, value_of

from .alone import LoneKernels, closed_start
from .device import ALIGNMENT, CopyIn, CopyOut, CopyWithin, GpuDevice, Launch, Work
from .memory import aligned, bytes_of, uploaded
from .program import DeviceProgram, DeviceSpot, Start, StreamOperation, plan_operations, start_sizes

if TYPE_CHECKING:
    import numpy as np

Shapes = tuple[tuple[int, ...], ...]


class Room(Struct):
    """Memory of the device that grows where it is too small.

    Attributes:
        device: Whose it is.
        address: Where it begins.
        bytes: How many there are.
    """

    device: GpuDevice
    address: int = 0
    bytes: int = 0

    def fit(self, size: int) -> int:
        """Have at least ``size`` bytes; return the address.

        Raises:
            ResourceError: The device has no memory left.
        """
        if not self.bytes or size > self.bytes:
            # What grows again grows more: a cache gets longer with every token.
            wanted = aligned(size + (self.bytes and size >> 1))
            if self.bytes:
                self.bytes = 0  # nobody may use it if there is no other
                self.device.release(self.address)
            self.address = self.device.reserve(wanted)
            self.bytes = wanted
        return self.address


class StagingRoom(Struct):
    """Memory of the host that the device copies from and to, likewise."""

    device: GpuDevice
    memory: np.ndarray | None = None

    def fit(self, size: int) -> np.ndarray:
        """Return ``size`` bytes."""
        memory = self.memory
        if memory is None or size > memory.nbytes:
            wanted = size
            if memory is not None:
                wanted += size >> 1
                self.memory = None
                self.device.unstage(memory)
            self.memory = memory = self.device.staging(wanted)
        return memory[:size]


class _SizedRun(Struct):
    """What a run does for the sizes of its inputs.

    Attributes:
        shapes: Of the inputs.
        work: In order.
        host: Memory of the host of inputs and outputs.
        runs: How often it ran.
        replay: What carries all out at once, when it is recorded.
    """

    shapes: Shapes
    work: Sequence[Work]
    host: Sequence[np.ndarray]
    runs: int = 0
    replay: Callable[[], None] | None = field(default=None)


class OpenCudaModel:
    """A model of open sizes in the memory of a device.

    Args:
        program: How kernels are started.
        plan: Sizes of inputs, outputs and temporaries; none is computed by a step.
        request: Has the weights.
        device: Where to.
    """

    def __init__(
        self, program: DeviceProgram, plan: CallPlan, request: LoadRequest, device: GpuDevice
    ) -> None:
        self._program, self._plan, self._device = program, plan, device
        self._close = weakref.finalize(self, device.close)
        self._sizes = cast("OpenSizes", plan.open)  # the caller has asked
        self._specs = (*plan.inputs, *plan.outputs)
        self._constants = uploaded(plan, request, device)
        self._arena = Room(device)
        self._rooms = [Room(device) for _ in self._specs]
        self._staging = [StagingRoom(device) for _ in self._specs]
        self._operations = plan_operations(plan, program.functions)
        self._starts = {name: start_sizes(start) for name, start in program.kernels.items()}
        self._bytes = [spec.bytes for spec in self._specs]
        self._elements = tuple({str(n): n for n in _elements(plan)}.values())
        self._layout: _SizedRun | None = None
        self.kernel = LoneKernels(program, plan, device).kernel

    def run(self, *arrays: np.ndarray) -> None:
        """Carry out one run: inputs, then outputs to fill, of the shapes of this run.

        Raises:
            ResourceError: No memory left on the device.
        """
        count = len(self._plan.inputs)
        shapes = tuple([array.shape for array in arrays[:count]])
        layout = self._layout
        if layout is None or layout.shapes != shapes:
            layout = self._lay_out(shapes)
        for host, array in zip(layout.host[:count], arrays[:count], strict=True):
            host[...] = bytes_of(array)
        self._carry_out(layout)
        for host, array in zip(layout.host[count:], arrays[count:], strict=True):
            bytes_of(array)[...] = host

    def _carry_out(self, layout: _SizedRun) -> None:
        layout.runs += 1
        if layout.runs == 1:
            self._device.carry_out(layout.work)
            return
        if layout.replay is None:
            layout.replay = self._device.record(layout.work)
        layout.replay()

    def _lay_out(self, shapes: Shapes) -> _SizedRun:
        """Compute sizes, offsets and launches for the shapes of some inputs."""
        old, self._layout = self._layout, None  # until all of it is done
        if old is not None and old.replay is not None:
            self._device.forget(old.replay)
        values = {s.name: shapes[s.input][s.axis] for s in self._sizes.variables}
        numbers = _Numbers(values)
        self._check_elements(numbers)
        starts, total = slot_offsets(self._sizes, values, ALIGNMENT)
        arena = self._arena.fit(total)
        sizes = [numbers.of(size) for size in self._bytes]
        count = len(self._plan.inputs)
        places = dict(self._constants)
        host: dict[DeviceSpot, np.ndarray] = {}
        for number, size in enumerate(sizes):
            end = number >= count
            spot = DeviceSpot("output" if end else "input", number - (count if end else 0))
            places[spot] = self._rooms[number].fit(size)
            host[spot] = self._staging[number].fit(size)
        for number, start in enumerate(starts):
            places[DeviceSpot("workspace", number)] = arena + start
        ready = {
            name: closed_start(self._program.kernels[name], [numbers.of(size) for size in dims])
            for name, dims in self._starts.items()
        }
        build = _WorkBuilder(places, host, ready, numbers)
        made = (build.work(item) for item in self._operations)
        work = [item for item in made if item is not None]
        self._layout = _SizedRun(shapes, work, list(host.values()))
        return self._layout

    def _check_elements(self, numbers: _Numbers) -> None:
        """Refuse tensors with more elements than kernels count."""
        most = self._program.most_elements
        largest = max([numbers.of(size) for size in self._elements], default=0)
        if most and largest > most:
            raise ResourceError(
                f"a tensor would have {largest} elements, and the kernels count {most}",
                hint="compile the model with -wide-index",
            )


def _elements(plan: CallPlan) -> Iterator[Size]:
    """Yield how many elements each argument has whose size is open."""
    for step in plan.steps:
        for argument in step_arguments(step):
            count = product(argument.shape)
            if isinstance(count, Dim):
                yield count


class _Numbers:
    """Sizes for values of the variables, each computed once."""

    def __init__(self, values: Mapping[str, int]) -> None:
        self.values = values
        self._known: dict[int, int] = {}

    def of(self, size: Size) -> int:
        """Return the number that a size is; the same object stands for the same size."""
        if isinstance(size, int):
            return size
        key = id(size)
        if key not in self._known:
            self._known[key] = value_of(size, self.values)
        return self._known[key]


class _WorkBuilder(Struct, frozen=True):
    """What the operations of a plan are for some sizes.

    Attributes:
        places: Addresses.
        host: Memory of the host of inputs and outputs.
        starts: How kernels are started; ``None`` for those that have no blocks.
        numbers: The sizes.
    """

    places: Mapping[DeviceSpot, int]
    host: Mapping[DeviceSpot, np.ndarray]
    starts: Mapping[str, Start | None]
    numbers: _Numbers

    def work(self, item: StreamOperation) -> Work | None:
        """Return what carries out an operation; ``None`` if there is nothing to do."""
        first, *others = places = [self.places[spot] for spot in item.spots]
        match item.what:
            case "launch":
                start = self.starts[item.kernel]
                if start is None:
                    return None
                values = tuple([self.numbers.values[name] for name in start.sizes])
                return Launch(item.kernel, start, tuple(places), values)
            case "copy":
                size = self.numbers.of(item.bytes)
                return CopyWithin(first, others[0], size) if size else None
            case _:
                host = self.host[item.spots[0]]
                if not host.nbytes:
                    return None
                return CopyIn(first, host) if item.what == "in" else CopyOut(host, first)
