# SPDX-License-Identifier: Apache-2.0
"""All checks as one class, which a plugin's tests derive from."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar, cast

import pytest

from intarsia_runtime.errors import UsageError

from .checks.borders import BorderChecks
from .checks.contract import ContractChecks
from .checks.determinism import DeterminismChecks
from .checks.isolation import IsolationChecks
from .checks.numeric import NumericChecks
from .checks.open_sizes import OpenSizeChecks
from .checks.packaging import PackagingChecks
from .checks.partition import PartitionChecks
from .checks.units import UnitChecks
from .subject import Subject, open_subject


class Conformance(
    ContractChecks,
    PackagingChecks,
    IsolationChecks,
    NumericChecks,
    OpenSizeChecks,
    DeterminismChecks,
    PartitionChecks,
    BorderChecks,
    UnitChecks,
):
    """Derive from it, and say which plugin it is.

    Attributes:
        plugin: Name of the plugin, or of its distribution.
        target: Target to check it with; ``<kind>, <first installed backend>`` if empty.
        exempt: Name of a check without ``test_`` to the reason why it cannot apply. Exempt checks
            do not run and do not count as passed.
        compile_only: Why what it compiles cannot run on this machine, e.g. ``"no such device
            here"``. Every check then ends as exempt where it would run something.
        contexts: Options of the kind beside which options are tried that change nothing alone, e.g.
            the processor that has the instructions which they choose: ``("-mcpu=acme-9",)``.
        tolerances: Element type to the relative error that the hardware makes, e.g.
            ``{"float32": 1e-3}``; one rounding of the type by default.
    """

    plugin: ClassVar[str] = ""
    target: ClassVar[str] = ""
    exempt: ClassVar[Mapping[str, str]] = MappingProxyType({})
    compile_only: ClassVar[str] = ""
    contexts: ClassVar[tuple[str, ...]] = ()
    tolerances: ClassVar[Mapping[str, float]] = MappingProxyType({})

    @pytest.fixture
    def subject(self, request: pytest.FixtureRequest) -> Subject:
        """The plugin under test."""
        chosen = request.config.getoption("--intarsia-target") or self.target
        name = self.plugin or cast("str", request.config.getoption("--intarsia-plugin"))
        try:
            limit = cast("int", request.config.getoption("--intarsia-cases"))
            reason = request.config.getoption("--intarsia-compile-only") or self.compile_only
            given = cast("list[str]", request.config.getoption("--intarsia-context"))
            contexts = (*self.contexts, *given)
            return open_subject(name, chosen, self.tolerances, limit, reason, contexts)
        except UsageError as error:
            raise pytest.UsageError(str(error)) from None
