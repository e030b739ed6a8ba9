"""The isolation gate for query logs: what one wiki was asked is told to no other, and lies with no other."""

import json
import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from canaries import CanaryWiki, codes, codes_on_disk
from farm import contents

from wikiholt.model import Surface
from wikiholt.search import Request
from wikiholt.settings import load
from wikiholt.surfaces.cli.report import report_page
from wikiholt.surfaces.documents.queries import query_report_document
from wikiholt.testing import FakeEmbedder
from wikiholt.wiring import build

WIKIS, ROUNDS = 4, 12


class Logged:
    """Wikis whose searches are written down; each is asked its own words, and one that none of its pages holds."""

    def __init__(self, place: Path, settings: dict[str, object]) -> None:
        self.data = place / "data"
        self.service = build(load(self.data, overrides={"queries.log": True, **settings}))
        embedder = FakeEmbedder()
        self.service.workshop = replace(self.service.workshop, embedder=lambda: embedder, identity=None)
        self.wikis = [CanaryWiki(place / "r", number) for number in range(WIKIS)]
        for wiki in self.wikis:
            self.service.add(wiki.slug, str(wiki.repository.path), {})
            self.service.wiki(wiki.slug).sync()
        self.ids = {wiki.slug: wiki.id for wiki in self.service.wikis()}

    def ask(self, number: int) -> None:
        wiki = self.wikis[number % WIKIS]
        for place in ("body", "asked"):
            surface = list(Surface)[number % len(Surface)]
            self.service.wiki(wiki.slug).search(Request(f"pump {wiki.word(place)} {number:03}"), surface=surface)

    def settle(self) -> None:
        assert self.service.workshop.scribe is not None
        self.service.workshop.scribe.close()

    def told(self, wiki: CanaryWiki) -> str:
        found = self.service.wiki(wiki.slug).queries.report(limit=1000)
        assert found.queries == 2 * ROUNDS
        return json.dumps(query_report_document(wiki.slug, found)) + report_page(wiki.slug, found)


@pytest.fixture(params=["files", "postgres"])
def logged(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Logged]:
    store = {"store": request.getfixturevalue("database")} if request.param == "postgres" else {}
    made = Logged(tmp_path, store)
    yield made
    made.service.close()


def test_reports_logs_and_removals_keep_to_one_wiki(logged: Logged, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(logged.ask, range(WIKIS * ROUNDS)))
    logged.settle()
    for wiki in logged.wikis:
        told = logged.told(wiki)
        assert codes(told) == {wiki.code}
        assert wiki.word("asked") in told
    assert [record.getMessage() for record in caplog.records if codes(record.getMessage())] == []
    one, cleared, gone = logged.wikis[:3]
    before = on_disk(logged, one)
    logged.service.wiki(cleared.slug).queries.clear()
    logged.service.remove(gone.slug)
    assert on_disk(logged, one) == before
    assert codes(logged.told(one)) == {one.code}
    assert logged.service.wiki(cleared.slug).queries.report().searches == 0
    for wiki in logged.wikis:
        held = codes_on_disk(logged.data / "wikis" / logged.ids[wiki.slug])
        assert held <= ({wiki.code} if wiki is not gone else set())


def on_disk(logged: Logged, wiki: CanaryWiki) -> object:
    place = logged.data / "wikis" / logged.ids[wiki.slug]
    return contents(place) if place.exists() else None
