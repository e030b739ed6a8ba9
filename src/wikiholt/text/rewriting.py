"""Links rewritten so that they mean the same pages after one of them got another path, in the form they had."""

import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import quote

from wikiholt.text.decoding import decode, is_wide
from wikiholt.text.frontmatter import split
from wikiholt.text.inline import Place, destination, links
from wikiholt.text.links import Names, has_ending, last_part, paths_of, wiki_parts
from wikiholt.text.markdown import link_lines

_DEFINITION = re.compile(
    r"(?>(?:[ \t>]++|(?:[-*+]|\d{1,9}[.)])[ \t]){0,999})"
    r"\[(?>(?:[^\[\]\\]++|\\.){1,9999})\]:\s*+(?:<(?P<angle>[^<>\n]*+)>|(?P<bare>[^\s<]\S*+))"
)
_NOT_IN_WIKI_LINKS = re.compile(r"[\[\]|#^\n\r]")
_ENTITY = re.compile(r"&(?=#?\w+;)")


@dataclass(frozen=True, slots=True)
class Move:
    """A page's old and new path, and what links mean before and after."""

    old: str
    new: str
    before: Names
    after: Names


@dataclass(frozen=True, slots=True)
class _Written:
    """A link where it stands in a file's text."""

    place: Place
    start: int
    """Of the run of text that the place's offsets count from."""
    angle: bool


def rewritten(data: bytes, file: str, new_file: str, move: Move) -> bytes:
    """The page's bytes with links that would come to mean another page written anew; the same bytes if none would.

    Code is left alone, and so is everything that is not the target of a link.
    """
    if is_wide(data):
        return data
    # What is no UTF-8 comes back byte for byte.
    text = data.decode("utf-8", "surrogateescape")
    changes: dict[tuple[int, int], str] = {}
    for link in _links(data, text):
        changed = _changed(link, text, file, new_file, move)
        if changed is not None:
            span, spelled = changed
            changes[span] = spelled
    parts: list[str] = []
    at = 0
    for (start, end), spelled in sorted(changes.items()):
        parts += text[at:start], spelled
        at = end
    return "".join((*parts, text[at:])).encode("utf-8", "surrogateescape")


def _links(data: bytes, text: str) -> Iterator[_Written]:
    """Every link whose target is written out in the text."""
    decoded = decode(data)
    # Where every line ends in a carriage return alone, that is read as the line end.
    line_end = "\r" if "\n" not in text else "\n"
    if decoded is None or decoded.text.count("\n") != text.count(line_end):
        return
    front = split(decoded.text)
    starts = [0, *(found.end() for found in re.finditer(line_end, text)), len(text)]
    skipped = front.body_line - 1
    for defines, begin, end in link_lines(front.body):
        start, stop = starts[skipped + begin], starts[min(skipped + end, len(starts) - 1)]
        run = text[start:stop].replace("\r", "\n") if line_end == "\r" else text[start:stop]
        if defines:
            found = _DEFINITION.match(run)
            if found:
                kind = "angle" if found["angle"] is not None else "bare"
                target = destination(found[kind])
                yield _Written(Place((target,), "", 0, sides=(found.span(kind),)), start, kind == "angle")
            continue
        for place in links(run, {}):
            if place.sides:
                yield _Written(place, start, run[place.sides[0][0] - 1 : place.sides[0][0]] == "<")


def _changed(link: _Written, text: str, file: str, new_file: str, move: Move) -> tuple[tuple[int, int], str] | None:
    """Where to write what, so that the link means what it meant; None if it does so already or meant nothing."""
    place = link.place
    paths = paths_of(place.targets, place.wiki, file)
    meant = move.before.page(paths, place.wiki)
    if meant is None:
        # A picture, or a page that is not there: a relative link to it keeps its aim when its own page moves.
        if not paths or place.wiki or paths_of(place.targets, False, new_file) == paths:
            return None
        side, wanted = 0, paths[0]
    else:
        wanted = move.new if meant == move.old else meant
        if move.after.page(paths_of(place.targets, place.wiki, new_file), place.wiki) == wanted:
            return None
        side = _side(place, file, move.before)
    start, end = (link.start + at for at in place.sides[side])
    raw = text[start:end]
    forms = _wiki_forms(raw, wanted, new_file) if place.wiki else _markdown_forms(raw, wanted, new_file, link.angle)
    for form in forms:
        read = form if place.wiki else destination(f"<{form}>")
        targets = (*place.targets[:side], read, *place.targets[side + 1 :])
        means = paths_of(targets, place.wiki, new_file)
        if means == (wanted,) or (meant is not None and move.after.page(means, place.wiki) == wanted):
            return (start, end), form
    if not place.wiki:
        return None
    whole = text.index("]]", max(each[1] for each in place.sides) + link.start) + 2
    # No wiki link can have this name.
    tail = wiki_parts(raw)[1]
    heading = "#" + _quoted(tail[1:], "/") if tail.startswith("#") else ""
    return (link.start + place.offset, whole), f"[{place.text}](/{_quoted(wanted, '/')}{heading})"


def _side(place: Place, file: str, names: Names) -> int:
    """Which side of a wiki link is its target."""
    for side, target in enumerate(place.targets):
        if names.page(paths_of((target,), place.wiki, file), place.wiki) is not None:
            return side
    return 0


def _wiki_forms(raw: str, wanted: str, file: str) -> Iterator[str]:
    """The target of a wiki link to a page, in the form of the one before if that can be, else by its path."""
    written, tail = wiki_parts(raw)
    path = wanted + ".md" if written.strip().lower().endswith(".md") and not has_ending(wanted) else wanted
    forms = [path, "/" + path]
    if written.startswith("/"):
        forms = ["/" + path]
    elif written.startswith(("./", "../")):
        forms = [*_relative(path, file, dotted=True), *forms]
    elif "/" not in written:
        forms = [last_part(path), *forms]
    yield from (form + tail for form in forms if not _NOT_IN_WIKI_LINKS.search(form) and form == form.strip())


def _markdown_forms(raw: str, wanted: str, file: str, angle: bool) -> Iterator[str]:
    """The destination of a Markdown link to a page: relative or absolute, with or without ending, as the one before."""
    written = re.split(r"[#?]", raw, maxsplit=1)[0]
    tail = raw[len(written) :]
    if not angle:
        # Brackets must come in pairs, and those of the path are written another way.
        tail = tail.replace("(", "%28").replace(")", "%29")
    path = wanted + ".md" if written.lower().endswith(".md") and not has_ending(wanted) else wanted
    forms = ["/" + path]
    if not written.startswith("/"):
        forms = [*_relative(path, file, dotted=written.startswith("./")), *forms]
    safe = "/ " if angle and "%20" not in written else "/"
    every = bool(re.search(r"%[89A-Fa-f]", written))
    yield from (_quoted(form, safe, every) + tail for form in forms)


def _relative(path: str, file: str, dotted: bool) -> list[str]:
    """The path as seen from the directory of a file; with a dot before it where it is wanted or could be misread."""
    relative = posixpath.relpath("/" + path, "/" + posixpath.dirname(file))
    if relative.startswith("../"):
        return [relative]
    return ["./" + relative] if dotted else [relative, "./" + relative]


def _quoted(path: str, safe: str, every: bool = False) -> str:
    """The path with what has a meaning in a link percent-encoded; other scripts too if the author did so."""
    escaped = _ENTITY.sub("%26", path.replace("%", "%25"))
    return "".join(
        quote(char)
        if char in "#?<>()[]\\\"'`|*" or (char.isspace() and char not in safe) or (every and char > "~")
        else char
        for char in escaped
    )
