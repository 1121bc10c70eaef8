# SPDX-License-Identifier: Apache-2.0
"""Settings of a module are part of its text, and are used by a build."""

from __future__ import annotations

import pytest

from intarsia.driver.config import Executor, Runtime
from intarsia.driver.text import read_module
from intarsia.target.target import CompositeTarget
from intarsia_ir.graph.text import print_module
from intarsia_runtime.errors import ParseError

from ..host.local_plugins import LOOPS, NPU, host_of

TEXT = """\
set CompositeTarget "npu -level=2, loops";
set Executor "aot -unpacked-api=true";
set Runtime "c -system-lib=true";

def @main(%x: Tensor[(2,), float32]) -> Tensor[(2,), float32] {
  %0 = nn.relu(%x);
  %0
}
"""


def test_settings_are_printed_and_read() -> None:
    host = host_of(LOOPS, NPU)
    module = read_module(TEXT, host=host)
    assert module.attr(Executor) == Executor("aot", {"unpacked-api": True})
    assert module.attr(Runtime) == Runtime("crt", {"system-lib": True})
    assert module.attr(CompositeTarget) == host.target("npu -level=2, loops")
    text = print_module(module)
    assert text == TEXT
    assert print_module(read_module(text, host=host)) == text


@pytest.mark.parametrize(
    "line, message",
    [
        ('set Executer "aot";', "line 1, column 5: there is no setting 'Executer'\n.*'Executor'"),
        ('set Zzz "aot";', "known: CompositeTarget, Executor, Runtime"),
        ('set Executor "aott";', "line 1, column 14: there is no executor 'aott'"),
        ('set CompositeTarget "zzz";', "no target kind or alias is called 'zzz'"),
        ('set Executor "aot";\nset Executor "graph";', "line 2, column 5: .* given twice"),
        ("set Executor aot;", "expected the setting as a string"),
        ('set "Executor" "aot";', "expected the name of a setting"),
        ('set Executor "aot"', "expected ';'"),
    ],
)
def test_wrong_settings_are_told_where(line: str, message: str) -> None:
    body = "\nfn(%x: Tensor[(2,), float32]) -> Tensor[(2,), float32] {\n  %x\n}\n"
    with pytest.raises(ParseError, match=message):
        read_module(line + body, host=host_of(LOOPS, NPU))
