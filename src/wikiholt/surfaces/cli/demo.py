"""`wikiholt demo`: the product's main job on two example wikis, from nothing to answers."""

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from wikiholt.errors import WikiExists
from wikiholt.model import Answer, Filter, Mode
from wikiholt.search import Request
from wikiholt.service import Service
from wikiholt.surfaces import documents
from wikiholt.surfaces.cli import output
from wikiholt.surfaces.cli.demo_wikis import DEMO_QUERIES, DemoQuery, write_demo_wikis
from wikiholt.surfaces.cli.progress import watched


def run_demo(directory: Path, build: Callable[[Path], Service], *, as_json: bool) -> int:
    """Write the example wikis, index them, search them, say what to do next."""
    style = output.Style.of(sys.stdout)
    say = output.say if not as_json else _silent
    repositories = write_demo_wikis(directory / "repositories")
    data = directory / "data"
    service = build(data)
    try:
        say([f"Two example wikis, as git repositories in {directory / 'repositories'}:"])
        reports = []
        for slug, repository in repositories.items():
            _add(service, slug, repository)
            with watched(slug, shown=not as_json) as progress:
                report = service.wiki(slug).sync(progress)
            say(output.sync_lines(slug, report, style))
            reports.append(documents.sync_document(service.wiki(slug).wiki, report))
        answers = [_ask(service, query) for query in DEMO_QUERIES]
    finally:
        service.close()
    for query, answer in zip(DEMO_QUERIES, answers, strict=True):
        say(["", style.bold(f"$ {_command(query, data)}"), style.dim(f"# {query.why}"), ""])
        say(output.answer_lines(answer, style))
    say(_next(data, style))
    if as_json:
        shown = [documents.answer_document(answer) for answer in answers]
        sys.stdout.write(json.dumps({"wikis": reports, "searches": shown}, ensure_ascii=False, indent=2) + "\n")
    return 0


def _silent(_: object) -> None:
    pass


def _add(service: Service, slug: str, repository: Path) -> None:
    try:
        service.add(slug, str(repository.resolve()), {})
    except WikiExists:
        # The demo was run before: the sync finds what has changed since.
        return


def _ask(service: Service, query: DemoQuery) -> Answer:
    where = Filter(tags=query.tags, path_prefix=query.path)
    return service.wiki(query.slug).search(Request(query.text, 3, Mode(query.mode), where))


def _command(query: DemoQuery, data: Path) -> str:
    options = [f"--mode {query.mode}"] if query.mode != Mode.HYBRID else []
    options += [f"--tag {tag}" for tag in query.tags]
    options += [f"--path {query.path}"] if query.path else []
    quoted = "'" + query.text + "'" if '"' in query.text else f'"{query.text}"'
    return " ".join([f"{_program()} --data {data} search {query.slug}", quoted, *options])


def _next(data: Path, style: output.Style) -> list[str]:
    me = _program()
    return [
        "",
        style.bold("What to do next"),
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


def _program() -> str:
    """How to call this program again: by name where that finds it, else by the path it was called by."""
    called = Path(sys.argv[0])
    found = shutil.which("wikiholt")
    if called.name != "wikiholt" or (found and Path(found).resolve() == called.resolve()):
        return "wikiholt"
    return os.path.relpath(called)
