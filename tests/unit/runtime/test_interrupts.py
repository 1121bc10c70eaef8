# SPDX-License-Identifier: Apache-2.0
"""An interruption ends compiled loops, wherever it arrives, and is never lost."""

from __future__ import annotations

import ctypes
import signal
import sys
import time
from collections.abc import Callable, Iterator
from types import BuiltinFunctionType

import pytest

from intarsia_runtime import interrupts as interrupts_module
from intarsia_runtime.interrupts import LONG, Interrupts, interrupts_later

pytestmark = pytest.mark.usefixtures("heeds_interrupts")


@pytest.fixture
def interrupts() -> Iterator[Interrupts]:
    made = Interrupts()
    yield made
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert not is_kept(made)


def is_kept(interrupts: Interrupts) -> bool:
    """Whether exceptions that nobody gets come to ``interrupts``."""
    return getattr(sys.unraisablehook, "__self__", None) is interrupts._unraised


def poll_of(interrupts: Interrupts) -> Callable[[], int]:
    """What compiled code calls: the exceptions of the callback do not pass through it."""
    return ctypes.CFUNCTYPE(ctypes.c_int)(interrupts.address)


def test_a_short_run_goes_on_and_leaves_the_handlers(interrupts: Interrupts) -> None:
    interrupts.begin()
    assert poll_of(interrupts)() == 1
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    interrupts.complete()


def test_what_arrives_in_a_long_run_ends_it(interrupts: Interrupts) -> None:
    poll = poll_of(interrupts)
    interrupts.begin()
    assert poll() == 1
    time.sleep(1.2 * LONG)
    assert poll() == 1
    signal.raise_signal(signal.SIGINT)
    assert poll() == 0
    with pytest.raises(KeyboardInterrupt):
        interrupts.complete()
    interrupts.begin()
    assert poll() == 1
    interrupts.complete()


def test_what_a_handler_raises_in_the_callback_is_not_lost(
    interrupts: Interrupts, monkeypatch: pytest.MonkeyPatch
) -> None:
    def arrive() -> float:
        monkeypatch.undo()
        signal.raise_signal(signal.SIGINT)
        return 0.0

    poll = poll_of(interrupts)
    monkeypatch.setattr(interrupts_module.time, "monotonic", arrive)
    interrupts.begin()
    poll()  # what ctypes returns is not defined
    assert poll() == 0
    with pytest.raises(KeyboardInterrupt):
        interrupts.complete()


def test_no_second_interruption_ends_what_keeps_the_first(interrupts: Interrupts) -> None:
    interrupts.begin()
    assert is_kept(interrupts)
    assert isinstance(sys.unraisablehook, BuiltinFunctionType)  # Python handles no signal in it
    interrupts.complete()


def test_other_exceptions_that_nobody_gets_go_to_the_hook_behind_the_run(
    interrupts: Interrupts, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[object] = []

    def hook(unraisable: sys.UnraisableHookArgs) -> None:
        seen.append(unraisable.exc_type)

    def fail() -> int:
        raise ValueError

    monkeypatch.setattr(sys, "unraisablehook", hook)
    interrupts.begin()
    ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.cast(callback := CALL(fail), ctypes.c_void_p).value)()
    assert poll_of(interrupts)() == 1
    assert not seen
    interrupts.complete()
    assert seen == [ValueError]
    assert sys.unraisablehook is hook
    assert callback


CALL = ctypes.CFUNCTYPE(ctypes.c_int)


def test_an_interruption_waits_for_the_end_of_a_block() -> None:
    done: list[int] = []

    def work() -> None:
        with interrupts_later():
            signal.raise_signal(signal.SIGINT)
            done.append(1)

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == [1]
    with interrupts_later():
        pass
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
