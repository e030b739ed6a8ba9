"""Isolation of query logs: the queries of one wiki are stored and reported only for that wiki."""

import json
import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from tests.isolation.canaries import CanaryWiki, find_codes, find_codes_on_disk
from tests.support.services import read_all_files
from wikiholt.api.bootstrap import build_service
from wikiholt.api.documents.search_documents import build_query_report_document
from wikiholt.api.settings.settings_loader import load_settings
from wikiholt.domain.search import SearchInterface
from wikiholt.interfaces.cli.report_command import build_report
from wikiholt.interfaces.cli.reports import render_report
from wikiholt.search.request import SearchRequest
from wikiholt.testing import FakeEmbedder

WIKI_COUNT, ROUND_COUNT = 4, 12


class QueryLogEnvironment:
    """Wikis with query logs. Each is searched for its own words, and for one that none of its pages has."""

    def __init__(self, directory: Path, settings: dict[str, object]) -> None:
        self.data = directory / "data"
        self.service = build_service(load_settings(self.data, overrides={"queries.log": True, **settings}))
        embedder = FakeEmbedder()
        self.service.components = replace(self.service.components, embedder=lambda: embedder, identity=None)
        self.wikis = [CanaryWiki(directory / "r", number) for number in range(WIKI_COUNT)]
        for wiki in self.wikis:
            self.service.add(wiki.slug, str(wiki.repository.path), {})
            self.service.get_handle(wiki.slug).sync()
        self.ids = {wiki.slug: wiki.id for wiki in self.service.list_wikis()}

    def search_all(self, number: int) -> None:
        wiki = self.wikis[number % WIKI_COUNT]
        for place in ("body", "query"):
            interface = list(SearchInterface)[number % len(SearchInterface)]
            self.service.get_handle(wiki.slug).search(
                SearchRequest(f"pump {wiki.get_word(place)} {number:03}"), interface=interface
            )

    def wait_for_records(self) -> None:
        assert self.service.components.query_log_writer is not None
        self.service.components.query_log_writer.close()

    def read_report(self, wiki: CanaryWiki) -> str:
        found = self.service.get_handle(wiki.slug).query_log.build_report(limit=1000)
        assert found.queries == 2 * ROUND_COUNT
        return json.dumps(build_query_report_document(wiki.slug, found)) + render_report(build_report(wiki.slug, found))


@pytest.fixture(params=["files", "postgres"])
def logged(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[QueryLogEnvironment]:
    store = {"store": request.getfixturevalue("database")} if request.param == "postgres" else {}
    made = QueryLogEnvironment(tmp_path, store)
    yield made
    made.service.close()


def test_reports_logs_and_removals_affect_only_one_wiki(
    logged: QueryLogEnvironment, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(logged.search_all, range(WIKI_COUNT * ROUND_COUNT)))
    logged.wait_for_records()
    for wiki in logged.wikis:
        report = logged.read_report(wiki)
        assert find_codes(report) == {wiki.code}
        assert wiki.get_word("query") in report
    assert [record.getMessage() for record in caplog.records if find_codes(record.getMessage())] == []
    one, cleared, removed = logged.wikis[:3]
    before = read_files(logged, one)
    logged.service.get_handle(cleared.slug).query_log.clear()
    logged.service.remove(removed.slug)
    assert read_files(logged, one) == before
    assert find_codes(logged.read_report(one)) == {one.code}
    assert logged.service.get_handle(cleared.slug).query_log.build_report().searches == 0
    for wiki in logged.wikis:
        codes = find_codes_on_disk(logged.data / "wikis" / logged.ids[wiki.slug])
        assert codes <= ({wiki.code} if wiki is not removed else set())


def read_files(logged: QueryLogEnvironment, wiki: CanaryWiki) -> object:
    directory = logged.data / "wikis" / logged.ids[wiki.slug]
    return read_all_files(directory) if directory.exists() else None
