# SPDX-License-Identifier: Apache-2.0
"""What belongs to the whole process and not to a plugin: taken before, compared after."""

from __future__ import annotations

import builtins
import locale
import os
import signal
import sys
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import cast

from msgspec import Struct

from .fingerprint import OWN_PACKAGES
from .guard import working_folder

_WATCHED = (*OWN_PACKAGES, "numpy", "pluggy", "click", "json", "os", "subprocess", "threading")
_MISSING = object()
_OPENMP = ("libgomp", "libiomp", "libomp.", "libomp-")


class ProcessState(Struct, frozen=True):
    """The state at one moment.

    Attributes:
        settings: Name in words to a value that compares.
        names: Module or class to what its names stand for.
    """

    settings: Mapping[str, object]
    names: Mapping[str, tuple[object, Mapping[str, object]]]

    @classmethod
    def take(cls) -> ProcessState:
        """Look at the process now."""
        return cls(_settings(), dict(_namespaces()))

    def changes(self) -> Iterator[str]:
        """What is different now, in words; a module's new names and submodules do not count."""
        now = _settings()
        for what, value in self.settings.items():
            if now[what] != value:
                yield f"changes {what}"
        for where, (owner, names) in self.names.items():
            current = vars(owner)
            for name, value in names.items():
                if current.get(name, _MISSING) is not value:
                    yield f"replaces {where}.{name}"


def openmp_runtimes(maps: Path = Path("/proc/self/maps")) -> list[str]:
    """File names of the OpenMP runtimes in this process; two of them share no threads."""
    try:
        lines = maps.read_text(errors="replace").splitlines()
    except OSError:
        return []
    names = {line.rsplit("/", 1)[1] for line in lines if "/" in line}
    return sorted(name for name in names if name.startswith(_OPENMP))


def _settings() -> dict[str, object]:
    import multiprocessing  # only in the child of a trial

    import numpy as np

    handlers = {number: signal.getsignal(number) for number in signal.valid_signals()}
    return {
        "signal handlers": handlers,
        "the locale": locale.setlocale(locale.LC_ALL),
        "warnings filters": list(warnings.filters),
        "sys.path": list(sys.path),
        "sys.meta_path": list(sys.meta_path),
        "NumPy's floating-point errors": np.geterr(),
        "the start method of multiprocessing": multiprocessing.get_start_method(allow_none=True),
        "environment variables": dict(os.environ),
        "the working folder": working_folder(),
        "sys.stdout or sys.stderr": (id(sys.stdout), id(sys.stderr)),
        "sys.excepthook": sys.excepthook,
        "the recursion limit": sys.getrecursionlimit(),
    }


def _namespaces() -> Iterator[tuple[str, tuple[object, Mapping[str, object]]]]:
    """Modules that a plugin shares with others, and the classes that Intarsia defines in them."""
    yield "builtins", (builtins, _names(vars(builtins)))
    for name, module in sorted(sys.modules.items()):
        if name.partition(".")[0] not in _WATCHED or not isinstance(
            cast("object", module), ModuleType
        ):
            continue
        yield name, (module, _names(vars(module)))
        if name.partition(".")[0] in OWN_PACKAGES:
            for value in list(vars(module).values()):
                if isinstance(value, type) and value.__module__ == name:
                    yield f"{name}.{value.__qualname__}", (value, _names(vars(value)))


def _names(namespace: Mapping[str, object]) -> dict[str, object]:
    """Names that are nobody's cache: functions, classes and constants."""
    return {
        name: value
        for name, value in namespace.items()
        if not isinstance(value, ModuleType) and not name.startswith(("__", "_abc_"))
    }
