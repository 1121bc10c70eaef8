# SPDX-License-Identifier: Apache-2.0
"""The executor of a model that was compiled for several shapes: one program for each.

The shapes of the inputs choose the program, and nothing is compiled.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from ..artifact.archive import OpenedArtifact
from ..artifact.passport import Part, Passport
from ..artifact.signature import ValueSpec
from ..closing import Closing
from ..errors import ModelError
from ..forking import renew_lock_in_children
from ..loading import PlanExecutable, RunValue
from ..threads import choose_threads
from .open import OpenExecutor
from .signature import Inputs, as_array, ordered_values
from .vm import VmExecutor

Program: TypeAlias = "PlanExecutable | VmExecutor | OpenExecutor"
"""The program for one combination of sizes; sizes of which there is a range stay open in it."""

OpenPart: TypeAlias = Callable[[OpenedArtifact], Program]
"""Makes the program for one combination of sizes ready to run."""


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
        self._names = tuple([choice.name for choice in opened.passport.sizes])
        self._ready: dict[tuple[int, ...], Program] = {}
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
        program, arrays = self._fitting(inputs)
        return dict(program.run(arrays))

    def fitted(self, inputs: Inputs) -> tuple[Program, dict[str, np.ndarray]]:
        """Return the program that runs these inputs, and the inputs by name.

        Raises:
            ModelError: As :meth:`run`.
        """
        program, arrays = self._fitting(inputs)
        return program, dict(zip([spec.name for spec in self.inputs], arrays, strict=True))

    def run_into(self, inputs: Inputs, outputs: Inputs) -> None:
        """Compute the outputs into the caller's arrays, whose shapes must be those that come out.

        Raises:
            ModelError: As :meth:`run`; or an array has another shape or element type.
        """
        program, arrays = self._fitting(inputs)
        program.run_into(arrays, outputs)

    def _fitting(self, inputs: Inputs) -> tuple[Program, tuple[np.ndarray, ...]]:
        """Return the program that was compiled for the sizes of these inputs, and the inputs."""
        arrays = self._arrays(inputs)
        sizes = self._sizes(arrays)
        part = self._parts.get(tuple(sizes.values()))
        if part is None:
            text = ", ".join(f"{name} = {size}" for name, size in sizes.items())
            raise ModelError(f"there is no program for {text}", hint=self._offer())
        return self._program(part), arrays

    def _arrays(self, inputs: Inputs) -> tuple[np.ndarray, ...]:
        values = ordered_values(inputs, [spec.name for spec in self.inputs])
        return tuple(
            as_array(value, spec.name) for value, spec in zip(values, self.inputs, strict=True)
        )

    def _sizes(self, arrays: Sequence[np.ndarray]) -> dict[str, int]:
        """Return the value that each choice of sizes has in these inputs, in their order."""
        found: dict[str, int] = {}
        for array, spec in zip(arrays, self.inputs, strict=True):
            shape = spec.shape or ()
            fits = len(shape) == array.ndim and array.dtype.name == spec.kind
            for size, given in zip(shape, array.shape, strict=False):
                if isinstance(size, int):
                    fits = fits and size == given
                elif size in self._names:
                    fits = fits and found.setdefault(size, given) == given
            if not fits:
                wanted = ", ".join(map(str, shape))
                raise ModelError(
                    f"input '{spec.name}' must be {spec.kind} ({wanted}), "
                    f"got {array.dtype} {array.shape}",
                    hint=self._offer(),
                )
        return {name: found[name] for name in self._names}

    def _offer(self) -> str:
        return f"the artifact was compiled for {'; '.join(map(str, self.passport.sizes))}"

    def _program(self, part: Part) -> Program:
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
