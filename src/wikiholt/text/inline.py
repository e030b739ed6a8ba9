"""Parses inline Markdown: finds links, and strips markup. Any input takes linear time."""

import re
from collections.abc import Iterator, Mapping
from html import unescape
from typing import Any, NamedTuple

from markdown_it.common.utils import normalizeReference

from wikiholt.text.dialect import LinkOrder

_BACKTICK_RUN = re.compile(r"`+")
_LABEL = r"(?>(?:[^\[\]\\]++|\\.|\[(?>(?:[^\[\]\\]++|\\.){0,9999})\]){0,9999})"
_DESTINATION = r"<[^<>\n]*+>|(?:[^\s()<\\]|\\.|\([^\s()]*+\))(?>(?:[^\s()\\]++|\\.|\([^\s()]*+\)){0,9999})|"
_TITLE = r"""(?:\s++(?:"[^"\n]*+"|'[^'\n]*+'|\([^()\n]*+\)))?"""
_CONTENTS_MACRO = re.compile(r"\s*+_TOC_\s*+(?:\||\Z)")
WIKI_LINK_PATTERN = re.compile(r"!?\[\[([^\[\]\n]{1,500})\]\]")
_LINK_AFTER_BRACKET = rf"({_LABEL})\]\(\s*+({_DESTINATION}){_TITLE}\s*+\)"
INLINE_LINK_PATTERN = re.compile(rf"!?\[{_LINK_AFTER_BRACKET}", re.DOTALL)
# A pattern that begins with a character and not with an option or a lookbehind is found several times faster.
_ESCAPE_OR_BRACKET = r"[\\!\[](?:(?<=\\).|(?:(?<=\[)|(?<=!)\[)"
# Escapes match first: otherwise a link starting at each of many escapes would be searched to the end of the text.
_ESCAPE_OR_LINK = re.compile(rf"{_ESCAPE_OR_BRACKET}{_LINK_AFTER_BRACKET})", re.DOTALL)
_ANY_LINK = re.compile(
    rf"\\.|!?\[\[(?P<wiki>[^\[\]\n]{{1,500}})\]\]"
    rf"|!?\[(?P<label>{_LABEL})\]"
    rf"(?:\(\s*+(?P<target>{_DESTINATION}){_TITLE}\s*+\)|\[(?P<reference>[^\[\]]*+)\])?"
    r"|<(?P<auto>(?:https?|ftp|mailto):[^\s<>]*+)>|(?<!\w)(?P<bare>https?://[^\s<>\"'`|]++)",
    re.DOTALL | re.IGNORECASE,
)
_NESTED = re.compile(r"!?\[[^\[\]]*+\]\([^()\s]*+\)")
_MARKUP = re.compile(r"[\\`*_\[\]<&~]")
# a tag may span a line end but not a blank line
_TAG = re.compile(r"</?[a-zA-Z](?>(?:[^<>\n\0]++|\n(?![ \t]*\n)){0,9999})>")
_CODE_MARK = "\0"
"""Surrounds the number of a code span that was replaced. No markup is removed that has only one of the two."""
_AUTOLINK = re.compile(r"<((?:https?|ftp|mailto):[^\s<>]*+)>")
_REFERENCE_LINK = re.compile(r"!?\[([^\[\]]*+)\]\[[^\[\]\n]*+\]")
_FOOTNOTE = re.compile(r"\[\^[^\[\]\s]{1,50}\]:?")
_PARTIAL_LINK = re.compile(r"\]\([^()\s]*+\)|\[\[|\]\]")
_STARS = re.compile(r"\*(?:(?<![\w*\\]\*)\*{0,2}(?=[^\s*])|(?<=[^\s*\\]\*)\*{0,2}(?![\w*])|\*\*?)|~~")
_UNDERSCORES = re.compile(r"_(?:(?<![\w\\]_)_{0,2}(?=[^\s_])|(?<=[^\s\\]_)(?<!__)_{0,2}(?!\w))")
_ESCAPE = re.compile(r"\\([!-/:-@\[-`{-~])")


def iter_code_spans(text: str) -> Iterator[tuple[int, int, int]]:
    """Start, end and fence length of each code span."""
    if "`" not in text:
        return
    runs = [(match.start(), match.end()) for match in _BACKTICK_RUN.finditer(text)]
    last = {end - start: start for start, end in runs}
    previous_end = 0
    opened: tuple[int, int] | None = None
    for start, end in runs:
        if opened is None:
            escaped = start > previous_end and text[start - 1] == "\\"
            if not escaped and last[end - start] > start:
                opened = (start, end - start)
        elif end - start == opened[1]:
            yield opened[0], end, opened[1]
            previous_end, opened = end, None


class InlineLink(NamedTuple):
    """A link in inline Markdown.

    `targets` are its possible targets, the likeliest first; `target_spans` are their positions in the text, empty for
    a reference link.
    """

    targets: tuple[str, ...]
    text: str
    offset: int
    is_wiki_link: bool = False
    target_spans: tuple[tuple[int, int], ...] = ()


def may_have_links(text: str) -> bool:
    return "[" in text or "://" in text or "mailto:" in text


def find_links(text: str, references: Mapping[str, Any], order: LinkOrder = LinkOrder.EITHER) -> Iterator[InlineLink]:
    """Each link in inline Markdown, outside of code."""
    if not may_have_links(text):
        return
    masked = blank_code(text)
    for match in _ANY_LINK.finditer(masked):
        link = _make_link(text, match, references, order)
        if link:
            yield link
            start, end = match.span("label")
            if start >= 0 and masked.find("[", start, end) >= 0:
                for inner in _NESTED.finditer(masked, start, end):
                    nested = INLINE_LINK_PATTERN.fullmatch(text, inner.start(), inner.end())
                    if nested:
                        target = decode_destination(nested[2])
                        yield InlineLink(
                            (target,),
                            strip_inline_to_line(nested[1]),
                            inner.start(),
                            target_spans=(_get_destination_span(nested, 2),),
                        )


def blank_code(text: str) -> str:
    """The text with each character of a code span replaced by a backtick."""
    parts: list[str] = []
    position = 0
    for start, end, _ in iter_code_spans(text):
        parts += text[position:start], "`" * (end - start)
        position = end
    return "".join((*parts, text[position:]))


def _make_link(text: str, match: re.Match[str], references: Mapping[str, Any], order: LinkOrder) -> InlineLink | None:
    offset = match.start()
    if match["target"] is not None:  # first, since most links have one
        return InlineLink(
            (decode_destination(match["target"]),),
            strip_inline_to_line(text[match.start("label") : match.end("label")]),
            offset,
            target_spans=(_get_destination_span(match, "target"),),
        )
    if match["wiki"] is not None:
        return _make_wiki_link(text[match.start("wiki") : match.end("wiki")], offset, match.start("wiki"), order)
    if match["auto"] or match["bare"]:
        url = match["auto"] or _trim_url(match["bare"])
        return InlineLink((url,), url, offset)
    if match["label"] is None or not references:
        return None
    label = text[match.start("label") : match.end("label")]
    reference = references.get(normalizeReference(match["reference"] or label))
    return InlineLink((str(reference["href"]),), strip_inline_to_line(label), offset) if reference else None


def _make_wiki_link(inside: str, offset: int, start: int, order: LinkOrder) -> InlineLink | None:
    """Parse `[[text|target]]`; if either side may be the target, the left side is the second possible target."""
    target, text = parse_wiki_link(inside, order)
    if not target or _CONTENTS_MACRO.match(inside):
        return None
    left, bar, right = inside.partition("|")
    if bar and left.endswith("\\"):
        left, bar = left[:-1], "\\|"
    sides = [(left.strip(), _trim_span(start, left)), (right.strip(), _trim_span(start + len(left) + len(bar), right))]
    # If both sides are the same text, the span is that of the target.
    spans = dict(reversed(sides) if order is LinkOrder.TARGET_FIRST else sides)
    is_unambiguous = order is not LinkOrder.EITHER or (target.startswith("/") and not text.startswith("/"))
    targets = (target,) if is_unambiguous or text == target else (target, text)
    return InlineLink(targets, text, offset, True, tuple(spans[side] for side in targets))


def _trim_span(start: int, text: str) -> tuple[int, int]:
    begin = start + len(text) - len(text.lstrip())
    return begin, begin + len(text.strip())


def _get_destination_span(match: re.Match[str], group: str | int) -> tuple[int, int]:
    """The span of a destination without its angle brackets."""
    start, end = match.span(group)
    return (start + 1, end - 1) if match[group].startswith("<") and match[group].endswith(">") else (start, end)


def parse_wiki_link(inside: str, order: LinkOrder = LinkOrder.EITHER) -> tuple[str, str]:
    """Target and text of `[[target]]`, `[[text|target]]` or, by the order of the dialect, `[[target|text]]`."""
    left, bar, right = inside.partition("|")
    if bar:
        left = left.removesuffix("\\")  # in a table the bar is escaped
    left, right = left.strip(), right.strip()
    if not bar or not right:
        return left, left
    is_target_first = order is LinkOrder.TARGET_FIRST or (
        order is LinkOrder.EITHER and left.startswith("/") and not right.startswith("/")
    )
    return (left, right) if is_target_first else (right, left or right)


def strip_inline_to_line(text: str) -> str:
    """Inline Markdown without markup, on one line."""
    return " ".join(strip_inline(text).split())


def strip_inline(text: str) -> str:
    """Inline Markdown without markup; links keep their text, code spans their code."""
    if not _MARKUP.search(text):
        return text
    if "`" not in text:
        return _strip_markup(text)
    # Code spans are replaced first, so that `[`code`](target)` is a link and `**` in code is kept.
    masked, code_spans = _replace_code(text)
    pieces = _strip_markup(masked).split(_CODE_MARK)
    pieces[1::2] = [code_spans[int(number)] for number in pieces[1::2]]
    return "".join(pieces)


def _replace_code(text: str) -> tuple[str, list[str]]:
    """The text with the number of each code span in its place, and the code."""
    parts: list[str] = []
    code_spans: list[str] = []
    position = 0
    for start, end, fence in iter_code_spans(text):
        parts += text[position:start].replace(_CODE_MARK, " "), f"{_CODE_MARK}{len(code_spans)}{_CODE_MARK}"
        code_spans.append(text[start + fence : end - fence])
        position = end
    return "".join((*parts, text[position:].replace(_CODE_MARK, " "))), code_spans


def remove_comments(text: str) -> str:
    """The text without HTML comments; an unclosed comment is kept."""
    return remove_between(text, "<!--", "-->", keep_unclosed=True)


def remove_between(text: str, start: str, end: str, *, keep_unclosed: bool = False) -> str:
    """The text with a space instead of each part from `start` to `end`. An unclosed part ends with the text."""
    parts: list[str] = []
    position = 0
    while (begin := text.find(start, position)) >= 0:
        close = text.find(end, begin + len(start))
        if close < 0:
            return "".join((*parts, text[position:] if keep_unclosed else text[position:begin]))
        parts += text[position:begin], " "
        position = close + len(end)
    return "".join((*parts, text[position:])) if parts else text


def _strip_markup(text: str) -> str:
    if "[" in text:
        if "[[" in text:
            text = WIKI_LINK_PATTERN.sub(lambda match: parse_wiki_link(match[1])[1], text)
        for _ in range(2):
            if "](" not in text:
                break
            text = _ESCAPE_OR_LINK.sub(lambda match: match[0] if match[1] is None else match[1], text)
        if "][" in text:
            text = _REFERENCE_LINK.sub(r"\1", text)
        text = _FOOTNOTE.sub("", text)
    if "]" in text:
        text = _PARTIAL_LINK.sub("", text)
    if "<" in text:
        text = _TAG.sub("", remove_comments(_AUTOLINK.sub(r"\1", text)))
    if "*" in text or "~~" in text:
        text = _STARS.sub("", text)
    if "_" in text:
        text = _UNDERSCORES.sub("", text)
    if "\\" in text:
        text = _ESCAPE.sub(r"\1", text)
    return unescape(text) if "&" in text else text


def decode_destination(destination: str) -> str:
    target = destination[1:-1] if destination.startswith("<") and destination.endswith(">") else destination
    return unescape(_ESCAPE.sub(r"\1", target)) if "\\" in target or "&" in target else target


def _trim_url(url: str) -> str:
    """A bare URL without the punctuation of the surrounding sentence."""
    url = url.rstrip(".,;:!?*_~'\"]}")
    while url.endswith(")") and url.count(")") > url.count("("):
        url = url[:-1].rstrip(".,;:!?")
    return url
