# SPDX-License-Identifier: Apache-2.0
"""What an operator is: one class with its attributes, type rule, reference and compute rule."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

from msgspec import NODEFAULT, Struct

from intarsia_runtime.guarded import LateOwner
from intarsia_runtime.size import Dim, value_of

from .types import TensorType

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from .types import Type


class OpKind(Enum):
    """How an operator reads its inputs; decides what may fuse with what (TVM's TOpPattern)."""

    ELEMWISE = (
        "elemwise"  # one output element from the same element of every input (broadcast allowed)
    )
    INJECTIVE = "injective"  # one output element from one element of each input: transpose, slice
    REDUCTION = "reduction"  # one output element from many: sum, max, softmax is OPAQUE
    ANCHOR = "anchor"  # heavy reduction that takes an element-wise epilogue: conv, matmul
    OPAQUE = "opaque"  # never fused


class OpAttrs(Struct, frozen=True, kw_only=True):
    """Base of every operator's attributes: frozen, and given by keyword.

    Values are ``bool, int, float, str, DType, TensorType`` or (nested) tuples of these, which print
    and parse.
    A :class:`~intarsia_runtime.size.Dim` may stand for an ``int`` that only the run knows.
    """


NO_ATTRS = OpAttrs()


def closed_attrs(attrs: OpAttrs, values: Mapping[str, int]) -> OpAttrs:
    """Return attributes with numbers in the place of sizes that only the run knows."""
    fields = attrs.__struct_fields__
    old = [object.__getattribute__(attrs, name) for name in fields]
    new = [_closed(value, values) for value in old]
    return attrs if new == old else type(attrs)(**dict(zip(fields, new, strict=True)))


def _closed(value: object, values: Mapping[str, int]) -> object:
    if isinstance(value, Dim):
        return value.evaluate(values)
    if isinstance(value, TensorType):
        return value.with_shape([value_of(size, values) for size in value.shape])
    if not isinstance(value, tuple):
        return value
    return tuple([_closed(item, values) for item in cast("tuple[object, ...]", value)])


def attr_defaults(attrs: type[OpAttrs]) -> dict[str, Any]:
    """Return each attribute's default by name, in order; ``msgspec.NODEFAULT`` if it has none."""
    names, defaults = attrs.__struct_fields__, attrs.__struct_defaults__
    without = len(names) - len(defaults)
    return dict(zip(names, (*[NODEFAULT] * without, *defaults), strict=True))


class Op:
    """Base of all operators; never instantiated.

    A subclass is decorated with :func:`operator` and gives ``Attrs``, ``type_rule``,
    ``reference`` and, unless it is only ever expressed by other operators, ``compute`` or
    ``loops``:

    * ``type_rule(attrs, *types) -> Type`` raises :class:`~intarsia_runtime.errors.TypeRuleError`.
    * ``reference(attrs, *arrays) -> ndarray | tuple[ndarray, ...]`` is the NumPy definition.
    * ``compute(attrs, *tensors) -> Tensor | tuple[Tensor, ...]`` is the tensor expression
      (``intarsia_ir.tir``).
    * ``loops(attrs, *types) -> PrimFunc`` is the kernel itself, instead of ``compute``, where an
      element depends on how others came out: a search, a running sum, writes at given places. It
      has a buffer for each operand and then for each result, of any shape with as many elements;
      such an operator is fused with no other.
    * ``products(attrs, result, *types) -> int`` counts the multiplications of an anchor whose types
      are static tensors; what it costs is judged by it.

    Facts that are one word are attributes: ``broadcasts``, ``commutative``, ``fixed_sizes``,
    ``defines_size``. What
    else is known of an operator (derivative, axis of a batch, form on integers, simplifications)
    is registered by its class, see :mod:`intarsia_ir.ops`.

    Attributes:
        broadcasts: Whether it works element by element on operands that broadcast by NumPy's rule.
        commutative: Whether two operands may change places.
        fixed_sizes: Which sizes of its operands its type rule takes as numbers only, and why;
            empty if every size may be symbolic.
        defines_size: Whether its attribute ``size`` is a size variable that a call of it defines.
    """

    name: ClassVar[str] = ""
    kind: ClassVar[OpKind] = OpKind.OPAQUE
    broadcasts: ClassVar[bool] = False
    commutative: ClassVar[bool] = False
    fixed_sizes: ClassVar[str] = ""
    defines_size: ClassVar[bool] = False
    Attrs: ClassVar[type[OpAttrs]] = OpAttrs
    type_rule: ClassVar[Callable[..., Type]]
    reference: ClassVar[Callable[..., Any]]
    # Not a ClassVar: pyright refuses a static method in place of an optional ClassVar.
    compute: Callable[..., Any] | None = None
    loops: Callable[..., Any] | None = None
    products: Callable[..., int] | None = None


_OWN = ("intarsia_ir.", "intarsia_loops.", "intarsia.")
_RULES = ("type_rule", "reference", "compute", "loops", "products")

OpClass = TypeVar("OpClass", bound=type[Op])


def operator(name: str, kind: OpKind = OpKind.OPAQUE) -> Callable[[OpClass], OpClass]:
    """Name an operator class and state how it reads its inputs."""

    def name_it(cls: OpClass) -> OpClass:
        cls.name = name
        cls.kind = kind
        if not is_own(cls.__module__):
            _guard_rules(cls)
        return cls

    return name_it


def is_own(module: str) -> bool:
    """Whether a module is Intarsia's, not that of another package."""
    return module.startswith(_OWN)


def _guard_rules(cls: type[Op]) -> None:
    """Guard the rules of another package's operator: see :mod:`intarsia_runtime.guarded`."""
    for rule in _RULES:
        found = vars(cls).get(rule)
        function = found.__func__ if isinstance(found, staticmethod) else found
        if callable(function):
            doing = f"{rule} of operator '{cls.name}'"
            setattr(cls, rule, staticmethod(LateOwner(function, cls.__module__, doing=doing)))


def collect_operators(modules: Sequence[object]) -> dict[str, type[Op]]:
    """Return every operator class defined in ``modules`` by its name."""
    found: dict[str, type[Op]] = {}
    for module in modules:
        for value in vars(module).values():
            if isinstance(value, type) and issubclass(value, Op) and value.name:
                found[value.name] = value
    return dict(sorted(found.items()))
