# SPDX-License-Identifier: Apache-2.0
"""The hooks of the tools: the commands that they add to ``intarsia``."""

from __future__ import annotations

from collections.abc import Sequence

import click

from intarsia.plugin import hookimpl

from .commands import (
    bench,
    bisect,
    completion,
    diff,
    matrix,
    plugins_check,
    plugins_dev,
    plugins_new,
    tune,
    verify,
)


@hookimpl
def register_commands() -> Sequence[click.Command]:
    """What works with a host, and what it has no need of."""
    compared = (tune, matrix, verify, bisect, bench, diff)
    modules = (*compared, plugins_check, plugins_new, plugins_dev, completion)
    return [module.command for module in modules]
