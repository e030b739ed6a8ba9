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

from wikiholt.model import Page
from wikiholt.surfaces.web.cleaning import WIKI_SCHEME, Resolve, clean, depth
from wikiholt.text.inline import WIKI_LINK, wiki_link

MAX_CHARACTERS = 120_000
"""Of a page's text that are rendered: some forty printed pages, and a moment's work whatever they hold."""

_MAX_LINES = 10_000
"""Of those: lines of a character or two take a hundred times as long as a page of sentences."""

_MAX_DEPTH = 200
"""Elements within one another; a cleaner of HTML takes time in their square."""

_MAX_RUN = 20_000
"""Characters of one paragraph; markdown-it takes time in their square where they are brackets."""

_TASK = re.compile(r"\[([ xX])\][ \t]+(?=\S)")


@dataclass(frozen=True, slots=True)
class Rendered:
    """HTML that is safe to show; `cut` says that the page goes on beyond it."""

    html: str
    cut: bool


def render(page: Page, resolve: Resolve) -> Rendered:
    """Render a page; any text gives HTML, and none gives HTML that acts."""
    body, cut = _beginning(page.body)
    anchors = {heading.line - page.body_line: heading.anchor for heading in page.headings}
    surroundings = {"anchors": anchors, "resolve": resolve}
    html = _html(_parser, body, surroundings)
    if html is None or depth(html) > _MAX_DEPTH:
        html = _html(_parser_without_html, body, surroundings)
    if html is None or depth(html) > _MAX_DEPTH:
        html = f"<pre>{escape(body)}</pre>"
    return Rendered(clean(html, frozenset(anchors.values()), resolve), cut)


def _beginning(body: str) -> tuple[str, bool]:
    most = MAX_CHARACTERS
    if body.count("\n", 0, most) > _MAX_LINES:
        most = next(islice(re.finditer("\n", body), _MAX_LINES - 1, None)).end()
    if len(body) <= most:
        return body, False
    end = body.rfind("\n\n", 0, most)
    return body[: end if end > 0 else most], True


def _html(parser: Callable[[], MarkdownIt], body: str, surroundings: Mapping[str, Any]) -> str | None:
    """The HTML of a body, or None where markdown-it gives up on it."""
    try:
        return str(parser().render(body, dict(surroundings)))
    except (RecursionError, IndexError, ValueError, KeyError, AttributeError, TypeError):
        return None


@cache
def _parser() -> MarkdownIt:
    return _made(MarkdownIt("commonmark"))


@cache
def _parser_without_html() -> MarkdownIt:
    return _made(MarkdownIt("commonmark", {"html": False}))


def _made(parser: MarkdownIt) -> MarkdownIt:
    parser.enable(["table", "strikethrough"])
    parser.inline.ruler.before("link", "wiki_link", _wiki_link)
    parser.core.ruler.before("inline", "long_runs", _long_runs)
    parser.core.ruler.push("anchors", _anchors)
    parser.core.ruler.push("tasks", _tasks)
    parser.core.ruler.push("alignment", _alignment)
    parser.add_render_rule("image", _image)
    return parser


def _wiki_link(state: StateInline, silent: bool) -> bool:
    """`[[target]]` and `[[text|target]]`, or the other way round; `![[target]]`, which would embed, is a link too."""
    start = state.pos
    if not state.src.startswith(("[[", "![["), start):
        return False
    found = WIKI_LINK.match(state.src, start, state.posMax)
    target, text = wiki_link(found[1]) if found else ("", "")
    if found is None or not target:
        return False
    if not silent:
        href, text = _aim(target, text, state.env["resolve"])
        state.push("link_open", "a", 1).attrs = {"href": href} if href else {}
        state.push("text", "", 0).content = text
        state.push("link_close", "a", -1)
    state.pos = found.end()
    return True


def _aim(target: str, text: str, resolve: Resolve) -> tuple[str, str]:
    """Where a `[[link]]` leads, if anywhere, and what it says."""
    for aim, said in dict.fromkeys(((target, text), (text, target))):
        path = resolve(aim, True)
        if path is not None:
            fragment = aim.partition("#")[2]
            return WIKI_SCHEME + quote(path) + (f"#{quote(fragment)}" if fragment else ""), said
    return (target if target.startswith(("#", "http://", "https://")) else ""), text


def _long_runs(state: StateCore) -> None:
    """A paragraph that nobody wrote by hand is shown as it is written."""
    for token in state.tokens:
        if token.type == "inline" and len(token.content) > _MAX_RUN:
            token.type, token.content = "html_block", escape(token.content)


def _anchors(state: StateCore) -> None:
    """Give headings the anchors that the index knows them by, told by their lines."""
    known: Mapping[int, str] = state.env.get("anchors", {})
    for token in state.tokens:
        if token.type == "heading_open" and token.map:
            anchor = known.get(token.map[0])
            if anchor:
                token.attrSet("id", anchor)


def _tasks(state: StateCore) -> None:
    """`- [x] done` shows a ticked box, as a character: there is nothing here to click."""
    for at in range(2, len(state.tokens)):
        token = state.tokens[at]
        if token.type != "inline" or state.tokens[at - 2].type != "list_item_open" or not token.children:
            continue
        first = token.children[0]
        found = _TASK.match(first.content) if first.type == "text" else None
        if found:
            first.content = ("☐ " if found[1] == " " else "☑ ") + first.content[found.end() :]
            state.tokens[at - 2].attrSet("class", "task")


def _alignment(state: StateCore) -> None:
    """A column's alignment as a class: a style would be refused by the page's own policy."""
    for token in state.tokens:
        if token.type in {"th_open", "td_open"}:
            style = str(token.attrs.pop("style", ""))
            if style:
                token.attrSet("class", style.removeprefix("text-align:"))


def _image(self: RendererHTML, tokens: list[Token], at: int, options: Any, env: Any) -> str:
    """What a picture shows, in words: no address of it is ever fetched from here."""
    told = self.renderInlineAsText(tokens[at].children, options, env) or "picture without a description"
    return f'<span class="picture">{escape(told)}</span>'
