# SPDX-License-Identifier: Apache-2.0
"""The loader author's face, where the host is installed: see :mod:`intarsia_runtime.plugin`.

It has the same names and imports nothing but the runtime. A loader that must also run where only
the runtime is installed imports :mod:`intarsia_runtime.plugin` itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from intarsia_runtime import plugin

__all__: list[str] = []
__all__ += plugin.__all__

if TYPE_CHECKING:
    from intarsia_runtime.plugin import *  # noqa: F403  # its __all__ is the list, kept once
else:
    __getattr__, __dir__ = plugin.__getattr__, plugin.__dir__
