"""The same wiki gives the same answers from either store, with the real model."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from wikiholt.model import Answer, Filter, Mode
from wikiholt.search.request import Request
from wikiholt.service import Service
from wikiholt.surfaces.cli.demo_wikis import DEMO_QUERIES, write_demo_wikis
from wikiholt.wiring import open_service

pytestmark = pytest.mark.real_model

MORE = ('"compost heap" weeds', "water -rain", "restor", "pager alert who is on call", "当番", "what to sow in march")


@pytest.fixture
def services(database: str, tmp_path: Path) -> Iterator[tuple[Service, Service]]:
    wikis = write_demo_wikis(tmp_path / "demo")
    with ExitStack() as stack:
        found = []
        for name, store in (("embedded", ""), ("postgres", database)):
            service = open_service(tmp_path / name, overrides={"store": store})
            stack.callback(service.close)
            for slug, repository in wikis.items():
                service.add(slug, str(repository), {})
                service.wiki(slug).sync()
            found.append(service)
        yield found[0], found[1]


def seen(answer: Answer) -> list[tuple[object, ...]]:
    return [
        (hit.path, hit.chunk_index, hit.channels, hit.confidence, hit.snippet, round(hit.score, 4), hit.anchor)
        for hit in answer.hits
    ]


def test_both_stores_give_the_same_hits_in_the_same_order(services: tuple[Service, Service]) -> None:
    asked = 0
    for slug in ("allotment", "runbook"):
        one, other = (service.wiki(slug) for service in services)
        for text in (*(query.text for query in DEMO_QUERIES), *MORE):
            for mode in Mode:
                for where in (Filter(), Filter(path_prefix="Growing")):
                    request = Request(text, 10, mode, where)
                    ours, theirs = other.search(request), one.search(request)
                    assert seen(ours) == seen(theirs), (slug, text, mode)
                    assert (ours.total, ours.degraded, ours.notes) == (theirs.total, False, theirs.notes)
                    asked += len(ours.hits)
        for path in {hit.path for hit in one.search(Request("a", 50, Mode.SEMANTIC)).hits}:
            assert seen(other.similar(path)) == seen(one.similar(path))
    assert asked > 300
