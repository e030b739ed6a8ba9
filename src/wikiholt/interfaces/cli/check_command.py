"""`wikiholt check`: what is wrong in a wiki at a commit, or went wrong since another."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, cast

from wikiholt.errors import Busy, StorageError, WikiholtError
from wikiholt.interfaces.cli import output
from wikiholt.interfaces.cli.check_output import FORMATS, build_check_document, format_report
from wikiholt.interfaces.cli.command import (
    PROBLEMS_FOUND_EXIT_CODE,
    CommandContext,
    Subparsers,
    add_command,
    add_quiet,
    add_repeatable,
    open_service,
)
from wikiholt.interfaces.cli.folder_scope import find_repository_root
from wikiholt.wikis.check.findings import Severity
from wikiholt.wikis.check.wiki_check import QUESTIONS_FILE, WikiCheck

if TYPE_CHECKING:
    from wikiholt.api.settings.definitions import Settings
    from wikiholt.domain.protocols import Embedder
    from wikiholt.domain.search import QueryRecord
    from wikiholt.domain.wiki import Wiki
    from wikiholt.git.pinned_repository import PinnedRepository
    from wikiholt.wikis.handle import WikiHandle
    from wikiholt.wikis.service import WikiService

_SLUG = "check"
_NEVER = "never"
_WIKI_SETTINGS = ("ignore", "hide", "language", "languages", "anchors", "dialect", "synonyms", "boost")
"""Settings of a registered wiki that change what a search in it finds."""
_TEMPORARY_PREFIX = "wikiholt-check-"


def add_arguments(commands: Subparsers) -> None:
    parser = add_command(commands, "check", run_check)
    text = "a git repository, or a directory in one (default: the current directory)"
    parser.add_argument("path", nargs="?", type=Path, default=Path(), metavar="PATH", help=text)
    text = "report only what went wrong since this commit"
    parser.add_argument("--base", metavar="COMMIT", help=text)
    head = parser.add_mutually_exclusive_group()
    head.add_argument("--head", metavar="COMMIT", help="the commit to check (default: HEAD)")
    text = "check the staged files; the base is HEAD unless it is named"
    head.add_argument("--staged", action="store_true", help=text)
    text = f"the page with the expected questions (default: {QUESTIONS_FILE})"
    parser.add_argument("--questions", default=QUESTIONS_FILE, metavar="FILE", help=text)
    parser.add_argument("--format", choices=FORMATS, default=FORMATS[0], help="how to print (default: text)")
    levels = [*map(str, Severity), _NEVER]
    text = "exit with 10 if there is a finding of this severity or a worse one (default: error)"
    parser.add_argument("--fail-on", choices=levels, default=levels[0], metavar="SEVERITY", help=text)
    text = "keep the index in this directory, so that the next check embeds only what is new"
    parser.add_argument("--cache", type=Path, metavar="DIR", help=text)
    text = "use the vectors that `index push` has pushed to the remote, so that only new texts are embedded"
    parser.add_argument("--pull", action="store_true", help=text)
    parser.add_argument("--remote", default="origin", metavar="NAME", help="the remote of --pull (default: origin)")
    add_repeatable(parser, "--ignore", metavar="GLOB", text="files to ignore; repeatable")
    parser.add_argument("--dialect", metavar="NAME", help="dialect of the pages, such as obsidian; default: auto")
    add_quiet(parser)


def run_check(context: CommandContext) -> int:
    """Check, print the findings, and return 10 if one is as severe as --fail-on. Writes nothing in the repository."""
    from wikiholt.git.pinned_repository import PinnedRepository

    arguments = context.arguments
    folder = arguments.path.resolve()
    root = find_repository_root(folder) or folder
    subdirectory = folder.relative_to(root).as_posix() if folder != root else ""
    registered = _find_registered(context, root, subdirectory)
    with _open_work_directory(arguments.cache, folder) as directory:
        repository = PinnedRepository(directory / "pages.git", root)
        base, head, notes = _resolve_commits(context, repository)
        service = open_check_service(context.settings, directory / "data")
        try:
            service.load_embedder()  # without it, searches fall back to keywords
            settings = _build_settings(context, registered, subdirectory)
            wiki = register_wiki(service, directory / "pages.git", settings)
            if arguments.pull:
                repository.pin(head)
                use_pulled_vectors(context, service, replace(wiki, source=str(root)))

            def open_at(commit: str) -> WikiHandle:
                repository.pin(commit)
                handle = service.get_handle(wiki.slug)
                with output.show_sync_progress(commit[:10], visible=context.show_progress, keep=False) as progress:
                    handle.sync(progress)
                return handle

            records = _read_records(context, registered)
            report = WikiCheck(open_at, service.get_source(wiki), arguments.questions, records).run(base, head, notes)
        finally:
            service.close()
    prefix = f"{subdirectory}/" if subdirectory else ""
    if not arguments.json:
        output.print_lines(format_report(report, arguments.format, prefix, context.style))
    context.print_result(build_check_document(report, prefix) if arguments.json else {}, ())
    levels = list(Severity)
    limit = -1 if arguments.fail_on == _NEVER else levels.index(Severity(arguments.fail_on))
    return PROBLEMS_FOUND_EXIT_CODE if any(levels.index(each.severity) <= limit for each in report.findings) else 0


def _resolve_commits(context: CommandContext, repository: PinnedRepository) -> tuple[str | None, str, list[str]]:
    """The base, the head, and notes about them. Raises InvalidSource and NoCommits."""
    arguments = context.arguments
    # An empty name is that of no commit: a script has a variable that is not set.
    base = "HEAD" if arguments.base is None and arguments.staged else arguments.base
    head = "HEAD" if arguments.head is None else arguments.head
    base_id = repository.resolve(base) if base is not None else None
    head_id = repository.commit_staged_files() if arguments.staged else repository.resolve(head)
    notes = []
    if base_id is not None and not arguments.staged and not repository.is_ancestor(base_id, head_id):
        notes.append(f"{base} is no ancestor of {head}: what exists only in {base} counts as removed")
    return base_id, head_id, notes


def open_check_service(settings: Settings, data: Path) -> WikiService:
    """A service with its own data directory, and no part that depends on time or on another server but the model."""
    own_models, models = settings.data.absolute() / "models", data / "models"
    data.mkdir(parents=True, exist_ok=True)
    if own_models.is_dir() and not models.is_symlink():
        models.symlink_to(own_models)
    return open_service(
        replace(
            settings,
            data=data,
            store="",
            vectors="exact",
            rerank_model="",
            queries_log=False,
            backup_directory="backups",
            backup_keep=0,
            repositories_directory="",
        )
    )


def use_pulled_vectors(context: CommandContext, service: WikiService, wiki: Wiki) -> None:
    """Let the service take the vectors that were pushed for this repository. Raises like `index pull`."""
    from wikiholt.api.shared_vectors import DEFAULT_SAMPLE, pull_vectors

    config, limit = service.get_config(service.registry.get(wiki.slug)), context.settings.remote_max_bytes
    remote = context.arguments.remote
    embedder, _ = pull_vectors(wiki, config, service.load_embedder(), remote, DEFAULT_SAMPLE, limit)
    service.use_embedder(cast("Embedder", embedder))


def register_wiki(service: WikiService, source: Path, settings: Mapping[str, str]) -> Wiki:
    """The only wiki of the service. If it is at another path, in a cache that was moved, its index is built again."""
    path = str(source.resolve())
    known = next((wiki for wiki in service.list_wikis() if wiki.slug == _SLUG), None)
    if known is not None and known.source != path:
        service.remove(_SLUG)
        known = None
    if known is None:
        return service.add(_SLUG, path, settings)
    return service.configure(_SLUG, {**dict.fromkeys(known.settings, ""), **settings})


def _build_settings(context: CommandContext, registered: Wiki | None, subdirectory: str) -> dict[str, str]:
    """The settings of the wiki to check: its own if it is registered, unless options replace them."""
    arguments = context.arguments
    own = registered.settings if registered is not None else {}
    settings = {name: own[name] for name in _WIKI_SETTINGS if name in own}
    given = {"subdirectory": subdirectory, "ignore": "\n".join(arguments.ignore), "dialect": arguments.dialect or ""}
    return settings | {name: value for name, value in given.items() if value}


def _find_registered(context: CommandContext, root: Path, subdirectory: str) -> Wiki | None:
    """The registered wiki of this directory, if there is one."""
    for wiki in context.list_wikis() if context.settings.store or context.settings.data.exists() else ():
        own = wiki.settings.get("subdirectory", "").strip("/")
        if wiki.source and Path(wiki.source).resolve() == root and own == subdirectory:
            return wiki
    return None


def _read_records(context: CommandContext, registered: Wiki | None) -> Sequence[QueryRecord]:
    if registered is None:
        return ()
    with suppress(WikiholtError):  # searches are not recorded, or the log cannot be read now
        return context.service.get_handle(registered.slug).query_log.read_records()
    return ()


@contextmanager
def _open_work_directory(cache: Path | None, wiki: Path) -> Iterator[Path]:
    """The directory of the index: that of this wiki in the cache, or a temporary one that is deleted afterwards.

    Temporary directories of checks that were killed are deleted first. Raises Busy and StorageError.
    """
    if cache is not None:
        name = blake2b(os.fsencode(wiki), digest_size=8).hexdigest()
        with _lock_directory(cache.expanduser().resolve() / name) as directory:
            yield directory
        return
    _remove_leftovers(Path(tempfile.gettempdir()))
    directory = Path(tempfile.mkdtemp(prefix=_TEMPORARY_PREFIX))
    try:
        with _lock_directory(directory):
            yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _remove_leftovers(parent: Path) -> None:
    for directory in parent.glob(f"{_TEMPORARY_PREFIX}*"):
        with suppress(WikiholtError, OSError):
            if directory.is_symlink() or directory.stat().st_uid != os.getuid() or not (directory / "lock").exists():
                continue
            with _lock_directory(directory):
                shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def _lock_directory(directory: Path) -> Iterator[Path]:
    """The directory, locked for this process. Raises Busy and StorageError."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock = (directory / "lock").open("a")
    except OSError as error:
        hint = "name a directory that can be written with --cache"
        raise StorageError(f"{directory} cannot be written ({error.strerror or error})", hint=hint) from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            hint = "wait until it has ended, or name another --cache"
            raise Busy(f"another check uses {directory}", hint=hint) from None
        yield directory
