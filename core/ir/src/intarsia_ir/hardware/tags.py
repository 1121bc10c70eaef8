# SPDX-License-Identifier: Apache-2.0
"""Hardware tags: names of devices, each of which implies a target.

A tag is ``vendor/device`` or ``vendor/device:part``: ``acme/board-1``, ``acme/soc-7:bigcpu``. Tags
are data that plugins contribute (:mod:`intarsia_ir.hardware.tag_file`). A tag names its parents: a
board its SoC, an SoC its cores; what a tag does not say itself it has from them. Other names of a
device are aliases; whatever name a user writes, one canonical name comes out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from intarsia_ir.capabilities import Memory
from intarsia_runtime.errors import DuplicateName, PluginError, TargetError, did_you_mean

KINDS = ("core", "cpu", "soc", "mcu", "board", "machine", "instance", "gpu", "accelerator")
"""What a tag may describe, small to large."""

MAIN_MEMORY = "dram"
"""Name of the level of memory that an operating system gives to programs."""

_SEPARATORS = re.compile(r"[\s_]+")
_BRACES = re.compile(r"\{([^{}]*)\}")


class HardwareTag(Struct, frozen=True):
    """One entry of a hardware file.

    Attributes:
        name: Canonical name, ``vendor/device[:part]``.
        kind: One of :data:`KINDS`.
        summary: One line: what people call the device.
        source: Where its facts are from: a data sheet, a vendor's page, a name in LLVM.
        aliases: Other names, as people and the device itself write them.
        parents: What it is built of, the part that runs the model first.
        target: Target string that it implies; empty means that of the first parent with one.
        keys: Words for dispatch, general to special, behind those of its parents.
        memory: Levels of memory that it has besides, or instead of, those of its parents.
        types: Names of its sizes, for cloud instances: ``m5.{2,4}xlarge`` stands for two.
        vcpus: Virtual processors of each size, in the order of the expanded ``types``.
        memory_mib: Main memory of each size in MiB, likewise.
        gpus: GPUs of each size, likewise.
        microarchitecture: Its name in archspec, if it has one there.
        host: Tag of the processor that drives it; its target stands behind this one's. Empty if
            the device computes by itself, or is a card that is plugged into any machine.
        cores: Processor cores, as its maker counts them: all of a SoC's, the shading units of a
            GPU; 0 means unknown.
        threads: Threads that its cores run at a time; 0 means unknown. The processor of a cloud
            instance gets them as ``-num-threads``.
        die: The manufacturer's name of the silicon: parts of one die have the same RAM.
        unverified: What of it was not checked against a document; empty if all was.
        notes: What else a user should know.
        owner: Distribution that contributes it.
        where: File and line, for messages.
    """

    name: str
    kind: str
    summary: str
    source: str
    aliases: tuple[str, ...] = ()
    parents: tuple[str, ...] = ()
    target: str = ""
    keys: tuple[str, ...] = ()
    memory: tuple[Memory, ...] = ()
    types: tuple[str, ...] = ()
    vcpus: tuple[int, ...] = ()
    memory_mib: tuple[int, ...] = ()
    gpus: tuple[int, ...] = ()
    microarchitecture: str = ""
    host: str = ""
    cores: int = 0
    threads: int = 0
    die: str = ""
    unverified: str = ""
    notes: str = ""
    owner: str = ""
    where: str = ""

    @property
    def vendor(self) -> str:
        """The part of the name in front of the slash."""
        return self.name.partition("/")[0]

    @property
    def device(self) -> str:
        """The part of the name behind the slash, with the part of the device if it has one."""
        return self.name.partition("/")[2]


class Hardware(Struct, frozen=True):
    """A tag with everything it has from its parents.

    Attributes:
        tag: The tag itself.
        type: Name under which measurements are kept. Boards around one SoC share the SoC's, so
            what was tuned on one of them serves the others.
        target: The target string it implies, that of its host included.
        keys: Words for dispatch, general to special.
        memory: Levels of memory, outermost first.
        microarchitecture: Name in archspec, of its host if it has one; empty if unknown.
        lineage: Canonical names: the tag, its parents, their parents.
        host: Tag of the processor that drives it; empty if it has none of its own.
        cores: Processor cores, as its maker counts them; 0 means unknown.
        threads: Threads that its cores run at a time; 0 means unknown.
        gpus: GPUs of its kind; 0 means none, or unknown.
    """

    tag: HardwareTag
    type: str
    target: str
    keys: tuple[str, ...]
    memory: tuple[Memory, ...]
    microarchitecture: str
    lineage: tuple[str, ...]
    host: str = ""
    cores: int = 0
    threads: int = 0
    gpus: int = 0

    @property
    def name(self) -> str:
        """The canonical name."""
        return self.tag.name


def name_key(name: str) -> str:
    """The form in which names compare: case, spaces and underscores make no difference."""
    return _SEPARATORS.sub("-", name.strip().casefold())


def expand(pattern: str) -> list[str]:
    """Return the names a pattern stands for: ``d{2,4}s`` gives ``d2s`` and ``d4s``."""
    match = _BRACES.search(pattern)
    if match is None:
        return [pattern]
    front, back = pattern[: match.start()], pattern[match.end() :]
    return [name for choice in match[1].split(",") for name in expand(front + choice + back)]


def tag_sizes(tag: HardwareTag) -> list[str]:
    """Return the names of a tag's sizes, in the order of its columns."""
    return [size for pattern in tag.types for size in expand(pattern)]


class HardwareTable:
    """All tags of a host, by all their names.

    Args:
        tags: From any number of files.
        problems: Why files could not be read; named when a name is not found.
    """

    def __init__(self, tags: Iterable[HardwareTag] = (), problems: Sequence[str] = ()) -> None:
        self.tags = tuple(sorted(tags, key=_by_name))
        self.problems = tuple(problems)
        self._names: dict[str, list[HardwareTag]] = {}
        self._implied: dict[str, dict[str, HardwareTag]] = {}
        for tag in self.tags:
            for name in dict.fromkeys(name_key(name) for name in (tag.name, *tag.aliases)):
                self._names.setdefault(name, []).append(tag)
            self._imply(tag)
        for tag in self.tags:
            for index, size in enumerate(tag_sizes(tag)):
                self._add_size(tag, size, index)

    def _imply(self, tag: HardwareTag) -> None:
        """``vendor-device`` and ``device`` name a tag too, unless another tag takes the name."""
        for name in (tag.name.replace("/", "-").replace(":", "-"), tag.device):
            self._implied.setdefault(name_key(name), {})[tag.name] = tag

    def _add_size(self, family: HardwareTag, size: str, index: int) -> None:
        name = f"{family.vendor}/{size.casefold()}"
        if name_key(name) in self._names:
            return  # an entry of its own says more
        sized = replace(
            family,
            name=name,
            summary=f"{family.summary}: {size}",
            aliases=(),
            parents=(family.name,),
            types=(),
            vcpus=(),
            memory_mib=(),
            gpus=family.gpus[index : index + 1],
            threads=family.vcpus[index] if family.vcpus else 0,
            host="",
            target="",
            keys=(),
            memory=tuple(
                Memory(MAIN_MEMORY, size=mib << 20) for mib in family.memory_mib[index : index + 1]
            ),
        )
        self._names.setdefault(name_key(name), []).append(sized)
        self._imply(sized)

    def find(self, name: str) -> HardwareTag | None:
        """Return the tag that a name means; ``None`` if it means none.

        A part may stand behind a slash too: ``device/part``. A short name of a device and of what
        is built of it means the device.

        Raises:
            DuplicateName: Two entries have the name, or a short name fits several tags.
        """
        key = name_key(name)
        if key not in self._names and key not in self._implied and "/" in key:
            key = ":".join(key.rsplit("/", 1))
        owners = self._names.get(key, [])
        if len(owners) > 1:
            raise _conflict(name, owners)
        if owners:
            return owners[0]
        candidates = sorted(_oldest(self._implied.get(key, {})))
        if len(candidates) > 1:
            raise DuplicateName(
                f"hardware '{name}' may be {' or '.join(candidates)}", hint="write one of them"
            )
        return self._implied[key][candidates[0]] if candidates else None

    def get(self, name: str) -> HardwareTag:
        """Return the tag that a name means.

        Raises:
            TargetError: There is none; the hint has the nearest names.
            DuplicateName: There are several.
        """
        tag = self.find(name)
        if tag is None:
            shown = name if len(name) <= 60 else name[:57] + "..."
            hint = self.suggest(name)
            if self.problems:
                hint = "; ".join([*([hint] if hint else []), *self.problems])
            raise TargetError(
                f"no hardware is called {shown!r}", hint=hint or "`hardware list` shows all"
            )
        return tag

    def suggest(self, name: str) -> str:
        """Return ``did you mean ...?`` for the nearest names, or nothing."""
        known = {name_key(word): word for tag in self.tags for word in (tag.name, *tag.aliases)}
        known |= {name_key(tag.device): tag.name for tag in self.tags}
        return did_you_mean(known.get(name_key(name), name_key(name)), known)

    def resolve(self, name: str) -> Hardware:
        """Return the tag that a name means, with what it has from its parents.

        Raises:
            TargetError: There is none, or it implies no target.
            DuplicateName: There are several.
            PluginError: Its parents are unknown or go round in a circle.
        """
        tag = self.get(name)
        line = self.lineage(tag)
        giver = next((number for number, one in enumerate(line) if one.target), None)
        if giver is None:
            raise PluginError(
                f"hardware '{tag.name}' implies no target, nor do its parents", where=tag.where
            )
        named = next((one for one in line[: giver + 1] if one.host), None)
        host = None if named is None else self._host(named)
        target = line[giver].target if host is None else f"{line[giver].target}, {host.target}"
        if tag.threads and tag.kind == "instance":
            target += f" -num-threads={tag.threads}"
        keys = [key for one in reversed(line) for key in one.keys]
        architectures = [one.microarchitecture for one in line]
        return Hardware(
            tag,
            self._type(tag),
            target,
            tuple(dict.fromkeys(keys)),
            merge_memory(*(one.memory for one in reversed(line))),
            next(filter(None, architectures), host.microarchitecture if host else ""),
            tuple(one.name for one in line),
            host.name if host else "",
            next((one.cores for one in line if one.cores), host.cores if host else 0),
            next((one.threads for one in line if one.threads), host.threads if host else 0),
            tag.gpus[0] if tag.gpus and not tag.types else 0,
        )

    def _host(self, tag: HardwareTag) -> Hardware:
        """What drives a device.

        Raises:
            PluginError: There is no such tag, or it is a device that needs a host itself.
        """
        host = self._parent(tag, tag.host)
        if any(one.host for one in self.lineage(host)):
            raise PluginError(
                f"hardware '{tag.name}' is driven by '{host.name}', which has a host itself",
                where=tag.where,
            )
        return self.resolve(host.name)

    def _type(self, tag: HardwareTag) -> str:
        if tag.kind in ("board", "machine") and len(tag.parents) == 1 and not tag.target:
            parent = self.find(tag.parents[0])
            if parent is not None and parent.kind in ("soc", "mcu"):
                return parent.name
        return tag.name

    def lineage(self, tag: HardwareTag) -> tuple[HardwareTag, ...]:
        """Return the tag, its parents and theirs, each once, the nearest and first-named first.

        Raises:
            PluginError: A parent is unknown, or an ancestor of itself.
        """
        found: dict[str, HardwareTag] = {}
        level: list[tuple[HardwareTag, tuple[str, ...]]] = [(tag, ())]
        while level:
            following: list[tuple[HardwareTag, tuple[str, ...]]] = []
            for one, path in level:
                if one.name in path:
                    loop = " -> ".join((*path[path.index(one.name) :], one.name))
                    raise PluginError(f"hardware goes round in a circle: {loop}", where=one.where)
                found.setdefault(one.name, one)
                for name in one.parents:
                    following.append((self._parent(one, name), (*path, one.name)))
            level = following
        return tuple(found.values())

    def _parent(self, tag: HardwareTag, name: str) -> HardwareTag:
        parent = self.find(name)
        if parent is None:
            raise PluginError(
                f"hardware '{tag.name}' is based on '{name}', which no installed plugin describes",
                hint=self.suggest(name),
                where=tag.where,
            )
        return parent

    def parts(self, tag: HardwareTag) -> list[HardwareTag]:
        """Return the parts of a device that have tags of their own."""
        return [one for one in self.tags if one.name.startswith(f"{tag.name}:")]

    def children(self, tag: HardwareTag) -> list[HardwareTag]:
        """Return the tags that name this one as a parent."""
        key = name_key(tag.name)
        return [one for one in self.tags if any(name_key(name) == key for name in one.parents)]


def merge_memory(*layers: Sequence[Memory]) -> tuple[Memory, ...]:
    """Return the levels of all layers; a level of a later layer replaces its namesake."""
    levels: dict[str, Memory] = {}
    for layer in layers:
        for level in layer:
            levels[level.name] = level
    return tuple(levels.values())


def check_circles(tags: Sequence[HardwareTag]) -> None:
    """Check that no tag is its own ancestor, looking at these tags only.

    Raises:
        PluginError: One is; the message names the circle.
    """
    by_name: Mapping[str, HardwareTag] = {tag.name: tag for tag in tags}
    state: dict[str, int] = {}  # 1: being walked, 2: done
    for start in by_name:
        stack = [(start, iter(by_name[start].parents))] if start not in state else []
        if stack:
            state[start] = 1
        while stack:
            name, parents = stack[-1]
            parent = next(parents, None)
            if parent is None:
                state[name] = 2
                stack.pop()
            elif parent in by_name and state.get(parent) == 1:
                path = [one for one, _ in stack]
                loop = " -> ".join((*path[path.index(parent) :], parent))
                raise PluginError(
                    f"hardware goes round in a circle: {loop}", where=by_name[name].where
                )
            elif parent in by_name and parent not in state:
                state[parent] = 1
                stack.append((parent, iter(by_name[parent].parents)))


def _oldest(tags: Mapping[str, HardwareTag]) -> list[str]:
    """The names of those that are not built of another of them."""
    names = {name_key(name) for name in tags}
    return [name for name, tag in tags.items() if not names & set(map(name_key, tag.parents))]


def _by_name(tag: HardwareTag) -> tuple[str, str]:
    return tag.name, tag.owner


def _conflict(name: str, owners: Sequence[HardwareTag]) -> DuplicateName:
    listed = " and ".join(f"'{tag.name}' of {tag.owner} ({tag.where})" for tag in owners)
    distributions = sorted({tag.owner for tag in owners})
    hint = (
        " or ".join(f"INTARSIA_DISABLE_PLUGINS={one}" for one in distributions) + " decides"
        if len(distributions) > 1
        else "one of the entries must give the name up"
    )
    return DuplicateName(f"hardware '{name}' is claimed by {listed}", hint=hint)
