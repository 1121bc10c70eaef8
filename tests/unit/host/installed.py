# SPDX-License-Identifier: Apache-2.0
"""Writes what an installer would leave of a plugin, without an installer."""

from __future__ import annotations

from pathlib import Path

MANIFEST = """schema = 1
name = "{name}"
api = "{api}"
summary = "made by a test"
hooks = "{package}.plugin"
[[target-kind]]
name = "{kind}"
role = "accelerator"
summary = "made by a test"
[[alias]]
name = "{alias}"
target = "{kind}, loops"
"""


def install(
    folder: Path,
    name: str,
    *,
    distribution: str = "",
    kind: str = "",
    alias: str = "",
    api: str = ">=2.0,<3",
    value: str = "",
    manifest: str | None = None,
    entry: str = "",
    version: str = "1.0",
) -> str:
    """Write dist-info and manifest of a plugin; returns the name of its package."""
    distribution = distribution or f"intarsia-{name}"
    package = distribution.replace("-", "_")
    info = folder / f"{package}-{version}.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n\nVersion: 9\n"
    )
    value = value or f"{package}:plugin.toml"
    text = (
        f"[console_scripts]\nx = y:z\n\n[intarsia.plugins]\n# comment\n{entry or name} = {value}\n"
    )
    (info / "entry_points.txt").write_text(text)
    (folder / package).mkdir(exist_ok=True)
    fields = {"name": name, "api": api, "package": package, "kind": kind or name}
    default = MANIFEST.format(**fields, alias=alias or f"{kind or name}-auto")
    (folder / package / "plugin.toml").write_text(default if manifest is None else manifest)
    return package
