# SPDX-License-Identifier: Apache-2.0
"""``intarsia plugins dev``: place a model again whenever a plugin's files change."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import click

from intarsia.cli.output import echo
from intarsia.cli.plugin_names import PluginName
from intarsia.cli.session import Session
from intarsia.host.discovery import find_plugins
from intarsia.host.host import Host
from intarsia.target.kind import Role
from intarsia_runtime.artifact.abandoned import temporary_folder
from intarsia_runtime.errors import UsageError

from ..builds import Build, moved_nodes, read_build
from .diff import print_moved

_WATCHED = (".py", ".toml", ".json")


@click.command("plugins dev")
@click.argument("name", type=PluginName())
@click.argument("model", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--target", default="", help="Target; default: NAME before the first backend.")
@click.option("--every", type=click.FloatRange(0.05, 60), default=0.5, show_default=True,
              help="Seconds between checks of the files.")  # fmt: skip
@click.option("--times", type=click.IntRange(1), help="Stop after this number of placements.")
@click.pass_obj
def command(
    session: Session, name: str, model: Path, target: str, every: float, times: int | None
) -> None:
    """Place MODEL each time a file of the plugin NAME is saved; show the nodes that moved.

    Each placement runs in a new process, which reads the saved files. Ctrl-C ends it.
    """
    folder = source_folder(name)
    chosen = target or default_target(session.host(), name)
    echo(f"watching {folder} for: intarsia explain {model} --target '{chosen}'")
    follow(folder, model.resolve(), chosen, every, times)


def follow(folder: Path, model: Path, target: str, every: float, times: int | None) -> None:
    """Print a placement, and after each save the new one with every node that moved.

    Args:
        folder: Files of the plugin.
        model: What is placed.
        target: For which target.
        every: Seconds between looks at the files.
        times: How many placements; ``None`` for no end.
    """
    before: Build | None = None
    for number, changed in enumerate(_saves(folder, every), start=1):
        if changed:
            echo(f"\n{', '.join(changed)}")
        after = _placement(model, target)
        if after is not None:
            echo(after.summary)
            if before is not None:
                print_moved(moved_nodes(before, after))
            before = after
        sys.stdout.flush()
        if number == times:
            return


def source_folder(name: str) -> Path:
    """The folder with the files of a plugin.

    Raises:
        UsageError: There is no such plugin, or its files lie inside a zip file.
    """
    found = [row for row in find_plugins() if name in (row.name, row.distribution)]
    if not found:
        raise UsageError(f"no plugin is called '{name}'", hint="pip install -e FOLDER, first")
    folder = Path(str(found[0].folder))
    if not folder.is_dir():
        reason = found[0].reason or f"{folder} is no folder"
        raise UsageError(f"the files of '{name}' cannot be watched: {reason}")
    return folder


def default_target(host: Host, name: str) -> str:
    """The plugin's first kind; an accelerator in front of a backend of another plugin."""
    kinds = [kind for kind in host.kinds() if name in (kind.plugin, kind.distribution)]
    if not kinds:
        raise UsageError(f"'{name}' has no target kind", hint="name a target with --target")
    if kinds[0].role == Role.BACKEND.value:
        return kinds[0].name
    others = [backend for backend in host.backends() if backend not in {k.name for k in kinds}]
    if not others:
        raise UsageError(
            f"no backend is installed for what '{name}' leaves", hint="pip install 'intarsia[llvm]'"
        )
    return f"{kinds[0].name}, {others[0]}"


def _saves(folder: Path, every: float) -> Iterator[list[str]]:
    """Yield once at the start, then the names of the files that were saved, each time some were."""
    known = _stamps(folder)
    yield []
    while True:
        time.sleep(every)
        now = _stamps(folder)
        if now != known:
            changed = sorted(path for path in now.keys() | known.keys()
                             if now.get(path) != known.get(path))  # fmt: skip
            known = now
            yield [str(Path(path).relative_to(folder)) for path in changed]


def _stamps(folder: Path) -> dict[str, tuple[int, int]]:
    """File to its time and size."""
    found: dict[str, tuple[int, int]] = {}
    for root, _, names in os.walk(folder):
        for name in names:
            if name.endswith(_WATCHED):
                path = os.path.join(root, name)
                try:
                    facts = os.stat(path)
                except OSError:  # saved by renaming, this very moment
                    continue
                found[path] = (facts.st_mtime_ns, facts.st_size)
    return found


def _placement(model: Path, target: str) -> Build | None:
    """What a process of its own says; ``None``, and its words on stderr, if it fails."""
    command = [
        sys.executable,
        "-m",
        "intarsia",
        "explain",
        str(model),
        "--target",
        target,
        "--json",
    ]
    run = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, check=False)
    if run.returncode:
        echo(run.stderr.decode(errors="replace").strip(), err=True)
        return None
    with temporary_folder("dev") as folder:
        report = folder / "report.json"
        report.write_bytes(run.stdout)
        return read_build(report)
