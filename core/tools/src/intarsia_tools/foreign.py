# SPDX-License-Identifier: Apache-2.0
"""Contestants of ``bench`` that a Python of their own runs, which need not have this package."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import cast

from msgspec import Struct

from intarsia_runtime.closing import Closing
from intarsia_runtime.errors import ModelError, UsageError, WorkerLost

from .children import how_it_ended

_GRACE_SECONDS = 5.0  # for a process to end by itself


class ForeignPeer(Struct, frozen=True):
    """A runtime behind a program that speaks lines of JSON.

    Attributes:
        program: The program, beside this file; its docstring says what it answers.
        packages: What its Python needs, as ``pip install`` takes it.
        variable: Environment variable with another Python to run it.
    """

    program: str
    packages: str
    variable: str


FOREIGN: Mapping[str, ForeignPeer] = MappingProxyType(
    {"inductor": ForeignPeer("inductor.py", "torch onnx onnx2torch", "INTARSIA_TORCH_PYTHON")}
)
"""Name of the peer to how it is run."""


class ForeignContestant(Closing):
    """Runs a model again and again when asked, in a process of another Python.

    Args:
        name: A key of :data:`FOREIGN`.
        model: The model.
        inputs: Its inputs, an ``.npz`` file.
        threads: How many it may use.
        results: Where to keep the results of the first run; nowhere if ``None``.

    Raises:
        UsageError: A package is missing, or the Python that the variable names.
        ModelError: The runtime does not take the model.
        WorkerLost: The process ends without an answer.
    """

    def __init__(
        self, name: str, model: Path, inputs: Path, threads: int, results: Path | None = None
    ) -> None:
        self.name = name
        self._peer, self._model = FOREIGN[name], model
        self._python = python = os.environ.get(self._peer.variable) or sys.executable
        self._named = f"{self._peer.variable} names a Python that has {self._peer.packages}"
        program = Path(__file__).parent / self._peer.program
        # Without -P, modules beside the program would hide those of Python.
        argv = [python, "-P", str(program), str(model), str(inputs), str(threads)]
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  # close() closes it
        try:
            self._child = subprocess.Popen(
                [*argv, *([] if results is None else [str(results)])],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                env={**os.environ, "OMP_NUM_THREADS": str(threads)},
                text=True,
            )
        except OSError as error:
            self._errors.close()
            raise UsageError(
                f"'{name}' cannot be run by '{python}': {error.strerror}",
                hint=self._named,
            ) from None
        try:
            self._answer("ready")
        except BaseException:
            self.close()
            raise

    def seconds(self, runs: int) -> float:
        """Run the model once to warm up, then ``runs`` times; return the seconds of one run.

        Raises:
            WorkerLost: The process ends without an answer.
        """
        assert self._child.stdin is not None
        with suppress(OSError):
            self._child.stdin.write(f"{runs}\n")
            self._child.stdin.flush()
        return cast("float", self._answer("seconds"))

    def close(self) -> None:
        """End the process."""
        for stream in (self._child.stdin, self._child.stdout):
            if stream is not None:
                with suppress(OSError):
                    stream.close()
        with suppress(subprocess.TimeoutExpired):
            self._child.wait(_GRACE_SECONDS)
        self._child.kill()
        self._child.wait()
        self._errors.close()

    def _answer(self, kind: str) -> object:
        """Return the value of the next answer, which is of this kind."""
        assert self._child.stdout is not None
        line = self._child.stdout.readline()
        if not line:
            end = how_it_ended(self._child.wait())
            self._errors.seek(0)
            last = "".join(self._errors.read().strip().splitlines()[-1:])
            raise WorkerLost(
                f"the process of '{self.name}' {end}: {last}".removesuffix(": "),
                hint=f"it is run by '{self._python}'; {self._named}",
            )
        answer: dict[str, object] = json.loads(line)
        if "missing" in answer:
            raise UsageError(
                f"'{self.name}' is not installed: {answer['missing']}",
                hint=f"pip install {self._peer.packages}, or let {self._peer.variable} name a "
                "Python that has them",
            )
        if "refused" in answer:
            raise ModelError(f"'{self.name}' does not take '{self._model}': {answer['refused']}")
        return answer[kind]
