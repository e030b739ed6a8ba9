from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.git_repository import Repository
from tests.support.git_servers import LocalServer, make_git_handler, run_http_server
from wikiholt.git.source import GitSource


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "wiki")


@pytest.fixture
def make_repository(tmp_path: Path) -> Callable[..., Repository]:
    return lambda name, *options: Repository(tmp_path / name, *options)


@pytest.fixture
def source(repository: Repository) -> GitSource:
    return GitSource(repository.path)


@pytest.fixture
def server(repository: Repository) -> Iterator[LocalServer]:
    with run_http_server(make_git_handler(repository.path.parent)) as running:
        yield running
