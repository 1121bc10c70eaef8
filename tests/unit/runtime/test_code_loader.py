# SPDX-License-Identifier: Apache-2.0
"""Loaders that put code into the process: of the main unit, of a region."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from intarsia_runtime.artifact.archive import open_artifact
from intarsia_runtime.errors import ArtifactError, PluginError
from intarsia_runtime.load import instantiate, load

OPENS = """
from intarsia_runtime.library import NativeLibrary
from intarsia_runtime.loading import CodeLoader

def open_code(files, name):
    {body}

load = CodeLoader(open_code)
"""
LIBRARY = OPENS.format(body="return NativeLibrary(files['lib.so'], name)")
X = np.array([[1, -2, 3], [-4, 5, -6]], np.float32)


def test_a_region_may_be_code(
    artifact: Path, save: Callable[..., Path], toy_loader: Callable[..., None]
) -> None:
    want = load(artifact).run([X])
    toy_loader(LIBRARY)
    got = load(save("toy")).run([X])
    assert all(np.array_equal(got[name], want[name]) for name in want)


@pytest.mark.parametrize("executor", ["aot", "graph"])
def test_the_main_unit_may_be_code(
    artifact: Path, toy_loader: Callable[..., None], executor: str
) -> None:
    want = load(artifact).run([X])
    toy_loader(LIBRARY)
    opened = open_artifact(artifact)
    main = replace(opened.passport.units[0], loader="toy")
    passport = replace(opened.passport, units=(main, *opened.passport.units[1:]))
    with instantiate(replace(opened, passport=passport), executor=executor) as executable:
        got = executable.run([X])
    assert all(np.array_equal(got[name], want[name]) for name in want)


@pytest.mark.parametrize(
    ("body", "error", "said"),
    [
        ("raise ValueError('no room')", PluginError, r"'toy' .* fails on region 'double_0'.*no ro"),
        ("return 3", PluginError, "returned int, not a NativeCode"),
        (
            "from intarsia_runtime import errors; raise errors.ArtifactError('old')",
            ArtifactError,
            "old",
        ),
    ],
)
def test_what_opening_code_raises_names_loader_and_unit(
    save: Callable[..., Path],
    toy_loader: Callable[..., None],
    body: str,
    error: type[Exception],
    said: str,
) -> None:
    toy_loader(OPENS.format(body=body))
    with pytest.raises(error, match=said):
        load(save("toy"))
