# SPDX-License-Identifier: Apache-2.0
"""A plugin that ends the process when it is imported."""

from __future__ import annotations

print("noise on stdout")
raise SystemExit(0)
