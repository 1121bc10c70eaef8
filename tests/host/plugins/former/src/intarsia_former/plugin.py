# SPDX-License-Identifier: Apache-2.0
"""A backend as hook API 1.x had it: its kind carries functions. Must never be imported."""

from __future__ import annotations

from dataclasses import dataclass

from intarsia.plugin import Role, TargetKind, hookimpl


@dataclass(frozen=True, kw_only=True)
class Options:
    """Nothing to set."""


@hookimpl
def register_target_kind():
    """The one kind, whose ``tir_codegen`` and ``canonicalize`` are hooks since 2.0."""
    return [
        TargetKind(
            "former",
            Role.BACKEND,
            Options,
            tir_codegen=lambda module, target: None,
            canonicalize=lambda options: options,
        )
    ]


raise AssertionError("imported although nothing may use this plugin")
