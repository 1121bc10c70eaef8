# SPDX-License-Identifier: Apache-2.0
"""A region on the library: its primitives, their memory, and the table that runs them."""

from __future__ import annotations

import ctypes
import weakref
from typing import TYPE_CHECKING, cast

from msgspec import Struct

from intarsia_runtime.plugin import ArtifactError, LoadRequest, PluginError, UnsupportedError

from .arena import ALIGNMENT, Lifetime, Workspace, plan_arena
from .assembly import Assembly, Home, MemoryTensor
from .isa import check_limit
from .narrow import has_matrix_unit, multiplies_narrow, narrow_values
from .primitives import build_node
from .program import PrimitiveProgram, multiplies_integers
from .sdk import Dnnl, describe_status
from .steps import ExecutionArgument, PlannedStep, StepTable, make_table
from .tall import with_tall_windows
from .weights import Weights

if TYPE_CHECKING:
    import numpy as np


class Shared(Struct, frozen=True, eq=False):
    """What the primitives of a region have in common for all sizes.

    Attributes:
        dnnl: The library, engine and stream.
        weights: Constants, in all layouts that are read of them.
        workspace: Memory of intermediate tensors; one combination of sizes runs at a time.
    """

    dnnl: Dnnl
    weights: Weights
    workspace: Workspace


def open_library(path: str) -> Dnnl:
    """Open the library that the artifact names, or else the one that is here.

    Raises:
        ArtifactError: It names one that this machine does not have, or that is none.
        PluginError: It names none, and there is no usable one.
    """
    try:
        return Dnnl(path)
    except PluginError as error:
        if not path:
            raise
        raise ArtifactError(
            f"the artifact was compiled for a library of its own: {error.message}",
            where=error.where,
            hint="put the library there, or compile again without 'dnnl -library=PATH'",
        ) from error


class LoadedPrimitives:
    """The primitives and memory of a region, alive as long as this object is.

    Attributes:
        table: What ``intarsia_run_steps`` takes as its handle.
        implementations: The library's names of the kernels, in the order they run.
        reordered_bytes: Memory of the weights that had to be reordered or unpacked.
    """

    def __init__(
        self, program: PrimitiveProgram, request: LoadRequest, shared: Shared | None = None
    ) -> None:
        """Create everything; on an error nothing is left behind.

        Args:
            program: What is computed; its sizes are numbers.
            request: Of the runtime.
            shared: What regions of other sizes use as well.
        """
        self.name = request.name
        if multiplies_integers(program.nodes):
            check_limit()
        self._shared = shared
        self._dnnl = open_library(program.library) if shared is None else shared.dnnl.session()
        self._movable: list[tuple[int, int]] = []
        try:
            # Heavy primitives split their work by the thread count at their creation, light ones by
            # that at the run; so the count stays set.
            self._dnnl.set_threads(program.threads or request.threads)
            assembly = self._assemble(program, request)
            self._labels = [execution.label for execution in assembly.executions]
            self.implementations = tuple(item.implementation for item in assembly.executions)
            self._keep_alive: list[object] = [assembly.keep_alive, assembly.pool]
            self.table, kept = self._make_table(assembly)
            self._keep_alive.append(kept)
            self.reordered_bytes = assembly.weights.reordered_bytes
        except BaseException:
            self._dnnl.close()
            raise
        for family in ("primitive_desc", "primitive_attr", "post_ops", "memory_desc"):
            self._dnnl.release(family)
        weakref.finalize(self, self._dnnl.close).atexit = False

    def _assemble(self, program: PrimitiveProgram, request: LoadRequest) -> Assembly:
        """Build the primitives; in fp32 if the library lacks one of those in bfloat16."""
        if multiplies_narrow(program):
            shaped = with_tall_windows(program) if has_matrix_unit() else program
            try:
                return self._build(shaped, request, narrow_values(shaped))
            except UnsupportedError:
                pass
        return self._build(program, request, None)

    def _build(
        self, program: PrimitiveProgram, request: LoadRequest, narrow: frozenset[int] | None
    ) -> Assembly:
        weights = None if self._shared is None else self._shared.weights
        assembly = Assembly(self._dnnl, program, request.constants, build_node, narrow, weights)
        for node in program.nodes:
            build_node(assembly, node)
        assembly.commit()
        return assembly

    def _make_table(self, assembly: Assembly) -> tuple[StepTable, object]:
        addresses = self._place(assembly)
        memories: dict[MemoryTensor, int] = {}
        setters: list[tuple[int, int, int, int, int]] = []
        bindings: list[tuple[int, int]] = []
        executes: list[tuple[int, int, int, int, int]] = []
        dnnl = self._dnnl
        set_handle = dnnl.address("memory_set_data_handle")
        execute = dnnl.address("primitive_execute")
        for execution in assembly.executions:
            arguments = (ExecutionArgument * len(execution.arguments))()
            for slot, (arg, tensor) in zip(arguments, execution.arguments, strict=True):
                if tensor not in memories:
                    address = addresses.get(tensor.buffer.number, -tensor.offset) + tensor.offset
                    memory = dnnl.make("memory_create", tensor.desc, dnnl.engine, address)
                    memories[tensor] = memory
                    if tensor.buffer.home in (Home.ARENA, Home.SCRATCH):
                        self._movable.append((memory, address))
                    if tensor.buffer.home is Home.ARGUMENT:
                        bindings.append((len(setters), tensor.buffer.where))
                        setters.append((set_handle, memory, 0, 0, 0))
                slot.arg, slot.memory = arg, memories[tensor]
            self._keep_alive.append(arguments)
            count, place = len(execution.arguments), ctypes.addressof(arguments)
            executes.append((execute, execution.primitive, dnnl.stream, count, place))
        self._setters = len(setters)
        return make_table((*setters, *executes), bindings)

    def _place(self, assembly: Assembly) -> dict[int, int]:
        """Return the address of every buffer but the caller's."""
        lifetimes: dict[int, Lifetime] = {}
        addresses: dict[int, int] = {}
        scratch: set[int] = set()
        for step, execution in enumerate(assembly.executions):
            for _, tensor in execution.arguments:
                buffer = tensor.buffer
                if buffer.home is Home.ARENA:
                    known = lifetimes.get(buffer.number)
                    first = step if known is None else known.first
                    lifetimes[buffer.number] = Lifetime(buffer.bytes, first, step)
                elif buffer.home is Home.CONSTANT:
                    addresses[buffer.number] = assembly.address(buffer)
                elif buffer.home is Home.SCRATCH:
                    scratch.add(buffer.number)
        plan = plan_arena(lifetimes)
        behind = -(-assembly.scratch_bytes // ALIGNMENT) * ALIGNMENT
        workspace = Workspace() if self._shared is None else self._shared.workspace
        self._keep_alive.append(workspace)
        self._base = workspace.reserve(behind + plan.bytes)
        workspace.add(self)
        for number, offset in plan.offsets.items():
            addresses[number] = self._base + behind + offset
        return {**addresses, **dict.fromkeys(scratch, self._base)}

    def move(self, base: int) -> None:
        """Go on in another workspace, at ``base``."""
        for memory, address in self._movable:
            self._dnnl.call("memory_set_data_handle", memory, address - self._base + base)
        self._movable = [(m, address - self._base + base) for m, address in self._movable]
        self._base = base

    def run(self, *arrays: np.ndarray) -> None:
        """Run without native help: inputs, then outputs to fill, all C-contiguous.

        Raises:
            PluginError: A primitive failed.
        """
        steps = cast(
            "ctypes.Array[PlannedStep]",
            (PlannedStep * self.table.steps_count).from_address(self.table.steps),
        )
        for number, argument in self._binding_pairs():
            steps[number].b = arrays[argument].ctypes.data
        prototype = ctypes.CFUNCTYPE(
            ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p
        )
        for number in range(self.table.steps_count):
            step = steps[number]
            status = prototype(step.function)(step.a, step.b, step.c, step.d)
            if status:
                self.table.failed_step, self.table.status = number, status
                raise PluginError(self.describe_failure(), where=self.name)

    def _binding_pairs(self) -> list[tuple[int, int]]:
        count = self.table.bindings_count
        flat = (ctypes.c_int64 * (2 * count)).from_address(self.table.bindings)
        return [(flat[2 * i], flat[2 * i + 1]) for i in range(count)]

    def describe_failure(self) -> str:
        """Say which step failed since this was asked last, and why; empty if none did."""
        failed, self.table.failed_step = int(self.table.failed_step), -1
        if failed < 0:
            return ""
        number = failed - self._setters
        what = self._labels[number] if 0 <= number < len(self._labels) else "an argument"
        return f"oneDNN failed in {what}: {describe_status(int(self.table.status))}"

    def close(self) -> None:
        """Destroy the primitives, then memories, then the library's engine; not to be run again."""
        self._dnnl.close()
