# SPDX-License-Identifier: Apache-2.0
"""Tier 1: what the plugin says of itself is what its code does."""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from importlib import metadata

from packaging.requirements import Requirement

from intarsia.host import hookspecs
from intarsia.host.hookspecs import PROJECT
from intarsia.target.kind import Role
from intarsia.target.options import option_rows
from intarsia_ir.graph.match import inner_operators
from intarsia_ir.ops import OPERATORS
from intarsia_ir.regions.support import Code, Support
from intarsia_runtime.errors import IntarsiaError

from ..child import ChildFailed, ask
from ..marks import check, decline, refuse
from ..running import why
from ..subject import Subject
from ..verdicts import all_verdicts, observe_options

SECONDS_TO_ACTIVATE = 1.0
"""Most time that the first use of a kind may take, NumPy and the host already imported."""

OWN_CODES = frozenset(
    {
        Code.UNSUPPORTED_OP,
        Code.UNSUPPORTED_DTYPE,
        Code.UNSUPPORTED_SHAPE,
        Code.UNSUPPORTED_ATTRIBUTE,
        Code.UNSUPPORTED_LAYOUT,
        Code.SLOWER,
    }
)
"""Codes that a predicate may give; the others are the host's."""

REQUIRED = {Role.ACCELERATOR: ("register_target_kind", "annotate"),
            Role.BACKEND: ("register_target_kind",)}  # fmt: skip


class ContractChecks:
    """Manifest, hooks, cost of the first use, options, and the words of every no."""

    @check(tier=1)
    def test_contract_manifest_is_read(self, subject: Subject) -> None:
        """Discovery reads the manifest and finds nothing against the plugin."""
        found = subject.found
        if found.manifest is None or found.reason:
            refuse([f"{found.label} is {found.state.value}: {found.reason}"], hint=found.remedy)
        refuse(["the manifest declares no target kind"] if not subject.kinds else [])

    @check(tier=1)
    def test_contract_names_have_one_owner(self, subject: Subject) -> None:
        """No other installed distribution claims the plugin's name, kinds or aliases."""
        infos = [
            i for i in subject.host().plugins() if i.distribution == subject.found.distribution
        ]
        refuse(
            f"{info.name}: {info.reason}"
            for info in infos
            if info.name == subject.name and info.reason
        )

    @check(tier=1)
    def test_contract_code_keeps_the_manifest(self, subject: Subject) -> None:
        """Activating gives the declared kinds, with options that are documented."""
        host = subject.host()
        problems: list[str] = []
        for row in subject.kinds:
            try:
                kind = host.kind(row.name)
                option_rows(kind.options)
            except IntarsiaError as error:
                problems.append(f"kind '{row.name}': {why(error)}")
                continue
            if not kind.summary.strip():
                problems.append(f"kind '{row.name}' has no summary")
        refuse(problems)

    @check(tier=1)
    def test_contract_hooks_are_hooks(self, subject: Subject) -> None:
        """Hooks are marked with ``hookimpl``, ask for known arguments, and none is missing."""
        module = importlib.import_module(subject.manifest.hooks)
        marker = f"{PROJECT}_impl"
        specs = {n: f for n, f in vars(hookspecs).items() if inspect.isfunction(f)}
        problems: list[str] = []
        for name, function in vars(module).items():
            if not inspect.isfunction(function) or name.startswith("_"):
                continue
            marked = hasattr(function, marker)
            if marked and name not in specs:
                problems.append(f"'{name}' is marked as a hook, but there is no such hook")
            elif marked:
                known = set(inspect.signature(specs[name]).parameters)
                asked = set(inspect.signature(function).parameters)
                problems += [f"{name}() asks for '{n}', which it never gets" for n in asked - known]
            elif name in specs and function.__module__ == module.__name__:
                problems.append(f"{name}() is not marked with @hookimpl, so the host ignores it")
        roles = {kind.role for kind in subject.kinds}
        needed = {name for role in roles for name in REQUIRED[role]}
        loops = all(hasattr(vars(module).get(name), marker) for name in ("lower", "tir_codegen"))
        if Role.ACCELERATOR in roles and not loops:
            needed.add("relay_codegen")
        if Role.BACKEND in roles:
            needed |= {"lower", "tir_codegen"}
        problems += [
            f"the hook {n}() is missing" for n in sorted(needed)
            if not hasattr(vars(module).get(n), marker)
        ]  # fmt: skip
        refuse(problems)

    @check(tier=1)
    def test_contract_first_use_is_cheap(self, subject: Subject) -> None:
        """Activating is quick, and imports no SDK: only Python, the host's needs and itself."""
        allowed = allowed_modules(subject)
        try:
            runs = [ask("activation", subject.name, subject.chosen).facts]
            while runs[-1]["seconds"] > SECONDS_TO_ACTIVATE and len(runs) < 3:
                runs.append(ask("activation", subject.name, subject.chosen).facts)
        except ChildFailed as failure:
            refuse([f"activating it in a fresh process {failure}"])
            return
        tops = sorted({module.partition(".")[0] for module in runs[0]["modules"]})
        problems = [f"activating imports '{top}'" for top in tops if top not in allowed]
        problems += [f"activating loads {library}" for library in runs[0]["libraries"]]
        best = min(run["seconds"] for run in runs)
        if best > SECONDS_TO_ACTIVATE:
            problems.append(f"activating takes {best:.1f} s, at most {SECONDS_TO_ACTIVATE} s")
        refuse(problems, hint="import a vendor's SDK inside the function that needs it")

    @check(tier=1)
    def test_contract_every_no_has_its_reason(self, subject: Subject) -> None:
        """Predicates answer every case with a yes, or a code of theirs and words."""
        if not subject.is_accelerator:
            decline("a backend has no support table")
        problems: dict[str, None] = {}
        for verdict in all_verdicts(subject):
            problem = _problem(verdict.answer)
            if problem:
                problems[f"row '{verdict.row}' on {verdict.case}: {problem}"] = None
        refuse(problems)

    @check(tier=1)
    def test_contract_rows_name_operators(self, subject: Subject) -> None:
        """Patterns speak of operators that exist, and rows have names."""
        if not subject.is_accelerator:
            decline("a backend has no support table")
        rows = subject.table(subject.host()).rows
        problems = [
            f"row '{row.name}' names the operator '{name}', which does not exist"
            for row in rows
            for name in sorted(inner_operators(row.pattern))
            if name not in OPERATORS
        ]
        problems += ["a row has no name" for row in rows if not row.name.strip()]
        refuse(problems or ([] if rows else ["the support table is empty"]))

    @check(tier=1)
    def test_contract_options_take_effect(self, subject: Subject) -> None:
        """Every option changes something: a verdict, a unit, the regions kept, or it is refused."""
        host = subject.host()
        rows = option_rows(host.kind(subject.main_kind.name).options)
        if not rows:
            decline("the kind has no options")
        refuse(observe_options(subject, rows), hint="take the option out, or use it")


def _problem(answer: object) -> str:
    if isinstance(answer, Exception):
        return f"raised {why(answer)}"
    if not isinstance(answer, Support):
        return f"answered {answer!r:.80}, not a Support"
    if answer.code is Code.OK:
        return ""
    if answer.code not in OWN_CODES:
        return f"says '{answer.code.value}', which is the host's to say"
    if not re.search(r"[A-Za-z]{2}", answer.detail):
        return f"says '{answer.code.value}' and gives no reason"
    return ""


def allowed_modules(subject: Subject) -> frozenset[str]:
    """Top-level modules that activating may import."""
    distributions = {"intarsia", "numpy"}
    todo = list(distributions)
    while todo:
        try:
            needs = metadata.requires(todo.pop()) or ()
        except metadata.PackageNotFoundError:
            continue
        for need in map(Requirement, needs):
            applies = need.marker is None or need.marker.evaluate({"extra": ""})
            if applies and need.name not in distributions:
                distributions.add(need.name)
                todo.append(need.name)
    owners = metadata.packages_distributions()
    normal = {re.sub(r"[-_.]+", "-", name).lower() for name in distributions}
    free = {
        top for top, names in owners.items()
        if normal & {re.sub(r"[-_.]+", "-", name).lower() for name in names}
    }  # fmt: skip
    own = {"intarsia", "intarsia_ir", "intarsia_loops", "intarsia_runtime"}
    return frozenset({*sys.stdlib_module_names, *free, *own, subject.package})
