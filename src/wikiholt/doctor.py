"""A check of everything Wikiholt stands on, with what to do about each fault found."""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from wikiholt.errors import WikiholtError
from wikiholt.handle import WikiHandle
from wikiholt.model import State, Wiki
from wikiholt.ports import Databases, Embedder
from wikiholt.search import Reranking
from wikiholt.service import Service

_LITTLE_DISK = 500 * 1024 * 1024
_OTHERS, _OTHERS_WRITE = 0o077, 0o002
_AN_HOUR = timedelta(hours=1)
"""Longer than it ever takes until a change of the registry is backed up."""
_SHOWN = 5
_CUT_OFF = "what 1 move left at another place is still there"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at; `advice` says what to do where it is not well."""

    subject: str
    well: bool
    detail: str
    advice: str = ""


def examine(service: Service, data: Path, backup_interval: float) -> Iterator[Finding]:
    """Look at git, model, disk, permissions, keys, backups and every wiki; changes nothing."""
    yield _git()
    yield _model(service.workshop.embedder)
    if service.workshop.reranking is not None:
        yield _reranker(service.workshop.reranking)
    yield _directory(data)
    yield _disk(data)
    if service.workshop.engine is not None:
        wrong = service.workshop.engine.examine()
        advice = "see docs/engines.md; exact search answers meanwhile" if wrong else ""
        yield Finding(service.workshop.engine.name, not wrong, wrong or "answers as it should", advice)
    if service.workshop.databases is not None:
        yield from _databases(service.workshop.databases)
    wikis: Sequence[Wiki] = ()
    try:
        wikis = service.wikis()
    except WikiholtError as error:
        yield Finding("registry", False, error.message, error.hint)
    else:
        yield from _registry(service, data / "registry.sqlite", len(wikis), backup_interval)
        yield from _strays(service, {wiki.id for wiki in wikis})
    for wiki in wikis:
        try:
            yield from _wiki(service.wiki(wiki.slug), backup_interval)
        except WikiholtError as error:
            yield Finding(f"wiki {wiki.slug}", False, error.message, error.hint)


def _databases(databases: Databases) -> Iterator[Finding]:
    """The databases that hold indexes: there, of a version that will do, and of today's layout."""
    try:
        found, cut_off = databases.standing(), databases.unfinished()
    except WikiholtError as error:
        said = " ".join(str(error.__cause__ or "").split())
        detail = f"{error.message}: {said}" if said else error.message
        yield Finding("databases", False, detail, "check the setting store, and the server")
        return
    for each in found:
        subject = f"database {each.name}"
        if each.away:
            yield Finding(subject, False, each.away, "its wikis answer again once it is back; nothing is lost")
            continue
        held = f"{each.wikis} wikis" if each.wikis != 1 else "1 wiki"
        yield Finding(subject, True, f"PostgreSQL {each.server}, pgvector {each.vector}; {held}")
        if each.behind:
            detail = f"{each.behind} of its wikis have tables of an older layout"
            yield Finding(subject, False, detail, "run `wikiholt upgrade` once every node runs this version")
    if cut_off:
        detail = f"what {len(cut_off)} moves left at another place is still there" if len(cut_off) > 1 else _CUT_OFF
        yield Finding("databases", False, detail, "if nobody is moving a wiki, `wikiholt database sweep` removes it")


def _strays(service: Service, known: set[str]) -> Iterator[Finding]:
    store = service.workshop.store
    try:
        strays = [each for each in store.ids() if each not in known]
    except WikiholtError:
        return  # a database that is away was told of already
    if service.workshop.databases is None:
        for stray in strays:
            detail = f"{store.directory(stray)} belongs to no wiki"
            yield Finding("strays", False, detail, "delete it if nothing else put it there")
    elif strays:
        shown = ", ".join(strays[:_SHOWN]) + (" …" if len(strays) > _SHOWN else "")
        advice = "a move may be under way; if none is, `wikiholt database sweep` removes them"
        yield Finding("strays", False, f"indexes that belong to no wiki: {shown}", advice)


def _git() -> Finding:
    try:
        done = subprocess.run(["git", "--version"], capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError) as error:
        return Finding("git", False, f"git does not run ({error})", "install git and put it on PATH")
    return Finding("git", True, done.stdout.strip())


def _model(embedder: Callable[[], Embedder]) -> Finding:
    try:
        model = embedder()
        model.prove()
    except WikiholtError as error:
        return Finding("model", False, error.message, error.hint)
    return Finding("model", True, f"{model.fingerprint}, {model.dimensions} dimensions, gives the vectors it should")


def _reranker(reranking: Reranking) -> Finding:
    try:
        reader = reranking.reader()
        reader.prove()
    except WikiholtError as error:
        return Finding("reranker", False, error.message, error.hint)
    budget = f"{reranking.seconds * 1000:.0f} ms a search"
    return Finding("reranker", True, f"{reranking.identity}, gives the scores it should; {budget}")


def _directory(data: Path) -> Finding:
    nearest = next(place for place in (data.absolute(), *data.absolute().parents) if place.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
        return Finding("data directory", False, f"{nearest} cannot be written", "change its owner, or choose --data")
    if data.exists() and data.stat().st_mode & _OTHERS_WRITE:
        detail = f"every user of this machine may put files into {data}"
        return Finding("data directory", False, detail, f"chmod o-w {data}")
    made = "" if data.exists() else " (will be made)"
    return Finding("data directory", True, f"{data}{made}")


def _disk(data: Path) -> Finding:
    nearest = next(place for place in (data.absolute(), *data.absolute().parents) if place.exists())
    free = shutil.disk_usage(nearest).free
    text = f"{free / 1024**3:.1f} GiB free"
    if free < _LITTLE_DISK:
        return Finding("disk", False, text, "make room: an index needs about four times the size of its pages")
    return Finding("disk", True, text)


def _registry(service: Service, file: Path, wikis: int, backup_interval: float) -> Iterator[Finding]:
    """The registry's file, which holds secrets, its backups, and keys that open nothing any more."""
    counted = Finding("registry", True, "1 wiki" if wikis == 1 else f"{wikis} wikis")
    if service.workshop.databases is not None:
        yield counted
        yield from _expired(service)
        return
    try:
        found = file.stat()
    except OSError:
        yield counted
        return
    if found.st_mode & _OTHERS:
        detail = f"other users of this machine may read or write {file}, which holds secrets"
        yield Finding("registry", False, detail, f"chmod 600 {file}; the next change of the registry does it too")
    else:
        yield counted
    changed = datetime.fromtimestamp(found.st_mtime, UTC)
    if backup_interval and datetime.now(UTC) - changed > _AN_HOUR and service.registry.backups.behind():
        detail = f"what was changed in the registry by {changed:%Y-%m-%d %H:%M} UTC is in no good backup"
        yield Finding("backups", False, detail, "run `wikiholt backup --registry`, and check the backups' directory")
    yield from _expired(service)


def _expired(service: Service) -> Iterator[Finding]:
    now = datetime.now(UTC)
    gone = [key for key in service.registry.keys.list() if key.expires_at is not None and key.expires_at <= now]
    if gone:
        named = ", ".join(f"{key.id} ({key.label})" if key.label else key.id for key in gone[:_SHOWN])
        more = f" and {len(gone) - _SHOWN} more" if len(gone) > _SHOWN else ""
        advice = "`wikiholt key revoke ID` strikes one; whoever still uses it needs a new one"
        yield Finding("keys", False, f"expired, and opening nothing: {named}{more}", advice)


def _backup(handle: WikiHandle, state: State, interval: float) -> Iterator[Finding]:
    """Whether what has been in the index for long is in a backup too; a wiki that did not change needs no new one."""
    newest = handle.backups.newest()
    since = handle.wiki.created_at if newest is None else newest.taken_at
    age = datetime.now(UTC) - since
    if not interval or age.total_seconds() <= 2 * interval or (newest is not None and newest.state == state):
        return
    told = f"of {since:%Y-%m-%d %H:%M} UTC, and the index has changed since" if newest is not None else "not there yet"
    yield Finding(
        f"wiki {handle.wiki.slug}",
        False,
        f"its newest backup is {told}",
        f"run `wikiholt backup {handle.wiki.slug}`; while the service runs its log says why it made none",
    )


def _wiki(handle: WikiHandle, backup_interval: float) -> Iterator[Finding]:
    subject = f"wiki {handle.wiki.slug}"
    status = handle.status()
    if status.error is not None:
        yield Finding(subject, False, status.error.message, status.error.hint)
    if status.state is None:
        return
    faults = handle.check()
    if faults:
        handle.examine()  # what it finds is remembered, so that the next sync mends it
    again = f"run `wikiholt sync {handle.wiki.slug}`"
    for fault in faults:
        yield Finding(subject, False, fault, f"{again}: it puts the damaged index aside and mends it")
    yield from _backup(handle, status.state, backup_interval)
    if status.stale and status.error is None:
        yield Finding(subject, False, "the index is behind HEAD", again)
    if status.problems:
        first = status.problems[0]
        detail = f"{len(status.problems)} pages could not be indexed; the first: {first.file}: {first.detail}"
        yield Finding(subject, False, detail, f"see `wikiholt status {handle.wiki.slug}` and mend the pages")
    elif not faults and not status.stale:
        counts = f"pages: {status.state.pages}, chunks: {status.state.chunks}"
        yield Finding(subject, True, f"whole and at HEAD; {counts}")
