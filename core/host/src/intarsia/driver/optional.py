# SPDX-License-Identifier: Apache-2.0
"""What the host asks of packages that may not be installed beside it."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from intarsia_runtime.errors import UsageError


@contextmanager
def require_tools(what: str) -> Generator[None]:
    """Import from ``intarsia-tools``, which may not be installed beside the host.

    Args:
        what: The option or result that needs it, for the message.

    Raises:
        UsageError: It is not installed.
    """
    try:
        yield
    except ModuleNotFoundError:
        raise UsageError(
            f"{what} needs the package 'intarsia-tools'", hint="pip install intarsia-tools"
        ) from None
