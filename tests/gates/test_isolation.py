"""The isolation gate: whatever is asked of one wiki, nothing of another comes back; whatever is done to one, no other
changes by a byte."""

import json
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from canaries import ALIKE, CanaryWiki, codes, codes_on_disk
from gate_grounds import Files, Ground
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from isolation_farm import WIKIS, Farm, Storm, ask_everything, shown, weather

from wikiholt.errors import IndexMissing, WikiholtError, WikiNotFound
from wikiholt.model import Filter, Mode
from wikiholt.search import Request
from wikiholt.service import Service
from wikiholt.stores.sqlite.schema import connect
from wikiholt.stores.sqlite.store import SqliteStore
from wikiholt.surfaces import documents
from wikiholt.surfaces.cli.main import main


@pytest.fixture(scope="module")
def farm(tmp_path_factory: pytest.TempPathFactory) -> Farm:
    place = tmp_path_factory.mktemp("farm")
    return Farm(place, Files(place / "data"))


@pytest.fixture
def service(farm: Farm) -> Iterator[Service]:
    opened = farm.ground.open()
    yield opened
    opened.close()


def test_every_mode_and_filter_shows_the_wiki_itself_and_no_other(farm: Farm, service: Service) -> None:
    looked = 0
    for me, other in zip(farm.wikis, farm.wikis[1:] + farm.wikis[:1], strict=True):
        handle = service.wiki(me.slug)
        looked += ask_everything(handle, me, other)
        for place in ("body", "title", "path", "heading", "text"):
            assert me.code in codes(shown(handle, me.word(place), Filter(), Mode.KEYWORD))
        assert me.code in codes(shown(handle, ALIKE, Filter(tags=(me.word("tag"),)), Mode.SEMANTIC))
    assert looked == WIKIS * 26 * 5


def test_a_tiny_wiki_beside_a_huge_one_gives_every_page(farm: Farm, service: Service) -> None:
    tiny = service.wiki(farm.wikis[7].slug)
    for mode in (Mode.SEMANTIC, Mode.HYBRID):
        answer = tiny.search(Request("restart pump", 100, mode))
        assert (answer.total, len(answer.hits)) == (3, 3)
    huge = service.wiki(farm.wikis[0].slug).search(Request("restart pump", 100, Mode.SEMANTIC))
    assert (huge.total, len(huge.hits)) == (farm.huge + 3, 100)


def test_what_is_kept_of_a_wiki_holds_only_its_own_words(farm: Farm) -> None:
    for wiki in farm.wikis:
        assert farm.codes_of(wiki) == {wiki.code}


def test_syncing_and_rebuilding_one_wiki_change_no_other_by_a_byte(farm: Farm) -> None:
    wiki = farm.wikis[3]
    before = farm.of_others(wiki)
    wiki.edit(1)
    for model in ("fake", "other", "fake"):
        service = farm.ground.open(model=model)
        report = service.wiki(wiki.slug).sync()
        service.wiki(wiki.slug).search(Request("pump"))
        service.close()
    assert report.rebuilt
    assert farm.of_others(wiki) == before


@given(slug=st.text() | st.from_regex(r"\A[a-z0-9./%\\-]{0,40}\Z") | st.text("zqbcdx-wiki/.\0é", max_size=30))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_slug_that_is_not_one_leads_anywhere(farm: Farm, service: Service, slug: str) -> None:
    known = {wiki.slug for wiki in farm.wikis}
    for call in (service.wiki, service.remove):
        if slug in known:
            continue
        with pytest.raises(WikiholtError) as caught:
            call(slug)
        assert codes(f"{caught.value.message} {caught.value.hint}") <= codes(slug)
    assert len(service.wikis()) == len(known)


def look_alikes(slug: str, wiki_id: str) -> list[str]:
    return [
        *(slug.upper(), slug + "/", "/" + slug, f"../{slug}", f"{slug}/..", f"./{slug}", slug + "\0", slug + " "),
        *(slug.replace("i", "ı"), slug.replace("-", "‐"), slug[:-1], slug + "x", f"{slug}%00", slug.replace("k", "ｋ")),
        *(wiki_id, f"../wikis/{wiki_id}", f".dropped-{wiki_id}", "*", "%", "_" * len(slug), "", ".", ".."),
    ]


def test_look_alikes_of_a_slug_and_ids_open_nothing(farm: Farm, service: Service) -> None:
    wiki = farm.wikis[4]
    for slug in look_alikes(wiki.slug, farm.ids[wiki.slug]):
        with pytest.raises(WikiholtError) as caught:
            service.wiki(slug)
        assert codes(f"{caught.value.message}{caught.value.hint}") <= {wiki.code}
        assert farm.ids[wiki.slug] not in caught.value.hint


@pytest.mark.parametrize("path", ["../x", "aaaaaaaa/../b", "", "A" * 20, "..", "é" * 20])
def test_a_store_takes_nothing_but_ids(tmp_path: Path, path: str) -> None:
    store = SqliteStore(tmp_path)
    for call in (store.open, store.drop, store.published, store.directory):
        with pytest.raises(WikiholtError):
            call(path)
    assert list(tmp_path.iterdir()) == []


def test_the_command_line_shows_one_wiki_when_asked_for_one(
    farm: Farm, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wikiholt.surfaces.cli.main.build", lambda _: farm.ground.open())

    def run(*arguments: str) -> str:
        main(["--data", str(farm.data), *arguments])
        captured = capsys.readouterr()
        return captured.out + captured.err

    for me, other in ((farm.wikis[5], farm.wikis[6]), (farm.wikis[0], farm.wikis[8])):
        for ending in ([], ["--json"]):
            assert codes(run("status", me.slug, *ending)) == {me.code}
            assert codes(run("sync", me.slug, *ending)) == {me.code}
            assert codes(run("search", me.slug, "restart pump", "-n", "50", *ending)) == {me.code}
            told = run("search", me.slug, other.word("body"), "--tag", other.word("tag"), *ending)
            assert codes(told.replace(other.word("body"), "")) <= {me.code}
        told = run("search", f"{me.slug}-x", "pump")
        assert codes(told) == {me.code}
        assert "hint:" in told


def test_a_broken_repository_or_index_speaks_of_its_own_wiki_only(farm: Farm, service: Service) -> None:
    me = farm.wikis[9]
    head = me.repository.path / ".git" / "HEAD"
    whole = head.read_text()
    head.write_text("torn")
    try:
        with pytest.raises(WikiholtError) as caught:
            service.wiki(me.slug).sync()
        assert codes(f"{caught.value.message} {caught.value.hint}") <= {me.code}
        assert codes(json.dumps(documents.status_document(service.wiki(me.slug).status()))) == {me.code}
    finally:
        head.write_text(whole)


def test_under_threads_and_during_syncs_rebuilds_and_removals_nothing_leaks(
    farm: Farm, caplog: pytest.LogCaptureFixture
) -> None:
    assert weather(farm, Storm(farm), caplog) > 100


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Files(tmp_path / "data")


def test_removal_leaves_no_byte_though_others_have_it_open(tmp_path: Path, ground: Ground) -> None:
    wikis = [CanaryWiki(tmp_path / "r", n) for n in range(3)]
    service, elsewhere = ground.open(), ground.open(background=True)
    for wiki in wikis:
        service.add(wiki.slug, str(wiki.repository.path), {})
        service.wiki(wiki.slug).sync()
        elsewhere.wiki(wiki.slug).search(Request("pump"))
    held = elsewhere.wiki(wikis[1].slug)
    gone = service.wiki(wikis[1].slug).wiki.id
    service.remove(wikis[1].slug)
    with pytest.raises(IndexMissing):
        held.search(Request("pump"))
    with pytest.raises(WikiNotFound):
        elsewhere.wiki(wikis[1].slug)
    assert ground.codes() == {wikis[0].code, wikis[2].code}
    elsewhere.close()
    service.close()
    assert ground.codes() == {wikis[0].code, wikis[2].code}
    assert not ground.traces(gone)


def test_a_sync_that_waited_while_its_wiki_was_removed_brings_nothing_back(tmp_path: Path) -> None:
    wiki = CanaryWiki(tmp_path / "r", 0)
    service = Files(tmp_path / "data").open()
    service.add(wiki.slug, str(wiki.repository.path), {})
    handle = service.wiki(wiki.slug)
    handle.sync()
    store = SqliteStore(tmp_path / "data" / "wikis")
    lock = store.directory(handle.wiki.id) / "write.lock"
    with ThreadPoolExecutor(1) as threads:
        with store.writing(handle.wiki.id, 1):
            waiting = threads.submit(handle.sync)
            while str(lock).encode() not in open_files(2):
                assert not waiting.done()
            store.drop(handle.wiki.id)
        with pytest.raises(IndexMissing):
            waiting.result()
    service.close()
    assert not lock.parent.exists()


def open_files(count: int) -> bytes:
    """The names of files that this process has open at least so many times."""
    names = []
    for link in Path("/proc/self/fd").iterdir():
        try:
            names.append(str(link.readlink()).encode())
        except OSError:
            continue
    return b"\n".join(name for name in names if names.count(name) >= count)


def test_an_index_reaches_one_file_and_can_attach_no_other(farm: Farm) -> None:
    one, two = (farm.directory(wiki) / "g000001.sqlite" for wiki in farm.wikis[1:3])
    database = connect(one)
    try:
        assert [row[2] for row in database.execute("PRAGMA database_list")] == [str(one)]
        with pytest.raises(sqlite3.OperationalError, match="too many attached"):
            database.execute("ATTACH ? AS other", (str(two),))
    finally:
        database.close()


@pytest.mark.real_model
def test_on_the_real_model_wikis_that_mean_the_same_stay_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wikis = [CanaryWiki(tmp_path / "r", n) for n in range(3)]
    for wiki in wikis:
        assert main(["--data", str(tmp_path / "data"), "add", wiki.slug, str(wiki.repository.path)]) == 0
    assert main(["--data", str(tmp_path / "data"), "sync"]) == 0
    capsys.readouterr()
    for me in wikis:
        for mode in Mode:
            query = "who is called when the machine has to be started again at night"
            main(["--data", str(tmp_path / "data"), "search", me.slug, query, "--mode", mode, "--json", "-n", "100"])
            out = capsys.readouterr().out
            assert codes(out) == {me.code}
            assert len(json.loads(out)["results"]) == 3
    assert main(["--data", str(tmp_path / "data"), "remove", wikis[1].slug]) == 0
    assert codes_on_disk(tmp_path / "data") == {wikis[0].code, wikis[2].code}
