# SPDX-License-Identifier: Apache-2.0
"""Compile pool: object files of several LLVM modules, compiled side by side by worker processes.

LLVM takes most of the time of a build, and llvmlite lets one thread of a process into it at a time.
So each worker is a process that has LLVM and nothing else: it gets module texts through its stdin
and answers with object files; the calling process compiles too. Workers are started with the
interpreter, not forked, since the caller may have any threads. Which kernel is in which module
depends on the kernels alone (``emit/module.py``), so the bytes do not depend on the processors.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from itertools import chain, islice
from queue import Empty, SimpleQueue
from typing import IO, NamedTuple

from intarsia_runtime.closing import Closing
from intarsia_runtime.errors import ToolchainError
from intarsia_runtime.threads import available_threads

from .machine import CodegenMachine
from .optimize import compile_object

MOST_PROCESSES = 8
"""Processes that compile, this one included: texts come no faster."""

_GRACE_SECONDS = 5.0  # for a process that closed its pipes to end

_CHILD = (
    "import json, sys; sys.path[:] = json.loads(sys.stdin.buffer.readline()); "
    "from intarsia_llvm.compile_worker import serve; serve()"
)


def compile_objects(
    texts: Iterable[str], machine: CodegenMachine, level: int, *, expected: int = 1
) -> tuple[bytes, ...]:
    """Compile modules as they come, and return their object files in the same order.

    One module is compiled in this process, several on all processors; the bytes are the same.

    Args:
        texts: The modules.
        machine: What to compile for.
        level: Effort of LLVM's optimizer, 0 to 3.
        expected: How many modules there may be: processes for them start before the first comes.

    Raises:
        ToolchainError: LLVM refuses a text or the machine, or ends the process that it runs in.
    """
    coming = iter(texts)
    begun = list(islice(coming, 2)) if expected < 2 else []
    workers = min(available_threads(), MOST_PROCESSES) - 1 if len(begun) != 1 else 0
    if not workers or not sys.executable:
        return tuple(compile_object(text, machine, level) for text in chain(begun, coming))
    with _CompilePool(machine, level, workers) as pool:
        pool.start(expected - 1)
        for text in chain(begun, coming):
            pool.add(text)
        return pool.collect()


class _Work(NamedTuple):
    number: int
    text: str


class _CompilePool(Closing):
    """Processes that compile what is added, each driven by a thread of this one."""

    def __init__(self, machine: CodegenMachine, level: int, workers: int) -> None:
        self._machine, self._level, self._workers = machine, level, workers
        self._waiting: SimpleQueue[_Work | None] = SimpleQueue()
        self._added = 0
        self._objects: dict[int, bytes] = {}
        self._errors: dict[int, ToolchainError] = {}
        self._processes: list[_Process] = []
        self._drivers: list[threading.Thread] = []

    def close(self) -> None:
        """End the processes; after an error nobody wants what is left."""
        while self._next() is not None:
            pass
        for process in self._processes:
            process.kill()
        self._dismiss()

    def _dismiss(self) -> None:
        """Wait until the drivers have no more to do."""
        for _ in self._drivers:
            self._waiting.put(None)
        for driver in self._drivers:
            driver.join()

    def add(self, text: str) -> None:
        """Have a module compiled, by another process as long as more of them may be started."""
        self._waiting.put(_Work(self._added, text))
        self._added += 1
        self.start(self._added)

    def start(self, processes: int) -> None:
        """Have at least so many other processes, as long as more of them may be started."""
        while len(self._drivers) < min(processes, self._workers):
            self._drivers.append(threading.Thread(target=self._drive, daemon=True))
            self._drivers[-1].start()

    def collect(self) -> tuple[bytes, ...]:
        """Compile too until nothing waits, and return all object files in the order of adding.

        Raises:
            ToolchainError: LLVM failed; of several failures, that of the module added first.
        """
        while (work := self._next()) is not None:
            self._compile_here(work)
        self._dismiss()
        for number in sorted(self._errors):
            raise self._errors[number]
        return tuple(self._objects[number] for number in range(self._added))

    def _next(self) -> _Work | None:
        try:
            return self._waiting.get_nowait()
        except Empty:
            return None

    def _compile_here(self, work: _Work) -> None:
        try:
            self._objects[work.number] = compile_object(work.text, self._machine, self._level)
        except ToolchainError as error:
            self._errors[work.number] = error

    def _drive(self) -> None:
        with ExitStack() as opened:
            try:
                stderr = opened.enter_context(tempfile.TemporaryFile())
                process = opened.enter_context(_Process(self._machine, self._level, stderr))
            except OSError:  # no more processes are to be had: the others do the work
                return
            self._processes.append(process)
            while (work := self._waiting.get()) is not None:
                try:
                    self._objects[work.number] = process.compile(work.text)
                except ToolchainError as error:
                    self._errors[work.number] = error
                    return


class _Process(Closing):
    """Another Python with LLVM.

    Args:
        machine: The machine to compile for.
        level: Effort of LLVM's optimizer, 0 to 3.
        stderr: A file for what it prints.

    Raises:
        OSError: It cannot be started.
    """

    def __init__(self, machine: CodegenMachine, level: int, stderr: IO[bytes]) -> None:
        self._said = stderr
        self._child = subprocess.Popen(
            [sys.executable, "-c", _CHILD],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            start_new_session=True,
        )
        path = [os.path.abspath(part) for part in sys.path]
        job = {"machine": machine._asdict(), "level": level}
        into = self._child.stdin
        assert into is not None  # a pipe
        with suppress(OSError):  # it has ended, which whoever sends a module finds out
            into.write(b"".join(json.dumps(line).encode() + b"\n" for line in (path, job)))
            into.flush()

    def close(self) -> None:
        """Stop the process, and wait until it is gone."""
        self.kill()
        self._child.communicate()

    def compile(self, text: str) -> bytes:
        """Return the object file of a module.

        Raises:
            ToolchainError: LLVM refuses it, or the process ended.
        """
        into, out = self._child.stdin, self._child.stdout
        assert into is not None  # a pipe
        assert out is not None
        content = text.encode()
        try:
            into.write(b"%d\n" % len(content) + content)
            into.flush()
            answer, size = out.readline().split()
            content = _exactly(out, int(size))
        except (OSError, ValueError):
            raise ToolchainError(
                f"LLVM ended with its process (status {self._status()}): {self._last_words()}"
            ) from None
        if answer != b"object":
            raise ToolchainError(content.decode())
        return content

    def _status(self) -> int:
        try:
            return self._child.wait(_GRACE_SECONDS)
        except subprocess.TimeoutExpired:  # it lives and talks nonsense
            self._child.kill()
            return self._child.wait()

    def _last_words(self) -> str:
        self._said.seek(0)
        lines = self._said.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"

    def kill(self) -> None:
        """Stop the process, whatever it does."""
        self._child.kill()


def _exactly(stream: IO[bytes], size: int) -> bytes:
    """Read ``size`` bytes.

    Raises:
        ValueError: The stream ends before.
    """
    content = stream.read(size)
    if len(content) != size:
        raise ValueError("the answer is cut off")
    return content
