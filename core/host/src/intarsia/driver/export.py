# SPDX-License-Identifier: Apache-2.0
"""Writes a model's sources as a folder to build, or as a tar in the model library format.

The tar has the layout that tools around microcontrollers read: ``metadata.json`` (version 7),
``codegen/host/src``, ``codegen/host/lib``, ``codegen/host/include``, ``parameters`` and ``src``.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

from msgspec import Struct

from intarsia_ir.writing.new_file import atomic_write, explain_failure
from intarsia_runtime.artifact.members import check_member_path
from intarsia_runtime.artifact.passport import Passport
from intarsia_runtime.artifact.plan import TensorSpec
from intarsia_runtime.artifact.size_bounds import SizeBounds, bounds_of, upper_bound
from intarsia_runtime.artifact.size_json import sizes_to_json
from intarsia_runtime.artifact.unit import CompiledUnit
from intarsia_runtime.errors import UsageError

METADATA = "metadata.json"
_VERSION = 7  # of the layout
_NO_DATE = "1980-01-01 00:00:00Z"  # the same content gives the same bytes
_PLACES = {name: f"codegen/host/{name}" for name in ("CMakeLists.txt", "include", "lib", "src")}


class ExportedSources(Struct, frozen=True):
    """What is exported.

    Attributes:
        passport: What is known of the model.
        unit: Its sources below ``src``, objects below ``lib``, headers below ``include``.
        constants_bytes: Size of the weights.
        graph: The model as text.
    """

    passport: Passport
    unit: CompiledUnit
    constants_bytes: int
    graph: str

    def files(self) -> Iterator[tuple[str, bytes]]:
        """Names and contents, sorted by name.

        Raises:
            PluginError: A name would leave the folder.
        """
        for name in self.unit.files:
            check_member_path(self.unit.name, name)
        files = dict(self.unit.files)
        files[METADATA] = (json.dumps(metadata(self), indent=1) + "\n").encode()
        yield from sorted(files.items())


def write_folder(path: Path, sources: ExportedSources) -> None:
    """Write the files into a folder that appears complete or not at all.

    Raises:
        UsageError: There is something that was not written by this function.
        ResourceError: The disk is full.
    """
    if path.exists() and not _is_ours(path):
        raise UsageError(
            f"'{path}' exists and is not the folder of a model",
            hint="name a new folder, or an empty one",
        )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name[:64]}.") as scratch:
            new, old = Path(scratch) / "new", Path(scratch) / "old"
            for name, content in sources.files():
                target = new / name
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(content)
            if path.exists():
                os.replace(path, old)
            os.replace(new, path)
            shutil.rmtree(old, ignore_errors=True)
    except OSError as error:
        raise explain_failure(path, error) from error


def write_library_format(path: Path, sources: ExportedSources) -> None:
    """Write the tar beside ``path`` and rename it; equal bytes for equal content.

    Raises:
        UsageError: The place cannot be written to.
        ResourceError: The disk is full.
    """
    graph = f"src/{sources.passport.name}.txt", sources.graph.encode()
    with (
        atomic_write(path) as file,
        tarfile.open(fileobj=file, mode="w", format=tarfile.USTAR_FORMAT) as archive,
    ):
        for name, content in (*sources.files(), graph):
            place = name if name == graph[0] else _library_name(name)
            entry = tarfile.TarInfo(f"./{place}")
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))


def metadata(sources: ExportedSources) -> Mapping[str, object]:
    """Return what ``metadata.json`` says."""
    passport = sources.passport
    plan, sizes = passport.plan, bounds_of(passport.plan)
    main = {
        "device": 1,
        "workspace_size_bytes": plan.workspace_bytes,
        "constants_size_bytes": sources.constants_bytes,
        "io_size_bytes": sum(_bytes(spec, sizes) for spec in (*plan.inputs, *plan.outputs)),
        "inputs": {spec.name: _tensor(spec, sizes) for spec in plan.inputs},
        "outputs": {spec.name: _tensor(spec, sizes) for spec in plan.outputs},
        **({"sizes": {name: [one.low, one.high] for name, one in sizes.items()}} if sizes else {}),
    }
    module = {
        "model_name": passport.name,
        "export_datetime": _NO_DATE,
        "memory": {"functions": {"main": [main], "operator_functions": []}},
        "target": [passport.target],
        "executors": [passport.executor.get("kind", "aot")],
        "executor": dict(passport.executor),
        "runtime": dict(passport.runtime),
        "style": "full-model",
        "external_dependencies": [],
    }
    return {
        "version": _VERSION,
        "intarsia": passport.intarsia,
        "modules": {passport.name: module},
    }


def _tensor(spec: TensorSpec, sizes: Mapping[str, SizeBounds]) -> Mapping[str, object]:
    shape = sizes_to_json(spec.shape)
    return {"size": _bytes(spec, sizes), "dtype": spec.dtype.value, "shape": shape}


def _bytes(spec: TensorSpec, sizes: Mapping[str, SizeBounds]) -> int:
    """Return the bytes of a tensor, of open sizes the most."""
    return upper_bound(spec.bytes, sizes) or 0


def _library_name(name: str) -> str:
    """Where a file of the folder lies in the library format."""
    top, *rest = PurePosixPath(name).parts
    return "/".join([_PLACES.get(top, top), *rest])


def _is_ours(path: Path) -> bool:
    """Whether a folder may be replaced: it is empty, or says that it is a model's."""
    try:
        if not any(path.iterdir()):
            return True
        return "intarsia" in json.loads((path / METADATA).read_bytes())
    except (OSError, ValueError):
        return False
