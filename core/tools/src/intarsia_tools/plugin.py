# SPDX-License-Identifier: Apache-2.0
"""The hooks of the tools: the commands that they add to ``intarsia``."""

from __future__ import annotations

from collections.abc import Sequence

import click

from intarsia.plugin import hookimpl

from .commands import bench, bisect, matrix, tune, verify


@hookimpl
def register_commands() -> Sequence[click.Command]:
    """``tune``, ``matrix``, ``verify``, ``bisect`` and ``bench``."""
    return [module.command for module in (tune, matrix, verify, bisect, bench)]
