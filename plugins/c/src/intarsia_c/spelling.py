# SPDX-License-Identifier: Apache-2.0
"""C99's names of types and machine functions."""

from __future__ import annotations

from intarsia_loops.codegen.c_math import MATH, by_type, of_both_types
from intarsia_loops.codegen.spelling import MEMORY_TYPES, VALUE_TYPES, Spelling

_MORE = ("fmod", "lgamma", "nextafter", "remainder", "tgamma")

C99 = Spelling(
    kind="c",
    values=VALUE_TYPES,
    memory=MEMORY_TYPES,
    intrinsics=by_type(MATH),
    functions=of_both_types((*MATH.values(), *_MORE)),
)
"""What portable C calls things; nothing beyond ``<stdint.h>`` and ``<math.h>``."""
