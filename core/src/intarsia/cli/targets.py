# SPDX-License-Identifier: Apache-2.0
"""``intarsia targets``: kinds, their options, and what a target string means."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from .output import emit_json, table
from .session import Session

if TYPE_CHECKING:
    from ..target.options import OptionRow


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
        click.echo("no plugin is installed; e.g. pip install 'intarsia[all]'")
        return
    table(
        [(k.name, k.role, k.distribution, k.summary) for k in kinds],
        ("kind", "role", "from", "summary"),
    )
    if aliases:
        click.echo("")
        table(sorted(aliases.items()), ("alias", "stands for"))


@command.command("show")
@click.argument("kind")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def show_target(session: Session, kind: str, as_json: bool) -> None:
    """Show the options of a KIND: type, default, choices and what they mean. Imports its plugin."""
    from ..target.options import json_value, option_rows

    host = session.host()
    found = host.kind(kind)
    owner = host.owner(kind)
    rows = option_rows(found.options)
    if as_json:
        options = [
            {
                "flag": row.flag,
                "type": row.type,
                "default": json_value(row.default),
                "choices": list(row.choices),
                "minimum": row.minimum,
                "maximum": row.maximum,
                "doc": row.doc,
            }
            for row in rows
        ]
        row = {
            "name": found.name,
            "role": found.role.value,
            "summary": found.summary,
            "distribution": owner.distribution,
            "options": options,
        }
        emit_json({"target": row})
        return
    click.echo(f"{found.name}: {found.role.value}, from {owner.distribution} {owner.version}")
    if found.summary:
        click.echo(found.summary)
    if rows:
        click.echo("")
        table([_option(row) for row in rows], ("option", "type", "default", "meaning"))


def _option(row: OptionRow) -> tuple[str, str, str, str]:
    from ..target.options import print_value

    meaning = row.doc
    if row.choices:
        meaning += f" ({', '.join(str(choice) for choice in row.choices)})"
    return f"-{row.flag}", row.type, print_value(row.default), meaning


@command.command("parse")
@click.argument("text")
@click.option("--target-host", default=None, help="The host, if TEXT names none.")
@click.option("--origin", is_flag=True, help="Say for every option that is set who set it.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def parse(
    session: Session, text: str, target_host: str | None, origin: bool, as_json: bool
) -> None:
    """Print the canonical form of the target TEXT."""
    target = session.host().target(text, target_host)
    origins = {t.kind.name: dict(t.origins) for t in target.targets}
    if as_json:
        emit_json({"target": target.to_json(), **({"origins": origins} if origin else {})})
        return
    click.echo(str(target))
    if origin:
        rows = [(k, f"-{flag}", who) for k, set_ in origins.items() for flag, who in set_.items()]
        table(rows, ("kind", "option", "set by"))
