# SPDX-License-Identifier: Apache-2.0
"""The sum of convolutions of one input is one convolution that computes the same."""

from __future__ import annotations

import re

import numpy as np
import pytest

from intarsia_ir.graph.module import IRModule
from intarsia_ir.graph.text import parse_module
from intarsia_ir.graph.walk import calls
from intarsia_ir.ops import OPERATORS
from intarsia_ir.ops.evaluate import evaluate
from intarsia_ir.passes.base import Remarks
from intarsia_ir.passes.merge_parallel_convs import MERGE_PARALLEL_CONVS
from intarsia_ir.passes.prepare import PREPARE

PAD_1 = "strides=(1, 1), padding=((1, 1), (1, 1)), dilation=(1, 1)"
POINT = "strides=(1, 1), padding=((0, 0), (0, 0)), dilation=(1, 1)"


def module(body: str, dtype: str = "float32") -> IRModule:
    """A function of ``%x: (1, 4, 7, 6)``; ``$(4, 1)`` is a constant of random numbers."""
    rng = np.random.default_rng(3)
    params: dict[str, np.ndarray] = {}

    def weight(match: re.Match[str]) -> str:
        shape = tuple(int(size) for size in match[1].split(",") if size.strip())
        name = f"w{len(params)}"
        params[name] = rng.standard_normal(shape).astype(dtype)
        return f'const "{name}": Tensor[{shape}, {dtype}]'

    text = re.sub(r"\$\(([^)]*)\)", weight, body)
    type_ = f"Tensor[(1, 4, 7, 6), {dtype}]"
    result = "Tensor[(1, 4, 4, 3), float32]" if "strides=(2" in body else type_
    return parse_module(
        f"def @main(%x: {type_}) -> {result} {{\n{text}\n}}\n", operators=OPERATORS, params=params
    )


def merged(body: str, dtype: str = "float32") -> list[str]:
    """Operators after the pass, which computes what the module computes."""
    before = module(body, dtype)
    after = MERGE_PARALLEL_CONVS.run(before, Remarks())
    x = np.random.default_rng(0).standard_normal((1, 4, 7, 6)).astype(dtype)
    (want,), (got,) = evaluate(before.main, {"x": x}), evaluate(after.main, {"x": x})
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    return [node.name for node in calls(after.main)]


@pytest.mark.parametrize(
    "first, second",
    [
        (f"$(4, 4, 3, 3), {PAD_1}", f"$(4, 4, 1, 1), {POINT}"),
        (f"$(4, 4, 3, 3), $(4), {PAD_1}", f"$(4, 4, 3, 3), {PAD_1}"),
        (f"$(4, 1, 3, 3), {PAD_1}, groups=4", f"$(4, 1, 1, 1), $(4), {POINT}, groups=4"),
        (f"$(4, 2, 3, 3), {PAD_1}, groups=2", f"$(4, 2, 1, 1), {POINT}, groups=2"),
        (
            "$(4, 4, 5, 5), strides=(2, 2), padding=((2, 2), (2, 2)), dilation=(1, 1)",
            "$(4, 4, 3, 3), strides=(2, 2), padding=((1, 1), (1, 1)), dilation=(1, 1)",
        ),
        (
            "$(4, 4, 5, 5), strides=(1, 1), padding=((2, 2), (2, 2)), dilation=(1, 1)",
            "$(4, 4, 3, 3), strides=(1, 1), padding=((2, 2), (2, 2)), dilation=(2, 2)",
        ),
        (
            "$(4, 4, 1, 3), strides=(1, 1), padding=((0, 0), (2, 0)), dilation=(1, 1)",
            "$(4, 4, 1, 2), strides=(1, 1), padding=((0, 0), (1, 0)), dilation=(1, 1)",
        ),
    ],
)
@pytest.mark.parametrize("operator", ["add", "subtract"])
def test_two_convolutions_are_one(first: str, second: str, operator: str) -> None:
    text = "%a = nn.conv(%x, {});\n%b = nn.conv(%x, {});\n%c = {}(%a, %b);\n%c"
    assert merged(text.format(first, second, operator)) == ["nn.conv"]
    assert merged(text.format(second, first, operator)) == ["nn.conv"]


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("operator", ["add", "subtract"])
@pytest.mark.parametrize(
    "branch, name",
    [
        ("", "%x"),
        ("%s = multiply(%x, $(1, 4, 1, 1));", "%s"),
        ("%p = multiply($(4, 1, 1), %x);\n%s = add(%p, $(4, 1, 1));", "%s"),
    ],
)
def test_the_input_scaled_and_shifted_is_a_tap(
    groups: int, operator: str, branch: str, name: str
) -> None:
    conv = f"%a = nn.conv(%x, $(4, {4 // groups}, 3, 3), $(4), {PAD_1}, groups={groups});"
    for operands in (f"%a, {name}", f"{name}, %a"):
        assert merged(f"{conv}\n{branch}\n%c = {operator}({operands});\n%c") == ["nn.conv"]


def test_a_block_of_many_branches_is_one_convolution() -> None:
    """The result is scaled again, as FastViT and RepViT do."""
    text = f"""
%s = multiply(%x, $(1, 4, 1, 1));
%a = nn.conv(%x, $(4, 1, 1, 1), {POINT}, groups=4);
%b = add(%a, %s);
%c = nn.conv(%x, $(4, 1, 3, 3), {PAD_1}, groups=4);
%d = add(%b, %c);
%e = subtract(%d, %s);
%f = multiply(%e, $(4, 1, 1));
%g = add(%f, $(4, 1, 1));
%h = add(%x, %g);
%h"""
    assert merged(text) == ["nn.conv"]
    assert [node.name for node in calls(PREPARE.run(module(text)).main)] == ["nn.conv"]


@pytest.mark.parametrize(
    "text",
    [
        # the first convolution has another use
        f"%a = nn.conv(%x, $(4, 4, 3, 3), {PAD_1});\n%b = nn.conv(%x, $(4, 4, 3, 3), {PAD_1});\n"
        "%c = add(%a, %b);\n%d = nn.relu(%a);\n%e = add(%c, %d);\n%e",
        # another input
        f"%r = nn.relu(%x);\n%a = nn.conv(%x, $(4, 4, 3, 3), {PAD_1});\n"
        f"%b = nn.conv(%r, $(4, 4, 3, 3), {PAD_1});\n%c = add(%a, %b);\n%c",
        # other groups
        f"%a = nn.conv(%x, $(4, 4, 3, 3), {PAD_1});\n"
        f"%b = nn.conv(%x, $(4, 1, 3, 3), {PAD_1}, groups=4);\n%c = add(%a, %b);\n%c",
        # taps of one between those of the other
        "%a = nn.conv(%x, $(4, 4, 3, 3), strides=(1, 1), padding=((2, 2), (2, 2)), "
        f"dilation=(2, 2));\n%b = nn.conv(%x, $(4, 4, 3, 3), {PAD_1});\n%c = add(%a, %b);\n%c",
        # no tap reads the element itself
        "%a = nn.conv(%x, $(4, 4, 2, 2), strides=(1, 1), padding=((1, 1), (1, 1)), "
        "dilation=(2, 2));\n%c = add(%a, %x);\n%c",
        # a factor along another axis
        f"%a = nn.conv(%x, $(4, 4, 3, 3), {PAD_1});\n%s = multiply(%x, $(7, 1));\n"
        "%c = add(%a, %s);\n%c",
    ],
)
def test_what_is_not_one_convolution_stays(text: str) -> None:
    assert merged(text) == [node.name for node in calls(module(text).main)]


def test_weights_of_sixteen_bits_stay() -> None:
    """``1 + w`` would be rounded to eight or eleven bits."""
    text = f"%a = nn.conv(%x, $(4, 4, 3, 3), {PAD_1});\n%c = add(%a, %x);\n%c"
    before = module(text, "float16")
    assert MERGE_PARALLEL_CONVS.run(before, Remarks()) is before


def test_a_sum_that_is_not_finite_stays() -> None:
    text = f"%a = nn.conv(%x, $(4, 4, 1, 1), {POINT});\n%b = nn.conv(%x, $(4, 4, 1, 1), {POINT});\n"
    before = module(text + "%c = add(%a, %b);\n%c")
    for node in calls(before.main):
        if node.name == "nn.conv":
            weight = node.args[1].data  # type: ignore[union-attr]
            weight.flags.writeable = True
            weight[:] = 3e38
    assert MERGE_PARALLEL_CONVS.run(before, Remarks()) is before


def test_the_user_is_told() -> None:
    remarks = Remarks()
    text = f"%a = nn.conv(%x, $(4, 4, 3, 3), {PAD_1});\n%c = add(%a, %x);  // sum (Add)\n%c"
    MERGE_PARALLEL_CONVS.run(module(text), remarks)
    (remark,) = remarks.found
    assert remark.message == "two branches are one convolution"
