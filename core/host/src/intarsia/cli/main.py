# SPDX-License-Identifier: Apache-2.0
"""The command ``intarsia``: finds the subcommand, turns errors into messages and exit codes."""

from __future__ import annotations

import importlib
import os
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import click

from intarsia_runtime.errors import EXHAUSTED, IntarsiaError

from .output import echo
from .session import Session, host_of

if TYPE_CHECKING:
    from ..host.host import CommandInfo

COMMANDS = MappingProxyType(
    {
        "plugins": ("plugins:command", "List and explain the installed plugins."),
        "targets": ("targets:command", "List target kinds and options; parse target strings."),
        "hardware": ("hardware:command", "List devices; detect the tag of this machine."),
        "compile": ("compile:command", "Compile a model into an artifact."),
        "run": ("run:command", "Run a model or an artifact."),
        "doctor": ("doctor:command", "Find faults of the plugins and of this machine."),
        "explain": (
            "explain:command",
            "Show which accelerator takes each node, or why none does.",
        ),
        "inspect": ("inspect:command", "Show the contents of an artifact."),
        "cache": ("cache:command", "Show and clear the cache of builds."),
        "check": ("check:command", "Check that an artifact is undamaged and can run on a machine."),
    }
)
"""Command to the attribute that has it and its line in ``--help``; help imports none of them."""

_OF_TOOLS = ("tune", "matrix", "verify", "bisect", "bench", "diff", "completion")
"""Commands of a package that may not be installed beside the host."""

COMPLETE = "_INTARSIA_COMPLETE"  # set by the shell's completion script
_INTERRUPTED = 130
_CLOSED_PIPE = 141
_RESOURCE = 8
_INPUT = 3


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called; plugins add some."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of all commands, in the order of :data:`COMMANDS`, then those of plugins."""
        return [*COMMANDS, *_added(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command; ``None`` if there is none of that name."""
        if cmd_name not in COMMANDS:
            return host_of(ctx).command(cmd_name) if cmd_name in _added(ctx) else None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        command = getattr(importlib.import_module(f".{module}", __package__), attribute)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that the arguments name; an unknown name gets the nearest ones."""
        from intarsia_runtime.errors import did_you_mean

        name = args[0]
        if name not in COMMANDS and not name.startswith("-") and name not in _added(ctx):
            hint = did_you_mean(name, self.list_commands(ctx))
            if name in _OF_TOOLS:
                hint = "pip install intarsia-tools"
            ctx.fail(f"no command is called '{name}'. {hint}".strip())
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])
        added = _added(ctx)
        if added:
            with formatter.section("Commands of plugins"):
                formatter.write_dl([(name, info.summary) for name, info in added.items()])


def _added(ctx: click.Context) -> Mapping[str, CommandInfo]:
    """The commands of plugins by name; one that has the name of one of ours is not reachable."""
    found = {info.name: info for info in host_of(ctx).commands()}
    return {
        name: info
        for name, info in sorted(found.items())
        if name not in COMMANDS and " " not in name  # of a group of ours, which adds it itself
    }


def _print_version(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        echo(f"intarsia {_version()}")
        ctx.exit()


def _version() -> str:
    from intarsia_runtime.installed import installed_version

    return installed_version("intarsia") or "unknown (not installed)"


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option(
    "--no-plugin", "disabled", multiple=True, metavar="NAME", help="Do not use this plugin."
)
@click.option(
    "--config", type=click.Path(path_type=Path, exists=True, dir_okay=False), metavar="FILE",
    help="Settings file; default: the nearest intarsia.toml, or [tool.intarsia] in pyproject.toml.",
)  # fmt: skip
@click.option("--trace-plugins", is_flag=True, help="Print every hook call and its time on stderr.")
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version,
    help="Show the version and exit.",
)  # fmt: skip
@click.pass_context
def cli(
    ctx: click.Context, disabled: tuple[str, ...], config: Path | None, trace_plugins: bool
) -> None:
    """Compile a model for your accelerators with separately installed backends, and run it.

    \b
    Exit codes: 0 ok, 1 a bug of ours, 2 usage or target, 3 input file, 4 unsupported, 5 plugin,
    6 toolchain, 7 artifact, 8 resources, 9 worker lost, 10 gate failed, 130 interrupted.
    """
    ctx.obj = Session(disabled, config, trace=trace_plugins, note=ctx.obj)


def main(
    arguments: Sequence[str] | None = None, *, note: Callable[[str], None] | None = None
) -> int:
    """Run the command line and return its exit code; prints errors on stderr.

    Args:
        arguments: What stands behind ``intarsia``; the process's own if ``None``.
        note: Told of every hook call.
    """
    args = sys.argv[1:] if arguments is None else list(arguments)
    stdout = sys.stdout
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _warn
            result = cli.main(args=args, prog_name="intarsia", standalone_mode=False, obj=note)
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except IntarsiaError as error:
        if type(error) is IntarsiaError:
            return _report(error, args)
        return _say(str(error), error.exit_code)
    except click.UsageError as error:
        command = f"{error.ctx.command_path} --help" if error.ctx else "intarsia --help"
        return _say(f"{error.format_message()}\n  hint: {command}", 2)
    except click.ClickException as error:  # a file that click cannot open
        return _say(error.format_message(), _INPUT)
    except (click.Abort, KeyboardInterrupt):
        return _say("interrupted", _INTERRUPTED)
    except MemoryError:
        return _say("out of memory", _RESOURCE)
    except BrokenPipeError:
        return _hang_up()
    except SystemExit as error:
        if sys.stdout is not stdout:  # click replaces it when it meets a closed pipe
            return _hang_up()
        if COMPLETE in os.environ:  # click leaves this way once it has printed completions
            return error.code if isinstance(error.code, int) else 0
        return _report(error, args)
    except OSError as error:
        where = f"'{error.filename}': " if error.filename else ""
        reason = where + (error.strerror or str(error))
        return _say(reason, _RESOURCE if error.errno in EXHAUSTED else _INPUT)
    except Exception as error:  # the one place that may catch everything: a bug becomes a report
        return _report(error, args)


def _warn(message: Warning | str, category: type[Warning], *place: object) -> None:
    """Show a warning as one line, without the line of our source that it came from."""
    _say(str(message), 0, "warning")


def _hang_up() -> int:
    """Leave quietly: the reader went away, so there is nobody to say it to."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return _CLOSED_PIPE


def _say(message: str, code: int, what: str = "error") -> int:
    with suppress(OSError):  # stderr may be closed
        echo(f"{what}: {message}", err=True)
    return code


def _report(error: BaseException, arguments: Sequence[str]) -> int:
    """Write what happened to a file, name the file, and return 1."""
    from .report import write_report

    try:
        name = write_report(error, arguments, _version())
    except OSError as cause:
        return _say(f"internal error: {type(error).__name__}: {error} (no report: {cause})", 1)
    return _say(
        f"internal error: {type(error).__name__}: {error}\n"
        f"  hint: please report it with the file {name}",
        1,
    )
