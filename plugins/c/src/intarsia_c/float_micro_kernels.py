# SPDX-License-Identifier: Apache-2.0
"""The innermost loop of float32 tiles as C functions: MVE of Arm's M profile, plain C.

A function adds, along K, the products of some rows of data with rows of packed weights of four or
eight columns. Vectors of MVE: 2 x 2 sums + 2 of weights + 2 products = 8 of 8. A turn of 2 x 8
columns takes 13 instructions for 16 products: ``VMUL`` multiplies by a register of data, where GCC
12, which writes it to all lanes first, takes 18 to 20. Products are rounded before they are added,
as plain C does.
"""

from __future__ import annotations

from collections.abc import Sequence

from intarsia_ir.tir.buffer import Buffer
from intarsia_ir.tir.expr import PrimExpr
from intarsia_ir.tir.stmt import Stmt

from .tile_functions import NamedTile, TileFunctions

PRODUCTS = TileFunctions("ix_products_", "float *sums", "const float *w", "const float *a", "steps")
"""The functions of this module."""
_LANES = 4
_FARTHEST = 127
"""Elements that an access to a vector moves its pointer on by."""


def float_micro_kernel(
    sums: Buffer, left: Sequence[PrimExpr], right: PrimExpr, steps: PrimExpr | int
) -> Stmt:
    """Return the call that adds the products of a tile to ``sums[rows, columns]``.

    Args:
        sums: float32; written and read; at most four vectors, three of one row.
        left: The first element of each row; loads.
        right: The first column of the first row of weights; a load.
        steps: Elements of a row.
    """
    return PRODUCTS.call(sums, left, right, steps)


def print_float_micro_kernel(shape: NamedTile) -> str:
    """Return the text of a function of :data:`PRODUCTS`."""
    rows, columns, width = shape.rows, shape.columns, shape.width
    lines = [
        f"static inline void {PRODUCTS.declaration(shape)}",
        "{",
        "#if defined(__GNUC__) && defined(__ARM_FEATURE_MVE) && (__ARM_FEATURE_MVE & 2)",
        "    if (steps > 0) {",
        *_vectors(range(rows), columns // _LANES, width),
        "    }",
        "#else",
        "    for (; steps > 0; --steps) {",
        f"        IX_LANES for (intptr_t v = 0; v < {columns}; ++v) {{",
        *(f"            sums[{columns * r} + v] += *a{r} * w[v];" for r in range(rows)),
        "        }",
        *(f"        ++a{r};" for r in range(rows)),
        f"        w += {width};",
        "    }",
        "#endif",
        "}",
        "",
    ]
    return "\n".join(lines)


def _vectors(rows: range, vectors: int, width: int) -> list[str]:
    """Lines of the loop in vectors from ``q2`` on of sums.

    Weights are ``q0`` and ``q1``, products ``q6`` and ``q7``; three vectors of a row go one by one.
    """
    numbers = [(r, v) for r in rows for v in range(vectors)]
    sums = {place: f"q{2 + number}" for number, place in enumerate(numbers)}
    loads = [f"vldrw.u32 q{v}, [%[w], #{16 * v}]" for v in range(vectors)]
    step: list[str] = [] if vectors == 3 else loads
    for r in rows:
        step = [*step, f"ldr %[x], [%[a{r}]], #4"]
        if vectors == 3:
            for v in range(vectors):
                step += [f"vldrw.u32 q0, [%[w], #{16 * v}]", "vmul.f32 q6, q0, %[x]"]
                step += [f"vadd.f32 {sums[r, v]}, {sums[r, v]}, q6"]
        else:
            step += [f"vmul.f32 q{6 + v}, q{v}, %[x]" for v in range(vectors)]
            step += [f"vadd.f32 {sums[r, v]}, {sums[r, v]}, q{6 + v}" for v in range(vectors)]
    if width <= _FARTHEST and vectors < 3:  # the first load, done last, moves on
        step = [*step[1:vectors], f"vldrw.u32 q0, [%[w]], #{4 * width}", *step[vectors:]]
    else:
        step.append("add %[w], %[next]")
    apart = [16 * number for number in range(len(numbers))]
    code = [
        *(f"vldrw.u32 {q}, [%[sums], #{at}]" for q, at in zip(sums.values(), apart, strict=True)),
        "dls lr, %[steps]",
        "1:",
        *step,
        "le lr, 1b",
        *(f"vstrw.32 {q}, [%[sums], #{at}]" for q, at in zip(sums.values(), apart, strict=True)),
    ]
    moved = "".join(f', [a{r}] "+r"(a{r})' for r in rows)
    given = '[sums] "r"(sums), [steps] "r"(steps)'
    if "add %[w], %[next]" in step:
        given += f', [next] "r"({4 * width})'
    return [
        "        int32_t x;",
        "        __asm__ volatile(",
        *(f'            "{line}\\n\\t"' for line in code),
        f'            : [x] "=&r"(x), [w] "+r"(w){moved}',
        f"            : {given}",
        '            : "lr", "q0", "q1", "q2", "q3", "q4", "q5", "q6", "q7", "memory");',
    ]
