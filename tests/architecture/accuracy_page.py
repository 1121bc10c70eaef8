# SPDX-License-Identifier: Apache-2.0
"""The measured accuracy of machine functions: ``docs/reference/intrinsics.md``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from .source_tree import ROOT

RESULTS = ROOT / "docs" / "reference" / "intrinsics.json"
HEAD = """# Machine functions and their accuracy

The {count} machine functions of the loop IR (`intarsia_ir.tir.intrinsic.Intrinsic`) on the backends
that compile loops, and the largest error found, in units of the last place: 0.5 is the exact value
rounded, 0 is for what rounds nothing. Exact values are mpmath's. Every function was called with
{points} operands of each element type, a part over all patterns of bits and the rest where people
use it, and with every special value (infinities, NaN, zeros of both signs, subnormal numbers), in
pairs if it takes two. A NaN, an infinity or the sign of a zero that is not as IEEE 754 and C99 want
it would stand here as *wrong*. NaN is quiet. A float32 `sigmoid` may be 0 where the exact value is
subnormal: so it is below -88.4 with `llvm` and `c`, as a subnormal result takes some 150 cycles.

`llvm` computes with polynomials of its own, in vectors, and `c` does so for `erf`, `exp`, `sigmoid`
and `tanh` of float32 and float16. Else `c` and `cuda -emulate` call the C library (here {libc} on
{machine}). A GPU has another library, whose accuracy its vendor states.

`python3 noxfile.py accuracy` measures (minutes) and writes this page; the tests hold every number
here with fewer operands.
"""


def render() -> str:
    """The whole page."""
    results: Mapping[str, Any] = json.loads(RESULTS.read_text(encoding="utf-8"))
    targets: Mapping[str, Mapping[str, Mapping[str, float]]] = results["targets"]
    columns = [(target, dtype) for target in targets for dtype in targets[target]]
    names = sorted({name for target, dtype in columns for name in targets[target][dtype]})
    lines = [
        HEAD.format(
            count=len(names), **{key: results[key] for key in ("points", "libc", "machine")}
        ),
        "| function |" + "".join(f" `{target}` {dtype} |" for target, dtype in columns),
        "|---|" + "---:|" * len(columns),
    ]
    for name in names:
        cells = (_cell(targets[target][dtype][name]) for target, dtype in columns)
        lines.append(f"| `{name}` | " + " | ".join(cells) + " |")
    return "\n".join([*lines, ""])


def _cell(units: float) -> str:
    return "*wrong*" if units < 0 else f"{units:.2f}" if units else "0"
