# SPDX-License-Identifier: Apache-2.0
"""How a tool shows how far it is: whoever calls it says how."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from typing import TypeAlias

Watch: TypeAlias = "Callable[[str, int], AbstractContextManager[Callable[[int], None]]]"
"""Given what is done and the number of its steps, a context with a function to tell of steps."""


@contextmanager
def quiet(label: str, total: int) -> Generator[Callable[[int], None]]:
    """Show nothing; the arguments are those of :data:`Watch`."""
    yield _nothing


def _nothing(steps: int) -> None:
    """Progress that nobody sees."""
