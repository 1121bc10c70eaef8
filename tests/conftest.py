# SPDX-License-Identifier: Apache-2.0
"""Fixtures of all tests: golden files, a cache folder of their own, quick exports of PyTorch."""

from __future__ import annotations

import importlib
import signal
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import hypothesis
import pytest

# Other work shares the machine: what takes long is no fault of a test.
slow = [hypothesis.HealthCheck.too_slow]
hypothesis.settings.register_profile("intarsia", deadline=None, suppress_health_check=slow)
hypothesis.settings.load_profile("intarsia")

GOLDEN = Path(__file__).parent / "golden"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--update-golden``."""
    parser.addoption(
        "--update-golden", action="store_true", help="write golden files instead of comparing"
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the slow tests: a long one that begins last keeps one worker busy, others wait."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep tests, and the processes they start, out of the user's cache folder and its size."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("INTARSIA_CACHE_SIZE", raising=False)
        patch.setenv("INTARSIA_CACHE_DIR", str(tmp_path_factory.mktemp("intarsia-cache")))
        yield


@pytest.fixture
def heeds_interrupts() -> Iterator[None]:
    """Let SIGINT interrupt this process and its children: jobs in the background ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="session")
def quick_export() -> Iterator[None]:
    """Let torch.onnx read its table of operators once, and not at every export (0.4 s each)."""
    registration = importlib.import_module("torch.onnx._internal.exporter._registration")
    registry = registration.ONNXRegistry
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "from_torchlib", staticmethod(cache(registry.from_torchlib)))
        yield


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Compare a text with the test's golden file, ``tests/golden/<module>/<test><suffix>``."""
    module = Path(request.node.path).stem.removeprefix("test_")
    stem = request.node.originalname.removeprefix("test_")

    def compare(text: str, suffix: str = ".ir") -> None:
        path = GOLDEN / module / f"{stem}{suffix}"
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        assert path.is_file(), f"{path} is missing; write it with --update-golden, and read it"
        assert text == path.read_text()

    return compare
