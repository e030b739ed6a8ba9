from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.scheduler.scheduler_fixtures import SchedulerFixture


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[SchedulerFixture]:
    made = SchedulerFixture(tmp_path)
    yield made
    made.close()
