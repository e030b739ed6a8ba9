"""Many wikis in one process with a low limit of open files."""

import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.git_repository import Repository
from wikiholt.api.bootstrap import open_service, raise_file_limit
from wikiholt.domain.search import SearchMode
from wikiholt.search.request import SearchRequest

pytestmark = pytest.mark.model
WIKI_COUNT = 40


def count_open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.fixture
def low_limit() -> Iterator[int]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    in_use = count_open_files()
    resource.setrlimit(resource.RLIMIT_NOFILE, (in_use + 200, hard))
    yield in_use
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_many_wikis_need_few_open_files(tmp_path: Path, low_limit: int) -> None:
    service = open_service(tmp_path / "data")
    try:
        for number in range(WIKI_COUNT):
            repository = Repository(tmp_path / f"wiki-{number}")
            repository.commit({"home.md": f"Boats of harbour {number}"})
            service.add(f"wiki-{number}", str(repository.path), {})
            service.get_handle(f"wiki-{number}").sync()
        for number in range(WIKI_COUNT):
            request = SearchRequest("boats", mode=SearchMode.KEYWORD)
            assert service.get_handle(f"wiki-{number}").search(request).hits
        assert count_open_files() - low_limit <= 4 * 32 + 8  # index, log, its index, and vectors
    finally:
        service.close()


def test_the_limit_of_open_files_is_raised_as_far_as_allowed(low_limit: int) -> None:
    raise_file_limit()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert soft >= min(8192, hard if hard != resource.RLIM_INFINITY else 8192) > low_limit
