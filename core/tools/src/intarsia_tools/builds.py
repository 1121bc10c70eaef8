# SPDX-License-Identifier: Apache-2.0
"""What two builds have to say for a comparison: from artifacts, or from reports of ``explain``."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import cast

from msgspec import Struct, field

from intarsia_runtime.artifact.archive import read_passport
from intarsia_runtime.artifact.passport import Passport
from intarsia_runtime.errors import ModelError

_LARGEST_REPORT = 256 << 20


class Build(Struct, frozen=True):
    """One build.

    Attributes:
        target: The canonical target.
        model: What is known of the model, in words; weights are not: a backend packs them its way.
        versions: Of plugins and of what they use.
        plugins: Target kind to the distribution of its plugin, as far as known.
        placement: Node to the accelerator that computes it; without those of the fallback.
        verdicts: Node and accelerator to what it says; empty for an artifact.
        summary: The placement in one line.
    """

    target: str
    model: str
    versions: Mapping[str, str]
    plugins: Mapping[str, str]
    placement: Mapping[str, str]
    summary: str
    verdicts: Mapping[tuple[str, str], str] = field(default_factory=dict[tuple[str, str], str])

    @property
    def parts(self) -> dict[str, str]:
        """Each kind of the target with its options, in order."""
        return {part.split()[0]: part for part in self.target.split(", ") if part}


class Moved(Struct, frozen=True):
    """A node that something else computes now.

    Attributes:
        node: Its name.
        before: Accelerator in the first build; empty for the fallback.
        after: Accelerator in the second build; empty for the fallback.
        causes: What can have done it, in words.
    """

    node: str
    before: str
    after: str
    causes: tuple[str, ...]

    def to_json(self) -> dict[str, object]:
        """Return the row as the command line prints it."""
        return {
            "node": self.node,
            "before": self.before,
            "after": self.after,
            "causes": list(self.causes),
        }


def read_build(path: Path) -> Build:
    """Read an artifact's passport, or a report that ``explain --json`` printed.

    Raises:
        ArtifactError: The artifact is damaged.
        ModelError: It cannot be read, or is neither an artifact nor such a report.
    """
    try:
        with path.open("rb") as stream:
            data = stream.read(1)
            if data == b"{":
                data += stream.read(_LARGEST_REPORT)
    except OSError as cause:
        raise ModelError(f"cannot be read: {cause.strerror}", where=str(path)) from None
    if data[:1] != b"{":
        return _of_passport(read_passport(path))
    try:
        return _of_report(cast("Mapping[str, object]", json.loads(data)))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as cause:
        raise ModelError(
            f"not a report of a placement: {type(cause).__name__}: {cause}",
            where=str(path),
            hint="an artifact, or what intarsia explain MODEL --target T --json prints",
        ) from None


def moved_nodes(old: Build, new: Build) -> list[Moved]:
    """Nodes whose accelerator differs, in the order of the builds, each with its causes."""
    found: list[Moved] = []
    for node in dict.fromkeys([*old.placement, *new.placement]):
        before, after = old.placement.get(node, ""), new.placement.get(node, "")
        if before != after:
            found.append(Moved(node, before, after, _causes(old, new, node, before, after)))
    return found


def _causes(old: Build, new: Build, node: str, before: str, after: str) -> tuple[str, ...]:
    kinds = [kind for kind in (before, after) if kind]
    causes = [cause for kind in kinds for cause in _causes_of_kind(old, new, kind)]
    order = [[kind for kind in build.parts if kind in kinds] for build in (old, new)]
    if len(kinds) == 2 and sorted(order[0]) == sorted(order[1]) and order[0] != order[1]:
        causes.append("the order of the accelerators")
    if old.model != new.model:
        causes.append("the model")
    for kind in kinds:
        verdicts = [build.verdicts.get((node, kind), "") for build in (old, new)]
        if all(verdicts) and verdicts[0] != verdicts[1]:
            causes.append(f"'{kind}' said {verdicts[0]}, says {verdicts[1]}")
    return tuple(causes) or ("settings of the placement, e.g. --plan or --place",)


def _causes_of_kind(old: Build, new: Build, kind: str) -> Iterable[str]:
    was, now = old.parts.get(kind), new.parts.get(kind)
    if was is None or now is None:
        yield f"'{kind}' is {'new' if was is None else 'no longer'} in the target"
    elif was != now:
        yield f"options: {was} became {now}"
    plugin = old.plugins.get(kind) or new.plugins.get(kind, "")
    versions = old.versions.get(plugin), new.versions.get(plugin)
    if all(versions) and versions[0] != versions[1]:
        yield f"{plugin} {versions[0]} became {versions[1]}"


def _of_passport(passport: Passport) -> Build:
    regions = cast("list[Mapping[str, object]]", passport.placement.get("regions", []))
    units = {unit.name: unit.plugin.partition("==")[0] for unit in passport.units}
    values = passport.signature
    signature = [(s.name, s.shape or (), s.kind) for s in (*values.inputs, *values.outputs)]
    model = f"{passport.name}, {passport.placement.get('nodes')} nodes, {_words(signature)}"
    return Build(
        target=passport.target,
        model=model,
        versions={"intarsia": passport.intarsia, **passport.plugins, **passport.versions},
        plugins={str(row["accelerator"]): units.get(str(row["name"]), "") for row in regions},
        placement=_placement(regions),
        summary=str(passport.placement.get("summary", "")),
    )


def _words(signature: Iterable[tuple[str, tuple[int | str, ...], str]]) -> str:
    return ", ".join(
        f"{name}: {dtype} {'x'.join(map(str, shape)) or 'scalar'}"
        for name, shape, dtype in signature
    )


def _of_report(value: Mapping[str, object]) -> Build:
    rows = cast("list[Mapping[str, str]]", value["verdicts"])
    operators = {row["node"]: row["op"] for row in rows}
    digest = hashlib.sha256(json.dumps(operators).encode()).hexdigest()[:8]
    return Build(
        target=str(value["target"]),
        model=f"{value['nodes']} nodes ({digest})",
        versions=dict(cast("Mapping[str, str]", value["versions"])),
        plugins=dict(cast("Mapping[str, str]", value["plugins"])),
        placement=_placement(cast("list[Mapping[str, object]]", value["regions"])),
        summary=str(value["summary"]),
        verdicts={(row["node"], row["accelerator"]): _verdict(row) for row in rows},
    )


def _verdict(row: Mapping[str, str]) -> str:
    return "yes" if row["verdict"] == "yes" else f"{row['code']}: {row['detail']}"


def _placement(regions: Iterable[Mapping[str, object]]) -> dict[str, str]:
    return {
        node: str(row["accelerator"]) for row in regions for node in cast("list[str]", row["nodes"])
    }
