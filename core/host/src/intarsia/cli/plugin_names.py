# SPDX-License-Identifier: Apache-2.0
"""Names of plugins on the command line, completed from manifests."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem

from .session import host_of


class PluginName(click.ParamType[str]):
    """Name of a plugin, or of its distribution."""

    name = "plugin"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Names of installed plugins, also of those that cannot be used, with their state."""
        return [
            CompletionItem(info.name, help=f"{info.state}: {info.summary}")
            for info in host_of(ctx).plugins()
            if info.name.startswith(incomplete)
        ]
