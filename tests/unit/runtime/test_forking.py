# SPDX-License-Identifier: Apache-2.0
"""Processes forked from one with loaded models: nothing there waits for threads that are not."""

from __future__ import annotations

import ctypes
import ctypes.util
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from intarsia_runtime.forking import ends_threads_to_fork
from intarsia_runtime.load import load
from intarsia_runtime.threads import load_openmp

X = np.array([[1, -2, 3], [-4, 5, -6]], np.float32)
Y = 2 * np.maximum(X, 0) + np.array([1, 2, 3], np.float32)
WAITS = """
import pathlib, time
import numpy as np
def load(request):
    def run(x, y):
        pathlib.Path({place!r}).touch()
        time.sleep(0.5)
        np.multiply(x, 2, out=y)
    return run
"""
WORK = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def succeeds(work: Callable[[], bool]) -> bool:
    """Whether a forked process does its work, and does not wait for ever."""
    child = os.fork()
    if not child:
        signal.alarm(10)
        right = False
        try:
            right = work()
        finally:
            os._exit(0 if right else 1)
    return os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize("executor", ["aot", "graph"])
def test_a_process_forked_while_another_thread_runs_the_model(
    save: Callable[..., Path], toy_loader: Callable[..., None], tmp_path: Path, executor: str
) -> None:
    begun = tmp_path / "begun"
    toy_loader(WAITS.format(place=str(begun)))
    executable = load(save("toy"), threads=1, executor=executor)
    runner = threading.Thread(target=executable.run, args=([X],))
    runner.start()
    while not begun.exists():
        time.sleep(0.001)
    assert succeeds(lambda: str(executable.run([X])["y"]) == str(Y))
    runner.join()
    assert str(executable.run([X])["y"]) == str(Y)


def test_openmp_has_new_threads_in_a_forked_process() -> None:
    openmp = load_openmp()
    if openmp is None or not ends_threads_to_fork(openmp):
        pytest.skip("no OpenMP here that lets its threads be ended")
    seen: list[int] = []

    @WORK
    def work(_: int | None) -> None:
        seen.append(threading.get_native_id())

    def runs() -> bool:
        seen.clear()
        openmp.GOMP_parallel(work, None, 3, 0)
        return len(set(seen)) == 3

    assert runs()
    assert succeeds(runs)
    assert runs()


def test_an_openmp_that_cannot_end_its_threads_is_told_from_others() -> None:
    assert not ends_threads_to_fork(ctypes.CDLL(ctypes.util.find_library("m")))
