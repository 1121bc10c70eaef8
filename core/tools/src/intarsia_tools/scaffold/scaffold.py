# SPDX-License-Identifier: Apache-2.0
"""Writes a plugin package of one's own: templates of text files, filled in, all or nothing.

The folder ``templates`` is a template of copier as well: one folder of files for each role, with
``@{word}`` for what differs, in contents and in names.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Collection, Iterator
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

from intarsia_runtime.errors import ResourceError, UsageError

LONGEST_NAME = 40
"""Characters a plugin's name may have: it becomes a folder, a package and a target kind."""

ROLES = ("accelerator", "backend")
"""Roles for which there are templates: folders of that name."""

SUFFIX = ".tmpl"
"""What a file's name in the templates ends with, and the made file's does not."""

_NAME = re.compile(r"[a-z][a-z0-9]*(?:[-_][a-z0-9]+)*")
_PACKAGE = __name__.rpartition(".")[0]
_WORD = re.compile(r"@\{([a-z]+)\}")
_PREFIX = "intarsia"
_RESERVED = frozenset({"composite", "testkit", "host"})


def new_plugin(name: str, role: str, folder: Path, *, taken: Collection[str] = ()) -> Path:
    """Write the package ``intarsia-<name>`` into ``folder``; returns its folder.

    Args:
        name: Name of the plugin and of its target kind.
        role: One of :data:`ROLES`.
        folder: Where the package's folder is made; made too if it is not there.
        taken: Names that installed plugins have.

    Raises:
        UsageError: The name cannot be used, the package's folder exists, or there is no template
            for the role.
        ResourceError: It cannot be written; nothing is left of it.
    """
    _check_name(name, taken)
    if role not in ROLES:
        raise UsageError(
            f"there is no template for the role '{role}'",
            hint=f"there is one for: {', '.join(ROLES)}",
        )
    distribution = f"{_PREFIX}-{name.replace('_', '-')}"
    target = folder / distribution
    if target.exists() or target.is_symlink():
        raise UsageError(f"{target} exists", hint="choose another name, or another --dir")
    words = {
        "name": name,
        "role": role,
        "distribution": distribution,
        "package": distribution.replace("-", "_"),
        "title": "".join(part.capitalize() for part in re.split(r"[-_]", name)),
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=f".{distribution}-", dir=folder))
    except OSError as cause:
        raise ResourceError(f"cannot write to {folder}: {cause.strerror}") from None
    try:
        _fill(draft, role, words)
        draft.chmod(0o755)
        draft.rename(target)
    except OSError as cause:
        raise ResourceError(f"cannot write {target}: {cause.strerror}") from None
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return target


def _check_name(name: str, taken: Collection[str]) -> None:
    if not _NAME.fullmatch(name) or len(name) > LONGEST_NAME:
        raise UsageError(
            f"'{name[:60]}' cannot be the name of a plugin",
            hint=f"small letters, digits, - and _, at most {LONGEST_NAME}: acme-npu",
        )
    if re.split(r"[-_]", name)[0] == _PREFIX:
        raise UsageError(
            f"'{name}' repeats the prefix that the package gets",
            hint=f"leave '{_PREFIX}-' away",
        )
    if name in _RESERVED:
        raise UsageError(f"'{name}' is a word of the host", hint="choose another name")
    if name in taken:
        raise UsageError(
            f"an installed plugin has the name '{name}'",
            hint="choose another: two owners of one name exclude each other",
        )


def templates() -> Path:
    """Return the folder of the templates, which ``copier copy`` takes too."""
    return Path(str(resources.files(_PACKAGE).joinpath("templates")))


def _fill(folder: Path, role: str, words: dict[str, str]) -> None:
    """Write every file of a role's templates; names and contents are filled in."""

    def word(found: re.Match[str]) -> str:
        return words[found[1]]

    root = resources.files(_PACKAGE).joinpath("templates", role)
    for name, template in _files(root, ""):
        path = folder / _WORD.sub(word, name.removesuffix(SUFFIX))
        path.parent.mkdir(parents=True, exist_ok=True)
        text = template.read_text(encoding="utf-8")
        path.write_text(_WORD.sub(word, text), encoding="utf-8")


def _files(folder: Traversable, prefix: str) -> Iterator[tuple[str, Traversable]]:
    """Yield the path below the folder and the file of every template."""
    for entry in sorted(folder.iterdir(), key=_name_of):
        if entry.is_dir():
            yield from _files(entry, f"{prefix}{entry.name}/")
        elif entry.name.endswith(SUFFIX):
            yield f"{prefix}{entry.name}", entry


def _name_of(entry: Traversable) -> str:
    return entry.name
