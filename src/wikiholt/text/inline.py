"""Inline Markdown: its links, and its text without markup. Any input takes linear time."""

import re
from collections.abc import Iterator, Mapping
from html import unescape
from typing import Any, NamedTuple

from markdown_it.common.utils import normalizeReference

_RUN = re.compile(r"`+")
_LABEL = r"(?>(?:[^\[\]\\]++|\\.|\[(?>(?:[^\[\]\\]++|\\.){0,9999})\]){0,9999})"
_DESTINATION = r"<[^<>\n]*+>|(?:[^\s()<\\]|\\.|\([^\s()]*+\))(?>(?:[^\s()\\]++|\\.|\([^\s()]*+\)){0,9999})|"
_TITLE = r"""(?:\s++(?:"[^"\n]*+"|'[^'\n]*+'|\([^()\n]*+\)))?"""
WIKI_LINK = re.compile(r"!?\[\[([^\[\]\n]{1,500})\]\]")
_INLINE = rf"!?\[({_LABEL})\]\(\s*+({_DESTINATION}){_TITLE}\s*+\)"
INLINE_LINK = re.compile(_INLINE, re.DOTALL)
# escapes are passed over first: a link that began at each of many would be looked for to the end of the text
_ESCAPE_OR_LINK = re.compile(rf"\\.|{_INLINE}", re.DOTALL)
_ANY_LINK = re.compile(
    rf"\\.|!?\[\[(?P<wiki>[^\[\]\n]{{1,500}})\]\]"
    rf"|!?\[(?P<label>{_LABEL})\]"
    rf"(?:\(\s*+(?P<target>{_DESTINATION}){_TITLE}\s*+\)|\[(?P<reference>[^\[\]]*+)\])?"
    r"|<(?P<auto>(?:https?|ftp|mailto):[^\s<>]*+)>|(?<!\w)(?P<bare>https?://[^\s<>\"'`|]++)",
    re.DOTALL | re.IGNORECASE,
)
_NESTED = re.compile(r"!?\[[^\[\]]*+\]\([^()\s]*+\)")
_MARKUP = re.compile(r"[\\`*_\[\]<&~]")
# a tag may run over a line end, never over a blank line
_TAG = re.compile(r"</?[a-zA-Z](?>(?:[^<>\n\0]++|\n(?![ \t]*\n)){0,9999})>")
_HELD = "\0"
"""Around the number of a code span that was taken out."""
_CODE = re.compile(r"\0(\d+)\0")
_ADDRESS = re.compile(r"<((?:https?|ftp|mailto):[^\s<>]*+)>")
_REFERENCE_LINK = re.compile(r"!?\[([^\[\]]*+)\]\[[^\[\]\n]*+\]")
_FOOTNOTE = re.compile(r"\[\^[^\[\]\s]{1,50}\]:?")
_HALF_LINK = re.compile(r"\]\([^()\s]*+\)|\[\[|\]\]")
_STARS = re.compile(r"(?<![\w*\\])[*]{1,3}(?=[^\s*])|(?<=[^\s*\\])[*]{1,3}(?![\w*])|\*\*\*?|~~")
_UNDERSCORES = re.compile(r"(?<![\w\\])_{1,3}(?=[^\s_])|(?<=[^\s\\])(?<!_)_{1,3}(?!\w)")
_ESCAPE = re.compile(r"\\([!-/:-@\[-`{-~])")


def code_spans(text: str) -> Iterator[tuple[int, int, int]]:
    """Start, end and length of the fence of each code span."""
    if "`" not in text:
        return
    runs = [(found.start(), found.end()) for found in _RUN.finditer(text)]
    last = {end - start: start for start, end in runs}
    at = 0
    opened: tuple[int, int] | None = None
    for start, end in runs:
        if opened is None:
            escaped = start > at and text[start - 1] == "\\"
            if not escaped and last[end - start] > start:
                opened = (start, end - start)
        elif end - start == opened[1]:
            yield opened[0], end, opened[1]
            at, opened = end, None


class Place(NamedTuple):
    """A link in a run of inline Markdown.

    `targets` is what it may lead to, the likeliest first, and `sides` where each of these is written; none for a link
    that is defined elsewhere.
    """

    targets: tuple[str, ...]
    text: str
    offset: int
    wiki: bool = False
    sides: tuple[tuple[int, int], ...] = ()


def links(text: str, references: Mapping[str, Any]) -> Iterator[Place]:
    """Each link in a run of inline Markdown; code is passed over."""
    if "[" not in text and "://" not in text and "mailto:" not in text:
        return
    masked = _without_code(text)
    for found in _ANY_LINK.finditer(masked):
        link = _link(text, found, references)
        if link:
            yield link
            label = found.start("label")
            if label >= 0:
                for inner in _NESTED.finditer(masked, label, found.end("label")):
                    nested = INLINE_LINK.fullmatch(text, inner.start(), inner.end())
                    if nested:
                        target = destination(nested[2])
                        yield Place((target,), plain_inline(nested[1]), inner.start(), sides=(_bare(nested, 2),))


def _without_code(text: str) -> str:
    """The text with every code span blotted out, each character in its place."""
    parts: list[str] = []
    at = 0
    for start, end, _ in code_spans(text):
        parts += text[at:start], "`" * (end - start)
        at = end
    return "".join((*parts, text[at:]))


def _link(text: str, found: re.Match[str], references: Mapping[str, Any]) -> Place | None:
    at = found.start()
    if found["wiki"] is not None:
        return _wiki_place(text[found.start("wiki") : found.end("wiki")], at, found.start("wiki"))
    if found["auto"] or found["bare"]:
        url = found["auto"] or _trim(found["bare"])
        return Place((url,), url, at)
    if found["label"] is None:
        return None
    label = text[found.start("label") : found.end("label")]
    if found["target"] is not None:
        return Place((destination(found["target"]),), plain_inline(label), at, sides=(_bare(found, "target"),))
    if not references:
        return None
    reference = references.get(normalizeReference(found["reference"] or label))
    return Place((str(reference["href"]),), plain_inline(label), at) if reference else None


def _wiki_place(inside: str, at: int, start: int) -> Place | None:
    """The order `[[text|target]]` comes first; Obsidian's readers write it the other way round."""
    target, shown = wiki_link(inside)
    if not target:
        return None
    left, bar, right = inside.partition("|")
    if bar and left.endswith("\\"):
        left, bar = left[:-1], "\\|"
    spans = {
        left.strip(): _trimmed(start, left),
        right.strip(): _trimmed(start + len(left) + len(bar), right),
    }
    sure = target.startswith("/") and not shown.startswith("/")
    targets = (target,) if sure or shown == target else (target, shown)
    return Place(targets, shown, at, True, tuple(spans[each] for each in targets))


def _trimmed(start: int, written: str) -> tuple[int, int]:
    begin = start + len(written) - len(written.lstrip())
    return begin, begin + len(written.strip())


def _bare(found: re.Match[str], group: str | int) -> tuple[int, int]:
    """Where a destination stands, without its angle brackets."""
    start, end = found.span(group)
    return (start + 1, end - 1) if found[group].startswith("<") and found[group].endswith(">") else (start, end)


def wiki_link(inside: str) -> tuple[str, str]:
    """Target and text of `[[target]]` or `[[text|target]]`, the order Otterwiki, Gollum and Dendron use."""
    left, bar, right = inside.partition("|")
    if bar:
        left = left.removesuffix("\\")  # in a table the bar is escaped
    left, right = left.strip(), right.strip()
    if not bar or not right:
        return left, left
    if left.startswith("/") and not right.startswith("/"):
        return left, right
    return right, left or right


def plain_inline(text: str) -> str:
    """Inline Markdown without its markup, on one line."""
    return " ".join(strip_inline(text).split())


def strip_inline(text: str) -> str:
    """Inline Markdown without its markup; links leave their text, code spans their code."""
    if not _MARKUP.search(text):
        return text
    if "`" not in text:
        return _strip(text)
    # Code is taken out while the rest is read, so that `[`code`](target)` is a link and `**` in code stays.
    parts: list[str] = []
    codes: list[str] = []
    at = 0
    for start, end, fence in code_spans(text):
        parts += text[at:start].replace(_HELD, " "), f"{_HELD}{len(codes)}{_HELD}"
        codes.append(text[start + fence : end - fence])
        at = end
    stripped = _strip("".join((*parts, text[at:].replace(_HELD, " "))))
    return _CODE.sub(lambda found: codes[int(found[1])], stripped)


def without_comments(text: str) -> str:
    """The text without HTML comments; one that is never closed stays."""
    parts: list[str] = []
    at = 0
    while True:
        start = text.find("<!--", at)
        end = text.find("-->", start + 4) if start >= 0 else -1
        if end < 0:
            return "".join((*parts, text[at:])) if parts else text
        parts += text[at:start], " "
        at = end + 3


def _strip(text: str) -> str:
    if "[" in text:
        text = WIKI_LINK.sub(lambda found: wiki_link(found[1])[1], text)
        for _ in range(2):
            text = _ESCAPE_OR_LINK.sub(lambda found: found[0] if found[1] is None else found[1], text)
        text = _FOOTNOTE.sub("", _REFERENCE_LINK.sub(r"\1", text))
    if "]" in text:
        text = _HALF_LINK.sub("", text)
    if "<" in text:
        text = _TAG.sub("", without_comments(_ADDRESS.sub(r"\1", text)))
    if "*" in text or "~~" in text:
        text = _STARS.sub("", text)
    if "_" in text:
        text = _UNDERSCORES.sub("", text)
    if "\\" in text:
        text = _ESCAPE.sub(r"\1", text)
    return unescape(text) if "&" in text else text


def destination(written: str) -> str:
    target = written[1:-1] if written.startswith("<") and written.endswith(">") else written
    return unescape(_ESCAPE.sub(r"\1", target)) if "\\" in target or "&" in target else target


def _trim(url: str) -> str:
    """A bare URL without the punctuation of the sentence around it."""
    url = url.rstrip(".,;:!?*_~'\"]}")
    while url.endswith(")") and url.count(")") > url.count("("):
        url = url[:-1].rstrip(".,;:!?")
    return url
