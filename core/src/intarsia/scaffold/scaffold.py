# SPDX-License-Identifier: Apache-2.0
"""Writes a plugin package of one's own: templates of text files, filled in, all or nothing."""

from __future__ import annotations

import re
import shutil
import tempfile
import tomllib
from collections.abc import Collection
from importlib import resources
from pathlib import Path
from string import Template

from ..errors import ResourceError, UnsupportedError, UsageError

LONGEST_NAME = 40
"""Characters a plugin's name may have: it becomes a folder, a package and a target kind."""

ROLES = ("accelerator",)
"""Roles for which there are templates."""

_NAME = re.compile(r"[a-z][a-z0-9]*(?:[-_][a-z0-9]+)*")
_PREFIX = "intarsia"
_RESERVED = frozenset({"composite", "testkit", "host"})


def new_plugin(name: str, role: str, folder: Path, *, taken: Collection[str] = ()) -> Path:
    """Write the package ``intarsia-<name>`` into ``folder``; returns its folder.

    Args:
        name: Name of the plugin and of its target kind.
        role: ``accelerator``; there is no template for a ``backend``.
        folder: Where the package's folder is made; made too if it is not there.
        taken: Names that installed plugins have.

    Raises:
        UsageError: The name cannot be used, or the package's folder exists.
        UnsupportedError: There is no template for the role.
        ResourceError: It cannot be written; nothing is left of it.
    """
    _check_name(name, taken)
    if role not in ROLES:
        raise UnsupportedError(
            f"there is no template for a {role}", hint=f"there is one for: {', '.join(ROLES)}"
        )
    distribution = f"{_PREFIX}-{name.replace('_', '-')}"
    target = folder / distribution
    if target.exists() or target.is_symlink():
        raise UsageError(f"{target} exists", hint="choose another name, or another --dir")
    words = {
        "name": name,
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


def _fill(folder: Path, role: str, words: dict[str, str]) -> None:
    """Write every file of a role's list; names and contents are templates."""
    templates = resources.files(f"{_PREFIX}.scaffold").joinpath("templates", role)
    files = tomllib.loads(templates.joinpath("files.toml").read_text(encoding="utf-8"))
    for name, template in files["files"].items():
        path = folder / Template(name).substitute(words)
        path.parent.mkdir(parents=True, exist_ok=True)
        text = templates.joinpath(template).read_text(encoding="utf-8") if template else ""
        path.write_text(Template(text).substitute(words), encoding="utf-8")
