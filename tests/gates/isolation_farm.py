"""Wikis full of canaries, what a curious visitor asks of them, and a storm of work that goes on meanwhile."""

import json
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pytest
from canaries import ALIKE, PLACES, CanaryWiki, codes
from gate_grounds import Ground

from wikiholt.errors import IndexMissing, ModelMismatch, ModelMissing, WikiholtError, WikiNotFound
from wikiholt.handle import WikiHandle
from wikiholt.model import Filter, Mode
from wikiholt.search import Request
from wikiholt.service import Service
from wikiholt.surfaces import documents

WIKIS, THREADS, HUGE = 20, 16, 2500


class Farm:
    """Twenty wikis in one place; the first is a thousand times as large as the others."""

    def __init__(self, directory: Path, ground: Ground, huge: int = HUGE) -> None:
        self.ground = ground
        self.huge = huge
        self.wikis = [CanaryWiki(directory / "r", n, huge if n == 0 else 0) for n in range(WIKIS)]
        service = ground.open()
        for wiki in self.wikis:
            service.add(wiki.slug, str(wiki.repository.path), {})
            service.wiki(wiki.slug).sync()
        self.ids = {wiki.slug: wiki.id for wiki in service.wikis()}
        service.close()

    @property
    def data(self) -> Path:
        return self.ground.data

    def directory(self, wiki: CanaryWiki) -> Path:
        return self.data / "wikis" / self.ids[wiki.slug]

    def held(self, wikis: Sequence[CanaryWiki]) -> dict[str, Mapping[str, object]]:
        return {wiki.slug: self.ground.held(self.ids[wiki.slug]) for wiki in wikis}

    def of_others(self, wiki: CanaryWiki) -> dict[str, Mapping[str, object]]:
        return self.held([other for other in self.wikis if other is not wiki])

    def codes_of(self, wiki: CanaryWiki) -> set[str]:
        return self.ground.codes_of(self.ids[wiki.slug])


def questions(me: CanaryWiki, other: CanaryWiki) -> list[tuple[str, Filter]]:
    """What a curious visitor of one wiki asks about another."""
    theirs = [(other.word(place), Filter()) for place in PLACES]
    return [
        *theirs,
        (f'"night shift" {other.word("body")}', Filter()),
        (f'"{other.word("body")} {other.word("edit")}"', Filter()),
        (f"zq{other.code}", Filter()),
        *((misspelt(other.word(place)), Filter()) for place in ("body", "title", "text")),
        ("zq", Filter()),
        (f"{ALIKE} -{me.word('body')}", Filter()),
        (f"pump -{other.word('heading')}", Filter()),
        (ALIKE, Filter(tags=(other.word("tag"),))),
        (ALIKE, Filter(categories=(other.word("category"),))),
        (ALIKE, Filter(path_prefix=other.word("path"))),
        (ALIKE, Filter(path_prefix="../../")),
        (f"' OR 1=1 -- {other.slug}", Filter(path_prefix="%")),
        (ALIKE, Filter()),
    ]


def misspelt(word: str) -> str:
    """A canary with a slip in its end: only one who knows the word can set it right."""
    return f"{word[:-2]}{word[-1]}{word[-2]}"


def shown(handle: WikiHandle, query: str, where: Filter, mode: Mode, *, rerank: bool | None = False) -> str:
    """An answer as a surface would give it, without the echo of the question."""
    found = handle.search(Request(query, 100, mode, where, rerank=rerank))
    assert rerank is not False or not found.reranked
    answer = documents.answer_document(found)
    del answer["query"], answer["as_typed"]
    return json.dumps(answer, ensure_ascii=False)


def ask_everything(handle: WikiHandle, me: CanaryWiki, other: CanaryWiki) -> int:
    """Drive every entry point of a handle with another wiki's words; how many answers were looked at."""
    looked = 0
    for query, where in questions(me, other):
        ways = [*((mode, False) for mode in Mode), (Mode.HYBRID, None), (Mode.SEMANTIC, None)]
        for mode, rerank in ways:
            text = shown(handle, query, where, mode, rerank=rerank)
            assert codes(text) <= {me.code}, f"{me.slug} was asked {query!r} and said {text}"
            looked += 1
    status = json.dumps(documents.status_document(handle.status()))
    assert codes(status) == {me.code}
    return looked


class Storm:
    """Sixteen threads that search every wiki while some are edited and synced, one is rebuilt, some are removed."""

    def __init__(self, farm: Farm) -> None:
        self.farm = farm
        self.doomed = farm.wikis[-4:]
        self.rebuilt = farm.wikis[-5]
        self.answers = 0
        self._over = threading.Event()
        self._lock = threading.Lock()

    def run(self, service: Service) -> None:
        with ThreadPoolExecutor(THREADS) as threads:
            asking = [threads.submit(self._ask, service, seed) for seed in range(THREADS - len(self.works()))]
            working = [threads.submit(work, service) for work in self.works()]
            try:
                for work in working:
                    work.result()
            finally:
                self._over.set()
            for each in asking:
                each.result()

    def works(self) -> Sequence[Callable[[Service], None]]:
        """What goes on while others ask."""
        return self._sync, self._rebuild, self._remove

    def _ask(self, service: Service, seed: int) -> None:
        rng = Random(seed)
        rounds = 0
        while rounds < 15 or not self._over.is_set():
            rounds += 1
            me, other = rng.sample(self.farm.wikis, 2)
            query, where = rng.choice(questions(me, other))
            found = self._outcome(service, me, query, where, rng.choice(list(Mode)), rng.choice([None, False]))
            with self._lock:
                self.answers += not isinstance(found, WikiholtError)
            if isinstance(found, WikiholtError):
                another_model = me is self.rebuilt and isinstance(found, ModelMismatch | ModelMissing)
                assert me in self.doomed or another_model, f"{me.slug}: {found}"
                found = found.message + found.hint
            assert codes(found) <= {me.code}, f"{me.slug} was asked {query!r} and said {found}"

    @staticmethod
    def _outcome(
        service: Service, me: CanaryWiki, query: str, where: Filter, mode: Mode, rerank: bool | None
    ) -> str | WikiholtError:
        try:
            return shown(service.wiki(me.slug), query, where, mode, rerank=rerank)
        except (WikiNotFound, IndexMissing, ModelMismatch, ModelMissing) as error:
            return error

    def _sync(self, service: Service) -> None:
        for number in range(3):
            for wiki in self.farm.wikis[10:14]:
                wiki.edit(number)
                assert codes(repr(service.wiki(wiki.slug).sync())) == {wiki.code}

    def _rebuild(self, _: Service) -> None:
        for model in ("other", "fake"):
            another = self.farm.ground.open(model=model, seconds=0.02)
            assert another.wiki(self.rebuilt.slug).sync().rebuilt
            another.close()

    def _remove(self, service: Service) -> None:
        for wiki in self.doomed:
            removed = service.remove(wiki.slug)
            assert removed.wiki.slug == wiki.slug
            assert codes(repr(removed)) <= {wiki.code}


def weather(farm: Farm, storm: Storm, caplog: pytest.LogCaptureFixture) -> int:
    """Let a storm pass, and see that it took what it was to take and nothing else; how many answers were looked at."""
    caplog.set_level(logging.DEBUG)
    untouched = farm.wikis[1:10]
    before = farm.held(untouched)
    service = farm.ground.open(background=True)
    storm.run(service)
    service.close()
    assert [record.getMessage() for record in caplog.records if codes(record.getMessage())] == []
    assert farm.held(untouched) == before
    for wiki in storm.doomed:
        assert farm.ground.where(wiki.code) == []
    for wiki in storm.doomed:
        assert not farm.directory(wiki).exists()
        traces = farm.ground.traces(farm.ids[wiki.slug])
        assert not traces, traces
    for wiki in farm.wikis[:-4]:
        assert farm.codes_of(wiki) == {wiki.code}
    farm.wikis = farm.wikis[:-4]
    return storm.answers
