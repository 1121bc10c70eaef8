# SPDX-License-Identifier: Apache-2.0
"""The version of the host; ``0`` when it runs without being installed."""

from __future__ import annotations

from intarsia_runtime.installed import installed_version

__version__ = installed_version("intarsia") or "0"
