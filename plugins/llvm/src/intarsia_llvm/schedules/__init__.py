# SPDX-License-Identifier: Apache-2.0
"""Loops for heavy operators: one file a family, each ``schedule(group, target) -> PrimFunc | None``."""
