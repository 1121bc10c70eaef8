# SPDX-License-Identifier: Apache-2.0
"""AArch64 programs under emulation: a runner that opens a unit and calls it, fed through pipes.

The runner is to a unit what the plugin's loader is: it opens, calls and closes, but it starts in a
fifth of a second, where Python under emulation takes several.
"""

from __future__ import annotations

import os
import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from intarsia_arm_acl import validate
from intarsia_arm_acl.toolchain import find_toolchain
from intarsia_runtime.errors import ToolchainError

ROOT = os.environ.get("INTARSIA_ACL_ROOT", "")
assert not ROOT or os.path.isdir(ROOT), f"INTARSIA_ACL_ROOT is '{ROOT}', not a folder"
"""Another release of the library to test: a folder with its headers, and all that it runs on."""

RUNNER = r"""
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <memory>
#include <vector>
struct DLTensor { void *data; int32_t device[2], ndim; uint8_t code, bits; uint16_t lanes;
                  int64_t *shape, *strides; uint64_t byte_offset; };
struct Any { int32_t type_index; uint32_t padding; void *pointer; };
typedef void *(*Open)(const void *const *, int32_t, int32_t, char *, size_t);
typedef int (*Call)(void *, const Any *, int32_t, Any *);
typedef const char *(*Error)(void *);
typedef void (*Close)(void *);
static uint64_t number() {
    uint64_t value = 0;
    if (fread(&value, 8, 1, stdin) != 1) exit(9);
    return value;
}
static void *block(uint64_t size) {
    void *data = nullptr;
    if (posix_memalign(&data, 64, size + 64)) exit(9);
    if (size && fread(data, 1, size, stdin) != size) exit(9);
    return data;
}
int main(int argc, char **argv) {
    void *library = dlopen(argv[1], RTLD_NOW);
    if (!library) { fprintf(stderr, "%s\n", dlerror()); return 2; }
    std::vector<void *> constants;
    for (uint64_t n = number(); n > 0; --n) constants.push_back(block(number()));
    char error[1024] = "";
    void *unit = ((Open)dlsym(library, "intarsia_acl_open"))(constants.data(), constants.size(),
                                                            1, error, sizeof error);
    if (!unit) { fprintf(stderr, "%s\n", error); return 3; }
    const uint64_t rounds = number(), inputs = number(), outputs = number();
    std::vector<uint64_t> sizes;
    for (uint64_t n = 0; n < outputs; ++n) sizes.push_back(number());
    for (uint64_t round = 0; round < rounds; ++round) {
        std::vector<DLTensor> tensors(inputs + outputs);
        std::vector<Any> values;
        for (uint64_t n = 0; n < inputs + outputs; ++n) {
            memset(&tensors[n], 0, sizeof tensors[n]);
            if (n < inputs) tensors[n].data = block(number());
            else {
                tensors[n].data = block(0);
                free(tensors[n].data);
                if (posix_memalign(&tensors[n].data, 64, sizes[n - inputs] + 64)) return 9;
                memset(tensors[n].data, 0xff, sizes[n - inputs]);
            }
            values.push_back({ 7, 0, &tensors[n] });
        }
        Any result;
        const Call call = (Call)dlsym(library, "intarsia_acl_call");
        if (call(unit, values.data(), values.size(), &result)) {
            fprintf(stderr, "%s\n", ((Error)dlsym(library, "intarsia_acl_error"))(unit));
            return 4;
        }
        for (uint64_t n = 0; n < outputs; ++n)
            fwrite(tensors[inputs + n].data, 1, sizes[n], stdout);
        for (DLTensor &tensor : tensors) free(tensor.data);
    }
    ((Close)dlsym(library, "intarsia_acl_close"))(unit);
    return 0;
}
"""


def missing() -> str:
    """Return what the tests lack to build and run units; empty if nothing."""
    try:
        find_toolchain(ROOT)
    except ToolchainError as error:
        return f"{error} ({error.hint})"
    if emulator() is None:
        return "no qemu-aarch64 to run AArch64 programs with (apt-get install qemu-user)"
    return ""


def emulator() -> tuple[str, ...] | None:
    """Return the command in front of an AArch64 program; ``None`` if there is none."""
    return validate.emulator(ROOT)


def compile_program(source: str, target: Path) -> Path:
    """Compile a C++ program for AArch64 against the library."""
    tools = find_toolchain(ROOT)
    (target.parent / f"{target.name}.cpp").write_text(source)
    command = [tools.compiler, "-std=c++14", "-O0", "-isystem", str(tools.include)]
    command += [f"{target.name}.cpp", "-o", target.name, f"-L{tools.libraries}"]
    command += ["-larm_compute", "-ldl", "-Wl,--allow-shlib-undefined"]
    if (tools.libraries / "libarm_compute_core.so").exists():
        command.append("-larm_compute_core")
    subprocess.run(command, check=True, cwd=target.parent, timeout=300)
    return target


@dataclass(frozen=True)
class Emulated:
    """The runner, compiled."""

    program: Path

    def run(
        self,
        library: bytes,
        constants: list[np.ndarray],
        rounds: list[list[np.ndarray]],
        outputs: list[tuple[tuple[int, ...], np.dtype]],
        folder: Path,
    ) -> list[list[np.ndarray]]:
        """Open a unit, call it once with each round of inputs, and return what it wrote.

        Raises:
            RuntimeError: The unit refuses; with its message.
        """
        (folder / "lib.so").write_bytes(library)
        request = [struct.pack("<Q", len(constants)), *_blocks(constants)]
        request.append(struct.pack("<QQQ", len(rounds), len(rounds[0]), len(outputs)))
        sizes = [int(np.prod(shape)) * dtype.itemsize for shape, dtype in outputs]
        request.append(struct.pack(f"<{len(sizes)}Q", *sizes))
        for arrays in rounds:
            request += _blocks(arrays)
        command = [*(emulator() or ()), str(self.program), str(folder / "lib.so")]
        done = subprocess.run(
            command, input=b"".join(request), capture_output=True, timeout=120, env=dict(os.environ)
        )
        if done.returncode != 0:
            raise RuntimeError(f"status {done.returncode}: {done.stderr.decode().strip()}")
        found: list[list[np.ndarray]] = []
        data = memoryview(done.stdout)
        for _ in rounds:
            results: list[np.ndarray] = []
            for (shape, dtype), size in zip(outputs, sizes, strict=True):
                results.append(np.frombuffer(data[:size], dtype).reshape(shape))
                data = data[size:]
            found.append(results)
        return found


def _blocks(arrays: list[np.ndarray]) -> list[bytes]:
    parts: list[bytes] = []
    for array in arrays:
        content = np.ascontiguousarray(array).tobytes()
        parts += [struct.pack("<Q", len(content)), content]
    return parts
