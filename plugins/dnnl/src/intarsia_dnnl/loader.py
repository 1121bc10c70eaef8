# SPDX-License-Identifier: Apache-2.0
"""The runtime half: turns a region's program into a table of native calls. Imports no compiler."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from intarsia_runtime.plugin import (
    ArtifactError,
    LoadRequest,
    NativeCall,
    PluginError,
    ToolchainError,
    UnsupportedError,
    reads_formats,
)

from .arena import Lifetime, aligned_bytes, plan_arena
from .assembly import Assembly, Home, MemoryTensor
from .isa import check_limit
from .narrow import has_matrix_unit, multiplies_narrow, narrow_values
from .primitives import build_node
from .program import FILE, SCHEMA, PrimitiveProgram, multiplies_integers, parse_program
from .sdk import Dnnl, describe_status
from .sound import check_nodes
from .steps import ExecutionArgument, PlannedStep, StepTable, make_table
from .tall import with_tall_windows

if TYPE_CHECKING:
    import numpy as np


@reads_formats(SCHEMA)
def load(request: LoadRequest) -> NativeCall | Callable[..., None]:
    """Build the primitives of a region.

    The result is native if the artifact brings ``intarsia_run_steps``, else a Python function.

    Raises:
        ArtifactError: The unit is damaged, does not fit the request, needs a kernel that the
            library does not have on this machine, or names a library that is not here.
        PluginError: There is no usable library.
    """
    with request.interpreting(FILE):
        program = parse_program(request.file(FILE))
        check_nodes(program)
        request.check_signature(
            *(
                [(program.dtypes[v], program.shapes[v]) for v in values]
                for values in (program.inputs, program.outputs)
            )
        )
        try:
            region = LoadedPrimitives(program, request)
        except ToolchainError as error:
            raise request.damaged(f"oneDNN does not build it: {error.message}") from error
        except UnsupportedError as error:
            raise _not_for_here(error) from error
    if request.run_steps == 0:
        return region.run
    return NativeCall(
        request.run_steps, ctypes.addressof(region.table), region, region.describe_failure
    )


def _not_for_here(error: UnsupportedError) -> ArtifactError:
    """Return the error for a kernel that the artifact needs and the library here does not have."""
    return ArtifactError(
        error.message,
        where=error.where,
        hint="compile the model again on this machine, or install a newer libdnnl.so.3",
    )


def _open_library(path: str) -> Dnnl:
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

    def __init__(self, program: PrimitiveProgram, request: LoadRequest) -> None:
        """Create everything; on an error nothing is left behind."""
        self.name = request.name
        if multiplies_integers(program.nodes):
            check_limit()
        self._dnnl = _open_library(program.library)
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
            self.reordered_bytes = assembly.reordered_bytes()
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
        assembly = Assembly(self._dnnl, program, request.constants, build_node, narrow)
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
        scratch = aligned_bytes(assembly.scratch_bytes)
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
                    addresses[buffer.number] = scratch.ctypes.data
        plan = plan_arena(lifetimes)
        arena = aligned_bytes(plan.bytes)
        self._keep_alive += [scratch, arena]
        for number, offset in plan.offsets.items():
            addresses[number] = arena.ctypes.data + offset
        return addresses

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
        """Say which step of the last run failed and why."""
        number = int(self.table.failed_step) - self._setters
        what = self._labels[number] if 0 <= number < len(self._labels) else "an argument"
        return f"oneDNN failed in {what}: {describe_status(int(self.table.status))}"

    def close(self) -> None:
        """Destroy the primitives, then memories, then the library's engine; not to be run again."""
        self._dnnl.close()
