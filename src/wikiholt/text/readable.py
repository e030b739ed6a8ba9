"""A passage as a reader sees it: running text without any markup, and where its sentences are. Fragments are welcome.

What the model reads is made elsewhere (`plain_text`): there a mark more or less does no harm, and every change of it
would mean that wikis have to be embedded anew. Here nothing may be left that a page would not show.
"""

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

from wikiholt.model import Span
from wikiholt.text.inline import code_spans, strip_inline, wiki_link
from wikiholt.text.plain import segments
from wikiholt.text.sentences import CJK, sentence_starts
from wikiholt.text.templating import without_formulas, without_hidden, without_macros

_SHORT = 20
"""Characters below which a sentence is read with its neighbour: "e.g.", "Note:" and "}" say nothing alone."""
_SHORT_DENSE = 6
_CODE = 60
"""Characters of code that are read as one sentence, at least: a line is often a bracket."""

_HELD = 0xF0000
"""Code spans stand aside as characters of a private plane while markup is taken away."""
_MOST_HELD = 0xFFFD
_DENSE = re.compile(rf"[{CJK}]")
_PRIVATE = re.compile("[\U000f0000-\U000ffffd]")
_RULE = re.compile(r"(?=[^\n]*[-=*_|])[-=*_:|+> \t]{2,}")
_SETEXT = re.compile(r"[ \t>]*+(?:=++|-++)[ \t]*+")
_START = re.compile(
    r"[ \t]*+(?P<quote>(?>(?:>[!|]?+[ \t]*+){0,999}))"
    r"(?P<item>(?>(?:(?:[-*+:]|\d{1,9}[.)])[ \t]++(?:\[[ xX/-]\][ \t]++)?){0,999}))"
    r"(?P<heading>(?:#{1,6}(?:[ \t]++|$))?)"
)
_CLOSING = re.compile(r"[ \t]++#++[ \t]*+$")
_ALERT = re.compile(r"\[!\w++(?:\|[^\[\]]*+)?\][+-]?+[ \t]*+")
_CONTAINER = re.compile(r":{3,}+[ \t]*+(?:\{[^{}]*+\}|[\w-]++)?")
# definitions of links and abbreviations, imports of components, a table of contents, attributes, a fence left alone
_SKIPPED = re.compile(
    r" {0,3}\*?\[(?!\^)[^\[\]\n]++\]:(?:[ \t]++\S.*+|[ \t]*+<?(?:\w++:|[/.#])\S*+.*+)"
    r"|import\s.*\bfrom\s++['\"].*+|import\s++['\"].*+|export\s++(?:const|default|let|function)\b.*+"
    r"|[ \t]*+\[toc\][ \t]*+|[ \t]*+\{:[^{}]*+\}[ \t]*+"
    r"|[ \t>]*+(?:`{3,}+|~{3,}+)[^`\n]*+",
    re.IGNORECASE,
)
_LINE_END = re.compile(r"(?:(?:^|[ \t]++)\^[\w-]++|[ \t]*+\{[#.:](?!\w+\.)[^{}\n]*+\})[ \t]*+$")
_ROW = re.compile(r"[ \t]*+\||.*[^\\]\|[ \t]*+$|.* \| ")
_CELLS = re.compile(r"(?<!\\)\|")
_PICTURES = "png|jpe?g|gif|svg|webp|bmp|pdf|mp[34]|webm|mov|excalidraw"
_EMBED = re.compile(rf"!\[\[[^\[\]\n|]{{1,300}}\.(?:{_PICTURES})(?:[#|][^\[\]\n]*+)?\]\]", re.IGNORECASE)
_WIKI = re.compile(r"!?\[\[([^\[\]\n]{1,500})\]\]")
_APART = re.compile(
    r"</?(?:br|p|li|td|th|tr|div|ul|ol|h[1-6]|table|dt|dd|summary|details|hr|option|pre)\b[^<>]*+>", re.IGNORECASE
)
_REST_OF_TAG = re.compile(
    r"\A(?=[^<>\n]{0,300}?=\")[^<>\n]{0,300}+>|<(?:/|[a-zA-Z][\w-]*\s[\w-]++=|!--)[^<>]*+\Z|<(?=[A-Z]\w*\s)"
)
_TARGET = r"(?>(?:[^()\s]++|\([^()\s]*+\)){0,9999})(?:\)|\Z)"
_REST_OF_LINK = re.compile(
    rf"!?\[([^\[\]]*+)\]\({_TARGET}|!?\[([^\[\]]*+)\]\((?:\w++:|[./#])[^()\n]{{0,500}}+\)|\]\({_TARGET}|\[\[|\]\]"
)
_REFERENCE = re.compile(r"!?\[([^\[\]]++)\]\[[^\[\]]*+\]?|\A([^\[\]]*+)\]\[[^\[\]]*+\]")
_HIGHLIGHT = re.compile(r"(?<![=\w])==(?=[^\s=])([^=\n]++)==(?![=\w])")
_LONE_FENCE = re.compile(r"`{3,}+[\w-]*+|~{3,}+")


@dataclass(frozen=True, slots=True)
class Readable:
    """Text on one line, and its sentences: whole ones, items of lists, rows of tables, a few lines of code."""

    text: str
    sentences: tuple[Span, ...]


def readable(markdown: str) -> Readable:
    """The passage as a reader sees it; headings are in the text and are sentences only where there is nothing else."""
    parts: list[str] = []
    spans: list[Span] = []
    headings: list[Span] = []
    at = 0
    for heading, written in _blocks(markdown):
        block = " ".join(written.split())
        if not block:
            continue
        block = block if block.isascii() else unicodedata.normalize("NFC", block)
        target = headings if heading else spans
        for start, end in _sentences(block):
            target.append(Span(at + start, at + start + len(block[start:end].rstrip())))
        parts.append(block)
        at += len(block) + 1
    return Readable(" ".join(parts), tuple(spans or headings))


def _sentences(block: str) -> Iterator[tuple[int, int]]:
    """Sentences of a block, the short ones with the next, or the last with the one before."""
    least = _SHORT if block.isascii() or not _DENSE.search(block) else _SHORT_DENSE
    cuts = [0]
    for start in sentence_starts(block, 0, len(block), by_line=False):
        if start - cuts[-1] >= least:
            cuts.append(start)
    if len(cuts) > 1 and len(block) - cuts[-1] < least:
        cuts.pop()
    yield from zip(cuts, [*cuts[1:], len(block)], strict=True)


def _blocks(markdown: str) -> Iterator[tuple[bool, str]]:
    """Each paragraph, item, row, heading and few lines of code, and whether it is a heading."""
    for code, text in segments(markdown, weighed=True):
        if code:
            yield from ((False, block) for block in _code(text))
        else:
            yield from _prose(text)


def _code(text: str) -> Iterator[str]:
    gathered = ""
    for line in text.split("\n"):
        if _LONE_FENCE.fullmatch(line.strip()):
            continue
        gathered = f"{gathered} {line.strip()}".strip()
        if len(gathered) >= _CODE:
            yield gathered
            gathered = ""
    if gathered:
        yield gathered


def _prose(text: str) -> Iterator[tuple[bool, str]]:
    held: list[str] = []
    text = without_formulas(_held(without_hidden(text), held))
    for heading, block in _markdown_blocks(without_macros(_named(text))):
        shown = _shown(block)
        yield heading, _PRIVATE.sub(lambda found: held[ord(found[0]) - _HELD], shown) if held else shown


def _held(text: str, held: list[str]) -> str:
    """The text with each code span as one character that stands for it."""
    text = text if text.isascii() else _PRIVATE.sub(" ", text)
    if "`" not in text:
        return text
    parts: list[str] = []
    at = 0
    for start, end, fence in code_spans(text):
        if len(held) >= _MOST_HELD or "\n\n" in text[start:end]:
            continue
        parts += text[at:start], chr(_HELD + len(held))
        held.append(text[start + fence : end - fence])
        at = end
    return "".join([*parts, text[at:]])


def _named(text: str) -> str:
    """The text with wiki links as their words, and without embedded pictures."""
    if "[[" not in text:
        return text
    return _WIKI.sub(lambda found: _wiki_words(found[1]), _EMBED.sub("", text))


def _wiki_words(inside: str) -> str:
    if inside.strip("_").lower() == "toc":
        return ""
    target, words = wiki_link(inside)
    if words != target or "#" not in words:
        return words
    page, _, place = words.partition("#")
    return page or place.partition(":#")[0].lstrip("^*")


def _markdown_blocks(text: str) -> Iterator[tuple[bool, str]]:
    gathered: list[str] = []
    for line in text.split("\n"):
        bare = line.strip()
        if not bare or _RULE.fullmatch(line):
            yield bool(_SETEXT.fullmatch(line)) and len(gathered) == 1, " ".join(gathered)
            gathered = []
            continue
        if _SKIPPED.fullmatch(line):
            continue
        start = _START.match(line)
        heading, item = bool(start and start["heading"]), bool(start and start["item"])
        words = _line(line[start.end() if start else 0 :])
        row = "|" in words and bool(_ROW.match(words))
        if heading or item or row:
            yield False, " ".join(gathered)
            gathered = []
        if heading or row:
            yield heading, _CLOSING.sub("", words) if heading else " ".join(_CELLS.split(words))
        else:
            gathered.append(words.strip())
    yield False, " ".join(gathered)


def _line(words: str) -> str:
    """What a line says, without what only sets it apart."""
    if words.startswith(("[!", ":::")):
        words = _ALERT.sub("", _CONTAINER.sub("", words, 1), 1)
    return _LINE_END.sub("", words) if "^" in words or words.endswith("}") else words


def _shown(block: str) -> str:
    """A block's words without inline markup, also without halves of it that a fragment is left with."""
    if "<" in block or ">" in block:
        block = _APART.sub(" ", block)
    text = strip_inline(block)
    if "<" in text or ">" in text:
        text = _REST_OF_TAG.sub("", text) if "<" in block or '="' in text else text
    if "[" in text or "](" in text:
        text = _REFERENCE.sub(
            lambda found: found[1] or found[2] or "", _REST_OF_LINK.sub(lambda found: found[1] or found[2] or "", text)
        )
    if "==" in text:
        text = _HIGHLIGHT.sub(r"\1", text)
    return _LONE_FENCE.sub("", text) if "```" in text or "~~~" in text else text
