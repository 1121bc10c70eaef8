# SPDX-License-Identifier: Apache-2.0
"""``intarsia plugins``: what is installed, and why a plugin cannot be used. Imports no plugin."""

from __future__ import annotations

from collections.abc import Mapping

import click

from intarsia_runtime.errors import UsageError

from ..host.host import CommandInfo, PluginInfo
from .findings import probe_lines
from .output import echo, emit_json, table
from .plugin_names import PluginName
from .session import Session, host_of

_OF_TOOLS = ("new", "dev", "check")
"""Commands of a package that may not be installed beside the host."""


class PluginsGroup(click.Group):
    """A group whose commands are the host's, and what plugins call ``plugins NAME``."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of all commands, the host's first."""
        return [*self.commands, *_added(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command; ``None`` if there is none of that name."""
        if cmd_name in self.commands:
            return self.commands[cmd_name]
        if cmd_name in _added(ctx):
            return host_of(ctx).command(f"plugins {cmd_name}")
        if cmd_name in _OF_TOOLS:
            raise UsageError(
                f"no command is called 'plugins {cmd_name}'", hint="pip install intarsia-tools"
            )
        return None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing a plugin."""
        own = {name: one.get_short_help_str(80) for name, one in self.commands.items()}
        rows = own | {name: info.summary for name, info in _added(ctx).items()}
        with formatter.section("Commands"):
            formatter.write_dl(sorted(rows.items()))


def _added(ctx: click.Context) -> Mapping[str, CommandInfo]:
    """The commands that plugins add to this group, by the last word of their names."""
    rows = [(info.name.removeprefix("plugins "), info) for info in host_of(ctx).commands()]
    return {name: info for name, info in rows if name != info.name}


@click.group("plugins", cls=PluginsGroup)
def command() -> None:
    """List, explain and check the installed plugins; write a new one."""


@command.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def list_plugins(session: Session, as_json: bool) -> None:
    """List all plugins and their state. Reads their manifests only."""
    host = session.host()
    plugins = host.plugins()
    if as_json:
        emit_json({"plugins": [_row(plugin) for plugin in plugins]})
        return
    if not plugins:
        echo("no plugin is installed; e.g. pip install 'intarsia[all]'")
        return
    rows = [(p.name, p.version, p.state, ", ".join(p.kinds), p.distribution) for p in plugins]
    table(rows, ("name", "version", "state", "kinds", "distribution"))
    for plugin in plugins:
        if plugin.reason:
            echo(f"\n{plugin.name} ({plugin.distribution}): {plugin.reason}", err=True)
            echo(f"  hint: {plugin.remedy}", err=True)


@command.command("show")
@click.argument("name", type=PluginName())
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def show_plugin(session: Session, name: str, as_json: bool) -> None:
    """Show the manifest, version and state of NAME, a plugin or a distribution."""
    plugins = session.host().plugin(name)
    if as_json:
        rows = [
            {
                **_row(plugin),
                "summary": plugin.summary,
                "aliases": list(plugin.aliases),
                **{what: list(names) for what, names in _parts(plugin).items()},
            }
            for plugin in plugins
        ]
        emit_json({"plugins": rows})
        return
    for plugin in plugins:
        facts = {
            "name": plugin.name,
            "summary": plugin.summary,
            "distribution": f"{plugin.distribution} {plugin.version}",
            "hook api": plugin.api,
            "kinds": ", ".join(plugin.kinds),
            "aliases": ", ".join(plugin.aliases),
            **{what: ", ".join(names) for what, names in _parts(plugin).items()},
            "state": plugin.state,
            "reason": plugin.reason,
            "remedy": plugin.remedy,
        }
        for key, value in facts.items():
            if value:
                echo(f"{key + ':':14}{value}")


@command.command("why")
@click.argument("name", type=PluginName())
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def why_plugin(session: Session, name: str, as_json: bool) -> None:
    """Show whether the plugin NAME can be used; if not, the reason and the remedy.

    Imports it in a child process, so that errors of the import show too.
    """
    findings = session.host().examine([name])
    if as_json:
        emit_json({"plugins": [finding.to_json() for finding in findings]})
        return
    for finding in findings:
        given = ", ".join(f"target kind '{kind}'" for kind in finding.kinds) or "nothing"
        echo(
            f"{finding.name} is {finding.state}; {finding.distribution} {finding.version} "
            f"gives {given}"
        )
        if finding.reason:
            echo(f"  reason: {finding.reason}\n  remedy: {finding.remedy}")
        else:
            here = all(answer.get("usable") for answer in finding.probes.values())
            can = "it can be used" if here else "it can be imported"
            echo(f"  {can}; its import takes {1000 * finding.seconds:.0f} ms")
        for line in probe_lines(finding):
            echo(f"  {line}")


def _parts(plugin: PluginInfo) -> dict[str, tuple[str, ...]]:
    """What a plugin gives besides kinds of target and aliases."""
    return {
        "executors": plugin.executors,
        "runtimes": plugin.runtimes,
        "hardware": plugin.hardware,
        "attributes": plugin.attributes,
        "loaders": plugin.loaders,
    }


def _row(plugin: PluginInfo) -> dict[str, object]:
    return {
        "name": plugin.name,
        "distribution": plugin.distribution,
        "version": plugin.version,
        "api": plugin.api,
        "kinds": list(plugin.kinds),
        "state": plugin.state,
        "reason": plugin.reason,
        "remedy": plugin.remedy,
    }
