"""Searching the wiki as it was: what is found, what is embedded, what stays hidden, and which views are kept."""

import shutil
import threading
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.search.rerank_fixtures import ReversingReranker
from tests.support.indexed_wiki import WIKI_ID, IndexedWiki
from tests.support.wait import wait_until
from wikiholt.domain.search import PageFilter, SearchInterface
from wikiholt.errors import IndexForeign, InvalidQuery, InvalidSetting, InvalidSource, RevisionNotFound, ViewPending
from wikiholt.folder.source import DirectorySource
from wikiholt.git.source import GitPast, GitSource
from wikiholt.index.batch import BatchIndexer, SyncPaused
from wikiholt.index.pipeline import TextPipeline
from wikiholt.index.sqlite.store import SqliteStore
from wikiholt.search.request import SearchRequest
from wikiholt.search.reranking import RerankConfig
from wikiholt.testing import FakeEmbedder
from wikiholt.wikis import past_views
from wikiholt.wikis.handle import WikiHandle
from wikiholt.wikis.live_index import ViewLimits
from wikiholt.wikis.past_views import PastViews

WAIT_S = 30.0
FERRY = "# Ferry\n\nThe ferry crosses the fjord at night, and in the morning it returns to the harbour.\n"


@pytest.fixture
def embedder() -> FakeEmbedder:
    return FakeEmbedder()


@pytest.fixture
def wiki(tmp_path: Path, embedder: FakeEmbedder) -> IndexedWiki:
    pages = {
        "Home.md": "# Home\n\nWelcome to the island.\n",
        "Ferry.md": FERRY,
        "Heron.md": "# Heron\n\nA grey bird.\n",
    }
    wiki = IndexedWiki(tmp_path, pages, lambda: embedder)
    wiki.repository.run_git("tag", "v1")
    wiki.repository.commit({"Heron.md": None, "Home.md": "# Home\n\nWelcome to the bay.\n"}, "No birds any more")
    return wiki.sync()


def find(past: PastViews, words: str, at: str = "v1") -> list[str]:
    return [hit.path for hit in past.search(at, SearchRequest(words, 10), WAIT_S).hits]


def test_removed_pages_are_found_and_say_when_and_by_whom_they_were_removed(wiki: IndexedWiki) -> None:
    result = wiki.handle.past.search("v1", SearchRequest("grey bird", 3), WAIT_S)
    heron, removal = result.hits[0], result.hits[0].later
    assert (heron.path, heron.url) == ("Heron", "")
    assert removal is not None
    assert removal.removal is not None
    assert (removal.removal.author, removal.removal.message) == ("Ada", "No birds any more")
    by_path = {hit.path: hit for hit in wiki.handle.past.search("v1", SearchRequest("island ferry"), WAIT_S).hits}
    assert by_path["Ferry"].later is None
    assert by_path["Home"].later is not None
    assert (by_path["Home"].later.file, by_path["Home"].url) == ("Home.md", "/Home#home")
    assert not result.stale
    assert result.indexed_revision == wiki.repository.run_git("rev-parse", "v1").decode()
    assert "Heron" not in [hit.path for hit in wiki.handle.search(SearchRequest("grey bird")).hits]


def test_only_texts_that_no_index_has_are_embedded(wiki: IndexedWiki, embedder: FakeEmbedder) -> None:
    wiki.repository.commit({"Home.md": "# Home\n\nWelcome to the bay, once more.\n"})
    wiki.sync()
    embedder.embedded.clear()
    find(wiki.handle.past, "island")
    assert len(embedder.embedded) == 2  # of Home and Heron; that of Ferry is in today's index
    find(wiki.handle.past, "island", wiki.repository.run_git("rev-parse", "v1~0").decode())
    wiki.repository.run_git("branch", "copy", "HEAD~1")
    find(wiki.handle.past, "bay", "copy")
    assert [text for text in embedder.embedded if "bay" in text] == embedder.embedded[2:]
    with closing(SqliteStore(past_directory(wiki, "v1")).open(WIKI_ID)) as view:
        assert view.wiki_id == WIKI_ID
        assert view.list_pages(PageFilter(), None)[0] == 3


def past_directory(wiki: IndexedWiki, name: str) -> Path:
    return wiki.store.get_directory(WIKI_ID) / "past" / wiki.repository.run_git("rev-parse", name).decode()


@pytest.mark.parametrize("way", ["frontmatter", "setting"])
@pytest.mark.parametrize("is_renamed", [False, True], ids=["same name", "renamed"])
def test_what_is_hidden_today_is_hidden_in_the_past(wiki: IndexedWiki, way: str, is_renamed: bool) -> None:
    assert find(wiki.handle.past, "ferry fjord")[0] == "Ferry"
    name = "private/Boat [old].md" if is_renamed else "Ferry.md"
    if is_renamed:
        (wiki.repository.path / "private").mkdir()
        wiki.repository.run_git("mv", "Ferry.md", name)
        wiki.repository.commit({})
    handle = wiki.handle
    if way == "frontmatter":
        wiki.repository.commit({name: "---\nsearch: false\n---\n" + FERRY})
    else:
        pipeline = TextPipeline(hide=("private/", "Ferry.md") if not is_renamed else ("private/",))
        handle = WikiHandle(handle.wiki, replace(handle._config, pipeline=pipeline), handle._components)
    handle.sync()
    assert "Ferry" not in find(handle.past, "ferry fjord")
    assert "Heron" in find(handle.past, "grey bird")


def test_a_page_that_was_rewritten_when_it_was_renamed_is_hidden_too(wiki: IndexedWiki) -> None:
    lines = [f"Ferry number {number} crosses the fjord with {number * 7} seals on board.\n\n" for number in range(10)]
    wiki.repository.commit({"Seals.md": "".join(lines)})
    wiki.repository.run_git("tag", "v2")
    (wiki.repository.path / "private").mkdir()
    wiki.repository.run_git("mv", "Seals.md", "private/Boat.md")
    other = [
        f"Nobody knows why somebody wrote these other words, for the time number {number}.\n\n" for number in range(3)
    ]
    wiki.repository.commit({"private/Boat.md": "".join(other + lines[3:])})
    assert find(wiki.handle.past, "seals fjord", "v2")[0] == "Seals"
    handle = with_config(wiki, pipeline=TextPipeline(hide=("private/",)))
    handle.sync()
    assert "Seals" not in find(handle.past, "seals fjord", "v2")


def with_config(wiki: IndexedWiki, **changes: Any) -> WikiHandle:
    handle = wiki.handle
    return WikiHandle(handle.wiki, replace(handle._config, **changes), handle._components)


def test_files_that_are_ignored_today_are_not_found_in_a_view_from_before(wiki: IndexedWiki) -> None:
    assert find(wiki.handle.past, "grey bird")[0] == "Heron"
    handle = with_config(wiki, source=GitSource(wiki.repository.path, ignore=("Heron.md",)))
    handle.sync()
    assert "Heron" not in find(handle.past, "grey bird")
    assert find(with_config(wiki).past, "grey bird")[0] == "Heron"


def test_pages_of_another_directory_are_not_found_although_they_have_the_same_names(wiki: IndexedWiki) -> None:
    wiki.repository.commit({f"{name}/Plan.md": f"# Plan\n\nThe {name} one.\n" for name in ("internal", "public")})
    wiki.repository.run_git("tag", "v2")
    path = wiki.repository.path
    internal, public = (with_config(wiki, source=GitSource(path, subdirectory=name)) for name in ("internal", "public"))
    internal.sync()
    assert "internal" in internal.past.search("v2", SearchRequest("plan"), WAIT_S).hits[0].snippet.text
    public.sync()
    assert "public" in public.past.search("v2", SearchRequest("plan"), WAIT_S).hits[0].snippet.text


def test_a_page_that_is_shown_again_is_found_again(wiki: IndexedWiki, embedder: FakeEmbedder) -> None:
    find(wiki.handle.past, "ferry")
    wiki.repository.commit({"Ferry.md": "---\nsearch: false\n---\n" + FERRY})
    wiki.sync()
    assert "Ferry" not in find(wiki.handle.past, "ferry fjord")
    wiki.repository.commit({"Ferry.md": FERRY})
    wiki.sync()
    assert "Ferry" in find(wiki.handle.past, "ferry fjord")


def test_the_longest_unused_views_are_removed(wiki: IndexedWiki) -> None:
    commits = [wiki.repository.commit({"Home.md": f"# Home\n\nNumber {number}.\n"}) for number in range(4)]
    wiki.sync()
    past = make_past(wiki, ViewLimits(2))
    for commit in commits[:2]:
        past.build(commit)
    find(past, "number", commits[0])
    past.build(commits[2])
    assert {view.revision for view in past.list_views()} == {commits[0], commits[2]}
    assert not (wiki.store.get_directory(WIKI_ID) / "past" / commits[1]).exists()
    make_past(wiki, ViewLimits(2, max_bytes=1)).build(commits[3])
    assert [view.revision for view in past.list_views()] == [commits[3]]
    assert [view.is_complete for view in past.list_views()] == [True]
    past.remove(commits[3])
    past.remove(commits[3])
    assert past.list_views() == []
    assert find(past, "number", commits[3])  # it is built again
    past.close()


def make_past(wiki: IndexedWiki, limits: ViewLimits) -> PastViews:
    handle = wiki.handle
    return WikiHandle(handle.wiki, handle._config, replace(handle._components, view_limits=limits)).past


def test_views_of_commits_that_are_gone_are_removed(wiki: IndexedWiki) -> None:
    secret = wiki.repository.commit({"Home.md": "# Home\n\nThe password is swordfish.\n"})
    wiki.sync()
    assert find(wiki.handle.past, "swordfish", secret)
    wiki.repository.run_git("reset", "--hard", "-q", "HEAD~1")
    with pytest.raises(RevisionNotFound):
        find(wiki.handle.past, "swordfish", secret)
    wiki.sync()
    assert wiki.handle.past.list_views() == []


def test_views_are_removed_if_only_the_history_has_changed(wiki: IndexedWiki) -> None:
    secret = wiki.repository.commit({"Note.md": "# Note\n\nThe password is swordfish.\n"})
    wiki.repository.commit({"Note.md": None})
    wiki.sync()
    assert find(wiki.handle.past, "swordfish", secret)
    wiki.repository.run_git("reset", "--hard", "-q", "HEAD~2")
    wiki.repository.run_git("commit", "-q", "--allow-empty", "-m", "The same pages")
    wiki.sync()
    assert wiki.handle.past.list_views() == []


def test_the_view_of_a_branch_that_was_deleted_is_removed(wiki: IndexedWiki) -> None:
    wiki.repository.run_git("checkout", "-q", "-b", "side")
    wiki.repository.commit({"Note.md": "# Note\n\nThe password is swordfish.\n"})
    wiki.repository.run_git("checkout", "-q", "-")
    assert find(wiki.handle.past, "swordfish", "side")
    wiki.repository.run_git("branch", "-q", "-D", "side")
    wiki.sync()
    assert wiki.handle.past.list_views() == []


def test_a_view_is_built_once_by_two_handles_at_the_same_time(wiki: IndexedWiki, embedder: FakeEmbedder) -> None:
    embedder.embedded.clear()
    others = [make_past(wiki, ViewLimits()) for _ in range(3)]
    threads = [threading.Thread(target=past.build, args=("v1",)) for past in others]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(embedder.embedded) == 2
    assert all(find(past, "grey bird")[0] == "Heron" for past in others)


def test_a_view_that_was_deleted_meanwhile_is_built_again(wiki: IndexedWiki) -> None:
    assert find(wiki.handle.past, "grey bird")
    make_past(wiki, ViewLimits()).remove(wiki.repository.run_git("rev-parse", "v1").decode())
    assert find(wiki.handle.past, "grey bird")[0] == "Heron"


def test_while_a_view_is_built_the_search_says_so(wiki: IndexedWiki, monkeypatch: pytest.MonkeyPatch) -> None:
    may_go_on, run = threading.Event(), BatchIndexer.run
    monkeypatch.setattr(BatchIndexer, "run", lambda *values: may_go_on.wait(WAIT_S) and run(*values))
    past = wiki.handle.past
    with pytest.raises(ViewPending):
        past.search("v1", SearchRequest("bird"), 0)
    with pytest.raises(ViewPending, match="another"):
        past.search("HEAD", SearchRequest("bird"), 0)
    may_go_on.set()
    wait_until(lambda: past.list_views()[0].is_complete, "the view is complete")
    assert past.search("v1", SearchRequest("grey bird"), 0).hits[0].path == "Heron"


def test_words_are_found_before_the_vectors_are_there(wiki: IndexedWiki, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wikiholt.index.batch._MAX_BATCH_TEXTS", 1)
    past = wiki.handle.past
    past.build("v1", words_only=True)
    assert not past.list_views()[0].is_complete
    past.build("v1")
    assert past.list_views()[0].is_complete


def test_words_are_found_while_another_view_is_built(wiki: IndexedWiki, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wikiholt.index.batch._MAX_BATCH_TEXTS", 1)
    past = wiki.handle.past
    past.build("v1", words_only=True)
    with past_views._BUILDS:
        assert find(past, "grey bird")[0] == "Heron"


def test_a_build_that_was_interrupted_is_continued(wiki: IndexedWiki, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object) -> None:
        raise SyncPaused

    with monkeypatch.context() as patch:
        patch.setattr(BatchIndexer, "_commit", stop)
        with pytest.raises(SyncPaused):
            wiki.handle.past.build("v1")
    assert [view.is_complete for view in wiki.handle.past.list_views()] == [False]
    assert find(wiki.handle.past, "grey bird")[0] == "Heron"


def test_a_view_of_another_wiki_is_not_searched(wiki: IndexedWiki, tmp_path: Path) -> None:
    other = IndexedWiki(tmp_path / "other", {"Home.md": "# Home\n\nThe canary is yellow.\n"}).sync()
    past = wiki.handle.past
    past.build("v1")
    directory = past_directory(wiki, "v1") / WIKI_ID
    with closing(SqliteStore(tmp_path / "foreign").create("d" * 20, other.store.open(WIKI_ID).get_state().recipe)):
        pass
    shutil.copyfile(tmp_path / "foreign" / ("d" * 20) / "g000001.sqlite", directory / "g000001.sqlite")
    with pytest.raises(IndexForeign), closing(SqliteStore(directory.parent).open(WIKI_ID)):
        pass
    assert find(past, "grey bird")[0] == "Heron"  # it was set aside and built again
    assert any(name.startswith("broken-") for name in SqliteStore(directory.parent).list_quarantined(WIKI_ID))


def test_a_commit_without_pages_says_so(wiki: IndexedWiki) -> None:
    branch = wiki.repository.run_git("branch", "--show-current").decode()
    wiki.repository.run_git("checkout", "-q", "--orphan", "empty")
    wiki.repository.run_git("rm", "-q", "-r", "-f", ".")
    wiki.repository.commit({"notes.xyz": "x"})
    wiki.repository.run_git("checkout", "-q", "-f", branch)
    with pytest.raises(RevisionNotFound, match="no page at empty"):
        find(wiki.handle.past, "bird", "empty")
    assert wiki.handle.past.list_views() == []


def test_a_directory_has_no_past_and_a_setting_turns_it_off(wiki: IndexedWiki, tmp_path: Path) -> None:
    with pytest.raises(InvalidSource, match="no past"):
        GitPast(DirectorySource(tmp_path, tmp_path / "x"))
    with pytest.raises(InvalidSetting):
        make_past(wiki, ViewLimits(0)).search("v1", SearchRequest("x"), 0)


def test_a_question_is_answered_from_the_wiki_as_it_was(wiki: IndexedWiki) -> None:
    answer = wiki.handle.past.ask("v1", "grey bird", PageFilter(), WAIT_S)
    assert "Heron" in {*(each.path for each in answer.sentences), *(hit.path for hit in answer.closest)}


def test_the_automatic_reranker_is_not_for_searches_of_the_past_over_http_either(wiki: IndexedWiki) -> None:
    handle = wiki.handle
    reranking = RerankConfig(ReversingReranker, 5.0, "fake", frozenset({SearchInterface.CLI}))
    past = WikiHandle(handle.wiki, handle._config, replace(handle._components, reranking=reranking)).past
    past.build("v1")
    request = SearchRequest("grey bird", rerank=True)
    assert past.search("v1", request, WAIT_S, SearchInterface.CLI).reranked
    with pytest.raises(InvalidQuery, match="no reranker"):
        past.search("v1", request, WAIT_S, SearchInterface.HTTP)


def test_removing_the_wiki_removes_its_views(wiki: IndexedWiki) -> None:
    wiki.handle.past.build("v1")
    wiki.handle.remove()
    assert not wiki.store.get_directory(WIKI_ID).exists()
    assert past_views._BUILDS.acquire(blocking=False)  # no build is left running
    past_views._BUILDS.release()
