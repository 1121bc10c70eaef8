# SPDX-License-Identifier: Apache-2.0
"""A compiled graph and its calls: compiled code reads and writes where torch has its tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import is_, itemgetter
from typing import TYPE_CHECKING, cast

from intarsia_runtime.executors.aot import AotExecutor
from intarsia_runtime.executors.open import OpenExecutor
from intarsia_runtime.size import Dim, Size, value_of

from .graph import Computed, Known, Result, View, array_of, tensors_among, version_of
from .onnx_export import require_torch

if TYPE_CHECKING:
    import numpy as np

    from intarsia_runtime.load import Executable

    from .graph import Imported
    from .types import TorchTensor

Shapes = tuple[tuple[int, ...], ...]


class CompiledCall:
    """A graph compiled for arguments like the given ones.

    Args:
        imported: The graph.
        executable: Its program; ``None`` if nothing is computed.
        args: What it is called with first.
        weights: Numbers of the arguments that are compiled in.
    """

    def __init__(
        self,
        imported: Imported,
        executable: Executable | None,
        args: Sequence[object],
        weights: Sequence[int],
    ) -> None:
        self._new_tensor: Callable[..., TorchTensor] = require_torch().empty
        tensors = tensors_among(args)
        self._weights = tuple(tensors.pop(number) for number in weights)
        self._versions = tuple(map(version_of, self._weights))
        self._weights_of = items(weights)
        self.is_open = imported.is_open
        sizes = frozenset(imported.symbols.values())
        known = {*tensors, *weights, *(sizes if self.is_open else ())}
        self._numbers = [(n, value) for n, value in enumerate(args) if n not in known]
        viewed = {item.argument for item in imported.results if isinstance(item, View)}
        exact = {} if self.is_open else tensors
        self._shapes = [(number, tensor.shape) for number, tensor in exact.items()]
        self._strides = [(n, exact[n].stride()) for n in viewed if n in exact]
        self._executable = executable
        self._direct = _direct(executable)
        self._inputs = items(imported.inputs)
        self._carried = [n for n, k in enumerate(imported.inputs) if k in imported.carried]
        self._kinds = imported.outputs
        self._results = imported.results
        self._is_plain = all(isinstance(item, Computed) for item in imported.results)
        self._symbols = imported.symbols
        self._latest: tuple[Shapes, Shapes] | None = None

    def fits(self, args: Sequence[object]) -> bool:
        """Whether these arguments have the shapes, numbers and weights that it was compiled for."""
        tensors = cast("Sequence[TorchTensor]", args)  # asked only where it was one before
        if self._weights:
            given = self._weights_of(tensors)
            if not all(map(is_, given, self._weights)):
                return False
            if tuple(map(version_of, given)) != self._versions:
                return False
        for number, shape in self._shapes:
            if tensors[number].shape != shape:
                return False
        for number, stride in self._strides:
            if tensors[number].stride() != stride:
                return False
        return all(args[number] == value for number, value in self._numbers)

    def is_outdated(self, args: Sequence[object]) -> bool:
        """Whether somebody wrote to one of these arguments after it was compiled in."""
        given = self._weights_of(cast("Sequence[TorchTensor]", args))
        rows = zip(given, self._weights, self._versions, strict=True)
        return any(now is tensor and version_of(now) != was for now, tensor, was in rows)

    def run(self, args: Sequence[object]) -> tuple[object, ...]:
        """Compute the results; inputs are read, and outputs written, where torch has them.

        Raises:
            ModelError: A guard of the program does not hold.
        """
        tensors = cast("Sequence[TorchTensor]", args)
        outputs: list[TorchTensor] = []
        executable = self._executable
        if executable is not None:
            inputs = list(self._inputs(tensors))
            if self._direct is not None:
                outputs = self._run_at(self._direct, inputs)
            else:
                outputs = self._run_into(executable, inputs)
        if self._is_plain:
            return tuple(outputs)
        values = {name: cast("int", args[number]) for name, number in self._symbols.items()}
        return tuple([result_of(item, tensors, outputs, values) for item in self._results])

    def _run_at(
        self, executable: AotExecutor | OpenExecutor, inputs: list[TorchTensor]
    ) -> list[TorchTensor]:
        for place in self._carried:  # the shape of an input without elements says the size
            inputs[place] = self._new_tensor((inputs[place], 0))
        for place, tensor in enumerate(inputs):
            if not tensor.is_contiguous() or tensor.is_neg():
                inputs[place] = tensor.resolve_neg().contiguous()
        shapes = tuple([tensor.shape for tensor in inputs])
        latest = self._latest
        if latest is None or latest[0] != shapes:
            shapes = tuple([tuple(shape) for shape in shapes])
            latest = self._latest = shapes, executable.output_shapes(shapes)
        shapes, results = latest
        empty = self._new_tensor
        rows = zip(results, self._kinds, strict=True)
        outputs = [empty(shape, dtype=kind) for shape, kind in rows]
        executable.run_at(shapes, [tensor.data_ptr() for tensor in inputs + outputs])
        return outputs

    def _run_into(self, executable: Executable, inputs: Sequence[TorchTensor]) -> list[TorchTensor]:
        """Run a program that takes arrays."""
        found = executable.run([array_of(tensor) for tensor in inputs])
        made: list[TorchTensor] = []
        arrays = cast("Iterable[np.ndarray]", found.values())  # a graph's results are tensors
        for array, kind in zip(arrays, self._kinds, strict=True):
            output = self._new_tensor(array.shape, dtype=kind)
            array_of(output)[...] = array
            made.append(output)
        return made


def _direct(executable: Executable | None) -> AotExecutor | OpenExecutor | None:
    """Return a program if it runs in memory of the caller."""
    if isinstance(executable, OpenExecutor):
        return executable if executable.knows_outputs else None
    return executable if isinstance(executable, AotExecutor) else None


def items(places: Sequence[int]) -> Callable[[Sequence[TorchTensor]], Sequence[TorchTensor]]:
    """Return what takes the arguments at some places."""
    if len(places) > 1:
        return itemgetter(*places)
    return lambda args: [args[place] for place in places]


def result_of(
    item: Result,
    args: Sequence[TorchTensor],
    outputs: Sequence[TorchTensor],
    values: Mapping[str, int],
) -> object:
    """Return one result of a graph, from its arguments and what was computed."""
    match item:
        case Computed(position):
            return outputs[position]
        case Known(value):
            return value.evaluate(values) if isinstance(value, Dim) else value
        case View(argument, size, stride, offset):
            tensor = args[argument]
            begin = tensor.storage_offset() + value_of(offset, values)
            return tensor.as_strided(_numbers(size, values), _numbers(stride, values), begin)


def _numbers(sizes: Sequence[Size], values: Mapping[str, int]) -> tuple[int, ...]:
    return tuple([value_of(size, values) for size in sizes])
