"""The same wiki gives the same answers from either store, with the real model."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from wikiholt.api.bootstrap import open_service
from wikiholt.domain.search import PageFilter, SearchMode, SearchResult
from wikiholt.interfaces.cli.demo_command import DEMO_QUERIES, write_demo_wikis
from wikiholt.search.request import SearchRequest
from wikiholt.wikis.service import WikiService

pytestmark = pytest.mark.model

MORE_QUERIES = (
    '"compost heap" weeds',
    "water -rain",
    "restor",
    "pager alert who is on call",
    "当番",
    "what to sow in march",
)


@pytest.fixture
def services(database: str, tmp_path: Path) -> Iterator[tuple[WikiService, WikiService]]:
    wikis = write_demo_wikis(tmp_path / "demo")
    with ExitStack() as stack:
        services = []
        for name, store in (("embedded", ""), ("postgres", database)):
            service = open_service(tmp_path / name, overrides={"store": store})
            stack.callback(service.close)
            for slug, repository in wikis.items():
                service.add(slug, str(repository), {})
                service.get_handle(slug).sync()
            services.append(service)
        yield services[0], services[1]


def get_visible(answer: SearchResult) -> list[tuple[object, ...]]:
    return [(hit.path, hit.chunk_index, hit.channels, hit.confidence, hit.snippet, hit.anchor) for hit in answer.hits]


def test_both_stores_give_the_same_hits_in_the_same_order(services: tuple[WikiService, WikiService]) -> None:
    query_count = 0
    for slug in ("allotment", "runbook"):
        one, other = (service.get_handle(slug) for service in services)
        for text in (*(query.text for query in DEMO_QUERIES), *MORE_QUERIES):
            for mode in SearchMode:
                for where in (PageFilter(), PageFilter(path_prefix="Growing")):
                    request = SearchRequest(text, 10, mode, where)
                    other_result, one_result = other.search(request), one.search(request)
                    assert get_visible(other_result) == get_visible(one_result), (slug, text, mode)
                    scores = [hit.score for hit in one_result.hits]
                    # Scores are rounded: the last of four digits may differ.
                    assert [hit.score for hit in other_result.hits] == pytest.approx(scores, abs=1.5e-4)
                    assert (other_result.considered, other_result.degraded, other_result.notes) == (
                        one_result.considered,
                        False,
                        one_result.notes,
                    )
                    query_count += len(other_result.hits)
        for path in {hit.path for hit in one.search(SearchRequest("a", 50, SearchMode.SEMANTIC)).hits}:
            assert get_visible(other.find_similar(path)) == get_visible(one.find_similar(path))
    assert query_count > 300
