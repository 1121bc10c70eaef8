# SPDX-License-Identifier: Apache-2.0
"""Errors that carry what callers tell them apart by, also at another place."""

from __future__ import annotations

from copy import copy

import pytest

from intarsia_runtime.errors import ArtifactError, LinkRefused, TargetError
from intarsia_runtime.library import NativeLibrary


def test_a_target_error_keeps_its_option_at_another_place() -> None:
    error = TargetError("-x is 3", hint="-x=2", option="x")
    moved = error.at("target, column 7")
    assert (moved.message, moved.hint, moved.where, moved.option) == (
        "-x is 3", "-x=2", "target, column 7", "x",
    )  # fmt: skip
    assert error.where == ""
    assert copy(moved).option == "x"


def test_what_the_dynamic_linker_refuses_is_a_class_of_its_own() -> None:
    with pytest.raises(ArtifactError) as caught:
        NativeLibrary(b"no library", "main")
    assert not isinstance(caught.value, LinkRefused) or "refuses" in caught.value.message
    assert issubclass(LinkRefused, ArtifactError)
    assert LinkRefused.exit_code == 7
