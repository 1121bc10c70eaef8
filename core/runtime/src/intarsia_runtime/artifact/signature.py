# SPDX-License-Identifier: Apache-2.0
"""What a compiled model takes and gives, where a plan of static tensors cannot say it."""

from __future__ import annotations

from typing import cast

from msgspec import Struct

from ..errors import ArtifactError
from ..size import Dim
from .fields import JsonObject, read_dict, read_list, read_sizes, read_str
from .plan import CallPlan, TensorSpec
from .random_state import visible

ANY_SIZE = "?"
"""Stands in a shape for a size that depends on more than the sizes of the inputs."""


class ValueSpec(Struct, frozen=True):
    """An input or output whose size, or kind, may be known at run time only.

    Attributes:
        name: Its name.
        kind: NumPy's name of its element type, or what it is if no tensor of known rank, e.g.
            ``seq(tensor(float))``; empty if only a run shows it.
        shape: Sizes, or names of sizes that only a run knows; ``None`` if it is no such tensor.
    """

    name: str
    kind: str
    shape: tuple[int | str, ...] | None

    def to_json(self) -> JsonObject:
        """Return it as plain JSON."""
        shape = None if self.shape is None else list(self.shape)
        return {"name": self.name, "kind": self.kind, "shape": shape}


class ModelSignature(Struct, frozen=True):
    """Inputs and outputs of a model, in its order."""

    inputs: tuple[ValueSpec, ...]
    outputs: tuple[ValueSpec, ...]

    @classmethod
    def of_plan(cls, plan: CallPlan) -> ModelSignature:
        """Return that of a plan."""
        inputs, outputs = (
            tuple(
                ValueSpec(spec.name, spec.stored or spec.dtype.value, _shape(spec))
                for spec in specs
            )
            for specs in (visible(plan.inputs), plan.outputs)
        )
        return cls(inputs, outputs)

    def to_json(self) -> JsonObject:
        """Return it as plain JSON."""
        return {
            "inputs": [spec.to_json() for spec in self.inputs],
            "outputs": [spec.to_json() for spec in self.outputs],
        }


def _shape(spec: TensorSpec) -> tuple[int | str, ...]:
    return tuple(str(size) if isinstance(size, Dim) else size for size in spec.shape)


class SizeChoice(Struct, frozen=True):
    """A size for which a model is compiled several times.

    Attributes:
        name: Its name in the shapes of the signature.
        sizes: The sizes there is a program for, ascending.
    """

    name: str
    sizes: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.name} of {' or '.join(map(str, self.sizes))}"

    def to_json(self) -> JsonObject:
        """Return it as plain JSON."""
        return {"name": self.name, "sizes": list(self.sizes)}


def signature_from_json(document: JsonObject) -> ModelSignature:
    """Read a signature.

    Raises:
        ArtifactError: It is damaged.
    """
    return ModelSignature(_specs(document, "inputs"), _specs(document, "outputs"))


def choice_from_json(value: object) -> SizeChoice:
    """Read a size for which there are several programs.

    Raises:
        ArtifactError: It is damaged.
    """
    row = read_dict(value, "a size")
    sizes = read_sizes(row, "sizes")
    if not sizes or list(sizes) != sorted(set(sizes)):
        raise ArtifactError("the sizes of a passport do not ascend")
    if row.get("low") or row.get("open"):  # of versions that padded inputs or cut them
        raise ArtifactError("sizes between programs do not run", hint="compile the model again")
    return SizeChoice(read_str(row, "name"), sizes)


def _specs(document: JsonObject, key: str) -> tuple[ValueSpec, ...]:
    return tuple(_spec(read_dict(item, "a value")) for item in read_list(document, key))


def _spec(row: JsonObject) -> ValueSpec:
    name, kind = read_str(row, "name"), read_str(row, "kind")
    if row.get("shape") is None:
        return ValueSpec(name, kind, None)
    shape = read_list(row, "shape")
    if not all(isinstance(size, str) or (type(size) is int and size >= 0) for size in shape):
        raise ArtifactError(f"the shape of '{name}' in the passport is none")
    return ValueSpec(name, kind, tuple(cast("list[int | str]", shape)))
