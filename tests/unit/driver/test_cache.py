# SPDX-License-Identifier: Apache-2.0
"""The cache of builds: a hit is whole and of the same key; whatever else there is, is a miss."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import intarsia
from intarsia.driver import artifact as artifact_module
from intarsia.driver import cache as cache_module
from intarsia.driver.artifact import Artifact
from intarsia.driver.build import build
from intarsia.driver.cache import BuildCache, KeptArtifact, open_cache
from intarsia.host.host import Host
from intarsia_ir.graph.expr import Function, Var, call, constant
from intarsia_ir.graph.module import IRModule
from intarsia_ir.graph.types import TensorType
from intarsia_ir.ops.binary import Multiply
from intarsia_ir.ops.unary import Tanh
from intarsia_ir.writing.artifact_writer import Aside
from intarsia_runtime.artifact.archive import read_passport
from intarsia_runtime.artifact.passport import Passport
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import UsageError

from .toy import Backend, compile_main, host_of

KEY = {"model": "m", "target": "toy", "list": [1, 2]}


def make() -> Artifact:
    x = Var("x", TensorType((2, 3), DType.FLOAT32))
    return build(IRModule({"main": Function((x,), call(Tanh, x))}), "toy", host=host_of())


def never() -> Artifact:
    raise AssertionError("it is in the cache")


def yes() -> bool:
    return True


def no() -> bool:
    return False


def close(found: Artifact | KeptArtifact) -> None:
    """Close the file that an artifact from the cache lies in."""
    if isinstance(found, KeptArtifact):
        found.file.close()


def module(factor: float = 2.0) -> IRModule:
    x = Var("x", TensorType((2, 3), DType.FLOAT32))
    body = call(Multiply, x, constant(np.full(3, factor, np.float32)))
    return IRModule({"main": Function((x,), body)})


def test_a_module_is_built_once_and_fetched_then(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("INTARSIA_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(Host, "fingerprint", lambda host, kind: f"the files of {kind}")
    built: list[object] = []
    host = host_of(Backend(lambda unit, target: built.append(unit) or compile_main(unit, target)))

    def kinds_of(*modules: IRModule, **options: Any) -> list[type]:
        found = [intarsia.build_cached(one, "toy", host=host, **options) for one in modules]
        for one in found:
            close(one)
        return [type(one) for one in found]

    assert kinds_of(module(), module(), module(3.0)) == [Artifact, KeptArtifact, Artifact]
    assert kinds_of(module(), module(), mod_name="b") == [Artifact, KeptArtifact]
    assert len(built) == 3
    monkeypatch.setenv("INTARSIA_CACHE_SIZE", "0")
    assert kinds_of(module()) == [Artifact]


def test_what_cannot_be_kept_is_built(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("INTARSIA_CACHE_DIR", str(tmp_path))
    for _ in range(2):  # plugins that are no files have no fingerprint
        assert isinstance(intarsia.build_cached(module(), "toy", host=host_of()), Artifact)
    with pytest.raises(UsageError, match=r"build.. has no option 'max_region'"):
        intarsia.build_cached(module(), "toy", host=host_of(), max_region=3)


@pytest.fixture
def cache(tmp_path: Path) -> BuildCache:
    found = open_cache({"INTARSIA_CACHE_DIR": str(tmp_path)})
    assert found is not None
    return found


def test_what_was_built_is_found_under_its_key_alone(cache: BuildCache, tmp_path: Path) -> None:
    assert isinstance(cache.fetch(KEY, make, yes), Artifact)
    kept = cache.fetch(dict(reversed(KEY.items())), never, yes)
    assert isinstance(kept, KeptArtifact)
    assert kept.passport.target == "toy"
    assert kept.placement == "0/1 nodes offloaded (0 %), 0 regions, 0 B across borders"
    copy = kept.save(tmp_path / "copy.intarsia")
    make().save(tmp_path / "plain.intarsia")
    assert copy.read_bytes() == (tmp_path / "plain.intarsia").read_bytes()
    assert cache.find({**KEY, "target": "toy -x=1"}) is None
    assert [entry.key for entry in cache.entries()] == [KEY]


def test_an_entry_is_a_copy_of_the_file_that_the_user_wants(
    cache: BuildCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "wanted.intarsia"
    written: list[Path] = []
    real = artifact_module.write_artifact

    def write(path: Path, *rest: Any, **named: Any) -> Passport:
        written.append(path)
        return real(path, *rest, **named)

    def save(built: Artifact, aside: Aside | None) -> None:
        assert aside is not None
        built.save(target, aside=aside)
        assert cache.find(KEY) is not None

    monkeypatch.setattr(artifact_module, "write_artifact", write)
    assert isinstance(cache.fetch(KEY, make, yes, save), Artifact)
    (entry,) = cache.entries()
    assert entry.artifact.read_bytes() == target.read_bytes()
    assert not entry.artifact.samefile(target)
    assert written == [target]

    def refuse(*_: object) -> None:
        raise AssertionError("it was not built now")

    close(cache.fetch(KEY, never, yes, refuse))


def test_what_is_not_kept_is_saved(cache: BuildCache, tmp_path: Path) -> None:
    """Nothing is copied if the key holds no more, and a copy that fails costs the entry alone."""

    def save(built: Artifact, aside: Aside | None) -> None:
        asides.append(aside)
        built.save(tmp_path / "wanted.intarsia", aside=aside)

    asides: list[Aside | None] = []
    cache.fetch(KEY, make, no, save)
    assert asides == [None]
    assert cache.entries() == []
    before = (tmp_path / "wanted.intarsia").read_bytes()
    (tmp_path / "wanted.intarsia").unlink()

    def leave() -> Artifact:
        cache.folder.rename(tmp_path / "moved")
        return make()

    with pytest.warns(UserWarning, match="the build is not cached: cannot write"):
        cache.fetch(KEY, leave, yes, save)
    assert (tmp_path / "wanted.intarsia").read_bytes() == before


def test_a_file_that_cannot_be_written_is_an_error_with_a_cache_too(
    cache: BuildCache, tmp_path: Path
) -> None:
    def save(built: Artifact, aside: Aside | None) -> None:
        built.save(tmp_path / "absent" / "x.intarsia", aside=aside)

    with pytest.raises(UsageError, match=r"cannot write '.*absent"):
        cache.fetch(KEY, make, yes, save)
    assert cache.entries() == []


def test_a_kept_artifact_is_no_source_code(cache: BuildCache, tmp_path: Path) -> None:
    cache.fetch(KEY, make, yes)
    kept = cache.fetch(KEY, never, yes)
    for words in ({"output_format": "mlf"}, {}):
        with pytest.raises(UsageError, match="as an artifact only"):
            kept.save(f"{tmp_path}/" if not words else tmp_path / "x", **words)


def damage(cache: BuildCache, how: str) -> None:
    (entry,) = cache.entries()
    artifact, key = entry.artifact, entry.artifact.with_suffix(".json")
    data = artifact.read_bytes()
    match how:
        case "empty":
            artifact.write_bytes(b"")
        case "cut":
            artifact.write_bytes(data[: len(data) // 2])
        case "last byte":
            artifact.write_bytes(data[:-1])
        case "bit":
            at = data.index(b"lib.so") + 60
            artifact.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        case "garbage":
            artifact.write_bytes(b"garbage" * 99)
        case "other key":
            key.write_text(json.dumps({**KEY, "target": "other"}))
        case "key is a list":
            key.write_text("[]")
        case "artifact is a folder":
            artifact.unlink()
            artifact.mkdir()


@pytest.mark.parametrize(
    "how", ["empty", "cut", "last byte", "bit", "garbage", "other key", "key is a list"]
)
def test_a_damaged_entry_is_said_and_made_anew(cache: BuildCache, how: str) -> None:
    cache.fetch(KEY, make, yes)
    damage(cache, how)
    with pytest.warns(UserWarning, match="damaged, and made anew"):
        assert isinstance(cache.fetch(KEY, make, yes), Artifact)
    assert isinstance(cache.fetch(KEY, never, yes), KeptArtifact)


@pytest.mark.filterwarnings("error")
def test_an_entry_that_is_not_whole_is_none(cache: BuildCache) -> None:
    close(cache.fetch(KEY, make, yes))
    (entry,) = cache.entries()
    entry.artifact.unlink()
    assert cache.find(KEY) is None
    close(cache.fetch(KEY, make, yes))
    entry.artifact.with_suffix(".json").write_text("{")
    assert cache.find(KEY) is None
    assert cache.entries() == []


def test_a_folder_in_the_place_of_an_artifact_costs_the_entry_alone(cache: BuildCache) -> None:
    cache.fetch(KEY, make, yes)
    damage(cache, "artifact is a folder")
    with pytest.warns(UserWarning, match="is damaged|is not cached"):
        assert isinstance(cache.fetch(KEY, make, yes), Artifact)


def test_what_changed_while_it_was_built_is_not_kept(cache: BuildCache) -> None:
    assert isinstance(cache.fetch(KEY, make, no), Artifact)
    assert cache.find(KEY) is None


def test_what_was_used_longest_ago_goes_first(cache: BuildCache) -> None:
    size = None
    for number in range(4):
        key = {"number": number}
        cache.fetch(key, make, yes)
        size = size or cache.entries()[0].bytes
        (entry,) = [e for e in cache.entries() if e.key == key]
        os.utime(entry.artifact.with_suffix(".json"), (number, number))
    cache.fetch({"number": 0}, never, yes)  # used just now
    small = BuildCache(cache.folder, 2 * size + size // 2)
    small.fetch({"number": 9}, make, yes)
    assert [e.key["number"] for e in small.entries()] == [9, 0]
    tiny = BuildCache(cache.folder, 1)
    tiny.fetch({"number": 10}, make, yes)
    assert [e.key["number"] for e in tiny.entries()] == [10]  # never what was just built


def test_clearing_takes_nothing_from_who_has_it(cache: BuildCache, tmp_path: Path) -> None:
    cache.fetch(KEY, make, yes)
    kept = cache.fetch(KEY, never, yes)
    assert isinstance(kept, KeptArtifact)
    assert cache.clear() == 1
    assert cache.clear() == 0
    (lock,) = cache.folder.iterdir()  # somebody may be waiting for it
    left = cache.folder / ".x.intarsia.1.tmp"
    left.write_text("")
    for file in (lock, left):
        os.utime(file, (0, 0))
    cache.clear()
    assert list(cache.folder.iterdir()) == []
    assert read_passport(kept.save(tmp_path / "copy.intarsia")).target == "toy"
    kept.file.close()


@pytest.mark.filterwarnings("error")
def test_building_goes_on_while_somebody_clears(cache: BuildCache) -> None:
    done = threading.Event()

    def clear() -> None:
        while not done.is_set():
            cache.clear()

    thread = threading.Thread(target=clear)
    thread.start()
    try:
        for number in range(30):
            found = cache.fetch({"number": number % 3}, make, yes)
            assert found.passport.target == "toy"
            close(found)
    finally:
        done.set()
        thread.join()


CHILD = """
import importlib.util, sys, time, types
from pathlib import Path
package = types.ModuleType("t"); package.__path__ = [sys.argv[2]]; sys.modules["t"] = package
spec = importlib.util.spec_from_file_location("t.test_cache", sys.argv[2] + "/test_cache.py")
module = importlib.util.module_from_spec(spec); sys.modules["t.test_cache"] = module
spec.loader.exec_module(module)
cache = module.open_cache({"INTARSIA_CACHE_DIR": sys.argv[1]})
def make():
    with open(sys.argv[1] + "/built", "a") as file: file.write("x")
    time.sleep(float(sys.argv[3]))
    return module.make()
print(cache.fetch(module.KEY, make, module.yes).passport.target)
"""


def start(folder: Path, seconds: float) -> subprocess.Popen[str]:
    words = [sys.executable, "-c", CHILD, str(folder), str(Path(__file__).parent), str(seconds)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_of_two_processes_one_builds_and_both_have_it(tmp_path: Path) -> None:
    children = [start(tmp_path, 0.5) for _ in range(2)]
    assert [child.communicate(timeout=120)[0].strip() for child in children] == ["toy", "toy"]
    assert (tmp_path / "built").read_text() == "x"


def test_a_killed_builder_holds_up_nobody(tmp_path: Path) -> None:
    child = start(tmp_path, 60)
    deadline = time.monotonic() + 60
    while not (tmp_path / "built").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    child.send_signal(signal.SIGKILL)
    child.communicate(timeout=30)
    cache = open_cache({"INTARSIA_CACHE_DIR": str(tmp_path)})
    assert cache is not None
    begin = time.monotonic()
    cache.fetch(KEY, make, yes)
    assert time.monotonic() - begin < 10
    assert isinstance(cache.fetch(KEY, never, yes), KeptArtifact)


def test_a_builder_that_takes_too_long_is_not_waited_for(
    cache: BuildCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache_module, "_LOCK_SECONDS", 0.05)
    with (
        cache._locked(cache._path(KEY)),
        pytest.warns(UserWarning, match="not cached"),
    ):
        assert isinstance(cache.fetch(KEY, make, yes), Artifact)


def test_a_full_disk_costs_the_entry_alone(
    cache: BuildCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.warns(UserWarning, match="not cached: .*No space left"):
        assert isinstance(cache.fetch(KEY, make, yes), Artifact)
    monkeypatch.undo()
    assert [f for f in cache.folder.iterdir() if f.suffix != ".lock"] == []


@pytest.mark.parametrize(
    "how, said",
    [("a file", "File exists"), ("a link", "is a link"), ("open", "can be written to by others")],
)
def test_a_folder_that_cannot_be_trusted_is_not_used(tmp_path: Path, how: str, said: str) -> None:
    folder = tmp_path / "builds"
    if how == "a file":
        folder.write_text("")
    elif how == "a link":
        (tmp_path / "elsewhere").mkdir()
        folder.symlink_to(tmp_path / "elsewhere")
    else:
        folder.mkdir()
        folder.chmod(0o777)
    with pytest.warns(UserWarning, match=said):
        assert open_cache({"INTARSIA_CACHE_DIR": str(tmp_path)}) is None


def test_somebody_elses_folder_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.getuid", lambda: 12345)
    with pytest.warns(UserWarning, match="belongs to another user"):
        assert open_cache({"INTARSIA_CACHE_DIR": str(tmp_path)}) is None


def test_the_size_is_a_setting(tmp_path: Path) -> None:
    env = {"INTARSIA_CACHE_DIR": str(tmp_path)}
    assert open_cache({**env, "INTARSIA_CACHE_SIZE": "0"}) is None
    found = open_cache({**env, "INTARSIA_CACHE_SIZE": "2"})
    assert found is not None
    assert found.limit == 2 << 20
    with pytest.raises(UsageError, match="not an integer below 10"):
        open_cache({**env, "INTARSIA_CACHE_SIZE": "much"})
