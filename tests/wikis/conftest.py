"""An empty registry."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from wikiholt.wikis.registry import Registry


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "registry.db"


@pytest.fixture
def registry(path: Path) -> Iterator[Registry]:
    registry = Registry(path)
    yield registry
    registry.close()
