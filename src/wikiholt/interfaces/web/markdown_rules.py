"""Rules of markdown-it for what wikis add to Markdown: callouts, footnotes, task lists, tables, code and images."""

import re
from html import escape
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.rules_core import StateCore
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token

from wikiholt.interfaces.web.code_colors import color_code

_FOOTNOTE = re.compile(r"\[\^([^\[\]\s]{1,50})\]")
_TASK_PATTERN = re.compile(r"\[([ xX])\][ \t]+(?=\S)")

_CALLOUT_START, _CALLOUT_END = "\ue000", "\ue001"
"""Mark the kind of a callout; such characters have no meaning in text."""
_KINDS = {
    **dict.fromkeys(("tip", "hint", "success", "check", "done", "example"), "tip"),
    **dict.fromkeys(("important", "question", "help", "faq"), "important"),
    **dict.fromkeys(("warning", "attention"), "warning"),
    **dict.fromkeys(("caution", "danger", "error", "failure", "fail", "missing", "bug"), "caution"),
}
CALLOUT_KINDS = frozenset({"note", *_KINDS.values()})
"""Every other kind of callout is shown as a note."""


def add_rules(parser: MarkdownIt) -> None:
    parser.enable(["table", "strikethrough"])
    parser.inline.ruler.before("link", "footnote", _parse_footnote)
    parser.core.ruler.before("inline", "callouts", _mark_callouts)
    parser.core.ruler.push("footnotes", _link_footnotes)
    parser.core.ruler.push("tasks", _render_tasks)
    parser.core.ruler.push("alignment", _set_alignment)
    for name in ("image", "fence", "code_block", "table_open", "table_close"):
        parser.add_render_rule(name, globals()[f"_render_{name}"])


# Callouts: quotes with a kind and a title


def format_callout(kind: str, title: str) -> str:
    """Mark the first line of a callout for `_mark_callouts`."""
    return f"{_CALLOUT_START}{_KINDS.get(kind, 'note')}{_CALLOUT_END}{title}"


def _mark_callouts(state: StateCore) -> None:
    """Set the class of a callout's quote, and make its first line the title, before inline text is parsed."""
    tokens: list[Token] = []
    for token in state.tokens:
        if token.type == "inline" and token.content.startswith(_CALLOUT_START) and len(tokens) >= 2:
            kind, _, rest = token.content[1:].partition(_CALLOUT_END)
            title, _, body = rest.partition("\n")
            is_callout = tokens[-2].type == "blockquote_open" and kind in CALLOUT_KINDS
            token.content = body if is_callout and body else rest
            if is_callout:
                tokens[-2].attrSet("class", f"callout {kind}")
                if body:
                    tokens[-1:-1] = _make_title(title, token.level)
                else:
                    tokens[-1].attrSet("class", "callout-title")
        tokens.append(token)
    state.tokens[:] = tokens


def _make_title(title: str, level: int) -> list[Token]:
    opening = Token("paragraph_open", "p", 1, attrs={"class": "callout-title"}, block=True, level=level - 1)
    inline = Token("inline", "", 0, content=title, children=[], level=level, block=True)
    return [opening, inline, Token("paragraph_close", "p", -1, block=True, level=level - 1)]


# Footnotes: the text stays where it is; the numbers and the text link to each other


def _parse_footnote(state: StateInline, silent: bool) -> bool:
    """Parse the number of a footnote, `[^1]`."""
    match = _FOOTNOTE.match(state.src, state.pos, state.posMax) if state.src.startswith("[^", state.pos) else None
    if match is None:
        return False
    if not silent:
        state.push("footnote_open", "sup", 1).meta = {"label": match[1]}
        state.push("text", "", 0).content = match[1]
        state.push("footnote_close", "sup", -1)
    state.pos = match.end()
    return True


def _link_footnotes(state: StateCore) -> None:
    """Link the numbers of footnotes with their texts: the lines of paragraphs that begin with a number."""
    blocks = (block.children for block in state.tokens if block.children)
    numbers = [
        (children, index)
        for children in blocks
        for index, token in enumerate(children)
        if token.type == "footnote_open"
    ]
    texts: dict[str, Token] = {}
    references: dict[str, Token] = {}
    for children, index in numbers:
        is_line_start = index == 0 or (children[0].type == "footnote_open" and children[index - 1].type == "softbreak")
        (texts if is_line_start else references).setdefault(children[index].meta["label"], children[index])
    for children, index in reversed(numbers):
        token = children[index]
        label = token.meta["label"]
        if label not in texts or label not in references:
            continue
        is_text = texts[label] is token
        if is_text or references[label] is token:
            token.attrSet("id", f"{'fn' if is_text else 'fnref'}-{label}")
            state.env["footnote_ids"].add(token.attrGet("id"))
        link = Token("link_open", "a", 1, attrs={"href": f"#{'fnref' if is_text else 'fn'}-{label}"})
        children[index + 1 : index + 2] = [link, children[index + 1], Token("link_close", "a", -1)]


# Lists, tables, code, images


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


def _render_table_open(*_: Any) -> str:
    return '<div class="wide" tabindex="0" role="region" aria-label="Table"><table>\n'


def _render_table_close(*_: Any) -> str:
    return "</table></div>\n"


def _render_fence(_self: RendererHTML, tokens: list[Token], index: int, *_: Any) -> str:
    """Render a block of code with colours; a diagram is shown as the text that describes it."""
    token = tokens[index]
    language = token.info.strip().partition(" ")[0]
    code = color_code(token.content, language)
    if code is None:
        code = escape(token.content)
    css_class = f' class="language-{escape(language)}"' if language else ""
    title = '<p class="code-title">Mermaid diagram, as text</p>' if language.lower() == "mermaid" else ""
    return f"{title}<pre><code{css_class}>{code}</code></pre>\n"


def _render_code_block(_self: RendererHTML, tokens: list[Token], index: int, *_: Any) -> str:
    return f"<pre><code>{escape(tokens[index].content)}</code></pre>\n"


def _render_image(self: RendererHTML, tokens: list[Token], index: int, options: Any, env: Any) -> str:
    """Render an image; the sanitizer replaces it by its description unless it is a file of the wiki."""
    token = tokens[index]
    description = self.renderInlineAsText(token.children, options, env) or "image without a description"
    return f'<img src="{escape(str(token.attrs.get("src", "")))}" alt="{escape(description)}">'
