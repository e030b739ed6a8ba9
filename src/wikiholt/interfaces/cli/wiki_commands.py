"""What other processes are doing for a wiki, or left undone: read from its store, told by `wikiholt status`."""

import json
import sys
from argparse import Namespace
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypedDict

from wikiholt.app import doctor as checks
from wikiholt.app.settings.definitions import SETTINGS, Settings
from wikiholt.domain.index import SyncReport
from wikiholt.domain.search import PageFilter, SearchInterface, SearchMode
from wikiholt.domain.storage_protocols import IndexStore
from wikiholt.errors import DatabaseUnavailable, ModelError, RepositoryReplaced, WikiholtError, WikiNotFound
from wikiholt.git.remote_url import is_remote, redact_url
from wikiholt.interfaces.cli import output
from wikiholt.interfaces.cli.output import TerminalStyle, show_sync_progress, to_safe_line
from wikiholt.interfaces.schemas.admin_schemas import (
    build_error_document,
    build_estimate_document,
    build_status_document,
    build_sync_document,
    build_wiki_document,
)
from wikiholt.interfaces.schemas.common import format_date, parse_since
from wikiholt.interfaces.schemas.search_schemas import build_result_document
from wikiholt.scheduler.activity import read_activity
from wikiholt.scheduler.reindex_job import ReindexJob, ReindexState, read_job, write_job
from wikiholt.scheduler.wiki_records import WikiActivity
from wikiholt.search.request import SearchRequest
from wikiholt.wikis.service import WikiService


class WorkDocument(TypedDict):
    """What is at work, and the reindexing that waits for somebody to go on with it, if one does."""

    activity: dict[str, object] | None
    unfinished_reindex: dict[str, object] | None


@dataclass(frozen=True, slots=True)
class WikiWork:
    """What is being done for a wiki by whichever process, and its last job."""

    activity: WikiActivity | None
    job: ReindexJob

    @property
    def is_reindex_unfinished(self) -> bool:
        """Whether a reindexing is not finished and nobody is at it: it waits for its turn, or was cut off."""
        return self.job.is_open and self.activity is None


def read_wiki_work(store: IndexStore, wiki_id: str) -> WikiWork:
    return WikiWork(read_activity(store, wiki_id), read_job(store, wiki_id))


def finish_reindex_job(store: IndexStore, wiki_id: str, report: SyncReport) -> None:
    """A reindexing has come to its end here: one that a service was cut off in need not be gone on with."""
    job = read_job(store, wiki_id)
    if WikiWork(read_activity(store, wiki_id), job).is_reindex_unfinished:
        done = replace(job, state=ReindexState.COMPLETE, finished_at=datetime.now(UTC), pages_done=job.pages_total)
        write_job(store, wiki_id, replace(done, problems=len(report.problems), revision=report.revision))


def format_work(work: WikiWork, style: TerminalStyle) -> list[str]:
    """For people; nothing where nothing is to be told."""
    told, job = [], work.job
    if work.activity is not None:
        far = f"{work.activity.pages_done} of {work.activity.pages_total} pages"
        told.append(f"  {work.activity.kind} at work since {work.activity.since:%Y-%m-%d %H:%M} UTC: {far}")
    elif work.is_reindex_unfinished:
        begun = f"begun {job.started_at:%Y-%m-%d %H:%M} UTC, " if job.started_at else ""
        far = f"{job.pages_done} of {job.pages_total} pages" if job.pages_total else "nothing done yet"
        told.append(
            style.format_warning(f"  a reindexing is not finished ({begun}{far}); this index answers meanwhile")
        )
        told.append(
            "  hint: the service goes on with it, at the latest when it starts again; so does `wikiholt reindex`"
        )
    elif job.state is ReindexState.FAILED:
        told.append(style.format_warning(f"  the last reindexing failed: {to_safe_line(job.error)}"))
    return told


def build_work_document(work: WikiWork) -> WorkDocument:
    """The same as JSON."""
    now, job = work.activity, work.job
    return {
        "activity": None
        if now is None
        else {
            "kind": now.kind,
            "since": format_date(now.since),
            "pages_done": now.pages_done,
            "pages_total": now.pages_total,
            "chunks_embedded": now.chunks_embedded,
        },
        "unfinished_reindex": {
            "started_at": format_date(job.started_at) if job.started_at else None,
            "pages_done": job.pages_done,
            "pages_total": job.pages_total,
        }
        if work.is_reindex_unfinished
        else None,
    }


# What each command does: ask the service, then print for people or as JSON.


NOTHING_FOUND_EXIT_CODE = 1
PROBLEMS_FOUND_EXIT_CODE = 10

_CACHE_TIMEOUT_S = 600.0
"""Seconds a command waits for a large wiki's caches, so that the next search finds them."""


def run_add(service: WikiService, arguments: Namespace) -> int:
    names = ("subdirectory", "language", "languages", "anchors", "url", "interval")
    settings = {name: value for name in names if (value := getattr(arguments, name)) is not None}
    for name in ("ignore", "hide"):
        if patterns := getattr(arguments, name):
            settings[name] = "\n".join(patterns)
    if arguments.host:
        settings["hosts"] = ", ".join(arguments.host)
    if arguments.public:
        settings["public"] = "true"
    source = arguments.source
    wiki = service.add(arguments.slug, source if is_remote(source) else str(Path(source).resolve()), settings)
    lines = [f"Added {wiki.slug}.", f"Next: wikiholt sync {wiki.slug}"]
    return print_result(arguments, build_wiki_document(wiki), lines)


def run_sync(service: WikiService, arguments: Namespace) -> int:
    """Sync one wiki or all; one that fails does not keep the others from being synced."""
    style = output.TerminalStyle.from_stream(sys.stdout)
    done: list[Mapping[str, Any]] = []
    code = 0
    for slug in _get_slugs(service, arguments):
        try:
            handle = service.get_handle(slug)
            with show_sync_progress(slug, visible=should_show_progress(arguments)) as progress:
                handle.fetch()
                report = handle.sync(progress)
            handle.wait_for_caches(_CACHE_TIMEOUT_S)
        except WikiholtError as error:
            if arguments.slug:
                raise
            print_error(error, slug)
            done.append({"wiki": slug, "error": build_error_document(error)})
            code = code or error.exit_code
            continue
        done.append(build_sync_document(handle.wiki, report))
        if not arguments.json:
            output.print_lines(output.format_sync(slug, report, style))
    if arguments.json:
        _print_json(done[0] if arguments.slug else {"wikis": done})
    return code


def run_reindex(service: WikiService, arguments: Namespace) -> int:
    handle = service.get_handle(arguments.slug)
    if arguments.dry_run:
        found = handle.estimate_reindex()
        lines = output.format_estimate(arguments.slug, found, output.TerminalStyle.from_stream(sys.stdout))
        return print_result(arguments, build_estimate_document(found), lines)
    with show_sync_progress(arguments.slug, visible=should_show_progress(arguments)) as progress:
        report = handle.reindex(progress)
    finish_reindex_job(service.components.store, handle.wiki.id, report)
    handle.wait_for_caches(_CACHE_TIMEOUT_S)
    lines = output.format_sync(arguments.slug, report, output.TerminalStyle.from_stream(sys.stdout))
    return print_result(arguments, build_sync_document(handle.wiki, report), lines)


def run_search(service: WikiService, arguments: Namespace) -> int:
    where = PageFilter(
        tuple(arguments.category),
        tuple(arguments.tag),
        arguments.path,
        parse_since(arguments.since) if arguments.since is not None else None,
    )
    request = SearchRequest(arguments.query, arguments.n, SearchMode(arguments.mode), where, rerank=arguments.rerank)
    handle = service.get_handle(arguments.slug)
    if request.mode is not SearchMode.KEYWORD:
        # Loaded before the clock starts: an answer's time is that of the search. If that fails, the search says so.
        with suppress(ModelError):
            service.components.embedder()
            if service.components.reranking is not None and request.rerank is not False:
                service.components.reranking.get_reranker()
    answer = handle.search(request, interface=SearchInterface.CLI)
    lines = output.format_result(answer, output.TerminalStyle.from_stream(sys.stdout))
    if answer.stale and answer.head_revision:
        lines.append(f"hint: run `wikiholt sync {arguments.slug}` to take up what has changed")
    print_result(arguments, build_result_document(answer), lines)
    return 0 if answer.hits else NOTHING_FOUND_EXIT_CODE


def run_status(service: WikiService, arguments: Namespace) -> int:
    found, code = [], 0
    for slug in _get_slugs(service, arguments):
        try:
            found.append(service.get_handle(slug).get_status())
        except RepositoryReplaced as error:
            if arguments.slug:
                raise
            print_error(error, slug)
            code = error.exit_code
    style = output.TerminalStyle.from_stream(sys.stdout)
    works = [read_wiki_work(service.components.store, each.wiki.id) for each in found]
    lines = []
    for each, work in zip(found, works, strict=True):
        lines += [*output.format_status(each, style), *format_work(work, style)]
    shown = [
        {**build_status_document(each), **build_work_document(work)} for each, work in zip(found, works, strict=True)
    ]
    print_result(arguments, shown[0] if arguments.slug else {"wikis": shown}, lines)
    return code


def run_list(service: WikiService, arguments: Namespace) -> int:
    wikis = service.list_wikis()
    width = max((len(wiki.slug) for wiki in wikis), default=0)
    lines = [f"{wiki.slug:{width}}  {output.to_safe_line(redact_url(wiki.source))}" for wiki in wikis]
    if not wikis:
        lines = ["No wikis yet. Next: wikiholt add SLUG PATH"]
    return print_result(arguments, {"wikis": [build_wiki_document(wiki) for wiki in wikis]}, lines)


def run_rebind(service: WikiService, arguments: Namespace) -> int:
    wiki = service.rebind(arguments.slug)
    lines = [
        f"The repository at {output.to_safe_line(redact_url(wiki.source))} is {wiki.slug}'s own: its index, keys and backups stay.",
        f"Next: wikiholt sync {wiki.slug}",
    ]
    return print_result(arguments, build_wiki_document(wiki), lines)


def run_remove(service: WikiService, arguments: Namespace) -> int:
    removed = service.remove(arguments.slug)
    wiki, keys = removed.wiki, [key.id for key in removed.keys]
    beside = f" and {output.format_count(len(keys), 'key')}" if keys else ""
    lines = [
        f"Removed {wiki.slug}: {output.format_count(len(removed.files), 'file')} of its index{beside}.",
        *(f"  {output.to_safe_line(name)}" for name in removed.files),
        *(f"  key {key_id}" for key_id in keys),
    ]
    lines.append(f"The repository {output.to_safe_line(redact_url(wiki.source))} was left alone.")
    document = {"wiki": wiki.slug, "removed": list(removed.files), "keys": keys, "hosts": list(removed.hosts)}
    return print_result(arguments, document, lines)


def run_doctor(service: WikiService, arguments: Namespace, settings: Settings) -> int:
    style = output.TerminalStyle.from_stream(sys.stdout)
    found = list(checks.run_checks(service, settings.data, settings.backup_interval))
    lines = []
    for finding in found:
        mark = style.format_success("✓") if finding.well else style.format_error("✗")
        lines.append(f"{mark} {finding.subject}: {output.to_safe_line(finding.detail)}")
        if finding.advice:
            lines.append(f"    hint: {output.to_safe_line(finding.advice)}")
    well = all(finding.well for finding in found)
    names = ("subject", "well", "detail", "advice")
    shown = [{name: getattr(finding, name) for name in names} for finding in found]
    print_result(arguments, {"well": well, "findings": shown}, lines)
    return 0 if well else PROBLEMS_FOUND_EXIT_CODE


def run_settings(arguments: Namespace, settings: Settings) -> int:
    values = {setting.name: getattr(settings, setting.attribute) for setting in SETTINGS.values()}
    values |= {setting.name: "(set)" for setting in SETTINGS.values() if setting.secret and values[setting.name]}
    width = max(map(len, values))
    shown = {name: str(value) if isinstance(value, Path) else value for name, value in values.items()}
    lines = [
        f"{name:{width}}  {json.dumps(value) if isinstance(value, bool) else value}" for name, value in shown.items()
    ]
    return print_result(arguments, shown, lines)


def run_demo_command(arguments: Namespace, build_service: Callable[[Path], WikiService]) -> int:
    from wikiholt.interfaces.cli.demo_command import run_demo  # noqa: PLC0415 - no other command needs its pages

    return run_demo(arguments.directory or Path("demo-data"), build_service, as_json=arguments.json)


def print_error(error: WikiholtError, slug: str = "") -> None:
    """Say on stderr what is wrong and what to do."""
    about = f"{slug}: " if slug else ""
    sys.stderr.write(f"error: {about}{output.to_safe_line(error.message)}\n")
    if isinstance(error, DatabaseUnavailable) and error.__cause__ is not None:
        # The server's words name hosts and roles: for the operator's own terminal, and for nobody else.
        sys.stderr.write(f"  {output.to_safe_line(str(error.__cause__))[:500]}\n")
    if error.hint:
        sys.stderr.write(f"hint: {output.to_safe_line(error.hint)}\n")


def _get_slugs(service: WikiService, arguments: Namespace) -> list[str]:
    if arguments.slug:
        return [arguments.slug]
    slugs = [wiki.slug for wiki in service.list_wikis()]
    if not slugs:
        raise WikiNotFound("there are no wikis yet", hint="add one: wikiholt add SLUG PATH")
    return slugs


def should_show_progress(arguments: Namespace) -> bool:
    return sys.stderr.isatty() and not arguments.json and not arguments.quiet


def print_result(arguments: Namespace, document: Mapping[str, Any], lines: list[str]) -> int:
    """Print what a command found, for people or as JSON."""
    if arguments.json:
        _print_json(document)
    elif lines:
        output.print_lines(lines)
    return 0


def _print_json(document: Mapping[str, Any]) -> None:
    sys.stdout.write(output.format_json(document) + "\n")
