# SPDX-License-Identifier: Apache-2.0
"""The executor of models that are partly known at run time only: a program of pieces and nodes.

Compiled pieces run as native code. Single nodes run on the host with the NumPy definitions of their
operators, one after the other: right for any value, and slow beside compiled code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from types import FunctionType
from typing import TypeAlias, cast

import numpy as np

from ..artifact.archive import OpenedArtifact
from ..artifact.passport import Passport, UnitEntry
from ..artifact.signature import ValueSpec
from ..closing import Closing
from ..discovery import find_loader, loader_label
from ..errors import ModelError, PluginError, UsageError
from ..guarded import Guarded, Owner
from ..loading import (
    HostedProgram,
    Loader,
    PieceCall,
    ProgramLoader,
    ProgramRequest,
    RunValue,
    StepSeen,
    UnitLoader,
    WatchSteps,
)
from ..threads import choose_threads
from .aot import AotExecutor
from .graph import GraphExecutor, ProfileRow
from .open import OpenExecutor
from .signature import Inputs, as_array, copy_into, ordered_values

Piece: TypeAlias = "AotExecutor | GraphExecutor | OpenExecutor"
"""What runs a compiled piece."""

OpenPiece: TypeAlias = Callable[[OpenedArtifact], Piece]
"""Makes a part of the artifact ready to run."""

Run: TypeAlias = "Callable[[Sequence[RunValue], WatchSteps | None], list[RunValue]]"
"""Carries out a program."""

_OURS = "intarsia."


class VmExecutor(Closing):
    """Runs a program. Values are arrays; sequences are lists, and an empty optional is ``None``.

    Args:
        opened: The artifact that holds the program.
        open_piece: Makes a compiled piece ready to run.
        threads: Threads for compiled pieces; ``None`` means as many as the process may use.

    Raises:
        ArtifactError: The program or a piece is damaged, or its loader is missing.
    """

    def __init__(self, opened: OpenedArtifact, open_piece: OpenPiece, threads: int | None) -> None:
        self._passport = opened.passport
        self.threads = choose_threads(threads)
        unit = opened.passport.unit("main")
        parts = opened.passport.parts
        self._pieces = {part.name: open_piece(opened.part(part)) for part in parts}
        calls = {name: _caller(piece) for name, piece in self._pieces.items()}
        request = ProgramRequest(opened.unit_files("main"), calls)
        self._program, self._run = _loaded(unit, find_loader(unit), request)
        self._closed = False

    @property
    def inputs(self) -> tuple[ValueSpec, ...]:
        """Inputs of the model, in its order."""
        return self._program.inputs

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the outputs, in the model's order; what they are shows when it has run."""
        return self._program.outputs

    @property
    def passport(self) -> Passport:
        """What the artifact says of itself."""
        return self._passport

    def run(self, inputs: Inputs) -> dict[str, RunValue]:
        """Compute the outputs, as new arrays by name in the model's order.

        Args:
            inputs: Values by name, or in the model's order.

        Raises:
            ModelError: The inputs are not what the model takes, or a node cannot take its operands.
            UnsupportedError: A node asks for what there is not.
        """
        self._check_open()
        values = self._checked(inputs)
        results = _own(self._run(values, None), values)
        return dict(zip(self.outputs, results, strict=True))

    def run_into(self, inputs: Inputs, outputs: Inputs) -> None:
        """Compute the outputs into the caller's arrays, whose shapes must be those that come out.

        Raises:
            ModelError: As :meth:`run`; or an array has another shape or element type.
        """
        copy_into(self.run(inputs), outputs)

    def profile(self, inputs: Inputs, repeat: int = 1) -> tuple[ProfileRow, ...]:
        """Time each step of the program: pieces as a whole, nodes one by one.

        Args:
            inputs: As for :meth:`run`.
            repeat: Runs to take the median of; one more goes before them to warm up.

        Raises:
            UsageError: ``repeat`` is less than 1.
        """
        if repeat < 1:
            raise UsageError(f"cannot take the median of {repeat} runs", hint="--repeat 1 or more")
        self.run(inputs)
        rounds: list[list[StepSeen]] = []
        for _ in range(repeat):
            rounds.append([])
            self.watch(inputs, rounds[-1].append)
        seen = [[step.seconds for step in steps] for steps in rounds]
        times = [float(middle) for middle in np.median(seen, axis=0)]
        whole = sum(times) or 1.0
        return tuple(
            ProfileRow(step.label, (step.node,) * bool(step.node), 1e3 * seconds, seconds / whole)
            for step, seconds in zip(rounds[0], times, strict=True)
        )

    def watch(self, inputs: Inputs, see: WatchSteps) -> dict[str, RunValue]:
        """Run, and show what every step took and gave; errors as :meth:`run`."""
        self._check_open()
        results = self._run(self._checked(inputs), see)
        return dict(zip(self.outputs, results, strict=True))

    @property
    def pieces(self) -> Mapping[str, Piece]:
        """Compiled pieces by name."""
        return self._pieces

    def _check_open(self) -> None:
        if self._closed:
            raise ModelError("the executable was closed", hint="load the artifact again")

    def _checked(self, inputs: Inputs) -> list[RunValue]:
        specs = self.inputs
        values = ordered_values(inputs, [spec.name for spec in specs])
        bound: dict[str, int] = {}
        return [_check(value, spec, bound) for value, spec in zip(values, specs, strict=True)]

    def close(self) -> None:
        """Free the pieces; harmless when repeated."""
        self._closed = True
        for piece in self._pieces.values():
            piece.close()


def _loaded(unit: UnitEntry, loader: Loader, request: ProgramRequest) -> tuple[HostedProgram, Run]:
    """Return a program, and what runs it; both guarded if the loader is of another package.

    Raises:
        PluginError: The loader fails, or makes something else.
    """
    load = cast("ProgramLoader", loader)
    function = loader.load if isinstance(loader, UnitLoader) else loader
    if isinstance(function, FunctionType) and function.__module__.startswith(_OURS):
        program = load(request)
        return program, program.run
    owner = Owner(loader_label(unit))
    made = Guarded(load, owner, doing="the program of 'main'")(request)
    lacks = [name for name in ("inputs", "outputs", "run") if not hasattr(made, name)]
    if lacks:
        raise PluginError(f"{owner.label} made {type(made).__name__}, which has no {lacks[0]}")
    program = cast("HostedProgram", made)
    run = Guarded(program.run, owner, doing="the run of 'main'", answers=(list,))
    return program, cast("Run", run)


def _own(results: Sequence[RunValue], inputs: Sequence[RunValue]) -> list[RunValue]:
    """Return results of which each array is the caller's own.

    Nodes that only move give views: of an input, which the caller may fill anew before the next
    run, of a constant of the model, or of another result.
    """
    taken = [array for value in inputs for array in _arrays_in(value)]

    def owned(value: RunValue) -> RunValue:
        match value:
            case list() if value and isinstance(value[0], dict):
                return value  # dictionaries hold no arrays
            case list():
                return [owned(item) for item in value]
            case np.ndarray():
                pass
            case _:
                return value
        shared = not value.flags.writeable
        if shared or any(np.may_share_memory(value, other) for other in taken):
            value = value.copy()
        taken.append(value)
        return value

    return [owned(value) for value in results]


def _arrays_in(value: RunValue) -> Iterator[np.ndarray]:
    match value:
        case list():
            for item in value:
                yield from _arrays_in(item)
        case np.ndarray():
            yield value
        case _:
            pass


def _caller(piece: Piece) -> PieceCall:
    def call(values: Sequence[RunValue]) -> Sequence[RunValue]:
        return list(piece.run(list(values)).values())

    return call


def _check(value: object, spec: ValueSpec, bound: dict[str, int]) -> RunValue:
    """Return the value as the program takes it; ``bound`` holds the sizes that have names."""
    if spec.shape is None:
        return _loose(value, spec.name)
    array = as_array(value, spec.name)
    if _name(array.dtype) != spec.kind or array.ndim != len(spec.shape):
        raise _mismatch(array, spec)
    for size, found in zip(spec.shape, array.shape, strict=True):
        wanted = size if isinstance(size, int) else bound.setdefault(size, found)
        if wanted != found:
            raise _mismatch(array, spec)
    return array


@cache
def _name(dtype: np.dtype) -> str:
    """NumPy's name of an element type, which takes it a microsecond to put together."""
    return dtype.name


def _loose(value: object, name: str) -> RunValue:
    """Return a value of a kind that only the nodes which use it can check."""
    if value is None:
        return None
    if isinstance(value, list | tuple):
        return [_loose(item, name) for item in cast("Sequence[object]", value)]
    array = as_array(value, name)
    return array.astype(object) if array.dtype.kind in "UST" else array


def _mismatch(array: np.ndarray, spec: ValueSpec) -> ModelError:
    sizes = ", ".join(str(size) for size in spec.shape or ())
    return ModelError(
        f"input '{spec.name}' must be {spec.kind} ({sizes}), got {array.dtype} {array.shape}"
    )
