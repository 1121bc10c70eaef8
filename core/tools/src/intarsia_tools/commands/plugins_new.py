# SPDX-License-Identifier: Apache-2.0
"""``intarsia plugins new``: a package of one's own that passes the conformance kit as it is."""

from __future__ import annotations

from pathlib import Path

import click

from intarsia.cli.output import echo, emit_json
from intarsia.cli.session import Session


def _show_templates(context: click.Context, _option: click.Parameter, wanted: bool) -> None:
    """Print the folder of the templates, and end."""
    if wanted:
        from ..scaffold.scaffold import templates  # as below

        echo(str(templates()))
        context.exit()


@click.command("plugins new")
@click.argument("name")
@click.option("--accelerator", "role", flag_value="accelerator", default="accelerator",
              help="Takes the part of a graph that it supports (default).")  # fmt: skip
@click.option("--backend", "role", flag_value="backend", help="Compiles any graph, through C.")
@click.option("--dir", "folder", type=click.Path(path_type=Path, file_okay=False),
              default=".", help="Parent folder of the package.")  # fmt: skip
@click.option("--templates", is_flag=True, is_eager=True, expose_value=False,
              callback=_show_templates, help="Print the folder of the templates.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def command(session: Session, name: str, role: str, folder: Path, as_json: bool) -> None:
    """Write a package for a plugin NAME: code, tests, tox and CI files."""
    from ..scaffold.scaffold import new_plugin  # listing plugins does without templates

    host = session.host()
    taken = {*host.names(), *host.aliases(), *(plugin.name for plugin in host.plugins())}
    made = new_plugin(name, role, folder, taken=taken)
    files = sorted(str(path.relative_to(made)) for path in made.rglob("*") if path.is_file())
    if as_json:
        emit_json({"name": name, "role": role, "path": str(made), "files": files})
        return
    echo(f"wrote {len(files)} files to {made}")
    echo(f"  next: pip install -e {made} intarsia-testkit && intarsia plugins check {name}")
