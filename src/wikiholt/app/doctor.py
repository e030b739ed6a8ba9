"""A check of everything Wikiholt stands on, with what to do about each fault found."""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from wikiholt.domain.index import IndexState
from wikiholt.domain.protocols import Embedder
from wikiholt.domain.storage_protocols import DatabaseAdmin
from wikiholt.domain.wiki import Wiki
from wikiholt.errors import WikiholtError
from wikiholt.search.reranking import RerankConfig
from wikiholt.wikis.handle import WikiHandle
from wikiholt.wikis.service import WikiService

_MIN_FREE_BYTES = 500 * 1024 * 1024
_OTHERS_MODE, _OTHERS_WRITE_MODE = 0o077, 0o002
_REGISTRY_BACKUP_GRACE = timedelta(hours=1)
"""Longer than it ever takes until a change of the registry is backed up."""
_MAX_SHOWN = 5
_UNFINISHED_MOVE_TEXT = "what 1 move left at another place is still there"


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One thing that was looked at; `advice` says what to do where it is not well."""

    subject: str
    well: bool
    detail: str
    advice: str = ""


def run_checks(service: WikiService, data: Path, backup_interval: float) -> Iterator[CheckResult]:
    """Look at git, model, disk, permissions, keys, backups and every wiki; changes nothing."""
    yield _check_git()
    yield _check_model(service.components.embedder)
    if service.components.reranking is not None:
        yield _check_reranker(service.components.reranking)
    yield _check_data_directory(data)
    yield _check_disk(data)
    if service.components.vector_engine is not None:
        wrong = service.components.vector_engine.check()
        advice = "see docs/engines.md; exact search answers meanwhile" if wrong else ""
        yield CheckResult(service.components.vector_engine.name, not wrong, wrong or "answers as it should", advice)
    if service.components.databases is not None:
        yield from _check_databases(service.components.databases)
    wikis: Sequence[Wiki] = ()
    try:
        wikis = service.list_wikis()
    except WikiholtError as error:
        yield CheckResult("registry", False, error.message, error.hint)
    else:
        yield from _check_registry(service, data / "registry.sqlite", len(wikis), backup_interval)
        yield from _check_orphans(service, {wiki.id for wiki in wikis})
    for wiki in wikis:
        try:
            yield from _check_wiki(service.get_handle(wiki.slug), backup_interval)
        except WikiholtError as error:
            yield CheckResult(f"wiki {wiki.slug}", False, error.message, error.hint)


def _check_databases(databases: DatabaseAdmin) -> Iterator[CheckResult]:
    """The databases that hold indexes: there, of a version that will do, and of today's layout."""
    try:
        found, cut_off = databases.get_statuses(), databases.find_unfinished_moves()
    except WikiholtError as error:
        said = " ".join(str(error.__cause__ or "").split())
        detail = f"{error.message}: {said}" if said else error.message
        yield CheckResult("databases", False, detail, "check the setting store, and the server")
        return
    for each in found:
        subject = f"database {each.name}"
        if each.away:
            yield CheckResult(subject, False, each.away, "its wikis answer again once it is back; nothing is lost")
            continue
        held = f"{each.wikis} wikis" if each.wikis != 1 else "1 wiki"
        yield CheckResult(subject, True, f"PostgreSQL {each.server}, pgvector {each.vector}; {held}")
        if each.behind:
            detail = f"{each.behind} of its wikis have tables of an older layout"
            yield CheckResult(subject, False, detail, "run `wikiholt upgrade` once every node runs this version")
    if cut_off:
        detail = (
            f"what {len(cut_off)} moves left at another place is still there"
            if len(cut_off) > 1
            else _UNFINISHED_MOVE_TEXT
        )
        yield CheckResult(
            "databases", False, detail, "if nobody is moving a wiki, `wikiholt database sweep` removes it"
        )


def _check_orphans(service: WikiService, known: set[str]) -> Iterator[CheckResult]:
    store = service.components.store
    try:
        strays = [each for each in store.list_wiki_ids() if each not in known]
    except WikiholtError:
        return  # a database that is away was told of already
    if service.components.databases is None:
        for stray in strays:
            detail = f"{store.get_directory(stray)} belongs to no wiki"
            yield CheckResult("strays", False, detail, "delete it if nothing else put it there")
    elif strays:
        shown = ", ".join(strays[:_MAX_SHOWN]) + (" …" if len(strays) > _MAX_SHOWN else "")
        advice = "a move may be under way; if none is, `wikiholt database sweep` removes them"
        yield CheckResult("strays", False, f"indexes that belong to no wiki: {shown}", advice)


def _check_git() -> CheckResult:
    try:
        done = subprocess.run(["git", "--version"], capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError) as error:
        return CheckResult("git", False, f"git does not run ({error})", "install git and put it on PATH")
    return CheckResult("git", True, done.stdout.strip())


def _check_model(embedder: Callable[[], Embedder]) -> CheckResult:
    try:
        model = embedder()
        model.run_self_test()
    except WikiholtError as error:
        return CheckResult("model", False, error.message, error.hint)
    return CheckResult(
        "model", True, f"{model.fingerprint}, {model.dimensions} dimensions, gives the vectors it should"
    )


def _check_reranker(reranking: RerankConfig) -> CheckResult:
    try:
        reader = reranking.get_reranker()
        reader.run_self_test()
    except WikiholtError as error:
        return CheckResult("reranker", False, error.message, error.hint)
    budget = f"{reranking.timeout_s * 1000:.0f} ms a search"
    return CheckResult("reranker", True, f"{reranking.identity}, gives the scores it should; {budget}")


def _check_data_directory(data: Path) -> CheckResult:
    nearest = next(place for place in (data.absolute(), *data.absolute().parents) if place.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
        return CheckResult(
            "data directory", False, f"{nearest} cannot be written", "change its owner, or choose --data"
        )
    if data.exists() and data.stat().st_mode & _OTHERS_WRITE_MODE:
        detail = f"every user of this machine may put files into {data}"
        return CheckResult("data directory", False, detail, f"chmod o-w {data}")
    made = "" if data.exists() else " (will be made)"
    return CheckResult("data directory", True, f"{data}{made}")


def _check_disk(data: Path) -> CheckResult:
    nearest = next(place for place in (data.absolute(), *data.absolute().parents) if place.exists())
    free = shutil.disk_usage(nearest).free
    text = f"{free / 1024**3:.1f} GiB free"
    if free < _MIN_FREE_BYTES:
        return CheckResult("disk", False, text, "make room: an index needs about four times the size of its pages")
    return CheckResult("disk", True, text)


def _check_registry(service: WikiService, file: Path, wikis: int, backup_interval: float) -> Iterator[CheckResult]:
    """The registry's file, which holds secrets, its backups, and keys that open nothing any more."""
    counted = CheckResult("registry", True, "1 wiki" if wikis == 1 else f"{wikis} wikis")
    if service.components.databases is not None:
        yield counted
        yield from _check_expired_keys(service)
        return
    try:
        found = file.stat()
    except OSError:
        yield counted
        return
    if found.st_mode & _OTHERS_MODE:
        detail = f"other users of this machine may read or write {file}, which holds secrets"
        yield CheckResult("registry", False, detail, f"chmod 600 {file}; the next change of the registry does it too")
    else:
        yield counted
    changed = datetime.fromtimestamp(found.st_mtime, UTC)
    if (
        backup_interval
        and datetime.now(UTC) - changed > _REGISTRY_BACKUP_GRACE
        and service.registry.backups.is_outdated()
    ):
        detail = f"what was changed in the registry by {changed:%Y-%m-%d %H:%M} UTC is in no good backup"
        yield CheckResult(
            "backups", False, detail, "run `wikiholt backup --registry`, and check the backups' directory"
        )
    yield from _check_expired_keys(service)


def _check_expired_keys(service: WikiService) -> Iterator[CheckResult]:
    now = datetime.now(UTC)
    gone = [key for key in service.registry.keys.list() if key.expires_at is not None and key.expires_at <= now]
    if gone:
        named = ", ".join(f"{key.id} ({key.label})" if key.label else key.id for key in gone[:_MAX_SHOWN])
        more = f" and {len(gone) - _MAX_SHOWN} more" if len(gone) > _MAX_SHOWN else ""
        advice = "`wikiholt key revoke ID` strikes one; whoever still uses it needs a new one"
        yield CheckResult("keys", False, f"expired, and opening nothing: {named}{more}", advice)


def _check_backup(handle: WikiHandle, state: IndexState, interval: float) -> Iterator[CheckResult]:
    """Whether what has been in the index for long is in a backup too; a wiki that did not change needs no new one."""
    newest = handle.backups.find_newest()
    since = handle.wiki.created_at if newest is None else newest.taken_at
    age = datetime.now(UTC) - since
    if not interval or age.total_seconds() <= 2 * interval or (newest is not None and newest.state == state):
        return
    told = f"of {since:%Y-%m-%d %H:%M} UTC, and the index has changed since" if newest is not None else "not there yet"
    yield CheckResult(
        f"wiki {handle.wiki.slug}",
        False,
        f"its newest backup is {told}",
        f"run `wikiholt backup {handle.wiki.slug}`; while the service runs its log says why it made none",
    )


def _check_wiki(handle: WikiHandle, backup_interval: float) -> Iterator[CheckResult]:
    subject = f"wiki {handle.wiki.slug}"
    status = handle.get_status()
    if status.error is not None:
        yield CheckResult(subject, False, status.error.message, status.error.hint)
    if status.state is None:
        return
    faults = handle.check()
    if faults:
        handle.check_integrity()  # what it finds is remembered, so that the next sync mends it
    again = f"run `wikiholt sync {handle.wiki.slug}`"
    for fault in faults:
        yield CheckResult(subject, False, fault, f"{again}: it puts the damaged index aside and mends it")
    yield from _check_backup(handle, status.state, backup_interval)
    if status.stale and status.error is None:
        yield CheckResult(subject, False, "the index is behind HEAD", again)
    if status.problems:
        first = status.problems[0]
        detail = f"{len(status.problems)} pages could not be indexed; the first: {first.file}: {first.detail}"
        yield CheckResult(subject, False, detail, f"see `wikiholt status {handle.wiki.slug}` and mend the pages")
    elif not faults and not status.stale:
        counts = f"pages: {status.state.pages}, chunks: {status.state.chunks}"
        yield CheckResult(subject, True, f"whole and at HEAD; {counts}")
