# SPDX-License-Identifier: Apache-2.0
"""Arrays in and out of the command line: ``.npz`` files and random inputs."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TypeAlias

import ml_dtypes
import numpy as np
from numpy.lib.format import MAGIC_PREFIX

from intarsia_ir.writing.new_file import atomic_write
from intarsia_runtime.abi import array_dtype
from intarsia_runtime.artifact.plan import NARROW, TensorSpec
from intarsia_runtime.artifact.signature import ANY_SIZE, ValueSpec
from intarsia_runtime.dtype import DType, parse_dtype
from intarsia_runtime.errors import ModelError, ResourceError, UsageError
from intarsia_runtime.loading import RunValue

Spec: TypeAlias = TensorSpec | ValueSpec
"""An input of an executable."""

RANDOM = "random"
"""What ``--inputs`` says instead of a file name."""


def read_inputs(
    source: str | Mapping[str, np.ndarray],
    specs: Sequence[Spec],
    seed: int,
    sizes: Mapping[str, int] = MappingProxyType({}),
) -> dict[str, np.ndarray]:
    """Return the arrays of an ``.npz`` file, or random ones.

    Args:
        source: The file, what :func:`read_arrays` read of it, or :data:`RANDOM`.
        specs: The inputs.
        seed: Of random arrays.
        sizes: Sizes of random arrays, where they have a name.

    Raises:
        ModelError: The file is missing or no ``.npz``.
        UsageError: An input cannot be made up: its size is not known, or it is no tensor.
    """
    if source == RANDOM:
        return random_inputs(specs, seed, sizes)
    types = {spec.name: spec for spec in specs}
    arrays = read_arrays(source) if isinstance(source, str) else source
    return {name: _named(array, types.get(name)) for name, array in arrays.items()}


def read_arrays(source: str) -> dict[str, np.ndarray]:
    """Return the arrays of an ``.npz`` file.

    Raises:
        ModelError: The file is missing or no ``.npz``.
        ResourceError: There is no memory for them.
    """
    try:
        if not zipfile.is_zipfile(source):
            with open(source, "rb") as other:
                array = other.read(len(MAGIC_PREFIX)) == MAGIC_PREFIX
            found = "one array without a name" if array else "no zip archive, or a part of one"
            raise ValueError(f"it holds {found}")
        with np.load(source, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        for name, array in arrays.items():
            if not isinstance(array, np.ndarray):  # NumPy gives the bytes of what is none
                raise ValueError(f"'{name}' in it is not an array")
        return arrays
    except MemoryError:
        raise ResourceError(f"no memory for the inputs in '{source}'") from None
    except Exception as error:  # of files, zip, compression, and Python's own parser of headers
        raise ModelError(
            f"cannot read inputs from '{source}': {error}",
            hint="an .npz file with the names of the model's inputs, or 'random'",
        ) from None


def _named(array: np.ndarray, spec: Spec | None) -> np.ndarray:
    """Give back the element type that a file has no name for: it knows the width alone."""
    kind = spec.stored if isinstance(spec, TensorSpec) else "" if spec is None else spec.kind
    if array.dtype.kind != "V" or kind not in NARROW or array.dtype.itemsize != 1:
        return array
    return array.view(np.dtype(getattr(ml_dtypes, kind)))


def random_inputs(
    specs: Sequence[Spec], seed: int, sizes: Mapping[str, int] = MappingProxyType({})
) -> dict[str, np.ndarray]:
    """Return one array for each input; the same for the same seed.

    Sizes that have names and no value are 1. Floats are normally distributed. Bytes cover their
    range; wider integers are 0 or 1, because they are often indices, lengths or masks.

    Raises:
        UsageError: The size of an input is not known, or it is no tensor.
    """
    generator = np.random.default_rng(seed)
    known = made_up_sizes(specs, sizes)
    return {spec.name: _random(generator, _known(spec, known)) for spec in specs}


def made_up_sizes(specs: Sequence[Spec], given: Mapping[str, int]) -> dict[str, int]:
    """Return ``given``, and 1 for all other sizes that have names."""
    shapes = [spec.shape or () for spec in specs if isinstance(spec, ValueSpec)]
    names = {size for shape in shapes for size in shape if isinstance(size, str)} - {ANY_SIZE}
    return {**dict.fromkeys(sorted(names), 1), **given}


def asked_sizes(specs: Sequence[Spec], shapes: Mapping[str, Sequence[int]]) -> dict[str, int]:
    """Return the values that shapes of an artifact's inputs give to sizes that have names.

    Raises:
        UsageError: There is no such input, or it takes no such shape.
    """
    known = {spec.name: tuple(spec.shape or ()) for spec in specs}
    found: dict[str, int] = {}
    for name, shape in shapes.items():
        if name not in known:
            raise UsageError(
                f"the artifact has no input '{name}'", hint=f"its inputs: {', '.join(known)}"
            )
        own = known[name]
        pairs = list(zip(own, shape, strict=False))
        if len(own) != len(shape) or not all(
            asked == (size if isinstance(size, int) else found.setdefault(str(size), asked))
            for size, asked in pairs
        ):
            raise UsageError(
                f"input '{name}' of the artifact takes no shape {tuple(shape)}",
                hint=f"it has ({', '.join(map(str, own))}), and one value for each name",
            )
    return found


def _known(spec: Spec, named: Mapping[str, int]) -> TensorSpec:
    """Return the static tensor that an input is, with values for sizes that have names."""
    if isinstance(spec, TensorSpec):
        return spec
    shape = [named.get(size, size) if isinstance(size, str) else size for size in spec.shape or ()]
    sizes = tuple(size for size in shape if isinstance(size, int))
    if spec.shape is None or len(sizes) < len(spec.shape):
        raise UsageError(
            f"input '{spec.name}' cannot get random values: it is {spec.kind} of an unknown size",
            hint="--inputs FILE.npz",
        )
    if spec.kind in NARROW:
        return TensorSpec(spec.name, sizes, DType.UINT8, spec.kind)
    return TensorSpec(spec.name, sizes, parse_dtype(spec.kind))


def _random(generator: np.random.Generator, spec: TensorSpec) -> np.ndarray:
    dtype = array_dtype(spec)
    if spec.dtype.is_float or spec.stored:
        return np.asarray(generator.standard_normal(spec.shape), np.float32).astype(dtype)
    low, high = 0, 2
    if spec.dtype in (DType.INT8, DType.UINT8):
        low, high = (-128, 128) if spec.dtype is DType.INT8 else (0, 256)
    return np.asarray(generator.integers(low, high, spec.shape)).astype(dtype)


def plain_arrays(results: Mapping[str, RunValue]) -> dict[str, np.ndarray]:
    """Return results as tensors: strings as NumPy's own, ``y[0]`` and so on for a sequence ``y``.

    A map is written like a sequence, with its keys. An optional that holds nothing is left out.
    """
    arrays: dict[str, np.ndarray] = {}
    pending: list[tuple[str, RunValue]] = [*results.items()][::-1]
    while pending:
        name, value = pending.pop()
        match value:
            case np.ndarray():
                arrays[name] = value.astype(np.str_) if value.dtype.hasobject else value
            case dict():
                arrays |= {
                    f"{name}[{key}]": np.array(score, np.float32) for key, score in value.items()
                }
            case list():
                pending.extend([(f"{name}[{n}]", item) for n, item in enumerate(value)][::-1])
            case None:
                pass
    return arrays


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write an ``.npz`` file with the names and the order of ``arrays``.

    NumPy's own ``savez`` cannot hold an array called ``file``, and writes in place.

    Raises:
        UsageError: The place cannot be written to.
        ResourceError: The disk is full.
    """
    with atomic_write(path) as whole, zipfile.ZipFile(whole, "w") as archive:
        for name, array in arrays.items():
            entry = zipfile.ZipInfo(f"{name}.npy")
            with archive.open(entry, "w", force_zip64=True) as file:
                np.lib.format.write_array(file, np.asarray(array), allow_pickle=False)
