# SPDX-License-Identifier: Apache-2.0
"""Saved programs of PyTorch as models, as far as torch has no part in it."""

from __future__ import annotations

import importlib.util
import zipfile
from hashlib import sha256
from pathlib import Path

import pytest

from intarsia.driver.importing import import_model, is_program, source_digests
from intarsia.driver.shapes import find_choices
from intarsia.driver.source import ModuleSource
from intarsia_ir.size_values import parse_size
from intarsia_runtime.errors import ModelError, UsageError


def test_a_program_is_known_by_its_name() -> None:
    assert [is_program(name) for name in ("net.pt2", Path("a/net.pt2"))] == [True, True]
    assert [is_program(name) for name in ("net.onnx", b"net.pt2")] == [False, False]


def test_its_digest_is_that_of_the_file_and_of_who_imports_it(tmp_path: Path) -> None:
    path = tmp_path / "net.pt2"
    path.write_bytes(b"\x08location")
    found = source_digests(path)
    assert set(found) == {""}
    assert found[""].split()[0] == sha256(b"\x08location").hexdigest()
    with pytest.raises(ModelError, match=r"cannot read '.*absent\.pt2'"):
        source_digests(tmp_path / "absent.pt2")


def test_it_is_built_for_one_shape() -> None:
    several = parse_size("1|4")
    assert several is not None
    with pytest.raises(UsageError, match=r"'net\.pt2' is built for one shape"):
        find_choices(ModuleSource("net.pt2"), {"x": (several, 3)})


@pytest.mark.skipif(importlib.util.find_spec("torch") is not None, reason="torch is installed")
def test_without_torch_the_message_says_what_to_install(tmp_path: Path) -> None:
    zipfile.ZipFile(tmp_path / "net.pt2", "w").close()
    with pytest.raises(UsageError, match="needs the packages 'torch'") as caught:
        import_model(tmp_path / "net.pt2")
    assert caught.value.hint == "pip install 'intarsia[torch]'"
