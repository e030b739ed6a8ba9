"""A wiki of three pages."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.indexed_wiki import COMPOST, HOME, SPADE, IndexedWiki


@pytest.fixture
def notes(tmp_path: Path) -> Iterator[IndexedWiki]:
    made = IndexedWiki(tmp_path, {"home.md": HOME, "compost.md": COMPOST, "tools/spade.md": SPADE})
    yield made.sync()
    made.close()
