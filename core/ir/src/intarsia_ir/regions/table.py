# SPDX-License-Identifier: Apache-2.0
"""An accelerator is a table: rows, and the limits that all of them share.

A row has a pattern, limits of its own, a predicate for what limits do not say, a lowering, and a
sentence for the documentation. The support table (``annotate``), every verdict, the Markdown table
of the documentation and the code generator's dispatch are derived from it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Generic, Never, Self, TypeAlias, TypeVar, cast

from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import PluginError
from intarsia_runtime.size import Dim, OpenSizeError, numbers

from ..graph.expr import Call, Constant
from ..graph.pattern import Match, Pattern, op
from ..graph.types import TensorType, TupleType
from .answers import region_matches
from .region import Region
from .support import Code, Predicate, Support, SupportRow, SupportTable, support_markdown

D = TypeVar("D", contravariant=True)
V = TypeVar("V", covariant=True)


def always(_match: object) -> Support:
    """Take every match whose tensors are within the limits."""
    return Support.yes()


def by_row_name(_draft: object, match: Match) -> Never:
    """Refuse to lower a match of a row that has no lowering.

    Raises:
        PluginError: Always: its accelerator carries out regions by the names of rows.
    """
    raise PluginError(f"the row that takes {match.root.name} has no lowering")


@dataclass(frozen=True, slots=True)
class Sentences:
    """Messages for tensors outside the limits, as templates of :meth:`str.format`.

    Attributes:
        dtype: The element type is not accepted; may use ``{type}``, ``{dtype}``, and ``{taken}``,
            the accepted element types.
        empty: A size is 0; this and the others may use ``{type}``, ``{shape}``, ``{rank}``.
        rank: The rank is not accepted.
        size: A size is not accepted.
    """

    dtype: str = "{dtype} is not among {taken}"
    empty: str = "{type} has no elements"
    rank: str = "rank {rank} is not taken"
    size: str = "sizes {shape} are not taken"


Symbolic: TypeAlias = bool | tuple[int, ...]
"""Which dimensions of a tensor may have sizes that only the run knows: all, none, or these axes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The tensors that an accelerator accepts, as operands and results of a match.

    Attributes:
        dtypes: Element types, for rows that name none.
        ranks: Numbers of dimensions.
        sizes: Sizes of a dimension; ``range(...)`` from 0 accepts tensors without elements.
        symbolic: Axes that may be symbolic dimensions, for rows that do not name them: all, none,
            or a list, counted from the end if negative.
        scalars: Whether tensors of rank 0 that are computed at run time are accepted.
        tuples: Whether results may be tuples; each field is checked.
        rule: A further check, after the tensors and before the constant operands.
        reasons: Reasons against single element types, if there is a special one.
        sentences: Templates of the verdicts.
    """

    dtypes: tuple[DType, ...] = tuple(DType)
    ranks: Collection[int] = range(65)
    sizes: range = range(1, 2**63 - 1)
    symbolic: Symbolic = False
    scalars: bool = True
    tuples: bool = False
    rule: Predicate = always
    reasons: Sequence[tuple[DType, str]] = ()
    sentences: Sentences = Sentences()

    def check(
        self,
        type_: TensorType,
        taken: tuple[DType, ...] | None,
        *,
        known: bool = False,
        symbolic: Symbolic | None = None,
    ) -> Support:
        """Say whether a tensor is within the limits.

        Args:
            type_: Of the tensor.
            taken: Element types that are taken here; ``None`` if others check them.
            known: Whether its elements are known at compile time.
            symbolic: Which dimensions may be symbolic here; as :attr:`symbolic` if ``None``.
        """
        words = self.sentences
        if taken is not None and type_.dtype not in taken:
            reason = dict(self.reasons).get(type_.dtype, words.dtype)
            names = ", ".join(dtype.value for dtype in taken)
            refusal = reason.format(type=type_, dtype=type_.dtype, taken=names)
            return Support.no(Code.UNSUPPORTED_DTYPE, refusal)
        verdict = _check_open(type_, self.symbolic if symbolic is None else symbolic)
        if not verdict:
            return verdict
        shape = numbers(type_.shape)
        if not type_.shape and not known and not self.scalars:
            return Support.no(Code.UNSUPPORTED_SHAPE, "scalars computed at run time are not taken")
        for sentence, is_beyond in (
            (words.empty, 0 in shape and 0 not in self.sizes),
            (words.rank, type_.rank not in self.ranks),
            (words.size, any(size not in self.sizes for size in shape)),
        ):
            if is_beyond:
                listed = ", ".join(map(str, type_.shape))
                refusal = sentence.format(type=type_, rank=type_.rank, shape=f"[{listed}]")
                return Support.no(Code.UNSUPPORTED_SHAPE, refusal)
        return Support.yes()


def _check_open(type_: TensorType, symbolic: Symbolic) -> Support:
    """Refuse a size that only the run knows on an axis where none may be."""
    if symbolic is True or type_.is_static:
        return Support.yes()
    axes = {axis % type_.rank for axis in symbolic or () if -type_.rank <= axis < type_.rank}
    for axis, size in enumerate(type_.shape):
        if isinstance(size, Dim) and axis not in axes:
            detail = f"axis {axis} of {type_} has the open size {size}, and needs a number"
            return Support.no_open_size(size, detail)
    return Support.yes()


@dataclass(frozen=True)
class Row(Generic[D, V]):
    """One pattern that an accelerator supports.

    A plugin adds its own fields in a subclass.

    Attributes:
        name: Unique in the table.
        pattern: The pattern.
        lower: ``lower(draft, match)`` writes a match into the plugin's draft of a region, and
            returns the value of its result there. Accelerators that execute regions by the names
            of rows (:func:`~intarsia_ir.regions.program.region_program`) leave it out.
        accepts: Predicate for conditions beyond the limits.
        dtypes: Element types of the first operand, and of the others; those of the table's limits
            if ``None``.
        others: Further element types that the other operands and the results may have.
        checks_dtypes: Whether the limits check element types. If not, ``accepts`` does, e.g. if
            scales and zero points have other types; ``dtypes`` documents the data.
        data: Arguments of the root that the limits check, with its result; empty for all inputs
            and calls of the match.
        constant: Arguments of the root that must be known at compile time.
        doc: A sentence for the documentation: the conditions of ``accepts``.
        never: The reason why it takes nothing; empty if it takes matches.
        symbolic: Axes of the data that may be symbolic dimensions: all, none, or a list, counted
            from the end if negative; those of the table's limits if ``None``. If ``accepts``
            compares such a size, the match is refused.
    """

    name: str
    pattern: Pattern
    lower: Callable[[D, Match], V] = by_row_name
    accepts: Predicate = always
    dtypes: tuple[DType, ...] | None = field(default=None, kw_only=True)
    others: tuple[DType, ...] = field(default=(), kw_only=True)
    checks_dtypes: bool = field(default=True, kw_only=True)
    data: tuple[int, ...] = field(default=(), kw_only=True)
    constant: tuple[int, ...] = field(default=(), kw_only=True)
    doc: str = field(default="", kw_only=True)
    never: str = field(default="", kw_only=True)
    symbolic: Symbolic | None = field(default=None, kw_only=True)

    @classmethod
    def refused(cls, name: str, reason: str, *, checks_dtypes: bool = False) -> Self:
        """Return the row of an operator that is never taken, so that the verdict says why.

        Args:
            name: Of the operator, and of the row.
            reason: In words.
            checks_dtypes: Whether the verdict speaks of element types first.
        """

        def accepts(_match: Match) -> Support:
            return Support.no(Code.UNSUPPORTED_OP, reason)

        def lower(_draft: object, match: Match) -> Never:
            raise PluginError(f"{match.root.name} is never taken: {reason}")

        return cls(name, op(name), lower, accepts, checks_dtypes=checks_dtypes, never=reason)

    def asks_for(self) -> str:
        """Return what the row asks for, in words for the documentation."""
        if self.never:
            return f"never: {self.never}"
        word = "argument" if len(self.constant) == 1 else "arguments"
        indices = ", ".join(str(index) for index in sorted(self.constant))
        constant = indices and f"{word} {indices} constant"
        return "; ".join(filter(None, (self.doc, constant, self._asks_for_sizes())))

    def _asks_for_sizes(self) -> str:
        if self.symbolic is None or self.symbolic is True:
            return ""
        if not self.symbolic:
            return "no open size"
        axes = ", ".join(map(str, self.symbolic))
        return f"open sizes on axes {axes} only"


RowT = TypeVar("RowT", bound="Row[Never, object]")
RowRule: TypeAlias = "Callable[[RowT, Match], Support]"
"""Says yes or no to a match, knowing the row: what an option or the device forbids."""


def operator_row(
    name: str,
    lower: Callable[[D, Call], V],
    *rules: Callable[[Call], Support],
    dtypes: tuple[DType, ...] | None = None,
    others: tuple[DType, ...] = (),
    checks_dtypes: bool = True,
    data: tuple[int, ...] = (),
    constant: tuple[int, ...] = (),
    doc: str = "",
) -> Row[D, V]:
    """Return the row of one operator, whose functions take the call instead of a match.

    Args:
        name: Of the operator, and of the row.
        lower: ``lower(draft, call)``.
        rules: Asked in order beyond the limits; the first no counts.
        dtypes: As the other arguments, see :class:`Row`.
    """

    def accepts(match: Match) -> Support:
        return next((no for no in (rule(match.root) for rule in rules) if not no), Support.yes())

    return Row(
        name,
        op(name),
        lambda draft, match: lower(draft, match.root),
        accepts if rules else always,
        dtypes=dtypes,
        others=others,
        checks_dtypes=checks_dtypes,
        data=data,
        constant=constant,
        doc=doc,
    )


@dataclass(frozen=True)
class AcceleratorTable(Generic[RowT]):
    """The patterns that an accelerator supports.

    Attributes:
        rows: In order of preference: larger patterns before their parts.
        limits: Limits of the tensors of all rows.

    Raises:
        PluginError: Two rows have one name.
    """

    rows: tuple[RowT, ...]
    limits: Limits = Limits()

    def __post_init__(self) -> None:
        names = [row.name for row in self.rows]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise PluginError(f"two rows of the table are called '{twice[0]}'")

    def check(self, row: RowT, match: Match) -> Support:
        """Return whether a row takes a match: limits, constant operands, then its predicate."""
        taken = self.limits.dtypes if row.dtypes is None else row.dtypes
        for number, (type_, known) in enumerate(self._tensors(row, match)):
            if type_ is None:
                return Support.no(Code.UNSUPPORTED_OP, "tuples are not taken")
            allowed = taken if number == 0 else (*taken, *row.others)
            verdict = self.limits.check(
                type_,
                allowed if row.checks_dtypes else None,
                known=known,
                symbolic=row.symbolic,
            )
            if not verdict:
                return verdict
        try:
            return self._check_rules(row, match)
        except OpenSizeError as error:
            detail = f"what it asks for depends on the open size {error.size}"
            return Support.no_open_size(error.size, detail)

    def _check_rules(self, row: RowT, match: Match) -> Support:
        verdict = self.limits.rule(match)
        if not verdict:
            return verdict
        for index in row.constant:
            if index < len(match.root.args) and not match.is_constant(index):
                return Support.no(
                    Code.UNSUPPORTED_ATTRIBUTE,
                    f"argument {index} of {match.root.name} must be known at compile time",
                )
        return row.accepts(match)

    def _tensors(self, row: RowT, match: Match) -> Iterator[tuple[TensorType | None, bool]]:
        """Return type and constness of what the limits are for; no type for a tuple."""
        operands, results = match.inputs, match.calls
        if row.data:
            args = match.root.args
            operands = tuple(args[index] for index in row.data if index < len(args))
            results = (match.root,)
        for expr in (*operands, *results):
            parts = (expr.type,)
            if self.limits.tuples and isinstance(expr.type, TupleType):
                parts = expr.type.fields
            for part in parts:
                yield part if isinstance(part, TensorType) else None, isinstance(expr, Constant)

    def support(
        self,
        *,
        first: RowRule[RowT] | None = None,
        last: RowRule[RowT] | None = None,
        only_forced: bool = False,
    ) -> SupportTable:
        """Return the answer to the hook ``annotate``.

        Args:
            first: Asked before the limits, e.g. what an option forbids.
            last: Asked of what the row takes, e.g. what the device cannot do.
            only_forced: Whether only nodes are taken that the user sends there.
        """

        def judge(row: RowT, match: Match) -> Support:
            forbidden = Support.yes() if first is None else first(row, match)
            if not forbidden:
                return forbidden
            verdict = self.check(row, match)
            if not verdict or last is None:
                return verdict
            answer = cast("object", last(row, match))
            if isinstance(answer, Support) and answer:
                return replace(verdict, caution=answer.caution)
            return cast("Support", answer)

        return SupportTable(
            tuple(self._support_row(row, partial(judge, row)) for row in self.rows),
            only_forced,
        )

    def matches(self, region: Region) -> Sequence[tuple[RowT, Match]]:
        """Return the matches that cover a region, with their rows, operands before users.

        Raises:
            PluginError: The region holds a call that no row takes.
        """
        return region_matches(region, self.rows)

    def markdown(self) -> str:
        """Return the table for the documentation: a line for each row."""
        return support_markdown(self.support().rows)

    def _support_row(self, row: RowT, predicate: Predicate) -> SupportRow:
        dtypes = self.limits.dtypes if row.dtypes is None else row.dtypes
        return SupportRow(
            row.name, row.pattern, predicate, row.asks_for(), () if row.never else dtypes
        )
