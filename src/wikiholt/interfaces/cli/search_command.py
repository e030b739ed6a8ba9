"""`wikiholt search`: in a folder, with no other step before it."""

from __future__ import annotations

import argparse
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, cast

from wikiholt.api.filter_params import FILTER_PARAMS, build_filter
from wikiholt.domain.search import PageFilter, SearchInterface, SearchMode, SearchResult, SortOrder
from wikiholt.errors import Busy, IndexUnavailable, InvalidQuery, ModelError, WikiholtError
from wikiholt.interfaces.cli import output
from wikiholt.interfaces.cli.command import CommandContext, Subparsers, add_command, add_repeatable
from wikiholt.interfaces.cli.hit_output import add_hit_options, choose_format, print_hits
from wikiholt.interfaces.http.local_owner import SOCKET_NAME
from wikiholt.search.request import SearchRequest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from wikiholt.api.documents.search_documents import SearchResultDocument
    from wikiholt.domain.wiki import Wiki
    from wikiholt.wikis.handle import WikiHandle
    from wikiholt.wikis.service import WikiService


_MAX_WAIT_S = 86_400.0


def add_arguments(commands: Subparsers) -> None:
    parser = add_command(commands, "search", run_search, logs=False)
    parser.add_argument("words", nargs="+", metavar="WORDS", help='words or a question; "a phrase", -word, tag:x')
    add_repeatable(parser, "-w", "--wiki", metavar="SLUG", text="search this wiki; repeatable")
    parser.add_argument("-n", type=int, default=5, metavar="N", help="number of pages, 1 to 100 (default: 5)")
    modes = [str(mode) for mode in SearchMode]
    parser.add_argument("--mode", choices=modes, default=str(SearchMode.HYBRID), help="how to search (default: hybrid)")
    add_filter_options(parser)
    orders = [str(order) for order in SortOrder]
    parser.add_argument("--sort", choices=orders, default=orders[0], help="the order of the pages (default: relevance)")
    parser.add_argument("--offset", type=int, default=0, metavar="N", help="number of pages to skip, 0 to 900")
    text = "count the values of this frontmatter property; repeatable"
    add_repeatable(parser, "--facets", metavar="NAME", text=text)
    parser.add_argument(
        "--rerank",
        action=argparse.BooleanOptionalAction,
        help="whether the reranker scores the best pages again (default: for unclear answers)",
    )
    parser.add_argument("--explain", action="store_true", help="say in one line why each hit is there")
    text = "do not combine pages with nearly the same passage into one hit"
    parser.add_argument("--no-collapse", action="store_false", dest="collapse", help=text)
    parser.add_argument("--no-sync", action="store_true", help="search the index as it is, without syncing it first")
    add_past_option(parser)
    add_wait_option(parser)
    add_hit_options(parser)


def add_past_option(parser: argparse.ArgumentParser) -> None:
    text = "the wiki as it was: at a tag, a branch, a commit, or at the end of a day, such as 2025-06-01"
    parser.add_argument("--at", metavar="COMMIT", help=text)


def add_wait_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--wait",
        action=argparse.BooleanOptionalAction,
        help="whether a first search waits until all pages are found by their meaning (default: not on a terminal)",
    )


def waits_for_meaning(context: CommandContext) -> bool:
    """Whether the command waits until all pages are embedded, because nobody else embeds them or nobody looks."""
    wait: bool | None = context.arguments.wait
    if wait is not None:
        return wait
    return not sys.stdout.isatty() or not context.settings.search_keep_warm or bool(context.settings.store)


def add_filter_options(parser: argparse.ArgumentParser) -> None:
    for param in FILTER_PARAMS:
        if param.is_list:
            add_repeatable(parser, param.option, metavar=param.metavar, text=param.help)
        else:
            parser.add_argument(param.option, metavar=param.metavar, help=param.help)


def read_filter(arguments: argparse.Namespace) -> PageFilter:
    """The filter of the options. Raises InvalidQuery."""
    return build_filter(lambda param: getattr(arguments, param.option[2:].replace("-", "_")))


def run_search(context: CommandContext) -> int:
    """Search through a running service of this data directory if there is one, else in this process."""
    _keep_words_like_options(context)
    request = _build_request(context.arguments)
    choose_format(context.arguments)
    if context.arguments.at is not None:
        return _search_past(context, request)
    exit_code = _search_in_service(context)
    if exit_code is not None:
        return exit_code
    from wikiholt.interfaces.cli.log_output import configure_logging

    configure_logging(context.settings.log_level.upper(), context.arguments)
    return _search_here(context, request)


def _build_request(arguments: argparse.Namespace) -> SearchRequest:
    """The search of these arguments. Raises InvalidQuery."""
    return SearchRequest(
        " ".join(arguments.words),
        arguments.n,
        SearchMode(arguments.mode),
        read_filter(arguments),
        rerank=arguments.rerank,
        offset=arguments.offset,
        sort=SortOrder(arguments.sort),
        facets=tuple(arguments.facets),
        explain=arguments.explain,
        collapse=arguments.collapse,
    )


def _keep_words_like_options(context: CommandContext) -> None:
    """Let `-wsv` be a word of the query, such as an option of another program, if there is no wiki `sv`."""
    arguments = context.arguments
    attached = [slug for slug in arguments.wiki if f"-w{slug}" in arguments.given]
    known = {wiki.slug for wiki in context.list_wikis()} if attached else set()
    for slug in attached:
        if slug not in known:
            name = output.to_safe_line(slug)
            sys.stderr.write(f"note: there is no wiki {name!r}, so -w{name} is searched as a word\n")
            arguments.wiki.remove(slug)
            arguments.words.append(f"w{slug}")


def _search_past(context: CommandContext, request: SearchRequest) -> int:
    """Search one wiki as it was, through a running service if it has the index of that commit."""
    from wikiholt.interfaces.cli.local_client import search_in_service

    found = search_in_service(context.settings, context.arguments, "past/search")
    if found is not None:
        return print_hits(context, found[1], found[0])
    from wikiholt.api.documents.past_documents import build_past_document
    from wikiholt.interfaces.cli.log_output import configure_logging

    configure_logging(context.settings.log_level.upper(), context.arguments)
    wikis, handle = open_past(context)
    result = handle.past.search(context.arguments.at, request, _MAX_WAIT_S, SearchInterface.CLI)
    document = cast("SearchResultDocument", build_past_document(result))
    return print_hits(context, wikis, document)


def open_past(context: CommandContext) -> tuple[Sequence[Wiki], WikiHandle]:
    """The wiki of a search in the past, with an index of that commit. Raises InvalidQuery if several are possible."""
    wikis, handles, failures = open_current_wikis(context)
    if len(wikis) != 1:
        raise InvalidQuery("The past of one wiki is searched at a time.", hint="Name it with --wiki.")
    for error in failures.values():
        raise error
    at, words_only = context.arguments.at, context.arguments.wait is False
    with output.show_sync_progress(at, visible=context.show_progress, keep=False) as progress:
        handles[0].past.build(at, progress, words_only=words_only)
    return wikis, handles[0]


def _search_in_service(context: CommandContext) -> int | None:
    """Print the answer of a running service and return the exit code; None if there is no answer."""
    if not (context.settings.data / SOCKET_NAME).exists():
        return None
    from wikiholt.interfaces.cli.local_client import search_in_service

    found = search_in_service(context.settings, context.arguments)
    if found is None or (found[0]["meaning_ready"] < 1 and waits_for_meaning(context)):
        return None
    return _print(context, *found)


def _search_here(context: CommandContext, request: SearchRequest) -> int:
    wikis, handles, failures = open_current_wikis(context)
    if waits_for_meaning(context):
        _load_models(context.service, request)
    from wikiholt.api.documents.search_documents import build_result_document

    document = build_result_document(_search(handles, failures, request))
    exit_code = _print(context, document, wikis)
    keep_warm(context, [wiki.slug for wiki in wikis if document["meaning_ready"] < 1])
    return exit_code


def keep_warm(context: CommandContext, pending: Sequence[str] = ()) -> None:
    """Have the next search answered by a process in the background, which also embeds pending pages of these wikis."""
    sys.stdout.flush()
    from wikiholt.interfaces.cli.background import start_background

    start_background(context.settings, context.arguments)
    if pending and (context.settings.data / SOCKET_NAME).exists():
        from wikiholt.interfaces.cli.local_client import LocalService

        for slug in pending:
            LocalService(context.settings).get("status", slug=slug)


def open_current_wikis(
    context: CommandContext,
) -> tuple[Sequence[Wiki], Sequence[WikiHandle], Mapping[str, WikiholtError]]:
    """The wikis to search, synced unless the arguments say otherwise, and the errors of those that cannot be opened."""
    wikis = choose_wikis(context)
    handles, failures = _open_handles(context.service, wikis)
    if not context.arguments.no_sync:
        is_named = len(wikis) == 1 or bool(context.arguments.wiki)
        for handle in handles:
            _update_index(context, handle, build_missing=is_named)
    return wikis, handles, failures


def choose_wikis(context: CommandContext) -> Sequence[Wiki]:
    """The wikis to search: those named, else that of this folder (which is registered if it has pages), else all.

    No folder is registered if the first word is the name of a wiki."""
    from wikiholt.interfaces.cli.selection import choose_folder_wikis, find_wikis_of_folder

    words, known = context.arguments.words, {wiki.slug: wiki for wiki in context.list_wikis()}
    if context.arguments.wiki:
        # The registry raises the error for a wiki that does not exist.
        return [known.get(slug) or context.service.registry.get(slug) for slug in dict.fromkeys(context.arguments.wiki)]
    if len(words) > 1 and words[0] in known:
        hint = f"hint: to search the wiki {words[0]}, write `wikiholt search -w {words[0]} …`\n"
        sys.stderr.write(context.complete(hint))
        # Probably the wiki was meant, so this folder is not registered.
        return find_wikis_of_folder(list(known.values()), Path.cwd().resolve()) or list(known.values())
    return choose_folder_wikis(context, list(known.values()))


def _update_index(context: CommandContext, handle: WikiHandle, *, build_missing: bool) -> None:
    """Sync the wiki if its source has changed. If that fails but there is an index, it is searched as it is."""
    from wikiholt.interfaces.cli.index_commands import run_sync_work

    slug = handle.wiki.slug
    has_index = context.service.has_index(handle.wiki.id)
    if not has_index and not build_missing:
        return
    try:
        if handle.wiki.is_directory or not has_index:
            handle.fetch()  # for a directory this scans it; a remote is fetched by `sync` and by the service
        complete = handle.get_indexed_revision() if has_index else None
        if has_index and complete == context.service.get_source(handle.wiki).get_last_known_head():
            return
        waits = waits_for_meaning(context)
        is_pending = complete is None and has_index and handle.get_indexed_revision(words_only=True) is not None
        # A writer that updates an existing index is not worth waiting for, unless its work is what is waited for.
        lock_timeout_s = None if not has_index else _MAX_WAIT_S if is_pending and waits else 0
        problems_before = len(handle.get_status().problems) if has_index else 0
        report = run_sync_work(
            context,
            handle,
            "sync",
            lambda progress, pause: handle.sync(progress, pause, lock_timeout_s, words_only=not waits),
            keep_bar=False,
        )
        if report.problems and len(report.problems) != problems_before:
            files = output.format_count(len(report.problems), "file")
            sys.stderr.write(context.complete(f"note: {files} could not be indexed; see `wikiholt status {slug}`\n"))
    except Busy:
        if not has_index:
            raise
        if is_pending:  # the answer says what is missing
            return
        sys.stderr.write(f"note: another process is updating {slug}; the latest changes may be missing\n")
    except WikiholtError as error:
        if not has_index or isinstance(error, IndexUnavailable):
            raise
        sys.stderr.write(f"note: {slug} could not be synced: {output.to_safe_line(error.message)}\n")


def _open_handles(service: WikiService, wikis: Sequence[Wiki]) -> tuple[list[WikiHandle], dict[str, WikiholtError]]:
    """The handles of the wikis, and the errors of those that cannot be opened. Raises the error of a single wiki."""
    handles: list[WikiHandle] = []
    failures: dict[str, WikiholtError] = {}
    for wiki in wikis:
        try:
            handles.append(service.get_handle(wiki.slug))
        except WikiholtError as error:
            if len(wikis) == 1:
                raise
            failures[wiki.slug] = error
    return handles, failures


def _search(
    handles: Sequence[WikiHandle], failures: Mapping[str, WikiholtError], request: SearchRequest
) -> SearchResult:
    if len(handles) == 1 and not failures:
        return handles[0].search(request, interface=SearchInterface.CLI)
    from wikiholt.wikis.multi_search import search_wikis

    return search_wikis(handles, request, interface=SearchInterface.CLI, failures=failures)


def _print(context: CommandContext, document: SearchResultDocument, wikis: Sequence[Wiki]) -> int:
    hints = []
    if document["stale"] and (document["head_revision"] or document["wikis"]):
        command = f"wikiholt sync {wikis[0].slug}" if len(wikis) == 1 else "wikiholt sync"
        hints.append(context.complete(f"hint: run `{command}` to index the latest changes"))
    return print_hits(context, wikis, document, hints)


def _load_models(service: WikiService, request: SearchRequest) -> None:
    """Load the models first, so that the time of the search does not include it. The search reports a failure."""
    if request.mode is SearchMode.KEYWORD:
        return
    with suppress(ModelError):
        service.load_embedder()
        if request.rerank:
            service.load_reranker()
