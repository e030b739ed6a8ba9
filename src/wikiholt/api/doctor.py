"""Health checks of `wikiholt doctor`, each with advice for what it finds."""

import importlib.util
import os
import shutil
import subprocess
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from wikiholt.api.settings.definitions import Settings
from wikiholt.domain.git import EntryKind
from wikiholt.domain.protocols import Embedder
from wikiholt.domain.storage_protocols import DatabaseAdmin
from wikiholt.domain.wiki import HOME_DATABASE, DatabaseStatus, Wiki
from wikiholt.errors import LoginRefused, NoPagesYet, WikiholtError, make_extra_hint
from wikiholt.search.answer_writer import AnswerWriter
from wikiholt.search.reranking import RerankConfig
from wikiholt.wikis.handle import WikiHandle
from wikiholt.wikis.people import EVERYONE, GroupRules
from wikiholt.wikis.service import WikiService

_MIN_FREE_BYTES = 500 * 1024 * 1024
_OTHERS_MODE, _OTHERS_WRITE_MODE = 0o077, 0o002
_REGISTRY_BACKUP_GRACE = timedelta(hours=1)
"""Longer than the usual delay until a change of the registry is backed up."""
_MAX_SHOWN = 5


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of one check; `advice` says what to do if it failed."""

    subject: str
    ok: bool
    detail: str
    advice: str = ""


def fix_logins(service: WikiService) -> Iterator[CheckResult]:
    """Give the role of each wiki that cannot log in to its database its password again."""
    databases = service.components.databases
    for wiki in service.list_wikis() if databases is not None else ():
        try:
            service.components.store.get_change_token(wiki.id)
        except LoginRefused:
            assert databases is not None
            databases.repair_access(wiki.id)
            yield CheckResult(f"wiki {wiki.slug}", True, "the password of its database role was set again")


def check_sign_in(service: WikiService, settings: Settings) -> Iterator[CheckResult]:
    """Check that the sign-in settings are complete; without any there is no result."""
    try:
        slugs = [wiki.slug for wiki in service.list_wikis()]
    except WikiholtError:
        return  # run_checks reports it
    problems = list(_find_sign_in_problems(settings, slugs))
    for detail, advice in problems:
        yield CheckResult("sign-in", False, detail, advice)
    methods = {
        "remembered keys": settings.people_remember_days,
        "proxy": settings.people_proxy_user_header,
        "OpenID Connect": settings.people_oidc_issuer,
    }
    if not problems and any(methods.values()):
        yield CheckResult("sign-in", True, ", ".join(name for name, value in methods.items() if value))


def run_checks(service: WikiService, data: Path, backup_interval_s: float) -> Iterator[CheckResult]:
    """Check git, model, disk, permissions, keys, backups and every wiki. Changes nothing."""
    yield _check_git()
    yield _check_model(service.components.embedder)
    if service.components.reranking is not None:
        yield _check_reranker(service.components.reranking)
    if service.components.answer_writer is not None:
        yield _check_language_model(service.components.answer_writer)
    yield _check_data_directory(data)
    yield _check_disk(data)
    if service.components.vector_engine is not None:
        fault = service.components.vector_engine.check()
        advice = "see docs/engines.md; searches use exact scores meanwhile" if fault else ""
        yield CheckResult(service.components.vector_engine.name, not fault, fault or "responds correctly", advice)
    if service.components.databases is not None:
        yield from check_databases(service.components.databases)
    wikis: Sequence[Wiki] = ()
    try:
        wikis = service.list_wikis()
    except WikiholtError as error:
        yield CheckResult("registry", False, error.message, error.hint)
    else:
        yield from _check_registry(service, data / "registry.sqlite", len(wikis), backup_interval_s)
        yield from _check_orphans(service)
    for wiki in wikis:
        try:
            yield from _check_wiki(service.get_handle(wiki.slug))
        except WikiholtError as error:
            yield CheckResult(f"wiki {wiki.slug}", False, error.message, error.hint)


def check_databases(databases: DatabaseAdmin) -> Iterator[CheckResult]:
    """Check that the databases are reachable, of a supported version, and of the current schema."""
    try:
        statuses, unfinished = databases.get_statuses(), databases.find_unfinished_moves()
    except WikiholtError as error:
        cause = " ".join(str(error.__cause__ or "").split())
        detail = f"{error.message}: {cause}" if cause else error.message
        yield CheckResult("databases", False, detail, "check the setting store, and the server")
        return
    for status in statuses:
        subject = f"database {status.name}"
        if status.error:
            advice = "its wikis are available again when the database is; no data is lost"
            yield CheckResult(subject, False, status.error, advice)
            continue
        wikis = _format_wikis(status.wikis)
        yield CheckResult(subject, True, f"PostgreSQL {status.server}, pgvector {status.vector}; {wikis}")
        if status.shortage:
            yield CheckResult(subject, False, status.shortage, "see docs/scale.md#server-settings")
        if status.replication_fault:
            # Git has what a wiki's index loses. The keys and wikis of the home are nowhere else.
            is_home = status.name == HOME_DATABASE
            note = "" if is_home else "; the next sync writes them again"
            advice = "let the standby confirm: see docs/scale.md#failover" if is_home else ""
            yield CheckResult(subject, not is_home, status.replication_fault + note, advice)
        yield from _check_wiki_login(databases, status)
    if all(status.error or not status.open or status.wikis >= status.max_wikis for status in statuses):
        advice = "`wikiholt database add` adds a database (docs/scale.md#cells)"
        yield CheckResult("databases", False, "no database has room for a new wiki", advice)
    if unfinished:
        detail = f"leftovers of unfinished moves: {len(unfinished)}"
        yield CheckResult("databases", False, detail, "if no move is running, `wikiholt database sweep` deletes them")


def _check_wiki_login(databases: DatabaseAdmin, status: DatabaseStatus) -> Iterator[CheckResult]:
    """Check that wikis will be able to log in, before there are any. Later each wiki is checked itself."""
    if status.wikis:
        return
    try:
        fault = databases.check_wiki_login(status.name)
    except WikiholtError as error:
        fault = error.message
    if fault:
        advice = "allow password logins to this database in pg_hba.conf (docs/scale.md#password-logins)"
        yield CheckResult(f"database {status.name}", False, f"wikis cannot log in: {fault}", advice)


def _format_wikis(count: int) -> str:
    return "1 wiki" if count == 1 else f"{count} wikis"


def _check_orphans(service: WikiService) -> Iterator[CheckResult]:
    try:
        orphans = service.list_unregistered_indexes()
    except WikiholtError:
        return  # check_databases has reported an unavailable database
    if service.components.databases is None:
        for wiki_id in orphans:
            detail = f"{service.components.store.get_directory(wiki_id)} belongs to no wiki"
            yield CheckResult("orphans", False, detail, "delete it, unless another program created it")
    elif orphans:
        names = ", ".join(orphans[:_MAX_SHOWN]) + (" …" if len(orphans) > _MAX_SHOWN else "")
        advice = "if no move is running, `wikiholt database sweep` deletes them"
        yield CheckResult("orphans", False, f"indexes that belong to no wiki: {names}", advice)


def _check_git() -> CheckResult:
    try:
        process = subprocess.run(["git", "--version"], capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError) as error:
        return CheckResult("git", False, f"git cannot be run ({error})", "install git and put it on PATH")
    return CheckResult("git", True, process.stdout.strip())


def _check_model(embedder: Callable[[], Embedder]) -> CheckResult:
    try:
        model = embedder()
        model.run_self_test()
    except WikiholtError as error:
        return CheckResult("model", False, error.message, error.hint)
    return CheckResult("model", True, f"{model.fingerprint}, {model.dimensions} dimensions, self-test passed")


def _check_reranker(reranking: RerankConfig) -> CheckResult:
    try:
        reranking.get_reranker().run_self_test()
    except WikiholtError as error:
        return CheckResult("reranker", False, error.message, error.hint)
    budget = f"{reranking.timeout_s * 1000:.0f} ms per search"
    return CheckResult("reranker", True, f"{reranking.identity}, self-test passed; {budget}")


def _check_language_model(writer: AnswerWriter) -> CheckResult:
    try:
        writer.server.run_self_test()
    except WikiholtError as error:
        return CheckResult("language model", False, error.message, error.hint)
    return CheckResult("language model", True, f"{writer.server.model} on {writer.server.address} answers")


def _check_data_directory(data: Path) -> CheckResult:
    nearest = _find_existing(data)
    if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
        return CheckResult(
            "data directory", False, f"{nearest} is not writable", "change its owner, or choose another --data"
        )
    if data.exists() and data.stat().st_mode & _OTHERS_WRITE_MODE:
        detail = f"every user of this machine can create files in {data}"
        return CheckResult("data directory", False, detail, f"chmod o-w {data}")
    note = "" if data.exists() else " (will be created)"
    return CheckResult("data directory", True, f"{data}{note}")


def _find_existing(path: Path) -> Path:
    """The path or its nearest parent that exists."""
    return next(parent for parent in (path.absolute(), *path.absolute().parents) if parent.exists())


def _check_disk(data: Path) -> CheckResult:
    free = shutil.disk_usage(_find_existing(data)).free
    text = f"{free / 1024**3:.1f} GiB free"
    if free < _MIN_FREE_BYTES:
        return CheckResult(
            "disk", False, text, "free some space: an index needs about four times the size of its pages"
        )
    return CheckResult("disk", True, text)


def _check_registry(service: WikiService, file: Path, wikis: int, backup_interval_s: float) -> Iterator[CheckResult]:
    """Check the permissions of the registry file, which contains secrets, its backups, and expired keys."""
    summary = CheckResult("registry", True, _format_wikis(wikis))
    if service.components.databases is not None:
        yield summary
        yield from _check_expired_keys(service)
        return
    try:
        file_status = file.stat()
    except OSError:
        yield summary
        return
    if file_status.st_mode & _OTHERS_MODE:
        detail = f"other users of this machine can read or write {file}, which contains secrets"
        yield CheckResult("registry", False, detail, f"chmod 600 {file}; the next change of the registry does so too")
    else:
        yield summary
    changed = datetime.fromtimestamp(file_status.st_mtime, UTC)
    if (
        backup_interval_s
        and datetime.now(UTC) - changed > _REGISTRY_BACKUP_GRACE
        and service.registry.backups.is_outdated()
    ):
        detail = f"no usable backup contains the change of the registry of {changed:%Y-%m-%d %H:%M} UTC"
        yield CheckResult("backups", False, detail, "run `wikiholt backup --registry`, and check the backup directory")
    yield from _check_expired_keys(service)


def _check_expired_keys(service: WikiService) -> Iterator[CheckResult]:
    now = datetime.now(UTC)
    expired = [key for key in service.registry.keys.list() if key.expires_at is not None and key.expires_at <= now]
    if expired:
        names = ", ".join(f"{key.id} ({key.label})" if key.label else key.id for key in expired[:_MAX_SHOWN])
        more = f" and {len(expired) - _MAX_SHOWN} more" if len(expired) > _MAX_SHOWN else ""
        advice = "delete them with `wikiholt key revoke ID`; clients that still use them need new keys"
        yield CheckResult("keys", False, f"expired: {names}{more}", advice)


def _check_wiki(handle: WikiHandle) -> Iterator[CheckResult]:
    subject = f"wiki {handle.wiki.slug}"
    status = handle.get_status()
    if isinstance(status.error, NoPagesYet):
        yield CheckResult(subject, True, "no pages yet")
    elif status.error is not None:
        yield CheckResult(subject, False, status.error.message, status.error.hint)
    if status.state is None:
        return
    faults = handle.check()
    if faults:
        handle.check_integrity()  # records the damage, so that the next sync repairs it
    sync = f"run `wikiholt sync {handle.wiki.slug}`"
    for fault in faults:
        yield CheckResult(subject, False, fault, f"{sync}: it quarantines the damaged index and repairs it")
    if status.stale and status.error is None:
        yield CheckResult(subject, False, "the index is behind HEAD", sync)
    # CONTRIBUTING.md and the like are often links at the root, to a page that is indexed under its own name.
    problems = [problem for problem in status.problems if problem.reason != EntryKind.SYMLINK or "/" in problem.file]
    if problems:
        first = problems[0]
        detail = f"{len(problems)} pages could not be indexed; the first: {first.file}: {first.detail}"
        yield CheckResult(subject, False, detail, f"see `wikiholt status {handle.wiki.slug}` and fix the pages")
    elif not faults and not status.stale and status.state.pages:
        counts = f"pages: {status.state.pages}, chunks: {status.state.chunks}"
        if status.pages_with_warnings:
            counts += f", pages with warnings (see `wikiholt status`): {status.pages_with_warnings}"
        yield CheckResult(subject, True, f"intact and at HEAD; {counts}")


# The sign-in settings.


_DOCS = "see docs/people.md"


def _find_sign_in_problems(settings: Settings, slugs: Collection[str]) -> Iterator[tuple[str, str]]:
    """What is incomplete in the sign-in settings, each with advice."""
    has_proxy, has_oidc = bool(settings.people_proxy_user_header), bool(settings.people_oidc_issuer)
    rules = GroupRules(settings.people_groups).rules
    if has_proxy:
        yield from _find_proxy_problems(settings)
    if has_oidc:
        yield from _find_oidc_problems(settings)
    elif settings.people_oidc_client_id or settings.people_oidc_client_secret:
        yield "people.oidc_issuer is empty, so nobody can sign in with OpenID Connect", "set the issuer of the provider"
    if (has_proxy or has_oidc) and not rules:
        yield "people.groups is empty, so people may read public wikis only", f"map groups to wikis; {_DOCS}"
    if rules and not (has_proxy or has_oidc):
        yield "people.groups has no effect without a proxy or OpenID Connect", f"set up one of them; {_DOCS}"
    for rule in rules:
        if rule.slug not in (EVERYONE, *slugs):
            yield f"people.groups names the wiki {rule.slug}, which does not exist", "`wikiholt list` shows all wikis"


def _find_proxy_problems(settings: Settings) -> Iterator[tuple[str, str]]:
    if not settings.serve_trusted_proxies:
        yield "serve.trusted_proxies is empty, so the headers of every proxy are ignored", "list the proxy's address"
    if EVERYONE in settings.serve_trusted_proxies:
        detail = "serve.trusted_proxies contains *, which is not trusted for the names of people"
        yield detail, "list the proxy's own address"
    groups = {rule.group for rule in GroupRules(settings.people_groups).rules} - {EVERYONE}
    if groups and not settings.people_proxy_groups_header:
        yield "people.proxy_groups_header is empty, so people have no groups", "name the header, such as Remote-Groups"


def _find_oidc_problems(settings: Settings) -> Iterator[tuple[str, str]]:
    if not settings.people_oidc_client_id:
        yield "people.oidc_client_id is empty", "register this service at the provider and set its id"
    if importlib.util.find_spec("authlib") is None or importlib.util.find_spec("httpx2") is None:
        yield "the extra oidc is not installed", make_extra_hint("oidc")
