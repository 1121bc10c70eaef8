# SPDX-License-Identifier: Apache-2.0
"""The rules of a composite: accelerators, then the fallback, then the host if it is another."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from intarsia_runtime.errors import TargetError

from .kind import Role
from .kind_table import GIVEN, KindSource, Origin
from .options import OptionRow, Value, option_rows, print_value
from .strings import complete
from .target import CompositeTarget, Target

CPU = 1
"""DLPack's device type of the CPU."""


def compose(
    targets: Sequence[Target],
    kinds: KindSource,
    host: Target | None = None,
    origin: Origin = GIVEN,
) -> CompositeTarget:
    """Return the composite of targets in the user's order.

    Args:
        targets: Accelerators, then a backend as fallback; behind a fallback for another device, a
            CPU backend may follow as host. Accelerators alone need ``host``, which is then the
            fallback too.
        kinds: Used for the default host and for hints.
        host: ``target_host``; must equal the host that ``targets`` name, if they name one.
        origin: Has what is set for the default host.

    Raises:
        TargetError: The targets break one of these rules.
    """
    accelerators = [t for t in targets if t.kind.role is Role.ACCELERATOR]
    backends = [t for t in targets if t.kind.role is Role.BACKEND]
    _check_order(targets, accelerators, backends)
    if host is not None:
        check_host(host)
    if not backends:
        if host is None:
            raise _alone(accelerators, kinds)
        return CompositeTarget(_following(accelerators, host), host, host)
    fallback, named = backends[0], (backends[1] if len(backends) > 1 else None)
    if fallback.kind.device_type == CPU:
        if named is not None:
            raise TargetError(
                f"'{fallback.kind.name}' and '{named.kind.name}' are both backends for the CPU",
                hint="name one of them, after the accelerators",
            )
        named = fallback
    if named is not None:
        check_host(named)
    if host is not None and named is not None and host != named:
        raise TargetError(
            f"target_host '{host}' is not the host of the target, '{named}'",
            hint="name one host",
        )
    driver = host or named or _default_host(fallback, kinds, origin)
    return CompositeTarget(_following(accelerators, fallback), fallback, driver)


def _following(accelerators: Sequence[Target], fallback: Target) -> tuple[Target, ...]:
    return tuple(follow_backend(accelerator, fallback) for accelerator in accelerators)


def _check_order(
    targets: Sequence[Target], accelerators: Sequence[Target], backends: Sequence[Target]
) -> None:
    names = [t.kind.name for t in accelerators]
    for name in names:
        if names.count(name) > 1:
            raise TargetError(f"accelerator '{name}' is given twice", hint="keep one of them")
    if list(targets) != [*accelerators, *backends]:
        order = ", ".join(t.kind.name for t in (*accelerators, *backends))
        raise TargetError(
            f"backend '{backends[0].kind.name}' compiles everything, so later targets get nothing",
            hint=f"accelerators first: '{order}'",
        )
    if len(backends) > 2:
        raise TargetError(
            f"{len(backends)} backends in one target", hint="one fallback, and at most one host"
        )


def check_host(host: Target) -> None:
    """Check that a target can drive the others.

    Raises:
        TargetError: It is an accelerator, or does not run on the CPU.
    """
    if host.kind.role is Role.ACCELERATOR or host.kind.device_type != CPU:
        what = (
            "an accelerator"
            if host.kind.role is Role.ACCELERATOR
            else "a backend for another device"
        )
        raise TargetError(
            f"'{host.kind.name}' is {what} and cannot be the host",
            hint="name a backend for the CPU",
        )


def _alone(accelerators: Sequence[Target], kinds: KindSource) -> TargetError:
    if not accelerators:
        return TargetError("the target is empty", hint="name a backend as the fallback")
    names = ", ".join(str(t) for t in accelerators)
    first = accelerators[0].kind.name
    examples = [
        text
        for text in kinds.alias_table().values()
        if "," in text and text.replace(",", " ").split()[0] == first
    ]
    backends = kinds.backends()
    example = f"'{names}, {backends[0]}'" if backends else "and install a backend"
    if len(accelerators) == 1 and str(accelerators[0]) == first and examples:
        example = f"'{examples[0]}'"
    many = len(accelerators) > 1
    return TargetError(
        f"'{names}' {'are accelerators' if many else 'is an accelerator'} "
        "and cannot compile a whole model",
        hint=f"add a backend behind {'them' if many else 'it'}: {example}",
    )


def _default_host(fallback: Target, kinds: KindSource, origin: Origin) -> Target:
    if not fallback.kind.host:
        raise TargetError(
            f"'{fallback.kind.name}' compiles for a device, and needs a host for it",
            hint=f"name it last: '{fallback}, HOST'",
        )
    by_default = origin.named(f"default host of {fallback.kind.name}")
    host = complete(kinds.kind(fallback.kind.host), {}, kinds, by_default)
    check_host(host)
    return host


def follow_backend(accelerator: Target, backend: Target) -> Target:
    """Return an accelerator with the backend's values of the options that its kind ``follows``.

    An option that the backend does not have is left as it is.

    Args:
        accelerator: A target; its kind names the options by their flags.
        backend: The backend behind it.

    Raises:
        TargetError: The user gives both another value, or the accelerator does not have it.
    """
    theirs, ours = _rows(backend), _rows(accelerator)
    for flag in accelerator.kind.follows:
        if flag not in theirs:
            continue
        row = ours[flag]
        value: Value = getattr(backend.options, theirs[flag].field)
        given: Value = getattr(accelerator.options, row.field)
        if given == value:
            continue
        text = f"'{backend.kind.name}' behind it is for -{flag}={print_value(value)}"
        if given != row.default:
            raise TargetError(
                f"'{accelerator.kind.name} -{flag}={print_value(given)}' is for another device:"
                f" {text}",
                hint=f"give -{flag} once, of '{backend.kind.name}'",
            )
        if row.choices and value not in row.choices:
            known = ", ".join(str(choice) for choice in row.choices if choice != row.default)
            raise TargetError(
                f"'{accelerator.kind.name}' does not compile for this device: {text}",
                hint=f"it compiles for {known}; leave it out for others",
            )
        options = dataclasses.replace(accelerator.options, **{row.field: value})
        origins = (*accelerator.origins, (flag, backend.kind.name))
        accelerator = dataclasses.replace(accelerator, options=options, origins=origins)
    return accelerator


def _rows(target: Target) -> Mapping[str, OptionRow]:
    return {row.flag: row for row in option_rows(target.kind.options)}
