"""An empty registry."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.wait import TIMEOUT_S
from wikiholt.wikis.registry import Registry


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "registry.db"


@pytest.fixture
def registry(path: Path) -> Iterator[Registry]:
    registry = Registry(path, timeout_s=TIMEOUT_S)
    yield registry
    registry.close()
