# SPDX-License-Identifier: Apache-2.0
"""What plugins import of Intarsia is what ``intarsia.plugin`` promises, and nothing else."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
import typing
from collections.abc import Iterator
from pathlib import Path

import pytest

import intarsia

from .source_tree import ROOT

ACCELERATORS = ("arm_acl", "dnnl", "ethos-n", "ethos-u", "tensorrt")
FACES = (
    "intarsia.plugin",
    "intarsia.plugin.accelerator",
    "intarsia.plugin.backend",
    "intarsia.plugin.frontend",
    "intarsia.plugin.loader",
    "intarsia.plugin.testing",
    "intarsia_runtime.plugin",
)
ALLOWED = {
    **dict.fromkeys(
        ("llvm", "c", "cuda", "opencl"), ("intarsia_ir", "intarsia_loops", "intarsia_runtime")
    ),
    "onnx": ("intarsia_ir", "intarsia_runtime"),
    "torch": ("intarsia_ir", "intarsia_onnx", "intarsia_runtime"),
}
"""Plugins that import other distributions of core besides the faces, and those."""

USER_FACE = "intarsia"
"""What a user imports: :mod:`intarsia_torch` builds with it, as a user does."""


def package(plugin: str) -> Path:
    """The folder of a plugin's modules."""
    (init,) = (ROOT / "plugins" / plugin / "src").glob("intarsia_*/__init__.py")
    return init.parent


def imports(plugin: str) -> Iterator[tuple[str, str, str]]:
    """File, module and name of all that a plugin imports of Intarsia by absolute names."""
    own = package(plugin).name
    for file in sorted(package(plugin).rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            match node:
                case ast.ImportFrom(module=str(module), level=0, names=names):
                    found = [(module, alias.name) for alias in names]
                case ast.Import(names=names):
                    found = [(alias.name, "") for alias in names]
                case _:
                    continue
            for module, name in found:
                if module.partition(".")[0].startswith("intarsia") and not module.startswith(own):
                    yield str(file.relative_to(ROOT)), module, name


@pytest.mark.parametrize("plugin", ACCELERATORS)
def test_accelerators_import_the_faces_only(plugin: str) -> None:
    outside = [row for row in imports(plugin) if row[1] not in FACES]
    assert outside == []


@pytest.mark.parametrize("face", [USER_FACE, *FACES])
def test_a_face_has_the_names_that_it_lists(face: str) -> None:
    module = importlib.import_module(face)
    assert sorted(module.__all__) == dir(module)
    for name in module.__all__:
        assert getattr(module, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'no_such_name'"):
        _ = module.no_such_name


@pytest.mark.parametrize("face", [USER_FACE, *(f for f in FACES if f != "intarsia.plugin.loader")])
def test_type_checkers_read_the_names_that_a_face_lists(face: str) -> None:
    module = importlib.import_module(face)
    tree = ast.parse(Path(typing.cast("str", module.__file__)).read_text(encoding="utf-8"))
    (block,) = (
        node
        for node in tree.body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    )
    typed = [alias.name for node in block.body if isinstance(node, ast.ImportFrom)
             for alias in node.names]  # fmt: skip
    assert sorted(typed) == sorted(module.__all__)


def test_every_plugin_is_checked() -> None:
    assert {*ACCELERATORS, *ALLOWED} == {path.parent.name for path in ROOT.glob("plugins/*/src")}


@pytest.mark.parametrize("plugin", ALLOWED)
def test_plugins_import_of_the_host_its_faces_only(plugin: str) -> None:
    outside = [
        row
        for row in imports(plugin)
        if row[1] not in FACES and row[1].partition(".")[0] not in ALLOWED[plugin]
    ]
    users = [row for row in outside if row[1] == USER_FACE]
    assert [row for row in outside if row not in users] == []
    assert users == [] or plugin == "torch"
    assert {name for _, _, name in users} - {""} <= set(dir(intarsia))


@pytest.mark.parametrize("plugin", ACCELERATORS)
def test_a_loader_imports_the_runtime_only(plugin: str) -> None:
    program = (
        f"import sys, {package(plugin).name}.loader\n"
        "print(*(m for m in sys.modules if m.startswith(('intarsia.', 'intarsia_ir',"
        " 'intarsia_loops', 'pluggy', 'click'))))"
    )
    command = [sys.executable, "-c", program]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert run.stdout.split() == []


def test_the_face_of_loaders_imports_no_compiler() -> None:
    program = (
        "import sys\nfrom intarsia.plugin.loader import LoadRequest\n"
        "print(*sorted(m for m in sys.modules if m.partition('.')[0] in"
        " ('intarsia', 'intarsia_ir', 'intarsia_loops', 'pluggy', 'numpy')))"
    )
    command = [sys.executable, "-c", program]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["intarsia", "intarsia.plugin", "intarsia.plugin.loader"]


def test_options_load_no_operator() -> None:
    program = (
        "import sys\nfrom intarsia.plugin.accelerator import option\n"
        "print(*(m in sys.modules for m in ('numpy', 'intarsia_ir.ops', 'intarsia_ir.graph')))"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert run.stdout.split() == ["False"] * 3
