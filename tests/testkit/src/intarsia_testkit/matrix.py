# SPDX-License-Identifier: Apache-2.0
"""The measured support table: which operators, element types and ranks a plugin takes.

``python -m intarsia_testkit.matrix NAME [README.md]`` prints it, or writes it between the two marks
of a file.
"""

from __future__ import annotations

import sys
from pathlib import Path

from intarsia_runtime.errors import UsageError

from .cases import cases_by_operator
from .subject import Subject, open_subject
from .verdicts import accepted

BEGIN = "<!-- support table: begin -->"
END = "<!-- support table: end -->"


def support_matrix(subject: Subject) -> str:
    """The table as Markdown: one line for each operator of which a case is accepted."""
    table = subject.table(subject.host())
    lines = ["| operator | element types | ranks |", "|---|---|---|"]
    for name, cases in cases_by_operator().items():
        taken = [c for fixed in (False, True) for c in accepted(table, cases, fixed=fixed)[0]]
        if not taken:
            continue
        results = [case.operands[0] for case in taken if case.operands]
        types = ", ".join(sorted({array.dtype.name for array in results}))
        ranks = ", ".join(str(rank) for rank in sorted({array.ndim for array in results}))
        lines.append(f"| {name} | {types} | {ranks} |")
    return "\n".join(lines)


Cell = tuple[str, str, int]
"""Operator, element type and rank of the first operand."""


def support_cells(subject: Subject) -> dict[Cell, str]:
    """What the plugin says to every operator, element type and rank that the kit has a case of.

    ``yes`` to all cases, ``some``, or the code of the first no.
    """
    table = subject.table(subject.host())
    answers_of: dict[Cell, list[str]] = {}
    for name, cases in cases_by_operator().items():
        some = [case for case in cases if case.operands]
        taken = {id(c) for fixed in (False, True) for c in accepted(table, some, fixed=fixed)[0]}
        for case in some:
            cell = (name, case.operands[0].dtype.name, case.operands[0].ndim)
            answer = "yes" if id(case) in taken else accepted(table, [case], fixed=True)[1]
            answers_of.setdefault(cell, []).append(answer.partition(":")[0])
    return {cell: _joined(answers) for cell, answers in answers_of.items()}


def _joined(answers: list[str]) -> str:
    if "yes" not in answers:
        return answers[0]
    return "yes" if set(answers) == {"yes"} else "some"


def with_table(text: str, table: str) -> str:
    """Return a text with the table between its marks.

    Raises:
        UsageError: The text has no marks.
    """
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise UsageError(f"no lines '{BEGIN}' and '{END}' in the file")
    return f"{head}{BEGIN}\n{table}\n{END}{tail}"


def stale_table(name: str, path: Path) -> bool:
    """Whether the table of a file is not what the plugin says now."""
    text = path.read_text(encoding="utf-8")
    return with_table(text, support_matrix(open_subject(name))) != text


def main(arguments: list[str]) -> None:
    """Print the table, or write it into a file."""
    if len(arguments) not in (1, 2):
        raise SystemExit("usage: python -m intarsia_testkit.matrix NAME [README.md]")
    made = support_matrix(open_subject(arguments[0]))
    if len(arguments) == 1:
        print(made)
        return
    path = Path(arguments[1])
    path.write_text(with_table(path.read_text(encoding="utf-8"), made), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
