"""A service with the two wikis of an import, for each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.api.importer.import_fixtures import ImportFixture


@pytest.fixture
def imports(tmp_path: Path) -> Iterator[ImportFixture]:
    imports = ImportFixture(tmp_path)
    yield imports
    imports.close()
