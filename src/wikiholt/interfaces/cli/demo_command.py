"""`wikiholt demo`: the product's main job on two example wikis, from nothing to answers."""

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from wikiholt.domain.search import PageFilter, SearchMode, SearchResult
from wikiholt.errors import WikiExists
from wikiholt.interfaces.cli import output
from wikiholt.interfaces.cli.demo_wikis.demo_repositories import DEMO_QUERIES, DemoQuery, write_demo_wikis
from wikiholt.interfaces.cli.output import show_sync_progress
from wikiholt.interfaces.schemas.admin_schemas import build_sync_document
from wikiholt.interfaces.schemas.search_schemas import build_result_document
from wikiholt.search.request import SearchRequest
from wikiholt.wikis.service import WikiService


def run_demo(directory: Path, build_service: Callable[[Path], WikiService], *, as_json: bool) -> int:
    """Write the example wikis, index them, search them, say what to do next."""
    style = output.TerminalStyle.from_stream(sys.stdout)
    say = output.print_lines if not as_json else _ignore_progress
    repositories = write_demo_wikis(directory / "repositories")
    data = directory / "data"
    service = build_service(data)
    try:
        say([f"Two example wikis, as git repositories in {directory / 'repositories'}:"])
        reports = []
        for slug, repository in repositories.items():
            _add_wiki(service, slug, repository)
            with show_sync_progress(slug, visible=not as_json) as progress:
                report = service.get_handle(slug).sync(progress)
            say(output.format_sync(slug, report, style))
            reports.append(build_sync_document(service.get_handle(slug).wiki, report))
        answers = [_run_query(service, query) for query in DEMO_QUERIES]
    finally:
        service.close()
    for query, answer in zip(DEMO_QUERIES, answers, strict=True):
        say(
            ["", style.format_bold(f"$ {_format_command(query, data)}"), style.format_dim(f"# {query.description}"), ""]
        )
        say(output.format_result(answer, style))
    say(_format_next_steps(data, style))
    if as_json:
        shown = [build_result_document(answer) for answer in answers]
        sys.stdout.write(json.dumps({"wikis": reports, "searches": shown}, ensure_ascii=False, indent=2) + "\n")
    return 0


def _ignore_progress(_: object) -> None:
    pass


def _add_wiki(service: WikiService, slug: str, repository: Path) -> None:
    try:
        service.add(slug, str(repository.resolve()), {})
    except WikiExists:
        # The demo was run before: the sync finds what has changed since.
        return


def _run_query(service: WikiService, query: DemoQuery) -> SearchResult:
    where = PageFilter(tags=query.tags, path_prefix=query.path)
    return service.get_handle(query.slug).search(SearchRequest(query.text, 3, SearchMode(query.mode), where))


def _format_command(query: DemoQuery, data: Path) -> str:
    options = [f"--mode {query.mode}"] if query.mode != SearchMode.HYBRID else []
    options += [f"--tag {tag}" for tag in query.tags]
    options += [f"--path {query.path}"] if query.path else []
    quoted = "'" + query.text + "'" if '"' in query.text else f'"{query.text}"'
    return " ".join([f"{_get_program()} --data {data} search {query.slug}", quoted, *options])


def _format_next_steps(data: Path, style: output.TerminalStyle) -> list[str]:
    me = _get_program()
    return [
        "",
        style.format_bold("What to do next"),
        "  Search these again, by your own words, and see how they stand:",
        f'    {me} --data {data} search allotment "when may I light a fire"',
        f"    {me} --data {data} status",
        "  Index a wiki of yours, any git repository with Markdown in it, and search it:",
        f"    {me} add mywiki path/to/repository",
        f"    {me} sync mywiki",
        f'    {me} search mywiki "what you are looking for"',
        "  If anything looks wrong:",
        f"    {me} doctor",
    ]


def _get_program() -> str:
    """How to call this program again: by name where that finds it, else by the path it was called by."""
    called = Path(sys.argv[0])
    found = shutil.which("wikiholt")
    if called.name != "wikiholt" or (found and Path(found).resolve() == called.resolve()):
        return "wikiholt"
    return os.path.relpath(called)
