# SPDX-License-Identifier: Apache-2.0
"""Options that belong to the executor or the runtime are refused on a target, with their place."""

from __future__ import annotations

import pytest

from intarsia.target.parse import parse_target
from intarsia.target.structured import composite_from_json
from intarsia_runtime.errors import TargetError

from .target_kinds import KINDS


@pytest.mark.parametrize(
    "option, use",
    [
        ("-executor=aot", r"--executor KIND, or build\(..., executor=Executor\(KIND\)\)"),
        ("-runtime=c", "--runtime KIND"),
        ("-system-lib", "--runtime-c-system-lib, or build.*runtime=Runtime"),
        ("--system-lib=1", "--runtime-c-system-lib"),
        ("-link-params=0", r"--runtime-c-link-params, or build.*\{'link-params': ...\}"),
        ("-unpacked-api", "--executor-aot-unpacked-api"),
        ("-interface-api=c", "--executor-aot-interface-api"),
        ("-interface_api=c", "--executor-aot-interface-api"),
        ("-workspace-byte-alignment=8", "--executor-aot-workspace-byte-alignment"),
    ],
)
def test_old_target_options_name_their_new_place(option: str, use: str) -> None:
    with pytest.raises(
        TargetError, match=rf"column 7: -.* is not an option of a target.*(\n.*)*{use}"
    ):
        parse_target(f"loops {option}", KINDS)
    name = option.lstrip("-").partition("=")[0]
    with pytest.raises(TargetError, match=f"is not an option of a target.*\n.*{use}"):
        composite_from_json({"kind": "loops", name: 1}, KINDS)


def test_an_option_of_that_name_that_a_kind_has_is_its_own() -> None:
    with pytest.raises(TargetError, match="target kind 'loops' has no option '-zzz'"):
        parse_target("loops -zzz=1", KINDS)
