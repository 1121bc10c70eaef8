# SPDX-License-Identifier: Apache-2.0
"""The call plan as plain JSON, and back; reading verifies that every reference is within bounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from ..dtype import parse_dtype
from ..errors import ArtifactError
from ..size import Dim, Size, parse_size
from .fields import JsonObject, read_dict, read_int, read_list, read_sizes, read_str, read_texts
from .plan import (
    NARROW,
    Argument,
    CallPlan,
    CopyStep,
    KernelStep,
    OpenSizes,
    Place,
    RegionStep,
    SizeGuard,
    SizeSource,
    Step,
    TensorSpec,
)


def spec_to_json(spec: TensorSpec) -> JsonObject:
    """Return an input or output as plain JSON."""
    found: JsonObject = {
        "name": spec.name,
        "shape": _sizes_to_json(spec.shape),
        "dtype": spec.dtype.value,
    }
    if spec.stored:
        found["stored"] = spec.stored
    if spec.only:
        found["only"] = [list(value) for value in spec.only]
    return found


def spec_from_json(document: object) -> TensorSpec:
    """Inverse of :func:`spec_to_json`.

    Raises:
        ArtifactError: The document is damaged.
        UnsupportedError: Unknown element type.
    """
    fields = read_dict(document, "a tensor")
    return TensorSpec(
        read_str(fields, "name"),
        _read_shape(fields),
        parse_dtype(read_str(fields, "dtype")),
        _stored(fields),
        _only(fields),
    )


def _stored(fields: JsonObject) -> str:
    name = read_str(fields, "stored") if "stored" in fields else ""
    if name and name not in NARROW:
        raise ArtifactError(f"unknown element type '{name}' of one byte")
    return name


def _only(fields: JsonObject) -> tuple[tuple[int, ...], ...]:
    rows = read_list(fields, "only") if "only" in fields else []
    if not all(isinstance(row, list) for row in rows):
        raise ArtifactError("the values that an input may have are no lists")
    found = [tuple(cast("list[object]", row)) for row in rows]
    if not all(type(item) is int for row in found for item in row):
        raise ArtifactError("the values that an input may have are no integers")
    return tuple(cast("list[tuple[int, ...]]", found))


def plan_to_json(plan: CallPlan) -> JsonObject:
    """Return the plan as plain JSON."""
    return {
        "inputs": [spec_to_json(spec) for spec in plan.inputs],
        "outputs": [spec_to_json(spec) for spec in plan.outputs],
        "constants": list(plan.constants),
        "regions": list(plan.regions),
        "workspace_bytes": plan.workspace_bytes,
        "steps": [_step_to_json(step) for step in plan.steps],
        **({} if plan.open is None else {"open": _open_to_json(plan.open)}),
    }


def plan_from_json(document: JsonObject) -> CallPlan:
    """Inverse of :func:`plan_to_json`.

    Raises:
        ArtifactError: The document is damaged, or a step refers to something that is not there.
        UnsupportedError: Unknown element type.
    """
    plan = CallPlan(
        inputs=tuple(spec_from_json(spec) for spec in read_list(document, "inputs")),
        outputs=tuple(spec_from_json(spec) for spec in read_list(document, "outputs")),
        constants=read_texts(document, "constants"),
        regions=read_texts(document, "regions"),
        workspace_bytes=read_int(document, "workspace_bytes"),
        steps=tuple(
            _step_from_json(read_dict(step, "a step")) for step in read_list(document, "steps")
        ),
        open=_open_from_json(document["open"]) if "open" in document else None,
    )
    _verify_sizes(plan)
    for number, step in enumerate(plan.steps):
        _verify_step(plan, step, number)
    return plan


def step_arguments(step: Step) -> tuple[Argument, ...]:
    """Return the tensors of any kind of step."""
    if isinstance(step, CopyStep):
        return (step.source, step.destination)
    return step.args


def _step_to_json(step: Step) -> JsonObject:
    match step:
        case KernelStep(function, args, label, nodes):
            head: JsonObject = {"kernel": function, "label": label, "nodes": list(nodes)}
            if step.sizes:
                head["sizes"] = list(step.sizes)
        case RegionStep(region, args, label, nodes):
            head = {"region": region, "label": label, "nodes": list(nodes)}
            if step.sizes:
                head["sizes"] = list(step.sizes)
        case CopyStep(source, destination):
            head, args = {}, (source, destination)
    return {**head, "args": [_argument_to_json(argument) for argument in args]}


def _step_from_json(document: JsonObject) -> Step:
    args = tuple(_argument_from_json(argument) for argument in read_list(document, "args"))
    if "kernel" in document:
        label, nodes = read_str(document, "label"), read_texts(document, "nodes")
        sizes = read_texts(document, "sizes") if "sizes" in document else ()
        return KernelStep(read_str(document, "kernel"), args, label, nodes, sizes)
    if "region" in document:
        label, nodes = read_str(document, "label"), read_texts(document, "nodes")
        sizes = read_texts(document, "sizes") if "sizes" in document else ()
        return RegionStep(read_int(document, "region"), args, label, nodes, sizes)
    if len(args) != 2:
        raise ArtifactError(f"a copy in the passport's plan has {len(args)} tensors, not 2")
    return CopyStep(*args)


def _argument_to_json(argument: Argument) -> JsonObject:
    return {
        "place": argument.place.value,
        "index": argument.index,
        "shape": _sizes_to_json(argument.shape),
        "dtype": argument.dtype.value,
    }


def _argument_from_json(document: object) -> Argument:
    fields = read_dict(document, "an argument")
    place = read_str(fields, "place")
    if place not in Place._value2member_map_:
        raise ArtifactError(f"the passport's plan has an argument in '{place}'")
    return Argument(
        Place(place),
        read_int(fields, "index"),
        _read_shape(fields),
        parse_dtype(read_str(fields, "dtype")),
    )


def _sizes_to_json(shape: Sequence[Size]) -> list[object]:
    return [size if isinstance(size, int) else str(size) for size in shape]


def _read_shape(fields: JsonObject) -> tuple[int, ...]:
    """Return a shape; texts in it are sizes that only the run knows."""
    if not any(isinstance(size, str) for size in read_list(fields, "shape")):
        return read_sizes(fields, "shape")
    return cast("tuple[int, ...]", tuple(map(_size_from_json, read_list(fields, "shape"))))


def _size_from_json(value: object) -> Size:
    if type(value) is int and value >= 0:
        return value
    if not isinstance(value, str):
        raise ArtifactError(f"{value!r} is no size")
    return parse_size(value)


def _open_to_json(sizes: OpenSizes) -> JsonObject:
    return {
        "variables": [
            {"name": source.name, "input": source.input, "axis": source.axis}
            for source in sizes.variables
        ],
        "guards": [
            {"sizes": _sizes_to_json((guard.left, guard.right)), "why": guard.why}
            for guard in sizes.guards
        ],
        "slots": _sizes_to_json(sizes.slots),
    }


def _open_from_json(document: object) -> OpenSizes:
    fields = read_dict(document, "the sizes of the plan")
    variables: list[SizeSource] = []
    for item in read_list(fields, "variables"):
        row = read_dict(item, "a size variable")
        source = SizeSource(read_str(row, "name"), read_int(row, "input"), read_int(row, "axis"))
        variables.append(source)
    guards: list[SizeGuard] = []
    for item in read_list(fields, "guards"):
        row = read_dict(item, "a guard")
        sizes = [_size_from_json(size) for size in read_list(row, "sizes")]
        if len(sizes) != 2:
            raise ArtifactError(f"a guard of the plan has {len(sizes)} sizes, not 2")
        guards.append(SizeGuard(sizes[0], sizes[1], read_str(row, "why")))
    slots = tuple(_size_from_json(size) for size in read_list(fields, "slots"))
    return OpenSizes(tuple(variables), tuple(guards), slots)


def _verify_sizes(plan: CallPlan) -> None:
    """Check that every size variable of a plan has a source.

    Raises:
        ArtifactError: One has none, or its source is not there.
    """
    known: set[str] = set()
    for source in plan.open.variables if plan.open is not None else ():
        inputs = plan.inputs[source.input : source.input + 1]
        if not inputs or source.axis >= len(inputs[0].shape):
            raise ArtifactError(f"size '{source.name}' of the plan is that of no input")
        known.add(source.name)
    for name in sorted(_used_sizes(plan) - known):
        raise ArtifactError(f"nothing says what size '{name}' of the plan is")


def _used_sizes(plan: CallPlan) -> set[str]:
    shapes = [spec.shape for spec in (*plan.inputs, *plan.outputs)]
    names: set[str] = set()
    for step in plan.steps:
        shapes += [argument.shape for argument in step_arguments(step)]
        names.update(() if isinstance(step, CopyStep) else step.sizes)
    if plan.open is not None:
        shapes.append(cast("tuple[int, ...]", plan.open.slots))
        shapes += [cast("tuple[int, ...]", (g.left, g.right)) for g in plan.open.guards]
    for shape in shapes:
        for size in shape:
            names |= size.variables() if isinstance(size, Dim) else frozenset[str]()
    return names


def _verify_step(plan: CallPlan, step: Step, number: int) -> None:
    if isinstance(step, RegionStep) and step.region >= len(plan.regions):
        raise ArtifactError(
            f"step {number} of the plan calls region {step.region}, which is not there"
        )
    for argument in step_arguments(step):
        if not _in_bounds(plan, argument):
            raise ArtifactError(
                f"step {number} of the plan reads or writes outside of its {argument.place.value}"
            )


def _in_bounds(plan: CallPlan, argument: Argument) -> bool:
    if plan.open is not None:
        return _has_place(plan, plan.open, argument)
    match argument.place:
        case Place.INPUT | Place.OUTPUT:
            specs = plan.inputs if argument.place is Place.INPUT else plan.outputs
            return argument.index < len(specs) and argument.bytes <= specs[argument.index].bytes
        case Place.CONSTANT:
            return argument.index < len(plan.constants)
        case Place.WORKSPACE:
            return argument.index + argument.bytes <= plan.workspace_bytes


def _has_place(plan: CallPlan, sizes: OpenSizes, argument: Argument) -> bool:
    """Whether there is what an argument of an open plan refers to."""
    counts = {
        Place.INPUT: len(plan.inputs),
        Place.OUTPUT: len(plan.outputs),
        Place.CONSTANT: len(plan.constants),
        Place.WORKSPACE: len(sizes.slots),
    }
    return argument.index < counts[argument.place]
