"""The crash test: rounds of random operations and random failures, then checks at the next start.

Every round starts from a copy of the same wikis, so a seed and a number repeat it. Only kills at a time, not at a
step, differ between runs.
"""

import shutil
import time
from pathlib import Path
from random import Random

from tests.crash.acks import Acks
from tests.crash.child_process import ChildChannel, ChildProcess
from tests.crash.crash_round import CrashRound, pair_each
from tests.crash.failures import FAILURES, GIT_OPERATIONS, Failure, can_fail
from tests.crash.file_damage import get_file_kind
from tests.crash.injected_bugs import inject_bug
from tests.crash.operations import OPERATIONS, SERVE
from tests.crash.random_edits import add_documents, create_pages, make_random_edits
from tests.crash.recovery import RecoveryCase, check_recovery
from tests.crash.seed_data import create_seed_data
from tests.support.git_repository import Repository
from tests.support.services import build_test_service, read_all_files
from wikiholt.index.sqlite.store import SqliteStore
from wikiholt.sync.reindex_job import ReindexJob, ReindexState, write_job
from wikiholt.wikis.registry import Registry

_OPERATIONS = (*OPERATIONS, "sync", "reindex", "fetch", SERVE)
_UNCHANGED_KINDS = ("CURRENT", "index", "backup", "mirror pack", "mirror ref", "mirror HEAD", "mirror other")
"""Kinds of files of unchanged wikis that a running service does not modify."""

_COMPLETED_JOB = ReindexJob(ReindexState.COMPLETE, "1")


class CrashGate:
    """All rounds of one seed, in one directory."""

    def __init__(self, directory: Path, seed: int, *, pages: int = 40, bug: str = "") -> None:
        self._seed = seed
        self._bug = bug
        self._template = directory / "template"
        self._round = directory / "round"
        self._scratch = directory / "scratch"
        self._scratch.mkdir(parents=True)
        made = ChildProcess(self._scratch / "made", lambda _: self._make_template(Random(seed), pages)).wait()
        value = made.get("value")
        assert isinstance(value, dict), made
        self._ids: dict[str, str] = value["ids"]
        self._tokens: dict[str, str] = value["tokens"]
        self._revoked: str = value["revoked"]
        self._operator: str = value["operator"]
        shutil.copytree(self._round, self._template)

    def _make_template(self, rng: Random, pages: int) -> dict[str, object]:
        """Four wikis with every kind of file: indexes, caches, keys, backups, a job."""
        for slug, count in (("victim", pages), ("bystander", 6), ("upstream", 8), ("folder", 8)):
            create_pages(Repository(self._round / slug), rng, count)
        service = build_test_service(self._data)
        return create_seed_data(
            service, self._round, lambda wiki_id: write_job(service.components.store, wiki_id, _COMPLETED_JOB)
        )

    @property
    def _data(self) -> Path:
        return self._round / "data"

    @staticmethod
    def pair_each(count: int) -> list[tuple[str, str]]:
        """Operations and failures of rounds in which each occurs as early as possible."""
        return pair_each(_OPERATIONS, FAILURES, can_fail, count)

    def run_round(self, number: int, only_operation: str = "", only_failure: str = "") -> CrashRound:
        """Run one complete round."""
        began = time.monotonic()
        rng = Random(f"{self._seed}/{number}")
        operation, kind = "other model", ""
        while not can_fail(kind, operation):
            operation, kind = only_operation or rng.choice(_OPERATIONS), only_failure or rng.choice(FAILURES)
        subject = "victim" if operation == SERVE else OPERATIONS[operation].subject
        round_ = CrashRound(
            number, operation, kind, served=operation == SERVE or self._is_recovered_by_service(operation, subject, rng)
        )
        expected = Acks({**self._ids}, dict.fromkeys((*self._tokens, self._operator), True) | {self._revoked: False})
        failure = Failure(kind, operation, self._round, self._scratch, rng)
        try:
            failure.prepare(self._template)
            self._take_write_locks(rng, always=round_.served)
            upstream = Repository(self._round / ("upstream" if subject == "mirror" else subject))
            if subject == "folder":
                self._bind_directory()
            round_.changes = make_random_edits(upstream, rng)
            if operation == "documents":
                add_documents(upstream, rng)
            before = self._read_other_wikis(subject, unchanged_only=round_.served)
            inject_bug(self._bug)
            outcome = failure.run_processes(self._tokens, self._operator, round_.number)
            inject_bug("")
            round_.record(outcome, expected, subject)
            self._check_recovery(round_, expected, subject)
            if not round_.fault and self._read_other_wikis(subject, unchanged_only=round_.served) != before:
                round_.add_fault("the files of another wiki have changed")
            if not round_.fault and kind != "git" and subject == "victim":
                expected.check_pages(Repository(self._round / "victim"))
            if not round_.fault and subject == "folder":
                expected.check_files(self._round / "folder")
        except AssertionError as error:
            round_.add_fault(str(error))
        finally:
            failure.clean_up()
        round_.seconds = time.monotonic() - began
        return round_

    def _bind_directory(self) -> None:
        """Accept the copy of the directory as the wiki's own: nothing in a directory tells a copy from another one."""
        registry = Registry(self._data / "registry.sqlite")
        registry.rebind(registry.get("folder"))
        registry.close()

    @staticmethod
    def _is_recovered_by_service(operation: str, subject: str, rng: Random) -> bool:
        """Whether a service does the recovery. With another model it would rebuild all wikis, which is correct."""
        is_other = operation in ("other model", "first sync")
        return rng.random() < 0.15 and subject == "victim" and not is_other

    def _take_write_locks(self, rng: Random, *, always: bool) -> None:
        """Leave the lock files as the last writer does, or as they are in a copy of a data directory."""
        store = SqliteStore(self._data / "wikis")
        for wiki_id in self._ids.values() if rng.random() < 0.5 or always else ():
            with store.write_lock(wiki_id, 1):
                pass

    def _read_other_wikis(self, subject: str, *, unchanged_only: bool) -> dict[str, bytes]:
        """All files of the wikis that the round does not use."""
        found = {}
        for slug, wiki_id in self._ids.items():
            for directory in (
                (self._data / "wikis" / wiki_id, self._data / "backups" / wiki_id) if slug != subject else ()
            ):
                for name, content in read_all_files(directory).items():
                    if not unchanged_only or get_file_kind(directory / name, self._data) in _UNCHANGED_KINDS:
                        found[str(directory / name)] = content
        return found

    def _check_recovery(self, round_: CrashRound, expected: Acks, subject: str) -> None:
        """Check the next start in a separate process, because it may crash."""
        model = OPERATIONS[round_.operation].model if round_.operation in OPERATIONS else "fake"
        case = RecoveryCase(self._data, self._scratch, subject, model, expected, self._operator, round_.served)

        def task(_: ChildChannel) -> object:
            return check_recovery(case)

        result = ChildProcess(self._scratch / "recovery", task).wait()
        value = result.get("value")
        if isinstance(value, dict):
            round_.registry, round_.search_outcome = "intact", value["search_outcome"]
            round_.recovery_path, round_.recovery_seconds = value["recovery_path"], value["seconds"]
        else:
            round_.add_fault(f"recovery: {result.get('trace') or result.get('at') or result}")


__all__ = ["GIT_OPERATIONS", "CrashGate", "CrashRound"]
