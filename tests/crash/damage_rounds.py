"""Rounds of random damage to one file of a data directory, and how the next start and the next sync answer for it.

Every round begins from a copy of the same data directory. Before the next sync an answer is right, says that it is
degraded, or is an error in words; the sync then repairs all that git and the registry's backup can bring back.
"""

import os
import shutil
import sqlite3
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from tests.crash.child_process import ChildProcess
from tests.crash.file_damage import CONTENT, OTHER_FILE, Blow, get_file_kind, list_files
from tests.crash.random_edits import create_pages
from tests.support.git_repository import Repository
from tests.support.services import build_test_service, install_fake_model, load_test_settings
from wikiholt.app import bootstrap
from wikiholt.domain.index import Recipe
from wikiholt.domain.search import QueryRecord, QueryRetention, SearchMode
from wikiholt.domain.wiki import Scope
from wikiholt.errors import WikiholtError
from wikiholt.scheduler.reindex_job import ReindexJob, ReindexState, write_job
from wikiholt.search.request import SearchRequest
from wikiholt.storage.sqlite.query_log import SqliteQueryLog
from wikiholt.wikis.service import WikiService

PAGES = 9
SLUGS = ("victim", "bystander")
TEMPLATES = ("closed", "killed")
"""A data directory that everybody has left, and one whose writer was killed with changes in its logs."""
_GROUND_OF = bootstrap.open_backend
_PATIENCE_S = 30.0


@dataclass(slots=True)
class DamageRound:
    """One round: what was done, what searches answered before the sync, and what is wrong with all that."""

    number: int
    template: str = ""
    kind: str = ""
    blow: str = ""
    cached: bool = False
    before: dict[str, int] = field(default_factory=dict)
    fault: str = ""

    def __str__(self) -> str:
        how = "cached" if self.cached else "plain"
        told = f"{self.number:4}  {self.template}, {how}: {self.blow} {self.kind} → {self.before}"
        return told + (f"\n      FAULT: {self.fault}" if self.fault else "")


class DamageRounds:
    """All rounds of one seed, in one directory."""

    def __init__(self, directory: Path, seed: int) -> None:
        self._directory = directory
        self._seed = seed
        directory.mkdir(parents=True)
        for name in TEMPLATES:
            made = ChildProcess(directory / "made", lambda _, name=name: self._make(name)).wait()
            assert made["outcome"] == "done", made
        self._cases = self._all_cases()

    @property
    def cases(self) -> int:
        """How many rounds it takes until every kind of file has suffered every kind of damage."""
        return len(self._cases)

    def play(self, number: int) -> DamageRound:
        """One round from beginning to end."""
        rng = Random(f"{self._seed}/{number}")
        template, kind, blow = self._cases[number % len(self._cases)]
        played = DamageRound(number, template, kind, blow.__name__, cached=rng.random() < 0.5)
        data = self._directory / "round"
        shutil.rmtree(data, ignore_errors=True)
        shutil.copytree(self._directory / template, data)
        file = rng.choice([file for file in list_files(data) if get_file_kind(file, data) == kind])
        before = file.stat()
        blow(file, rng)
        if rng.random() < 0.5 and file.is_file() and not file.is_symlink():
            os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))  # as a bad disk does it
        child = ChildProcess(
            self._directory / "done",
            lambda _: _Judge(data, self._wikis(template), cached=played.cached).run(),
            _PATIENCE_S,
        )
        result = child.wait()
        value = result.get("value")
        if isinstance(value, dict):
            played.before, played.fault = value["before"], value["fault"]
        else:
            played.fault = str(result.get("trace") or result.get("at") or result)
        return played

    def _all_cases(self) -> list[tuple[str, str, Blow]]:
        """Every kind of file with every kind of damage, in an order of this seed's own."""
        found: set[tuple[str, str]] = set()
        for template in TEMPLATES:
            data = self._directory / template
            found |= {(template, kind) for file in list_files(data) if (kind := get_file_kind(file, data))}
        cases = [(*where, blow) for where in sorted(found) for blow in (*CONTENT, *OTHER_FILE)]
        Random(self._seed).shuffle(cases)
        return cases

    def _make(self, name: str) -> None:
        """Two wikis with every kind of file; the killed writer's are copied while it is at work."""
        wikis = self._wikis(name)
        for slug in SLUGS:
            create_pages(Repository(wikis / slug), Random(slug), PAGES)
        data = self._directory / f"{name}-data"
        service = build_test_service(data)
        for slug in SLUGS:
            _use(service, slug, wikis / slug)
        service.registry.keys.create(None, Scope.ADMIN)
        service.registry.backups.create()
        if name == "closed":
            service.close()
            shutil.copytree(data, self._directory / name)
        else:
            _copy_at_work(service, data, Repository(wikis / "victim"), self._directory / name)
            service.close()

    def _wikis(self, template: str) -> Path:
        return self._directory / f"{template}-wikis"


def _copy_at_work(service: WikiService, data: Path, repository: Repository, to: Path) -> None:
    """Readers keep the logs from being emptied; a generation is begun, and somebody is at work on the wiki."""
    wiki, store = service.get_handle("victim"), service.components.store
    directory = store.get_directory(wiki.wiki.id)
    with ExitStack() as stack:
        for file in (directory / "g000001.sqlite", data / "registry.sqlite"):
            reader = stack.enter_context(closing(sqlite3.connect(file, isolation_level=None)))
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM sqlite_master").fetchone()
        repository.commit({f"later/page-{PAGES}.md": f"# Later\n\nhandbook unique{PAGES}"})
        wiki.sync()
        service.registry.keys.create(None, Scope.ADMIN)
        begun = store.create_generation(wiki.wiki.id, Recipe("another", 8, "{}"))
        stack.callback(begun.close)
        leave = stack.enter_context(store.activity_lock(wiki.wiki.id))
        leave("{}")
        for file in (directory / "g000001.sqlite-wal", data / "registry.sqlite-wal"):
            assert file.stat().st_size, f"{file.name} is empty"
        shutil.copytree(data, to)


def _use(service: WikiService, slug: str, repository: Path) -> None:
    """Leave every kind of file that a wiki in use has."""
    service.add(slug, str(repository), {})
    wiki = service.get_handle(slug)
    wiki.sync()
    wiki.backups.create()
    wiki.check_integrity()
    wiki.search(SearchRequest("handbook"))
    wiki.wait_for_caches(30)
    store, wiki_id = service.components.store, wiki.wiki.id
    write_job(store, wiki_id, ReindexJob(ReindexState.COMPLETE, "1"))
    entry = QueryRecord(1e9, "cli", "handbook", "hybrid", False, 1, False, False, 0.5, 1.0, "", ("a/page-0",), 0)
    SqliteQueryLog(store.get_directory(wiki_id)).write([entry], QueryRetention(max_days=100_000, max_records=100))


class _Judge:
    """The next start, in a process of its own: it may be held up by what it finds."""

    def __init__(self, data: Path, wikis: Path, *, cached: bool) -> None:
        self._settings = load_test_settings(data, "fake")
        install_fake_model("fake", 0.0)
        if not cached:
            bootstrap.open_backend = _GROUND_OF
        self._pages = {slug: Repository(wikis / slug).run_git("ls-files").decode().split() for slug in SLUGS}

    def run(self) -> dict[str, object]:
        before: Counter[str] = Counter()
        after: Counter[str] = Counter()
        fault = ""
        service = bootstrap.build_service(self._settings)
        try:
            self._ask(service, before)
            assert not any(each.startswith("without") for each in before), before
            _restore_registry(service)
            _sync(service)
            service.close()
            service = bootstrap.build_service(self._settings)
            _sync(service)
            self._ask(service, after)
            assert set(after) == {"right"}, f"after the sync: {dict(after)}"
        except AssertionError as error:
            fault = str(error)
        finally:
            service.close()
        return {"before": before, "fault": fault}

    def _ask(self, service: WikiService, seen: Counter[str]) -> None:
        """Ask for a word of each page in each wiki; nothing may be wrong without saying so."""
        for slug, files in self._pages.items():
            for file in files:
                for mode in (SearchMode.KEYWORD, SearchMode.HYBRID):
                    seen[_answer(service, slug, file.removesuffix(".md"), mode)] += 1


def _restore_registry(service: WikiService) -> None:
    """A damaged registry says so, and is restored by hand."""
    try:
        found = service.list_wikis()
    except WikiholtError:
        service.registry.backups.restore()
        found = service.list_wikis()
    assert {wiki.slug for wiki in found} == set(SLUGS), "wikis are silently missing"


def _sync(service: WikiService) -> None:
    for slug in SLUGS:
        wiki = service.get_handle(slug)
        try:
            wiki.sync()
        except WikiholtError as error:
            raise AssertionError(f"{slug}: the sync did not repair it: {error.message}") from error
        assert wiki.check() == []
        assert wiki.health.is_ok, wiki.health
        wiki.backups.create()
        wiki.get_status()


def _answer(service: WikiService, slug: str, page: str, mode: SearchMode) -> str:
    try:
        answer = service.get_handle(slug).search(SearchRequest(f"unique{page.rpartition('-')[2]}", mode=mode))
    except WikiholtError as error:
        return error.code if error.hint else f"without a hint: {error.message}"
    if answer.degraded or answer.stale:
        return "degraded" if answer.degraded else "stale"
    found = [hit.path for hit in answer.hits]
    assert found[:1] == [page], f"{slug}: a wrong answer by {mode} for {page}: {found}"
    return "right"


def count_faults(played: Sequence[DamageRound]) -> str:
    return f"{len(played)} rounds of damage, {sum(bool(each.fault) for each in played)} faults"
