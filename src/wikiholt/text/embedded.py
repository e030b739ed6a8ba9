"""What the model reads for a chunk: the page's name and headings, then the text without markup."""

from bisect import bisect_left, bisect_right

from wikiholt.model import Chunk, Page
from wikiholt.text.plain import to_plain_text
from wikiholt.text.tokens import TokenSpans, has_at_most

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
