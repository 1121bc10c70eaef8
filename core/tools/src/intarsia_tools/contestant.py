# SPDX-License-Identifier: Apache-2.0
"""A contestant of ``bench``: one runtime with one model, in a process of its own.

Threads of a runtime that wait actively disturb whoever runs next in the same process: on a machine
with as many threads as processors, a model of 2 ms was seen to take twice its time.
"""

from __future__ import annotations

import functools
import multiprocessing
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path

from intarsia.driver.arrays import random_inputs, read_inputs, write_arrays
from intarsia_ir.example_sizes import example_sizes
from intarsia_runtime.closing import Closing
from intarsia_runtime.errors import IntarsiaError, WorkerLost
from intarsia_runtime.load import load

from .children import how_it_ended
from .peers import Run, open_peer

_GRACE_SECONDS = 5.0  # for a process to end by itself


class Contestant(Closing):
    """Runs a model again and again when asked, in a child process.

    Args:
        name: What messages call it.
        open_model: Opens the model, in the child; importable by name there.

    Raises:
        IntarsiaError: What ``open_model`` raises.
        WorkerLost: The child ends without an answer.
    """

    def __init__(self, name: str, open_model: Callable[[], Callable[[], object]]) -> None:
        context = multiprocessing.get_context("spawn")
        self.name = name
        self._pipe, theirs = context.Pipe()
        self._child = context.Process(target=_serve, args=(theirs, open_model), daemon=True)
        self._child.start()
        theirs.close()
        try:
            self._answer()
        except BaseException:
            self.close()
            raise

    def seconds(self, runs: int) -> float:
        """Run the model once to warm up, then ``runs`` times; return the seconds of one run.

        Raises:
            IntarsiaError: A run fails.
            WorkerLost: The child ends without an answer.
        """
        with suppress(OSError):
            self._pipe.send(runs)
        return self._answer()

    def close(self) -> None:
        """End the child."""
        self._pipe.close()
        self._child.join(_GRACE_SECONDS)
        self._child.kill()
        self._child.join()

    def _answer(self) -> float:
        try:
            answer: object = self._pipe.recv()
        except (EOFError, OSError):
            self._child.join(_GRACE_SECONDS)
            end = how_it_ended(self._child.exitcode)
            raise WorkerLost(f"the process of '{self.name}' {end}") from None
        if isinstance(answer, IntarsiaError):
            raise answer
        assert isinstance(answer, float)
        return answer


def ours(artifact: Path, inputs: Path, threads: int) -> Callable[[], object]:
    """Load an artifact to be run with the arrays of an ``.npz`` file."""
    executable = load(artifact, threads=threads)
    return functools.partial(executable.run, read_inputs(str(inputs), executable.inputs, seed=0))


def peers(name: str, model: Path, inputs: Path, threads: int) -> Callable[[], object]:
    """Open a model in another runtime, to be run with the arrays of an ``.npz`` file."""
    run: Run = open_peer(name, model, threads)
    return functools.partial(run, read_inputs(str(inputs), (), seed=0))


def write_inputs(artifact: Path, inputs: Path, seed: int) -> None:
    """Write random inputs for an artifact to an ``.npz`` file, small where sizes have no bound."""
    with load(artifact) as executable:
        sizes = example_sizes(executable.passport)
        write_arrays(inputs, random_inputs(executable.inputs, seed, sizes))


def _serve(pipe: Connection, open_model: Callable[[], Callable[[], object]]) -> None:
    """Open the model, then run it as often as told until the other end closes."""
    with suppress(EOFError, OSError, KeyboardInterrupt):
        try:
            run = open_model()
            pipe.send(0.0)
            while True:
                runs: int = pipe.recv()
                run()
                start = time.perf_counter()
                for _ in range(runs):
                    run()
                pipe.send((time.perf_counter() - start) / runs)
        except IntarsiaError as error:
            pipe.send(error)
