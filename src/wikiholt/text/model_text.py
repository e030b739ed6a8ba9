"""Markdown as plain text: what a reader would see, for snippets and for the model. Fragments are welcome."""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from wikiholt.domain.page import Chunk, Page
from wikiholt.text.inline import remove_comments, strip_inline
from wikiholt.text.segmentation import TokenSpans, has_at_most

_FENCE_LINE = re.compile(r"^[ \t>]*+(`{3,}+|~{3,}+)([^`\n]*+)$", re.MULTILINE)
_RULE_LINE = re.compile(r"^(?=[^\n]*[-=*_|])[-=*_:|+> \t]{2,}$", re.MULTILINE)
_LINE_START = re.compile(
    r"^[ \t]*+(?>(?:>[!|]?+[ \t]*+){0,999})"
    r"(?>(?:(?:[-*+]|\d{1,9}[.)])[ \t]++(?:\[[ xX]\][ \t]++)?){0,999})(?:#{1,6}[ \t]++)?",
    re.MULTILINE,
)
_CLOSING_HASHES = re.compile(r"(?<=[^\s#])[ \t]++#++[ \t]*+$", re.MULTILINE)
_ALERT = re.compile(r"^[ \t]*\[!\w+\]", re.MULTILINE)
_DEFINITION = re.compile(r"^ {0,3}\[(?!\^)[^\[\]\n]++\]:[ \t]*+\S++[^\n]*+$", re.MULTILINE)
_PIPED_LINE = re.compile(r"^[ \t]*\|.*$|^.*\|[ \t]*$|^.* \| .*$", re.MULTILINE)
_BLANK_LINES = re.compile(r"\n[ \t]*(?:\n[ \t]*)+")


def to_plain_text(markdown: str) -> str:
    """The text without markup, line by line; code keeps its characters and loses its fences. May be empty."""
    parts = [part.strip("\n") if code else _strip_prose(part) for code, part in iter_segments(markdown)]
    return "\n".join(part for part in parts if part and not part.isspace())


def iter_segments(markdown: str, *, weighed: bool = False) -> Iterator[tuple[bool, str]]:
    """The parts between fences in order, and whether each is code.

    With `weighed`, whether a fragment begins in code is judged by all its fences, not by the first alone.
    """
    fences = list(_FENCE_LINE.finditer(markdown))
    inside = _is_likely_in_code(markdown, fences) if weighed else _is_start_in_code(markdown, fences)
    fence = fences[0][1] if inside else ""
    at = 0
    for found in fences:
        marker = found[1]
        if fence and not (marker.startswith(fence) and not found[2].strip()):
            continue
        yield bool(fence), markdown[at : found.start()]
        fence = "" if fence else marker
        at = found.end()
    yield bool(fence), markdown[at:]


def _is_likely_in_code(markdown: str, fences: list[re.Match[str]]) -> bool:
    """Whether more fences are where they should be if the fragment begins in a code block than if it does not."""
    if not fences or fences[0][2].strip():
        return False
    return _count_well_placed(markdown, fences, fences[0][1]) > _count_well_placed(markdown, fences, "")


def _count_well_placed(markdown: str, fences: list[re.Match[str]], fence: str) -> int:
    """How many fences look their part: one that begins a block follows a gap or names a language, one that ends it
    is followed by a gap, and none that names a language is inside."""
    fit = 0
    for found in fences:
        if fence:
            if found[2].strip():
                fit -= 2 * found[1].startswith(fence)
            elif found[1].startswith(fence):
                fit += markdown[found.end() : found.end() + 2] in ("\n\n", "\n", "")
                fence = ""
        else:
            before = markdown[: found.start()].rstrip(" \t>")
            fit += bool(found[2].strip()) or before[-2:] in ("\n\n", "\n", "")
            fence = found[1]
    return fit


def _is_start_in_code(markdown: str, fences: list[re.Match[str]]) -> bool:
    """Whether a fragment was cut out of the middle of a code block: its first fence has no partner and ends one.

    A fence that ends a block names no language and is followed by a blank line or by nothing.
    """
    if len(fences) % 2 == 0 or fences[0][2].strip():
        return False
    rest = markdown[fences[0].end() :]
    return not rest.strip() or rest.startswith("\n\n")


def _strip_prose(text: str) -> str:
    text = remove_comments(text) if "<!--" in text else text
    text = _RULE_LINE.sub("", text)
    if "]:" in text:
        text = _DEFINITION.sub("", text)
    text = _LINE_START.sub("", text)
    if "#" in text:
        text = _CLOSING_HASHES.sub("", text)
    if "[!" in text:
        text = _ALERT.sub("", text)
    text = strip_inline(text)
    if "|" in text:
        text = _PIPED_LINE.sub(lambda line: " ".join(line[0].replace("|", " ").split()), text)
    return _BLANK_LINES.sub("\n", text).strip()


# What the model reads for a chunk: the page's name and headings, then the text without markup.


_HEADING_SEPARATOR = " > "


def get_content_name(page: Page) -> str:
    """The page's name if the page's own content gives it, else nothing."""
    return page.name if page.name_in_content else ""


def build_embedding_text(page: Page, chunk: Chunk, token_spans: TokenSpans, max_tokens: int) -> str:
    """The text to embed for a chunk, of at most `max_tokens` tokens by the model's own count.

    It is a pure function of the blob: a name made from the file's name is left out, so that renaming a page changes no
    embedded text and embeds nothing. Headings the chunk itself begins with are not repeated. Where there is no room,
    the name and headings go first; the text is cut only if the chunk was made larger than the window, which
    `chunk(target_tokens ≤ max_tokens)` does not do.
    """
    text = to_plain_text(chunk.text) or chunk.text.strip()
    parts = _build_parts(page, chunk)
    while parts:
        whole = f"{_HEADING_SEPARATOR.join(parts)}\n{text}"
        if has_at_most(whole, max_tokens, token_spans):
            return whole
        # name and innermost heading say the most
        parts.pop(1 if len(parts) > 2 else 0)
    return _truncate_tokens(text, token_spans, max_tokens)


def _build_parts(page: Page, chunk: Chunk) -> list[str]:
    first = bisect_left(page.headings, chunk.first_line, key=lambda heading: heading.line)
    last = bisect_right(page.headings, chunk.last_line, key=lambda heading: heading.line)
    seen = {heading.text.casefold() for heading in page.headings[first:last]}
    parts: list[str] = []
    for part in (get_content_name(page), *chunk.heading_path):
        if part and part.casefold() not in seen:
            seen.add(part.casefold())
            parts.append(part)
    return parts


def _truncate_tokens(text: str, token_spans: TokenSpans, max_tokens: int) -> str:
    while text and not has_at_most(text, max_tokens, token_spans):
        spans = token_spans(text)
        # a cut inside a word may make more tokens of it than before, so the end moves on until the count holds
        text = text[: min(spans[max(max_tokens, 0)][0], len(text) - 1)]
    return text
