# SPDX-License-Identifier: Apache-2.0
"""The call plan as plain JSON, and back; reading verifies that every reference is within bounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from ..dtype import parse_dtype
from ..errors import ArtifactError
from ..size import Size, parse_size
from .fields import JsonObject, read_dict, read_int, read_list, read_sizes, read_str, read_texts
from .plan import (
    NARROW,
    Argument,
    ArgumentSource,
    Block,
    CallPlan,
    CopyStep,
    GuardStep,
    IfStep,
    KernelStep,
    LoopStep,
    OpenSizes,
    RegionStep,
    RunSize,
    SizeGuard,
    SizeSource,
    SizesStep,
    Step,
    TensorSpec,
)
from .plan_verify import verify_plan

MOST_DEPTH = 64
"""Most steps that are around a step of a plan that is read."""


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
        steps=_steps_from_json(read_list(document, "steps"), 0),
        open=_open_from_json(document["open"]) if "open" in document else None,
    )
    verify_plan(plan)
    return plan


def _step_to_json(step: Step) -> JsonObject:
    args: tuple[Argument, ...] = ()
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
        case GuardStep(guard=guard):
            return {"guard": _guard_to_json(guard)}
        case SizesStep(stage, sizes):
            head = {"stage": stage, "sizes": [size.name for size in sizes]}
            if not step.is_final:
                head["final"] = False
            args = tuple(size.argument for size in sizes)
        case IfStep():
            return {
                "if": _argument_to_json(step.condition),
                "then": _block_to_json(step.then),
                "else": _block_to_json(step.orelse),
                "label": step.label,
                "nodes": list(step.nodes),
            }
        case LoopStep():
            return _loop_to_json(step)
    return {**head, "args": [_argument_to_json(argument) for argument in args]}


def _block_to_json(block: Block) -> list[object]:
    return [_step_to_json(step) for step in block.steps]


def _loop_to_json(step: LoopStep) -> JsonObject:
    said = {"trip": step.trip, "condition": step.condition, "iteration": step.iteration}
    return {
        "loop": _block_to_json(step.body),
        **({} if step.most is None else {"most": _sizes_to_json((step.most,))[0]}),
        **{key: _argument_to_json(one) for key, one in said.items() if one is not None},
        "label": step.label,
        "nodes": list(step.nodes),
    }


def _steps_from_json(items: list[object], depth: int) -> tuple[Step, ...]:
    if depth > MOST_DEPTH:
        raise ArtifactError(f"the steps of the plan nest deeper than {MOST_DEPTH}")
    return tuple([_step_from_json(read_dict(item, "a step"), depth) for item in items])


def _step_from_json(document: JsonObject, depth: int) -> Step:
    if "guard" in document:
        return GuardStep(_guard_from_json(document["guard"]))
    if "if" in document or "loop" in document:
        return _control_from_json(document, depth)
    args = tuple(_argument_from_json(argument) for argument in read_list(document, "args"))
    if "kernel" in document:
        label, nodes = read_str(document, "label"), read_texts(document, "nodes")
        sizes = read_texts(document, "sizes") if "sizes" in document else ()
        return KernelStep(read_str(document, "kernel"), args, label, nodes, sizes)
    if "region" in document:
        label, nodes = read_str(document, "label"), read_texts(document, "nodes")
        sizes = read_texts(document, "sizes") if "sizes" in document else ()
        return RegionStep(read_int(document, "region"), args, label, nodes, sizes)
    if "stage" in document:
        names = read_texts(document, "sizes")
        if len(names) != len(args):
            raise ArtifactError(f"a step of the plan reads {len(names)} sizes of {len(args)}")
        read = tuple(RunSize(name, arg) for name, arg in zip(names, args, strict=True))
        return SizesStep(read_int(document, "stage"), read, document.get("final") is not False)
    if len(args) != 2:
        raise ArtifactError(f"a copy in the passport's plan has {len(args)} tensors, not 2")
    return CopyStep(*args)


def _control_from_json(document: JsonObject, depth: int) -> Step:
    def block(key: str) -> Block:
        return Block(_steps_from_json(read_list(document, key), depth + 1))

    def optional(key: str) -> Argument | None:
        return _argument_from_json(document[key]) if key in document else None

    label, nodes = read_str(document, "label"), read_texts(document, "nodes")
    if "if" in document:
        condition = _argument_from_json(document["if"])
        return IfStep(condition, block("then"), block("else"), label, nodes)
    return LoopStep(
        block("loop"),
        _size_from_json(document["most"]) if "most" in document else None,
        optional("trip"),
        optional("condition"),
        optional("iteration"),
        label,
        nodes,
    )


def _argument_to_json(argument: Argument) -> JsonObject:
    return {
        "place": argument.place.value,
        "index": argument.index,
        "shape": _sizes_to_json(argument.shape),
        "dtype": argument.dtype.value,
        **({} if argument.loop is None else {"loop": argument.loop}),
    }


def _argument_from_json(document: object) -> Argument:
    fields = read_dict(document, "an argument")
    place = read_str(fields, "place")
    if place not in ArgumentSource._value2member_map_:
        raise ArtifactError(f"the passport's plan has an argument in '{place}'")
    return Argument(
        ArgumentSource(place),
        read_int(fields, "index"),
        _read_shape(fields),
        parse_dtype(read_str(fields, "dtype")),
        read_int(fields, "loop") if "loop" in fields else None,
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


def _guard_to_json(guard: SizeGuard) -> JsonObject:
    return {"sizes": _sizes_to_json((guard.left, guard.right)), "why": guard.why}


def _guard_from_json(document: object) -> SizeGuard:
    row = read_dict(document, "a guard")
    sizes = [_size_from_json(size) for size in read_list(row, "sizes")]
    if len(sizes) != 2:
        raise ArtifactError(f"a guard of the plan has {len(sizes)} sizes, not 2")
    return SizeGuard(sizes[0], sizes[1], read_str(row, "why"))


def _open_to_json(sizes: OpenSizes) -> JsonObject:
    return {
        "variables": [
            {"name": source.name, "input": source.input, "axis": source.axis}
            for source in sizes.variables
        ],
        "guards": [_guard_to_json(guard) for guard in sizes.guards],
        "slots": _sizes_to_json(sizes.slots),
        **({"stages": [list(names) for names in sizes.stages]} if sizes.stages else {}),
    }


def _open_from_json(document: object) -> OpenSizes:
    fields = read_dict(document, "the sizes of the plan")
    variables: list[SizeSource] = []
    for item in read_list(fields, "variables"):
        row = read_dict(item, "a size variable")
        source = SizeSource(read_str(row, "name"), read_int(row, "input"), read_int(row, "axis"))
        variables.append(source)
    guards = [_guard_from_json(item) for item in read_list(fields, "guards")]
    slots = tuple(_size_from_json(size) for size in read_list(fields, "slots"))
    stages = [] if "stages" not in fields else read_list(fields, "stages")
    names = tuple(read_texts({"stage": stage}, "stage") for stage in stages)
    return OpenSizes(tuple(variables), tuple(guards), slots, names)
