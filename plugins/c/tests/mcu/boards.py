# SPDX-License-Identifier: Apache-2.0
"""Build a model's folder for a Cortex-M, and run it on a board that QEMU emulates.

The folder is one of sources, by backend ``c``, or one of an object, by backend ``llvm``.
"""

from __future__ import annotations

import shutil
import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import intarsia
from intarsia import Executor, Runtime
from intarsia_loops.codegen.c_interface import identifier
from intarsia_runtime.artifact.passport import Passport

HERE = Path(__file__).resolve().parent
STRICT = ("-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror")
TOOLS = ("arm-none-eabi-gcc", "qemu-system-arm", "cc")
MISSING = [tool for tool in TOOLS if not shutil.which(tool)]
WHY_NOT = f"{', '.join(MISSING)} not installed (gcc-arm-none-eabi, qemu-system-arm)"
SECONDS = 500
STACK = 16 * 1024


@dataclass(frozen=True)
class Board:
    """A board of QEMU: its processor, and where code, weights and data lie."""

    name: str
    cpu: str
    triple: str
    flags: tuple[str, ...]
    code: int = 0
    rom: int = 0x00100000
    ram: int = 0x20000000


BOARDS = (
    Board("mps2-an385", "cortex-m3", "thumbv7m-none-eabi", ("-mfloat-abi=soft",)),
    Board("mps2-an386", "cortex-m4", "thumbv7em-none-eabihf",
          ("-mfloat-abi=hard", "-mfpu=fpv4-sp-d16")),
    Board("mps2-an500", "cortex-m7", "thumbv7em-none-eabihf",
          ("-mfloat-abi=hard", "-mfpu=fpv5-d16")),
    Board("mps2-an505", "cortex-m33", "thumbv8m.main-none-eabihf",
          ("-mfloat-abi=hard", "-mfpu=fpv5-sp-d16"), 0x10000000, 0x10100000, 0x38000000),
    Board("mps3-an547", "cortex-m55", "thumbv8.1m.main-none-eabihf",
          ("-mfloat-abi=hard", "-mfpu=auto"), 0x10000000, 0x70000000, 0x71000000),
)  # fmt: skip
"""Boards from a core without floating point to one with vectors."""

_LINK = """
MEMORY {{ CODE : ORIGIN = {code:#x}, LENGTH = 512K
          ROM : ORIGIN = {rom:#x}, LENGTH = 3M
          RAM : ORIGIN = {ram:#x}, LENGTH = 2M }}
SECTIONS {{
  .text : {{ KEEP(*(.vectors)) *(.text*) }} > CODE
  .rodata : {{ *(.rodata*) }} > ROM
  .data : {{ *(.data*) }} > RAM
  .bss (NOLOAD) : {{ bss_start = .; *(.bss*) *(COMMON) . = ALIGN(8); bss_end = .; }} > RAM
  .stack (NOLOAD) : {{ stack_bottom = .; . += {stack}; stack_top = .; }} > RAM
  /DISCARD/ : {{ *(.ARM.exidx*) *(.ARM.extab*) }}
}}
"""

_MAIN = """
#include "{name}.h"
{files}
void mark_begin(void);
void mark_end(void);
{attribute} void mark_begin(void) {{ __asm__ volatile(""); }}
{attribute} void mark_end(void) {{ __asm__ volatile(""); }}

static union {{ unsigned char bytes[{upper}_WORKSPACE_SIZE + 1]; uint64_t aligned; }} workspace;
static union {{ unsigned char bytes[{inputs}]; uint64_t aligned; }} input;
static union {{ unsigned char bytes[{outputs}]; uint64_t aligned; }} output;

int run(void)
{{
    struct {name}_inputs inputs;
    struct {name}_outputs outputs;
    inputs.{x} = (const void *)input.bytes;
    outputs.{y} = (void *)output.bytes;
    if (read_file("in.bin", input.bytes, sizeof input.bytes) != 0) {{
        return 2;
    }}
    mark_begin();
    const int status = {name}_run(&inputs, &outputs, workspace.bytes);
    mark_end();
    if (status != 0) {{
        return 3;
    }}
    const uint32_t unused = unused_stack();
    if (write_file("stack.bin", &unused, sizeof unused) != 0) {{
        return 4;
    }}
    return write_file("out.bin", output.bytes, sizeof output.bytes) == 0 ? 0 : 5;
}}
"""

_HOST = """
#include <stdint.h>
#include <stdio.h>
static int read_file(const char *name, void *data, uint32_t bytes)
{
    FILE *file = fopen(name, "rb");
    return file != 0 && fread(data, bytes, 1, file) == 1 && fclose(file) == 0 ? 0 : -1;
}
static int write_file(const char *name, const void *data, uint32_t bytes)
{
    FILE *file = fopen(name, "wb");
    return file != 0 && fwrite(data, bytes, 1, file) == 1 && fclose(file) == 0 ? 0 : -1;
}
static uint32_t unused_stack(void)
{
    return 0;
}
int run(void);
int main(void)
{
    return run();
}
"""


@dataclass(frozen=True)
class Measured:
    """What a run on a board says.

    Attributes:
        output: The bytes of the model's output.
        flash: Code and weights, and all of the program around them.
        ram: Workspace, input, output, and the stack that was used.
        instructions: Of one run of the model.
    """

    output: bytes
    flash: int
    ram: int
    instructions: int


@dataclass(frozen=True)
class Model:
    """A model compiled to a folder of sources, or of an object and its header."""

    folder: Path
    name: str
    passport: Passport

    @property
    def sources(self) -> list[str]:
        """The C files, below the folder."""
        return sorted(f"src/{file.name}" for file in self.folder.glob("src/*"))

    @property
    def objects(self) -> list[str]:
        """The object files, below the folder."""
        return sorted(f"lib/{file.name}" for file in self.folder.glob("lib/*"))

    def write_main(self, *, host: bool) -> str:
        """Write the program around the model; returns the file's name."""
        plan = self.passport.plan
        header = (self.folder / "include" / f"{self.name}.h").read_text()
        x, y = (
            header.split(f"struct {self.name}_{what} {{\n")[1].split("*")[1].split(";")[0]
            for what in ("inputs", "outputs")
        )
        text = _MAIN.format(
            name=self.name, upper=self.name.upper(), x=x, y=y,
            inputs=plan.inputs[0].bytes, outputs=plan.outputs[0].bytes,
            files=_HOST if host else '#include "startup.h"',
            attribute="__attribute__((noinline, noclone))",
        )  # fmt: skip
        file = "host.c" if host else "board.c"
        (self.folder / file).write_text(text)
        return file


def compile_model(path: Path, folder: Path, target: str) -> Model:
    """Compile a model with one input and one output."""
    executor = {
        "unpacked-api": True, "interface-api": "c",
        "workspace-byte-alignment": 8, "constant-byte-alignment": 8,
    }  # fmt: skip
    artifact = intarsia.build(
        path, target=target, executor=Executor("aot", executor),
        runtime=Runtime("c", {"link-params": True}), mod_name=path.stem,
    )  # fmt: skip
    return Model(artifact.save(f"{folder}/"), identifier(path.stem), artifact.passport)


def run_on_host(model: Model, x: np.ndarray) -> bytes:
    """Compile the same sources for this machine, and run them."""
    (model.folder / "in.bin").write_bytes(x.tobytes())
    argv = ["cc", "-std=c99", "-O2", "-ffp-contract=off", "-Iinclude", model.write_main(host=True)]
    _run([*argv, *model.sources, "-o", "host", "-lm"], model.folder)
    _run(["./host"], model.folder)
    return (model.folder / "out.bin").read_bytes()


def run_on_board(model: Model, x: np.ndarray, board: Board, level: str = "-O2") -> Measured:
    """Cross-compile with every warning an error, emulate, and count."""
    folder = model.folder
    (folder / "in.bin").write_bytes(x.tobytes())
    (folder / "out.bin").unlink(missing_ok=True)
    script = _LINK.format(code=board.code, rom=board.rom, ram=board.ram, stack=STACK)
    (folder / "link.ld").write_text(script)
    cc = ["arm-none-eabi-gcc", f"-mcpu={board.cpu}", "-mthumb", *board.flags, "-std=c99", level,
          "-ffunction-sections", "-Iinclude", f"-I{HERE}"]  # fmt: skip
    objects = model.objects
    for source in (*model.sources, model.write_main(host=False), str(HERE / "startup.c")):
        objects.append(f"{Path(source).stem}.o")
        strict = STRICT if source in model.sources else ()
        _run([*cc, *strict, "-c", source, "-o", objects[-1]], folder)
    link = ["-nostartfiles", "-Tlink.ld", "-Wl,--gc-sections", "-lm", "-lc", "-lgcc"]
    _run([*cc, *objects, "-o", "model.elf", *link], folder)
    sections = _sections(folder / "model.elf")
    marks = _symbols(folder / "model.elf")
    plugin = _counter(folder)
    counted = f"{plugin},begin={marks['mark_begin']},end={marks['mark_end']},result=count.txt"
    _run(
        ["qemu-system-arm", "-M", board.name, "-nographic", "-monitor", "none", "-serial", "none",
         "-semihosting-config", "enable=on,target=native", "-plugin", counted,
         "-kernel", "model.elf"],
        folder,
    )  # fmt: skip
    (unused,) = struct.unpack("<I", (folder / "stack.bin").read_bytes())
    return Measured(
        (folder / "out.bin").read_bytes(),
        flash=sum(sections.get(name, 0) for name in (".text", ".rodata", ".data")),
        ram=sections.get(".data", 0) + sections.get(".bss", 0) + STACK - unused,
        instructions=int((folder / "count.txt").read_text()),
    )


def _counter(folder: Path) -> Path:
    plugin = folder / "counter.so"
    _run(["cc", "-O2", "-shared", "-fPIC", str(HERE / "counter.c"), "-o", str(plugin)], folder)
    return plugin


def _sections(elf: Path) -> dict[str, int]:
    rows = [
        line.split()
        for line in _run(["arm-none-eabi-size", "-A", elf.name], elf.parent).splitlines()
    ]
    return {row[0]: int(row[1]) for row in rows if len(row) == 3 and row[0].startswith(".")}


def _symbols(elf: Path) -> dict[str, str]:
    rows = [line.split() for line in _run(["arm-none-eabi-nm", elf.name], elf.parent).splitlines()]
    return {row[2]: f"0x{row[0]}" for row in rows if len(row) == 3}


def _run(argv: list[str], folder: Path) -> str:
    done = subprocess.run(
        argv, cwd=folder, capture_output=True, text=True, timeout=SECONDS,
        stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{argv[0]} returned {done.returncode}:\n{done.stderr[-2000:]}"
    return done.stdout
