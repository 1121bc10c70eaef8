# SPDX-License-Identifier: Apache-2.0
"""The shape of the code, as numbers that may only get better (``limits.toml``)."""

from __future__ import annotations

import ast
import inspect
import pydoc
import re
import subprocess
import sys
from dataclasses import is_dataclass
from pathlib import Path
from types import ModuleType

import grimp
import pytest

import intarsia
from intarsia import plugin
from intarsia.plugin import accelerator

from .source_tree import (
    ALL_SOURCES,
    CORE,
    CORE_SOURCES,
    HOST,
    LIMITS,
    ROOT,
    Source,
    sources,
)

LOOP_BACKENDS = ("llvm", "cuda", "opencl", "c")
ACCELERATORS = ("dnnl", "onednn", "acl", "arm_acl", "ethos", "ethosn", "tensorrt")
FLOORS = ("intarsia_ir", "intarsia_loops", "intarsia_runtime")
NODES = (
    "graph/expr",
    "graph/types",
    *(f"tir/{n}" for n in ("buffer", "expr", "func", "stmt", "tensor")),
)
UNWANTED_NAMES = re.compile(
    r"(^|_)(utils?|helpers?|common|misc|managers?|handlers?|engine|processor|data|info|base)($|_)|_v2$"
)
ALLOWED_NAMES = {"core/host/src/intarsia/host/manager.py", "core/ir/src/intarsia_ir/passes/base.py"}


def percentile(values: list[int], share: float) -> int:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


@pytest.mark.parametrize("source", ALL_SOURCES, ids=lambda source: source.name)
def test_files_and_functions_stay_small(source: Source) -> None:
    assert source.lines <= LIMITS["file_lines"]
    long = {
        f.name: f.end_lineno - f.lineno
        for f in source.functions()
        if f.end_lineno is not None and f.end_lineno - f.lineno >= LIMITS["function_lines"]
    }
    assert long == {}


def test_most_files_and_functions_are_smaller_still() -> None:
    functions = [
        f.end_lineno - f.lineno
        for source in ALL_SOURCES
        for f in source.functions()
        if f.end_lineno is not None
    ]
    assert percentile([s.lines for s in ALL_SOURCES], 0.9) <= LIMITS["file_lines_p90"]
    assert percentile(functions, 0.9) <= LIMITS["function_lines_p90"]


@pytest.mark.parametrize("source", ALL_SOURCES, ids=lambda source: source.name)
def test_every_file_starts_with_licence_docstring_and_annotations(source: Source) -> None:
    assert source.text.startswith("# SPDX-License-Identifier: Apache-2.0\n")
    if len(source.text.splitlines()) <= 1:
        return
    assert ast.get_docstring(source.tree), "the module says nothing of itself"
    if len(source.tree.body) > 1:
        assert "from __future__ import annotations" in source.text


@pytest.mark.parametrize("source", ALL_SOURCES, ids=lambda source: source.name)
def test_file_and_class_names_say_something(source: Source) -> None:
    assert source.name in ALLOWED_NAMES or not UNWANTED_NAMES.search(source.path.stem)
    classes = [n.name for n in ast.walk(source.tree) if isinstance(n, ast.ClassDef)]
    bad = [c for c in classes if re.search(r"(Visitor|Mutator|Helper|Utils?|Handler|Engine)$", c)]
    assert bad == []


@pytest.mark.parametrize("word", ACCELERATORS)
def test_core_names_no_accelerator(word: str) -> None:
    pattern = re.compile(rf"(?<![a-z]){re.escape(word)}(?![a-z])", re.IGNORECASE)
    assert [s.name for s in CORE_SOURCES if pattern.search(s.text)] == []


@pytest.mark.parametrize("word", LOOP_BACKENDS)
def test_core_quotes_no_backend(word: str) -> None:
    pattern = re.compile(rf"""(["']){re.escape(word)}\1|import {re.escape(word)}lite""")
    assert [s.name for s in CORE_SOURCES if pattern.search(s.text)] == []


@pytest.mark.parametrize("source", ALL_SOURCES, ids=lambda source: source.name)
def test_temporary_folders_are_known_when_their_process_was_killed(source: Source) -> None:
    """Made by :func:`intarsia_runtime.artifact.abandoned.temporary_folder`, or beside a result."""
    calls = [node for node in ast.walk(source.tree) if isinstance(node, ast.Call)]
    made = [
        call.lineno
        for call in calls
        if ast.unparse(call.func).rpartition(".")[2] in {"TemporaryDirectory", "mkdtemp"}
        and "dir" not in {keyword.arg for keyword in call.keywords}
    ]
    assert made == [] or source.name.endswith("/artifact/abandoned.py"), made


def test_layers_are_kept() -> None:
    run = subprocess.run(
        [sys.executable, "-c", "from importlinter.cli import lint_imports_command as f; f()"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr


def test_no_import_cycle_at_load_time() -> None:
    graph = grimp.build_graph(*(path.name for path in CORE), exclude_type_checking_imports=True)
    cyclic = [
        module
        for module in sorted(graph.modules)
        for imported in graph.find_modules_directly_imported_by(module)
        if graph.find_shortest_chain(imported, module)
    ]
    assert cyclic == []


def test_plugins_do_not_import_each_other() -> None:
    names = {p.parent.parent.name for p in (ROOT / "plugins").glob("*/src/*") if p.is_dir()}
    packages = {p.name for p in (ROOT / "plugins").glob("*/src/*") if p.is_dir()}
    assert names
    for source in ALL_SOURCES:
        if source in CORE_SOURCES:
            continue
        own = source.path.relative_to(ROOT / "plugins").parts[2]
        imported = set(re.findall(r"^\s*(?:from|import) (intarsia_\w+)", source.text, re.MULTILINE))
        assert imported <= {own, *FLOORS}, source.name
        assert own in packages


def public(node: ast.AST) -> bool:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return isinstance(node, kinds) and not node.name.startswith("_")


HOOK_NAMES = {"type_rule", "reference", "compute"}


@pytest.mark.parametrize("source", ALL_SOURCES, ids=lambda source: source.name)
def test_public_names_are_documented_and_say_more_than_the_name(source: Source) -> None:
    silent: list[str] = []
    for owner in ast.walk(source.tree):
        if not isinstance(owner, ast.Module | ast.ClassDef):
            continue
        if isinstance(owner, ast.ClassDef) and owner.name.startswith("_"):
            continue
        for node in owner.body:
            if not public(node) or node.name in HOOK_NAMES or node.name == "Attrs":  # type: ignore[attr-defined]
                continue
            text = ast.get_docstring(node) or ""  # type: ignore[arg-type]
            words = set(re.findall(r"[a-z]+", text.lower()))
            own = set(re.findall(r"[a-z]+", re.sub(r"([A-Z])", r" \1", node.name).lower()))  # type: ignore[attr-defined]
            if not words - own - {"the", "a", "of", "return", "returns"}:
                silent.append(node.name)  # type: ignore[attr-defined]
    assert silent == []


def test_escape_hatches_are_few() -> None:
    text = "\n".join(s.text for s in CORE_SOURCES)
    assert len(re.findall(r"\bAny\b(?!,|\s*$)", text)) <= LIMITS["any_annotations"]
    assert len(re.findall(r"(type|pyright): ignore", text)) <= LIMITS["ignores"]
    bare = [
        s.name
        for s in CORE_SOURCES
        if re.search(r"type: ignore(?!\[)|noqa(?!:)|pyright: ignore(?!\[)", s.text)
    ]
    assert bare == [], "every ignore names its rule"


def calls_of(tree: ast.AST, name: str) -> list[ast.Call]:
    return [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name
    ]


def test_types_are_matched_not_probed() -> None:
    outside = [
        s for s in CORE_SOURCES if s.path.stem not in ("walk",) and "text" not in s.path.parts
    ]
    probes = sum(len(calls_of(s.tree, "isinstance")) for s in outside)
    assert 100 * probes / sum(s.lines for s in outside) <= LIMITS["isinstance_per_100_lines"]
    literal = [
        f"{s.name}:{call.lineno}"
        for s in outside
        if "host" not in s.path.parts
        for name in ("getattr", "hasattr")
        for call in calls_of(s.tree, name)
        if len(call.args) > 1 and isinstance(call.args[1], ast.Constant)
    ]
    assert len(literal) <= LIMITS["literal_getattr"], literal


def mutated_globals(source: Source) -> list[str]:
    """Module-level lists, dicts and sets that a function changes."""
    made = {
        target.id
        for node in source.tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign)
        and isinstance(node.value, ast.List | ast.Dict | ast.Set | ast.Call)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name)
    }
    found: list[str] = []
    for function in source.functions():
        for node in ast.walk(function):
            if isinstance(node, ast.Global):
                found.extend(node.names)
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and isinstance(node.func.value, ast.Name)
                and node.func.value.id in made
                and node.func.attr
                in {"append", "add", "update", "setdefault", "pop", "extend", "clear"}
            ):
                found.append(node.func.value.id)
            stored = isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del)
            if stored and isinstance(node.value, ast.Name) and node.value.id in made:
                found.append(node.value.id)
    return found


@pytest.mark.parametrize("source", ALL_SOURCES, ids=lambda source: source.name)
def test_no_module_level_state_changes(source: Source) -> None:
    assert mutated_globals(source) == []


@pytest.mark.parametrize("source", ALL_SOURCES, ids=lambda source: source.name)
def test_nothing_is_left_undone_silently(source: Source) -> None:
    assert not re.search(r"\b(TODO|FIXME|XXX|HACK)\b", source.text)
    assert not re.search(r"\b(pickle|eval|exec|extractall|yaml\.load)\(|shell=True", source.text)


def test_only_the_reader_imports_onnx() -> None:
    importers = [
        s.name
        for s in CORE_SOURCES
        if re.search(r"^\s*(import onnx|from onnx)\b", s.text, re.MULTILINE)
    ]
    assert [Path(name).name for name in importers] in ([], ["reader.py"])


def test_only_the_importer_and_the_program_of_a_peer_import_torch() -> None:
    importers = [
        s.name
        for s in CORE_SOURCES
        if re.search(
            r"^\s*(import torch|from torch)\b|(import_module|_required)\(.torch.\)",
            s.text,
            re.MULTILINE,
        )
    ]
    names = [name.partition("/src/")[2] for name in importers]
    assert names == ["intarsia_tools/inductor.py", "intarsia_torch/onnx_export.py"]


def test_records_are_structs_and_what_others_see_are_dataclasses() -> None:
    """Records are ``msgspec.Struct``: made at import fifty times as fast, compared in C.

    Nodes of the IRs are not, because ``match`` asks twice as long for a class that has a metaclass;
    nor is what users and plugins see, which ``help()`` and ``dataclasses.replace()`` work for.
    """
    public = {
        f"{found.__module__.replace('.', '/')}.py"
        for module in (intarsia, plugin, accelerator)
        for found in (getattr(module, name) for name in module.__all__)
        if inspect.isclass(found) and is_dataclass(found)
    }
    nodes = {f"intarsia_ir/{name}.py" for name in NODES}
    rows = {f"intarsia_{name}/operators/row.py" for name in ("arm_acl", "dnnl")}  # the kit's Row
    options = re.compile(r"/(target|options|driver/request|dynamo)\.py$")
    found = {s.module for s in ALL_SOURCES if re.search(r"^ *@dataclass", s.text, re.MULTILINE)}
    assert {path for path in found - public - nodes - rows if not options.search(path)} == set()


@pytest.mark.parametrize("module", [intarsia, plugin], ids=lambda module: module.__name__)
def test_help_works_for_everything_public(module: ModuleType) -> None:
    for found in (getattr(module, name) for name in module.__all__):
        if inspect.isclass(found) or inspect.isfunction(found):
            assert pydoc.render_doc(found)


def test_the_host_is_minimal() -> None:
    lines = sum(source.lines for source in sources(HOST))
    assert lines <= LIMITS["host_lines"]


def test_the_runtime_is_small() -> None:
    """Its code has a limit of its own, or docstrings would pay for code."""
    runtime = sources(ROOT / "core/runtime/src/intarsia_runtime")
    assert sum(source.code_lines for source in runtime) <= LIMITS["runtime_code_lines"]
    assert sum(source.lines for source in runtime) <= LIMITS["runtime_lines"]
