# SPDX-License-Identifier: Apache-2.0
"""The executor of a model that was compiled for several shapes: one program for each.

The shapes of the inputs choose the program, and nothing is compiled. A size that lies between two
compiled ones runs on the larger: inputs are padded with zeros and outputs cut. An open size runs in
chunks of the compiled ones, one after the other. The build has proved that the positions along such
a size have nothing to do with each other.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, product
from math import prod
from typing import TypeAlias, cast

import numpy as np

from ..abi import array_dtype
from ..artifact.archive import OpenedArtifact
from ..artifact.passport import Part, Passport
from ..artifact.plan import NARROW, TensorSpec
from ..artifact.signature import ValueSpec
from ..closing import Closing
from ..dtype import DType, parse_dtype
from ..errors import ModelError, ResourceError
from ..forking import renew_lock_in_children
from ..loading import PlanExecutable, RunValue
from ..threads import choose_threads
from .signature import Inputs, as_array, copy_into, ordered_values
from .vm import VmExecutor

OpenPart: TypeAlias = Callable[[OpenedArtifact], "PlanExecutable | VmExecutor"]
"""Makes the program for one combination of sizes ready to run."""

Tile: TypeAlias = Mapping[str, tuple[int, int]]
"""For each size that has several values, which positions one program runs: begin and end."""


MOST_TILES = 1 << 22
"""Most parts that inputs of open sizes are run in: a size may be large where another is 0."""


class SizesExecutor(Closing):
    """Runs the program that was compiled for the shapes of the inputs.

    A program is made ready when it is first needed; :meth:`prepare` does so beforehand.

    Args:
        opened: The artifact that holds the programs.
        open_part: Makes one ready to run.
        threads: Threads for parallel loops; ``None`` means as many as the process may use.
    """

    def __init__(self, opened: OpenedArtifact, open_part: OpenPart, threads: int | None) -> None:
        self._opened = opened
        self._open_part = open_part
        self.threads = choose_threads(threads)
        self._parts = {part.sizes: part for part in opened.passport.parts}
        self._names = tuple(choice.name for choice in opened.passport.sizes)
        self._whole = {  # what runs inputs as they are
            part.sizes: part
            for part in opened.passport.parts
            if all(c.chunks(s) for c, s in zip(opened.passport.sizes, part.sizes, strict=False))
        }
        self._ready: dict[tuple[int, ...], PlanExecutable | VmExecutor] = {}
        self._lock = threading.Lock()
        renew_lock_in_children(self)
        self._closed = False

    def renew_lock(self) -> None:
        """Take a new lock in a forked process: who held the old one runs in the other."""
        self._lock = threading.Lock()

    @property
    def passport(self) -> Passport:
        """What the artifact says of itself."""
        return self._opened.passport

    @property
    def inputs(self) -> tuple[ValueSpec, ...]:
        """Inputs of the model, in its order."""
        return self.passport.signature.inputs

    @property
    def outputs(self) -> tuple[ValueSpec, ...]:
        """Outputs of the model, in its order."""
        return self.passport.signature.outputs

    def prepare(self) -> None:
        """Make every program ready; errors as those of loading an artifact."""
        for part in self._parts.values():
            self._program(part)

    def run(self, inputs: Inputs) -> dict[str, RunValue]:
        """Compute the outputs, as new arrays by name in the model's order.

        Raises:
            ModelError: The inputs are not what the model takes, or there is no program for their
                shapes; the message says for which there is one.
            PluginError: A region failed.
        """
        arrays = self._arrays(inputs)
        given = self._sizes(arrays)
        part = self._whole_part(given)
        if part is not None:
            return dict(self._program(part).run(arrays))
        nothing = self._nothing(given)
        if nothing is not None:
            return nothing
        tiles = self._tiles(given)
        if len(tiles) > 1:
            return self._run_tiles(arrays, given, tiles)
        return self._run_once(arrays, given)

    def _nothing(self, given: Mapping[str, int]) -> dict[str, RunValue] | None:
        """Return outputs without elements, if an open size is 0 and all outputs have it."""
        if not any(c.is_open and given[c.name] == 0 for c in self.passport.sizes):
            return None
        shapes = {spec.name: (_shape(spec, given), spec.kind) for spec in self.outputs}
        if not all(0 in shape for shape, _ in shapes.values()):
            return None
        return {
            name: np.empty(shape, array_dtype(TensorSpec(name, shape, *_kind(kind))))
            for name, (shape, kind) in shapes.items()
        }

    def _run_once(
        self, arrays: tuple[np.ndarray, ...], given: Mapping[str, int]
    ) -> dict[str, RunValue]:
        """Run the program for these sizes, on padded inputs if it is for larger ones."""
        part = self._part(given)
        program = self._program(part)
        if given == self._values(part):
            return dict(program.run(arrays))
        results = dict(program.run(self._padded(arrays, part)))
        return {
            spec.name: _cut(value, spec, given)
            for spec, value in zip(self.outputs, results.values(), strict=True)
        }

    def _run_tiles(
        self, arrays: tuple[np.ndarray, ...], given: Mapping[str, int], tiles: Sequence[Tile]
    ) -> dict[str, RunValue]:
        """Run the tiles one after the other; each writes its part of the results."""
        results: dict[str, np.ndarray] = {}
        for tile in tiles:
            taken = self._taken(arrays, tile)
            made = self._run_once(taken, {name: end - begin for name, (begin, end) in tile.items()})
            for spec, value in zip(self.outputs, made.values(), strict=True):
                array = cast("np.ndarray", value)  # what is proved has arrays only
                if spec.name not in results:
                    results[spec.name] = np.empty(_shape(spec, given), array.dtype)
                _window(results[spec.name], spec, tile)[...] = array
        return dict(results)

    def _taken(self, arrays: Sequence[np.ndarray], tile: Tile) -> tuple[np.ndarray, ...]:
        """Return the part of each input that a tile takes."""
        return tuple(
            _window(array, spec, tile) for array, spec in zip(arrays, self.inputs, strict=True)
        )

    def fitted(self, inputs: Inputs) -> tuple[PlanExecutable | VmExecutor, dict[str, np.ndarray]]:
        """Return the program that runs these inputs, and the inputs as it takes them.

        Of inputs that run in chunks these are the first chunk's.

        Raises:
            ModelError: As :meth:`run`.
        """
        arrays = self._arrays(inputs)
        tile = self._tiles(self._sizes(arrays))[0]
        arrays = self._taken(arrays, tile)
        part = self._part({name: end - begin for name, (begin, end) in tile.items()})
        names = [spec.name for spec in self.inputs]
        return self._program(part), dict(zip(names, self._padded(arrays, part), strict=True))

    def run_into(self, inputs: Inputs, outputs: Inputs) -> None:
        """Compute the outputs into the caller's arrays, whose shapes must be those that come out.

        Raises:
            ModelError: As :meth:`run`; or an array has another shape or element type.
        """
        arrays = self._arrays(inputs)
        part = self._whole_part(self._sizes(arrays))
        if part is not None:
            self._program(part).run_into(arrays, outputs)
            return
        copy_into(self.run(arrays), outputs)

    def _arrays(self, inputs: Inputs) -> tuple[np.ndarray, ...]:
        values = ordered_values(inputs, [spec.name for spec in self.inputs])
        return tuple(
            as_array(value, spec.name) for value, spec in zip(values, self.inputs, strict=True)
        )

    def _padded(self, arrays: Sequence[np.ndarray], part: Part) -> tuple[np.ndarray, ...]:
        values = self._values(part)
        return tuple(
            _fitted(array, spec, values) for array, spec in zip(arrays, self.inputs, strict=True)
        )

    def _sizes(self, arrays: Sequence[np.ndarray]) -> dict[str, int]:
        """Return the value that each choice of sizes has in these inputs."""
        choices = {choice.name for choice in self.passport.sizes}
        found: dict[str, int] = {}
        for array, spec in zip(arrays, self.inputs, strict=True):
            shape = spec.shape or ()
            fits = len(shape) == array.ndim and array.dtype.name == spec.kind
            for size, given in zip(shape, array.shape, strict=False):
                if isinstance(size, str) and size in choices:
                    fits = fits and found.setdefault(size, given) == given
                else:
                    fits = fits and size == given
            if not fits:
                wanted = ", ".join(map(str, shape))
                raise ModelError(
                    f"input '{spec.name}' must be {spec.kind} ({wanted}), "
                    f"got {array.dtype} {array.shape}",
                    hint=self._offer(),
                )
        return found

    def _tiles(self, given: Mapping[str, int]) -> list[Tile]:
        """Cut the sizes of inputs into what programs run at once, or on padded inputs."""
        axes: list[list[tuple[int, int]]] = []
        counts = [given[c.name] // c.sizes[-1] for c in self.passport.sizes]
        if prod(max(1, count) for count in counts) > MOST_TILES:
            sizes = ", ".join(f"{name} = {number}" for name, number in given.items())
            raise ResourceError(
                f"inputs of {sizes} are run in more than {MOST_TILES} parts",
                hint="use a smaller batch or input",
            )
        for choice in self.passport.sizes:
            chunks = choice.chunks(given[choice.name])
            if not chunks:
                raise ModelError(
                    f"there is no program for {choice.name} = {given[choice.name]}",
                    hint=self._offer(),
                )
            ends = list(accumulate(chunks))
            axes.append([(end - size, end) for size, end in zip(chunks, ends, strict=True)])
        return [dict(zip(self._names, row, strict=True)) for row in product(*axes)]

    def _whole_part(self, given: Mapping[str, int]) -> Part | None:
        """Return the program that was compiled for just these sizes, if they may be given."""
        return self._whole.get(tuple(given[name] for name in self._names))

    def _part(self, given: Mapping[str, int]) -> Part:
        """Return the program that runs inputs of these sizes, which are those of a tile."""
        choices = self.passport.sizes
        return self._parts[tuple(choice.fitting(given[choice.name]) or 0 for choice in choices)]

    def _values(self, part: Part) -> dict[str, int]:
        return dict(zip(self._names, part.sizes, strict=True))

    def _offer(self) -> str:
        return f"the artifact was compiled for {'; '.join(map(str, self.passport.sizes))}"

    def _program(self, part: Part) -> PlanExecutable | VmExecutor:
        with self._lock:
            if self._closed:
                raise ModelError("the executable was closed", hint="load the artifact again")
            ready = self._ready.get(part.sizes)
            if ready is None:
                ready = self._ready[part.sizes] = self._open_part(self._opened.part(part))
            return ready

    def close(self) -> None:
        """Free the programs; harmless when repeated."""
        with self._lock:
            self._closed = True
            for program in self._ready.values():
                program.close()
            self._ready.clear()


def _kind(name: str) -> tuple[DType, str]:
    """Return the element type of compiled code, and the name of the array's if it has another."""
    return (DType.UINT8, name) if name in NARROW else (parse_dtype(name), "")


def _window(array: np.ndarray, spec: ValueSpec, tile: Tile) -> np.ndarray:
    """Return the part of an input or output that belongs to a tile."""
    ranges = [slice(None) if isinstance(s, int) else slice(*tile[s]) for s in spec.shape or ()]
    return array[(*ranges, ...)]  # a view also of what has rank 0


def _fitted(array: np.ndarray, spec: ValueSpec, chosen: Mapping[str, int]) -> np.ndarray:
    """Return an input padded with zeros to the shape that was compiled."""
    wanted = _shape(spec, chosen)
    if array.shape == wanted:
        return array
    padded = np.zeros(wanted, array.dtype)
    padded[tuple(slice(size) for size in array.shape)] = array
    return padded


def _cut(value: RunValue, spec: ValueSpec, given: Mapping[str, int]) -> RunValue:
    """Return an output without what padding added."""
    if not isinstance(value, np.ndarray):
        return value
    wanted = _shape(spec, given)
    if value.shape == wanted:
        return value
    return np.ascontiguousarray(value[tuple(slice(size) for size in wanted)])


def _shape(spec: ValueSpec, sizes: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(size if isinstance(size, int) else sizes[size] for size in spec.shape or ())
