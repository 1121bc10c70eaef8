# SPDX-License-Identifier: Apache-2.0
"""``intarsia completion``: the script that makes a shell complete commands, options and kinds."""

from __future__ import annotations

import os
from pathlib import PurePath

import click
from click.shell_completion import get_completion_class

from intarsia.cli.main import COMPLETE
from intarsia.cli.output import echo
from intarsia_runtime.errors import UsageError

SHELLS = ("bash", "zsh", "fish")

_PROGRAM = "intarsia"


def shell_of_user() -> str:
    """Return the shell that ``SHELL`` names.

    Raises:
        UsageError: It names none of :data:`SHELLS`, or is not set.
    """
    name = PurePath(os.environ.get("SHELL", "")).name
    if name not in SHELLS:
        reason = f"SHELL is '{name}'" if name else "SHELL is not set"
        raise UsageError(f"no shell is given, and {reason}", hint=f"name one: {', '.join(SHELLS)}")
    return name


@click.command("completion")
@click.argument("shell", type=click.Choice(SHELLS), required=False)
@click.pass_context
def command(context: click.Context, shell: str | None) -> None:
    """Print the completion script of a shell; the default is that of the variable SHELL.

    For bash: eval "$(intarsia completion bash)", now or in ~/.bashrc. The same for zsh. For fish:
    intarsia completion fish | source.
    """
    name = shell or shell_of_user()
    kind = get_completion_class(name)
    assert kind is not None, f"click completes in {', '.join(SHELLS)}"
    echo(kind(context.find_root().command, {}, _PROGRAM, COMPLETE).source().rstrip())
