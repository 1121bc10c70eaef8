# SPDX-License-Identifier: Apache-2.0
"""Which options the kit sees an effect of: in heavy operators, and beside other options."""

from __future__ import annotations

import pytest

from intarsia.target.options import OptionRow, option_rows
from intarsia_ir.graph.walk import calls
from intarsia_runtime.errors import UsageError
from intarsia_testkit.blocks import choose_blocks, heavy_graph
from intarsia_testkit.subject import open_subject
from intarsia_testkit.verdicts import observe_options


def silent(
    plugin: str, flag: str, contexts: tuple[str, ...] = (), *, target: str = ""
) -> list[str]:
    subject = open_subject(plugin, target, contexts=contexts)
    options = subject.host().kind(plugin).options
    rows: list[OptionRow] = [row for row in option_rows(options) if row.flag == flag]
    assert len(rows) == 1
    return observe_options(subject, rows)


def test_a_frontend_is_not_checked() -> None:
    with pytest.raises(UsageError, match="the plugin 'onnx' has no target kind to check"):
        open_subject("onnx")


def test_a_graph_of_heavy_operators_has_one_call_of_each() -> None:
    names = [node.name for node in calls(heavy_graph(choose_blocks(None)).main)]
    assert {"nn.conv", "matmul"} <= set(names)
    assert len(names) == len(set(names))


def test_an_option_of_convolutions_takes_effect() -> None:
    assert silent("c", "winograd") == []


def test_an_option_of_open_sizes_takes_effect() -> None:
    assert silent("opencl", "wide-index") == []


def test_an_option_that_needs_another_is_tried_beside_it() -> None:
    """Only a processor with matrix registers multiplies in bfloat16."""
    assert silent("llvm", "fpmath-mode", ("-mcpu=sapphirerapids",)) == []
    assert silent("llvm", "fpmath-mode", ("-mcpu=haswell", "-mcpu=sapphirerapids")) == []


def test_an_option_that_the_context_sets_shows_nothing_by_it() -> None:
    """Winograd's method is never used for microcontrollers."""
    line = "-winograd changes nothing (tried false)"
    target = "c -mcpu=cortex-m4"
    assert silent("c", "winograd", target=target) == [line]
    assert silent("c", "winograd", ("-winograd=true",), target=target) == [line]
