# SPDX-License-Identifier: Apache-2.0
"""Every command of the project, in one list.

``python3 noxfile.py SESSION...`` needs nothing but Python: it makes an environment for nox and runs
the sessions there. ``nox -s SESSION`` does the same where nox is installed.
``python3 noxfile.py --list`` lists them.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent
BOOTSTRAP = ROOT / ".nox" / "bootstrap"


def bootstrap(arguments: list[str]) -> int:
    """Run nox from an environment of its own, made on first use; returns its exit code."""
    scripts = BOOTSTRAP / ("Scripts" if os.name == "nt" else "bin")
    if not (scripts / "nox").exists():
        venv.create(BOOTSTRAP, with_pip=True, clear=True)
        subprocess.run(
            [scripts / "python", "-m", "pip", "install", "-q", "nox>=2025.5"], check=True
        )
    end = arguments.index("--") if "--" in arguments else len(arguments)
    words = [word for word in arguments[:end] if not word.startswith("-")]
    options = [word for word in arguments[:end] if word.startswith("-")]
    sessions = ["-s", *words] if words else []
    command = [scripts / "nox", *options, *sessions, *arguments[end:]]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(bootstrap(sys.argv[1:]))

import nox  # noqa: E402  (nox may not be installed before bootstrap() has run)

nox.options.reuse_existing_virtualenvs = True
nox.options.sessions = ["lint", "types", "tests", "docs"]

FOLDERS = {p.parent.name: p for p in sorted(ROOT.glob("plugins/*/pyproject.toml"))}
PLUGINS = tuple(f"./plugins/{name}" for name in FOLDERS if name not in ("onnx", "torch"))
CORE = tuple(f"./core/{p.parent.name}" for p in sorted(ROOT.glob("core/*/pyproject.toml")))
ONNX, TORCH = "./plugins/onnx[images]", "./plugins/torch"
PACKAGES = (*CORE, ONNX, *PLUGINS, "./tests/testkit")
MEMBERS = (*CORE, "./plugins/onnx", TORCH, *PLUGINS, "./tests/testkit")
_DEMO = ("runtime", "ir", "loops", "onnx", "llvm", "dnnl", "tools")
DEMO = ("intarsia", *(f"intarsia_{name}" for name in _DEMO))
DIGITS = ROOT / "tests" / "e2e" / "models" / "digits"
BUILD_BACKEND = "hatchling>=1.27"  # what every distribution's pyproject.toml names
TOSA_TOOLS = "tosa-tools==2026.8.*"
MODEL_PACKAGES = ("magika~=1.0", "silero-vad~=6.2")  # for the models inside, not for the code
NODE_TARGETS = ("llvm", "dnnl, llvm", "c -opt-level=0", "cuda -emulate", "emx-onnx-cgen")
NODE_RESULTS = ROOT / "docs" / "reference" / "onnx-nodes.json"
SMALL_MODELS = ("tests/unit", "tests/integration")
GROUPS = nox.project.load_toml(ROOT / "pyproject.toml")


def install(session: nox.Session, *groups: str, distributions: tuple[str, ...] = PACKAGES) -> None:
    """Install the named dependency groups and the project's distributions, those as they are now.

    Pip builds what is given as a folder anew, even where that version is installed, and would make
    an environment for each: a build backend that is installed once takes a third of the time.
    """
    wanted = [item for group in groups for item in nox.project.dependency_groups(GROUPS, group)]
    session.install("--upgrade", "pip", BUILD_BACKEND, *wanted)
    session.install("--no-build-isolation", *distributions)
    if TORCH not in distributions and ONNX in distributions:
        # what it says without PyTorch is tested too
        session.install("--no-build-isolation", "--no-deps", TORCH)


@nox.session
def demo(session: nox.Session) -> None:
    """Compile a trained digit classifier for oneDNN + LLVM and run it on held-out images."""
    install(session)
    digits(session, "python", "-m", "intarsia")


def digits(session: nox.Session, python: str, *command: str) -> None:
    """Compile the README's digit classifier, inspect it and run it on held-out images."""
    artifact = str(Path(session.create_tmp()) / "digits.intarsia")
    model = str(DIGITS / "digits.onnx")
    # LLVM's code alone is faster for digits of 8x8: without these limits oneDNN takes them.
    target = ("--target", "dnnl -min-gain=0 -min-grain=0, llvm")
    intarsia = (python, *command)
    session.run(*intarsia, "compile", model, *target, "-o", artifact, external=True)
    session.run(*intarsia, "inspect", artifact, external=True)
    session.run(python, str(ROOT / "docs" / "examples" / "digits.py"), artifact, external=True)


@nox.session
def tests(session: nox.Session) -> None:
    """Run every test: unit, plugins, host, end to end, architecture."""
    install(session, "test", "torch", distributions=(*PACKAGES, TORCH))
    session.install("--no-deps", *MODEL_PACKAGES)
    session.env.update(reference_model(session))
    # Hundreds of processes import the checkout; with no byte code each would compile it (0.5 s).
    session.env["PYTHONDONTWRITEBYTECODE"] = ""
    pytest = ("python", "-m", "pytest", "-n", "2", "--dist", "worksteal", "--durations=40")
    if session.posargs:
        session.run(*pytest, *session.posargs)
        return
    session.run(*pytest, "tests")
    for plugin in PLUGINS:
        session.run(*pytest, plugin)


def reference_model(session: nox.Session) -> dict[str, str]:
    """Install Arm's reference model of TOSA; returns the variable that says where it is.

    Its package has modules named ``tests`` and ``conformance`` and wants another NumPy, so it has
    an environment of its own. Where it cannot be installed, the tests that ask it skip.
    """
    if platform.system() != "Linux" or platform.machine() not in ("x86_64", "aarch64"):
        return {}
    folder = ROOT / ".nox" / "tosa"
    program = folder / "bin" / "tosa_reference_model"
    if not program.exists():
        venv.create(folder, with_pip=True, clear=True)
        # Only the programs inside are run, so that what its modules import is not needed.
        pip = (str(folder / "bin" / "python"), "-m", "pip", "install", "-q", "--no-deps")
        session.run(*pip, TOSA_TOOLS, external=True, success_codes=[0, 1])
    return {"TOSA_REFERENCE_MODEL": str(program)} if program.exists() else {}


@nox.session
def raises(session: nox.Session) -> None:
    """Name every ``raise`` of core that no test runs; works on the source tree itself."""
    install(session, "test", "torch", distributions=(*PACKAGES, TORCH))
    editable = [word for member in (*CORE, ONNX, TORCH) for word in ("-e", member)]
    session.install("--no-deps", "--force-reinstall", *editable)
    watch = ("-n", "2", "-p", "tests.architecture.raises")
    torch = ("tests/e2e/test_torch_compile.py", "tests/e2e/test_torch_importing.py")
    outside = (*torch, "tests/conformance/test_node_imports.py")
    session.run("python", "-m", "pytest", *watch, *SMALL_MODELS, *outside)


@nox.session
def unit(session: nox.Session) -> None:
    """Run the unit suite without its slow tests: a minute on two processors."""
    install(session, "test")
    quick = ("-m", "not slow and not exhaustive")
    session.run("python", "-m", "pytest", "-n", "2", *quick, "tests/unit", *session.posargs)


@nox.session
def conformance(session: nox.Session) -> None:
    """Run all of ONNX's backend tests, and write the page that names every one that does not pass.

    About ten minutes a target; with arguments, those alone: ``-- --target llvm --filter conv``.
    """
    install(session, "test")
    session.install("pillow", "emx-onnx-cgen==1.4.*")
    command = ("python", "-m", "tests.conformance.onnx_nodes")
    if session.posargs:
        session.run(*command, *session.posargs)
        return
    targets = (word for target in NODE_TARGETS for word in ("--target", target))
    # 1 says that a test does not pass and is not refused: the page names it.
    session.run(*command, *targets, "--record", str(NODE_RESULTS), success_codes=[0, 1])
    session.run("python", "-m", "tests.architecture.reference_pages")


@nox.session
def accuracy(session: nox.Session) -> None:
    """Measure machine functions against exact values, and write their page; takes minutes."""
    install(session, "test")
    session.run("python", "-m", "tests.conformance.intrinsic_accuracy", *session.posargs)
    session.run("python", "-m", "tests.architecture.reference_pages")


@nox.session
def kit(session: nox.Session) -> None:
    """Run the conformance kit on every plugin of the repository; minutes for each."""
    install(session, "test")
    session.run("python", "-m", "pytest", "tests/conformance/shipped_plugins.py", *session.posargs)


@nox.session
def lint(session: nox.Session) -> None:
    """Check formatting and style."""
    session.install(*nox.project.dependency_groups(GROUPS, "lint"))
    session.run("ruff", "format", "--check", ".")
    session.run("ruff", "check", ".")


@nox.session
def types(session: nox.Session) -> None:
    """Check the types of all distributions, strictly; in the environment of tests if it is made."""
    python = ROOT / ".nox" / "tests" / "bin" / "python"
    if python.exists():
        session.install(*nox.project.dependency_groups(GROUPS, "types"))
        session.run("pyright", "--pythonpath", str(python), *session.posargs)
    else:
        install(session, "types", "test")
        session.run("pyright", *session.posargs)


@nox.session
def arch(session: nox.Session) -> None:
    """Check the shape of the code: layers, cycles, sizes, names, import cost."""
    install(session, "test")
    session.run("python", "-m", "pytest", "tests/architecture", *session.posargs)


@nox.session
def golden(session: nox.Session) -> None:
    """Rewrite the golden files; read the difference before you commit it."""
    install(session, "test")
    session.run("python", "-m", "pytest", *SMALL_MODELS, "--update-golden", *session.posargs)


@nox.session
def pages(session: nox.Session) -> None:
    """Write the generated pages of the docs anew; ``-- --measure`` runs the kit on every plugin."""
    install(session, "test")
    session.run("python", "-m", "tests.architecture.reference_pages", *session.posargs)


@nox.session
def docs(session: nox.Session) -> None:
    """Build the documentation; warnings are errors."""
    install(session, "docs", distributions=(*CORE, ONNX))
    session.run("sphinx-build", "-W", "-q", "-b", "html", "docs", "docs/_build/html")


def build_members(session: nox.Session, folder: str) -> None:
    """Build the wheels and sources of all distributions into a folder."""
    for member in MEMBERS:
        session.run("python", "-m", "build", "--outdir", folder, member)


@nox.session
def build(session: nox.Session) -> None:
    """Build all wheels and sources, and run the demo in an empty environment from the wheels."""
    session.install(*nox.project.dependency_groups(GROUPS, "release"), "pytest", "packaging")
    session.run(
        "python", "-m", "pytest", "-q", "--noconftest", "tests/architecture/test_versions.py"
    )
    dist = Path(session.create_tmp()) / "dist"
    shutil.rmtree(dist, ignore_errors=True)
    build_members(session, str(dist))
    empty = dist.parent / "empty"
    venv.create(empty, with_pip=True, clear=True)
    python = str(empty / "bin" / "python")
    pip = (python, "-m", "pip", "--disable-pip-version-check")
    # Ours come from the wheels alone: no other index is asked for a name of this project.
    ours = [str(next(dist.glob(f"{name}-*.whl"))) for name in DEMO]
    session.run(*pip, "install", "-q", "--no-index", "--no-deps", *ours, external=True)
    session.run(*pip, "install", "-q", f"{ours[0]}[default]", external=True)
    session.run(*pip, "check", external=True)
    digits(session, python, "-I", "-m", "intarsia")


@nox.session
def release(session: nox.Session) -> None:
    """Release all distributions: ``-- 0.2.0`` sets the version, the changelog, and builds dist/."""
    if len(session.posargs) != 1:
        session.error("name the new version: nox -s release -- 0.2.0")
    (version,) = session.posargs
    session.install(*nox.project.dependency_groups(GROUPS, "release"), "packaging", "twine")
    session.run("python", "-m", "tests.architecture.versions", version)
    session.run("towncrier", "build", "--yes", "--version", version)
    folder = f"dist/{version}"
    build_members(session, folder)
    built = sorted(str(path) for path in (ROOT / folder).iterdir())
    session.run("twine", "check", "--strict", *built)
    session.log(f"read the changelog, commit, tag v{version}; then: twine upload {folder}/*")


@nox.session
def minimums(session: nox.Session) -> None:
    """Run the unit tests with the lowest version of every dependency that we say works."""
    session.install("uv")
    tests = nox.project.dependency_groups(GROUPS, "test")
    uv = ("uv", "pip", "install", "--python", session.virtualenv.bin + "/python")
    session.run(*uv, "--resolution", "lowest-direct", *PACKAGES, *tests)
    session.run(*uv, "--no-deps", TORCH)
    session.run("python", "-m", "pytest", "-n", "2", *SMALL_MODELS, *session.posargs)


@nox.session
def downstream(session: nox.Session) -> None:
    """Run the kit of this host on plugins as they were released: ``-- FOLDER`` of their wheels."""
    if not session.posargs:
        session.error("name a folder with wheels of plugins: nox -s downstream -- dist/0.1.0")
    folder, *words = session.posargs
    names = {Path(member).name for member in PLUGINS}
    wheels = sorted(
        p for n in names for p in Path(folder).glob(f"intarsia_{n.replace('-', '_')}-*.whl")
    )
    if not wheels:
        session.error(f"there is no wheel of a plugin in '{folder}'")
    install(session, "test", distributions=(*CORE, ONNX, "./tests/testkit"))
    # With what they need of others; what they ask of this host is here, or pip names the conflict.
    session.install(*map(str, wheels))
    session.run("python", "-m", "pytest", "tests/conformance/shipped_plugins.py", *words)


@nox.session
def mcu(session: nox.Session) -> None:
    """Run the tiny nets on emulated Cortex-M boards; prints flash, RAM and instructions."""
    install(session, "test")
    report = Path(session.create_tmp()) / "mcu.txt"
    report.unlink(missing_ok=True)
    tests = str(ROOT / "plugins" / "c" / "tests" / "mcu")
    pytest = ("python", "-m", "pytest", "-q", "-n", "2", "-rs", tests, *session.posargs)
    session.run(*pytest, env={"INTARSIA_MCU_REPORT": str(report)})


@nox.session
def instructions(session: nox.Session) -> None:
    """Count instructions of AVX2 and NEON kernels, under callgrind and QEMU; some minutes."""
    install(session, "test")
    session.run("python", "-m", "tests.bench.instructions", *session.posargs)


@nox.session
def bench(session: nox.Session) -> None:
    """Measure against other runtimes, in turn; hold ratios against those committed, write them."""
    install(session, "test", "torch", "bench", distributions=(*PACKAGES, TORCH))
    session.run("python", "-m", "pytest", "-s", "-p", "no:xdist", "tests/bench")
    if os.environ.get("INTARSIA_MODELS"):
        session.run("python", "-m", "tests.bench.report", *session.posargs)
