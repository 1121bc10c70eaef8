# SPDX-License-Identifier: Apache-2.0
"""What every command gets from the options in front of it (``@click.pass_obj``)."""

from __future__ import annotations

from dataclasses import dataclass

from ..host.host import Host


@dataclass(frozen=True, slots=True)
class Session:
    """Global options of one invocation.

    Attributes:
        disabled: Plugins named by ``--no-plugin``.
    """

    disabled: tuple[str, ...] = ()

    def host(self) -> Host:
        """A new host that keeps the disabled plugins out.

        Raises:
            UsageError: No plugin has the name of a disabled one.
        """
        host = Host(disabled=self.disabled)
        for name in self.disabled:
            host.plugin(name)
        return host
