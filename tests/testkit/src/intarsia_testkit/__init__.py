# SPDX-License-Identifier: Apache-2.0
"""Conformance kit for Intarsia plugins.

Three lines in a plugin's tests run every check::

    from intarsia_testkit import Conformance

    class TestAcme(Conformance):
        plugin = "acme"

So does ``pytest --pyargs intarsia_testkit --intarsia-plugin acme`` without a file, and
``intarsia plugins check acme``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .conformance import Conformance

__all__ = ["Conformance"]


def __getattr__(name: str) -> object:
    """Import the checks when they are asked for: pytest imports this package in every run."""
    if name == "Conformance":
        from .conformance import Conformance

        return Conformance
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
