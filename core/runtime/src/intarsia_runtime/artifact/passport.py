# SPDX-License-Identifier: Apache-2.0
"""The passport of an artifact: what it computes, what it needs, and the digest of every member.

Plain JSON. Reading it imports neither a plugin nor NumPy.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType

from msgspec import Struct, field
from msgspec.structs import asdict

from ..errors import ArtifactError, UnsupportedError
from .fields import (
    JsonObject,
    check_characters,
    read_dict,
    read_int,
    read_list,
    read_mapping,
    read_sizes,
    read_str,
    read_text_table,
    read_texts,
)
from .plan import CallPlan, TensorSpec
from .plan_json import plan_from_json, plan_to_json, spec_from_json, spec_to_json
from .signature import ModelSignature, SizeChoice, choice_from_json, signature_from_json
from .unit import UNSTATED

SCHEMA = 2
"""Version of the passport's layout; a reader refuses any other."""

MAX_DEPTH = 2
"""How deep parts nest: one for each combination of sizes, and the pieces of a program in it."""

JsonMapping = Mapping[str, object]


class Member(Struct, frozen=True):
    """A file of the artifact.

    Attributes:
        bytes: Its size.
        sha256: Its digest in hexadecimal (see :mod:`intarsia_runtime.artifact.digest`).
    """

    bytes: int
    sha256: str


class UnitEntry(Struct, frozen=True):
    """A compiled unit of the artifact.

    Attributes:
        name: Name of the region, or ``main``.
        loader: Its loader: a name in the entry-point group ``intarsia.loaders``, or the built-in
            ``shared-library``.
        files: Names of its files, below ``units/<name>/``.
        constants: Names in ``params.safetensors`` of the weights that it reads at load time.
        inputs: Input tensors of its function.
        outputs: Output tensors of its function.
        plugin: Distribution that compiled it and its version, e.g. ``intarsia-x==1.0``.
        format: Version of the format of its files; a loader refuses versions it does not read.
    """

    name: str
    loader: str
    files: tuple[str, ...]
    constants: tuple[str, ...] = ()
    inputs: tuple[TensorSpec, ...] = ()
    outputs: tuple[TensorSpec, ...] = ()
    plugin: str = ""
    format: int = UNSTATED


class Passport(Struct, frozen=True, kw_only=True):
    """The description of an artifact.

    Attributes:
        name: Name of the model.
        intarsia: Version of Intarsia that compiled it.
        target: The canonical target, as text.
        os: Operating system of the code, as ``sys.platform`` names it.
        arch: Instruction set of the code: ``x86_64``, ``aarch64``...
        cpu_features: CPU features that the code may use, as the Linux kernel names them; for
            processors without a kernel, as the code generator does. Features that every processor
            of ``arch`` has, or that another named feature includes, are left out.
        executor: Kind and options of the executor.
        runtime: Kind and options of the runtime.
        plugins: Distribution to version, of every plugin that took part in the build.
        versions: Vendor component to version.
        plan: The call plan of one run.
        units: ``main`` first, then one for each region of the plan.
        placement: The offloaded nodes, for people and reports.
        tuned: Kernels whose schedule comes from tuning records; empty if there are none.
        members: Every file of the artifact except the passport itself.
        declared: Inputs and outputs, if they differ from those of the plan.
        sizes: The sizes of each part, if the parts are one model for several shapes.
        parts: Compiled models inside this one, which read its weights.
    """

    name: str
    intarsia: str
    target: str
    os: str
    arch: str
    plan: CallPlan
    units: tuple[UnitEntry, ...]
    cpu_features: tuple[str, ...] = ()
    executor: JsonMapping = field(default_factory=lambda: MappingProxyType({"kind": "aot"}))
    runtime: JsonMapping = field(default_factory=lambda: MappingProxyType({"kind": "cpp"}))
    plugins: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    versions: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    placement: JsonMapping = field(default_factory=lambda: MappingProxyType({}))
    tuned: JsonMapping = field(default_factory=lambda: MappingProxyType({}))
    members: Mapping[str, Member] = field(default_factory=lambda: MappingProxyType({}))
    declared: ModelSignature | None = None
    sizes: tuple[SizeChoice, ...] = ()
    parts: tuple[Part, ...] = ()

    @property
    def signature(self) -> ModelSignature:
        """Inputs and outputs of the model, in its order."""
        return ModelSignature.of_plan(self.plan) if self.declared is None else self.declared

    def unit(self, name: str) -> UnitEntry:
        """Return the unit called ``name``.

        Raises:
            ArtifactError: There is none.
        """
        for unit in self.units:
            if unit.name == name:
                return unit
        raise ArtifactError(f"the passport names no unit '{name}'")

    def to_json(self) -> JsonObject:
        """Return plain JSON values, keys in the order people read them."""
        return {
            "schema": SCHEMA,
            "name": self.name,
            "intarsia": self.intarsia,
            "target": self.target,
            "os": self.os,
            "arch": self.arch,
            "cpu_features": list(self.cpu_features),
            "executor": dict(self.executor),
            "runtime": dict(self.runtime),
            "plugins": dict(sorted(self.plugins.items())),
            "versions": dict(sorted(self.versions.items())),
            "placement": dict(self.placement),
            **({"tuned": dict(self.tuned)} if self.tuned else {}),
            "units": [_unit_to_json(unit) for unit in self.units],
            "plan": plan_to_json(self.plan),
            **({} if self.declared is None else {"signature": self.declared.to_json()}),
            **({"sizes": [size.to_json() for size in self.sizes]} if self.sizes else {}),
            **({"parts": [part.to_json() for part in self.parts]} if self.parts else {}),
            "members": {name: asdict(member) for name, member in sorted(self.members.items())},
        }


class Part(Struct, frozen=True, kw_only=True):
    """A compiled model inside an artifact; its files are those of units called ``<name>.<unit>``.

    Attributes:
        name: Unique in the artifact.
        passport: What it says of itself; its ``members`` are empty.
        weights: Names in the artifact of weights that have another one in the part.
        sizes: The sizes it was compiled for, one for each of the artifact's.
    """

    name: str
    passport: Passport
    weights: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    sizes: tuple[int, ...] = ()

    def to_json(self) -> JsonObject:
        """Return plain JSON values."""
        return {
            "name": self.name,
            "sizes": list(self.sizes),
            "weights": dict(self.weights),
            "passport": self.passport.to_json(),
        }


def print_passport(passport: Passport) -> bytes:
    """Return the content of ``passport.json``."""
    return (json.dumps(passport.to_json(), indent=1, ensure_ascii=True) + "\n").encode()


def parse_passport(data: bytes) -> Passport:
    """Read the content of ``passport.json``.

    Raises:
        ArtifactError: It is damaged or of another schema.
    """
    try:
        document = json.loads(data)
        check_characters(data, document)
    except (ValueError, RecursionError) as error:
        raise ArtifactError(f"passport.json is not JSON: {error}") from None
    return _checked(read_dict(document, "passport.json"), depth=0)


def _checked(document: JsonObject, depth: int) -> Passport:
    """Read a passport of this schema, ``depth`` levels inside another one."""
    schema = document.get("schema")
    if schema != SCHEMA:
        raise ArtifactError(
            f"the passport has schema {schema!r}, this version reads schema {SCHEMA}",
            hint="compile the model again with this version",
        )
    try:
        return _passport_from_json(document, depth)
    except UnsupportedError as error:
        raise ArtifactError(error.message) from None


def _passport_from_json(document: JsonObject, depth: int) -> Passport:
    parts = read_list(document, "parts") if "parts" in document else []
    if parts and depth == MAX_DEPTH:
        raise ArtifactError(f"the passport has parts of parts, more than {MAX_DEPTH} deep")
    sizes = read_list(document, "sizes") if "sizes" in document else []
    return Passport(
        name=read_str(document, "name"),
        intarsia=read_str(document, "intarsia"),
        target=read_str(document, "target"),
        os=read_str(document, "os"),
        arch=read_str(document, "arch"),
        cpu_features=read_texts(document, "cpu_features"),
        executor=MappingProxyType(read_mapping(document, "executor")),
        runtime=MappingProxyType(read_mapping(document, "runtime")),
        plugins=MappingProxyType(read_text_table(document, "plugins")),
        versions=MappingProxyType(read_text_table(document, "versions")),
        placement=MappingProxyType(read_mapping(document, "placement")),
        tuned=MappingProxyType(read_mapping(document, "tuned") if "tuned" in document else {}),
        plan=plan_from_json(read_mapping(document, "plan")),
        units=tuple(
            _unit_from_json(read_dict(unit, "a unit")) for unit in read_list(document, "units")
        ),
        members=MappingProxyType(
            {
                name: _member_from_json(read_dict(member, name))
                for name, member in read_mapping(document, "members").items()
            }
        ),
        declared=signature_from_json(read_mapping(document, "signature"))
        if "signature" in document
        else None,
        sizes=tuple(choice_from_json(size) for size in sizes),
        parts=tuple(_part_from_json(read_dict(part, "a part"), depth + 1) for part in parts),
    )


def _part_from_json(document: JsonObject, depth: int) -> Part:
    return Part(
        name=read_str(document, "name"),
        passport=_checked(read_mapping(document, "passport"), depth),
        weights=MappingProxyType(read_text_table(document, "weights")),
        sizes=read_sizes(document, "sizes"),
    )


def _member_from_json(document: JsonObject) -> Member:
    return Member(read_int(document, "bytes"), read_str(document, "sha256"))


def _unit_to_json(unit: UnitEntry) -> JsonObject:
    return {
        "name": unit.name,
        "loader": unit.loader,
        "plugin": unit.plugin,
        "format": unit.format,
        "files": list(unit.files),
        "constants": list(unit.constants),
        "inputs": [spec_to_json(spec) for spec in unit.inputs],
        "outputs": [spec_to_json(spec) for spec in unit.outputs],
    }


def _unit_from_json(document: JsonObject) -> UnitEntry:
    return UnitEntry(
        read_str(document, "name"),
        read_str(document, "loader"),
        read_texts(document, "files"),
        read_texts(document, "constants"),
        tuple(spec_from_json(spec) for spec in read_list(document, "inputs")),
        tuple(spec_from_json(spec) for spec in read_list(document, "outputs")),
        read_str(document, "plugin"),
        read_int(document, "format") if "format" in document else UNSTATED,
    )
