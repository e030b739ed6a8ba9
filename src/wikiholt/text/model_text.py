"""The text that the model embeds for a chunk: page name, headings and plain text. Fragments are allowed.

Any change of the output requires re-embedding all wikis.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from operator import attrgetter

from wikiholt.domain.page import Chunk, Page
from wikiholt.text.dialect import GFM, Dialect
from wikiholt.text.dialect_markup import to_gfm
from wikiholt.text.inline import remove_comments, strip_inline
from wikiholt.text.page_names import is_code
from wikiholt.text.segmentation import TokenSpans, has_at_most

_FENCE_LINE = re.compile(r"^[ \t>]*+(`{3,}+|~{3,}+)([^`\n]*+)$", re.MULTILINE)
_RULE_LINE = re.compile(r"(?=.{2})[:+> \t]*+[-=*_|][-=*_:|+> \t]*+")
_LINE_START = re.compile(
    r"[ \t]*+(?>(?:>[!|]?+[ \t]*+){0,999})"
    r"(?>(?:(?:[-*+]|\d{1,9}[.)])[ \t]++(?:\[[ xX]\][ \t]++)?){0,999})(?:#{1,6}[ \t]++)?"
)
_CLOSING_HASHES = re.compile(r"(?<=[^\s#])[ \t]++#++[ \t]*+$", re.MULTILINE)
_ALERT = re.compile(r"^[ \t]*\[!\w+\]", re.MULTILINE)
_DEFINITION = re.compile(r" {0,3}\[(?!\^)[^\[\]]++\]:[ \t]*+\S++.*+")
_PIPED_LINE = re.compile(r"^[ \t]*\|.*$|^.*\|[ \t]*$|^.* \| .*$", re.MULTILINE)
_BLANK_LINES = re.compile(r"\n[ \t]*(?:\n[ \t]*)+")


def to_plain_text(markdown: str, dialect: Dialect = GFM) -> str:
    """The text without markup, line by line; code keeps its characters but loses its fences. May be empty."""
    parts = [
        part.strip("\n") if is_code else _strip_prose(to_gfm(part, dialect))
        for is_code, part in iter_segments(markdown)
    ]
    return "\n".join(part for part in parts if part and not part.isspace())


def iter_segments(markdown: str, *, use_all_fences: bool = False) -> Iterator[tuple[bool, str]]:
    """The parts between code fences in order, and whether each is code.

    With `use_all_fences`, all fences decide whether a fragment begins in code, not only the first.
    """
    fences = list(_FENCE_LINE.finditer(markdown)) if "```" in markdown or "~~~" in markdown else []
    starts_in_code = _is_likely_in_code(markdown, fences) if use_all_fences else _is_start_in_code(markdown, fences)
    fence = fences[0][1] if starts_in_code else ""
    position = 0
    for match in fences:
        marker = match[1]
        if fence and not (marker.startswith(fence) and not match[2].strip()):
            continue
        yield bool(fence), markdown[position : match.start()]
        fence = "" if fence else marker
        position = match.end()
    yield bool(fence), markdown[position:]


def _is_likely_in_code(markdown: str, fences: list[re.Match[str]]) -> bool:
    """Whether more fences are well placed if the fragment begins inside a code block than if it does not."""
    if not fences or fences[0][2].strip():
        return False
    inside, outside = (_count_well_placed(markdown, fences, fence) for fence in (fences[0][1], ""))
    return inside > outside or (inside == outside and _is_start_in_code(markdown, fences))


def _count_well_placed(markdown: str, fences: list[re.Match[str]], fence: str) -> int:
    """Score how well the fences are placed: an opening fence follows a blank line or names a language, a closing one
    is followed by a blank line, and none that names a language is inside a block."""
    score = 0
    for match in fences:
        if fence:
            if match[2].strip():
                score -= 2 * match[1].startswith(fence)
            elif match[1].startswith(fence):
                score += markdown[match.end() : match.end() + 2] in ("\n\n", "\n", "")
                fence = ""
        else:
            before = markdown[: match.start()].rstrip(" \t>")
            score += bool(match[2].strip()) or before[-2:] in ("\n\n", "\n", "")
            fence = match[1]
    return score


def _is_start_in_code(markdown: str, fences: list[re.Match[str]]) -> bool:
    """Whether a fragment begins inside a code block: its first fence has no partner and closes a block.

    A closing fence names no language and is followed by a blank line or by nothing.
    """
    if len(fences) % 2 == 0 or fences[0][2].strip():
        return False
    rest = markdown[fences[0].end() :]
    return not rest.strip() or rest.startswith("\n\n")


def _strip_prose(text: str) -> str:
    text = remove_comments(text) if "<!--" in text else text
    # Patterns that search for the start of a line would read every character.
    text = "\n".join(map(_strip_line, text.split("\n")))
    if "#" in text:
        text = _CLOSING_HASHES.sub("", text)
    if "[!" in text:
        text = _ALERT.sub("", text)
    text = strip_inline(text)
    if "|" in text:
        text = _PIPED_LINE.sub(lambda line: " ".join(line[0].replace("|", " ").split()), text)
    return _BLANK_LINES.sub("\n", text).strip()


def _strip_line(line: str) -> str:
    """A line without its markers; empty if it is a rule or a link definition."""
    if _RULE_LINE.fullmatch(line) or _DEFINITION.fullmatch(line):
        return ""
    start = _LINE_START.match(line)
    return line[start.end() :] if start else line


# Embedding text.
_HEADING_SEPARATOR = " > "
_get_start = attrgetter("start")
_get_line = attrgetter("line")


def get_content_name(page: Page) -> str:
    """The page's name if it comes from the page's content, the path of source code, else an empty string."""
    if is_code(page.file):  # its folders and its name say what it is about
        return page.path
    return page.name if page.name_in_content else ""


def build_embedding_text(
    page: Page, chunk: Chunk, token_spans: TokenSpans, max_tokens: int, dialect: Dialect = GFM
) -> str:
    """The text to embed for a chunk, at most `max_tokens` tokens by the model's own count.

    A pure function of the blob, except for source code: a name made from the file name is omitted, so renaming a page
    does not re-embed it.
    Headings at the start of the chunk are not repeated. A chunk that begins inside a table gets the table's header row.
    If there is no room, the header row is dropped first, then the name and headings; the text is truncated only if the
    chunk is larger than the window, which `build_chunks(target_tokens ≤ max_tokens)` does not produce.
    """
    text = to_plain_text(chunk.text, dialect) or chunk.text.strip()
    parts = _build_parts(page, chunk)
    header = to_plain_text(_find_table_header(page, chunk), dialect)
    if header:
        prefixed = "\n".join([*([_HEADING_SEPARATOR.join(parts)] if parts else []), header, text])
        if has_at_most(prefixed, max_tokens, token_spans):
            return prefixed
    while parts:
        prefixed = f"{_HEADING_SEPARATOR.join(parts)}\n{text}"
        if has_at_most(prefixed, max_tokens, token_spans):
            return prefixed
        # the name and the innermost heading are the most informative
        parts.pop(1 if len(parts) > 2 else 0)
    return _truncate_tokens(text, token_spans, max_tokens)


def _build_parts(page: Page, chunk: Chunk) -> list[str]:
    first = bisect_left(page.headings, chunk.first_line, key=_get_line)
    last = bisect_right(page.headings, chunk.last_line, key=_get_line)
    seen = {heading.text.casefold() for heading in page.headings[first:last]}
    parts: list[str] = []
    for part in (get_content_name(page), *chunk.heading_path):
        if part and part.casefold() not in seen:
            seen.add(part.casefold())
            parts.append(part)
    return parts


def _find_table_header(page: Page, chunk: Chunk) -> str:
    """The first two lines of the table that the chunk begins inside of; empty if it begins elsewhere."""
    number = bisect_left(page.blocks, chunk.start, key=_get_start) - 1
    if number < 0 or page.blocks[number].kind != "table" or chunk.start >= page.blocks[number].end:
        return ""
    block = page.blocks[number]
    header = "\n".join(page.body[block.start : block.end].split("\n", 2)[:2])
    return header if block.start + len(header) <= chunk.start else ""


def _truncate_tokens(text: str, token_spans: TokenSpans, max_tokens: int) -> str:
    while text and not has_at_most(text, max_tokens, token_spans):
        spans = token_spans(text)
        # A cut inside a word may increase its number of tokens, so repeat until the count fits.
        text = text[: min(spans[max(max_tokens, 0)][0], len(text) - 1)]
    return text
