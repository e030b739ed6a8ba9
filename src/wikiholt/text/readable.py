"""A passage as a reader sees it: running text without any markup, and where its sentences are. Fragments are welcome.

What the model reads is made elsewhere (`plain_text`): there a mark more or less does no harm, and every change of it
would mean that wikis have to be embedded anew. Here nothing may be left that a page would not show.
"""

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

from wikiholt.model import Span
from wikiholt.text.inline import iter_code_spans, strip_inline, parse_wiki_link
from wikiholt.text.plain import iter_segments
from wikiholt.text.sentences import CJK_RANGES, find_sentence_starts
from wikiholt.text.templating import replace_formulas, remove_hidden, replace_macros

_MIN_SENTENCE_CHARS = 20
"""Characters below which a sentence is read with its neighbour: "e.g.", "Note:" and "}" say nothing alone."""
_MIN_UNSPACED_SENTENCE_CHARS = 6
_MIN_CODE_CHARS = 60
"""Characters of code that are read as one sentence, at least: a line is often a bracket."""

_FIRST_PRIVATE_CODE_POINT = 0xF0000
"""Code spans stand aside as characters of a private plane while markup is taken away."""
_MAX_HELD_SPANS = 0xFFFD
_UNSPACED_CHARACTER = re.compile(rf"[{CJK_RANGES}]")
_PRIVATE_CHARACTER = re.compile("[\U000f0000-\U000ffffd]")
_RULE = re.compile(r"(?=[^\n]*[-=*_|])[-=*_:|+> \t]{2,}")
_SETEXT = re.compile(r"[ \t>]*+(?:=++|-++)[ \t]*+")
_LINE_START = re.compile(
    r"[ \t]*+(?P<quote>(?>(?:>[!|]?+[ \t]*+){0,999}))"
    r"(?P<item>(?>(?:(?:[-*+:]|\d{1,9}[.)])[ \t]++(?:\[[ xX/-]\][ \t]++)?){0,999}))"
    r"(?P<heading>(?:#{1,6}(?:[ \t]++|$))?)"
)
_CLOSING_HASHES = re.compile(r"[ \t]++#++[ \t]*+$")
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
_WIKI_LINK = re.compile(r"!?\[\[([^\[\]\n]{1,500})\]\]")
_BLOCK_TAG = re.compile(
    r"</?(?:br|p|li|td|th|tr|div|ul|ol|h[1-6]|table|dt|dd|summary|details|hr|option|pre)\b[^<>]*+>", re.IGNORECASE
)
_PARTIAL_TAG = re.compile(
    r"\A(?=[^<>\n]{0,300}?=\")[^<>\n]{0,300}+>|<(?:/|[a-zA-Z][\w-]*\s[\w-]++=|!--)[^<>]*+\Z|<(?=[A-Z]\w*\s)"
)
_TARGET = r"(?>(?:[^()\s]++|\([^()\s]*+\)){0,9999})(?:\)|\Z)"
_PARTIAL_LINK = re.compile(
    rf"!?\[([^\[\]]*+)\]\({_TARGET}|!?\[([^\[\]]*+)\]\((?:\w++:|[./#])[^()\n]{{0,500}}+\)|\]\({_TARGET}|\[\[|\]\]"
)
_REFERENCE = re.compile(r"!?\[([^\[\]]++)\]\[[^\[\]]*+\]?|\A([^\[\]]*+)\]\[[^\[\]]*+\]")
_HIGHLIGHT = re.compile(r"(?<![=\w])==(?=[^\s=])([^=\n]++)==(?![=\w])")
_LONE_FENCE = re.compile(r"`{3,}+[\w-]*+|~{3,}+")


@dataclass(frozen=True, slots=True)
class DisplayText:
    """Text on one line, and its sentences: whole ones, items of lists, rows of tables, a few lines of code."""

    text: str
    sentences: tuple[Span, ...]


def to_display_text(markdown: str) -> DisplayText:
    """The passage as a reader sees it; headings are in the text and are sentences only where there is nothing else."""
    parts: list[str] = []
    spans: list[Span] = []
    headings: list[Span] = []
    at = 0
    for heading, written in _iter_blocks(markdown):
        block = " ".join(written.split())
        if not block:
            continue
        block = block if block.isascii() else unicodedata.normalize("NFC", block)
        target = headings if heading else spans
        for start, end in _split_sentences(block):
            target.append(Span(at + start, at + start + len(block[start:end].rstrip())))
        parts.append(block)
        at += len(block) + 1
    return DisplayText(" ".join(parts), tuple(spans or headings))


def _split_sentences(block: str) -> Iterator[tuple[int, int]]:
    """Sentences of a block, the short ones with the next, or the last with the one before."""
    least = _MIN_SENTENCE_CHARS if block.isascii() or not _UNSPACED_CHARACTER.search(block) else _MIN_UNSPACED_SENTENCE_CHARS
    cuts = [0]
    for start in find_sentence_starts(block, 0, len(block), by_line=False):
        if start - cuts[-1] >= least:
            cuts.append(start)
    if len(cuts) > 1 and len(block) - cuts[-1] < least:
        cuts.pop()
    yield from zip(cuts, [*cuts[1:], len(block)], strict=True)


def _iter_blocks(markdown: str) -> Iterator[tuple[bool, str]]:
    """Each paragraph, item, row, heading and few lines of code, and whether it is a heading."""
    for code, text in iter_segments(markdown, weighed=True):
        if code:
            yield from ((False, block) for block in _iter_code_blocks(text))
        else:
            yield from _iter_prose_blocks(text)


def _iter_code_blocks(text: str) -> Iterator[str]:
    gathered = ""
    for line in text.split("\n"):
        if _LONE_FENCE.fullmatch(line.strip()):
            continue
        gathered = f"{gathered} {line.strip()}".strip()
        if len(gathered) >= _MIN_CODE_CHARS:
            yield gathered
            gathered = ""
    if gathered:
        yield gathered


def _iter_prose_blocks(text: str) -> Iterator[tuple[bool, str]]:
    held: list[str] = []
    text = replace_formulas(_hold_code_spans(remove_hidden(text), held))
    for heading, block in _iter_markdown_blocks(replace_macros(_replace_wiki_links(text))):
        shown = _strip_block(block)
        yield heading, _PRIVATE_CHARACTER.sub(lambda found: held[ord(found[0]) - _FIRST_PRIVATE_CODE_POINT], shown) if held else shown


def _hold_code_spans(text: str, held_spans: list[str]) -> str:
    """The text with each code span as one character that stands for it."""
    text = text if text.isascii() else _PRIVATE_CHARACTER.sub(" ", text)
    if "`" not in text:
        return text
    parts: list[str] = []
    at = 0
    for start, end, fence in iter_code_spans(text):
        if len(held_spans) >= _MAX_HELD_SPANS or "\n\n" in text[start:end]:
            continue
        parts += text[at:start], chr(_FIRST_PRIVATE_CODE_POINT + len(held_spans))
        held_spans.append(text[start + fence : end - fence])
        at = end
    return "".join([*parts, text[at:]])


def _replace_wiki_links(text: str) -> str:
    """The text with wiki links as their words, and without embedded pictures."""
    if "[[" not in text:
        return text
    return _WIKI_LINK.sub(lambda found: _get_wiki_link_text(found[1]), _EMBED.sub("", text))


def _get_wiki_link_text(inside: str) -> str:
    if inside.strip("_").lower() == "toc":
        return ""
    target, words = parse_wiki_link(inside)
    if words != target or "#" not in words:
        return words
    page, _, place = words.partition("#")
    return page or place.partition(":#")[0].lstrip("^*")


def _iter_markdown_blocks(text: str) -> Iterator[tuple[bool, str]]:
    gathered: list[str] = []
    for line in text.split("\n"):
        bare = line.strip()
        if not bare or _RULE.fullmatch(line):
            yield bool(_SETEXT.fullmatch(line)) and len(gathered) == 1, " ".join(gathered)
            gathered = []
            continue
        if _SKIPPED.fullmatch(line):
            continue
        start = _LINE_START.match(line)
        heading, item = bool(start and start["heading"]), bool(start and start["item"])
        words = _clean_line(line[start.end() if start else 0 :])
        row = "|" in words and bool(_ROW.match(words))
        if heading or item or row:
            yield False, " ".join(gathered)
            gathered = []
        if heading or row:
            yield heading, _CLOSING_HASHES.sub("", words) if heading else " ".join(_CELLS.split(words))
        else:
            gathered.append(words.strip())
    yield False, " ".join(gathered)


def _clean_line(words: str) -> str:
    """What a line says, without what only sets it apart."""
    if words.startswith(("[!", ":::")):
        words = _ALERT.sub("", _CONTAINER.sub("", words, 1), 1)
    return _LINE_END.sub("", words) if "^" in words or words.endswith("}") else words


def _strip_block(block: str) -> str:
    """A block's words without inline markup, also without halves of it that a fragment is left with."""
    if "<" in block or ">" in block:
        block = _BLOCK_TAG.sub(" ", block)
    text = strip_inline(block)
    if "<" in text or ">" in text:
        text = _PARTIAL_TAG.sub("", text) if "<" in block or '="' in text else text
    if "[" in text or "](" in text:
        text = _REFERENCE.sub(
            lambda found: found[1] or found[2] or "", _PARTIAL_LINK.sub(lambda found: found[1] or found[2] or "", text)
        )
    if "==" in text:
        text = _HIGHLIGHT.sub(r"\1", text)
    return _LONE_FENCE.sub("", text) if "```" in text or "~~~" in text else text
