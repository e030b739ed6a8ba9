"""Nodes that share a wiki whose repository is elsewhere: each has a mirror, and fetches what another has found."""

import threading
from pathlib import Path

import pytest

from tests.support.git_repository import Repository
from tests.support.git_servers import LocalServer
from tests.support.wait import TIMEOUT_S, wait_until
from wikiholt.errors import SourceError, SourceMissing
from wikiholt.git import mirror
from wikiholt.git.mirror import MirrorRefresher, SharedHead
from wikiholt.git.remote import FetchLimits, RemoteSource
from wikiholt.index.sqlite.store import SqliteStore

LOCAL_LIMITS = FetchLimits(schemes=("http",), allow_private=True, timeout_s=TIMEOUT_S)


class FakeSharedHead(SqliteStore):
    """The heads that nodes have published."""

    def __init__(self) -> None:
        self.published: str | None = None
        self.shared_head = SharedHead(self, "wiki")

    def get_note(self, wiki_id: str, name: str) -> str | None:
        return self.published

    def set_note(self, wiki_id: str, name: str, text: str, *, create: bool = False) -> None:
        self.published = text


def open_node(server: LocalServer, place: Path, board: FakeSharedHead) -> RemoteSource:
    source = RemoteSource(server.get_url("wiki/.git"), place, LOCAL_LIMITS, shared_head=board.shared_head)
    source._refresher._timeout_s = TIMEOUT_S
    return source


def test_a_page_is_read_on_a_node_that_never_fetched(
    repository: Repository, server: LocalServer, tmp_path: Path
) -> None:
    head = repository.commit({"a.md": "one"})
    source = open_node(server, tmp_path / "one", FakeSharedHead())
    with pytest.raises(SourceMissing):
        source.get_last_known_head()
    assert not (tmp_path / "one").exists(), "reporting freshness fetches nothing"
    entry = source.read_tree(source.get_head())["a.md"]
    assert [blob.data for blob in source.read_blobs([entry.blob], 100)] == [b"one"]
    assert source.get_head() == head


def test_a_node_follows_the_head_that_another_has_fetched(
    repository: Repository, server: LocalServer, tmp_path: Path
) -> None:
    board = FakeSharedHead()
    one, other = open_node(server, tmp_path / "one", board), open_node(server, tmp_path / "other", board)
    first = repository.commit({"a.md": "one"})
    assert (other.get_head(), board.published) == (first, first)
    second = repository.commit({"a.md": "two"})
    assert (other.get_last_known_head(), other.get_head()) == (first, first), "no node has fetched yet"
    assert one.fetch()
    assert (other.get_last_known_head(), other.get_head()) == (second, second)


def test_an_unreachable_remote_is_tried_once_and_its_old_mirror_answers(
    repository: Repository, server: LocalServer, tmp_path: Path
) -> None:
    board = FakeSharedHead()
    source = open_node(server, tmp_path / "one", board)
    head = repository.commit({"a.md": "one"})
    source.fetch()
    repository.path.rename(tmp_path / "gone")
    board.published = "f" * 40
    assert [source.get_head(), source.get_head()] == [head, head]
    lost = open_node(server, tmp_path / "two", board)
    for _ in range(2):
        with pytest.raises(SourceError):
            lost.get_head()
    assert not (tmp_path / "two" / "mirror.git").exists()


def test_many_readers_wait_for_one_fetch_with_a_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirror, "_MIN_FETCH_INTERVAL_S", TIMEOUT_S)
    fetched: list[int] = []
    gate = threading.Event()

    def fetch() -> None:
        fetched.append(1)
        gate.wait(TIMEOUT_S)

    hasty, patient = MirrorRefresher(fetch, timeout_s=0.0), MirrorRefresher(fetch, timeout_s=TIMEOUT_S)
    assert [hasty.refresh("x"), hasty.refresh("x")] == [None, None]
    wait_until(lambda: fetched)
    assert fetched == [1]
    threads = [threading.Thread(target=patient.refresh, args=("x",)) for _ in range(4)]
    for thread in threads:
        thread.start()
    gate.set()
    for thread in threads:
        thread.join(TIMEOUT_S)
    assert patient.refresh("x") is None
    assert fetched == [1, 1]
