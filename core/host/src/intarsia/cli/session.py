# SPDX-License-Identifier: Apache-2.0
"""What every command gets from the options in front of it (``@click.pass_obj``)."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec import Struct

from ..host.guard import working_folder
from ..host.host import Host
from .output import echo

if TYPE_CHECKING:
    from ..driver.configured import Configured


class Session(Struct, frozen=True):
    """Global options of one invocation.

    Attributes:
        disabled: Plugins named by ``--no-plugin``.
        config: File with settings; the nearest one if ``None``.
        trace: Whether every hook call is said on stderr.
        note: Told of every hook call, for whoever outlives a crash of this process.
    """

    disabled: tuple[str, ...] = ()
    config: Path | None = None
    trace: bool = False
    note: Callable[[str], None] | None = None

    def host(self) -> Host:
        """A new host that keeps the disabled plugins out.

        Raises:
            UsageError: No plugin has the name of a disabled one.
        """
        host = Host(disabled=self.disabled, trace=self._tell if self.trace else self.note)
        for name in self.disabled:
            host.plugin(name)
        for warning in host.strange_settings():
            warnings.warn(warning, stacklevel=2)
        return host

    def _tell(self, line: str) -> None:
        echo(f"trace: {line}", err=True)
        if self.note is not None:
            self.note(line)

    def configured(self) -> Configured:
        """What the environment and the file with settings say.

        Raises:
            UsageError: The file is broken.
        """
        from ..driver.configured import read_settings  # listing plugins needs no settings

        return read_settings(os.environ, working_folder(), self.config)


def host_of(ctx: click.Context) -> Host:
    """The host of the command line: of its group, or of the options in front of it."""
    if isinstance(ctx.obj, Session):
        return ctx.obj.host()
    disabled: Sequence[str] = ctx.find_root().params.get("disabled") or ()
    return Session(tuple(disabled)).host()  # completing, or finding a command
