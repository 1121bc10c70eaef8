# SPDX-License-Identifier: Apache-2.0
"""The backend's code generator: a tensor module to kernels, and to how they are started."""

from __future__ import annotations

from intarsia.plugin import CompiledUnit, Target
from intarsia_ir.tir.buffer import MemoryScope
from intarsia_ir.tir.module import TensorModule
from intarsia_ir.tir.stmt import Allocate
from intarsia_ir.tir.walk import statements
from intarsia_loops.codegen.c_source import kernel_name
from intarsia_loops.gpu.launches import KernelLaunch
from intarsia_runtime.size import Dim

from .intrinsics import RULES
from .program import FILE, SCHEMA, SOURCE, KernelStart, OpenclProgram, stamp_line
from .source import print_source, uses_fp64
from .target import LOADER, OpenclOptions


def tir_codegen(module: TensorModule, target: Target[OpenclOptions]) -> CompiledUnit:
    """Write all kernels of ``module`` as OpenCL C; nothing here needs a device or a driver.

    Raises:
        UnsupportedError: A kernel uses what OpenCL C or the device has not.
    """
    options = target.options
    source = print_source(module.functions, options, {**RULES, **module.rules})
    launches = [launch for _, launch in source.kernels]
    program = OpenclProgram(
        device_type=options.device_type,
        device=options.device,
        fp64=uses_fp64(source.text),
        group_items=max((launch.threads for launch in launches), default=1),
        local_bytes=max(map(local_bytes, launches), default=0),
        functions={
            name: tuple(kernel_start(launch) for launch in found)
            for name, found in source.launches.items()
        },
        reads={function.name: len(function.input_params) for function in module.functions},
        most_elements=source.most_elements,
    )
    text = program.to_json()
    code = source.text.encode() + stamp_line(text, module.plan)
    files = {FILE: text, SOURCE: code}
    return CompiledUnit(name=module.name, loader=LOADER, format=SCHEMA, files=files)


def kernel_start(launch: KernelLaunch) -> KernelStart:
    """Return how a launch is started."""
    x, y, z = (str(size) if isinstance(size, Dim) else size for size in launch.dims[:3])
    sizes = tuple([size.name for size in launch.function.sizes])
    name, items = kernel_name(launch.function), launch.dims[3:]
    return KernelStart(name, launch.params, (x, y, z), items, sizes)


def local_bytes(launch: KernelLaunch) -> int:
    """Return the local memory of a group."""
    return sum(
        stmt.buffer.bytes
        for stmt in statements(launch.function.body)
        if isinstance(stmt, Allocate) and stmt.buffer.scope is MemoryScope.SHARED
    )
