# SPDX-License-Identifier: Apache-2.0
"""Fixtures of all tests: golden files, a cache folder of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

GOLDEN = Path(__file__).parent / "golden"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--update-golden``."""
    parser.addoption(
        "--update-golden", action="store_true", help="write golden files instead of comparing"
    )


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep tests, and the processes they start, out of the user's cache folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("INTARSIA_CACHE_DIR", str(tmp_path_factory.mktemp("intarsia-cache")))
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
