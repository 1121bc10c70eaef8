# SPDX-License-Identifier: Apache-2.0
"""From a region to its unit: a network, and the engine that the library builds of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import cast

from msgspec.structs import asdict

from intarsia.plugin.accelerator import (
    Call,
    CompiledUnit,
    Constant,
    Expr,
    PluginError,
    Region,
    TargetError,
    TensorType,
    Var,
    calls,
    count_macs,
    sizes,
    tensor_type,
    unknown_call,
)

from .cache import cached_plan, plan_key
from .draft import NetworkDraft, Tensor, label_of
from .operators.row import fields_of
from .plan import build_plan, device_identity
from .sdk import Library, find_library
from .signature import FILE, PLAN_FILE, SCHEMA, EngineBorder, EngineSignature
from .support import TABLE
from .target import TensorrtOptions

LOADER = "tensorrt"


def compile_region(region: Region, options: TensorrtOptions) -> CompiledUnit:
    """Build the engine of a region, or take it from the cache.

    Raises:
        PluginError: The region holds a call that no row of the support table takes.
        ToolchainError: No library is installed, or it refuses the network, in its own words.
        WorkerLost: The library builds on a GPU only, and there is none.
        TargetError: An option is not for the library that is installed.
    """
    library = find_library(options.library)
    device = device_identity(library, options)

    def build() -> bytes:
        batch = common_batch(region, options.dynamic_batch)
        return build_plan(write_network(region, library, half=options.fp16, batch=batch), options)

    given = dataclasses.asdict(options)
    del given["timing_cache"]
    key = plan_key(region, (library.label, device, repr(sorted(given.items()))))
    # Times that somebody wants to keep must be measured.
    plan = build() if options.timing_cache else cached_plan(key, build)
    signature = EngineSignature(
        edition=library.edition,
        version=library.version,
        device=device,
        inputs=_borders("input", region.function.params),
        outputs=_borders("output", region.function.outputs),
        options=given,
    )
    return CompiledUnit(
        name=region.name,
        loader=LOADER,
        format=SCHEMA,
        files={PLAN_FILE: plan, FILE: signature.to_json()},
        versions={library.edition: library.version},
    )


def _borders(side: str, values: Sequence[Expr]) -> tuple[EngineBorder, ...]:
    return tuple(
        EngineBorder(f"{side}_{number}", tensor_type(value).dtype.value, sizes(value))
        for number, value in enumerate(values)
    )


def common_batch(region: Region, profile: tuple[int, ...]) -> int | None:
    """Return the first dimension of all inputs, ``None`` without a profile.

    Raises:
        TargetError: They have none in common, or the profile does not hold it.
    """
    if not profile:
        return None
    found = {sizes(param)[:1] for param in region.function.params}
    if len(found) != 1 or found == {()}:
        raise TargetError(
            f"-dynamic-batch: the inputs of region '{region.name}' have no first dimension in"
            " common",
            hint="leave the option away",
        )
    ((batch,),) = found
    if not profile[0] <= batch <= profile[2]:
        raise TargetError(
            f"-dynamic-batch={','.join(map(str, profile))} does not hold the model's own"
            f" size {batch}"
        )
    return batch


def write_network(
    region: Region, library: Library, *, half: bool = False, batch: int | None = None
) -> NetworkDraft:
    """Write the network of a region. Needs no GPU.

    Raises:
        TargetError: There is a batch, and a call does not keep it apart.
        PluginError: The region holds a call that no row of the support table takes, or a layer has
            another type than its operator.
        ToolchainError: The library refuses a layer, in its own words.
    """
    draft = NetworkDraft(library, region.name, half=half, batch=batch)
    for number, param in enumerate(region.function.params):
        draft.add_input(f"input_{number}", param)
    for row, match in TABLE.matches(region):
        call = match.root
        if not TABLE.check(row, match):
            raise unknown_call(region, call)
        draft.label = label_of(call)
        draft.messages.clear()
        if batch is not None and _works_along_batch(call):
            raise draft.mixed_batch()
        given = row.lower(draft, match)
        tensors = cast("tuple[Tensor, ...]", given) if isinstance(given, tuple) else (given,)
        _check_types(draft, call, tensors)
        draft.set(call, tensors)
    _mark_outputs(draft, region)
    return draft


def _check_types(draft: NetworkDraft, call: Call, tensors: tuple[Tensor, ...]) -> None:
    for tensor, type_ in zip(tensors, fields_of(call), strict=True):
        assert isinstance(type_, TensorType)  # the row asked for it
        dtype, wanted = type_.dtype, type_.static_shape
        shape = draft.shape_of(tensor)
        if draft.batch is not None:
            if shape[:1] != (-1,) or -1 in shape[1:] or wanted[0] != draft.batch:
                raise draft.mixed_batch()
            shape = (draft.batch, *shape[1:])
        found = draft.dtype_of(tensor)
        if shape != wanted or found not in (dtype, draft.work_type(dtype)):
            raise PluginError(
                f"the layers of {label_of(call)} give {found}{list(shape)}, and {call.name}"
                f" is {dtype}{list(wanted)}",
                where=str(call.span),
            )


def _works_along_batch(call: Call) -> bool:
    """Whether an operator computes something along the first dimension, or picks by it."""
    attrs = asdict(call.attrs)
    axes = attrs.get("axes", ()) if call.name != "transpose" else ()
    return attrs.get("axis") == 0 or 0 in axes or attrs.get("batch_dims") == 0


def _mark_outputs(draft: NetworkDraft, region: Region) -> None:
    """Name the results; what is an input, a constant or a result already is copied."""
    taken = [draft.network.get_input(number) for number in range(draft.network.num_inputs)]
    for number, value in enumerate(region.function.outputs):
        draft.label = f"output_{number}"
        tensor = draft.exact(value)
        if isinstance(value, Var | Constant) or any(tensor is other for other in taken):
            tensor = draft.output_of(draft.network.add_identity(tensor))
        taken.append(tensor)
        tensor.name = draft.label
        draft.network.mark_output(tensor)


def no_heavy_call(region: Region) -> str:
    """Object to a region without a convolution, a matrix product or a reduction."""
    if count_macs(region) or any(call.name in _REDUCTIONS for call in calls(region.function)):
        return ""
    return "its region has no convolution, product or reduction (-remove-no-mac-regions)"


_REDUCTIONS = frozenset({"sum", "prod", "max", "min", "mean", "qnn.mean"})
