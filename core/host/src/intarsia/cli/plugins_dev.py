# SPDX-License-Identifier: Apache-2.0
"""``intarsia plugins dev``: place a model again whenever a plugin's files change."""

from __future__ import annotations

from pathlib import Path

import click

from .output import echo
from .plugin_names import PluginName
from .session import Session


@click.command("dev")
@click.argument("name", type=PluginName())
@click.argument("model", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--target", default="", help="Target; NAME in front of the first other backend.")
@click.option("--every", type=click.FloatRange(0.05, 60), default=0.5, show_default=True,
              help="Seconds between looks at the files.")  # fmt: skip
@click.option("--times", type=click.IntRange(1), help="End after so many placements.")
@click.pass_obj
def command(
    session: Session, name: str, model: Path, target: str, every: float, times: int | None
) -> None:
    """Place MODEL with the plugin NAME each time one of its files is saved; show what moved.

    Each placement is made by a new process, so what is saved is what counts. Ctrl-C ends it.
    """
    from .development import default_target, follow, source_folder  # listing plugins does without

    folder = source_folder(name)
    chosen = target or default_target(session.host(), name)
    echo(f"watching {folder} for: intarsia explain {model} --target '{chosen}'")
    follow(folder, model.resolve(), chosen, every, times)
