# SPDX-License-Identifier: Apache-2.0
"""Finds the importer of a model: by the end of its file's name, or by its first bytes."""

from __future__ import annotations

from pathlib import Path

from intarsia_runtime.errors import DuplicateName, ModelError, UnsupportedError

from .frontend import SNIFF_BYTES, Frontend
from .manager import PluginManager


def frontend_for(manager: PluginManager, model: Path | bytes) -> Frontend:
    """Return the importer of a model; see :meth:`intarsia.host.host.Host.frontend_for`.

    Raises:
        UnsupportedError: No installed format is the model's.
        ModelError: The file cannot be read.
        DuplicateName: Two plugins have the suffix.
        PluginError: A plugin cannot be used, or failed.
    """
    rows = manager.frontend_rows()
    if isinstance(model, Path):
        name = model.name.lower()
        fitting = [
            (len(suffix), plugin.distribution, row.name)
            for plugin, row in rows
            for suffix in row.suffixes
            if name.endswith(suffix.lower())
        ]
        longest = max((size for size, _, _ in fitting), default=0)
        found = [(owner, format_) for size, owner, format_ in fitting if size == longest]
        if len(found) > 1:
            both = " and ".join(f"'{format_}' of {owner}" for owner, format_ in found)
            raise DuplicateName(
                f"'{model}' has several possible formats: {both}",
                hint=f"INTARSIA_DISABLE_PLUGINS={found[0][0]} (or ={found[1][0]}) decides",
            )
        if found:
            return manager.frontend(found[0][1])
    head = model[:SNIFF_BYTES] if isinstance(model, bytes) else _head(model)
    for _, row in rows:
        frontend = manager.frontend(row.name)
        if frontend.sniff is not None and frontend.sniff(head):
            return frontend
    known = ", ".join(f"{row.name} ({' '.join(row.suffixes)})" for _, row in rows)
    raise UnsupportedError(
        "no installed frontend imports the model",
        where="" if isinstance(model, bytes) else str(model),
        hint=f"formats: {known}" if known else "pip install intarsia-onnx imports ONNX models",
    )


def _head(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(SNIFF_BYTES)
    except OSError as error:
        raise ModelError(f"cannot read '{path}': {error.strerror}") from None
