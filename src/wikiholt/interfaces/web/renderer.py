"""A page's Markdown as HTML that may be shown in the reader's browser: rendered, then cleaned of all that could act.

Headings carry the anchors hits point to, links between pages lead to their preview, pictures are named and not loaded.
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
from wikiholt.text.inline import WIKI_LINK_PATTERN, parse_wiki_link

MAX_PAGE_CHARS = 120_000
"""Of a page's text that are rendered: some forty printed pages, and a moment's work whatever they hold."""

_MAX_LINES = 10_000
"""Of those: lines of a character or two take a hundred times as long as a page of sentences."""

_MAX_DEPTH = 200
"""Elements within one another; a cleaner of HTML takes time in their square."""

_MAX_RUN_CHARS = 20_000
"""Characters of one paragraph; markdown-it takes time in their square where they are brackets."""

_TASK_PATTERN = re.compile(r"\[([ xX])\][ \t]+(?=\S)")


@dataclass(frozen=True, slots=True)
class RenderedPage:
    """HTML that is safe to show; `cut` says that the page goes on beyond it."""

    html: str
    cut: bool


def render_markdown(page: Page, resolve: LinkResolver) -> RenderedPage:
    """Render a page; any text gives HTML, and none gives HTML that acts."""
    body, cut = _truncate_body(page.body)
    anchors = {heading.line - page.body_line: heading.anchor for heading in page.headings}
    surroundings = {"anchors": anchors, "resolve": resolve}
    html = _render_html(_get_parser, body, surroundings)
    if html is None or measure_depth(html) > _MAX_DEPTH:
        html = _render_html(_get_parser_without_html, body, surroundings)
    if html is None or measure_depth(html) > _MAX_DEPTH:
        html = f"<pre>{escape(body)}</pre>"
    return RenderedPage(sanitize_html(html, frozenset(anchors.values()), resolve), cut)


def _truncate_body(body: str) -> tuple[str, bool]:
    most = MAX_PAGE_CHARS
    if body.count("\n", 0, most) > _MAX_LINES:
        most = next(islice(re.finditer("\n", body), _MAX_LINES - 1, None)).end()
    if len(body) <= most:
        return body, False
    end = body.rfind("\n\n", 0, most)
    return body[: end if end > 0 else most], True


def _render_html(parser: Callable[[], MarkdownIt], body: str, surroundings: Mapping[str, Any]) -> str | None:
    """The HTML of a body, or None where markdown-it gives up on it."""
    try:
        return str(parser().render(body, dict(surroundings)))
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
    parser.core.ruler.before("inline", "long_runs", _escape_long_runs)
    parser.core.ruler.push("anchors", _set_anchors)
    parser.core.ruler.push("tasks", _render_tasks)
    parser.core.ruler.push("alignment", _set_alignment)
    parser.add_render_rule("image", _render_image)
    return parser


def _parse_wiki_link(state: StateInline, silent: bool) -> bool:
    """`[[target]]` and `[[text|target]]`, or the other way round; `![[target]]`, which would embed, is a link too."""
    start = state.pos
    if not state.src.startswith(("[[", "![["), start):
        return False
    found = WIKI_LINK_PATTERN.match(state.src, start, state.posMax)
    target, text = parse_wiki_link(found[1]) if found else ("", "")
    if found is None or not target:
        return False
    if not silent:
        href, text = _resolve_wiki_link(target, text, state.env["resolve"])
        state.push("link_open", "a", 1).attrs = {"href": href} if href else {}
        state.push("text", "", 0).content = text
        state.push("link_close", "a", -1)
    state.pos = found.end()
    return True


def _resolve_wiki_link(target: str, text: str, resolve: LinkResolver) -> tuple[str, str]:
    """Where a `[[link]]` leads, if anywhere, and what it says."""
    for aim, said in dict.fromkeys(((target, text), (text, target))):
        path = resolve(aim, True)
        if path is not None:
            fragment = aim.partition("#")[2]
            return WIKI_SCHEME + quote(path) + (f"#{quote(fragment)}" if fragment else ""), said
    return (target if target.startswith(("#", "http://", "https://")) else ""), text


def _escape_long_runs(state: StateCore) -> None:
    """A paragraph that nobody wrote by hand is shown as it is written."""
    for token in state.tokens:
        if token.type == "inline" and len(token.content) > _MAX_RUN_CHARS:
            token.type, token.content = "html_block", escape(token.content)


def _set_anchors(state: StateCore) -> None:
    """Give headings the anchors that the index knows them by, told by their lines."""
    known: Mapping[int, str] = state.env.get("anchors", {})
    for token in state.tokens:
        if token.type == "heading_open" and token.map:
            anchor = known.get(token.map[0])
            if anchor:
                token.attrSet("id", anchor)


def _render_tasks(state: StateCore) -> None:
    """`- [x] done` shows a ticked box, as a character: there is nothing here to click."""
    for at in range(2, len(state.tokens)):
        token = state.tokens[at]
        if token.type != "inline" or state.tokens[at - 2].type != "list_item_open" or not token.children:
            continue
        first = token.children[0]
        found = _TASK_PATTERN.match(first.content) if first.type == "text" else None
        if found:
            first.content = ("☐ " if found[1] == " " else "☑ ") + first.content[found.end() :]
            state.tokens[at - 2].attrSet("class", "task")


def _set_alignment(state: StateCore) -> None:
    """A column's alignment as a class: a style would be refused by the page's own policy."""
    for token in state.tokens:
        if token.type in {"th_open", "td_open"}:
            style = str(token.attrs.pop("style", ""))
            if style:
                token.attrSet("class", style.removeprefix("text-align:"))


def _render_image(self: RendererHTML, tokens: list[Token], at: int, options: Any, env: Any) -> str:
    """What a picture shows, in words: no address of it is ever fetched from here."""
    told = self.renderInlineAsText(tokens[at].children, options, env) or "picture without a description"
    return f'<span class="picture">{escape(told)}</span>'
