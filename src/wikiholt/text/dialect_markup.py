"""Converts the inline markup of a dialect to plain Markdown, and finds inline tags and properties.

Fragments are allowed. Any input takes linear time.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from wikiholt.text.charset import to_one_line
from wikiholt.text.dialect import Dialect, LinkOrder
from wikiholt.text.inline import WIKI_LINK_PATTERN, blank_code, iter_code_spans, parse_wiki_link, strip_inline_to_line
from wikiholt.text.links import is_attachment, split_wiki_target

_EMBED_SIZE = re.compile(r"\d{1,5}(?:x\d{1,5})?")
_HIGHLIGHT = re.compile(r"(?<![=\w])==(?=[^\s=])([^=\n]{1,2000})==(?![=\w])|\^\^(?=[^\s^])([^^\n]{1,2000})\^\^")
_CALLOUT = re.compile(r"^([ \t]*+>[ \t>]*+)\[![\w-]++(?:\|[^\[\]\n]*+)?\][+-]?+[ \t]*+", re.MULTILINE)
_BLOCK_ID = re.compile(r"(?:^|(?<=\s))\^[A-Za-z0-9-]++[ \t]*+$", re.MULTILINE)
_BLOCK_REFERENCE = re.compile(r"\(\([0-9a-f-]{36}\)\)")
_KEY = r"[*_]{0,3}([^\W\d_][\w /-]{0,59})(?<! )[*_]{0,3}"
_FIELD_LINE = re.compile(
    rf"^(?P<start>[ \t>]*+(?:(?:[-*+]|\d{{1,9}}[.)])[ \t]++(?:\[.\][ \t]++)?)?){_KEY}::(?:[ \t]++(?P<value>.*))?$",
    re.MULTILINE,
)
_INLINE_FIELD = re.compile(rf"[\[(]{_KEY}::[ \t]++([^\[\]()\n]{{0,500}})[\])]")
_TAG = re.compile(r"(?<!\S)#(?:\[\[([^\[\]\n]{1,100})\]\]|(?=[\d/_-]*+[^\W\d_])([\w/-]++))")
_TASK = re.compile(r"^([ \t>]*+(?:[-*+]|\d{1,9}[.)])[ \t]++)\[[^\[\]\n]\][ \t]++", re.MULTILINE)
_INLINE_FOOTNOTE = re.compile(r"\^\[([^\[\]\n]{1,1000})\]")
_PICTURE_SIZE = re.compile(r"(!\[[^\[\]\n|]{0,500})\|\d{1,5}(?:x\d{1,5})?\](?=\()")
_ICON = re.compile(r":(?:material|octicons|fontawesome|simple)-[\w-]++:[ \t]?")
_ATTRIBUTES = re.compile(r"[ \t]?\{:?[ \t]*+(?=[#.]-?[A-Za-z_]|[\w-]++=)[^{}\n]{1,300}\}")
_HEADING_ID = re.compile(r"\{:?[ \t]*+(?:[.\w][^{}#\n]{0,100}[ \t])?#([\w.:-]{1,200})[^{}\n]{0,200}\}[ \t]*+\Z")
_MAX_TAGS = 1_000
_MAX_FIELDS = 200
_PAGE_KEYS = frozenset({"title", "search", "hidden", "noindex"})
"""Keys that describe the page only if they are at its beginning."""


def to_gfm(text: str, dialect: Dialect) -> str:
    """The text with the inline markup of the dialect replaced by what it displays; code is kept."""
    if dialect.has_note_markup or dialect.has_routes or dialect.link_order is LinkOrder.TARGET_FIRST:
        return replace_in_prose(text, lambda prose: convert_prose(prose, dialect))
    return text


def replace_in_prose(
    text: str, convert: Callable[[str], str], convert_code: Callable[[str], str] = lambda code: code
) -> str:
    """Convert the text between code spans, and the spans."""
    parts: list[str] = []
    position = 0
    for start, end, _ in iter_code_spans(text):
        parts += convert(text[position:start]), convert_code(text[start:end])
        position = end
    return "".join((*parts, convert(text[position:])))


def convert_prose(text: str, dialect: Dialect) -> str:
    """As `to_gfm`, for text without code spans."""
    if "[[" in text and dialect.link_order is LinkOrder.TARGET_FIRST:
        text = WIKI_LINK_PATTERN.sub(lambda match: get_link_text(match, dialect), text)
    if "[" in text and dialect.has_note_markup:
        text = _TASK.sub(r"\1", text)
    return remove_markup(text, dialect)


def remove_markup(text: str, dialect: Dialect) -> str:
    """The text without markup of the dialect that displays nothing; links, callouts and boxes of tasks are kept."""
    if dialect.has_routes and "{" in text:
        text = _ATTRIBUTES.sub("", text)
    if dialect.has_admonitions:
        text = _ICON.sub("", text) if ":" in text else text
    return _remove_note_markup(text) if dialect.has_note_markup else text


def _remove_note_markup(text: str) -> str:
    if "==" in text or "^^" in text:
        text = _HIGHLIGHT.sub(lambda match: match[1] or match[2], text)
    if "::" in text:
        text = _FIELD_LINE.sub(lambda match: f"{match['start']}{match[2]}: {match['value'] or ''}".rstrip(), text)
        text = _INLINE_FIELD.sub(r"\1: \2", text)
    if "[!" in text:
        text = _CALLOUT.sub(r"\1", text)
    if "((" in text:
        text = _BLOCK_REFERENCE.sub("", text)
    if "[" in text:
        text = _PICTURE_SIZE.sub(r"\1]", text)
    return _BLOCK_ID.sub("", _INLINE_FOOTNOTE.sub(r" (\1)", text)) if "^" in text else text


def get_link_text(match: re.Match[str], dialect: Dialect) -> str:
    """The words that a wiki link displays; empty for an embedded picture."""
    target, text = parse_wiki_link(match[1], dialect.link_order)
    path, tail = split_wiki_target(target)
    if match[0].startswith("!") and (is_attachment(path, True) or _EMBED_SIZE.fullmatch(text)):
        return "" if text == target or _EMBED_SIZE.fullmatch(text) else text
    if text != target or not tail:
        return text
    headings = [part.strip() for part in tail.split("#") if part.strip() and not part.strip().startswith("^")]
    return " > ".join(filter(None, (path.strip(), *headings)))


def split_heading_id(heading: str, has_attributes: bool) -> tuple[str, str]:
    """Split `Title {#id .class}` into the title and the id, in text that has attributes."""
    if not has_attributes or not heading.rstrip().endswith("}"):
        return heading, ""
    match = _HEADING_ID.search(heading)
    return _ATTRIBUTES.sub("", heading).rstrip(), match[1] if match else ""


# Tags and properties in text.


@dataclass(frozen=True, slots=True)
class InlineMetadata:
    """The `#tags` of a page, and its `key:: value` properties, which have the form of frontmatter."""

    tags: tuple[str, ...] = ()
    fields: tuple[tuple[str, str], ...] = ()


NO_METADATA = InlineMetadata()


def find_inline_metadata(texts: Iterable[str], dialect: Dialect) -> InlineMetadata:
    """Find tags and properties in the paragraphs of a page, outside of code. The first value of a key counts."""
    tags: dict[str, None] = {}
    fields: dict[str, str] = {}
    is_beginning = True
    for text in texts:
        if "#" in text or "::" in text:
            plain = WIKI_LINK_PATTERN.sub(lambda match: _keep_tag_link(match, dialect), text)
            masked = blank_code(plain)
            if "#" in masked and len(tags) < _MAX_TAGS:
                tags |= dict.fromkeys(filter(None, (_get_tag(match) for match in _TAG.finditer(masked))))
            if "::" in masked and len(fields) < _MAX_FIELDS:
                for key, value in _find_fields(plain, masked):
                    if is_beginning or key.lower() not in _PAGE_KEYS:
                        fields.setdefault(key, value)
        is_beginning = is_beginning and bool(_FIELD_LINE.match(text))
    return InlineMetadata(tuple(tags)[:_MAX_TAGS], tuple(fields.items())[:_MAX_FIELDS])


def _keep_tag_link(match: re.Match[str], dialect: Dialect) -> str:
    """The text of a link, so that its heading is no tag; `#[[tag]]` is kept."""
    is_tag = match.start() > 0 and match.string[match.start() - 1] == "#"
    return match[0] if is_tag else get_link_text(match, dialect).replace("#", " ")


def _get_tag(match: re.Match[str]) -> str:
    return to_one_line(match[1] or match[2]).strip("/-")


def _find_fields(text: str, masked: str) -> Iterable[tuple[str, str]]:
    for match in _FIELD_LINE.finditer(text):
        yield match[2].strip(), strip_inline_to_line(match["value"] or "")
    for match in _INLINE_FIELD.finditer(masked):
        yield match[1].strip(), strip_inline_to_line(text[match.start(2) : match.end(2)])
