from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.wikis.backups.backup_fixtures import BackupFixture


@pytest.fixture
def fixture(tmp_path: Path) -> Iterator[BackupFixture]:
    made = BackupFixture(tmp_path)
    yield made
    made.service.close()
