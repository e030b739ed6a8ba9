"""What each command does: ask the service, then print for people or as JSON."""

import json
import sys
from argparse import Namespace
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from wikiholt import doctor as checks
from wikiholt.errors import DatabaseAway, ModelError, RepositoryReplaced, WikiholtError, WikiNotFound
from wikiholt.model import Filter, Mode, Surface
from wikiholt.search import Request
from wikiholt.service import Service
from wikiholt.settings import SETTINGS, Settings
from wikiholt.sources.address import is_remote, shown
from wikiholt.surfaces import documents
from wikiholt.surfaces.cli import output, working
from wikiholt.surfaces.cli.progress import watched
from wikiholt.surfaces.documents.health import forecast_document
from wikiholt.surfaces.documents.moments import since

NOTHING_FOUND = 1
NEEDS_MENDING = 10

_PATIENCE = 600.0
"""Seconds a command waits for a large wiki's caches, so that the next search finds them."""


def add(service: Service, arguments: Namespace) -> int:
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
    return show(arguments, documents.wiki_document(wiki), lines)


def sync(service: Service, arguments: Namespace) -> int:
    """Sync one wiki or all; one that fails does not keep the others from being synced."""
    style = output.Style.of(sys.stdout)
    done: list[Mapping[str, Any]] = []
    code = 0
    for slug in _slugs(service, arguments):
        try:
            handle = service.wiki(slug)
            with watched(slug, shown=shows_progress(arguments)) as progress:
                handle.fetch()
                report = handle.sync(progress)
            handle.settle(_PATIENCE)
        except WikiholtError as error:
            if arguments.slug:
                raise
            complain(error, slug)
            done.append({"wiki": slug, "error": documents.error_document(error)})
            code = code or error.exit_code
            continue
        done.append(documents.sync_document(handle.wiki, report))
        if not arguments.json:
            output.say(output.sync_lines(slug, report, style))
    if arguments.json:
        _json(done[0] if arguments.slug else {"wikis": done})
    return code


def reindex(service: Service, arguments: Namespace) -> int:
    handle = service.wiki(arguments.slug)
    if arguments.dry_run:
        found = handle.forecast()
        lines = output.forecast_lines(arguments.slug, found, output.Style.of(sys.stdout))
        return show(arguments, forecast_document(found), lines)
    with watched(arguments.slug, shown=shows_progress(arguments)) as progress:
        report = handle.reindex(progress)
    working.finish(service.workshop.store, handle.wiki.id, report)
    handle.settle(_PATIENCE)
    lines = output.sync_lines(arguments.slug, report, output.Style.of(sys.stdout))
    return show(arguments, documents.sync_document(handle.wiki, report), lines)


def search(service: Service, arguments: Namespace) -> int:
    where = Filter(
        tuple(arguments.category),
        tuple(arguments.tag),
        arguments.path,
        since(arguments.since) if arguments.since is not None else None,
    )
    request = Request(arguments.query, arguments.n, Mode(arguments.mode), where, rerank=arguments.rerank)
    handle = service.wiki(arguments.slug)
    if request.mode is not Mode.KEYWORD:
        # Loaded before the clock starts: an answer's time is that of the search. If that fails, the search says so.
        with suppress(ModelError):
            service.workshop.embedder()
            if service.workshop.reranking is not None and request.rerank is not False:
                service.workshop.reranking.reader()
    answer = handle.search(request, surface=Surface.CLI)
    lines = output.answer_lines(answer, output.Style.of(sys.stdout))
    if answer.stale and answer.head_revision:
        lines.append(f"hint: run `wikiholt sync {arguments.slug}` to take up what has changed")
    show(arguments, documents.answer_document(answer), lines)
    return 0 if answer.hits else NOTHING_FOUND


def status(service: Service, arguments: Namespace) -> int:
    found, code = [], 0
    for slug in _slugs(service, arguments):
        try:
            found.append(service.wiki(slug).status())
        except RepositoryReplaced as error:
            if arguments.slug:
                raise
            complain(error, slug)
            code = error.exit_code
    style = output.Style.of(sys.stdout)
    works = [working.work_at(service.workshop.store, each.wiki.id) for each in found]
    lines = []
    for each, work in zip(found, works, strict=True):
        lines += [*output.status_lines(each, style), *working.lines(work, style)]
    shown = [
        {**documents.status_document(each), **working.document(work)} for each, work in zip(found, works, strict=True)
    ]
    show(arguments, shown[0] if arguments.slug else {"wikis": shown}, lines)
    return code


def list_wikis(service: Service, arguments: Namespace) -> int:
    wikis = service.wikis()
    width = max((len(wiki.slug) for wiki in wikis), default=0)
    lines = [f"{wiki.slug:{width}}  {output.line(shown(wiki.source))}" for wiki in wikis]
    if not wikis:
        lines = ["No wikis yet. Next: wikiholt add SLUG PATH"]
    return show(arguments, {"wikis": [documents.wiki_document(wiki) for wiki in wikis]}, lines)


def rebind(service: Service, arguments: Namespace) -> int:
    wiki = service.rebind(arguments.slug)
    lines = [
        f"The repository at {output.line(shown(wiki.source))} is {wiki.slug}'s own: its index, keys and backups stay.",
        f"Next: wikiholt sync {wiki.slug}",
    ]
    return show(arguments, documents.wiki_document(wiki), lines)


def remove(service: Service, arguments: Namespace) -> int:
    removed = service.remove(arguments.slug)
    wiki, keys = removed.wiki, [key.id for key in removed.keys]
    beside = f" and {output.counted(len(keys), 'key')}" if keys else ""
    lines = [
        f"Removed {wiki.slug}: {output.counted(len(removed.files), 'file')} of its index{beside}.",
        *(f"  {output.line(name)}" for name in removed.files),
        *(f"  key {key_id}" for key_id in keys),
    ]
    lines.append(f"The repository {output.line(shown(wiki.source))} was left alone.")
    document = {"wiki": wiki.slug, "removed": list(removed.files), "keys": keys, "hosts": list(removed.hosts)}
    return show(arguments, document, lines)


def doctor(service: Service, arguments: Namespace, settings: Settings) -> int:
    style = output.Style.of(sys.stdout)
    found = list(checks.examine(service, settings.data, settings.backup_interval))
    lines = []
    for finding in found:
        mark = style.good("✓") if finding.well else style.bad("✗")
        lines.append(f"{mark} {finding.subject}: {output.line(finding.detail)}")
        if finding.advice:
            lines.append(f"    hint: {output.line(finding.advice)}")
    well = all(finding.well for finding in found)
    names = ("subject", "well", "detail", "advice")
    shown = [{name: getattr(finding, name) for name in names} for finding in found]
    show(arguments, {"well": well, "findings": shown}, lines)
    return 0 if well else NEEDS_MENDING


def show_settings(arguments: Namespace, settings: Settings) -> int:
    values = {setting.name: getattr(settings, setting.attribute) for setting in SETTINGS}
    values |= {setting.name: "(set)" for setting in SETTINGS if setting.secret and values[setting.name]}
    width = max(map(len, values))
    shown = {name: str(value) if isinstance(value, Path) else value for name, value in values.items()}
    lines = [
        f"{name:{width}}  {json.dumps(value) if isinstance(value, bool) else value}" for name, value in shown.items()
    ]
    return show(arguments, shown, lines)


def demo(arguments: Namespace, build: Callable[[Path], Service]) -> int:
    from wikiholt.surfaces.cli.demo import run_demo  # noqa: PLC0415 - no other command needs its pages

    return run_demo(arguments.directory or Path("demo-data"), build, as_json=arguments.json)


def complain(error: WikiholtError, slug: str = "") -> None:
    """Say on stderr what is wrong and what to do."""
    about = f"{slug}: " if slug else ""
    sys.stderr.write(f"error: {about}{output.line(error.message)}\n")
    if isinstance(error, DatabaseAway) and error.__cause__ is not None:
        # The server's words name hosts and roles: for the operator's own terminal, and for nobody else.
        sys.stderr.write(f"  {output.line(str(error.__cause__))[:500]}\n")
    if error.hint:
        sys.stderr.write(f"hint: {output.line(error.hint)}\n")


def _slugs(service: Service, arguments: Namespace) -> list[str]:
    if arguments.slug:
        return [arguments.slug]
    slugs = [wiki.slug for wiki in service.wikis()]
    if not slugs:
        raise WikiNotFound("there are no wikis yet", hint="add one: wikiholt add SLUG PATH")
    return slugs


def shows_progress(arguments: Namespace) -> bool:
    return sys.stderr.isatty() and not arguments.json and not arguments.quiet


def show(arguments: Namespace, document: Mapping[str, Any], lines: list[str]) -> int:
    """Print what a command found, for people or as JSON."""
    if arguments.json:
        _json(document)
    elif lines:
        output.say(lines)
    return 0


def _json(document: Mapping[str, Any]) -> None:
    sys.stdout.write(output.json_text(document) + "\n")
