"""Checks at the next start with PostgreSQL after a failure."""

import logging
import time
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.crash.acks import UNSURE
from tests.crash.child_process import TIMEOUT_S
from tests.crash.file_damage import list_files
from tests.crash.postgres.leftovers import find_leftovers
from tests.crash.postgres.row_damage import ALL_STATE_GONE, REGISTRY_DAMAGES
from tests.crash.recovery import (
    LogCollector,
    RecoveryCase,
    RecoveryReport,
    assert_converged,
    check_search,
    sync_wiki,
    wait_for_service,
)
from tests.support.services import build_test_service
from tests.support.stored_bytes import read_stored_bytes
from wikiholt.errors import IndexCorrupt, IndexMissing, WikiNotFound
from wikiholt.wikis.handle import WikiHandle
from wikiholt.wikis.service import WikiService


@dataclass(slots=True)
class PostgresRecoveryCase:
    """What the next start is checked against."""

    case: RecoveryCase
    addresses: dict[str, str]
    """Addresses of the databases by name; `home` is first."""
    damage: list[str]
    lost_lease: str = ""
    cleanup_timeout_s: float = TIMEOUT_S / 2


def check_postgres_recovery(case: PostgresRecoveryCase) -> dict[str, object]:
    """Start, search, sync, compare with a SQLite index built from scratch, and look for leftovers."""
    log, start = LogCollector(), case.case
    logging.getLogger("wikiholt").addHandler(log)
    logging.getLogger("wikiholt").propagate = False
    done, began = RecoveryReport(), time.monotonic()
    with closing(build_test_service(start.data, start.model)) as service:
        done.registry = _check_registry(service, case)
        removal = start.expected.wikis[start.subject]
        try:
            wiki = service.get_handle(start.subject)
        except WikiNotFound:
            assert removal in (None, UNSURE), "the wiki is missing but was not removed"
            done.recovery_path = "was removed"
            _finish_cleanup(service, case)
            return asdict(done)
        if case.lost_lease:
            _assert_fenced(wiki, case.lost_lease)
        done.search_outcome = check_search(wiki)
        wiki.get_status()
        if removal is UNSURE:
            service.remove(start.subject)
            done.recovery_path = "removed again"
            _finish_cleanup(service, case)
            return asdict(done)
        if case.damage:
            with suppress(IndexMissing):
                wiki.check_integrity()
        if start.served:
            log.lines += wait_for_service(start, wiki)
        report = sync_wiki(wiki)
        done.seconds = time.monotonic() - began
        done.recovery_path = log.get_recovery_path(rebuilt=report.rebuilt, new=start.model == "other")
        assert case.damage or done.recovery_path not in ("restored", "rebuilt"), (
            f"the index was not damaged, but it was {done.recovery_path}"
        )
        assert_converged(start, wiki, report.revision)
        _check_backups(service, wiki)
        _finish_cleanup(service, case)
    return asdict(done)


def _assert_fenced(wiki: WikiHandle, revision: str) -> None:
    """The index is at the revision that another node synced. The resumed node wrote nothing more."""
    with closing(wiki._components.store.open(wiki.wiki.id)) as index:
        assert index.check() == []
        assert index.get_state().revision == revision, "a resumed node overwrote the work of another node"
        head = wiki._config.source.read_tree(revision)
        found = dict(index.get_page_blobs()) | {problem.file: problem.blob for problem in index.get_problems()}
        assert found == {file: entry.blob for file, entry in head.items()}, "a resumed node wrote pages"


def _check_registry(service: WikiService, case: PostgresRecoveryCase) -> str:
    """The registry has what was acknowledged, or reports damage; then the newest backup is restored."""
    damaged = any(kind in REGISTRY_DAMAGES for kind in case.damage)
    try:
        service.list_wikis()
        case.case.expected.check_registry(service.registry)
    except IndexCorrupt as error:
        if not damaged:
            raise AssertionError(f"the undamaged registry reports: {error.message}") from error
    else:
        assert not damaged, "the damage to the registry was not found"
        return "intact"
    service.registry.backups.restore()
    found = {wiki.slug for wiki in service.list_wikis()}
    assert {"bystander", "mirror"} <= found, f"the restored registry knows only {found}"
    assert service.registry.keys.find_by_token(case.case.operator) is not None
    return "restored"


def _check_backups(service: WikiService, wiki: WikiHandle) -> None:
    for backup in (*wiki.backups.list_verified(), *service.registry.backups.list()):
        assert not backup.fault, f"{backup.name}: {backup.fault}"
    taken = wiki.backups.create()
    assert taken.state is not None
    assert taken.state.revision == wiki.get_status().head


def _finish_cleanup(service: WikiService, case: PostgresRecoveryCase) -> None:
    """Finish the removals of killed processes; then nothing may be left of removed wikis."""
    service.remove_leftovers()
    registered = {wiki.slug: wiki.id for wiki in service.list_wikis()}
    assert service.components.databases is not None
    service.components.databases.remove_leftovers(registered.values())
    for slug in registered:
        if slug.startswith("extra"):
            service.get_handle(slug).sync()
    quarantined = [r"broken_\w+"] if any(kind in REGISTRY_DAMAGES for kind in case.damage) else []
    quarantined += [r"w_\w+_b\d{14}"] if ALL_STATE_GONE in case.damage else []
    until, left = time.monotonic() + case.cleanup_timeout_s, [""]
    while left and time.monotonic() < until:  # leases of killed processes expire
        left = find_leftovers(case.addresses, registered, quarantined="|".join(quarantined))
        time.sleep(0.05 if left else 0)
    assert not left, f"left behind: {left}"
    if case.case.subject not in registered:
        _assert_nothing_on_disk(case.case.data.parent, set(registered.values()))


def _assert_nothing_on_disk(directory: Path, others: set[str]) -> None:
    """After its cleanup, no node has files of a removed wiki on its disk."""
    for node in ("data", "other"):
        with closing(build_test_service(directory / node)) as service:
            assert service.components.databases is not None
            service.remove_leftovers()
            service.components.databases.remove_leftovers(others)
        for file in list_files(directory / node):
            content = read_stored_bytes(file) if not others & set(file.parts) else b""
            for trace in (b"unique1", b"victim"):
                assert trace not in content, f"{file} contains {trace!r} of a removed wiki"


__all__ = ["PostgresRecoveryCase", "check_postgres_recovery"]
