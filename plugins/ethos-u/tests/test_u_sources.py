# SPDX-License-Identifier: Apache-2.0
"""A model with a region as sources of runtime ``c``: a program of host code, region and driver."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import intarsia
from intarsia import Artifact, Executor, Runtime
from intarsia_ethos_u.tosa.execute import execute, inwards
from intarsia_ethos_u.tosa.program import FILE, parse_program
from intarsia_testkit.qdq_models import channelled_residual_net

from .test_u_glue import DRIVER, STRICT, places
from .tools import needs_vela

TYPED = {"unpacked-api": True, "interface-api": "c", "workspace-byte-alignment": 16}
TARGET = "ethos-u -accelerator-config=ethos-u55-128, c -mcpu=cortex-m55"
CORES = {
    "cortex-m55": "-mcpu=cortex-m55",
    # By its architecture: compilers before GCC 13 do not know the name.
    "cortex-m85": "-march=armv8.1-m.main+mve.fp+fp.dp",
}
MAIN = """
#include "net.h"
#include "net_ethos_u_0.h"

static union { unsigned char bytes[NET_WORKSPACE_SIZE]; uint64_t aligned; } workspace;
static union { unsigned char bytes[NET_ETHOS_U_0_ARENA_SIZE]; uint64_t aligned[2]; } arena;
static float image[3 * 16 * 16];
float scores[10];

int main(void)
{
    struct ethosu_driver *const driver = 0; /* Of ethosu_init(), with the board's addresses. */
    struct net_ethos_u_0_device device = {driver, arena.bytes, 0};
    const struct net_regions regions = {&device};
    const struct net_inputs inputs = {image};
    struct net_outputs outputs = {scores};
    return net_run(&inputs, &outputs, &regions, workspace.bytes);
}
"""


class Regions(ctypes.Structure):
    _fields_ = [("ethos_u_0", ctypes.c_void_p)]


class Device(ctypes.Structure):
    _fields_ = [(name, ctypes.c_void_p) for name in ("driver", "arena", "fast")]


class One(ctypes.Structure):
    """The inputs, or the outputs, of a model that has one."""

    _fields_ = [("data", ctypes.c_void_p)]


def sources(folder: Path, executor: dict[str, object] | None = None, name: str = "net") -> Artifact:
    """Write the folder of the model; return what it was made of."""
    artifact = intarsia.build(
        channelled_residual_net().SerializeToString(),
        TARGET,
        executor=Executor("aot", TYPED if executor is None else executor),
        runtime=Runtime("c", {"link-params": True}),
        mod_name=name,
    )
    artifact.save(f"{folder}/")
    return artifact


@needs_vela
@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_the_program_gives_the_reference_result(tmp_path: Path) -> None:
    """A driver that plays the device, and leaves the region's reference result in its arena."""
    folder = tmp_path / "net"
    artifact = sources(folder)
    (tmp_path / "driver.c").write_text(DRIVER)
    library = tmp_path / "net.so"
    listed = [folder / "src/net.c", folder / "src/net_ethos_u_0.c", tmp_path / "driver.c"]
    command = ["cc", *STRICT, "-shared", "-fPIC", f"-I{folder / 'include'}", "-o", str(library)]
    subprocess.run([*command, *map(str, listed), "-lm"], check=True)
    native = ctypes.CDLL(str(library))

    image = np.random.default_rng(4).uniform(-2, 2, (1, 3, 16, 16)).astype(np.float32)
    here = TARGET.removesuffix(" -mcpu=cortex-m55").replace("ethos-u ", "ethos-u -simulate ")
    whole = intarsia.build(channelled_residual_net().SerializeToString(), here)
    expected = whole.load().run({"image": image})["scores"]

    unit = artifact.units[1]
    program = parse_program(unit.files[FILE])
    stored = np.clip(np.rint(image / np.float32(0.02)), -128, 127).astype(np.int8)
    (result,) = execute(program, dict(whole.units[1].constants), [stored])
    (place,) = places(unit.files["estimate.json"], "outputs")
    memory = np.zeros(65536, np.uint8)
    memory[place.offset : place.offset + place.size] = result.reshape(-1).view(np.uint8)
    ctypes.memmove((ctypes.c_ubyte * 65536).in_dll(native, "given"), memory.tobytes(), 65536)

    scores, arena = np.zeros((1, 10), np.float32), np.zeros(65536, np.uint8)
    device = Device(5, arena.ctypes.data, 0)
    workspace = np.zeros(65536, np.uint8)
    given = [One(image.ctypes.data), One(scores.ctypes.data), Regions(ctypes.addressof(device))]
    assert native.net_run(*map(ctypes.byref, given), ctypes.c_void_p(workspace.ctypes.data)) == 0
    np.testing.assert_array_equal(scores, expected)

    (at,) = places(unit.files["estimate.json"], "inputs")
    seen = bytes((ctypes.c_ubyte * 65536).in_dll(native, "seen"))
    wanted = inwards(program.inputs[0], stored).tobytes()
    assert seen[at.offset : at.offset + at.size] == wanted
    ctypes.c_int.in_dll(native, "answer").value = 5
    assert native.net_run(*map(ctypes.byref, given), ctypes.c_void_p(workspace.ctypes.data)) == -1


@needs_vela
@pytest.mark.parametrize("core", CORES)
def test_the_program_links_for_a_microcontroller(core: str, tmp_path: Path) -> None:
    """Everything but the driver, which a stub stands in for."""
    compiler = shutil.which("arm-none-eabi-gcc")
    if compiler is None:
        pytest.skip("no arm-none-eabi-gcc")
    folder = tmp_path / "net"
    sources(folder)
    (tmp_path / "main.c").write_text(MAIN)
    stub = "int ethosu_invoke_v3(void); int ethosu_invoke_v3(void) { return 1; }\n"
    (tmp_path / "driver.c").write_text(stub)
    flags = [CORES[core], "-mthumb", "-mfloat-abi=hard", "-O2", *STRICT]
    made: list[str] = []
    for path in (*sorted((folder / "src").iterdir()), tmp_path / "main.c", tmp_path / "driver.c"):
        made.append(str(tmp_path / f"{path.stem}.o"))
        command = [compiler, *flags, f"-I{folder / 'include'}", "-c", str(path), "-o", made[-1]]
        subprocess.run(command, check=True)
    linked = str(tmp_path / "net.elf")
    command = [compiler, *flags, "--specs=nosys.specs", *made, "-o", linked, "-lm"]
    subprocess.run(command, check=True, capture_output=True)
    assert Path(linked).stat().st_size > 4000


@needs_vela
@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_two_models_are_one_program(tmp_path: Path) -> None:
    """Their regions are called alike; no name of the one is a name of the other."""
    made: list[str] = []
    for name in ("net", "other"):
        sources(tmp_path / name, name=name)
        made += [str(path) for path in sorted((tmp_path / name / "src").iterdir())]
    folders = [f"-I{tmp_path / name / 'include'}" for name in ("net", "other")]
    main = MAIN.replace('#include "net.h"', '#include "net.h"\n#include "other.h"')
    main = main.replace('"net_ethos_u_0.h"', '"net_ethos_u_0.h"\n#include "other_ethos_u_0.h"')
    (tmp_path / "main.c").write_text(main)
    (tmp_path / "driver.c").write_text(DRIVER)
    paths = [str(tmp_path / name) for name in ("main.c", "driver.c")]
    command = ["cc", *STRICT, *folders, *made, *paths, "-o", str(tmp_path / "both"), "-lm"]
    subprocess.run(command, check=True)


@needs_vela
def test_packed_functions_take_the_regions_first(tmp_path: Path) -> None:
    folder = tmp_path / "net"
    sources(folder, {"workspace-byte-alignment": 16})
    header = (folder / "include/net.h").read_text()
    assert "packed: the address of the regions, the inputs, the outputs" in header
    source = (folder / "src/net.c").read_text()
    assert "return net_run(&inputs, &outputs, args[0].value.pointer, start);" in source
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    command = [compiler, *STRICT, f"-I{folder / 'include'}", "-c", "-o", str(tmp_path / "net.o")]
    subprocess.run([*command, str(folder / "src/net.c")], check=True)
