# SPDX-License-Identifier: Apache-2.0
"""The backend's code generator: a tensor module to kernels, and to what a device does with them."""

from __future__ import annotations

from msgspec.structs import replace

from intarsia.plugin import CompiledUnit, Target
from intarsia_ir.tir.module import TensorModule
from intarsia_loops.codegen.c_source import kernel_name
from intarsia_loops.gpu.launches import KernelLaunch
from intarsia_runtime.size import Dim

from .emulate import compile_emulated
from .intrinsics import RULES
from .nvrtc import compile_cuda
from .occupancy import print_resources
from .program import (
    FILE,
    SCHEMA,
    STAMP,
    DeviceProgram,
    Start,
    program_stamp,
    stated_operations,
)
from .source import SOURCE, print_source
from .target import LOADER, CudaOptions

PTX, CUBIN, EMULATED = "kernels.ptx", "kernels.cubin", "emulated.so"
RESOURCES = "resources.txt"


def tir_codegen(module: TensorModule, target: Target[CudaOptions]) -> CompiledUnit:
    """Write all kernels of ``module`` as CUDA C++ and compile them; nothing here needs a GPU.

    Raises:
        ToolchainError: NVRTC or, for ``-emulate``, the C++ compiler is missing or fails.
        UnsupportedError: A kernel uses what CUDA has not, or CUDA 13 left the GPU behind.
    """
    options = target.options
    source = print_source(module.functions, options, {**RULES, **module.rules})
    launches = {
        name: tuple((kernel_name(launch.function), launch.params) for launch in found)
        for name, found in source.launches.items()
    }
    program = DeviceProgram(
        arch=options.arch,
        emulated=options.emulate,
        kernels={name: kernel_start(launch) for name, launch in source.kernels},
        functions=launches,
        reads={function.name: len(function.input_params) for function in module.functions},
        operations=stated_operations(module.plan, launches),
        most_elements=source.most_elements,
    )
    files = {SOURCE: source.text.encode(), FILE: program.to_json().encode()}
    if options.emulate:
        names = [name for name, _ in source.kernels]
        stamp = program_stamp(files[FILE], module.plan)
        text = f'{source.text}\nextern "C" const unsigned long long {STAMP} = {stamp}ull;\n'
        files[EMULATED] = compile_emulated(text, names, options.cxx, lineinfo=options.lineinfo)
        return CompiledUnit(name=module.name, loader=LOADER, format=SCHEMA, files=files)
    compiled = compile_cuda(source.text, options)
    threads = {name: launch.threads for name, launch in source.kernels}
    pooled = {name: launch.pooled_bytes for name, launch in source.kernels}
    used = {
        name: replace(each, shared_bytes=each.shared_bytes + pooled[name])
        for name, each in compiled.resources.items()
    }
    table = print_resources(used, threads, options)
    files |= {CUBIN: compiled.cubin, PTX: compiled.ptx, RESOURCES: table.encode()}
    return CompiledUnit(
        name=module.name,
        loader=LOADER,
        format=SCHEMA,
        files=files,
        versions={"nvrtc": compiled.version},
    )


def kernel_start(launch: KernelLaunch) -> Start:
    """Return how a launch is started."""
    dims = tuple([str(size) if isinstance(size, Dim) else size for size in launch.dims])
    sizes = tuple([size.name for size in launch.function.sizes])
    return Start(dims, launch.waits, sizes, launch.pooled_bytes)
