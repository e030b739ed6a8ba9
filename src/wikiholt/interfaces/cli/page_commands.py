"""`wikiholt read`, `open`, `similar`, `links` and `recent`: what to do with a page that was found."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Container, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from difflib import get_close_matches
from pathlib import Path
from urllib.parse import quote, urlsplit

from wikiholt.api.documents.common import format_date
from wikiholt.api.documents.page_documents import build_links_document, build_page_document
from wikiholt.api.documents.search_documents import build_result_document
from wikiholt.domain.page import Heading, PageContent
from wikiholt.domain.protocols import Source
from wikiholt.domain.search import StoredPage
from wikiholt.errors import InvalidQuery, InvalidSetting, NoCommits, PageNotFound
from wikiholt.folder.source import FILE_AUTHOR
from wikiholt.interfaces.cli.command import NOTHING_FOUND_EXIT_CODE, CommandContext, Subparsers, add_command
from wikiholt.interfaces.cli.hit_output import FilePlaces, add_hit_options, print_hits
from wikiholt.interfaces.cli.output import get_text_width, to_safe_line, to_safe_text
from wikiholt.interfaces.cli.owner_link_command import open_in_browser, open_served_pages
from wikiholt.interfaces.cli.selection import PageArgument, add_wiki_option, find_page, list_pages, resolve_wiki
from wikiholt.text.dialect_blocks import convert_blocks, convert_to_markdown
from wikiholt.text.frontmatter import split_frontmatter
from wikiholt.text.page_names import get_page_path, make_page_name
from wikiholt.wikis.handle import WikiHandle

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
_COMMITS_PER_READ = 100
_MAX_COMMITS = 5000
_MAX_RECENT = 1000


def add_arguments(commands: Subparsers) -> None:
    read = add_command(commands, "read", run_read)
    read.add_argument("page", metavar="PAGE", help="path, file, title, FILE:LINE or PAGE#heading")
    read.add_argument("heading", nargs="?", metavar="HEADING", help="only this section: its heading's text or anchor")
    read.add_argument("--raw", action="store_true", help="show it as it is written")
    similar = add_command(commands, "similar", run_similar)
    similar.add_argument("page", metavar="PAGE", help="path, file or title")
    similar.add_argument("-n", type=int, default=5, metavar="N", help="number of pages, 1 to 100 (default: 5)")
    add_hit_options(similar)
    links = add_command(commands, "links", run_links)
    links.add_argument("page", metavar="PAGE", help="path, file or title")
    recent = add_command(commands, "recent", run_recent)
    recent.add_argument("-n", type=int, default=10, metavar="N", help="number of pages, 1 to 1000 (default: 10)")
    recent.add_argument("--files", action="store_true", help="print only the files")
    open_page = add_command(commands, "open", run_open)
    open_page.add_argument(
        "page",
        nargs="?",
        metavar="PAGE",
        help="path, file, title, FILE:LINE or PAGE#heading; without one, the running service, signed in as its owner",
    )
    open_page.add_argument("--browser", action="store_true", help="open its address, from the setting url")
    for parser in (read, similar, links, recent, open_page):
        add_wiki_option(parser)


def run_read(context: CommandContext) -> int:
    handle = _open_wiki(context)
    target = find_page(handle, context.arguments.page)
    if context.arguments.heading:
        target = replace(target, heading=context.arguments.heading, line=None)
    page = handle.pages.read(target.path)
    text, is_whole = select_section(page, target)
    if context.arguments.json:
        return context.print_result({**build_page_document(page), "content": text}, [])
    for warning in page.warnings:
        sys.stderr.write(f"warning: {to_safe_line(warning)}\n")
    if context.arguments.raw:
        # A file gets exactly the text of the page; a terminal must not receive its control characters.
        sys.stdout.write(to_safe_text(text.replace("\r\n", "\n")) if sys.stdout.isatty() else text)
        return 0
    from wikiholt.interfaces.cli.terminal_markdown import render_markdown

    body = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    if is_whole:
        body = split_frontmatter(body).body
        if [(first.level, first.text) for first in page.headings[:1]] != [(1, page.name)]:
            body = f"# {page.name}\n\n{body}"
    dialect = handle.pages.get_pipeline().dialect
    body = convert_to_markdown(convert_blocks(body, page.file, dialect)[0], dialect)
    return context.print_result({}, render_markdown(body, get_text_width(), context.style, dialect))


def _open_wiki(context: CommandContext) -> WikiHandle:
    return context.service.get_handle(resolve_wiki(context).slug)


def select_section(page: PageContent, target: PageArgument) -> tuple[str, bool]:
    """The text of the page that the argument names, and whether it begins at the start of the page."""
    if not target.heading and target.line is None:
        return page.content, True
    lines = _LINE.findall(page.content)
    if target.heading:
        heading: Heading | None = find_heading(page, target.heading)
    else:
        above = [heading for heading in page.headings if heading.line <= (target.line or 1)]
        heading = above[-1] if above else None
    if target.line is not None and target.line > len(lines):
        raise PageNotFound(
            f"{page.file} has {len(lines)} lines, not {target.line}.", hint="Omit the line to read the entire page."
        )
    if heading is None:
        end = page.headings[0].line - 1 if page.headings else len(lines)
        return "".join(lines[:end]), True
    later = [other.line for other in page.headings if other.line > heading.line and other.level <= heading.level]
    return "".join(lines[heading.line - 1 : later[0] - 1 if later else len(lines)]), False


def find_heading(page: PageContent, text: str) -> Heading:
    """The heading with this anchor or text. Raises PageNotFound with similar headings."""
    wanted = text.strip().casefold()
    for heading in page.headings:
        if wanted in (heading.anchor.casefold(), heading.text.casefold()):
            return heading
    known = {heading.text.casefold(): heading.text for heading in page.headings}
    near = [known[key] for key in get_close_matches(wanted, known, 3)] or list(known.values())[:3]
    raise PageNotFound(
        f"There is no heading {text[:200]!r} on {page.path}.",
        hint=f"Did you mean {' or '.join(near)}?" if near else "The page has no headings; read it without one.",
    )


def run_similar(context: CommandContext) -> int:
    handle = _open_wiki(context)
    target = find_page(handle, context.arguments.page)
    return print_hits(
        context, [handle.wiki], build_result_document(handle.find_similar(target.path, context.arguments.n))
    )


# Links.


def run_links(context: CommandContext) -> int:
    handle, style = _open_wiki(context), context.style
    target = find_page(handle, context.arguments.page)
    links = handle.pages.get_links(target.path)
    places = FilePlaces.from_wiki(handle.wiki)
    files = {page.path: page.file for page in handle.pages.list().pages}
    outgoing = []
    for link in links.links_to:
        end = places.to_shown_path(files.get(link.path, link.path)) + (f"#{link.anchor}" if link.anchor else "")
        start = places.format(target.file, link.line, style)
        outgoing.append(f"  {start} → {to_safe_line(end)}  {to_safe_line(link.name)}")
    incoming = [
        f"  {places.format(files.get(link.path, link.path), link.line, style)}  {to_safe_line(link.name)}"
        for link in links.linked_from
    ]
    broken = [
        f"  {places.format(target.file, line, style)} → {style.format_warning(to_safe_line(path))}"
        for path, line in zip(links.missing, links.missing_lines, strict=True)
    ]
    lines: list[str] = []
    for title, rows in (("Links", outgoing), ("Linked from", incoming), ("Broken links", broken)):
        lines += [*([""] if lines else []), style.format_bold(f"{title} ({len(rows)})"), *rows]
    return context.print_result(build_links_document(links), lines)


# Recent changes.


@dataclass(frozen=True, slots=True)
class PageChange:
    """The last change of a page. A directory has no author and no message."""

    name: str
    path: str
    file: str
    date: datetime
    author: str
    message: str
    revision: str
    deleted: bool
    former_file: str | None
    """Its file before this change, if the change renamed it."""


def run_recent(context: CommandContext) -> int:
    arguments, style = context.arguments, context.style
    if not 1 <= arguments.n <= _MAX_RECENT:
        raise InvalidQuery(f"-n {arguments.n} is not possible.", hint=f"Use a number from 1 to {_MAX_RECENT}.")
    handle = _open_wiki(context)
    changes = find_changes(handle, context.service.get_source(handle.wiki), arguments.n)
    places = FilePlaces.from_wiki(handle.wiki)
    lines = []
    for change in changes:
        by = " · ".join(to_safe_line(text) for text in (change.author, change.message.partition("\n")[0]) if text)
        state = style.format_warning("deleted  ") if change.deleted else ""
        former = to_safe_line(places.to_shown_path(change.former_file)) if change.former_file else ""
        state += style.format_dim(f"was {former}  ") if former else ""
        file = places.format(change.file, None, style)
        row = f"{change.date.astimezone(UTC):%Y-%m-%d %H:%M}  {file}  {state}{to_safe_line(change.name)}"
        lines.append(row + style.format_dim(f"  {by}") if by else row)
    if arguments.files:
        lines = [to_safe_line(places.to_shown_path(change.file)) for change in changes if not change.deleted]
    documents = [{**asdict(change), "date": format_date(change.date)} for change in changes]
    context.print_result({"pages": documents}, lines)
    return 0 if changes else NOTHING_FOUND_EXIT_CODE


def find_changes(handle: WikiHandle, source: Source, limit: int) -> list[PageChange]:
    """The last change of each of `limit` pages, newest first."""
    try:
        head = source.get_head()
    except NoCommits:
        return []
    existing, pages = source.read_tree(head), {page.file: page for page in list_pages(handle)}
    changes: dict[str, PageChange] = {}
    renamed: set[str] = set()
    for skip in range(0, _MAX_COMMITS, _COMMITS_PER_READ):
        entries = handle.pages.read_changelog(_COMMITS_PER_READ, skip)
        for entry in entries:
            former, commit = _find_renames(entry.files, existing, pages), entry.commit
            renamed.update(former.values())
            is_snapshot = (commit.author, commit.email) == (FILE_AUTHOR.name, FILE_AUTHOR.email)
            by = ("", "") if is_snapshot else (commit.author, commit.message)
            for file in (file for file in entry.files if file not in renamed and file not in changes):
                name, path = pages[file].name if file in pages else make_page_name(file), get_page_path(file)
                is_deleted = file not in existing
                changes[file] = PageChange(
                    name, path, file, commit.date, *by, commit.revision, is_deleted, former.get(file)
                )
        if len(entries) < _COMMITS_PER_READ or len(changes) >= limit:
            break
    return _use_file_dates(list(changes.values()), source, head)[:limit]


def _find_renames(files: Sequence[str], existing: Container[str], pages: Mapping[str, StoredPage]) -> Mapping[str, str]:
    """The files of a commit that it renamed, new → old. The index has former paths as aliases."""
    changed = [pages[file] for file in files if file in pages]
    names = {name.casefold(): page.file for page in changed for name in (page.path, *page.aliases)}
    gone = {get_page_path(file).casefold(): file for file in files if file not in existing}
    return {names[name]: file for name, file in gone.items() if name in names}


def _use_file_dates(changes: list[PageChange], source: Source, head: str) -> list[PageChange]:
    """Replace the dates of snapshots of a directory, which only tell when it was scanned, by those of the files."""
    files = [change.file for change in changes if not change.author and not change.deleted]
    if not files:
        return changes
    dates = source.get_change_dates(files, head, None)
    dated = [replace(change, date=dates.get(change.file, change.date)) for change in changes]
    return sorted(dated, key=lambda change: change.date, reverse=True)


# Opening a page in the editor or in the browser.


_LINE_ARGUMENTS = {
    ("+{line}", "{file}"): "vi vim nvim gvim view nano pico emacs emacsclient kak joe mg micro gedit ne",
    ("--goto", "{file}:{line}"): "code code-insiders codium cursor windsurf",
    ("{file}:{line}",): "subl zed zeditor hx helix mcedit",
    ("--line", "{line}", "{file}"): "kate idea pycharm webstorm",
}
"""How editors take a line. Other editors get only the file."""


def run_open(context: CommandContext) -> int:
    if context.arguments.page is None:
        return open_served_pages(context)
    handle = _open_wiki(context)
    target = find_page(handle, context.arguments.page)
    heading = find_heading(handle.pages.read(target.path), target.heading) if target.heading else None
    line, anchor = (heading.line, heading.anchor) if heading else (target.line, "")
    path = FilePlaces.from_wiki(handle.wiki).find_path(target.file)
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or ""
    if path is not None and editor and not context.arguments.browser:
        command = build_editor_command(editor, path, line)
        _run_editor(command)
        return context.print_result({"path": target.path, "opened": "editor", "command": command}, [])
    address = handle.build_link(target.path) + (f"#{quote(anchor)}" if anchor else "")
    if urlsplit(address).scheme not in ("http", "https"):
        opener = shutil.which("open" if sys.platform == "darwin" else "xdg-open")
        if path is not None and opener is not None and not context.arguments.browser:
            _run_editor([opener, str(path)])
            document = {"path": target.path, "opened": "system", "command": [opener, str(path)]}
            return context.print_result(document, [f"Opened {to_safe_line(str(path))}"])
        raise _make_nothing_error(handle, target, browser=context.arguments.browser, on_disk=path)
    open_in_browser(address)
    document = {"path": target.path, "opened": "browser", "address": address}
    return context.print_result(document, [f"Opened {to_safe_line(address)}"])


def build_editor_command(editor: str, path: Path, line: int | None) -> list[str]:
    """The command that opens the file at the line. The path is absolute, so that no editor takes it for an option."""
    try:
        command = shlex.split(editor)
    except ValueError:
        command = []
    if not command:
        raise InvalidSetting(f"The editor {editor!r} is not a command.", hint="Set VISUAL or EDITOR to a command.")
    name = Path(command[0]).name
    templates = next((form for form, names in _LINE_ARGUMENTS.items() if name in names.split()), None)
    if line is None or templates is None:
        return [*command, str(path)]
    return [*command, *(template.format(file=path, line=line) for template in templates)]


def _run_editor(command: list[str]) -> None:
    try:
        completed = subprocess.run(command, check=False)
    except OSError as error:
        raise InvalidSetting(
            f"The editor {command[0]!r} cannot be started: {error.strerror}.", hint="Set VISUAL or EDITOR to a command."
        ) from error
    if completed.returncode:
        raise InvalidSetting(
            f"The editor {command[0]!r} ended with exit code {completed.returncode}.", hint="Check VISUAL and EDITOR."
        )


def _make_nothing_error(
    handle: WikiHandle, target: PageArgument, *, browser: bool, on_disk: Path | None
) -> InvalidSetting:
    address_hint = f"wikiholt set {handle.wiki.slug} url='https://wiki.example.org/{{path}}'"
    if browser or on_disk is None:
        problem = f"{target.path} has no address" if browser else f"{target.path} is not a file on this disk"
        return InvalidSetting(f"{problem}.", hint=f"Set the address of the wiki's pages: {address_hint}")
    return InvalidSetting(
        "No editor is set, and the wiki has no address.",
        hint=f"Set EDITOR, such as EDITOR=nano, or the address of its pages: {address_hint}",
    )
