"""Renders a page's Markdown as sanitized HTML for the browser.

Headings get the anchors that search hits use, links between pages lead to their preview, and images are replaced by
their description.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from html import escape
from itertools import islice
from typing import Any
from urllib.parse import quote

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.rules_core import StateCore
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token

from wikiholt.domain.page import Page
from wikiholt.interfaces.web.sanitizer import WIKI_SCHEME, LinkResolver, measure_depth, sanitize_html
from wikiholt.text.dialect import GFM, Dialect, LinkOrder
from wikiholt.text.dialect_blocks import convert_to_markdown
from wikiholt.text.dialect_markup import get_link_text
from wikiholt.text.inline import WIKI_LINK_PATTERN, parse_wiki_link
from wikiholt.text.markdown import make_github_slug

MAX_PAGE_CHARS = 120_000
"""Maximum length of the rendered text, about forty printed pages; bounds the work for any content."""

_MAX_LINES = 10_000
"""Maximum number of lines; text with very short lines takes a hundred times as long as prose."""

_MAX_DEPTH = 200
"""Maximum nesting depth of elements; the sanitizer takes quadratic time in the depth."""

_MAX_RUN_CHARS = 20_000
"""Maximum length of a paragraph; markdown-it takes quadratic time for a run of brackets."""

_FOOTNOTE = re.compile(r"\[\^([^\[\]\s]{1,50})\]")
_TASK_PATTERN = re.compile(r"\[([ xX])\][ \t]+(?=\S)")


@dataclass(frozen=True, slots=True)
class RenderedPage:
    """Sanitized HTML; `cut` says that the page was truncated."""

    html: str
    cut: bool


def render_markdown(page: Page, resolve: LinkResolver, dialect: Dialect = GFM) -> RenderedPage:
    """Render a page. Never raises, and the HTML is safe for any input."""
    body, cut = _truncate_body(page.body)
    body = convert_to_markdown(body, dialect)
    anchors = {heading.line - page.body_line: heading.anchor for heading in page.headings}
    environment = {"anchors": anchors, "resolve": resolve, "dialect": dialect}
    html = _render_html(_get_parser, body, environment)
    if html is None or measure_depth(html) > _MAX_DEPTH:
        html = _render_html(_get_parser_without_html, body, environment)
    if html is None or measure_depth(html) > _MAX_DEPTH:
        html = f"<pre>{escape(body)}</pre>"
    return RenderedPage(sanitize_html(html, frozenset(anchors.values()), resolve), cut)


def _truncate_body(body: str) -> tuple[str, bool]:
    limit = MAX_PAGE_CHARS
    if body.count("\n", 0, limit) > _MAX_LINES:
        limit = next(islice(re.finditer("\n", body), _MAX_LINES - 1, None)).end()
    if len(body) <= limit:
        return body, False
    end = body.rfind("\n\n", 0, limit)
    return body[: end if end > 0 else limit], True


def _render_html(parser: Callable[[], MarkdownIt], body: str, environment: Mapping[str, Any]) -> str | None:
    """Return the HTML of a body, or None if markdown-it fails on it."""
    try:
        return str(parser().render(body, dict(environment)))
    except (RecursionError, IndexError, ValueError, KeyError, AttributeError, TypeError):
        return None


@cache
def _get_parser() -> MarkdownIt:
    return _configure_parser(MarkdownIt("commonmark"))


@cache
def _get_parser_without_html() -> MarkdownIt:
    return _configure_parser(MarkdownIt("commonmark", {"html": False}))


def _configure_parser(parser: MarkdownIt) -> MarkdownIt:
    parser.enable(["table", "strikethrough"])
    parser.inline.ruler.before("link", "wiki_link", _parse_wiki_link)
    parser.inline.ruler.before("link", "footnote", _parse_footnote)
    parser.core.ruler.before("inline", "long_runs", _escape_long_runs)
    parser.core.ruler.push("anchors", _set_anchors)
    parser.core.ruler.push("tasks", _render_tasks)
    parser.core.ruler.push("alignment", _set_alignment)
    parser.add_render_rule("image", _render_image)
    return parser


def _parse_wiki_link(state: StateInline, silent: bool) -> bool:
    """Parse `[[target]]` and `[[a|b]]` in the order of the dialect; `![[target]]`, an embed, becomes a link too."""
    start = state.pos
    if not state.src.startswith(("[[", "![["), start):
        return False
    match = WIKI_LINK_PATTERN.match(state.src, start, state.posMax)
    dialect: Dialect = state.env["dialect"]
    target, text = parse_wiki_link(match[1], dialect.link_order) if match else ("", "")
    if match is None or not target:
        return False
    if not silent:
        if dialect.has_note_markup:
            text = get_link_text(match, dialect) or target
        href, text = _resolve_wiki_link(target, text, state.env["resolve"], dialect)
        state.push("link_open", "a", 1).attrs = {"href": href} if href else {}
        state.push("text", "", 0).content = text
        state.push("link_close", "a", -1)
    state.pos = match.end()
    return True


def _parse_footnote(state: StateInline, silent: bool) -> bool:
    """Parse the number of a footnote, `[^1]`; its text stays where it is."""
    match = _FOOTNOTE.match(state.src, state.pos, state.posMax) if state.src.startswith("[^", state.pos) else None
    if match is None:
        return False
    if not silent:
        state.push("sup_open", "sup", 1)
        state.push("text", "", 0).content = match[1]
        state.push("sup_close", "sup", -1)
    state.pos = match.end()
    return True


def _resolve_wiki_link(target: str, text: str, resolve: LinkResolver, dialect: Dialect) -> tuple[str, str]:
    """Return the URL of a `[[link]]`, empty if it has none, and its text."""
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


def _render_tasks(state: StateCore) -> None:
    """Show the checkbox of `- [x] done` as a character."""
    for index in range(2, len(state.tokens)):
        token = state.tokens[index]
        if token.type != "inline" or state.tokens[index - 2].type != "list_item_open" or not token.children:
            continue
        first = token.children[0]
        match = _TASK_PATTERN.match(first.content) if first.type == "text" else None
        if match:
            first.content = ("☐ " if match[1] == " " else "☑ ") + first.content[match.end() :]
            state.tokens[index - 2].attrSet("class", "task")


def _set_alignment(state: StateCore) -> None:
    """Turn the alignment of a column into a class: the Content-Security-Policy refuses inline styles."""
    for token in state.tokens:
        if token.type in {"th_open", "td_open"}:
            style = str(token.attrs.pop("style", ""))
            if style:
                token.attrSet("class", style.removeprefix("text-align:"))


def _render_image(self: RendererHTML, tokens: list[Token], index: int, options: Any, env: Any) -> str:
    """Render the description of an image; the browser never fetches the image."""
    description = self.renderInlineAsText(tokens[index].children, options, env) or "image without a description"
    return f'<span class="picture">{escape(description)}</span>'
