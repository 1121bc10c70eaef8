# SPDX-License-Identifier: Apache-2.0
"""Typed columns of the table of target kinds, which plugins add and other plugins read.

::

    POWER = KindAttribute("acme.power", float, doc="watts at full load")

    @hookimpl
    def register_kind_attribute():  # the manifest declares it: [[kind-attribute]]
        return [POWER.of("npu", 2.5)]

    watts = POWER.get(target.kind, 0.0)  # in any plugin
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from intarsia_runtime.errors import PluginError

if TYPE_CHECKING:
    from .kind import TargetKind

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class KindAttribute(Generic[T]):
    """A typed column of the table of target kinds, to which plugins add values.

    Attributes:
        name: ``owner.what``. Columns of one name and type are one column.
        type: Class of its values.
        doc: One line.
    """

    name: str
    type: type[T]
    doc: str = ""

    def of(self, kind: str, value: T) -> KindAttributeValue:
        """Return the value of the column for the kind of that name."""
        return KindAttributeValue(self.name, self.type, kind, value)

    def get(self, kind: TargetKind, default: T | None = None) -> T | None:
        """Return the value for a kind, or ``default`` if no plugin gives one.

        The plugin that gives it is imported at the first use.

        Raises:
            PluginError: That plugin is broken, or gives a value of another type.
            DuplicateName: Two plugins give one.
        """
        if self.name not in kind.attributes:
            return default
        value = kind.attributes[self.name]
        if not isinstance(value, self.type):
            raise PluginError(
                f"attribute '{self.name}' of target kind '{kind.name}' is "
                f"{type(value).__name__}, not {self.type.__name__}",
                hint="the plugins that set and read it have different versions of the attribute",
            )
        return value


@dataclass(frozen=True, slots=True)
class KindAttributeValue:
    """The value of a column for one kind; made by :meth:`KindAttribute.of`.

    Attributes:
        name: Name of the column.
        type: Class of its values.
        kind: Name of the kind.
        value: The value.
    """

    name: str
    type: type
    kind: str
    value: object

    @property
    def is_typed(self) -> bool:
        """Whether the value is of the column's type."""
        return isinstance(self.value, self.type)
