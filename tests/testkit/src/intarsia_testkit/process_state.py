# SPDX-License-Identifier: Apache-2.0
"""What a plugin may not change in the process that uses it: snapshots and their differences."""

from __future__ import annotations

import builtins
import ctypes
import gc
import json
import locale
import logging
import os
import random
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType

import numpy as np

from intarsia.host.fingerprint import OWN_PACKAGES

FOREIGN = (builtins, ctypes, json, os, subprocess, sys, threading, np, np.linalg)
"""Modules whose functions nobody may replace, besides all of Intarsia's own."""

_CHANGING = frozenset({"last_exc", "last_type", "last_value", "last_traceback", "exc_info", "_"})


def process_state() -> dict[str, str]:
    """Settings of the process, as texts that can be compared."""
    umask = os.umask(0o22)
    os.umask(umask)
    return {
        "working directory": os.getcwd(),
        "sys.path": repr(sys.path),
        "sys.meta_path": repr(sys.meta_path),
        "environment": repr(sorted(os.environ.items())),
        "umask": oct(umask),
        "locale": str(locale.setlocale(locale.LC_ALL)),
        "signal handlers": repr({s.name: repr(signal.getsignal(s)) for s in signal.Signals}),
        "warning filters": repr([f[:4] for f in warnings.filters]),
        "np.errstate": repr(np.geterr()),
        "np.printoptions": repr(sorted((k, str(v)) for k, v in np.get_printoptions().items())),
        "state of random": str(hash(random.getstate())),
        "state of np.random": repr(np.random.get_state()),
        "recursion limit": str(sys.getrecursionlimit()),
        "garbage collector": repr((gc.isenabled(), gc.get_threshold())),
        "sys.stdout, sys.stderr": repr((id(sys.stdout), id(sys.stderr))),
        "sys.excepthook": repr(sys.excepthook),
        "handlers of the root logger": repr((logging.root.handlers, logging.root.level)),
        "Python threads": repr(sorted(t.name for t in threading.enumerate())),
    }


def changed(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """One line for every setting that differs."""
    return [
        f"{name}: {before[name][:300]} -> {after[name][:300]}"
        for name in before
        if before[name] != after[name]
    ]


def bound_names() -> dict[str, int]:
    """What every public name of the watched modules, and of their classes, is bound to."""
    modules = [m for name, m in sys.modules.items() if name.split(".")[0] in OWN_PACKAGES]
    found: dict[str, int] = {}
    for module in (*FOREIGN, *modules):
        for name, value in _names(module):
            found[f"{module.__name__}.{name}"] = id(value)
    return found


def _names(module: ModuleType) -> Iterator[tuple[str, object]]:
    for name, value in list(vars(module).items()):
        if name.startswith("__") or name in _CHANGING or _is_data(value):
            continue
        yield name, value
        if isinstance(value, type) and value.__module__ == module.__name__:
            for member, inner in list(vars(value).items()):
                if callable(inner) and (not member.startswith("__") or member == "__init__"):
                    yield f"{name}.{member}", inner


def _is_data(value: object) -> bool:
    """Whether rebinding the name is no patch: counters, caches, imported submodules."""
    return isinstance(value, ModuleType | int | float | str | list | dict | set) or value is None


def replaced(before: Mapping[str, int], after: Mapping[str, int]) -> list[str]:
    """Names that are bound to something else, or to nothing, afterwards."""
    return [name for name, value in before.items() if after.get(name) != value]


def files_below(*folders: Path) -> set[str]:
    """Every file below some folders, but compiled Python."""
    return {
        str(path)
        for folder in folders
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
