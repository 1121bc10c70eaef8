# SPDX-License-Identifier: Apache-2.0
"""``pytest --pyargs intarsia_testkit --intarsia-plugin NAME``: all checks without a test file."""

from __future__ import annotations

from .conformance import Conformance


class TestConformance(Conformance):
    """The checks, on the plugin that the command line names."""
