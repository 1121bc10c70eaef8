# SPDX-License-Identifier: Apache-2.0
"""Engines kept between builds, in the user's cache folder.

The key holds all that an engine depends on: graph, weights, options, the code of this plugin, the
library and the GPU. An entry that is damaged is built again.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from importlib import resources
from pathlib import Path

import numpy as np

from intarsia.plugin.accelerator import (
    Call,
    Constant,
    Expr,
    PluginError,
    Region,
    Tuple,
    TupleGetItem,
    Var,
    post_order,
)

VARIABLE = "INTARSIA_CACHE_DIR"
_DIGEST = hashlib.sha256().digest_size


def region_digest(region: Region) -> str:
    """Return a digest of a region's graph and weights; names of nodes do not count."""
    whole = hashlib.sha256()
    numbers: dict[Expr, int] = {}
    for node in (*region.function.params, *post_order(region.function.body)):
        if node in numbers:
            continue
        numbers[node] = len(numbers)
        whole.update(_line(node, numbers).encode())
    whole.update(repr([numbers[node] for node in region.function.outputs]).encode())
    return whole.hexdigest()


def _line(node: Expr, numbers: dict[Expr, int]) -> str:
    match node:
        case Var():
            description = f"input {node.type}"
        case Constant():
            description = f"constant {node.type} {_bytes_digest(node.data)}"
        case Call():
            args = [numbers[arg] for arg in node.args]
            description = f"{node.name} {node.attrs!r} {args} {node.type}"
        case Tuple():
            description = f"tuple {[numbers[field] for field in node.fields]}"
        case TupleGetItem():
            description = f"item {node.index} of {numbers[node.tuple]}"
        case _:
            raise PluginError(f"a region holds a {node.__class__.__name__}: {node!r:.60}")
    return f"{numbers[node]}: {description}\n"


def _bytes_digest(array: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).view(np.uint8).data).hexdigest()


@cache
def code_digest() -> str:
    """Return a digest of this plugin's own source: what writes the networks."""
    whole = hashlib.sha256()
    package = resources.files("intarsia_tensorrt")
    for folder in (package, package.joinpath("operators")):
        for item in sorted(folder.iterdir(), key=str):
            if item.name.endswith(".py"):
                whole.update(item.read_bytes())
    return whole.hexdigest()


def plan_key(region: Region, facts: Sequence[str]) -> str:
    """Return the key of a region's engine.

    Args:
        region: What the engine computes.
        facts: Options, library and device.
    """
    parts = (code_digest(), region_digest(region), *facts)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def cached_plan(key: str, build: Callable[[], bytes]) -> bytes:
    """Return the engine of a key; ``build`` makes it unless it is kept whole."""
    path = plan_folder() / f"{key}.plan"
    kept = _read(path)
    if kept is not None:
        return kept
    made = build()
    _write(path, made)
    return made


def _read(path: Path) -> bytes | None:
    try:
        content = path.read_bytes()
    except OSError:
        return None
    digest, plan = content[:_DIGEST], content[_DIGEST:]
    return plan if hashlib.sha256(plan).digest() == digest else None


def _write(path: Path, plan: bytes) -> None:
    """Write beside the place, then rename; a cache that cannot be written is no error."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            file.write(hashlib.sha256(plan).digest() + plan)
        Path(file.name).replace(path)
    except OSError:
        return


def plan_folder() -> Path:
    """Return where engines are kept: in the folder of ``INTARSIA_CACHE_DIR``, or in the user's."""
    given = os.environ.get(VARIABLE)
    if given:
        return Path(given) / "tensorrt"
    from platformdirs import user_cache_path  # only a build asks for it

    return user_cache_path("intarsia", appauthor=False) / "tensorrt"
