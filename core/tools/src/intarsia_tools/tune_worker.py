# SPDX-License-Identifier: Apache-2.0
"""The child process that ``tune`` measures in: one that dies or hangs costs a trial, no more."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import Protocol

from msgspec import Struct

from intarsia_ir.tir.space import Choice
from intarsia_runtime.closing import Closing
from intarsia_runtime.errors import IntarsiaError, WorkerLost

from .children import how_it_ended
from .tune_tasks import MeasuredChoice

_OPEN_SECONDS = 600.0  # importing a large model


class Measures(Protocol):
    """What the child opens."""

    def measure(self, signature: str, choice: Choice, rounds: int) -> MeasuredChoice:
        """Time a choice."""
        ...


class TrialOutcome(Struct, frozen=True):
    """What became of a trial.

    Attributes:
        state: As of :class:`~intarsia_ir.tir.records.Record`.
        measured: What was measured; ``None`` if it came to nothing.
        reason: Why not.
    """

    state: str
    measured: MeasuredChoice | None = None
    reason: str = ""


class Worker(Closing):
    """Measures in a child process, which is started again after it died or was ended.

    Args:
        opened: Prepares the measuring, in the child; importable by name there.
        seconds: When a trial is ended.
    """

    def __init__(self, opened: Callable[[], Measures], seconds: float) -> None:
        self._open = opened
        self._seconds = seconds
        self._child: SpawnProcess | None = None
        self._pipe: Connection | None = None

    def measure(self, signature: str, choice: Choice, rounds: int) -> TrialOutcome:
        """Time a choice; whatever the candidate does, there is an outcome.

        Raises:
            IntarsiaError: The child cannot be started or prepared.
        """
        pipe = self._started()
        try:
            pipe.send((signature, dict(choice), rounds))
            if not pipe.poll(self._seconds):
                self.close()
                return TrialOutcome("late", reason=f"no result within {self._seconds:g} s")
            answer: object = pipe.recv()
        except (EOFError, OSError):
            code = self._code()
            self.close()
            return TrialOutcome("failed", reason=f"ended the process (exit code {code})")
        if isinstance(answer, MeasuredChoice):
            return TrialOutcome("wrong" if answer.wrong else "ok", answer)
        return TrialOutcome("failed", reason=str(answer))

    def close(self) -> None:
        """End the child."""
        if self._child is not None and self._pipe is not None:
            self._pipe.close()
            self._child.kill()
            self._child.join()
        self._child = self._pipe = None

    def _started(self) -> Connection:
        if self._pipe is not None:
            return self._pipe
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        child = context.Process(target=_serve, args=(theirs, self._open), daemon=True)
        try:
            child.start()
        except BaseException:  # there is no child to end
            ours.close()
            raise
        finally:
            theirs.close()
        self._pipe, self._child = ours, child
        try:
            answer: object = self._pipe.recv() if self._pipe.poll(_OPEN_SECONDS) else "not ready"
        except (EOFError, OSError):
            answer = f"it {how_it_ended(self._code())}"
        if answer is None:
            return self._pipe
        self.close()
        if isinstance(answer, IntarsiaError):
            raise answer
        raise WorkerLost(f"the process that measures could not start: {answer}")

    def _code(self) -> int | None:
        if self._child is None:
            return None
        self._child.join(5.0)
        return self._child.exitcode


def _serve(pipe: Connection, opened: Callable[[], Measures]) -> None:
    """Measure as told until the other end closes."""
    with suppress(EOFError, OSError, KeyboardInterrupt):
        try:
            measures = opened()
        except IntarsiaError as error:
            pipe.send(error)
            return
        pipe.send(None)
        while True:
            signature, choice, rounds = pipe.recv()
            try:
                pipe.send(measures.measure(signature, choice, rounds))
            except Exception as error:  # a candidate may raise anything
                pipe.send(f"{type(error).__name__}: {error}"[:500])
