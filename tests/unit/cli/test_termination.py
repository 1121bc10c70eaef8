# SPDX-License-Identifier: Apache-2.0
"""Interrupts and terminations are exceptions, but not where Python would drop them."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from typing import cast

import pytest

from intarsia.cli.termination import Termination


@pytest.fixture(autouse=True)
def termination() -> Iterator[Termination]:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in numbers}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in numbers[1:]:
        signal.signal(number, signal.SIG_DFL)
    made = Termination()
    made.heed()
    yield made
    for number, handler in before.items():
        signal.signal(number, handler)


def callback(number: int) -> Callable[[], None]:
    """Return a function that is interrupted, by the names of that of Python's importing."""
    text = f"import signal\ndef cb():\n    signal.raise_signal({number})\n    done.append(1)\n"
    names: dict[str, object] = {"done": []}
    exec(compile(text, "<frozen importlib._bootstrap>", "exec"), names)
    return cast("Callable[[], None]", names["cb"])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_an_exception(termination: Termination, number: int) -> None:
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(number)
    assert termination.number == (number if number == signal.SIGTERM else 0)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_in_a_callback_of_importing_it_comes_later(number: int) -> None:
    callback(number)()  # goes on to its end
    with pytest.raises(KeyboardInterrupt):
        time.sleep(10)


def test_an_interrupt_that_is_ignored_stays_so() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Termination().heed()
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
