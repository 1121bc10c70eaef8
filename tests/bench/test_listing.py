# SPDX-License-Identifier: Apache-2.0
"""What listing costs: 50 plugins among 300 distributions, against an empty click program."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.source_path import CORE

LIMIT = 3.5
EMPTY = "import click\n@click.command()\ndef main():\n    click.echo('')\nmain()\n"


def distributions(folder: Path, plugins: int, others: int) -> None:
    """Write the metadata that an installer leaves."""
    for number in range(plugins + others):
        name = f"dist{number}"
        info = folder / f"{name}-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n\n")
        (info / "RECORD").write_text("")
        if number < plugins:
            (info / "entry_points.txt").write_text(
                f"[intarsia.plugins]\np{number} = {name}:plugin.toml\n"
            )
            (folder / name).mkdir()
            (folder / name / "plugin.toml").write_text(
                f'schema = 1\nname = "p{number}"\napi = ">=2.0,<3"\n'
                f'summary = "s"\nhooks = "{name}.x"\n'
                f'[[target-kind]]\nname = "k{number}"\nrole = "accelerator"\nsummary = "s"\n'
                f'[[alias]]\nname = "a{number}"\ntarget = "k{number}, loops"\n'
            )
        elif number % 3 == 0:
            (info / "entry_points.txt").write_text(f"[console_scripts]\nx{number} = {name}:main\n")


def seconds(arguments: list[str], env: dict[str, str]) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, *arguments], env=env, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - start


@pytest.mark.bench
def test_listing_fifty_plugins_is_quick(tmp_path: Path) -> None:
    distributions(tmp_path / "site", 50, 250)
    (tmp_path / "empty.py").write_text(EMPTY)
    path = os.pathsep.join([CORE, str(tmp_path / "site")])
    env = {**os.environ, "PYTHONPATH": path, "PYTHONPYCACHEPREFIX": str(tmp_path / "pyc")}
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    empty, listing = [str(tmp_path / "empty.py")], ["-m", "intarsia", "plugins", "list"]
    pairs = [(seconds(empty, env), seconds(listing, env)) for _ in range(10)][1:]
    base, ours = (statistics.median(column) for column in zip(*pairs, strict=True))
    print(f"\nempty {1e3 * base:.0f} ms, plugins list {1e3 * ours:.0f} ms: {ours / base:.2f}x")
    assert ours <= LIMIT * base
