# SPDX-License-Identifier: Apache-2.0
"""A module that must never be imported."""

from __future__ import annotations

raise AssertionError("imported although nothing may use this plugin")
