"""Sanitizes HTML: a short list of elements, no active attributes, no URLs except in links and images of the wiki."""

import re
from collections.abc import Callable, Collection
from html import unescape
from urllib.parse import quote, unquote, urlsplit

import nh3

from wikiholt.interfaces.web.markdown_rules import CALLOUT_KINDS, CODE_CLASSES
from wikiholt.text.links import is_attachment, resolve_link_paths

WIKI_SCHEME = "wiki:"
"""Marks links whose page is resolved already; never reaches the browser."""

LinkResolver = Callable[[str, bool], str | None]
"""Takes a link target and whether it was a `[[wiki link]]`; returns the path of the page, or None."""

_HEADING_TAGS = frozenset({"h1", "h2", "h3", "h4", "h5", "h6"})
_BLOCK_TAGS = {"blockquote", "dd", "details", "div", "dl", "dt", "hr", "li", "ol", "p", "pre", "summary", "ul"}
_TABLE_TAGS = {"caption", "col", "colgroup", "table", "tbody", "td", "tfoot", "th", "thead", "tr"}
_INLINE_TAGS = {
    *("a", "abbr", "b", "bdi", "bdo", "br", "cite", "code", "del", "dfn", "em", "i", "img", "ins", "kbd", "mark", "q"),
    *("rp", "rt", "ruby", "s", "samp", "small", "span", "strong", "sub", "sup", "time", "u", "var", "wbr"),
}
_MATH_TAGS = {
    *("math", "menclose", "mfrac", "mi", "mn", "mo", "mover", "mpadded", "mphantom", "mroot", "mrow", "mspace"),
    *("msqrt", "mstyle", "msub", "msubsup", "msup", "mtable", "mtd", "mtext", "mtr", "munder", "munderover"),
}
"""What a formula is made of. No element of MathML that may contain HTML or another language (`annotation-xml`)."""
_ALLOWED_TAGS = _HEADING_TAGS | _BLOCK_TAGS | _TABLE_TAGS | _INLINE_TAGS | _MATH_TAGS
_ALLOWED_SCHEMES = frozenset({"http", "https", "mailto"})
_REMOVED_WITH_CONTENT = frozenset(
    {"script", "style", "title", "textarea", "template", "noscript", "iframe", "object", "svg", "xmp", "select"}
)
_MATH_WORDS = {"accent", "columnalign", "display", "displaystyle", "fence", "form", "mathvariant", "movablelimits"}
_MATH_WORDS |= {"notation", "scriptlevel", "separator", "stretchy"}
_MATH_LENGTHS = {"depth", "height", "linethickness", "lspace", "maxsize", "minsize", "rspace", "voffset", "width"}
_ALLOWED_ATTRIBUTES = (
    dict.fromkeys(_MATH_TAGS, _MATH_WORDS | _MATH_LENGTHS)
    | {
        "a": {"href", "title"},
        "abbr": {"title"},
        "bdo": {"dir"},
        "blockquote": {"class"},
        "code": {"class"},
        "col": {"span"},
        "details": {"open"},
        "div": {"class", "tabindex", "role", "aria-label"},
        "img": {"src", "alt", "title", "width", "height"},
        "li": {"class"},
        "ol": {"start"},
        "p": {"class"},
        "span": {"class"},
        "sup": {"id"},
        "td": {"colspan", "rowspan", "class"},
        "th": {"colspan", "rowspan", "class"},
        "time": {"datetime"},
    }
    | {heading: {"id"} for heading in _HEADING_TAGS}
)
_ALIGNMENTS = frozenset({"left", "center", "right"})
_ALLOWED_CLASSES: dict[str, frozenset[str]] = {
    "blockquote": frozenset(f"callout {kind}" for kind in CALLOUT_KINDS),
    "div": frozenset({"formula", "wide"}),
    "li": frozenset({"task"}),
    "p": frozenset({"callout-title", "code-title"}),
    "span": CODE_CLASSES | {"picture"},
    "td": _ALIGNMENTS,
    "th": _ALIGNMENTS,
}
_FIXED_VALUES = {"tabindex": "0", "role": "region", "aria-label": "Table"}
"""The only values of attributes that the renderer sets on tables."""
_MATH_VALUE_PATTERN = re.compile(r"[a-z-]{1,20}|[+-]?(?:\d{1,2})?(?:\.\d{1,4})?(?:em|ex|pt|px|%)?")
"""A word, or a length that is too short to cover other parts of the page."""
_SIZE_PATTERN = re.compile(r"[1-9]\d{0,3}")
_LANGUAGE_CLASS_PATTERN = re.compile(r"language-[\w+#.-]{1,40}")
_SCHEME_PATTERN = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)
_IMAGE_PATTERN = re.compile(r"<img\b(?>(?:[^<>\"']++|\"[^\"]*+\"|'[^']*+')*)>", re.IGNORECASE)
_ALT_PATTERN = re.compile(r"""\balt\s*=\s*(?:"([^"]*+)"|'([^']*+)')""", re.IGNORECASE)
_SRC_PATTERN = re.compile(r"""\bsrc\s*=\s*(?:"([^"]*+)"|'([^']*+)'|([^\s"'<>]++))""", re.IGNORECASE)
_TAG_PATTERN = re.compile(r"<(/?)([a-zA-Z][a-zA-Z0-9]*)")
_VOID_TAGS = frozenset({"br", "hr", "img", "col", "wbr", "input", "area", "embed", "link", "meta", "source", "track"})


def sanitize_html(html: str, ids: Collection[str], resolve: LinkResolver, file: str) -> str:
    """Safe HTML of the page in `file`.

    Ids are limited to `ids`; links lead to previews, headings, files of the wiki or external URLs; images are files of
    the wiki.
    """

    def filter_attribute(tag: str, name: str, value: str) -> str | None:
        if name == "href":
            return resolve_link(value, resolve, file)
        if name == "src":
            return resolve_file(value, file)
        return value if _is_allowed_value(tag, name, value, ids) else None

    return nh3.clean(
        _IMAGE_PATTERN.sub(lambda image: _replace_image(image, file), html),
        tags=set(_ALLOWED_TAGS),
        clean_content_tags=set(_REMOVED_WITH_CONTENT),
        attributes=_ALLOWED_ATTRIBUTES,
        attribute_filter=filter_attribute,
        url_schemes={*_ALLOWED_SCHEMES, WIKI_SCHEME[:-1]},
        link_rel="noopener noreferrer nofollow",
        set_tag_attribute_values={"img": {"loading": "lazy"}, "pre": {"tabindex": "0"}},
    )


def _is_allowed_value(tag: str, name: str, value: str, ids: Collection[str]) -> bool:
    """Whether an attribute that contains no URL may have this value."""
    if name == "id":
        return value in ids
    if name == "class":
        is_language = tag == "code" and _LANGUAGE_CLASS_PATTERN.fullmatch(value) is not None
        return is_language or value in _ALLOWED_CLASSES.get(tag, ())
    if tag in _MATH_TAGS:
        return _MATH_VALUE_PATTERN.fullmatch(value) is not None
    if name in ("width", "height"):
        return _SIZE_PATTERN.fullmatch(value) is not None
    return _FIXED_VALUES.get(name, value) == value


def resolve_file(target: str, file: str) -> str | None:
    """The URL of a file of the wiki that the page in `file` shows; None for any other target."""
    paths = resolve_link_paths((target,), False, file)
    return f"files/{quote(paths[0])}" if paths and is_attachment(paths[0], False) else None


def resolve_link(target: str, resolve: LinkResolver, file: str) -> str | None:
    """The URL of a link to a preview, heading, file or external page; None if the target is not allowed."""
    if target.startswith(WIKI_SCHEME):
        path, _, fragment = target.removeprefix(WIKI_SCHEME).partition("#")
        return _format_preview_link(unquote(path), unquote(fragment))
    if target.startswith("#"):
        return target
    if target.startswith(("//", "\\", "/\\")):
        return None
    if _SCHEME_PATTERN.match(target):
        return target if urlsplit(target).scheme.lower() in _ALLOWED_SCHEMES else None
    page_path = resolve(target, False)
    if page_path is None:
        return resolve_file(target, file)
    return _format_preview_link(page_path, unquote(target.partition("#")[2]))


def measure_depth(html: str) -> int:
    """An upper bound of the nesting depth of elements."""
    deepest = depth = 0
    for closing, name in _TAG_PATTERN.findall(html):
        if name.lower() not in _VOID_TAGS:
            depth = max(depth - 1, 0) if closing else depth + 1
            deepest = max(deepest, depth)
    return deepest


def _format_preview_link(path: str, fragment: str) -> str:
    return f"?page={quote(path)}" + (f"#{quote(fragment)}" if fragment else "")


def _replace_image(image: re.Match[str], file: str) -> str:
    """Replace an image that is not a file of the wiki by its description; the result is sanitized with the rest."""
    source = _SRC_PATTERN.search(image[0])
    if source and resolve_file(unescape(source[1] or source[2] or source[3] or ""), file):
        return image[0]
    alt = _ALT_PATTERN.search(image[0])
    description = (alt[1] or alt[2] or "") if alt else ""
    return f'<span class="picture">{description.replace("<", "&lt;")}</span>' if description.strip() else ""
