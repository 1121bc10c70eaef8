# SPDX-License-Identifier: Apache-2.0
"""A GPU through the CUDA driver: a stream, memory of its pool, and one graph for a whole run.

Imports no compiler. The binding is handed in, so that the order of calls can be tested without a
driver.
"""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from intarsia_runtime.errors import ArtifactError, ResourceError, ToolchainError, WorkerLost

from .device import ALIGNMENT, CopyIn, CopyOut, CopyWithin, Launch, Work

_NO_MEMORY = 2  # CUDA_ERROR_OUT_OF_MEMORY
_NO_BINARY = (209, 218, 222)  # no binary for the GPU; invalid PTX; PTX of a later version
_MOST_POOLED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*


def require_driver() -> Any:
    """Return the driver's binding.

    Raises:
        ToolchainError: The binding is not installed.
    """
    try:
        return importlib.import_module("cuda.bindings.driver")
    except ImportError as cause:
        raise ToolchainError(
            f"the binding of the CUDA driver is not installed: {cause}",
            hint="pip install 'intarsia-cuda[cuda13]'",
        ) from None


def device_name(driver: Any = None) -> str:
    """Return the name of the first GPU.

    Raises:
        ToolchainError: The binding is not installed.
        WorkerLost: There is no driver or no GPU.
    """
    cuda, number = _first_gpu(driver)
    name = _checked(cuda.cuDeviceGetName, 128, number)
    return name.partition(b"\0")[0].decode(errors="replace")


def device_capability(driver: Any = None) -> int:
    """Return the compute capability of the first GPU, as 75 or 90.

    Raises:
        ToolchainError: The binding is not installed.
        WorkerLost: There is no driver or no GPU.
    """
    cuda, number = _first_gpu(driver)
    major, minor = (
        int(_checked(cuda.cuDeviceGetAttribute, cuda.CUdevice_attribute(key), number))
        for key in (_MAJOR, _MINOR)
    )
    return major * 10 + minor


def _first_gpu(driver: Any) -> tuple[Any, Any]:
    """Return the binding, the installed one if ``driver`` is ``None``, and the GPU's handle."""
    cuda = require_driver() if driver is None else driver
    _checked(cuda.cuInit, 0)
    return cuda, _checked(cuda.cuDeviceGet, 0)


class CudaDevice:
    """The first GPU.

    Args:
        images: Machine code, then what the driver can compile: the first one that it takes is used.
        driver: The binding; the installed one if ``None``.

    Raises:
        ToolchainError: The binding is not installed.
        WorkerLost: There is no driver or no GPU.
        ArtifactError: The code is for another GPU.
        ResourceError: No memory left.
    """

    def __init__(self, images: Sequence[bytes], driver: Any = None) -> None:
        cuda, self._number = _first_gpu(driver)
        self._cuda = cuda
        self._context = _checked(cuda.cuDevicePrimaryCtxRetain, self._number)
        _checked(cuda.cuCtxSetCurrent, self._context)
        self._module = self._load(images)
        self._stream = _checked(cuda.cuStreamCreate, 1)  # does not wait for the default stream
        self._pool = _checked(cuda.cuDeviceGetDefaultMemPool, self._number)
        self._memory: list[Any] = []
        self._pinned: list[Any] = []
        self._graphs: dict[Callable[[], None], Any] = {}
        self._functions: dict[str, Any] = {}
        self._closed = False

    def _load(self, images: Sequence[bytes]) -> Any:
        for image in images:
            status, module = self._cuda.cuModuleLoadData(image)
            if int(status) == 0:
                return module
            if int(status) not in _NO_BINARY:
                _raise(status)
        raise ArtifactError(
            "the kernels were compiled for another GPU than this one",
            hint="compile the model again with -arch=sm_NN of this GPU",
        )

    def reserve(self, size: int) -> int:
        """Return the address of memory of the device's pool."""
        address = _checked(
            self._cuda.cuMemAllocFromPoolAsync, max(size, ALIGNMENT), self._pool, self._stream
        )
        _checked(self._cuda.cuStreamSynchronize, self._stream)
        self._memory.append(address)
        return int(address)

    def release(self, address: int) -> None:
        """Give memory back to the pool, behind all work that the stream has."""
        number = [int(held) for held in self._memory].index(address)
        _checked(self._cuda.cuMemFreeAsync, self._memory.pop(number), self._stream)

    def staging(self, size: int) -> np.ndarray:
        """Return page-locked memory of the host, which copies of a graph may use."""
        address = _checked(self._cuda.cuMemHostAlloc, max(size, 1), 0)
        self._pinned.append(address)
        memory = (ctypes.c_char * max(size, 1)).from_address(int(address))
        return np.frombuffer(memoryview(memory), np.uint8)[:size]

    def unstage(self, memory: np.ndarray) -> None:
        """Give page-locked memory back."""
        number = [int(held) for held in self._pinned].index(memory.ctypes.data)
        _checked(self._cuda.cuMemFreeHost, self._pinned.pop(number))

    def upload(self, to: int, data: np.ndarray) -> None:
        """Copy now."""
        _checked(self._cuda.cuMemcpyHtoD, to, data.ctypes.data, data.nbytes)
        # The copy may still be on its way, and our stream does not wait for the default one.
        _checked(self._cuda.cuCtxSynchronize)

    def record(self, work: Sequence[Work]) -> Callable[[], None]:
        """Capture the work as one graph; return what starts it and waits for its end."""
        cuda = self._cuda
        relaxed = cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        self._find_functions(work)
        _checked(cuda.cuStreamBeginCapture, self._stream, relaxed)
        for item in work:
            self._enqueue(item)
        graph = _checked(cuda.cuStreamEndCapture, self._stream)
        ready = _checked(cuda.cuGraphInstantiate, graph, 0)
        _checked(cuda.cuGraphDestroy, graph)

        def run() -> None:
            _checked(cuda.cuCtxSetCurrent, self._context)  # this may be another thread
            _checked(cuda.cuGraphLaunch, ready, self._stream)
            _checked(cuda.cuStreamSynchronize, self._stream)

        self._graphs[run] = ready
        return run

    def carry_out(self, work: Sequence[Work]) -> None:
        """Give the work to the stream, one piece after the other, and wait for its end."""
        cuda = self._cuda
        _checked(cuda.cuCtxSetCurrent, self._context)  # this may be another thread
        self._find_functions(work)
        for item in work:
            self._enqueue(item)
        _checked(cuda.cuStreamSynchronize, self._stream)

    def forget(self, recorded: Callable[[], None]) -> None:
        """Give a graph back."""
        _checked(self._cuda.cuGraphExecDestroy, self._graphs.pop(recorded))

    def _find_functions(self, work: Sequence[Work]) -> None:
        """Find the kernels that work starts; none may be looked for while a graph is captured."""
        for item in work:
            if isinstance(item, Launch) and item.kernel not in self._functions:
                found = _checked(self._cuda.cuModuleGetFunction, self._module, item.kernel.encode())
                self._functions[item.kernel] = found
                pooled = item.start.pooled_bytes
                if pooled:
                    key = self._cuda.CUfunction_attribute(_MOST_POOLED)
                    _checked(self._cuda.cuFuncSetAttribute, found, key, pooled)

    def _enqueue(self, item: Work) -> None:
        cuda, stream = self._cuda, self._stream
        match item:
            case CopyIn():
                source = item.source
                _checked(cuda.cuMemcpyHtoDAsync, item.to, source.ctypes.data, source.nbytes, stream)
            case CopyOut():
                to = item.to
                _checked(cuda.cuMemcpyDtoHAsync, to.ctypes.data, item.source, to.nbytes, stream)
            case CopyWithin():
                _checked(cuda.cuMemcpyDtoDAsync, item.to, item.source, item.bytes, stream)
            case Launch():
                function = self._functions[item.kernel]
                kinds = (ctypes.c_void_p,) * len(item.args) + (ctypes.c_int64,) * len(item.sizes)
                args = ((*item.args, *item.sizes), kinds)
                dims, pooled = item.start.dims, item.start.pooled_bytes
                _checked(cuda.cuLaunchKernel, function, *dims, pooled, stream, args, 0)

    def close(self) -> None:
        """Give graphs, memory, code and the context back."""
        if self._closed:
            return
        self._closed = True
        cuda = self._cuda
        _checked(cuda.cuCtxSetCurrent, self._context)
        for graph in self._graphs.values():
            _checked(cuda.cuGraphExecDestroy, graph)
        for address in self._memory:
            _checked(cuda.cuMemFreeAsync, address, self._stream)
        _checked(cuda.cuStreamSynchronize, self._stream)
        for address in self._pinned:
            _checked(cuda.cuMemFreeHost, address)
        _checked(cuda.cuModuleUnload, self._module)
        _checked(cuda.cuStreamDestroy, self._stream)
        _checked(cuda.cuDevicePrimaryCtxRelease, self._number)


def _checked(call: Callable[..., Any], *args: Any) -> Any:
    """Call a function of the driver; return what it gives beside its status.

    Raises:
        WorkerLost: There is no driver, or the device failed.
        ResourceError: No memory left.
    """
    try:
        status, *rest = call(*args)
    except (RuntimeError, OSError) as cause:
        raise WorkerLost(
            f"there is no CUDA driver: {cause}",
            hint="run on a machine with an NVIDIA GPU, or compile with -emulate for the CPU",
        ) from cause
    if int(status) != 0:
        _raise(status)
    return rest[0] if rest else None


def _raise(status: Any) -> None:
    if int(status) == _NO_MEMORY:
        raise ResourceError("the GPU has no memory left", hint="use a smaller batch or input")
    raise WorkerLost(
        f"the CUDA driver failed: {status}",
        hint="intarsia doctor shows which GPU is found",
    )
