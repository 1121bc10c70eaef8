# SPDX-License-Identifier: Apache-2.0
"""Sizes that a model leaves open where numbers are needed: for fixed kernels, or for tuning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

from intarsia_ir.graph.types import Dim
from intarsia_ir.size_values import ShapeChoices, Size, SizeValues, name_sizes
from intarsia_runtime.errors import IntarsiaError, UnsupportedError
from intarsia_runtime.load import VM

from .dynamic import import_any, is_open
from .importing import ModelFile
from .open_build import takes_open_sizes
from .request import BuildRequest
from .shapes import static_shapes
from .source import ModuleSource

_EXAMPLES = (128, 224, 512, 576, 1024, 4096, 16000)
"""Sizes to try for an example: of sequences, images, and seconds or parts of seconds of sound."""


def check_sizes_given(request: BuildRequest) -> None:
    """Refuse a model of open sizes where the kernels of the fallback take none.

    Raises:
        UnsupportedError: A size of an input is not known; the hint has shapes to give.
    """
    source, shapes = request.source, static_shapes(request.shapes)
    if takes_open_sizes(request) or request.runtime.is_freestanding or not source.is_onnx:
        return  # whoever prepares the module says which size is not known
    if request.executor.kind == VM or not source.may_be_open(shapes):
        return
    with suppress(UnsupportedError):
        if not is_open(import_any(source, request.given_executor, None, shapes, keep=True)):
            return
    named = _open_names(source, shapes)
    likely = _likely_sizes(source, named)
    options = "every size with --shape, as in --shape input:1,3,224,224"
    if likely is not None:
        inputs = {name: _example(sizes, likely) for name, sizes in named.shapes.items()}
        options = " ".join(f"--shape {name}:{sizes}" for name, sizes in inputs.items())
    kind = request.target.fallback.kind.name
    raise UnsupportedError(
        f"{_unknown(source, shapes)}, and '{kind}' compiles for known sizes alone",
        hint=f"for example {options}; a list such as 1|8 compiles a program each",
    )


def example_shapes(
    model: ModelFile, shapes: Mapping[str, tuple[int, ...]]
) -> Mapping[str, tuple[int, ...]]:
    """Return shapes for a model, with a likely size wherever neither it nor ``shapes`` has one.

    Raises:
        UnsupportedError: With none of those that are tried the model can be imported.
    """
    source = ModuleSource(model, mapped=True)
    if all(type_.is_static for type_ in source.declared(shapes).values()):
        return shapes
    named = _open_names(source, shapes)
    likely = _likely_sizes(source, named)
    if likely is None:
        raise UnsupportedError(
            _unknown(source, shapes),
            hint="give every size with --shape, as in --shape input:1,3,224,224",
        )
    return named.at(likely)


def _unknown(source: ModuleSource, shapes: Mapping[str, Sequence[int]] | None) -> str:
    """Say which input has a size that is not known."""
    declared = source.declared(shapes)
    first = next(name for name, type_ in declared.items() if not type_.is_static)
    return f"the size of input '{first}' is not known: {declared[first]}"


def _open_names(source: ModuleSource, shapes: Mapping[str, Sequence[int]] | None) -> ShapeChoices:
    """Return shapes of inputs with names for the sizes that neither the model nor they say."""
    given, declared = frozenset(shapes or ()), source.declared(shapes)
    wanted = {
        name: tuple(map(_any_size, type_.shape))
        for name, type_ in declared.items()
        if name in given or not type_.is_static
    }
    return name_sizes(wanted, declared)


def _likely_sizes(source: ModuleSource, shapes: ShapeChoices) -> dict[str, int] | None:
    """Return sizes with which the model can be imported, found by trying; ``None`` if none fits.

    The first open size of an input is a batch as a rule, so it is tried as 1.
    """
    batches: set[int | str] = {sizes[0] for sizes in shapes.shapes.values() if sizes}
    last = {sizes[-1] for sizes in shapes.shapes.values() if sizes}
    for sizes in shapes.shapes.values():
        first = next((size for size in sizes if isinstance(size, str)), "")
        batches |= {first} - last
    for ones in (batches, set[int | str]()):
        for size in _EXAMPLES:
            likely = {name: 1 if name in ones else size for name in shapes.ranges}
            with suppress(IntarsiaError):
                import_any(source, None, None, shapes.at(likely))
                return likely
    return None


def _any_size(size: int | Dim) -> Size:
    return size if isinstance(size, int) else SizeValues.at_least(1)


def _example(sizes: Sequence[int | str], likely: Mapping[str, int]) -> str:
    """Return sizes as an option has them."""
    return ",".join(str(likely[size] if isinstance(size, str) else size) for size in sizes)
