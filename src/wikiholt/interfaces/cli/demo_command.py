"""`wikiholt demo`: creates two example wikis, indexes them and runs example searches."""

from __future__ import annotations

import os
import secrets
import shlex
import shutil
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from wikiholt.api.documents.admin_documents import build_sync_document
from wikiholt.api.documents.search_documents import build_result_document
from wikiholt.domain.search import PageFilter
from wikiholt.errors import InvalidSource, SourceError, WikiExists
from wikiholt.git.process import GitRunner
from wikiholt.git.repository import RepositoryLocation
from wikiholt.git.source import GitSource
from wikiholt.interfaces.cli import output
from wikiholt.interfaces.cli.command import CommandContext, Subparsers, add_command, open_service
from wikiholt.interfaces.cli.hit_output import format_result
from wikiholt.interfaces.cli.output import show_sync_progress
from wikiholt.search.request import SearchRequest
from wikiholt.wikis.service import WikiService


def add_arguments(commands: Subparsers) -> None:
    parser = add_command(commands, "demo", run_demo)
    parser.add_argument("directory", nargs="?", type=Path, metavar="DIR", help="where (default: ./demo-data)")


def run_demo(context: CommandContext) -> int:
    """Create the example wikis, index them, run the searches, and show the next steps."""
    directory, as_json, style = context.arguments.directory or Path("demo-data"), context.arguments.json, context.style
    print_text = output.print_lines if not as_json else lambda _: None
    repositories = write_demo_wikis(directory / "repositories")
    data = context.arguments.data or directory / "data"
    service = open_service(replace(context.settings, data=data, store=""))
    try:
        print_text([f"Two example wikis, as git repositories in {directory / 'repositories'}:"])
        reports = []
        for slug, repository in repositories.items():
            _register(service, slug, str(repository.resolve()))
            with show_sync_progress(slug, visible=not as_json) as progress:
                report = service.get_handle(slug).sync(progress)
            print_text(output.format_sync(slug, report, {}, style))
            reports.append(build_sync_document(service.get_handle(slug).wiki, report))
        searches = [
            build_result_document(
                service.get_handle(query.slug).search(
                    SearchRequest(query.text, 3, where=PageFilter(path_prefix=query.path))
                )
            )
            for query in DEMO_QUERIES
        ]
    finally:
        service.close()
    for query, search in zip(DEMO_QUERIES, searches, strict=True):
        command, comment = f"$ {_format_command(query, data)}", f"# {query.description}"
        print_text(["", style.format_bold(command), style.format_dim(comment), ""])
        print_text(format_result(search, style))
    print_text(_format_next_steps(data, style))
    return context.print_result({"wikis": reports, "searches": searches}, [])


def _register(service: WikiService, slug: str, source: str) -> None:
    """Register the wiki, unless the demo was run before. Raises WikiExists for another wiki of this name."""
    try:
        service.add(slug, source, {})
    except WikiExists:
        if service.registry.get(slug).source != source:
            raise


def _format_command(query: DemoQuery, data: Path) -> str:
    option = f" --path {query.path}" if query.path else ""
    return f'{_get_program()} --data {shlex.quote(str(data))} search -w {query.slug} "{query.text}"{option}'


def _format_next_steps(data: Path, style: output.TerminalStyle) -> list[str]:
    program, shown = _get_program(), shlex.quote(str(data))
    return [
        "",
        style.format_bold("What to do next"),
        "  Search these wikis with your own words, and show their state:",
        f"    {program} --data {shown} search -w allotment when may I light a fire",
        f"    {program} --data {shown} status",
        "  Search your own pages, any folder or git repository with Markdown files:",
        "    cd path/to/pages",
        f"    {_get_program(from_anywhere=True)} search what you are looking for",
        "  If anything looks wrong:",
        f"    {program} --data {shown} doctor",
    ]


def _get_program(*, from_anywhere: bool = False) -> str:
    """The command to run this program: `wikiholt` if it is on PATH, else its relative or absolute path."""
    called = Path(sys.argv[0])
    on_path = shutil.which("wikiholt")
    if called.name != "wikiholt" or (on_path and Path(on_path).resolve() == called.resolve()):
        return "wikiholt"
    return shlex.quote(os.path.abspath(called) if from_anywhere else os.path.relpath(called))  # noqa: PTH100 - no link resolved


# Package files have ASCII names. These pages have another path in their wiki, always or in their first commit.
PATHS_IN_WIKI = {
    "Practices/handover-ja.md": "Practices/当番の引き継ぎ.md",
    "Growing/Crop rotation.md": "Growing/Rotation.md",
}


# Example queries, each with the page that should come first.


@dataclass(frozen=True, slots=True)
class DemoQuery:
    """A query in one demo wiki, the path of the expected page, and what the query demonstrates."""

    slug: str
    text: str
    expected_path: str
    description: str
    path: str = ""


DEMO_QUERIES = (
    DemoQuery(
        "allotment",
        "how do I keep bugs off my vegetables without chemicals",
        "Growing/Pests",
        "found by meaning: the page mentions pests, nets and larvae, not bugs or chemicals",
    ),
    DemoQuery(
        "runbook",
        "a customer was charged two times",
        "Incidents/Duplicate payments",
        "found by meaning: the page says that a card was debited twice",
    ),
    DemoQuery("runbook", "TRN-5031", "Services/Ledger", "found by keyword: an error code means nothing to a model"),
    DemoQuery(
        "allotment",
        "what am I allowed to burn",
        "Rules/Bonfires",
        "narrowed by a filter: only the pages below Rules",
        path="Rules",
    ),
    DemoQuery("allotment", "Komposthaufen umsetzen", "Growing/Kompost anlegen", "a German page among English ones"),
    DemoQuery("runbook", "当番の交代", "Practices/当番の引き継ぎ", "Japanese, which puts no spaces between words"),
    DemoQuery("allotment", "I lost my key", "Site/Keys and gate", "each wiki answers for itself: keys of a gate here"),
    DemoQuery(
        "runbook",
        "somebody published a key",
        "Practices/Keys and secrets",
        "each wiki answers for itself: keys of a service there",
    ),
)


# Writing the repositories. Each is written completely or not at all.


_GIT_TIMEOUT_S = 60


def write_demo_wikis(directory: Path) -> dict[str, Path]:
    """Create the demo wikis in a directory, by slug. An existing one is not changed."""
    directory.mkdir(parents=True, exist_ok=True)
    histories = tomllib.loads(files(__package__).joinpath("demo_wikis", "histories.toml").read_text("utf-8"))
    for slug, commits in histories.items():
        if not _exists(directory / slug):
            _write_repository(slug, commits, directory / slug)
    return {slug: directory / slug for slug in histories}


def _exists(repository: Path) -> bool:
    if not repository.exists() or (repository.is_dir() and not any(repository.iterdir())):
        return False
    try:
        GitSource(repository).get_head()
    except (SourceError, InvalidSource) as error:
        raise InvalidSource(
            f"{repository} exists and is not a demo wiki.", hint="Move it, or choose another directory."
        ) from error
    return True


def _write_repository(slug: str, commits: Sequence[Mapping[str, Any]], repository: Path) -> None:
    temporary = repository.resolve().with_name(f".{slug}.{secrets.token_hex(8)}")
    try:
        (temporary / ".git").mkdir(parents=True)
        git = GitRunner(RepositoryLocation(temporary / ".git", temporary / ".git"), _GIT_TIMEOUT_S)
        stream = b"".join(_format_commit(slug, commit) for commit in commits)
        for arguments, input_data in (
            (("init", "--template=", "--initial-branch=main", "--object-format=sha1"), b""),
            (("fast-import", "--quiet"), stream),
            (("config", "core.bare", "false"), b""),
            ((f"--work-tree={temporary}", "reset", "--quiet", "--hard"), b""),
        ):
            result = git.run(*arguments, input_data=input_data)
            if result.status:
                raise result.to_error("write the example wikis")
        temporary.rename(repository)
    except OSError:
        # Another process may have created the same repository.
        if not _exists(repository):
            raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _format_commit(slug: str, commit: Mapping[str, Any]) -> bytes:
    """One commit in the format of `git fast-import`."""
    first, _, last = commit["author"].partition(" ")
    person = f"{commit['author']} <{first.lower()}.{last.lower()}@example.org> {commit['timestamp']} +0000"
    lines = [
        b"commit refs/heads/main\n",
        f"author {person}\ncommitter {person}\n".encode(),
        _format_data(commit["message"]),
    ]
    lines += [f"R {_quote_path(old)} {_quote_path(new)}\n".encode() for old, new in commit.get("renamed", {}).items()]
    for page in commit.get("pages", ()):
        text = files(__package__).joinpath("demo_wikis", slug, *page.split("/")).read_text("utf-8")
        if heading := commit.get("ends_before", {}).get(page):
            text = text[: text.index(f"\n{heading}\n")]
        lines += [f"M 100644 inline {_quote_path(PATHS_IN_WIKI.get(page, page))}\n".encode(), _format_data(text)]
    return b"".join([*lines, b"\n"])


def _format_data(text: str) -> bytes:
    content = text.encode()
    return b"data %d\n%s\n" % (len(content), content)


def _quote_path(path: str) -> str:
    return '"' + path.replace("\\", "\\\\").replace('"', '\\"') + '"'
