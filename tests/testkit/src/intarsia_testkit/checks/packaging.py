# SPDX-License-Identifier: Apache-2.0
"""Tier 1: what pip installs is complete, honest, and nothing more."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from functools import cache
from importlib import metadata
from pathlib import Path, PurePosixPath

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from intarsia.host.discovery import GROUP, HOOK_API, name_key
from intarsia_runtime.errors import IntarsiaError
from intarsia_runtime.loading import LOADER_GROUP, CodeLoader

from ..blocks import choose_blocks, sample_graph
from ..marks import check, decline, refuse
from ..running import compile_module, why
from ..subject import Subject, source_folder


class PackagingChecks:
    """Metadata, files of the wheel, entry points, range of the hook API."""

    @check(tier=1)
    def test_packaging_metadata_is_complete(self, subject: Subject) -> None:
        """Version, summary, license, Python and the host are declared."""
        distribution = subject.distribution()
        facts = distribution.metadata
        problems = [
            f"the metadata have no {field}"
            for field in ("Name", "Version", "Summary", "Requires-Python")
            if field not in facts or not facts[field]
        ]
        licences = [facts[field] for field in ("License-Expression", "License") if field in facts]
        if not any(licences):
            problems.append("the metadata have no licence")
        try:
            Version(distribution.version)
        except InvalidVersion:
            problems.append(f"'{distribution.version}' is not a version (PEP 440)")
        needs = {name_key(Requirement(text).name) for text in distribution.requires or ()}
        if "intarsia" not in needs:
            problems.append("the distribution does not depend on intarsia")
        refuse(problems)

    @check(tier=1)
    def test_packaging_api_range_fits(self, subject: Subject) -> None:
        """The range of hook APIs holds the host's, and ends before the next major version."""
        api = subject.found.manifest.api if subject.found.manifest else ""
        try:
            allowed = SpecifierSet(api)
        except InvalidSpecifier:
            refuse([f"'{api}' is not a range of versions"])
            return
        following = f"{int(HOOK_API.split('.')[0]) + 1}.0"
        problems = [] if allowed.contains(HOOK_API) else [f"'{api}' leaves out {HOOK_API}"]
        if allowed.contains(following):
            problems.append(f"'{api}' promises to work with hook API {following}")
        refuse(problems, hint=f'api = ">=1.0,<{following.split(".")[0]}"')

    @check(tier=1)
    def test_packaging_entry_points_lead_somewhere(self, subject: Subject) -> None:
        """The manifest and every loader that compiled units ask for come from this distribution."""
        distribution = subject.distribution()
        points = [(p.group, p.name) for p in distribution.entry_points]
        problems: list[str] = []
        if (GROUP, subject.name) not in points:
            problems.append(f"no entry point '{subject.name}' in the group {GROUP}")
        for name in _loaders(subject):
            if (LOADER_GROUP, name) not in points:
                problems.append(f"units ask for the loader '{name}', not in group {LOADER_GROUP}")
        for point in distribution.entry_points:
            if point.group == LOADER_GROUP:
                try:
                    loader = point.load()
                    if not callable(loader) and not isinstance(loader, CodeLoader):
                        problems.append(f"the loader '{point.name}' is not a function")
                except Exception as error:  # a plugin may raise anything at import
                    problems.append(f"the loader '{point.name}' cannot be imported: {why(error)}")
        refuse(problems)

    @check(tier=1)
    def test_packaging_wheel_holds_what_it_should(self, subject: Subject) -> None:
        """The wheel has the manifest and types, and nothing outside the plugin's packages."""
        names = _wheel_files(subject.found.distribution)
        if names is None:
            decline("its wheel cannot be built here, and pip left no list of its files")
        tops = {PurePosixPath(name).parts[0] for name in names}
        package = subject.package
        own = {t for t in tops if not t.endswith((".dist-info", ".data"))}
        problems = [
            f"the wheel installs '{top}' at the top level"
            for top in sorted(own)
            if top != package and not top.startswith(f"{package}_")
        ]
        for needed in (f"{package}/plugin.toml", f"{package}/py.typed"):
            if needed not in names:
                problems.append(f"the wheel lacks {needed}")
        stray = (".pyc", ".orig", ".rej", "~")
        problems += [f"the wheel holds {name}" for name in names if name.endswith(stray)]
        refuse(problems)

    @check(tier=1)
    def test_packaging_running_needs_no_compiler(self, subject: Subject) -> None:
        """Importing the loaders imports neither the compiler nor the plugin's compiling half."""
        modules = [p.module for p in subject.distribution().entry_points if p.group == LOADER_GROUP]
        if not modules:
            decline("it has no loader")
        barred = ("intarsia.host", "intarsia_ir.graph", "intarsia.plugin", subject.manifest.hooks)
        code = (
            f"import sys\nfor name in {modules!r}: __import__(name)\n"
            f"print(*(m for m in {barred!r} if m in sys.modules))"
        )
        run = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
        )
        refuse([run.stderr[-500:]] if run.returncode else [])
        refuse(f"importing its loader imports {name}" for name in run.stdout.split())


def _loaders(subject: Subject) -> Sequence[str]:
    """Loaders that the units of a sample ask for."""
    host = subject.host()
    try:
        blocks = choose_blocks(subject.table(host) if subject.is_accelerator else None)
        units = compile_module(subject, sample_graph(blocks), host=host).units
    except IntarsiaError as error:
        pytest.fail(f"a sample cannot be compiled: {why(error)}", pytrace=False)
    own = units[1:] if subject.is_accelerator else units[:1]
    return sorted({unit.loader for unit in own} - {"shared-library"})


@cache
def _wheel_files(distribution: str) -> frozenset[str] | None:
    """Names in the wheel: pip's record of an installed one, else of a wheel built from source."""
    found = metadata.distribution(distribution)
    source = source_folder(found)
    if source is None:
        return _recorded(found)
    with tempfile.TemporaryDirectory(prefix="intarsia-testkit-") as folder:
        command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation"]
        command += ["--disable-pip-version-check", "-w", folder, str(source)]
        run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
        wheels = sorted(Path(folder).glob("*.whl"))
        if run.returncode or not wheels:
            return None
        with zipfile.ZipFile(wheels[0]) as wheel:
            return frozenset(n for n in wheel.namelist() if not n.endswith("/"))


def _recorded(found: metadata.Distribution) -> frozenset[str] | None:
    names = [str(PurePosixPath(file)) for file in found.files or ()]
    inside = [n for n in names if not n.startswith("..") and "__pycache__" not in n]
    return frozenset(inside) or None
