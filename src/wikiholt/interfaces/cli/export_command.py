"""`wikiholt export`: the search of a wiki as static files."""

from __future__ import annotations

import re
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from wikiholt.errors import Conflict, InvalidSetting
from wikiholt.interfaces.cli import output
from wikiholt.interfaces.cli.command import CommandContext, Subparsers, add_command, add_quiet
from wikiholt.interfaces.cli.output import format_count, format_size, to_safe_line
from wikiholt.interfaces.cli.selection import add_wiki_option, resolve_wiki

if TYPE_CHECKING:
    from wikiholt.domain.wiki import Wiki

_PLACEHOLDERS = ("{path}", "{file}")
_PUBLIC = "Everyone who can read these files can read the titles, paths, tags and full texts of these pages."


def add_arguments(commands: Subparsers) -> None:
    parser = add_command(commands, "export", run_export)
    parser.add_argument("directory", type=Path, metavar="DIR", help="a new directory, or that of an earlier export")
    add_wiki_option(parser)
    text = (
        "the address of a page, with {path} or {file} in it, such as https://wiki.example.org/{path}; a relative one "
        "begins at DIR (default: the setting url of the wiki)"
    )
    parser.add_argument("--url", metavar="TEMPLATE", help=text)
    add_quiet(parser)


def run_export(context: CommandContext) -> int:
    """Bring the index to HEAD, and write the files. Nothing in DIR changes if that fails."""
    from wikiholt.wikis.export.contents import read_contents
    from wikiholt.wikis.export.directory import check_directory, write_export
    from wikiholt.wikis.export.scripts import build_files

    arguments, wiki = context.arguments, resolve_wiki(context)
    directory = arguments.directory.absolute()
    template = _choose_url(context, wiki)
    _check_outside(directory, wiki)
    check_directory(directory)
    handle = context.service.get_handle(wiki.slug)
    with output.show_sync_progress(wiki.slug, visible=context.show_progress, keep=False) as progress:
        handle.sync(progress)
    with handle.open_snapshot() as snapshot:
        contents = read_contents(snapshot.live_index.index, handle.pages.get_pipeline())
    hidden = handle.pages.list(limit=1).total - len(contents.pages)
    built = build_files(contents, template)
    files = _build_page_files(wiki.slug, len(contents.pages), built.digest)
    write_export(directory, built.digest, built.files, files)
    size = sum(map(len, (*built.files.values(), *files.values())))
    pages = len(contents.pages)
    lines = [
        f"Exported {format_count(pages, 'page')} of {wiki.slug} to {to_safe_line(str(directory))}: "
        f"{format_count(len(built.files) + len(files), 'file')}, {format_size(size)}.",
        _PUBLIC,
        *([f"{format_count(hidden, 'page')} hidden from searches: not exported."] if hidden else []),
        f"Try it: python3 -m http.server -d {to_safe_line(str(arguments.directory))}",
    ]
    document = {"wiki": wiki.slug, "directory": str(directory), "revision": contents.revision, "pages": pages}
    return context.print_result(
        {**document, "hidden": hidden, "files": len(built.files) + len(files), "bytes": size}, lines
    )


def _choose_url(context: CommandContext, wiki: Wiki) -> str:
    """The template of links. Raises InvalidSetting."""
    from wikiholt.api.settings.definitions import Settings, WikiSettings

    default = Settings.__dataclass_fields__["url"].default
    template = context.arguments.url
    if template is None:
        template = WikiSettings.parse(wiki.settings).url or context.settings.url
        if template == default:
            hint = "Add --url 'https://wiki.example.org/{path}' with the address of your pages."
            raise InvalidSetting("The addresses of the pages are not known.", hint=hint)
    scheme = re.match(r"[\s\0-\x20]*([A-Za-z][A-Za-z0-9+.-]*):", template)
    reason = ""
    if not any(placeholder in template for placeholder in _PLACEHOLDERS):
        reason = "it must contain {path} or {file}"
    elif unknown := [name for name in re.findall(r"\{[^{}]*\}", template) if name not in _PLACEHOLDERS]:
        reason = f"{unknown[0]} is not a known placeholder"
    elif (scheme and scheme[1].lower() not in ("http", "https")) or (
        re.match(r"\{", template.lstrip()) and ":" in template
    ):
        reason = "a link must be http, https or relative"
    elif re.search(r"[\0-\x1f]", template):
        reason = "it contains a control character"
    if reason:
        raise InvalidSetting(
            f"--url {template!r} is not valid: {reason}.", hint="Such as https://wiki.example.org/{path}"
        )
    # A page may have the path `javascript:…`, which must stay a path.
    return f"./{template}" if template.startswith("{") else template


def _check_outside(directory: Path, wiki: Wiki) -> None:
    """Raise Conflict if the export would become a part of the wiki."""
    source = Path(wiki.source).resolve() if wiki.source else None
    if wiki.is_directory and source and directory.resolve().is_relative_to(source):
        raise Conflict(f"{directory} is inside the wiki.", hint="Name a directory outside of it.")


def _build_page_files(slug: str, pages: int, digest: str) -> dict[str, bytes]:
    """The script, and a page with it."""
    from wikiholt.interfaces.http.static_files import get_web_static_directory, read_static_files
    from wikiholt.wikis.export.directory import SCRIPT, get_parts_name

    static = read_static_files(get_web_static_directory())
    engine = static.files["static_search.js"].data.replace(b'"PARTS/"', f'"{get_parts_name(digest)}/"'.encode())
    html = static.templates["export"].substitute(name=escape(slug), count=f"{pages:,}")
    return {SCRIPT: engine + static.files["box.js"].data, "index.html": html.encode()}
