# SPDX-License-Identifier: Apache-2.0
"""Code for no process: what a backend is told, and how sources are written."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from intarsia.driver.artifact import Artifact
from intarsia.driver.build import build
from intarsia.driver.config import Executor, Runtime
from intarsia.plugin import CompiledUnit, Region, Role, Target, TargetKind, hookimpl
from intarsia_ir.graph.expr import Function, Var, call, constant
from intarsia_ir.graph.module import IRModule
from intarsia_ir.graph.types import TensorType
from intarsia_ir.ops.nn import Matmul
from intarsia_ir.tir.module import Lowered, TensorModule
from intarsia_ir.tir.space import Tuned
from intarsia_loops.lower import lower
from intarsia_runtime.artifact.plan import ALIGNMENT
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import PluginError, ResourceError, UsageError

from .toy import NoOptions, host_of


class Writer:
    """A backend that writes what it is given, for any runtime."""

    def __init__(self, *files: str) -> None:
        self.given: list[TensorModule] = []
        self.files = dict.fromkeys(files or ("src/a.c", "include/a.h", "notes.txt"), b"text")

    def generate(self, module: TensorModule, target: Target) -> CompiledUnit:
        self.given.append(module)
        return CompiledUnit(module.name, "sources", self.files)

    @hookimpl
    def register_target_kind(self) -> list[TargetKind]:
        return [TargetKind("toy", Role.BACKEND, NoOptions, runtimes=("cpp", "c"))]

    @hookimpl
    def lower(
        self,
        main: Function,
        regions: Sequence[Region],
        target: Target,
        alignment: int,
        tuned: Tuned | None,
        name: str,
    ) -> Lowered:
        return lower(main, regions, target=target, alignment=alignment, tuned=tuned, name=name)

    @hookimpl
    def tir_codegen(self, module: TensorModule, target: Target) -> CompiledUnit:
        return self.generate(module, target)


def model() -> IRModule:
    x = Var("x", TensorType((3, 5), DType.FLOAT32))
    first, second = (constant(np.full((5, 5), n, np.float32), name=f"w{n}") for n in range(2))
    hidden = call(Matmul, x, first, attrs=Matmul.Attrs())
    hidden = call(Matmul, hidden, second, attrs=Matmul.Attrs())
    return IRModule.from_function(
        Function((x,), call(Matmul, hidden, first, attrs=Matmul.Attrs()), ("y",))
    )


def sources(
    writer: Writer | None = None, runtime: str = "c", options: dict[str, object] | None = None
) -> Artifact:
    executor = Executor("aot", options or {})
    host = host_of(writer or Writer())
    return build(
        model(), "toy", executor=executor, runtime=Runtime(runtime), host=host, mod_name="net"
    )


def test_the_backend_is_told_how_the_code_is_used() -> None:
    writer = Writer()
    sources(
        writer, options={"unpacked-api": True, "interface-api": "c", "constant-byte-alignment": 4}
    )
    (module,) = writer.given
    told = module.context
    assert (told.model, told.freestanding) == ("net", True)
    assert told.executor["kind"] == "aot"
    assert told.executor["constant-byte-alignment"] == 4
    assert told.runtime == {"kind": "c", "system-lib": False, "link-params": False}
    assert set(told.constants) == set(module.plan.constants) == {"w0", "w1"}


def test_the_workspace_is_aligned_as_asked() -> None:
    sizes = {n: sources(options={"workspace-byte-alignment": n}).passport.plan for n in (4, 64)}
    assert (sizes[4].workspace_bytes, sizes[64].workspace_bytes) == (120, 128)
    hosted = sources(runtime="cpp", options={"workspace-byte-alignment": 4}).passport.plan
    assert hosted.workspace_bytes % ALIGNMENT == 0


def test_a_folder_is_complete_or_not_there(tmp_path: Path) -> None:
    artifact = sources()
    folder = artifact.save(f"{tmp_path}/out/")
    found = sorted(str(f.relative_to(folder)) for f in folder.rglob("*") if f.is_file())
    assert found == ["include/a.h", "metadata.json", "notes.txt", "src/a.c"]
    said = json.loads((folder / "metadata.json").read_text())
    assert said["version"] == 7
    net = said["modules"]["net"]
    assert net["memory"]["functions"]["main"][0]["inputs"]["x"]["size"] == 60
    assert net["memory"]["functions"]["main"][0]["constants_size_bytes"] == 200
    (folder / "old").write_text("of the last build")
    assert artifact.save(folder) == folder  # a model's folder is replaced, whatever its name
    assert not (folder / "old").exists()
    other = tmp_path / "other"
    other.mkdir()
    assert (artifact.save(other) / "metadata.json").exists()
    (other / "metadata.json").write_text("of somebody else")
    with pytest.raises(UsageError, match="is not the folder of a model"):
        artifact.save(other)
    assert [f.name for f in tmp_path.iterdir() if f.name.startswith(".")] == []


def test_a_tar_has_the_layout_of_the_library_format(tmp_path: Path) -> None:
    first, second = (sources().save(tmp_path / f"{n}.tar") for n in range(2))
    assert first.read_bytes() == second.read_bytes()
    with tarfile.open(first) as archive:
        names = archive.getnames()
        (graph,) = [n for n in names if n.endswith("net.txt")]
        text = archive.extractfile(graph)
        assert text is not None
        assert b"matmul" in text.read()
    assert sorted(names) == [
        "./codegen/host/include/a.h",
        "./codegen/host/src/a.c",
        "./metadata.json",
        "./notes.txt",
        "./src/net.txt",
    ]
    with pytest.raises(UsageError, match="is a folder"):
        sources().save(tmp_path, output_format="mlf")


def test_formats_are_checked(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no output format 'zip'"):
        sources().save(tmp_path / "x", output_format="zip")
    with pytest.raises(UsageError, match="'mlf' is for sources, and runtime 'cpp'"):
        sources(runtime="cpp").save(tmp_path / "x", output_format="mlf")
    assert sources().save(tmp_path / "x.tar", output_format="artifact").read_bytes()[:2] == b"PK"
    assert sources(runtime="cpp").save(tmp_path / "y.tar").read_bytes()[:2] == b"PK"


def test_what_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(PluginError, match=r"a unit with a file called 'src/\.\./\.\./a\.c'"):
        sources(Writer("src/../../a.c")).save(f"{tmp_path}/out/")
    (tmp_path / "file").write_text("")
    with pytest.raises((UsageError, ResourceError), match="cannot write"):
        sources().save(f"{tmp_path}/file/out/")
