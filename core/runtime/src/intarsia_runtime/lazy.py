# SPDX-License-Identifier: Apache-2.0
"""Modules that name what others define, and import each of them when a name is first used."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping


def lazy_names(
    module: str, homes: Mapping[str, str]
) -> tuple[Callable[[str], object], Callable[[], list[str]], list[str]]:
    """Return ``__getattr__``, ``__dir__`` (PEP 562) and ``__all__`` of a module.

    Type checkers read the names from imports ``from home import name as name`` in the block
    ``if TYPE_CHECKING`` of the module.

    Args:
        module: Its name.
        homes: Name of a module to the names that it defines, separated by spaces.
    """
    home_of = {name: home for home, names in homes.items() for name in names.split()}

    def get(name: str) -> object:
        if name not in home_of:
            raise AttributeError(f"module '{module}' has no attribute '{name}'")
        home = importlib.import_module(home_of[name])
        value: object = getattr(home, name)
        setattr(sys.modules[module], name, value)
        return value

    names = sorted(home_of)
    return get, lambda: names, names
