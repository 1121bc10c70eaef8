# SPDX-License-Identifier: Apache-2.0
"""CUDA C++ to machine code with NVRTC, which needs neither a GPU nor a driver."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

from intarsia_runtime.errors import ToolchainError, UnsupportedError

from .source import HEADER, SOURCE, device_header
from .target import ARCHITECTURES, LEGACY, CudaOptions

MESSAGE_LINES = 12

_ENTRY = re.compile(r"Compiling entry function '(\w+)'")
_USED = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")
_SPILLS = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")
_FRAME = re.compile(r"(\d+) bytes stack frame")


class Resources(Struct, frozen=True):
    """What one thread, or one block, of a kernel takes.

    Attributes:
        registers: 32-bit registers of a thread.
        shared_bytes: Shared memory of a block.
        spill_bytes: Bytes that a thread stores to and loads from memory for want of registers.
        stack_bytes: Local memory of a thread.
    """

    registers: int
    shared_bytes: int
    spill_bytes: int
    stack_bytes: int


class NvrtcModule(Struct, frozen=True, eq=False):
    """Machine code, and what it takes.

    Attributes:
        cubin: For one architecture.
        ptx: Text that a driver can compile for a later one.
        resources: ``__global__`` function to what it takes.
        version: Of NVRTC.
    """

    cubin: bytes
    ptx: bytes
    resources: dict[str, Resources]
    version: str


def require_nvrtc() -> Any:
    """Return NVRTC's binding.

    Raises:
        ToolchainError: It is not installed.
    """
    try:
        return importlib.import_module("cuda.bindings.nvrtc")
    except ImportError as cause:
        raise ToolchainError(
            f"NVRTC is not installed: {cause}", hint="pip install 'intarsia-cuda[cuda13]'"
        ) from None


def nvrtc_version(nvrtc: Any = None) -> str:
    """Return the version of NVRTC.

    Raises:
        ToolchainError: It is not installed, or does not load.
    """
    library = require_nvrtc() if nvrtc is None else nvrtc
    _, major, minor = _checked(library.nvrtcVersion)
    return f"NVRTC {major}.{minor}"


def environment_version() -> str:
    """Return what a build depends on: NVRTC's version, or that there is none, as for emulation."""
    try:
        return nvrtc_version()
    except ToolchainError:
        return "no NVRTC"


def supported_architectures() -> tuple[int, ...]:
    """Return the numbers of the architectures that NVRTC compiles for, as 75 or 90.

    Raises:
        ToolchainError: It is not installed, or does not load.
    """
    _, numbers = _checked(require_nvrtc().nvrtcGetSupportedArchs)
    return tuple(numbers)


def compile_cuda(text: str, options: CudaOptions) -> NvrtcModule:
    """Compile a source.

    Raises:
        UnsupportedError: NVRTC 13 no longer compiles for the architecture.
        ToolchainError: NVRTC is missing or refuses the source; its messages are in the error.
    """
    if options.arch in LEGACY:
        raise UnsupportedError(
            f"CUDA 13 no longer compiles for {options.arch}",
            hint=f"{ARCHITECTURES[0]} is the oldest; -emulate runs the kernels on the CPU",
        )
    nvrtc = require_nvrtc()
    headers = [device_header().encode()]
    # Line information holds the name: a relative one would get this process's folder in front.
    name = f"/{SOURCE}" if options.lineinfo else SOURCE
    _, program = _checked(
        nvrtc.nvrtcCreateProgram, text.encode(), name.encode(), 1, headers, [HEADER.encode()]
    )
    try:
        flags = _flags(options)
        status = nvrtc.nvrtcCompileProgram(program, len(flags), flags)[0]
        log = _text(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program)
        if int(status) != 0:
            lines = "\n".join([line for line in log.splitlines() if line.strip()][:MESSAGE_LINES])
            raise ToolchainError(f"NVRTC refuses the kernels for {options.arch}:\n{lines}")
        cubin = _bytes(nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN, program)
        ptx = _text(nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX, program)
    finally:
        nvrtc.nvrtcDestroyProgram(program)
    return NvrtcModule(cubin, ptx.encode(), read_resources(log), nvrtc_version(nvrtc))


def _flags(options: CudaOptions) -> list[bytes]:
    return [
        f"--gpu-architecture={options.arch}".encode(),
        b"--std=c++17",
        b"-default-device",
        b"--fmad=true" if options.fmad else b"--fmad=false",
        b"--ptxas-options=-v",
        b"--no-cache",  # what the driver's cache has comes without the lines on registers
        *((b"--generate-line-info",) if options.lineinfo else ()),
    ]


def _bytes(size: Callable[..., Any], get: Callable[..., Any], program: Any) -> bytes:
    """Return what one function fills in and another gives the size of."""
    _, count = _checked(size, program)
    data = bytes(count)  # the binding writes into it
    _checked(get, program, data)
    return data


def _text(size: Callable[..., Any], get: Callable[..., Any], program: Any) -> str:
    return _bytes(size, get, program).rstrip(b"\0").decode(errors="replace")


def _checked(call: Callable[..., Any], *args: Any) -> Sequence[Any]:
    """Call a function of NVRTC.

    Raises:
        ToolchainError: It fails, or the library does not load.
    """
    try:
        answer = call(*args)
    except (RuntimeError, OSError) as cause:
        raise ToolchainError(
            f"NVRTC does not load: {str(cause).strip()}", hint="pip install 'intarsia-cuda[cuda13]'"
        ) from cause
    if int(answer[0]) != 0:
        raise ToolchainError(f"a call of NVRTC failed: {answer[0]}")
    return answer


def read_resources(log: str) -> dict[str, Resources]:
    """Return what NVRTC's log says of each ``__global__`` function."""
    found: dict[str, Resources] = {}
    name, stack, spills = "", 0, 0
    for line in log.splitlines():
        entry = _ENTRY.search(line)
        if entry is not None:
            name, stack, spills = entry[1], 0, 0
        frame, spilled, used = _FRAME.search(line), _SPILLS.search(line), _USED.search(line)
        stack = stack if frame is None else int(frame[1])
        spills = spills if spilled is None else int(spilled[1]) + int(spilled[2])
        if used is not None and name:
            shared = _SHARED.search(line)
            size = 0 if shared is None else int(shared[1])
            found[name] = Resources(int(used[1]), size, spills, stack)
    return found
