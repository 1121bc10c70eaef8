# SPDX-License-Identifier: Apache-2.0
"""Targets: a kind with options, and a composite of several."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .kind import TargetKind


@dataclass(frozen=True, slots=True)
class Target:
    """A kind with the values of its options; canonical, hashable, equal by value.

    Attributes:
        kind: The kind.
        options: An instance of ``kind.options``.
        origins: For each option set by anything but its default, who set it: ``command line``, an alias,
            a tag, detection. Not part of equality.
    """

    kind: TargetKind
    options: Any
    origins: tuple[tuple[str, str], ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class CompositeTarget:
    """Accelerators in the user's order, the backend for the rest, and the host that drives them.

    Attributes:
        accelerators: Tried in this order; may be empty, then the fallback compiles everything.
        fallback: Backend that compiles what no accelerator takes.
        host: Backend that compiles the driving code; the fallback itself on a CPU.
    """

    accelerators: tuple[Target, ...]
    fallback: Target
    host: Target
