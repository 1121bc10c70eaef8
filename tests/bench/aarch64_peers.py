# SPDX-License-Identifier: Apache-2.0
"""The layers of ``tests.bench.aarch64`` by ONNX Runtime and Arm Compute Library, counted alike.

``python -m tests.bench.aarch64_peers --onnxruntime LIBRARY`` counts instructions of one run under
QEMU. The library is ``libonnxruntime.so`` of a wheel for AArch64; it asks the kernel about the
processor, so the emulator is shown files of a Neoverse N2. Arm Compute Library is found as the
plugin ``arm_acl`` finds it. Both run on the C library of Debian's packages for arm64.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import onnx

from intarsia_arm_acl.toolchain import find_toolchain

from .aarch64 import KERNELS, Kernel, counter

SOURCES = Path(__file__).parent
CPU = "max,sve=off"
_CALLS = (2, 12)
_SECONDS = 120
_FILES = {
    "proc/cpuinfo": "processor\t: 0\nFeatures\t: fp asimd fphp asimdhp asimddp asimdfhm i8mm bf16\n"
    "CPU implementer\t: 0x41\nCPU architecture: 8\nCPU variant\t: 0x0\nCPU part\t: 0xd49\n"
    "CPU revision\t: 0\n\n",
    **dict.fromkeys((f"sys/devices/system/cpu/{name}" for name in
                     ("possible", "present", "online", "kernel_max")), "0\n"),
    "sys/devices/system/cpu/cpu0/regs/identification/midr_el1": "0x410fd490\n",
    **dict.fromkeys((f"sys/devices/system/cpu/cpu0/topology/{name}" for name in
                     ("physical_package_id", "core_id", "core_siblings_list")), "0\n"),
    "sys/devices/system/cpu/cpu0/topology/core_siblings": "1\n",
}  # fmt: skip
"""What a program under emulation sees of the processor, where it would see this machine's."""


def counted(command: list[str], plugin: Path, root: Path) -> float:
    """Return the instructions of one call of a program that takes the number of calls.

    Raises:
        RuntimeError: It failed; with what it wrote.
    """

    def total(calls: int) -> int:
        result = root / "count"
        tool = ["qemu-aarch64", "-L", str(root), "-plugin", f"{plugin},result={result}"]
        done = subprocess.run(
            [*tool, *command, str(calls)],
            capture_output=True, text=True, timeout=_SECONDS, check=False, env={"QEMU_CPU": CPU},
        )  # fmt: skip
        if done.returncode != 0:
            raise RuntimeError(done.stderr.strip() or f"status {done.returncode}")
        return int(result.read_text())

    few, many = _CALLS
    return (total(many) - total(few)) / (many - few)


def show_processor(root: Path) -> None:
    """Write the files of a processor under the emulator's root."""
    for name, text in _FILES.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def by_onnxruntime(name: str, kernel: Kernel, library: Path, plugin: Path, folder: Path) -> float:
    """Count a kernel of ONNX Runtime."""
    program = folder / "onnxruntime_layers"
    if not program.exists():
        source = SOURCES / "onnxruntime_layers.c"
        tool = ["aarch64-linux-gnu-gcc", "-O1", str(source), "-o", str(program), "-ldl"]
        subprocess.run(tool, check=True)
    onnx.save(kernel.model, folder / "model.onnx")
    declared = kernel.model.graph.input[0].type.tensor_type
    shape = [size.dim_value for size in declared.shape.dim]
    numbers = (int("bfloat16" in name), declared.elem_type, len(shape), *shape)
    paths = (program, library, folder / "model.onnx")
    return counted([*map(str, paths), *map(str, numbers)], plugin, folder)


def by_acl(name: str, plugin: Path, folder: Path) -> float:
    """Count the layer of Arm Compute Library that a kernel's name stands for."""
    tools, program = find_toolchain(""), folder / "acl_layers"
    if not program.exists():
        command = [tools.compiler, "-std=c++14", "-O1", "-isystem", str(tools.include)]
        command += [str(SOURCES / "acl_layers.cpp"), "-o", str(program), f"-L{tools.libraries}"]
        command += ["-larm_compute", "-Wl,--allow-shlib-undefined"]
        if (tools.libraries / "libarm_compute_core.so").exists():
            command.append("-larm_compute_core")
        subprocess.run(command, check=True)
    layer = "product" if "product" in name else "convolution"
    return counted([str(program), layer, name.split()[0]], plugin, folder)


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--onnxruntime", type=Path, help="libonnxruntime.so for AArch64")
    library = parser.parse_args().onnxruntime
    print("| kernel | library | instructions, M | a multiply-add |\n|---|---|--:|--:|")
    with tempfile.TemporaryDirectory() as name_of_folder:
        folder = Path(name_of_folder)
        show_processor(folder)
        plugin = counter(folder)
        for name, kernel in KERNELS.items():
            ways = {"Arm Compute Library": lambda n=name: by_acl(n, plugin, folder)}
            if library is not None:
                ways["ONNX Runtime"] = lambda n=name, k=kernel: by_onnxruntime(
                    n, k, library, plugin, folder
                )
            for peer, count in ways.items():
                if peer.startswith("Arm") and "bfloat16" in name:
                    continue  # the version of the packages has no such option
                try:
                    got = count()
                except RuntimeError as error:
                    print(f"| {name} | {peer} | {error} | |", flush=True)
                    continue
                each = got / kernel.products
                print(f"| {name} | {peer} | {got / 1e6:.2f} | {each:.3f} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
