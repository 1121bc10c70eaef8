# SPDX-License-Identifier: Apache-2.0
"""The runtime half: an engine on the GPU, called with arrays of the host. Imports no compiler."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from intarsia_runtime.plugin import (
    ArtifactError,
    LoadRequest,
    ResourceError,
    WorkerLost,
    reads_formats,
)

from .device import Gpu
from .sdk import Library, Messages, find_library
from .signature import (
    FILE,
    PLAN_FILE,
    SCHEMA,
    TYPE_NAMES,
    EngineBorder,
    EngineSignature,
    parse_signature,
)

if TYPE_CHECKING:
    import numpy as np


@reads_formats(SCHEMA)
def load(request: LoadRequest) -> Callable[..., None]:
    """Put an engine on the GPU and return what runs it.

    Raises:
        ArtifactError: The unit is damaged, or was built by another version or for another GPU.
        ToolchainError: The library, or the binding of the driver, is not installed.
        WorkerLost: There is no driver or no GPU.
        ResourceError: No memory left on the GPU.
    """
    with request.interpreting(FILE):
        signature = parse_signature(request.file(FILE))
        request.check_signature(
            *(
                [(border.dtype, border.shape) for border in borders]
                for borders in (signature.inputs, signature.outputs)
            )
        )
    plan = request.file(PLAN_FILE)
    gpu = Gpu()
    try:
        library = find_library(signature.edition)
        return LoadedNetwork(request.name, plan, signature, library, gpu).run
    except BaseException:
        gpu.close()
        raise


class _Opened:
    """The vendor's objects, which must go before the GPU does."""

    def __init__(self, runtime: Any) -> None:
        self.runtime = runtime
        self.engine: Any = None
        self.context: Any = None


def _close(opened: _Opened, gpu: Gpu) -> None:
    gpu.enter()
    opened.context = None
    opened.engine = None
    opened.runtime = None
    gpu.close()


class LoadedNetwork:
    """An engine with memory for its tensors.

    Args:
        name: Of the region.
        plan: The serialized engine.
        signature: Its border.
        library: What reads it.
        gpu: Where it runs; closed with this object.

    Raises:
        ArtifactError: The library does not take the engine.
        ResourceError: No memory left on the GPU.
    """

    def __init__(
        self, name: str, plan: bytes, signature: EngineSignature, library: Library, gpu: Gpu
    ) -> None:
        self.name, self._gpu = name, gpu
        self._messages = Messages(library.module)
        opened = _Opened(library.module.Runtime(self._messages.logger))
        opened.engine = opened.runtime.deserialize_cuda_engine(bytes(plan))
        if opened.engine is None:
            raise ArtifactError(
                f"{library.label} does not take the engine of region '{name}', which was built by"
                f" {signature.edition} {signature.version} for {signature.device}:"
                f" {self._messages.text()}",
                hint="compile the model again, for this GPU and with the library that is here",
            )
        opened.context = opened.engine.create_execution_context()
        if opened.context is None:
            raise ResourceError(
                f"no memory for the engine of region '{name}': {self._messages.text()}",
                hint="use a smaller batch, or compile with a smaller -workspace",
            )
        self._opened = opened
        borders = (*signature.inputs, *signature.outputs)
        self._inputs = len(signature.inputs)
        for border in signature.inputs:
            if not self._opened.context.set_input_shape(border.name, border.shape):
                raise self._misfit(border)
        for border in borders:
            self._check(border, library.module.DataType)
        self._places = [self._place(border) for border in borders]
        self._close = weakref.finalize(self, _close, opened, gpu)

    def _check(self, border: EngineBorder, dtypes: Any) -> None:
        """Compare a tensor of the engine, which writes as far as its own sizes go."""
        has = tuple(self._opened.context.get_tensor_shape(border.name))
        dtype = self._opened.engine.get_tensor_dtype(border.name)
        name = TYPE_NAMES.get(border.dtype, "")
        if has != border.shape or not name or dtype != getattr(dtypes, name, None):
            raise ArtifactError(
                f"the engine of region '{self.name}' has the tensor {border.name} of {has},"
                f" {dtype}; the artifact says {border.shape}, {border.dtype}",
                hint="compile the model again",
            )

    def _place(self, border: EngineBorder) -> int:
        size = _item_bytes(border.dtype)
        for count in border.shape:
            size *= count
        address = self._gpu.reserve(size)
        if not self._opened.context.set_tensor_address(border.name, address):
            raise self._misfit(border)
        return address

    def _misfit(self, border: EngineBorder) -> ArtifactError:
        return ArtifactError(
            f"the engine of region '{self.name}' has no tensor {border.name} of {border.shape}:"
            f" {self._messages.text()}",
            hint="compile the model again",
        )

    def run(self, *arrays: np.ndarray) -> None:
        """Carry out one run: inputs, then outputs to fill.

        Raises:
            WorkerLost: The GPU failed.
        """
        gpu = self._gpu
        gpu.enter()  # this may be another thread
        for array, place in zip(arrays[: self._inputs], self._places, strict=False):
            gpu.copy_in(place, array)
        self._messages.clear()
        if not self._opened.context.execute_async_v3(gpu.stream):
            raise WorkerLost(f"the engine of region '{self.name}' failed: {self._messages.text()}")
        outputs = zip(arrays[self._inputs :], self._places[self._inputs :], strict=True)
        for array, place in outputs:
            gpu.copy_out(array, place)
        gpu.wait()


def _item_bytes(dtype: str) -> int:
    bits = "".join(letter for letter in dtype if letter.isdigit())
    return int(bits) // 8 if bits else 1  # bool
