"""Links rewritten so that they mean the same pages after one of them got another path, in the form they had."""

import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import quote

from wikiholt.text.charset import decode_bytes, is_wide_encoding
from wikiholt.text.frontmatter import split_frontmatter
from wikiholt.text.inline import InlineLink, decode_destination, find_links
from wikiholt.text.links import PageNameIndex, get_last_part, has_page_extension, resolve_link_paths, split_wiki_target
from wikiholt.text.markdown import iter_link_lines

_DEFINITION = re.compile(
    r"(?>(?:[ \t>]++|(?:[-*+]|\d{1,9}[.)])[ \t]){0,999})"
    r"\[(?>(?:[^\[\]\\]++|\\.){1,9999})\]:\s*+(?:<(?P<angle>[^<>\n]*+)>|(?P<bare>[^\s<]\S*+))"
)
_NOT_IN_WIKI_LINKS = re.compile(r"[\[\]|#^\n\r]")
_ENTITY = re.compile(r"&(?=#?\w+;)")


@dataclass(frozen=True, slots=True)
class PageMove:
    """A page's old and new path, and what links mean before and after."""

    old: str
    new: str
    before: PageNameIndex
    after: PageNameIndex


@dataclass(frozen=True, slots=True)
class _WrittenLink:
    """A link where it stands in a file's text."""

    link: InlineLink
    start: int
    """Of the run of text that the place's offsets count from."""
    is_bracketed: bool


def rewrite_links(data: bytes, file: str, new_file: str, move: PageMove) -> bytes:
    """The page's bytes with links that would come to mean another page written anew; the same bytes if none would.

    Code is left alone, and so is everything that is not the target of a link.
    """
    if is_wide_encoding(data):
        return data
    # What is no UTF-8 comes back byte for byte.
    text = data.decode("utf-8", "surrogateescape")
    changes: dict[tuple[int, int], str] = {}
    for link in _iter_links(data, text):
        changed = _rewrite_link(link, text, file, new_file, move)
        if changed is not None:
            span, spelled = changed
            changes[span] = spelled
    parts: list[str] = []
    at = 0
    for (start, end), spelled in sorted(changes.items()):
        parts += text[at:start], spelled
        at = end
    return "".join((*parts, text[at:])).encode("utf-8", "surrogateescape")


def _iter_links(data: bytes, text: str) -> Iterator[_WrittenLink]:
    """Every link whose target is written out in the text."""
    decoded = decode_bytes(data)
    # Where every line ends in a carriage return alone, that is read as the line end.
    line_end = "\r" if "\n" not in text else "\n"
    if decoded is None or decoded.text.count("\n") != text.count(line_end):
        return
    front = split_frontmatter(decoded.text)
    starts = [0, *(found.end() for found in re.finditer(line_end, text)), len(text)]
    skipped = front.body_line - 1
    for defines, begin, end in iter_link_lines(front.body):
        start, stop = starts[skipped + begin], starts[min(skipped + end, len(starts) - 1)]
        run = text[start:stop].replace("\r", "\n") if line_end == "\r" else text[start:stop]
        if defines:
            found = _DEFINITION.match(run)
            if found:
                kind = "angle" if found["angle"] is not None else "bare"
                target = decode_destination(found[kind])
                yield _WrittenLink(
                    InlineLink((target,), "", 0, target_spans=(found.span(kind),)), start, kind == "angle"
                )
            continue
        for place in find_links(run, {}):
            if place.target_spans:
                yield _WrittenLink(place, start, run[place.target_spans[0][0] - 1 : place.target_spans[0][0]] == "<")


def _rewrite_link(
    link: _WrittenLink, text: str, file: str, new_file: str, move: PageMove
) -> tuple[tuple[int, int], str] | None:
    """Where to write what, so that the link means what it meant; None if it does so already or meant nothing."""
    place = link.link
    paths = resolve_link_paths(place.targets, place.is_wiki_link, file)
    meant = move.before.find_page(paths, place.is_wiki_link)
    if meant is None:
        # A picture, or a page that is not there: a relative link to it keeps its aim when its own page moves.
        if not paths or place.is_wiki_link or resolve_link_paths(place.targets, False, new_file) == paths:
            return None
        side, wanted = 0, paths[0]
    else:
        wanted = move.new if meant == move.old else meant
        if (
            move.after.find_page(resolve_link_paths(place.targets, place.is_wiki_link, new_file), place.is_wiki_link)
            == wanted
        ):
            return None
        side = _find_target_side(place, file, move.before)
    start, end = (link.start + at for at in place.target_spans[side])
    raw = text[start:end]
    forms = (
        _iter_wiki_forms(raw, wanted, new_file)
        if place.is_wiki_link
        else _iter_markdown_forms(raw, wanted, new_file, link.is_bracketed)
    )
    for form in forms:
        read = form if place.is_wiki_link else decode_destination(f"<{form}>")
        targets = (*place.targets[:side], read, *place.targets[side + 1 :])
        means = resolve_link_paths(targets, place.is_wiki_link, new_file)
        if means == (wanted,) or (meant is not None and move.after.find_page(means, place.is_wiki_link) == wanted):
            return (start, end), form
    if not place.is_wiki_link:
        return None
    whole = text.index("]]", max(each[1] for each in place.target_spans) + link.start) + 2
    # No wiki link can have this name.
    tail = split_wiki_target(raw)[1]
    heading = "#" + _quote_path(tail[1:], "/") if tail.startswith("#") else ""
    return (link.start + place.offset, whole), f"[{place.text}](/{_quote_path(wanted, '/')}{heading})"


def _find_target_side(link: InlineLink, file: str, names: PageNameIndex) -> int:
    """Which side of a wiki link is its target."""
    for side, target in enumerate(link.targets):
        if names.find_page(resolve_link_paths((target,), link.is_wiki_link, file), link.is_wiki_link) is not None:
            return side
    return 0


def _iter_wiki_forms(raw: str, target: str, file: str) -> Iterator[str]:
    """The target of a wiki link to a page, in the form of the one before if that can be, else by its path."""
    written, tail = split_wiki_target(raw)
    path = target + ".md" if written.strip().lower().endswith(".md") and not has_page_extension(target) else target
    forms = [path, "/" + path]
    if written.startswith("/"):
        forms = ["/" + path]
    elif written.startswith(("./", "../")):
        forms = [*_make_relative(path, file, dotted=True), *forms]
    elif "/" not in written:
        forms = [get_last_part(path), *forms]
    yield from (form + tail for form in forms if not _NOT_IN_WIKI_LINKS.search(form) and form == form.strip())


def _iter_markdown_forms(raw: str, target: str, file: str, is_bracketed: bool) -> Iterator[str]:
    """The destination of a Markdown link to a page: relative or absolute, with or without ending, as the one before."""
    written = re.split(r"[#?]", raw, maxsplit=1)[0]
    tail = raw[len(written) :]
    if not is_bracketed:
        # Brackets must come in pairs, and those of the path are written another way.
        tail = tail.replace("(", "%28").replace(")", "%29")
    path = target + ".md" if written.lower().endswith(".md") and not has_page_extension(target) else target
    forms = ["/" + path]
    if not written.startswith("/"):
        forms = [*_make_relative(path, file, dotted=written.startswith("./")), *forms]
    safe = "/ " if is_bracketed and "%20" not in written else "/"
    every = bool(re.search(r"%[89A-Fa-f]", written))
    yield from (_quote_path(form, safe, every) + tail for form in forms)


def _make_relative(path: str, file: str, dotted: bool) -> list[str]:
    """The path as seen from the directory of a file; with a dot before it where it is wanted or could be misread."""
    relative = posixpath.relpath("/" + path, "/" + posixpath.dirname(file))
    if relative.startswith("../"):
        return [relative]
    return ["./" + relative] if dotted else [relative, "./" + relative]


def _quote_path(path: str, safe: str, quote_all: bool = False) -> str:
    """The path with what has a meaning in a link percent-encoded; other scripts too if the author did so."""
    escaped = _ENTITY.sub("%26", path.replace("%", "%25"))
    return "".join(
        quote(char)
        if char in "#?<>()[]\\\"'`|*" or (char.isspace() and char not in safe) or (quote_all and char > "~")
        else char
        for char in escaped
    )
