"""Rules of markdown-it for what wikis add to Markdown: callouts, footnotes, tasks, tables, code and images."""

import re
from functools import cache
from html import escape
from typing import Any, NamedTuple

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.rules_core import StateCore
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token

from wikiholt.interfaces.web.formulas import add_formula_rules, render_formula_block

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
    add_formula_rules(parser)
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


def _render_fence(_self: RendererHTML, tokens: list[Token], index: int, _: Any, environment: Any) -> str:
    """Render a block of code with colours; a diagram is the text that a script draws."""
    token = tokens[index]
    language = token.info.strip().partition(" ")[0]
    if language.lower() == "mermaid":
        language = "mermaid"
    if language.lower() == "math":
        return render_formula_block(token.content, environment)
    code = color_code(token.content, language)
    if code is None:
        code = escape(token.content)
    css_class = f' class="language-{escape(language)}"' if language else ""
    title = '<p class="code-title">Mermaid diagram, as text</p>' if language == "mermaid" else ""
    return f"{title}<pre><code{css_class}>{code}</code></pre>\n"


def _render_code_block(_self: RendererHTML, tokens: list[Token], index: int, *_: Any) -> str:
    return f"<pre><code>{escape(tokens[index].content)}</code></pre>\n"


def _render_image(self: RendererHTML, tokens: list[Token], index: int, options: Any, env: Any) -> str:
    """Render an image; the sanitizer replaces it by its description unless it is a file of the wiki."""
    token = tokens[index]
    description = self.renderInlineAsText(token.children, options, env) or "image without a description"
    return f'<img src="{escape(str(token.attrs.get("src", "")))}" alt="{escape(description)}">'


# Colours of code: comments, strings, numbers, keywords and names, for a list of common languages. One pattern for each
# family of languages, in linear time: the lexers of Pygments take minutes for text that is made to be slow, and a page
# may contain such text.


CODE_CLASSES = frozenset({"comment", "string", "number", "keyword", "name", "inserted", "deleted"})

_DOUBLE = r'"(?>(?:[^"\\\n]|\\.)*)"?'
_SINGLE = r"'(?>(?:[^'\\\n]|\\.)*)'?"
_HASH = r"#[^\n]*+"
_SLASHES = r"//[^\n]*+|/\*(?>(?:[^*]|\*(?!/))*)(?:\*/)?"
_NUMBER = r"(?<![\w.])(?:0[xXbBoO][\da-fA-F_]++|\d[\d_]*+(?:\.\d++)?(?:[eE][+-]?\d++)?)\w{0,3}+"
_COMMON = "break case catch class const continue default do else enum false finally for if import new null return"
_C_LIKE = f"{_COMMON} static struct switch this throw true try void while"


class _Family(NamedTuple):
    """How a family of languages is written: patterns of comments, strings and names, and keywords."""

    comment: str
    string: str = f"{_DOUBLE}|{_SINGLE}"
    keywords: str = ""
    name: str = r"[A-Za-z_]\w*+(?=\()"
    ignores_case: bool = False


_TRIPLE = r'"""(?>(?:[^"\\]|\\.|"(?!""))*)(?:""")?' + r"|'''(?>(?:[^'\\]|\\.|'(?!''))*)(?:''')?"
_KEY = r"(?m:^)[ \t-]*+\"?[A-Za-z_][\w.-]*+\"?(?=\s*+[:=])"
_PYTHON = (
    "and as assert async await break class continue def del elif else except False finally for from global if import "
    "in is lambda match None nonlocal not or pass raise return self True try while with yield"
)
_SHELL = "case do done elif else esac export fi for function if in local return set then until while"
_SCRIPT = (
    f"{_COMMON} as async await debugger delete export extends from function get in instanceof interface let of set "
    "static super switch this throw true try type typeof undefined var void while yield"
)
_SQL = (
    "alter and as asc between by case create delete desc distinct drop else end exists from full group having in index "
    "inner insert into is join key left like limit not null on or order outer primary references right select set "
    "table then union unique update values view when where with"
)
_FAMILIES = {
    "python py": _Family(_HASH, f"{_TRIPLE}|{_DOUBLE}|{_SINGLE}", _PYTHON),
    "ruby rb": _Family(_HASH, keywords=f"{_COMMON} begin def elsif end module nil self then true unless until yield"),
    "bash sh shell zsh console": _Family(
        r"(?<![\w$\{])#[^\n]*+", keywords=_SHELL, name=r"\$\{?\w++\}?|(?<!\w)--?[a-z][\w-]*+"
    ),
    "javascript js jsx mjs typescript ts tsx": _Family(
        _SLASHES, rf"{_DOUBLE}|{_SINGLE}|`(?>(?:[^`\\]|\\.)*)`?", _SCRIPT
    ),
    "c h c++ cpp hpp csharp cs java kotlin swift php": _Family(
        _SLASHES,
        keywords=f"{_C_LIKE} auto bool char double extends float fun func int interface let long override "
        "private protected public string using val var namespace package template typename unsigned",
    ),
    "go golang rust rs": _Family(
        _SLASHES,
        rf"{_DOUBLE}|`[^`]*+`?|'(?:[^'\\\n]|\\.)'",
        f"{_COMMON} chan crate defer fn fallthrough func go goto impl in interface let loop map match mod move mut nil "
        "package pub range ref select self Self struct switch trait true type unsafe use var where while",
    ),
    "sql": _Family(r"--[^\n]*+|/\*(?>(?:[^*]|\*(?!/))*)(?:\*/)?", keywords=_SQL, ignores_case=True),
    "json jsonc": _Family(_SLASHES, keywords="true false null", name=r'"(?>(?:[^"\\\n]|\\.)*)"(?=\s*+:)'),
    "yaml yml toml ini cfg conf": _Family(r"(?<![\w\"'])[#;][^\n]*+", keywords="true false null yes no", name=_KEY),
    "dockerfile docker make makefile nginx": _Family(
        _HASH,
        keywords=f"{_SHELL} ADD CMD COPY ENTRYPOINT ENV EXPOSE FROM "
        "HEALTHCHECK LABEL RUN USER VOLUME WORKDIR location server",
        name=r"\$[\({]?\w++[\)}]?",
    ),
    "css scss": _Family(r"/\*(?>(?:[^*]|\*(?!/))*)(?:\*/)?", name=r"(?<![\w-])[a-z-]++(?=\s*+:)|[.#@][\w-]++"),
    "html xml svg": _Family(r"<!--(?>(?:[^-]|-(?!->))*)(?:-->)?", name=r"</?[A-Za-z][\w:.-]*+|/?>"),
}
_LANGUAGES = {name: family for names, family in _FAMILIES.items() for name in names.split()}
_DIFF_LINE = re.compile(r"(?P<inserted>^\+[^\n]*+)|(?P<deleted>^-[^\n]*+)|(?P<name>^@@[^\n]*+)", re.MULTILINE)


def color_code(code: str, language: str) -> str | None:
    """The code as HTML with its parts marked; None if the language is not in the list."""
    pattern = _get_pattern(language.lower())
    if pattern is None:
        return None
    parts: list[str] = []
    position = 0
    for match in pattern.finditer(code):
        if match.lastgroup in CODE_CLASSES:
            parts += (
                escape(code[position : match.start()]),
                f'<span class="{match.lastgroup}">{escape(match[0])}</span>',
            )
            position = match.end()
    return "".join([*parts, escape(code[position:])])


@cache
def _get_pattern(language: str) -> re.Pattern[str] | None:
    if language in ("diff", "patch"):
        return _DIFF_LINE
    family = _LANGUAGES.get(language)
    if family is None:
        return None
    groups = [("comment", family.comment), ("name", family.name), ("string", family.string)]
    if family.keywords:
        groups.insert(1, ("keyword", rf"(?<![\w$.-])(?:{'|'.join(sorted(set(family.keywords.split())))})(?![\w-])"))
    groups += [("number", _NUMBER), ("word", r"\w++")]
    flags = re.IGNORECASE if family.ignores_case else 0
    return re.compile("|".join(f"(?P<{name}>{pattern})" for name, pattern in groups), flags)
