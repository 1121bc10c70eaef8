# SPDX-License-Identifier: Apache-2.0
"""The two decorators of the hook system: one for the host, one for plugins."""

from __future__ import annotations

import pluggy

PROJECT = "intarsia"
"""Name that ties specifications and implementations together."""

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)
