# SPDX-License-Identifier: Apache-2.0
"""The executor of open sizes: one program for inputs of every shape that its arithmetic allows.

Where the shapes of the inputs are those of the run before, a run is one native call. Where they
changed, native code computes sizes and offsets first; nothing is compiled or interpreted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, chain
from typing import TypeAlias, cast

import numpy as np
from msgspec.structs import replace

from ..abi import ArgumentBlock, SafeCall, array_dtype, point_at
from ..artifact.plan import THREADS, OpenSizes, TensorSpec
from ..artifact.signature import ValueSpec
from ..errors import ModelError
from ..memory import ResultMemory
from ..open_memory import OpenMemory
from ..program import LoadedProgram
from ..size import Dim, Size, value_of
from .graph import ProfileRow, check_repeat, profile_walk
from .planned import ProgramExecutor
from .random_inputs import random_states
from .signature import (
    Inputs,
    OutputRow,
    as_array,
    contiguous,
    copy_into,
    new_outputs,
    ordered_values,
)
from .steps import PlanWalk, SeeRegion

Shapes: TypeAlias = "tuple[tuple[int, ...], ...]"


class OpenExecutor(ProgramExecutor):
    """Runs a loaded artifact of open sizes. Safe to share between threads; runs are one at a time.

    Arguments are those of :class:`.ProgramExecutor`.
    """

    def __init__(self, program: LoadedProgram) -> None:
        super().__init__(program)
        plan = program.passport.plan
        assert plan.open is not None  # what opens an artifact asks
        assert program.open is not None
        self._sizes: OpenSizes = plan.open
        self._names = tuple(spec.name for spec in plan.inputs)
        self._draws = random_states(plan.inputs)
        self._rows = tuple((spec, array_dtype(spec)) for spec in plan.inputs)
        self._ranks = [len(spec.shape) for spec in plan.inputs]
        starts = [*accumulate(self._ranks, initial=1)]  # of inputs in a row of threads and sizes
        sources = [(s.name, starts[s.input] + s.axis) for s in plan.open.variables]
        self._sources = [(name, 0 if name == THREADS else place) for name, place in sources]
        # Of each size of the inputs its number, the name of its variable, or an expression.
        sizes: Iterable[Size] = chain.from_iterable(spec.shape for spec in plan.inputs)
        self._wanted = [s.name if isinstance(s, Dim) and s.is_variable else s for s in sizes]
        self._computed = [size for size in self._wanted if isinstance(size, Dim)]
        self._output_names = tuple(spec.name for spec in plan.outputs)
        self._call = SafeCall(program.main.function)
        self._shapes: Shapes | None = None  # of the inputs that the memory is laid out for
        self._late = tuple(
            number for number, spec in enumerate(plan.outputs) if self._sizes.stage(*spec.shape)
        )
        outputs = [(n, spec.name, array_dtype(spec)) for n, spec in enumerate(plan.outputs)]
        self._early = [row for row in outputs if row[0] not in self._late]
        early = (plan.outputs[n] for n, *_ in self._early)
        specs = [replace(s, shape=(0,) * len(s.shape)) for s in (*plan.inputs, *early)]
        self._arguments = block = ArgumentBlock(specs, program.leading)
        tensors = block.tensors[len(plan.inputs) :]
        for tensor, (number, *_) in zip(tensors, self._early, strict=True):
            tensor.shape = program.open.extents(number)
        handle = program.main.handle or None
        self._call_arguments = (handle, block.address, block.count, block.result_address)
        self._kept, self._memory = ResultMemory(), None
        self._made: list[OutputRow] = []  # the outputs that the inputs decide, for these shapes

    @property
    def inputs(self) -> tuple[ValueSpec, ...]:
        """Inputs of the model, in its order."""
        return self.passport.signature.inputs

    @property
    def outputs(self) -> tuple[ValueSpec, ...]:
        """Outputs of the model, in its order."""
        return self.passport.signature.outputs

    def run(self, inputs: Inputs) -> dict[str, np.ndarray]:
        """Compute the outputs, as new arrays by name in the model's order.

        Args:
            inputs: Arrays by name, or in the model's order; NumPy or DLPack on the CPU.

        Raises:
            ModelError: The inputs are not what the model takes, or their sizes do not go together.
            ResourceError: No memory for the workspace.
        """
        arrays = self._arrays(inputs)
        with self._program.lock:
            # A model may take less than a microsecond: a Python call here costs a tenth of one.
            shapes = tuple([array.shape for array in arrays])
            memory = self._program.open
            if shapes != self._shapes or memory is None:
                memory = self._lay_out(shapes)
            if self._late:
                results = self._room()
                self._invoke(memory, arrays, results)
            else:
                results = new_outputs(self._made, self._memory)
                point_at(self._arguments.tensors, arrays + results)
                self._call_main(memory)
        return dict(zip(self._output_names, results, strict=True))

    def run_into(self, inputs: Inputs, outputs: Inputs) -> None:
        """Compute the outputs into the caller's arrays, whose shapes must be those that come out.

        Raises:
            ModelError: As :meth:`run`; or an array has another shape or element type.
        """
        copy_into(dict(self.run(inputs)), outputs)

    @property
    def knows_outputs(self) -> bool:
        """Whether the shapes of the inputs decide those of all outputs."""
        return not self._late

    def output_shapes(self, shapes: Shapes) -> Shapes:
        """As :meth:`.AotExecutor.output_shapes`."""
        with self._program.lock:
            memory = self._lay_out(shapes)
            return tuple([memory.shape(number) for number in range(len(self._output_names))])

    def run_at(self, shapes: Shapes, addresses: Sequence[int]) -> None:
        """As :meth:`.AotExecutor.run_at`."""
        with self._program.lock:
            memory = self._lay_out(shapes)
            for tensor, address in zip(self._arguments.tensors, addresses, strict=True):
                tensor.data = address
            self._call_main(memory)

    def profile(self, inputs: Inputs, repeat: int = 1) -> tuple[ProfileRow, ...]:
        """Time each step for the sizes of these inputs, as :meth:`.GraphExecutor.profile`."""
        check_repeat(repeat)
        arrays = self._arrays(inputs)
        program = self._program
        with program.lock:
            walk, results = self._walk(arrays)
            return profile_walk(walk, lambda: walk.run(arrays, results), repeat)

    def walk_regions(self, inputs: Inputs, see: SeeRegion) -> dict[str, np.ndarray]:
        """Run, and show regions, as :meth:`.GraphExecutor.walk_regions`."""
        arrays = self._arrays(inputs)
        with self._program.lock:
            walk, results = self._walk(arrays)
            walk.run(arrays, results, see)
        return dict(zip(self._output_names, results, strict=True))

    def _walk(self, arrays: list[np.ndarray]) -> tuple[PlanWalk, list[np.ndarray]]:
        """Return a walk over the plan for the sizes of some inputs, and room for its outputs."""
        memory = self._lay_out(_shapes_of(arrays))
        plan = self._program.passport.plan
        return PlanWalk(self._program, plan, memory), self._room()

    def _room(self) -> list[np.ndarray]:
        """Return new outputs for the sizes laid out; those whose sizes steps compute come later."""
        results = new_outputs(self._made, self._memory)
        for number in self._late:
            results.insert(number, _NOTHING)
        return results

    def _arrays(self, inputs: Inputs) -> list[np.ndarray]:
        """Return contiguous arrays of the right element types in the model's order."""
        arrays: list[np.ndarray] = []
        if self._draws is not None:
            inputs = self._draws.completed(inputs, len(self._names))
        values = ordered_values(inputs, self._names)
        for value, (spec, dtype) in zip(values, self._rows):  # noqa: B905 # as many, and faster
            array = value if type(value) is np.ndarray else as_array(value, spec.name)
            own = array.dtype
            if own is not dtype and own != dtype:
                raise _mismatch(spec, array.shape, dtype=own)
            # ``carray`` is one look at the flags; ``contiguous`` takes read-only arrays as well.
            arrays.append(array if array.flags.carray else contiguous(array, spec.name))
        return arrays

    def _lay_out(self, shapes: Shapes) -> OpenMemory:
        """Compute sizes and offsets, if inputs have other shapes than those before."""
        program = self._program
        program.check_open()
        memory = cast("OpenMemory", program.open)  # until it is closed
        if shapes != self._shapes:
            self._shapes = None  # until all of it is done
            memory.set_inputs(self._values(shapes))
            self._made = [(name, memory.shape(n), dtype) for n, name, dtype in self._early]
            self._arguments.resize(shapes)
            self._memory = self._kept.fitted(self._made)
            self._shapes = shapes
        return memory

    def _values(self, shapes: Shapes) -> list[int]:
        """Return the values of the size variables, which all sizes of the inputs must fit."""
        if [*map(len, shapes)] != self._ranks:
            raise self._misfit(shapes)
        sizes = sum(shapes, (self._program.threads,))
        values = {name: sizes[place] for name, place in self._sources}
        known: dict[Size | str, int] = {**values}
        for size in self._computed:
            known[size] = size.evaluate(values)
        if tuple(map(known.get, self._wanted, self._wanted)) != sizes[1:]:
            raise self._misfit(shapes, values)
        return [*values.values()]

    def _misfit(self, shapes: Shapes, values: Mapping[str, int] | None = None) -> ModelError:
        """Return the error for the first input of another rank; with values, of other sizes."""
        misfits = (
            (spec, shape)
            for (spec, _), shape in zip(self._rows, shapes, strict=True)
            if len(shape) != len(spec.shape)
            or (values is not None and shape != tuple([value_of(s, values) for s in spec.shape]))
        )
        return _mismatch(*next(misfits), values=values)

    def _invoke(
        self, memory: OpenMemory, arrays: list[np.ndarray], results: list[np.ndarray]
    ) -> None:
        """Run a plan that computes sizes of outputs; ``results`` gets these outputs."""
        passed = [array for n, array in enumerate(results) if n not in self._late]
        point_at(self._arguments.tensors, arrays + passed)
        self._call_main(memory)
        for number in self._late:
            results[number] = memory.outputs.pop(number)

    def _call_main(self, memory: OpenMemory) -> None:
        """Run with the addresses that the argument block has."""
        program = self._program
        if self._sizes.stages:
            memory.begin()
        status = program.invoke(self._call, *self._call_arguments)
        if status:
            memory.raise_failure(status)
            program.raise_failure("the model")


_NOTHING: np.ndarray = np.empty(0)


def _shapes_of(arrays: Sequence[np.ndarray]) -> Shapes:
    return tuple([array.shape for array in arrays])


def _mismatch(
    spec: TensorSpec,
    shape: tuple[int, ...],
    *,
    dtype: object = None,
    values: Mapping[str, int] | None = None,
) -> ModelError:
    wanted = ", ".join(str(size) for size in spec.shape)
    given = ", ".join(
        f"{name} = {number}" for name, number in (values or {}).items() if name != THREADS
    )
    own = array_dtype(spec)
    return ModelError(
        f"input '{spec.name}' must be {own} ({wanted})"
        f"{f' where {given}' if given else ''}, got {dtype or own} {shape}"
    )
