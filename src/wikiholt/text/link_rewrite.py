"""Rewrites links, keeping their form, so that they lead to the same pages after a page was renamed."""

import posixpath
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import quote

from wikiholt.text.charset import decode_bytes, is_wide_encoding
from wikiholt.text.dialect import GFM, Dialect
from wikiholt.text.dialect_blocks import convert_blocks
from wikiholt.text.frontmatter import split_frontmatter
from wikiholt.text.inline import InlineLink, decode_destination, find_links
from wikiholt.text.links import (
    LinkResolution,
    PageNameIndex,
    get_folder,
    get_last_part,
    resolve_link_paths,
    split_wiki_target,
)
from wikiholt.text.markdown import iter_link_lines
from wikiholt.text.page_names import (
    DEFAULT_EXTENSION,
    get_extension,
    has_link_extension,
    is_document,
    is_folder_page,
    strip_page_extension,
)
from wikiholt.text.site_markup import convert_link_targets

_DEFINITION = re.compile(
    r"(?>(?:[ \t>]++|(?:[-*+]|\d{1,9}[.)])[ \t]){0,999})"
    r"\[(?>(?:[^\[\]\\]++|\\.){1,9999})\]:\s*+(?:<(?P<angle>[^<>\n]*+)>|(?P<bare>[^\s<]\S*+))"
)
_NOT_IN_WIKI_LINKS = re.compile(r"[\[\]|#^\n\r]")
_ENTITY = re.compile(r"&(?=#?\w+;)")


@dataclass(frozen=True, slots=True)
class PageMove:
    """A page's old and new path, the page names before and after, and the dialect of the links.

    `to_link_path` makes the path that is written in links, or None if it is the path itself.
    """

    old: str
    new: str
    before: PageNameIndex
    after: PageNameIndex
    dialect: Dialect = GFM
    to_link_path: Callable[[str], str | None] = lambda _: None
    sub_pages: Mapping[str, str] = field(default_factory=dict)
    """The new paths of other pages that move, by their old paths."""
    files: Mapping[str, str] = field(default_factory=dict)
    """The new names of files that move and are not pages, by their old names."""
    folders: tuple[str, str] | None = None
    """The folder that moves with the page, before and after."""

    def get_new_path(self, page: str) -> str:
        return self.new if page == self.old else self.sub_pages.get(page, page)

    def normalize_file(self, file: str) -> str:
        """The name of a file for comparison. Otterwiki may ignore the case of pages, and so that of the folder."""
        if self.dialect.resolution is not LinkResolution.OTTERWIKI:
            return file
        folder, slash, name = file.rpartition("/")
        return f"{folder.lower()}{slash}{name}"

    def find_new_file(self, path: str) -> str | None:
        """The new name of a moved file as written in links; None if no such file moves."""
        new = self.files.get(self.normalize_file(path))
        return None if new is None else f"{self.to_link_path(get_folder(new)) or get_folder(new)}/{get_last_part(new)}"

    def get_new_target(self, path: str) -> str:
        """The path that a relative link to no page keeps as its target: in the folder that moves, it moves too."""
        if self.folders is not None and path.startswith(f"{self.folders[0]}/"):
            return self.folders[1] + path.removeprefix(self.folders[0])
        return path

    def find_page(self, names: PageNameIndex, link: InlineLink, targets: Sequence[str], file: str) -> str | None:
        """The page that a link with these targets leads to."""
        paths = resolve_link_paths(targets, link.is_wiki_link, file, self.dialect.resolution)
        return names.find_page(paths, link.is_wiki_link, get_folder(file))


@dataclass(frozen=True, slots=True)
class _WrittenLink:
    """A link and its position in a file's text."""

    link: InlineLink
    start: int
    """The offset in the file of the text that the link's own offsets refer to."""
    is_bracketed: bool


def rewrite_links(data: bytes, file: str, new_file: str, move: PageMove) -> bytes:
    """The page's bytes with those links rewritten that would lead to another page; unchanged if there are none.

    Code, and everything that is not the target of a link, is left as it is.
    """
    if is_document(file) or is_wide_encoding(data):
        return data
    # Bytes that are not UTF-8 are preserved.
    text = data.decode("utf-8", "surrogateescape")
    changes: dict[tuple[int, int], str] = {}
    for link in _iter_links(data, text, file, move.dialect):
        change = _rewrite_link(link, text, file, new_file, move)
        if change is not None:
            span, target = change
            changes[span] = target
    parts: list[str] = []
    position = 0
    for (start, end), target in sorted(changes.items()):
        parts += text[position:start], target
        position = end
    return "".join((*parts, text[position:])).encode("utf-8", "surrogateescape")


def _iter_links(data: bytes, text: str, file: str, dialect: Dialect) -> Iterator[_WrittenLink]:
    """Every link whose target is written in the text itself."""
    decoded = decode_bytes(data)
    # If every line ends in a carriage return alone, that is the line end.
    line_end = "\r" if "\n" not in text else "\n"
    if decoded is None or decoded.text.count("\n") != text.count(line_end):
        return
    front = split_frontmatter(decoded.text)
    starts = [0, *(match.end() for match in re.finditer(line_end, text)), len(text)]
    first_line = front.body_line - 1
    body, _ = convert_blocks(front.body, file, dialect)
    for is_definition, begin, end in iter_link_lines(body):
        start, stop = starts[first_line + begin], starts[min(first_line + end, len(starts) - 1)]
        run = text[start:stop].replace("\r", "\n") if line_end == "\r" else text[start:stop]
        if is_definition:
            definition = _DEFINITION.match(run)
            if definition:
                kind = "angle" if definition["angle"] is not None else "bare"
                target = decode_destination(definition[kind])
                yield _WrittenLink(
                    InlineLink((target,), "", 0, target_spans=(definition.span(kind),)), start, kind == "angle"
                )
            continue
        if dialect.has_templates:
            run = convert_link_targets(run)
        for inline in find_links(run, {}, dialect.link_order):
            if inline.target_spans:
                before = inline.target_spans[0][0] - 1
                yield _WrittenLink(inline, start, run[before : before + 1] == "<")


def _rewrite_link(
    link: _WrittenLink, text: str, file: str, new_file: str, move: PageMove
) -> tuple[tuple[int, int], str] | None:
    """The span to replace and its new text; None if the link stays correct or led to no page."""
    inline, is_wiki = link.link, link.link.is_wiki_link
    old_page = move.find_page(move.before, inline, inline.targets, file)
    if old_page is None:
        wanted = _find_file_target(inline, file, new_file, move)
        if wanted is None:
            return None
        side, written_path = wanted
        path = move.normalize_file(written_path)
    else:
        path = written_path = move.get_new_path(old_page)
        if move.find_page(move.after, inline, inline.targets, new_file) == path:
            return None
        if path != old_page:
            written_path = move.to_link_path(path) or path
        side = _find_target_side(inline, file, move)
    start, end = (link.start + offset for offset in inline.target_spans[side])
    raw = text[start:end]
    lead = 0
    if raw != inline.targets[side] and move.dialect.has_templates:
        # A template has only the path, which may be without its first slash.
        path_part = inline.targets[side].partition("#")[0]
        end, raw = start + len(path_part), raw[: len(path_part)]
        lead = int(raw != path_part)
        if lead and f"/{raw[1:]}" != path_part:
            return None
        raw = path_part
    route_forms = _iter_route_forms(raw, old_page, path, new_file) if old_page and move.dialect.has_routes else ()
    for form in (*route_forms, *_iter_forms(link, raw, written_path, new_file)):
        target = form if is_wiki else decode_destination(f"<{form}>")
        targets = (*inline.targets[:side], target, *inline.targets[side + 1 :])
        if old_page is None:
            form_target = _resolve_file(target, is_wiki, new_file, move)
        else:
            form_target = move.find_page(move.after, inline, targets, new_file)
        if form_target == path and form.startswith("/" * lead):
            return (start + lead, end), form[lead:]
    if not is_wiki:
        return None
    link_end = text.index("]]", max(span[1] for span in inline.target_spans) + link.start) + 2
    # No wiki link can contain this name; use a Markdown link instead.
    tail = split_wiki_target(raw)[1]
    heading = "#" + _quote_path(tail[1:], "/") if tail.startswith("#") else ""
    return (link.start + inline.offset, link_end), f"[{inline.text}](/{_quote_path(written_path, '/')}{heading})"


def _find_file_target(inline: InlineLink, file: str, new_file: str, move: PageMove) -> tuple[int, str] | None:
    """The side and the new target of a link that leads to no page: to an attachment, or to a missing page.

    None if the link stays as it is. A relative link to a file that stays keeps its target when its own page moves.
    """
    is_wiki, resolution = inline.is_wiki_link, move.dialect.resolution.with_case
    for side, target in enumerate(inline.targets):
        for path in resolve_link_paths((target,), is_wiki, file, resolution):
            new = move.find_new_file(path)
            if new is not None:
                is_same = _resolve_file(target, is_wiki, new_file, move) == move.normalize_file(new)
                return None if is_same else (side, new)
    paths = resolve_link_paths(inline.targets, is_wiki, file, resolution)
    later = resolve_link_paths(inline.targets, is_wiki, new_file, resolution)
    if not paths or is_wiki or later == paths:
        return None
    wanted = move.get_new_target(paths[0])
    return None if later and later[0] == wanted else (0, wanted)


def _resolve_file(target: str, is_wiki: bool, file: str, move: PageMove) -> str | None:
    """The file that a link leads to if its target is no page."""
    paths = resolve_link_paths((target,), is_wiki, file, move.dialect.resolution.with_case)
    return move.normalize_file(paths[0]) if paths else None


def _iter_forms(link: _WrittenLink, raw: str, target: str, file: str) -> Iterator[str]:
    """Possible targets of a link to a page, in the form of the old one if possible."""
    if link.link.is_wiki_link:
        return _iter_wiki_forms(raw, target, file)
    return _iter_markdown_forms(raw, target, file, link.is_bracketed)


def _find_target_side(link: InlineLink, file: str, move: PageMove) -> int:
    """The index of the target of a wiki link that matches a page."""
    for side, target in enumerate(link.targets):
        if move.find_page(move.before, link, (target,), file) is not None:
            return side
    return 0


def _iter_wiki_forms(raw: str, target: str, file: str) -> Iterator[str]:
    """Possible targets of a wiki link to a page, in the form of the old one if possible, else the full path."""
    old_path, tail = split_wiki_target(raw)
    path = _add_extension(target, old_path.strip())
    forms = [path, "/" + path]
    if old_path.startswith("/"):
        forms = ["/" + path]
    elif old_path.startswith(("./", "../")):
        forms = [*_make_relative(path, file, dotted=True), *forms]
    elif "/" not in old_path:
        forms = [get_last_part(path), *forms]
    yield from (form + tail for form in forms if not _NOT_IN_WIKI_LINKS.search(form) and form == form.strip())


def _iter_markdown_forms(raw: str, target: str, file: str, is_bracketed: bool) -> Iterator[str]:
    """Possible destinations of a Markdown link: relative or absolute, with or without extension, like the old one."""
    old_path = re.split(r"[#?]", raw, maxsplit=1)[0]
    tail = raw[len(old_path) :]
    if not is_bracketed:
        # Parentheses must be balanced, and those of the path are percent-encoded.
        tail = tail.replace("(", "%28").replace(")", "%29")
    path = _add_extension(target, old_path)
    forms = ["/" + path]
    if not old_path.startswith("/"):
        forms = [*_make_relative(path, file, dotted=old_path.startswith("./")), *forms]
    safe = "/ " if is_bracketed and "%20" not in old_path else "/"
    quote_all = bool(re.search(r"%[89A-Fa-f]", old_path))
    yield from (_quote_path(form, safe, quote_all) + tail for form in forms)


def _iter_route_forms(raw: str, old_page: str, page: str, file: str) -> Iterator[str]:
    """Possible targets of a link by the routes of the site, with as many folders left out as in the old one."""
    old_path = re.split(r"[#?]", raw, maxsplit=1)[0]
    extension = get_extension(old_path)
    route = get_folder(page) if is_folder_page(page) else strip_page_extension(page)
    if old_path.startswith("/"):
        old_route = get_folder(old_page) if is_folder_page(old_page) else old_page
        left_out = old_route.count("/") - old_path.strip("/").count("/")
        form = "/" + "/".join(route.split("/")[max(left_out, 0) :])
    elif old_path.endswith("/"):
        own_route = get_folder(file) if is_folder_page(file) else strip_page_extension(file)
        form = posixpath.relpath(f"/{route}", f"/{own_route}")
    else:
        return
    ending = "/" if old_path.endswith("/") else extension
    yield f"{_quote_path(form, '/')}{ending}{raw[len(old_path) :]}"


def _add_extension(path: str, old_path: str) -> str:
    """The path with `.md` if the old path has it and the new one has no page extension."""
    needs_extension = old_path.lower().endswith(DEFAULT_EXTENSION) and not has_link_extension(path)
    return path + DEFAULT_EXTENSION if needs_extension else path


def _make_relative(path: str, file: str, dotted: bool) -> list[str]:
    """The path relative to the directory of a file; with `./` if requested or if it could be misread otherwise."""
    relative = posixpath.relpath("/" + path, "/" + posixpath.dirname(file))
    if relative.startswith("../"):
        return [relative]
    return ["./" + relative] if dotted else [relative, "./" + relative]


def _quote_path(path: str, safe: str, quote_all: bool = False) -> str:
    """Percent-encode the characters that are special in a link; non-ASCII characters too if `quote_all`."""
    escaped = _ENTITY.sub("%26", path.replace("%", "%25"))
    return "".join(
        quote(char)
        if char in "#?<>()[]\\\"'`|*" or (char.isspace() and char not in safe) or (quote_all and char > "~")
        else char
        for char in escaped
    )
