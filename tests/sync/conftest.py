from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sync.scheduler_fixtures import SchedulerFixture


@pytest.fixture
def fixture(tmp_path: Path) -> Iterator[SchedulerFixture]:
    created = SchedulerFixture(tmp_path)
    yield created
    created.close()
