# SPDX-License-Identifier: Apache-2.0
"""Build: the stages in order. ``intarsia.build(...)`` is :func:`intarsia.driver.build.build`.

A package and the function that users call have one name. Importing any part of the package makes
``intarsia.build`` the package, so the package can be called.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _CallablePackage(ModuleType):
    """This package, with the call that its name promises."""

    def __call__(self, *args: Any, **options: Any) -> object:
        """Compile a model; see :func:`intarsia.driver.build.build`."""
        from .build import build  # imports every stage: only when something is built

        return build(*args, **options)


sys.modules[__name__].__class__ = _CallablePackage
