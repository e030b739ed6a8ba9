"""Rounds of random damage to one file of a data directory, and checks of the next start and the next sync.

Every round starts from a copy of the same data directory. Before the next check a result is right, lacks a page, is
marked degraded, or is an error with a message; no hit shows what is not in git. The daily check then finds the damage,
and the next sync repairs everything that git and the backup of the registry can restore.
"""

import os
import shutil
import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from tests.crash.child_process import ChildProcess
from tests.crash.file_damage import CONTENT, OTHER_FILE, DamageFunction, get_file_kind, list_files
from tests.crash.random_edits import create_pages
from tests.support.git_repository import Repository
from tests.support.services import build_test_service, install_fake_model, load_test_settings
from wikiholt.api import bootstrap
from wikiholt.domain.index import Recipe
from wikiholt.domain.search import QueryRecord, QueryRetention, SearchMode
from wikiholt.domain.wiki import Scope
from wikiholt.errors import WikiholtError
from wikiholt.search.request import SearchRequest
from wikiholt.sync.reindex_job import ReindexJob, ReindexState, write_job
from wikiholt.wikis.service import WikiService
from wikiholt.wikis.sqlite_query_log import SqliteQueryLog

PAGES = 9
SLUGS = ("victim", "bystander")
TEMPLATES = ("closed", "killed")
"""A data directory after a clean shutdown, and one whose writer was killed with changes in its WAL files."""
_OPEN_BACKEND = bootstrap.open_backend
_TIMEOUT_S = 180.0


@dataclass(slots=True)
class DamageRound:
    """One round: the damage, the search results before the sync, and the fault, if any."""

    number: int
    template: str = ""
    kind: str = ""
    damage: str = ""
    cached: bool = False
    before: dict[str, int] = field(default_factory=dict)
    fault: str = ""

    def __str__(self) -> str:
        mode = "cached" if self.cached else "plain"
        text = f"{self.number:4}  {self.template}, {mode}: {self.damage} {self.kind} → {self.before}"
        return text + (f"\n      FAULT: {self.fault}" if self.fault else "")


class DamageRounds:
    """All rounds of one seed, in one directory."""

    def __init__(self, directory: Path, seed: int) -> None:
        self._directory = directory
        self._seed = seed
        directory.mkdir(parents=True)
        for name in TEMPLATES:
            made = ChildProcess(directory / "made", lambda _, name=name: self._make_template(name)).wait()
            assert made["outcome"] == "done", made
        self._cases = self._list_cases()

    @property
    def cases(self) -> int:
        """Number of rounds until every kind of file has had every kind of damage."""
        return len(self._cases)

    def run_round(self, number: int) -> DamageRound:
        """Run one complete round."""
        rng = Random(f"{self._seed}/{number}")
        template, kind, damage = self._cases[number % len(self._cases)]
        round_ = DamageRound(number, template, kind, damage.__name__, cached=rng.random() < 0.5)
        data = self._directory / "round"
        shutil.rmtree(data, ignore_errors=True)
        shutil.copytree(self._directory / template, data)
        file = rng.choice([file for file in list_files(data) if get_file_kind(file, data) == kind])
        before = file.stat()
        damage(file, rng)
        if rng.random() < 0.5 and file.is_file() and not file.is_symlink():
            os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))  # as with a bad disk
        child = ChildProcess(
            self._directory / "done",
            lambda _: _RecoveryCheck(
                data,
                self._wikis_directory(template),
                (self._directory / f"{template}-token").read_text(),
                cached=round_.cached,
            ).run(),
            timeout_s=_TIMEOUT_S,
        )
        result = child.wait()
        value = result.get("value")
        if isinstance(value, dict):
            round_.before, round_.fault = value["before"], value["fault"]
        else:
            round_.fault = str(result.get("trace") or result.get("at") or result)
        return round_

    def _list_cases(self) -> list[tuple[str, str, DamageFunction]]:
        """Every kind of file with every kind of damage, in an order that the seed determines."""
        found: set[tuple[str, str]] = set()
        for template in TEMPLATES:
            data = self._directory / template
            found |= {(template, kind) for file in list_files(data) if (kind := get_file_kind(file, data))}
        cases = [(*target, damage) for target in sorted(found) for damage in (*CONTENT, *OTHER_FILE)]
        Random(self._seed).shuffle(cases)
        return cases

    def _make_template(self, name: str) -> None:
        """Two wikis with every kind of file. Those of the killed writer are copied while it runs."""
        wikis = self._wikis_directory(name)
        for slug in SLUGS:
            create_pages(Repository(wikis / slug), Random(slug), PAGES)
        data = self._directory / f"{name}-data"
        service = build_test_service(data)
        for slug in SLUGS:
            _create_wiki(service, slug, wikis / slug)
        service.registry.keys.create(None, Scope.ADMIN)
        revoked, token = service.registry.keys.create(None, Scope.ADMIN)
        service.registry.backups.create()
        service.registry.keys.revoke(revoked.id)
        (self._directory / f"{name}-token").write_text(token)
        if name == "closed":
            service.close()
            shutil.copytree(data, self._directory / name)
        else:
            _copy_while_in_use(service, data, Repository(wikis / "victim"), self._directory / name)
            service.close()

    def _wikis_directory(self, template: str) -> Path:
        return self._directory / f"{template}-wikis"


def _copy_while_in_use(service: WikiService, data: Path, repository: Repository, to: Path) -> None:
    """Copy while readers prevent checkpoints, a new generation is being built, and the activity lock is taken."""
    wiki, store = service.get_handle("victim"), service.components.store
    directory = store.get_directory(wiki.wiki.id)
    with ExitStack() as stack:
        reader = stack.enter_context(closing(sqlite3.connect(directory / "g000001.sqlite", isolation_level=None)))
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM sqlite_master").fetchone()
        repository.commit({f"later/page-{PAGES}.md": f"# Later\n\nhandbook unique{PAGES}"})
        wiki.sync()
        service.registry.keys.create(None, Scope.ADMIN)
        generation = store.create_generation(wiki.wiki.id, Recipe("another", 8, "{}"))
        stack.callback(generation.close)
        report = stack.enter_context(store.activity_lock(wiki.wiki.id))
        report("{}")
        assert (directory / "g000001.sqlite-wal").stat().st_size
        shutil.copytree(data, to)


def _create_wiki(service: WikiService, slug: str, repository: Path) -> None:
    """Add a wiki and create every kind of file that a wiki in use has."""
    service.add(slug, str(repository), {})
    wiki = service.get_handle(slug)
    wiki.sync()
    wiki.backups.create()
    wiki.check_integrity()
    wiki.search(SearchRequest("handbook"))
    wiki.wait_for_caches(_TIMEOUT_S)
    store, wiki_id = service.components.store, wiki.wiki.id
    write_job(store, wiki_id, ReindexJob(ReindexState.COMPLETE, "1"))
    entry = QueryRecord(1e9, "cli", "handbook", "hybrid", False, 1, False, False, 0.5, 1.0, "", ("a/page-0",), 0)
    SqliteQueryLog(store.get_directory(wiki_id)).write([entry], QueryRetention(max_days=100_000, max_records=100))


class _RecoveryCheck:
    """Checks the next start in a separate process, because it may hang."""

    def __init__(self, data: Path, wikis: Path, revoked_token: str, *, cached: bool) -> None:
        self._revoked_token = revoked_token
        self._settings = load_test_settings(data, "fake")
        install_fake_model("fake", 0.0)
        if not cached:
            bootstrap.open_backend = _OPEN_BACKEND
        self._pages = {slug: _read_pages(Repository(wikis / slug)) for slug in SLUGS}

    def run(self) -> dict[str, object]:
        before: Counter[str] = Counter()
        after: Counter[str] = Counter()
        fault = ""
        service = bootstrap.build_service(self._settings)
        try:
            self._search_every_page(service, before)
            assert not any(result.startswith("without") for result in before), before
            _restore_registry(service)
            assert service.registry.keys.find_by_token(self._revoked_token) is None, "a revoked key works again"
            _check_wikis(service)
            _sync_wikis(service)
            service.close()
            service = bootstrap.build_service(self._settings)
            _sync_wikis(service)
            self._search_every_page(service, after)
            assert set(after) == {"right"}, f"after the sync: {dict(after)}"
        except AssertionError as error:
            fault = str(error)
        finally:
            service.close()
        return {"before": before, "fault": fault}

    def _search_every_page(self, service: WikiService, seen: Counter[str]) -> None:
        """Search for a word of every page in every wiki. A wrong result must be marked as degraded or be an error."""
        for slug, pages in self._pages.items():
            for page in pages:
                for mode in (SearchMode.KEYWORD, SearchMode.HYBRID):
                    seen[_search_page(service, slug, page, mode, pages)] += 1


def _restore_registry(service: WikiService) -> None:
    """A damaged registry returns an error and is restored by command."""
    try:
        found = service.list_wikis()
    except WikiholtError:
        service.registry.backups.restore()
        found = service.list_wikis()
    assert {wiki.slug for wiki in found} == set(SLUGS), "wikis are missing without an error"


def _sync_wikis(service: WikiService) -> None:
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


def _read_pages(repository: Repository) -> Mapping[str, str]:
    """Path → text of every page."""
    files = repository.run_git("ls-files").decode().split()
    return {file.removesuffix(".md"): (repository.path / file).read_text() for file in files}


def _check_wikis(service: WikiService) -> None:
    """The daily check, which reports damage that no search has read."""
    for slug in SLUGS:
        with suppress(WikiholtError):
            service.get_handle(slug).check_integrity()


def _search_page(service: WikiService, slug: str, page: str, mode: SearchMode, pages: Mapping[str, str]) -> str:
    try:
        answer = service.get_handle(slug).search(SearchRequest(f"unique{page.rpartition('-')[2]}", mode=mode))
    except WikiholtError as error:
        return error.code if error.hint else f"without a hint: {error.message}"
    if answer.degraded or answer.stale:
        return "degraded" if answer.degraded else "stale"
    for hit in answer.hits:
        assert hit.path in pages, f"{slug}: a page that does not exist by {mode} for {page}: {hit.path}"
        assert hit.text in pages[hit.path], f"{slug}: a wrong passage by {mode} for {page}: {hit.text!r}"
    found = [hit.path for hit in answer.hits]
    if found[:1] == [page]:
        return "right"
    # A hybrid search then has other hits, by meaning.
    is_missing = page not in found and (not found or mode is SearchMode.HYBRID)
    assert is_missing, f"{slug}: a wrong answer by {mode} for {page}: {found}"
    return "missing"


def count_faults(rounds: Sequence[DamageRound]) -> str:
    return f"{len(rounds)} rounds of damage, {sum(bool(round_.fault) for round_ in rounds)} faults"
