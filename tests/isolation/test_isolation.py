"""Isolation: a request to one wiki never returns content of another, and work on one wiki changes no other."""

import json
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.isolation.backends import FileBackend, IsolationBackend
from tests.isolation.canaries import COMMON_TEXT, CanaryWiki, find_codes
from tests.isolation.isolation_environment import (
    WIKI_COUNT,
    ConcurrentLoad,
    IsolationEnvironment,
    check_under_load,
    search_as_json,
    search_everything,
)
from tests.support.tiers import choose, limit_examples
from wikiholt.api.documents.admin_documents import build_status_document
from wikiholt.domain.search import PageFilter, SearchMode
from wikiholt.errors import IndexMissing, WikiholtError, WikiNotFound
from wikiholt.index.sqlite.connections import open_connection
from wikiholt.index.sqlite.store import SqliteStore
from wikiholt.interfaces.cli.main import main
from wikiholt.search.request import SearchRequest
from wikiholt.wikis.service import WikiService

_PAIR_STEP = choose(1, 20)
"""With 1, every wiki is searched for the words of the next one; with 4, every fourth wiki is."""


@pytest.fixture(scope="module")
def env(tmp_path_factory: pytest.TempPathFactory) -> IsolationEnvironment:
    directory = tmp_path_factory.mktemp("isolation")
    return IsolationEnvironment(directory, FileBackend(directory / "data"))


@pytest.fixture
def service(env: IsolationEnvironment) -> Iterator[WikiService]:
    opened = env.backend.open_service()
    yield opened
    opened.close()


def test_every_mode_and_filter_returns_only_the_own_wiki(env: IsolationEnvironment, service: WikiService) -> None:
    checked = 0
    pairs = list(zip(env.wikis, env.wikis[1:] + env.wikis[:1], strict=True))[::_PAIR_STEP]
    for me, other in pairs:
        handle = service.get_handle(me.slug)
        checked += search_everything(handle, me, other)
        for place in ("body", "title", "path", "heading", "text"):
            assert me.code in find_codes(search_as_json(handle, me.get_word(place), PageFilter(), SearchMode.KEYWORD))
        assert me.code in find_codes(
            search_as_json(handle, COMMON_TEXT, PageFilter(tags=(me.get_word("tag"),)), SearchMode.SEMANTIC)
        )
    assert checked == WIKI_COUNT // _PAIR_STEP * 26 * 5


def test_the_stored_data_of_a_wiki_contains_only_its_own_words(env: IsolationEnvironment) -> None:
    for wiki in env.wikis:
        assert env.find_wiki_codes(wiki) == {wiki.code}


def test_syncing_and_rebuilding_one_wiki_change_no_byte_of_another(env: IsolationEnvironment) -> None:
    wiki = env.wikis[3]
    before = env.read_other_wikis(wiki)
    wiki.commit_edit(1)
    for model in ("fake", "other", "fake"):
        service = env.backend.open_service(model=model)
        report = service.get_handle(wiki.slug).sync()
        service.get_handle(wiki.slug).search(SearchRequest("pump"))
        service.close()
    assert report.rebuilt
    assert env.read_other_wikis(wiki) == before


@given(slug=st.text() | st.from_regex(r"\A[a-z0-9./%\\-]{0,40}\Z") | st.text("zqbcdx-wiki/.\0é", max_size=30))
@settings(max_examples=limit_examples(150), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_an_unknown_slug_opens_nothing(env: IsolationEnvironment, service: WikiService, slug: str) -> None:
    known = {wiki.slug for wiki in env.wikis}
    for call in (service.get_handle, service.remove):
        if slug in known:
            continue
        with pytest.raises(WikiholtError) as caught:
            call(slug)
        assert find_codes(f"{caught.value.message} {caught.value.hint}") <= find_codes(slug)
    assert len(service.list_wikis()) == len(known)


def make_similar_slugs(slug: str, wiki_id: str) -> list[str]:
    return [
        *(slug.upper(), slug + "/", "/" + slug, f"../{slug}", f"{slug}/..", f"./{slug}", slug + "\0", slug + " "),
        *(slug.replace("i", "ı"), slug.replace("-", "‐"), slug[:-1], slug + "x", f"{slug}%00", slug.replace("k", "ｋ")),
        *(wiki_id, f"../wikis/{wiki_id}", f".dropped-{wiki_id}", "*", "%", "_" * len(slug), "", ".", ".."),
    ]


def test_similar_slugs_and_ids_open_nothing(env: IsolationEnvironment, service: WikiService) -> None:
    wiki = env.wikis[4]
    for slug in make_similar_slugs(wiki.slug, env.ids[wiki.slug]):
        with pytest.raises(WikiholtError) as caught:
            service.get_handle(slug)
        assert find_codes(f"{caught.value.message}{caught.value.hint}") <= {wiki.code}
        assert env.ids[wiki.slug] not in caught.value.hint


@pytest.mark.parametrize("path", ["../x", "aaaaaaaa/../b", "", "A" * 20, "..", "é" * 20])
def test_a_store_accepts_only_ids(tmp_path: Path, path: str) -> None:
    store = SqliteStore(tmp_path)
    for call in (store.open, store.delete, store.get_published, store.get_directory):
        with pytest.raises(WikiholtError):
            call(path)
    assert list(tmp_path.iterdir()) == []


def test_a_command_for_one_wiki_shows_only_that_wiki(
    env: IsolationEnvironment, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wikiholt.interfaces.cli.command.open_service", lambda _: env.backend.open_service())

    def run(*arguments: str) -> str:
        main(["--data", str(env.data), *arguments])
        captured = capsys.readouterr()
        return captured.out + captured.err

    for me, other in ((env.wikis[5], env.wikis[6]), (env.wikis[0], env.wikis[8])):
        for options in ([], ["--json"]):
            assert find_codes(run("status", me.slug, *options)) == {me.code}
            assert find_codes(run("sync", me.slug, *options)) == {me.code}
            assert find_codes(run("search", "-w", me.slug, "restart pump", "-n", "50", *options)) == {me.code}
            output = run("search", "-w", me.slug, other.get_word("body"), "--tag", other.get_word("tag"), *options)
            assert find_codes(output.replace(other.get_word("body"), "")) <= {me.code}
        output = run("search", "-w", f"{me.slug}-x", "pump")
        assert me.slug in output
        for wiki in env.wikis:  # similar slugs are suggested to the operator; nothing else of a wiki is shown
            output = output.replace(wiki.slug, "")
        assert find_codes(output) == set()
        assert "hint:" in output


def test_errors_of_a_broken_repository_name_only_its_own_wiki(env: IsolationEnvironment, service: WikiService) -> None:
    me = env.wikis[9]
    head = me.repository.path / ".git" / "HEAD"
    original = head.read_text()
    head.write_text("broken")
    try:
        with pytest.raises(WikiholtError) as caught:
            service.get_handle(me.slug).sync()
        assert find_codes(f"{caught.value.message} {caught.value.hint}") <= {me.code}
        assert find_codes(json.dumps(build_status_document(service.get_handle(me.slug).get_status()))) == {me.code}
    finally:
        head.write_text(original)


def test_nothing_leaks_with_many_threads_during_syncs_rebuilds_and_removals(
    env: IsolationEnvironment, caplog: pytest.LogCaptureFixture
) -> None:
    assert check_under_load(env, ConcurrentLoad(env), caplog) > 100


@pytest.fixture
def backend(tmp_path: Path) -> IsolationBackend:
    return FileBackend(tmp_path / "data")


def test_removal_leaves_no_data_while_another_process_has_the_wiki_open(
    tmp_path: Path, backend: IsolationBackend
) -> None:
    wikis = [CanaryWiki(tmp_path / "r", n) for n in range(3)]
    service, other_service = backend.open_service(), backend.open_service(background=True)
    for wiki in wikis:
        service.add(wiki.slug, str(wiki.repository.path), {})
        service.get_handle(wiki.slug).sync()
        other_service.get_handle(wiki.slug).search(SearchRequest("pump"))
    open_handle = other_service.get_handle(wikis[1].slug)
    removed_id = service.get_handle(wikis[1].slug).wiki.id
    service.remove(wikis[1].slug)
    with pytest.raises(IndexMissing):
        open_handle.search(SearchRequest("pump"))
    with pytest.raises(WikiNotFound):
        other_service.get_handle(wikis[1].slug)
    assert backend.find_all_codes() == {wikis[0].code, wikis[2].code}
    other_service.close()
    service.close()
    assert backend.find_all_codes() == {wikis[0].code, wikis[2].code}
    assert not backend.find_traces(removed_id)


def test_a_sync_that_waited_during_a_removal_does_not_recreate_the_wiki(tmp_path: Path) -> None:
    wiki = CanaryWiki(tmp_path / "r", 0)
    service = FileBackend(tmp_path / "data").open_service()
    service.add(wiki.slug, str(wiki.repository.path), {})
    handle = service.get_handle(wiki.slug)
    handle.sync()
    store = SqliteStore(tmp_path / "data" / "wikis")
    lock = store.get_directory(handle.wiki.id) / "write.lock"
    with ThreadPoolExecutor(1) as threads:
        with store.write_lock(handle.wiki.id, 1):
            waiting = threads.submit(handle.sync)
            while str(lock).encode() not in list_open_files(2):
                assert not waiting.done()
            store.delete(handle.wiki.id)
        with pytest.raises(IndexMissing):
            waiting.result()
    service.close()
    assert not lock.parent.exists()


def list_open_files(count: int) -> bytes:
    """The names of files that this process has open at least `count` times."""
    names = []
    for link in Path("/proc/self/fd").iterdir():
        try:
            names.append(str(link.readlink()).encode())
        except OSError:
            continue
    return b"\n".join(name for name in names if names.count(name) >= count)


def test_an_index_connection_has_one_file_and_cannot_attach_another(env: IsolationEnvironment) -> None:
    one, two = (env.get_directory(wiki) / "g000001.sqlite" for wiki in env.wikis[1:3])
    database = open_connection(one)
    try:
        assert [row[2] for row in database.execute("PRAGMA database_list")] == [str(one)]
        with pytest.raises(sqlite3.OperationalError, match="too many attached"):
            database.execute("ATTACH ? AS other", (str(two),))
    finally:
        database.close()
