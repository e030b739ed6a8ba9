"""Colours code: marks comments, strings, numbers, keywords and names in HTML, for a list of common languages.

One pattern for each family of languages, in linear time: the lexers of Pygments take minutes for text that is made to
be slow, and a page may contain such text.
"""

import re
from functools import cache
from html import escape
from typing import NamedTuple

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
    """Return the code as HTML with its parts marked; None if the language is not in the list."""
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
