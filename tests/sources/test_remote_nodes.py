"""Nodes that share a wiki whose repository is elsewhere: each has a mirror, and fetches what another has found."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from git_repository import Repository
from servers import Server, git_backend, serving

from wikiholt.errors import SourceError, SourceMissing
from wikiholt.sources.bringing import Bringing, Word
from wikiholt.sources.remote import RemoteSource
from wikiholt.sources.transfer import Costs

HERE = Costs(schemes=("http",), allow_private=True, timeout=60)


class Board:
    """What nodes have told each other."""

    def __init__(self) -> None:
        self.said: str | None = None
        self.word = Word(lambda: self.said, self._say)

    def _say(self, revision: str) -> None:
        self.said = revision


@pytest.fixture
def server(repository: Repository) -> Iterator[Server]:
    with serving(git_backend(repository.path.parent)) as running:
        yield running


def node(server: Server, place: Path, board: Board) -> RemoteSource:
    return RemoteSource(server.url("wiki/.git"), place, HERE, word=board.word)


def test_a_page_is_read_on_a_node_that_never_fetched(repository: Repository, server: Server, tmp_path: Path) -> None:
    head = repository.commit({"a.md": "one"})
    source = node(server, tmp_path / "one", Board())
    with pytest.raises(SourceMissing):
        source.seen()
    assert not (tmp_path / "one").exists(), "saying how fresh an answer is fetches nothing"
    entry = source.tree(source.head())["a.md"]
    assert [blob.data for blob in source.read([entry.blob], 100)] == [b"one"]
    assert source.head() == head


def test_a_node_follows_the_head_that_another_has_fetched(
    repository: Repository, server: Server, tmp_path: Path
) -> None:
    board = Board()
    one, other = node(server, tmp_path / "one", board), node(server, tmp_path / "other", board)
    first = repository.commit({"a.md": "one"})
    assert (other.head(), board.said) == (first, first)
    second = repository.commit({"a.md": "two"})
    assert (other.seen(), other.head()) == (first, first), "nobody has looked yet"
    assert one.fetch()
    assert (other.seen(), other.head()) == (second, second)


def test_a_remote_that_cannot_be_reached_is_asked_once_and_its_old_mirror_answers(
    repository: Repository, server: Server, tmp_path: Path
) -> None:
    board = Board()
    source = node(server, tmp_path / "one", board)
    head = repository.commit({"a.md": "one"})
    source.fetch()
    repository.path.rename(tmp_path / "gone")
    board.said = "f" * 40
    assert [source.head(), source.head()] == [head, head]
    lost = node(server, tmp_path / "two", board)
    for _ in range(2):
        with pytest.raises(SourceError):
            lost.head()
    assert not (tmp_path / "two" / "mirror.git").exists()


def test_many_readers_wait_for_one_fetch_and_none_for_ever() -> None:
    fetched: list[int] = []
    gate = threading.Event()

    def fetch() -> None:
        fetched.append(1)
        gate.wait(60)

    hasty, patient = Bringing(fetch, patience=0.0), Bringing(fetch, patience=60.0)
    assert [hasty.bring("x"), hasty.bring("x")] == [None, None]
    assert fetched == [1]
    threads = [threading.Thread(target=patient.bring, args=("x",)) for _ in range(4)]
    for thread in threads:
        thread.start()
    gate.set()
    for thread in threads:
        thread.join(60)
    assert patient.bring("x") is None
    assert fetched == [1, 1]
