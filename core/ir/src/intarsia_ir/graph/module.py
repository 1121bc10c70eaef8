# SPDX-License-Identifier: Apache-2.0
"""A module: named functions plus typed module-level settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import NoReturn, TypeVar, cast

from intarsia_runtime.errors import UsageError, VerifyError

from .expr import Function, GlobalVar

A = TypeVar("A")

_ATTR_NAMES = {"Executor": "Executor", "Runtime": "Runtime", "CompositeTarget": "Target"}
"""Class of a setting that users may name, and its name."""


@dataclass(frozen=True, slots=True)
class StoredAs:
    """A module-level setting: inputs and outputs that ``main`` has as bytes and others do not.

    Attributes:
        types: NumPy's name of the element type that their arrays have, by their names.
    """

    types: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class OnlyFor:
    """A module-level setting: inputs for some values of which alone ``main`` is right.

    Attributes:
        values: The elements that an input may have, in row-major order, by its name.
    """

    values: Mapping[str, tuple[tuple[int, ...], ...]]


@dataclass(frozen=True, slots=True, eq=False)
class IRModule:
    """Functions by name; ``main`` is the entry.

    Attributes:
        functions: Name to function; outlined regions are functions too.
        attrs: Module-level settings keyed by their class (``Executor``, ``Runtime``, ``Target``).
    """

    functions: Mapping[str, Function]
    attrs: Mapping[type, object] = field(default_factory=lambda: MappingProxyType({}))

    @classmethod
    def from_function(cls, main: Function) -> IRModule:
        """Wrap one function as ``main``."""
        return cls(MappingProxyType({"main": main}))

    @property
    def main(self) -> Function:
        """The entry function.

        Raises:
            VerifyError: The module has no ``main``.
        """
        if "main" not in self.functions:
            raise VerifyError("the module has no function 'main'")
        return self.functions["main"]

    def function(self, name: GlobalVar) -> Function:
        """Return a function by its global name.

        Raises:
            VerifyError: No such function.
        """
        if name.name not in self.functions:
            raise VerifyError(f"the module has no function '@{name.name}'")
        return self.functions[name.name]

    def with_functions(self, functions: Mapping[str, Function]) -> IRModule:
        """Return the module with other functions."""
        return replace(self, functions=MappingProxyType(dict(functions)))

    def with_main(self, main: Function) -> IRModule:
        """Return the module with another ``main``; the same object if nothing changed."""
        if self.functions.get("main") is main:
            return self
        return self.with_functions({**self.functions, "main": main})

    def with_attr(self, key: type[A] | str, value: A) -> IRModule:
        """Return the module with a module-level setting.

        Args:
            key: Its class, or the name of its class: ``Executor``, ``Runtime``, ``Target``.
            value: The setting.

        Raises:
            UsageError: The value is of a class of another name.
        """
        kind: type = type(value) if isinstance(key, str) else key
        if isinstance(key, str) and _ATTR_NAMES.get(kind.__name__) != key:
            raise UsageError(
                f"the setting {key!r} of a module cannot be a {kind.__name__}",
                hint=f"with_attr({key!r}, {key}(...))",
            )
        return replace(self, attrs=MappingProxyType({**self.attrs, kind: value}))

    def set_attr(self, key: type | str, value: object) -> NoReturn:
        """Refuse: a module does not change; :meth:`with_attr` returns one with the setting.

        Raises:
            UsageError: Always.
        """
        name = key if isinstance(key, str) else key.__name__
        raise UsageError(
            f"a module does not change, so it has no setting '{name}' set",
            hint=f"module = module.with_attr({name!r}, ...), or build(..., {name.lower()}=...)",
        )

    def attr(self, key: type[A] | str) -> A | None:
        """Return the module-level setting of class ``key``, or of that name, if set."""
        named = [kind for kind in self.attrs if _ATTR_NAMES.get(kind.__name__) == key]
        kind = named[0] if named else key
        return cast("A | None", None if isinstance(kind, str) else self.attrs.get(kind))
