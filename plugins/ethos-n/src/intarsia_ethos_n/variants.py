# SPDX-License-Identifier: Apache-2.0
"""The variants of the Ethos-N78 and their memories."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from msgspec import Struct

KIB = 1024


class Variant(Struct, frozen=True):
    """A configuration of the device.

    Attributes:
        sram: Bytes of on-chip memory.
        srams: Banks of it.
    """

    sram: int
    srams: int


VARIANTS: Mapping[str, Variant] = MappingProxyType(
    {
        "n78-1tops-2ple": Variant(448 * KIB, 8),
        "n78-1tops-4ple": Variant(448 * KIB, 8),
        "n78-2tops-2ple": Variant(768 * KIB, 8),
        "n78-2tops-4ple": Variant(768 * KIB, 8),
        "n78-4tops-2ple": Variant(1024 * KIB, 16),
        "n78-4tops-4ple": Variant(1024 * KIB, 16),
        "n78-8tops-2ple": Variant(2048 * KIB, 16),
    }
)
"""By the name that the option ``-variant`` takes."""


def library_name(variant: str) -> str:
    """Return the Support Library's name of a variant: ``ETHOS_N78_4TOPS_4PLE_RATIO``."""
    return f"ETHOS_{variant.upper().replace('-', '_')}_RATIO"
