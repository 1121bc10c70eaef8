# SPDX-License-Identifier: Apache-2.0
"""Whatever a caller may give as a target becomes one canonical composite."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from intarsia_runtime.errors import TargetError

from .compose import compose
from .kind_table import GIVEN, KindSource, Origin
from .parse import parse_target, parse_targets
from .target import CompositeTarget, Target

OneSpec: TypeAlias = "str | Mapping[str, object] | Target"
"""One target: a string, an object, or a target made before."""

TargetSpec: TypeAlias = "OneSpec | CompositeTarget | Sequence[OneSpec]"
"""A whole target; a list is accelerators in order, then the fallback, then the host."""


def read_spec(
    spec: TargetSpec,
    kinds: KindSource,
    target_host: OneSpec | None = None,
    origin: Origin | None = None,
) -> CompositeTarget:
    """Return the canonical composite.

    Args:
        spec: String, JSON text, name of a ``.json`` file, dict, a target made before, or a list
            of them.
        kinds: Where kinds come from.
        target_host: The host; must equal the one that ``spec`` names, if it names one.
        origin: Who gives the target, and what is set besides.

    Raises:
        TargetError: It is wrong; the message points at the place.
        PluginError: The plugin of one of its kinds cannot be used.
    """
    giver = origin or GIVEN
    host = None if target_host is None else read_host(target_host, kinds, giver)
    found = _read(spec, kinds, host, giver)
    names = [target.kind.name for target in found.targets]
    for kind, values in giver.overrides.items():
        if kind not in names:
            flag = next(iter(values))
            raise TargetError(
                f"-{flag} of '{kind}' is set on the {giver.setter}, but '{kind}' is not in the "
                f"target '{', '.join(names)}'",
                hint=f"leave --target-{kind}-{flag} out, or add '{kind}' to the target",
            )
    return found


def _read(
    spec: TargetSpec, kinds: KindSource, host: Target | None, origin: Origin
) -> CompositeTarget:
    match spec:
        case str():
            return parse_target(spec, kinds, host=host, origin=origin)
        case Target():
            return compose([spec], kinds, host, origin)
        case CompositeTarget():
            parts = [*spec.accelerators, spec.fallback]
            if spec.host != spec.fallback:
                parts.append(spec.host)
            return compose(parts, kinds, host, origin)
        case Mapping():
            from .structured import composite_from_json  # most targets are strings

            return composite_from_json(spec, kinds, host, origin)
        case list() | tuple():
            from .structured import targets_from_list

            return compose(targets_from_list(spec, kinds, origin), kinds, host, origin)
        case _:
            raise TargetError(
                f"a target is a string, a dict, a Target or a list, not {type(spec).__name__}"
            )


def read_host(spec: object, kinds: KindSource, origin: Origin) -> Target:
    """Return the host of a target, from what is accepted as ``target_host``.

    Raises:
        TargetError: It is wrong, or several targets.
    """
    match spec:
        case str() if not spec.lstrip().startswith("{"):
            found: list[Target] = parse_targets(spec, kinds, origin)
        case Target():
            found = [spec]
        case CompositeTarget():
            found = list(spec.targets)
        case _:
            from .structured import load_json, target_from_json

            value = load_json(spec) if isinstance(spec, str) else spec
            found = [target_from_json(value, kinds, origin, "target_host")]
    if len(found) != 1:
        raise TargetError(f"target_host is one backend, not {len(found)} targets")
    return found[0]
