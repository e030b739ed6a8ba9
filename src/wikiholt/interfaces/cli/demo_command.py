"""`wikiholt demo`: creates two example wikis, indexes them and runs example searches."""

import json
import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path

from wikiholt.domain.search import PageFilter, SearchMode, SearchResult
from wikiholt.errors import WikiExists
from wikiholt.interfaces.cli import output
from wikiholt.interfaces.cli.command import CommandContext, Subparsers, add_command
from wikiholt.interfaces.cli.demo_wikis.demo_repositories import DEMO_QUERIES, DemoQuery, write_demo_wikis
from wikiholt.interfaces.cli.output import show_sync_progress
from wikiholt.interfaces.schemas.admin_schemas import build_sync_document
from wikiholt.interfaces.schemas.search_schemas import build_result_document
from wikiholt.search.request import SearchRequest
from wikiholt.wikis.service import WikiService


def add_arguments(commands: Subparsers) -> None:
    parser = add_command(commands, "demo", run_demo)
    parser.add_argument("directory", nargs="?", type=Path, metavar="DIR", help="where (default: ./demo-data)")


def run_demo(context: CommandContext) -> int:
    """Create the example wikis, index them, run the searches, and show the next steps."""
    directory, as_json, style = context.arguments.directory or Path("demo-data"), context.arguments.json, context.style
    print_text = output.print_lines if not as_json else _print_nothing
    repositories = write_demo_wikis(directory / "repositories")
    data = directory / "data"
    service = context.build_service(replace(context.settings, data=data, store=""))
    try:
        print_text([f"Two example wikis, as git repositories in {directory / 'repositories'}:"])
        reports = []
        for slug, repository in repositories.items():
            _add_wiki(service, slug, repository)
            with show_sync_progress(slug, visible=not as_json) as progress:
                report = service.get_handle(slug).sync(progress)
            print_text(output.format_sync(slug, report, {}, style))
            reports.append(build_sync_document(service.get_handle(slug).wiki, report))
        results = [_run_query(service, query) for query in DEMO_QUERIES]
    finally:
        service.close()
    for query, result in zip(DEMO_QUERIES, results, strict=True):
        command, comment = f"$ {_format_command(query, data)}", f"# {query.description}"
        print_text(["", style.format_bold(command), style.format_dim(comment), ""])
        print_text(output.format_result(result, style))
    print_text(_format_next_steps(data, style))
    if as_json:
        searches = [build_result_document(result) for result in results]
        sys.stdout.write(json.dumps({"wikis": reports, "searches": searches}, ensure_ascii=False, indent=2) + "\n")
    return 0


def _print_nothing(_: object) -> None:
    pass


def _add_wiki(service: WikiService, slug: str, repository: Path) -> None:
    try:
        service.add(slug, str(repository.resolve()), {})
    except WikiExists:
        # The demo was run before.
        return


def _run_query(service: WikiService, query: DemoQuery) -> SearchResult:
    where = PageFilter(tags=query.tags, path_prefix=query.path)
    return service.get_handle(query.slug).search(SearchRequest(query.text, 3, SearchMode(query.mode), where))


def _format_command(query: DemoQuery, data: Path) -> str:
    options = [f"--mode {query.mode}"] if query.mode != SearchMode.HYBRID else []
    options += [f"--tag {tag}" for tag in query.tags]
    options += [f"--path {query.path}"] if query.path else []
    quoted = "'" + query.text + "'" if '"' in query.text else f'"{query.text}"'
    return " ".join([f"{_get_program()} --data {data} search -w {query.slug}", quoted, *options])


def _format_next_steps(data: Path, style: output.TerminalStyle) -> list[str]:
    program = _get_program()
    return [
        "",
        style.format_bold("What to do next"),
        "  Search these wikis with your own words, and show their state:",
        f"    {program} --data {data} search -w allotment when may I light a fire",
        f"    {program} --data {data} status",
        "  Search your own pages, any git repository with Markdown files:",
        "    cd path/to/repository",
        f"    {program} search what you are looking for",
        "  If anything looks wrong:",
        f"    {program} doctor",
    ]


def _get_program() -> str:
    """The command to run this program: `wikiholt` if it is on PATH, else its relative path."""
    called = Path(sys.argv[0])
    on_path = shutil.which("wikiholt")
    if called.name != "wikiholt" or (on_path and Path(on_path).resolve() == called.resolve()):
        return "wikiholt"
    return os.path.relpath(called)
