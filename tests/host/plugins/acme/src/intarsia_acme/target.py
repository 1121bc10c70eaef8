# SPDX-License-Identifier: Apache-2.0
"""The kind ``acme`` and its options."""

from __future__ import annotations

from dataclasses import dataclass

from intarsia.plugin import Role, TargetKind, option


@dataclass(frozen=True, kw_only=True)
class AcmeOptions:
    """What a user may set."""

    max_elements: int = option(1 << 24, doc="largest tensor it takes", minimum=1)


ACME = TargetKind("acme", Role.ACCELERATOR, AcmeOptions, summary="simulated accelerator")
