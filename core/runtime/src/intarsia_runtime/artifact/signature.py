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
        sizes: The sizes there is code for, ascending.
        low: Smallest size that runs, if others than ``sizes`` do; 0 if only those do.
        is_open: Whether all sizes from ``low`` on run, cut into chunks of ``sizes``, of which 1 is
            one. Otherwise what is between two of them runs on padded inputs.
    """

    name: str
    sizes: tuple[int, ...]
    low: int = 0
    is_open: bool = False

    def fitting(self, size: int) -> int | None:
        """Return the size whose code runs inputs of ``size`` at once; ``None`` if there is none."""
        if size in self.sizes:
            return size
        if self.is_open or not self.low or size < self.low:
            return None
        return next((compiled for compiled in self.sizes if compiled > size), None)

    @property
    def example(self) -> int:
        """A size that runs: the largest there is code for, or the smallest if any runs."""
        return self.low if self.is_open else self.sizes[-1]

    def chunks(self, size: int) -> tuple[int, ...]:
        """Return the sizes, in order, that ``size`` is run as; ``()`` if it does not run.

        As many of the largest as there are, then of the next.
        """
        if not self.is_open:
            return () if self.fitting(size) is None else (size,)
        found: list[int] = []
        if size < self.low:
            return ()
        for compiled in reversed(self.sizes):
            found += [compiled] * (size // compiled)
            size %= compiled
        return tuple(found)

    def __str__(self) -> str:
        if self.is_open:
            return f"{self.name} from {self.low} on"
        if self.low:
            return f"{self.name} from {self.low} to {self.sizes[-1]}"
        return f"{self.name} of {' or '.join(map(str, self.sizes))}"

    def to_json(self) -> JsonObject:
        """Return it as plain JSON."""
        fields: JsonObject = {"name": self.name, "sizes": list(self.sizes), "low": self.low}
        return {**fields, "open": True} if self.is_open else fields


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
    low = read_sizes({"low": [row.get("low")]}, "low")[0]
    if not sizes or list(sizes) != sorted(set(sizes)):
        raise ArtifactError("the sizes of a passport do not ascend")
    is_open = row.get("open", False) is True
    if is_open and (sizes[0] != 1 or low < 1):
        raise ArtifactError("the open sizes of a passport do not begin at 1")
    return SizeChoice(read_str(row, "name"), sizes, low, is_open)


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
