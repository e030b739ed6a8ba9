"""Chroma beside a data directory."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.index.chroma.chroma_fixtures import ChromaFixture


@pytest.fixture
def fixture(tmp_path: Path) -> Iterator[ChromaFixture]:
    made = ChromaFixture(tmp_path)
    yield made
    made.close()
