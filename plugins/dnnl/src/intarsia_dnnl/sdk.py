# SPDX-License-Identifier: Apache-2.0
"""The vendor library: finds ``libdnnl.so.3``, binds its C API, owns what it makes.

The only file that touches the library. Any oneDNN 3.x with an OpenMP CPU runtime will do.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from copy import copy
from ctypes import c_char_p, c_float, c_int, c_int64, c_size_t, c_uint, c_void_p
from pathlib import Path

from intarsia_runtime.plugin import (
    PluginError,
    ResourceError,
    ToolchainError,
    load_openmp,
    read_fact,
    thread_setter,
)

from .isa import keep_from_hidden_tiles
from .names import ANY_TAG, BLOCKED, F32, STATUS, Query
from .packed import PackedLayout

DISTRIBUTION = "onednn-cpu-gomp"
USUAL = "2023.2.0"
"""The version of it that is looked for first; it brings oneDNN 3.2."""
FILE_NAME = "libdnnl.so.3"
SUPPORTED = "oneDNN >= 3.0, < 4"

_P, _I = c_void_p, c_int
_PROTOTYPES = {
    "engine_create": (_P, _I, c_size_t),
    "engine_destroy": (_P,),
    "stream_create": (_P, _P, c_uint),
    "stream_destroy": (_P,),
    "memory_desc_create_with_tag": (_P, _I, _P, _I, _I),
    "memory_desc_create_with_strides": (_P, _I, _P, _I, _P),
    "memory_desc_create_submemory": (_P, _P, _P, _P),
    "memory_desc_reshape": (_P, _P, _I, _P),
    "memory_desc_permute_axes": (_P, _P, _P),
    "memory_desc_clone": (_P, _P),
    "memory_desc_query": (_P, _I, _P),
    "memory_desc_destroy": (_P,),
    "memory_create": (_P, _P, _P, _P),
    "memory_destroy": (_P,),
    "primitive_attr_create": (_P,),
    "primitive_attr_destroy": (_P,),
    "primitive_attr_set_fpmath_mode": (_P, _I),
    "primitive_attr_set_scratchpad_mode": (_P, _I),
    "primitive_attr_set_post_ops": (_P, _P),
    "primitive_attr_set_scales_mask": (_P, _I, _I),
    "primitive_attr_set_zero_points_mask": (_P, _I, _I),
    "post_ops_create": (_P,),
    "post_ops_destroy": (_P,),
    "post_ops_append_eltwise": (_P, _I, c_float, c_float),
    "post_ops_append_binary": (_P, _I, _P),
    "post_ops_append_sum": (_P, c_float, c_int, _I),
    "primitive_desc_destroy": (_P,),
    "primitive_desc_next_impl": (_P,),
    "primitive_desc_query": (_P, _I, _I, _P),
    "primitive_create": (_P, _P),
    "primitive_destroy": (_P,),
    "primitive_execute": (_P, _P, _I, _P),
    "memory_set_data_handle": (_P, _P),
    "reorder_primitive_desc_create": (_P, _P, _P, _P, _P, _P),
    "concat_primitive_desc_create": (_P, _P, _P, _I, _I, _P, _P),
    "binary_primitive_desc_create": (_P, _P, _I, _P, _P, _P, _P),
    "convolution_forward_primitive_desc_create": (_P, _P, _I, _I, *(_P,) * 9),
    "deconvolution_forward_primitive_desc_create": (_P, _P, _I, _I, *(_P,) * 9),
    "inner_product_forward_primitive_desc_create": (_P, _P, _I, *(_P,) * 5),
    "eltwise_forward_primitive_desc_create": (_P, _P, _I, _I, _P, _P, c_float, c_float, _P),
    "softmax_forward_primitive_desc_create": (_P, _P, _I, _I, _P, _P, _I, _P),
    "pooling_forward_primitive_desc_create": (_P, _P, _I, _I, *(_P,) * 8),
    "prelu_forward_primitive_desc_create": (_P, _P, _I, _P, _P, _P, _P),
    "lrn_forward_primitive_desc_create": (
        *(_P, _P, _I, _I, _P, _P),
        *(c_int64, c_float, c_float, c_float, _P),
    ),
    "batch_normalization_forward_primitive_desc_create": (
        *(_P, _P, _I, _P, _P, c_float, c_uint, _P),
    ),
    "layer_normalization_forward_primitive_desc_create": (
        *(_P, _P, _I, _P, _P, _P, c_float, c_uint, _P),
    ),
    "matmul_primitive_desc_create": (*(_P,) * 7,),
    "resampling_forward_primitive_desc_create": (_P, _P, _I, _I, _P, _P, _P, _P),
    "reduction_primitive_desc_create": (_P, _P, _I, _P, _P, c_float, c_float, _P),
}


def find_library(path: str = "") -> Path:
    """Return the library's file: ``path`` if given, else that of ``onednn-cpu-gomp``.

    Raises:
        PluginError: There is none.
    """
    if path:
        if Path(path).is_file():
            return Path(path)
        raise PluginError(
            f"there is no oneDNN library at '{path}'",
            hint="give the path of libdnnl.so.3 with 'dnnl -library=PATH'",
            where="dnnl",
        )
    for file in _distribution_files():
        # `pip install --target` lists the library in RECORD and leaves it out on disk.
        if file.name == FILE_NAME and file.is_file():
            return file
    from ctypes.util import find_library as find_in_system  # slow to import, and the last resort

    found = find_in_system("dnnl")
    if found is not None and found.endswith(".so.3"):
        return Path(found)
    raise PluginError(
        f"no {SUPPORTED} was found",
        hint=f"pip install {DISTRIBUTION}=={USUAL}, or name a file with 'dnnl -library=PATH'",
        where="dnnl",
    )


def _distribution_files() -> list[Path]:
    fact = read_fact(DISTRIBUTION, USUAL, "RECORD")
    if fact is not None:
        folder, record = fact
        return [folder / line.partition(",")[0] for line in record.splitlines()]
    from importlib import metadata  # slow to import

    try:
        distribution = metadata.distribution(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return []
    return [Path(str(file.locate())) for file in distribution.files or ()]


def check_library(path: str) -> None:
    """Refuse a library that the loader would refuse, if its file is on this machine.

    The machine that runs may be another one.

    Raises:
        PluginError: It does not load, or is of another major version.
    """
    if Path(path).exists():
        Dnnl(path).close()


class Dnnl:
    """One loaded library with an engine and a stream, and everything made with them.

    What it hands out are addresses; :meth:`close` destroys them all, primitives before memories
    before the engine. Not safe for use by two threads at once.
    """

    def __init__(self, path: str = "") -> None:
        """Load the library.

        Raises:
            PluginError: It is not there, does not load, or is of another major version.
        """
        self.path = find_library(path)
        try:
            self._set_threads = thread_setter(load_openmp())
            self._library = ctypes.CDLL(str(self.path))
            self.version = _version(self._library)
        except (OSError, AttributeError) as error:
            raise PluginError(
                f"'{self.path}' does not load as oneDNN: {error}",
                hint=f"it must be {SUPPORTED} with libgomp.so.1 (Debian: libgomp1) beside it",
                where="dnnl",
            ) from error
        if self.version[0] != 3:
            raise PluginError(
                f"'{self.path}' is oneDNN {'.'.join(map(str, self.version))}",
                hint=f"this plugin needs {SUPPORTED}",
                where="dnnl",
            )
        keep_from_hidden_tiles(self._library)
        self._bind()
        self._owned: dict[str, list[int]] = {}
        self._plain: dict[tuple[object, ...], int] = {}
        self._names: dict[int, str] = {}
        self.engine = self.make("engine_create", 1, 0)
        self.stream = self.make("stream_create", self.engine, 1)

    def _bind(self) -> None:
        self._functions = {name: self._library[f"dnnl_{name}"] for name in _PROTOTYPES}
        for name, arguments in _PROTOTYPES.items():
            function = self._functions[name]
            function.argtypes = arguments
            function.restype = c_int
        self._size = self._library["dnnl_memory_desc_get_size"]
        self._size.argtypes, self._size.restype = (c_void_p,), c_size_t
        self._equal = self._library["dnnl_memory_desc_equal"]
        self._equal.argtypes, self._equal.restype = (c_void_p, c_void_p), c_int
        self._query_md = self._library["dnnl_primitive_desc_query_md"]
        self._query_md.argtypes, self._query_md.restype = (c_void_p, c_int, c_int), c_void_p

    def session(self) -> Dnnl:
        """Return the same library, engine and stream with an own list of what it makes.

        Closing it destroys what was made with it, and leaves the engine.
        """
        other = copy(self)
        other._owned, other._plain, other._names = {}, {}, {}
        return other

    def cloned(self, desc: int) -> int:
        """Return a descriptor equal to one that somebody else owns."""
        return self.make("memory_desc_clone", desc)

    def address(self, name: str) -> int:
        """Return the address of the C function ``dnnl_<name>``."""
        return ctypes.cast(self._functions[name], c_void_p).value or 0

    def set_threads(self, count: int) -> None:
        """Set how many threads primitives made and run by this thread use."""
        if self._set_threads is not None:
            self._set_threads(count)

    def call(self, name: str, *args: object) -> None:
        """Call ``dnnl_<name>``.

        Raises:
            ResourceError: Out of memory.
            ToolchainError: The library refuses.
        """
        status = self._functions[name](*args)
        if status == 1:
            raise ResourceError(f"oneDNN ran out of memory in dnnl_{name}", where="dnnl")
        if status != 0:
            raise ToolchainError(f"dnnl_{name}: {describe_status(status)}", where="dnnl")

    def make(self, name: str, *args: object) -> int:
        """Call a function that makes something; the result is owned by this object."""
        made = self.try_make(name, *args)
        if made is None:
            raise ToolchainError(f"dnnl_{name} refused its arguments", where="dnnl")
        return made

    def try_make(self, name: str, *args: object) -> int | None:
        """Like :meth:`make`, but ``None`` if the library cannot do it for these arguments.

        Raises:
            ResourceError: Out of memory.
            ToolchainError: It failed for another reason.
        """
        result = c_void_p()
        status = self._functions[name](ctypes.byref(result), *args)
        if status in (2, 3, 4):
            return None
        if status == 1:
            raise ResourceError(f"oneDNN ran out of memory in dnnl_{name}", where="dnnl")
        if status != 0 or result.value is None:
            raise ToolchainError(f"dnnl_{name}: {describe_status(status)}", where="dnnl")
        self._owned.setdefault(_family(name), []).append(result.value)
        return result.value

    # Memory descriptors -------------------------------------------------------------------------

    def plain(self, shape: Sequence[int], dtype: int = F32) -> int:
        """Describe a dense row-major tensor."""
        strides, step = [0] * len(shape), 1
        for axis in reversed(range(len(shape))):
            strides[axis] = step
            step *= shape[axis]
        return self.strided(shape, strides, dtype)

    def strided(self, shape: Sequence[int], strides: Sequence[int], dtype: int = F32) -> int:
        """Describe a tensor by its strides in elements; the same descriptor for the same."""
        key = (*shape, *strides, dtype)
        if key not in self._plain:
            sizes = (len(shape), longs(shape))
            made = self.make("memory_desc_create_with_strides", *sizes, dtype, longs(strides))
            self._plain[key] = made
        return self._plain[key]

    def any_layout(self, shape: Sequence[int], dtype: int = F32) -> int:
        """Describe a tensor whose layout the primitive may choose."""
        return self.make("memory_desc_create_with_tag", len(shape), longs(shape), dtype, ANY_TAG)

    def permuted(self, desc: int, permutation: Sequence[int]) -> int:
        """Describe the same memory with axis ``i`` moved to place ``permutation[i]``."""
        moves = (c_int * len(permutation))(*permutation)
        return self.make("memory_desc_permute_axes", desc, moves)

    def reshaped(self, desc: int, shape: Sequence[int]) -> int | None:
        """Describe the same memory with another shape; ``None`` if the layout does not allow it."""
        return self.try_make("memory_desc_reshape", desc, len(shape), longs(shape))

    def sliced(self, desc: int, shape: Sequence[int], begin: Sequence[int]) -> int:
        """Describe a part of the same memory; only reorders heed where it begins."""
        return self.make("memory_desc_create_submemory", desc, longs(shape), longs(begin))

    def size(self, desc: int) -> int:
        """Return the bytes a tensor of this layout takes."""
        return self._size(desc)

    def equal(self, one: int, other: int) -> bool:
        """Whether two descriptors describe the same layout of the same shape."""
        return one == other or self._equal(one, other) == 1

    def strides(self, desc: int, rank: int) -> tuple[int, ...] | None:
        """Return the strides of a layout without inner blocks, else ``None``."""
        if self._number(desc, Query.INNER_BLOCKS):
            return None
        return self._numbers(desc, Query.STRIDES, rank)

    def layout(self, desc: int) -> PackedLayout | None:
        """Describe where the elements lie; ``None`` if the library keeps that to itself."""
        if self._number(desc, Query.FORMAT_KIND) != BLOCKED:
            return None
        rank, blocks = self._number(desc, Query.RANK), self._number(desc, Query.INNER_BLOCKS)
        sizes = self._numbers(desc, Query.INNER_SIZES, blocks)
        axes = self._numbers(desc, Query.INNER_AXES, blocks)
        return PackedLayout(
            self._numbers(desc, Query.DIMS, rank),
            self._numbers(desc, Query.STRIDES, rank),
            self._numbers(desc, Query.PADDED_DIMS, rank),
            tuple(zip(axes, sizes, strict=True)),
        )

    def _number(self, desc: int, what: Query) -> int:
        found = c_int()
        self.call("memory_desc_query", desc, what, ctypes.byref(found))
        return found.value

    def _numbers(self, desc: int, what: Query, count: int) -> tuple[int, ...]:
        if not count:
            return ()
        found = ctypes.POINTER(c_int64)()
        self.call("memory_desc_query", desc, what, ctypes.byref(found))
        return tuple(found[:count])

    # Primitives ---------------------------------------------------------------------------------

    def queried(self, primitive_desc: int, what: Query, index: int = 0) -> int:
        """Return a memory descriptor that a primitive descriptor holds, valid as long as that.

        Raises:
            ToolchainError: The primitive has no such argument.
        """
        found: int | None = self._query_md(primitive_desc, what, index)
        if found is None:
            raise ToolchainError(f"a primitive has no argument {what.name}", where="dnnl")
        return found

    def scratchpad_bytes(self, primitive_desc: int) -> int:
        """Return the bytes of scratch memory that a primitive needs."""
        return self._size(self._query_md(primitive_desc, Query.SCRATCHPAD, 0))

    def scratchpad(self, primitive_desc: int) -> int:
        """Return the descriptor of a primitive's scratch memory."""
        return self.queried(primitive_desc, Query.SCRATCHPAD)

    def implementation(self, primitive_desc: int) -> str:
        """Return the library's name for the chosen implementation, e.g. ``brgconv:avx512_core``."""
        if primitive_desc not in self._names:
            text = c_char_p()
            self.call(
                "primitive_desc_query", primitive_desc, Query.IMPLEMENTATION, 0, ctypes.byref(text)
            )
            self._names[primitive_desc] = (text.value or b"").decode()
        return self._names[primitive_desc]

    def take_next_implementation(self, primitive_desc: int) -> bool:
        """Let a primitive be the library's next choice; whether there is one."""
        self._names.pop(primitive_desc, None)
        return self._functions["primitive_desc_next_impl"](primitive_desc) == 0

    def release(self, family: str) -> None:
        """Destroy everything made of one family: ``memory_desc``, ``primitive_desc``, ..."""
        if family == "memory_desc":
            self._plain.clear()
        if family == "primitive_desc":
            self._names.clear()
        destroy = self._functions[f"{family}_destroy"]
        for made in reversed(self._owned.pop(family, [])):
            destroy(made)

    def close(self) -> None:
        """Destroy everything; harmless when called again."""
        for family in (
            *("primitive", "memory", "primitive_desc", "primitive_attr", "post_ops"),
            *("memory_desc", "stream", "engine"),
        ):
            self.release(family)


def longs(values: Sequence[int]) -> ctypes.Array[c_int64]:
    """Return a C array of 64-bit integers, never empty."""
    return (c_int64 * max(1, len(values)))(*values)


def describe_status(status: int) -> str:
    """Return what a status of the library means."""
    return STATUS.get(status, f"status {status}")


def _family(function: str) -> str:
    if function.endswith("primitive_desc_create"):
        return "primitive_desc"
    for family in ("memory_desc", "memory", "primitive_attr", "post_ops", "primitive", "stream"):
        if function.startswith(family):
            return family
    return "engine"


class _Version(ctypes.Structure):
    _fields_ = (("major", c_int), ("minor", c_int), ("patch", c_int))


def _version(library: ctypes.CDLL) -> tuple[int, int, int]:
    function = library.dnnl_version
    function.restype = ctypes.POINTER(_Version)
    found = function().contents
    return (found.major, found.minor, found.patch)
