from collections.abc import Iterator
from pathlib import Path

import pytest
from backup_ground import Ground


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    made = Ground(tmp_path)
    yield made
    made.service.close()
