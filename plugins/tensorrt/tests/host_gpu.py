# SPDX-License-Identifier: Apache-2.0
"""A driver whose device memory is the host's, and a runtime whose engines are functions.

What the loader copies, in which order and to which address, is then seen in its results.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from types import SimpleNamespace

import numpy as np


class HostDriver:
    """The driver's calls that the plugin uses; ``fail`` gives the status of some of them."""

    def __init__(self, fail: Mapping[str, int] | None = None) -> None:
        self.fail = dict(fail or {})
        self.memory: dict[int, ctypes.Array[ctypes.c_char]] = {}
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Callable[..., tuple[object, ...]]:
        def call(*args: object) -> tuple[object, ...]:
            self.calls.append(name)
            if name in self.fail:
                return (self.fail[name], None)
            return (0, self._answer(name, *args))

        return call

    def CUdevice_attribute(self, key: int) -> int:
        return key

    def _answer(self, name: str, *args: object) -> object:
        match name, args:
            case "cuDeviceGetName", _:
                return b"NVIDIA Test\0\0"
            case "cuDeviceGetAttribute", (key, _):
                return {75: 9, 76: 0}[key]
            case "cuDriverGetVersion", _:
                return 13000
            case "cuMemAlloc", (int() as size,):
                block = ctypes.create_string_buffer(size)
                self.memory[ctypes.addressof(block)] = block
                return ctypes.addressof(block)
            case "cuMemcpyHtoDAsync" | "cuMemcpyDtoHAsync", (to, source, size, _):
                ctypes.memmove(to, source, size)
                return None
            case "cuMemFree", (address,):
                del self.memory[address]
                return None
            case _:
                return 7


class Logger:
    """The base class of loggers."""

    Severity = SimpleNamespace(ERROR=1, INTERNAL_ERROR=0)


class Engine:
    """An engine that is a function of arrays in host memory."""

    def __init__(
        self,
        function: Callable[..., np.ndarray],
        shapes: Mapping[str, tuple[int, ...]],
        *,
        works: bool = True,
        context: bool = True,
        dtypes: Mapping[str, str] | None = None,
    ) -> None:
        self.dtypes = dict(dtypes or {})
        self.function, self.shapes, self.works, self.context = function, shapes, works, context
        self.places: dict[str, int] = {}
        self.told: list[str] = []

    def __del__(self) -> None:
        self.told.append("engine is gone")

    def create_execution_context(self) -> Engine | None:
        return self if self.context else None

    def set_tensor_address(self, name: str, address: int) -> bool:
        self.places[name] = address
        return name in self.shapes

    def set_input_shape(self, name: str, shape: tuple[int, ...]) -> bool:
        return self.shapes.get(name) == shape

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        return self.shapes.get(name, ())

    def get_tensor_dtype(self, name: str) -> str:
        return self.dtypes.get(name, "float")

    def execute_async_v3(self, stream: int) -> bool:
        assert stream == 7
        if not self.works:
            return False
        arrays = [self._array(name) for name in sorted(self.shapes) if name.startswith("input")]
        self._array("output_0")[...] = self.function(*arrays)
        return True

    def _array(self, name: str) -> np.ndarray:
        shape = self.shapes[name]
        size = int(np.prod(shape))
        memory = (ctypes.c_float * size).from_address(self.places[name])
        return np.frombuffer(memory, np.float32).reshape(shape)


def module(engine: Engine | None) -> SimpleNamespace:
    """A vendor's module whose runtime gives one engine for every plan, or refuses all."""

    engines = [] if engine is None else [engine]  # handed over: the test shall not keep it

    class Runtime:
        def __init__(self, logger: object) -> None:
            self.logger = logger

        def deserialize_cuda_engine(self, plan: bytes) -> Engine | None:
            assert plan == b"plan"
            if not engines:
                self.logger.log(1, "engine of another version")
                return None
            return engines.pop()

    dtypes = SimpleNamespace(FLOAT="float", HALF="half")
    return SimpleNamespace(ILogger=Logger, Runtime=Runtime, DataType=dtypes)
