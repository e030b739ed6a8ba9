"""`wikiholt search`."""

import argparse
from contextlib import suppress

from wikiholt.domain.search import SearchInterface, SearchMode
from wikiholt.errors import ModelError
from wikiholt.interfaces.cli import output
from wikiholt.interfaces.cli.command import (
    NOTHING_FOUND_EXIT_CODE,
    CommandContext,
    Subparsers,
    add_command,
    add_slug,
)
from wikiholt.interfaces.schemas.filter_params import FILTER_PARAMS, build_filter
from wikiholt.interfaces.schemas.search_schemas import build_result_document
from wikiholt.search.request import SearchRequest
from wikiholt.wikis.service import WikiService


def add_arguments(commands: Subparsers) -> None:
    parser = add_command(commands, "search", "search a wiki", run_search)
    add_slug(parser)
    parser.add_argument("query", metavar="QUERY", help='words or a question; "a phrase", -word')
    parser.add_argument("-n", type=int, default=5, metavar="N", help="number of pages, 1 to 100 (default: 5)")
    modes = [str(mode) for mode in SearchMode]
    parser.add_argument("--mode", choices=modes, default=str(SearchMode.HYBRID), help="how to search (default: hybrid)")
    for param in FILTER_PARAMS:
        if param.is_list:
            parser.add_argument(param.option, action="append", default=[], metavar=param.metavar, help=param.help)
        else:
            parser.add_argument(param.option, metavar=param.metavar, help=param.help)
    parser.add_argument(
        "--rerank",
        action=argparse.BooleanOptionalAction,
        help="whether the reranker scores the best pages again (default: if rerank.model is set)",
    )


def run_search(context: CommandContext) -> int:
    arguments = context.arguments
    where = build_filter(lambda param: getattr(arguments, param.option.removeprefix("--")))
    request = SearchRequest(arguments.query, arguments.n, SearchMode(arguments.mode), where, rerank=arguments.rerank)
    handle = context.service.get_handle(arguments.slug)
    _load_models(context.service, request)
    result = handle.search(request, interface=SearchInterface.CLI)
    lines = output.format_result(result, context.style)
    if result.stale and result.head_revision:
        lines.append(f"hint: run `wikiholt sync {arguments.slug}` to index the latest changes")
    context.print_result(build_result_document(result), lines)
    return 0 if result.hits else NOTHING_FOUND_EXIT_CODE


def _load_models(service: WikiService, request: SearchRequest) -> None:
    """Load the models first, so that the time of the search does not include it. The search reports a failure."""
    if request.mode is SearchMode.KEYWORD:
        return
    with suppress(ModelError):
        service.components.embedder()
        if service.components.reranking is not None and request.rerank is not False:
            service.components.reranking.get_reranker()
