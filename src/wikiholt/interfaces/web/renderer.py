"""Renders a page's Markdown as sanitized HTML for the browser, marks the words of a query in it, and compares versions.

Headings get the anchors that search hits use, links between pages lead to their preview, and images are files of the
wiki or are replaced by their description.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from html import escape, unescape
from itertools import islice
from typing import Any
from urllib.parse import quote

from markdown_it import MarkdownIt
from markdown_it.rules_core import StateCore
from markdown_it.rules_inline import StateInline

from wikiholt.domain.page import Page
from wikiholt.interfaces.web.markdown_rules import add_rules, format_callout
from wikiholt.interfaces.web.sanitizer import WIKI_SCHEME, LinkResolver, measure_depth, sanitize_html
from wikiholt.text.comparison import BoundedMatcher, ComparisonTooLong
from wikiholt.text.dialect import GFM, Dialect, LinkOrder
from wikiholt.text.dialect_blocks import convert_to_markdown
from wikiholt.text.dialect_markup import get_link_text
from wikiholt.text.inline import WIKI_LINK_PATTERN, parse_wiki_link
from wikiholt.text.keyword_query import parse_query
from wikiholt.text.markdown import make_github_slug
from wikiholt.text.snippets import QueryMatcher

MAX_PAGE_CHARS = 120_000
"""Maximum length of the rendered text, about forty printed pages; bounds the work for any content."""

_MAX_LINES = 10_000
"""Maximum number of lines; text with very short lines takes a hundred times as long as prose."""

_MAX_DEPTH = 200
"""Maximum nesting depth of elements; the sanitizer takes quadratic time in the depth."""

_MAX_RUN_CHARS = 20_000
"""Maximum length of a paragraph; markdown-it takes quadratic time for a run of brackets."""

_IMAGE_EXTENSION = re.compile(r"\.(?:png|jpe?g|gif|svg|webp|avif|bmp)\Z", re.IGNORECASE)
_IMAGE_WIDTH = re.compile(r"(\d{1,4})(?:x\d{1,4})?")


@dataclass(frozen=True, slots=True)
class RenderedPage:
    """Sanitized HTML; `cut` says that the page was truncated."""

    html: str
    cut: bool


def render_markdown(page: Page, resolve: LinkResolver, dialect: Dialect = GFM) -> RenderedPage:
    """Render a page. Never raises, and the HTML is safe for any input."""
    body, cut = _truncate_body(page.body)
    body = convert_to_markdown(body, dialect, format_callout)
    anchors = {heading.line - page.body_line: heading.anchor for heading in page.headings}
    footnote_ids: set[str] = set()
    environment = {"anchors": anchors, "resolve": resolve, "dialect": dialect, "footnote_ids": footnote_ids}
    html = _render_html(body, environment, html=True) or _render_html(body, environment, html=False)
    if html is None:
        html = f"<pre>{escape(body)}</pre>"
    ids = footnote_ids.union(anchors.values())
    return RenderedPage(sanitize_html(html, ids, resolve, page.file), cut)


def _truncate_body(body: str) -> tuple[str, bool]:
    limit = MAX_PAGE_CHARS
    if body.count("\n", 0, limit) > _MAX_LINES:
        limit = next(islice(re.finditer("\n", body), _MAX_LINES - 1, None)).end()
    if len(body) <= limit:
        return body, False
    end = body.rfind("\n\n", 0, limit)
    return body[: end if end > 0 else limit], True


def _render_html(body: str, environment: Mapping[str, Any], *, html: bool) -> str | None:
    """The HTML of a body; None if markdown-it fails on it, or if it is nested too deeply."""
    try:
        rendered = str(_get_parser(html=html).render(body, dict(environment)))
    except (RecursionError, IndexError, ValueError, KeyError, AttributeError, TypeError):
        return None
    return rendered if measure_depth(rendered) <= _MAX_DEPTH else None


@cache
def _get_parser(*, html: bool) -> MarkdownIt:
    """The parser, which keeps or escapes the HTML in pages."""
    parser = MarkdownIt("commonmark", {"html": html})
    parser.inline.ruler.before("link", "wiki_link", _parse_wiki_link)
    parser.core.ruler.before("inline", "long_runs", _escape_long_runs)
    parser.core.ruler.push("anchors", _set_anchors)
    add_rules(parser)
    return parser


def _parse_wiki_link(state: StateInline, silent: bool) -> bool:
    """Parse `[[target]]` and `[[a|b]]` in the order of the dialect. An embed, `![[target]]`, is an image or a link."""
    start = state.pos
    if not state.src.startswith(("[[", "![["), start):
        return False
    match = WIKI_LINK_PATTERN.match(state.src, start, state.posMax)
    dialect: Dialect = state.env["dialect"]
    target, text = parse_wiki_link(match[1], dialect.link_order) if match else ("", "")
    if match is None or not target:
        return False
    if not silent and match[0].startswith("!") and (image := _find_image(target, text)):
        state.push("html_inline", "", 0).content = _render_embedded_image(*image)
    elif not silent:
        if dialect.has_note_markup:
            text = get_link_text(match, dialect) or target
        href, text = _resolve_wiki_link(target, text, state.env["resolve"], dialect)
        state.push("link_open", "a", 1).attrs = {"href": href} if href else {}
        state.push("text", "", 0).content = text
        state.push("link_close", "a", -1)
    state.pos = match.end()
    return True


def _find_image(target: str, text: str) -> tuple[str, str] | None:
    """The target and the text of an embedded image, whose order may be unknown; None for another embed."""
    pairs = ((target, text), (text, target))
    return next((pair for pair in pairs if _IMAGE_EXTENSION.search(pair[0])), None)


def _render_embedded_image(target: str, text: str) -> str:
    """Render `![[image.png]]` or `![[image.png|300]]`: a path from the root of the wiki, and a width in pixels."""
    width = _IMAGE_WIDTH.fullmatch(text)
    name = target.rpartition("/")[2] if width or text == target else text
    size = f' width="{width[1]}"' if width else ""
    return f'<img src="/{escape(quote(target.lstrip("/")))}" alt="{escape(name)}"{size}>'


def _resolve_wiki_link(target: str, text: str, resolve: LinkResolver, dialect: Dialect) -> tuple[str, str]:
    """The URL of a `[[link]]`, empty if it has none, and its text."""
    other = (text, target) if dialect.link_order is LinkOrder.EITHER else (target, text)
    for candidate, label in dict.fromkeys(((target, text), other)):
        path = resolve(candidate, True)
        if path is not None:
            fragment = candidate.partition("#")[2]
            if dialect.has_note_markup:
                fragment = "" if fragment.startswith("^") else make_github_slug(fragment.rpartition("#")[2])
            return WIKI_SCHEME + quote(path) + (f"#{quote(fragment)}" if fragment else ""), label
    return (target if target.startswith(("#", "http://", "https://")) else ""), text


def _escape_long_runs(state: StateCore) -> None:
    """Show a very long paragraph as plain text."""
    for token in state.tokens:
        if token.type == "inline" and len(token.content) > _MAX_RUN_CHARS:
            token.type, token.content = "html_block", escape(token.content)


def _set_anchors(state: StateCore) -> None:
    """Set the anchors of the index on headings, by line number."""
    anchors: Mapping[int, str] = state.env.get("anchors", {})
    for token in state.tokens:
        if token.type == "heading_open" and token.map:
            anchor = anchors.get(token.map[0])
            if anchor:
                token.attrSet("id", anchor)


# Words of a query in rendered HTML


_MAX_MARKS = 500
_TEXT_PATTERN = re.compile(r"""(<(?>(?:[^<>"']++|"[^"]*+"|'[^']*+'){0,999})>)|([^<]++)""")
"""A tag, whose attributes may contain angle brackets, or text."""


def highlight_words(html: str, query: str, language: str) -> str:
    """Sanitized HTML with the words of the query in `<mark>`. Function words of the language are not marked."""
    # The query is complete: its last word is no prefix of longer words.
    words = replace(parse_query(query, language), prefix="")
    if not words:
        return html
    matcher = QueryMatcher(words, language)
    parts: list[str] = []
    count = 0
    in_formula = False
    for tag, text in _TEXT_PATTERN.findall(html):
        in_formula = tag.startswith("<math") or (in_formula and tag != "</math>")
        if tag or in_formula or count >= _MAX_MARKS or not text.strip():
            parts.append(tag or text)
            continue
        plain = unescape(text)
        position = 0
        for start, end, _ in matcher.find(plain):
            if start >= position:
                parts += (
                    escape(plain[position:start], quote=False),
                    f"<mark>{escape(plain[start:end], quote=False)}</mark>",
                )
                position, count = end, count + 1
        parts.append(escape(plain[position:], quote=False))
    return "".join(parts)


# Changes between two versions of a page


_MAX_COMPARED_LINES = 3_000
"""Maximum number of lines that are compared."""
_TOO_LONG = '<p class="note">This page is too long to compare its versions here. Use git diff.</p>'
_CONTEXT_LINES = 3


def render_changes(old: str, new: str) -> str:
    """Render removed and added lines with some lines around them."""
    before, after = old.splitlines(), new.splitlines()
    if max(len(before), len(after)) > _MAX_COMPARED_LINES:
        return _TOO_LONG
    try:
        lines = "".join(_render_diff(before, after))
    except ComparisonTooLong:
        return _TOO_LONG
    if not lines:
        return '<p class="hint">The text of the page did not change.</p>'
    return f'<div class="diff" tabindex="0" role="region" aria-label="Changes">{lines}</div>'


def _render_diff(before: Sequence[str], after: Sequence[str]) -> Iterator[str]:
    matcher = BoundedMatcher(before, after)
    for group in matcher.get_grouped_opcodes(_CONTEXT_LINES):
        yield f'<p class="place">From line {group[0][3] + 1}</p>'
        for kind, old_start, old_end, new_start, new_end in group:
            if kind == "equal":
                yield from (f"<div>{escape(line) or '&nbsp;'}</div>" for line in after[new_start:new_end])
                continue
            yield from (f"<del>{escape(line) or '&nbsp;'}</del>" for line in before[old_start:old_end])
            yield from (f"<ins>{escape(line) or '&nbsp;'}</ins>" for line in after[new_start:new_end])
