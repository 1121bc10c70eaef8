# SPDX-License-Identifier: Apache-2.0
"""What a unit's code was compiled for, as a number in it. Shared by both halves of the plugin.

The code reads its arguments and weights by sizes of its own; the stamp binds it to the sizes that
the artifact names, so that weights which were exchanged are refused before they are read.
"""

from __future__ import annotations

from collections.abc import Iterable

from intarsia_runtime.plugin import stamp_of

FORMAT = 1
"""Version of the format of units."""

SYMBOL = "intarsia_acl_stamp"

Described = Iterable[tuple[str, tuple[int, ...]]]


def unit_stamp(inputs: Described, outputs: Described, constants: Described) -> int:
    """Return the stamp of element types and shapes, of constants in the order of the code."""
    return stamp_of([list(inputs), list(outputs), list(constants)])


def stamp_text(stamp: int) -> str:
    """Return the C++ that exports a stamp."""
    return (
        '\nextern "C" __attribute__((visibility("default"))) const uint64_t '
        f"{SYMBOL};\nconst uint64_t {SYMBOL} = UINT64_C({stamp});\n"
    )
