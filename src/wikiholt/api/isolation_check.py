"""The checks of `wikiholt verify-isolation`: whether a wiki has data of another wiki. They change nothing."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

from wikiholt.api.doctor import CheckResult
from wikiholt.domain.protocols import Source
from wikiholt.domain.storage_protocols import DatabaseAdmin, WikiIndex
from wikiholt.domain.wiki import Wiki
from wikiholt.errors import DatabaseUnavailable, IndexMissing, WikiholtError
from wikiholt.index.keywords.keyword_file import read_keyword_file_owner
from wikiholt.index.sqlite.schema import get_owner
from wikiholt.index.sqlite.vector_file import read_vector_header
from wikiholt.wikis.handle import WikiHandle
from wikiholt.wikis.service import WikiService
from wikiholt.wikis.sqlite_query_log import QUERY_LOG_FILE, get_query_log_owner

_ADVICE = "see docs/security.md#a-suspected-leak; keep the file as evidence before you repair anything"
_READ_ATTEMPTS = 3
"""A sync may commit between reading the index and reading the repository."""
_MAX_SHOWN = 5


Check = tuple[str, Callable[[], str]]
"""The name of a part of a wiki, and a function that returns why it is not this wiki's own, or an empty text."""


def check_isolation(service: WikiService, slug: str) -> list[CheckResult]:
    """Check the indexes, caches, backups and query log of one wiki. Returns the faults, or one good result."""
    subject = f"wiki {slug}"
    try:
        checks = list(_list_checks(service, service.registry.get(slug)))
        faults = [(name, fault) for name, find_fault in checks if (fault := _run_check(find_fault))]
    except WikiholtError as error:
        return [CheckResult(subject, False, error.message, error.hint)]
    if not faults:
        return [CheckResult(subject, True, f"all its data is its own ({len(checks)} checks)")]
    return [CheckResult(subject, False, f"{name}: {fault}", _ADVICE) for name, fault in faults]


def _run_check(find_fault: Callable[[], str]) -> str:
    try:
        return find_fault()
    except FileNotFoundError:
        return ""  # a running service has removed it
    except DatabaseUnavailable:  # no sign of a leak
        raise
    except WikiholtError as error:
        return error.message
    except (OSError, sqlite3.Error) as error:
        return f"it cannot be read ({error})"


def _list_checks(service: WikiService, wiki: Wiki) -> Iterator[Check]:
    store, source = service.components.store, service.get_source(wiki)
    yield "published index", partial(_check_published, partial(store.open, wiki.id), wiki, source)
    handle = service.get_handle(wiki.slug)
    yield "rows of the published index", partial(_check_rows, handle)
    databases = service.components.databases
    if databases is not None:
        yield "rights in PostgreSQL", partial(_check_roles, databases, wiki)
        yield "other databases", partial(_check_strays, databases, wiki)
    for backup in handle.backups.list():
        yield f"backup of {backup.taken_at:%Y-%m-%d %H:%M:%S} UTC", partial(str, backup.fault)
    directory = store.get_directory(wiki.id)
    views = directory.glob(f"past/*/{wiki.id}/*")
    for file in sorted([*directory.iterdir(), *views]) if directory.is_dir() else ():
        get_file_owner = _choose_reader(file.name)
        if get_file_owner is not None:
            yield str(file.relative_to(directory)), partial(_check_file, file, get_file_owner, wiki)


def _check_rows(handle: WikiHandle) -> str:
    """Compare the passages and all else in the index with their checksums: text of another wiki may replace a row."""
    try:
        return "; ".join(handle.check())
    except IndexMissing:
        return ""


def _check_roles(databases: DatabaseAdmin, wiki: Wiki) -> str:
    roles = databases.list_unexpected_roles(wiki.id)
    return f"other roles can use its schema or its role: {', '.join(roles)}" if roles else ""


def _check_strays(databases: DatabaseAdmin, wiki: Wiki) -> str:
    strays = databases.find_strays(wiki.id)
    return f"its schema is also in {', '.join(strays)}, where nothing reads or updates it" if strays else ""


def _choose_reader(name: str) -> Callable[[Path], str] | None:
    """The function that reads the owner of a file of this name; None for files that contain no page."""
    if name == QUERY_LOG_FILE:
        return lambda file: _read_with(file, get_query_log_owner)
    if name.startswith(("g", "copy-g")) and name.endswith(".sqlite"):
        return lambda file: _read_with(file, get_owner)
    if name.endswith(".keywords"):
        return read_keyword_file_owner
    if name.startswith(("g", "copy-g")) and name.endswith(".vectors"):
        return lambda file: read_vector_header(file).wiki_id
    return None


def _read_with(file: Path, read: Callable[[sqlite3.Connection], str]) -> str:
    file.stat()
    with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as db:
        return read(db)


def _check_file(file: Path, get_file_owner: Callable[[Path], str], wiki: Wiki) -> str:
    return _check_owner(get_file_owner(file), wiki)


def _check_owner(owner: str, wiki: Wiki) -> str:
    return "" if owner == wiki.id else f"it belongs to another wiki ({owner})"


def _read_present_blobs(
    source: Source, own: set[tuple[str, str]], unsure: set[tuple[str, str]]
) -> set[tuple[str, str]]:
    """What these pages of a directory contain now: a sync indexes it if they have changed since the last scan."""
    known = dict(own)
    files = [file for file, _ in unsure if file in known]
    return {(file, blob.id) for file, blob in zip(files, source.read_blobs([known[f] for f in files], 0), strict=True)}


def _check_published(open_index: Callable[[], WikiIndex], wiki: Wiki, source: Source) -> str:
    """Find pages in the index that are neither in the indexed revision nor at HEAD."""
    foreign: list[str] = []
    for _ in range(_READ_ATTEMPTS):
        try:
            with closing(open_index()) as index:
                owner, blobs, revision = index.wiki_id, index.get_page_blobs(), index.get_state().revision
        except IndexMissing:
            return ""
        if owner != wiki.id:
            return _check_owner(owner, wiki)
        revisions = {source.get_last_known_head(), *((revision,) if revision else ())}
        own = {(file, entry.blob) for commit in revisions for file, entry in source.read_tree(commit).items()}
        if wiki.is_directory:
            own |= _read_present_blobs(source, own, set(blobs.items()) - own)
        foreign = sorted(file for file, blob in blobs.items() if (file, blob) not in own)
        if not foreign:
            return ""
    names = ", ".join(foreign[:_MAX_SHOWN]) + (" …" if len(foreign) > _MAX_SHOWN else "")
    return f"pages that are not in its repository: {len(foreign)} ({names})"
