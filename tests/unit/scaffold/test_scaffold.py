# SPDX-License-Identifier: Apache-2.0
"""`plugins new`: a whole package or nothing; names that cannot work are refused."""

from __future__ import annotations

import ast
import json
import tomllib
from enum import EnumType
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from intarsia.cli.main import main
from intarsia.host.manifest import parse_manifest
from intarsia_runtime.errors import ResourceError, UsageError
from intarsia_tools.scaffold.scaffold import ROLES, new_plugin, templates


def test_a_backend_is_complete_and_parses(tmp_path: Path) -> None:
    made = new_plugin("acme-cpu", "backend", tmp_path)
    files = {str(p.relative_to(made)): p.read_text() for p in made.rglob("*") if p.is_file()}
    manifest = parse_manifest(files["src/intarsia_acme_cpu/plugin.toml"])
    assert [(k.name, k.role.value) for k in manifest.kinds] == [("acme-cpu", "backend")]
    project = tomllib.loads(files["pyproject.toml"])["project"]
    assert set(project["entry-points"]) == {"intarsia.plugins"}
    for name, text in files.items():
        assert "@{" not in text, name
        if name.endswith(".py"):
            ast.parse(text)


@pytest.mark.parametrize("role", ROLES)
def test_what_a_template_imports_exists(role: str, tmp_path: Path) -> None:
    for path in new_plugin("acme", role, tmp_path).rglob("*.py"):
        tree = ast.parse(path.read_text())
        found: dict[str, object] = {}
        for node in ast.walk(tree):
            if not isinstance(node, ast.ImportFrom) or node.level or node.module is None:
                continue
            if not node.module.startswith(("intarsia.", "intarsia_")) or "acme" in node.module:
                continue
            module = import_module(node.module)
            for alias in node.names:
                assert hasattr(module, alias.name), f"{path.name}: {node.module}.{alias.name}"
                found[alias.asname or alias.name] = getattr(module, alias.name)
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                value = found.get(node.value.id)
                if isinstance(value, EnumType | ModuleType):
                    assert hasattr(value, node.attr), f"{path.name}: {node.value.id}.{node.attr}"


def test_the_templates_can_be_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plugins", "new", "--templates"]) == 0
    assert (Path(capsys.readouterr().out.strip()) / "copier.yml").is_file()


def test_a_package_is_complete_and_parses(tmp_path: Path) -> None:
    made = new_plugin("acme-npu", "accelerator", tmp_path / "a" / "b")
    assert made == tmp_path / "a" / "b" / "intarsia-acme-npu"
    files = {str(p.relative_to(made)): p for p in made.rglob("*") if p.is_file()}
    expected = ("pyproject.toml", "tox.toml", "README.md", ".github/workflows/test.yml")
    package = ("plugin.toml", "py.typed", "plugin.py", "support.py", "codegen.py", "loader.py")
    assert set(files) >= {*expected, *(f"src/intarsia_acme_npu/{name}" for name in package)}
    for name, path in files.items():
        text = path.read_text()
        if name.endswith(".py"):
            ast.parse(text)
        if name.endswith(".toml"):
            tomllib.loads(text)
    manifest = parse_manifest(files["src/intarsia_acme_npu/plugin.toml"].read_text())
    assert (manifest.name, manifest.hooks) == ("acme-npu", "intarsia_acme_npu.plugin")
    project = tomllib.loads(files["pyproject.toml"].read_text())["project"]
    assert project["entry-points"]["intarsia.loaders"] == {
        "acme-npu": "intarsia_acme_npu.loader:load"
    }
    assert "${{ matrix.python }}" in files[".github/workflows/test.yml"].read_text()
    assert [p.name for p in made.parent.iterdir()] == ["intarsia-acme-npu"]


@pytest.mark.parametrize(
    "name", ["", "Npu", "9pu", "a b", "../x", "npu-", "n" * 41, "intarsia-npu", "composite", "used"]
)
def test_bad_names_are_refused_and_nothing_is_written(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        new_plugin(name, "accelerator", tmp_path, taken={"used"})
    assert list(tmp_path.iterdir()) == []


def test_a_role_without_templates_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no template for the role 'frontend'"):
        new_plugin("npu", "frontend", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_what_both_roles_have_is_the_same_text() -> None:
    same = ("tox.toml", ".gitignore", ".github/workflows/test.yml", "tests/test_conformance.py")
    for name in same:
        texts = {(templates() / role / f"{name}.tmpl").read_text() for role in ROLES}
        assert len(texts) == 1, name


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("name", ["npu", "acme-npu_2"])
def test_copier_makes_the_same_package(name: str, role: str, tmp_path: Path) -> None:
    copier = pytest.importorskip("copier", reason="copier is not installed")
    made = new_plugin(name, role, tmp_path)
    copied = tmp_path / "copied"
    copier.run_copy(str(templates()), copied, data={"name": name, "role": role}, quiet=True)
    assert _contents(copied) == _contents(made)


def _contents(folder: Path) -> dict[str, str]:
    return {str(p.relative_to(folder)): p.read_text() for p in folder.rglob("*") if p.is_file()}


def test_an_existing_folder_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "intarsia-npu").mkdir()
    with pytest.raises(UsageError, match="exists"):
        new_plugin("npu", "accelerator", tmp_path)
    assert list((tmp_path / "intarsia-npu").iterdir()) == []


def test_a_place_that_cannot_be_written_to_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ResourceError, match="cannot write to"):
        new_plugin("npu", "accelerator", tmp_path / "file" / "below")


def test_a_failure_half_way_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Path, *args: object, **options: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(ResourceError, match="No space left"):
        new_plugin("npu", "accelerator", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_command_lists_what_it_wrote(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plugins", "new", "npu", "--dir", str(tmp_path), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["path"] == str(tmp_path / "intarsia-npu")
    assert "src/intarsia_npu/plugin.py" in said["files"]
    assert main(["plugins", "new", "npu", "--dir", str(tmp_path)]) == 2
    assert "exists" in capsys.readouterr().err


def test_checking_an_unknown_plugin_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plugins", "check", "nobody"]) == 2
    assert "no plugin is called 'nobody'" in capsys.readouterr().err
