from collections.abc import Iterator

import pytest

from tests.support.served_application import ServedApplication, serve_application


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedApplication]:
    """Two wikis that tests only read."""
    with serve_application(tmp_path_factory.mktemp("shared")) as served:
        yield served


@pytest.fixture
def writable(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedApplication]:
    """Two wikis for one test, which may write to them."""
    with serve_application(tmp_path_factory.mktemp("own")) as served:
        yield served
