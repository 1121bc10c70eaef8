# SPDX-License-Identifier: Apache-2.0
"""``intarsia cache``: what earlier builds left, why one is not used, and how to be rid of it."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

import click

from intarsia_ir.partition.report import bytes_text
from intarsia_runtime.errors import UsageError

from ..driver.cache import LIMIT, BuildCache, Entry, Key, open_cache
from ..driver.fetch_build import build_key, cache_of
from .composed import ComposedCommand
from .model_options import BuildSettings, build_options
from .output import echo, emit_json, table


@click.group("cache")
def command() -> None:
    """Show and clear the artifacts that earlier builds left for later ones."""


@command.command("info")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def info(as_json: bool) -> None:
    """Show the folder, the size and the size limit of the cache."""
    cache = _opened()
    entries = cache.entries()
    size = sum(entry.bytes for entry in entries)
    if as_json:
        document = {"folder": str(cache.folder), "entries": len(entries), "bytes": size}
        emit_json({**document, "limit": cache.limit})
        return
    echo(f"folder:  {cache.folder}")
    echo(f"entries: {len(entries)}")
    echo(f"size:    {bytes_text(size)} of {bytes_text(cache.limit)} ({LIMIT})")


@command.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_entries(as_json: bool) -> None:
    """List the artifacts, the most recently used first."""
    entries = _opened().entries()
    if as_json:
        emit_json({"entries": [_json(entry) for entry in entries]})
        return
    rows = [(e.name[:12], _word(e, "name"), _word(e, "target"), bytes_text(e.bytes), _when(e.used))
            for e in entries]  # fmt: skip
    table(rows, ("entry", "model", "target", "size", "used"))


@command.command("why", cls=ComposedCommand)
@click.argument("model", type=click.Path(path_type=Path))
@build_options()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def why(model: Path, settings: BuildSettings, as_json: bool) -> None:
    """Show whether the cache has a build of MODEL; if not, the differences of the key."""
    request = settings.request(model)
    cache = cache_of(request) if settings.use_cache else None
    key = build_key(request)
    if cache is None or key is None:
        what = "the cache is off, or not for such a build" if cache is None else (
            "a plugin of the target is not installed as files"
        )  # fmt: skip
        _say_why(as_json, hit=False, reason=what, differs=())
        return
    kept = cache.find(key)
    if kept is not None:
        kept.file.close()
        _say_why(as_json, hit=True, reason="an earlier build made the same", differs=())
        return
    near = _nearest(cache.entries(), key)
    if near is None:
        reason = "no earlier build was of this model or for this target"
        _say_why(as_json, hit=False, reason=reason, differs=())
        return
    reason = f"the nearest build is {near.name[:12]} ({_word(near, 'name')})"
    _say_why(as_json, hit=False, reason=reason, differs=differences(near.key, key))


@command.command("clear")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def clear(as_json: bool) -> None:
    """Remove all artifacts; processes that run one are not affected."""
    count = _opened().clear()
    if as_json:
        emit_json({"removed": count})
    else:
        echo(f"removed {count} artifact{'' if count == 1 else 's'}")


def differences(old: Key, new: Key) -> list[str]:
    """Return the parts of two keys that differ, inner ones with a dot: ``plugins.x``."""
    found: list[str] = []
    for name in _changed(old, new):
        before, after = old.get(name), new.get(name)
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            inner = _changed(cast("Key", before), cast("Key", after))  # names are texts, as in JSON
            found += [f"{name}.{k}" if k else name for k in inner]
        else:
            found.append(name)
    return found


def _changed(old: Key, new: Key) -> list[str]:
    return [name for name in dict.fromkeys([*old, *new]) if old.get(name) != new.get(name)]


def _nearest(entries: Sequence[Entry], key: Key) -> Entry | None:
    """The entry that differs in the fewest parts, of those of the same model or target."""
    fitting = [e for e in entries if any(e.key.get(n) == key[n] for n in ("model", "target"))]
    counts = {entry.name: len(differences(entry.key, key)) for entry in fitting}
    return min(fitting, key=lambda entry: counts[entry.name], default=None)


def _say_why(as_json: bool, *, hit: bool, reason: str, differs: Sequence[str]) -> None:
    if as_json:
        emit_json({"hit": hit, "reason": reason, "differs": list(differs)})
        return
    echo(f"{'hit' if hit else 'miss'}: {reason}")
    if differs:
        echo(f"differs in: {', '.join(differs)}")


def _opened() -> BuildCache:
    cache = open_cache(os.environ)
    if cache is None:
        raise UsageError(
            "the cache is off, or its folder is not usable",
            hint=f"{LIMIT} sets its size in MiB, INTARSIA_CACHE_DIR its folder",
        )
    return cache


def _json(entry: Entry) -> dict[str, object]:
    return {
        "entry": entry.name, "bytes": entry.bytes, "used": entry.used,
        "model": entry.key.get("name"), "target": entry.key.get("target"),
    }  # fmt: skip


def _word(entry: Entry, name: str) -> str:
    return str(entry.key.get(name, ""))


def _when(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))
