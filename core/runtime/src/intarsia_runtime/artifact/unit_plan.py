# SPDX-License-Identifier: Apache-2.0
"""The call plan of a region that was compiled from loop IR, as a file of its unit."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import cast

from ..errors import ArtifactError, UnsupportedError
from .plan import ArgumentSource, CallPlan, TensorSpec
from .plan_json import plan_from_json, plan_to_json
from .plan_walk import all_arguments


def print_unit_plan(plan: CallPlan) -> bytes:
    """Return the content of a unit's file ``plan.json``."""
    return json.dumps(plan_to_json(plan), separators=(",", ":")).encode()


def read_unit_plan(
    data: bytes,
    *,
    name: str,
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    constants: Mapping[str, int],
) -> CallPlan:
    """Read a unit's plan, and check it against what the unit is called with.

    Args:
        data: Content of the file.
        name: Name of the unit.
        inputs: Tensors that the region is called with.
        outputs: Tensors that it fills.
        constants: Weights of the unit by name, with their bytes.

    Raises:
        ArtifactError: It is damaged, or refers to something that is not there.
    """
    where = f"the plan of region '{name}'"
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as cause:
        raise ArtifactError(f"{where} is no JSON: {type(cause).__name__}") from None
    if not isinstance(document, dict):
        raise ArtifactError(f"{where} is no JSON object")
    try:
        plan = plan_from_json(cast("dict[str, object]", document))
    except (ArtifactError, UnsupportedError) as error:
        raise ArtifactError(f"{where}: {error.message}") from None
    if plan.regions:
        raise ArtifactError(f"{where} calls other regions")
    for what, mine, given in (("inputs", plan.inputs, inputs), ("outputs", plan.outputs, outputs)):
        if [(s.shape, s.dtype) for s in mine] != [(s.shape, s.dtype) for s in given]:
            raise ArtifactError(f"{where} has other {what} than the region")
    absent = [constant for constant in plan.constants if constant not in constants]
    if absent:
        raise ArtifactError(f"{where} reads a weight '{absent[0]}' that the unit does not have")
    for argument in all_arguments(plan.steps):
        if argument.place is ArgumentSource.CONSTANT:
            weight = plan.constants[argument.index]
            if argument.bytes > constants[weight]:
                raise ArtifactError(f"{where} reads past the end of the weight '{weight}'")
    return plan
