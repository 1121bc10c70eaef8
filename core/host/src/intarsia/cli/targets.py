# SPDX-License-Identifier: Apache-2.0
"""``intarsia targets``: kinds, their options, and what a target string means."""

from __future__ import annotations

from typing import cast

import click

from intarsia_runtime.errors import UsageError

from ..host.host import Host
from ..target.kind import KnownValue, KnownValues
from ..target.options import OptionRow, find_row, json_value, print_value
from ..target.universal import target_rows
from .composed import ComposedCommand
from .output import echo, emit_json, table
from .session import Session
from .target_options import NameType, TargetChoice, target_options


@click.group("targets")
def command() -> None:
    """List target kinds and their options; read target strings."""


@command.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def list_targets(session: Session, as_json: bool) -> None:
    """List the kinds and aliases of all plugins. Reads their manifests only."""
    host = session.host()
    kinds, aliases = host.kinds(), host.aliases()
    if as_json:
        rows = [
            {
                "name": kind.name,
                "role": kind.role,
                "summary": kind.summary,
                "plugin": kind.plugin,
                "distribution": kind.distribution,
            }
            for kind in kinds
        ]
        emit_json({"targets": rows, "aliases": dict(aliases)})
        return
    if not kinds:
        echo("no plugin is installed; e.g. pip install 'intarsia[all]'")
        return
    table(
        [(k.name, k.role, k.distribution, k.summary) for k in kinds],
        ("kind", "role", "from", "summary"),
    )
    if aliases:
        echo("")
        table(sorted(aliases.items()), ("alias", "stands for"))


@command.command("show")
@click.argument("kind", type=NameType("target"))
@click.option("--values", "flag", metavar="OPTION", help="List the values of an option, e.g. mcpu.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def show_target(session: Session, kind: str, flag: str | None, as_json: bool) -> None:
    """Show the options of a KIND: type, default, choices and meaning. Imports its plugin.

    KIND may be an alias: the kinds of its target are shown. With --values, KIND may have options,
    e.g. the machine to compile for.
    """
    host = session.host()
    if flag is None and kind in host.aliases() and kind not in host.names():
        _show_alias(host, kind, as_json)
        return
    if flag is not None:
        _show_values(host, kind, flag, as_json)
        return
    found = host.kind(kind)
    owner = host.owner(kind)
    rows = target_rows(found.options)
    if as_json:
        row = {
            "name": found.name,
            "role": found.role.value,
            "summary": found.summary,
            "distribution": owner.distribution,
            "keys": list(found.default_keys),
            "runtimes": list(found.runtimes),
            "options": [_option_json(row) for row in rows],
        }
        emit_json({"target": row})
        return
    echo(f"{found.name}: {found.role.value}, from {owner.distribution} {owner.version}")
    if found.summary:
        echo(found.summary)
    if rows:
        echo("")
        table([_option(row) for row in rows], ("option", "type", "default", "meaning"))
    for name in found.known_flags:
        echo(f"values of -{name}: intarsia targets show {found.name} --values {name}")


def _show_alias(host: Host, name: str, as_json: bool) -> None:
    """Say what an alias stands for, and whose it is."""
    meaning = host.alias_table()[name]
    owner = next(plugin for plugin in host.plugins() if name in plugin.aliases)
    if as_json:
        row = {
            "name": name,
            "stands_for": meaning,
            "distribution": owner.distribution,
            "target": host.target(name).to_json(),
        }
        emit_json({"alias": row})
        return
    echo(f"{name}: alias, from {owner.distribution} {owner.version}")
    echo(f"stands for: {meaning}")
    target = host.target(name)
    echo(f"here: {target}")
    for kind in dict.fromkeys(one.kind.name for one in target.targets):
        echo(f"options of {kind}: intarsia targets show {kind}")


def _show_values(host: Host, text: str, flag: str, as_json: bool) -> None:
    """List the choices of an option, or what the code generator says it may be."""
    from ..target.strings import parse_targets

    found = parse_targets(text, host)
    if len(found) != 1:
        raise UsageError(f"--values takes one kind, not {len(found)}")
    kind = found[0].kind
    row = find_row(f"target kind '{kind.name}'", target_rows(kind.options), flag.lstrip("-"))
    answer = None
    if row.flag in kind.known_flags:
        answer = host.ask("known_values", kind.name, flag=row.flag, target=found[0])
    known = cast("KnownValues | None", answer)
    if known is None:
        known = KnownValues(tuple(KnownValue(str(c)) for c in row.choices), kind.name)
    if not known.rows:
        raise UsageError(f"-{row.flag} of '{kind.name}' is any {row.type}")
    if as_json:
        values = [{"value": one.value, "doc": one.doc} for one in known.rows]
        emit_json({"values": values, "source": known.source, "machine": known.machine})
        return
    table([(one.value, one.doc) for one in known.rows], (f"-{row.flag}", "meaning"))
    echo(f"{len(known.rows)} values, from {known.source}")
    if known.machine:
        echo(f"this machine: {known.machine}")


def _option_json(row: OptionRow) -> dict[str, object]:
    return {
        "flag": row.flag,
        "type": row.type,
        "default": json_value(row.default),
        "choices": list(row.choices),
        "minimum": row.minimum,
        "maximum": row.maximum,
        "doc": row.doc,
        "deprecated": row.deprecated,
    }


def _option(row: OptionRow) -> tuple[str, str, str, str]:
    meaning = row.doc
    if row.choices:
        meaning += f" ({', '.join(str(choice) for choice in row.choices)})"
    bounds = (("at least", row.minimum), ("at most", row.maximum))
    details = [f"{word} {bound:g}" for word, bound in bounds if bound is not None]
    if details:
        meaning += f" ({', '.join(details)})"
    if row.deprecated:
        meaning += f" (deprecated: {row.deprecated})"
    return f"-{row.flag}", row.type, print_value(row.default), meaning


@command.command("parse", cls=ComposedCommand, families=("target",))
@click.argument("text", required=False)
@target_options()
@click.option("--origin", is_flag=True, help="Print the source of every option's value.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def parse(
    session: Session, text: str | None, target: TargetChoice, origin: bool, as_json: bool
) -> None:
    """Print the canonical form of the target TEXT, or of the configured target.

    INTARSIA_TARGET or a settings file configures one.
    """
    choice = target if text is None else target.instead(text)
    found = choice.read(session.host())
    origins = {t.kind.name: dict(t.origins) for t in found.targets}
    if as_json:
        details = {"origin": choice.origin.name, "origins": origins} if origin else {}
        emit_json({"target": found.to_json(), **details})
        return
    echo(str(found))
    if origin:
        rows = [(k, f"-{flag}", who) for k, set_ in origins.items() for flag, who in set_.items()]
        table([("target", "", choice.origin.name), *rows], ("kind", "option", "set by"))
