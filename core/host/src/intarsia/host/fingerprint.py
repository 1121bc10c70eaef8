# SPDX-License-Identifier: Apache-2.0
"""Tells whether a plugin is what it was when it was tried: by files, versions, this Python."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from .discovery import HOOK_API, Found

OWN_PACKAGES = ("intarsia", "intarsia_runtime", "intarsia_ir", "intarsia_loops", "intarsia_onnx")
"""Packages whose code decides what a build makes, besides plugins."""


def own_files() -> Iterator[str]:
    """The files of Intarsia's own packages, as :func:`files_below` gives them."""
    for name in OWN_PACKAGES:
        spec = find_spec(name)
        for folder in () if spec is None else spec.submodule_search_locations or ():
            yield from files_below(Path(folder))


def fingerprint(plugin: Found) -> str:
    """All that decides whether what was seen of a plugin still holds, as text.

    Its files with their times, its version, this Python, and when anything was installed last; not
    for a plugin given as an object.
    """
    lines = [
        f"{plugin.name} {plugin.distribution} {plugin.version} {HOOK_API}",
        f"{sys.executable} {sys.version}",
        *(f"{part} {_stamp(Path(part))}" for part in sys.path if part.endswith("-packages")),
        *files_below(Path(str(plugin.folder))),
        *files_below(Path(__file__).parent),
    ]
    return "\n".join(lines)


def files_below(folder: Path) -> Iterator[str]:
    """The files below a folder with size and time; of a folder in a wheel, the wheel."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    if not folder.is_dir():
        yield f"{folder} {_stamp(folder)}"
        return
    todo = [str(folder)]
    while todo:
        with suppress(OSError), os.scandir(todo.pop()) as entries:
            for entry in sorted(entries, key=_name):
                if entry.is_dir():
                    if entry.name != "__pycache__":
                        todo.append(entry.path)
                else:
                    stat = entry.stat()
                    yield f"{entry.path} {stat.st_size} {stat.st_mtime_ns}"


def _name(entry: os.DirEntry[str]) -> str:
    return entry.name


def _stamp(path: Path) -> str:
    try:
        stat = path.stat()
    except OSError:
        return "-"
    return f"{stat.st_size} {stat.st_mtime_ns}"
