# SPDX-License-Identifier: Apache-2.0
"""The loader interface, if the host is installed: see :mod:`intarsia_runtime.plugin`.

It has the same names and imports only the runtime. A loader must also run where only the runtime is
installed, so it imports :mod:`intarsia_runtime.plugin` itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from intarsia_runtime import plugin

if TYPE_CHECKING:
    from intarsia_runtime.plugin import *  # noqa: F403
else:
    __getattr__, __dir__, __all__ = plugin.__getattr__, plugin.__dir__, plugin.__all__
