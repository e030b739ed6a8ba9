"""Sanitizes HTML: a short list of elements, no active attributes, no URLs except in links."""

import re
from collections.abc import Callable
from urllib.parse import quote, unquote, urlsplit

import nh3

WIKI_SCHEME = "wiki:"
"""Marks links whose page is resolved already; never reaches the browser."""

LinkResolver = Callable[[str, bool], str | None]
"""Takes a link target and whether it was a `[[wiki link]]`; returns the path of the page, or None."""

_HEADING_TAGS = frozenset({"h1", "h2", "h3", "h4", "h5", "h6"})
_BLOCK_TAGS = {"blockquote", "dd", "details", "div", "dl", "dt", "hr", "li", "ol", "p", "pre", "summary", "ul"}
_TABLE_TAGS = {"caption", "col", "colgroup", "table", "tbody", "td", "tfoot", "th", "thead", "tr"}
_INLINE_TAGS = {
    *("a", "abbr", "b", "bdi", "bdo", "br", "cite", "code", "del", "dfn", "em", "i", "ins", "kbd", "mark", "q", "rp"),
    *("rt", "ruby", "s", "samp", "small", "span", "strong", "sub", "sup", "time", "u", "var", "wbr"),
}
_ALLOWED_TAGS = _HEADING_TAGS | _BLOCK_TAGS | _TABLE_TAGS | _INLINE_TAGS
_ALLOWED_SCHEMES = frozenset({"http", "https", "mailto"})
_REMOVED_WITH_CONTENT = frozenset(
    {"script", "style", "title", "textarea", "template", "noscript", "iframe", "object", "svg", "math", "xmp", "select"}
)
_ALLOWED_ATTRIBUTES = {
    "a": {"href", "title"},
    "abbr": {"title"},
    "bdo": {"dir"},
    "code": {"class"},
    "col": {"span"},
    "details": {"open"},
    "li": {"class"},
    "ol": {"start"},
    "span": {"class"},
    "td": {"colspan", "rowspan", "class"},
    "th": {"colspan", "rowspan", "class"},
    "time": {"datetime"},
} | {heading: {"id"} for heading in _HEADING_TAGS}
_ALIGNMENTS = {"left", "center", "right"}
_ALLOWED_CLASSES = {"li": {"task"}, "span": {"picture"}, "td": _ALIGNMENTS, "th": _ALIGNMENTS}
_LANGUAGE_CLASS_PATTERN = re.compile(r"language-[\w+#.-]{1,40}")
_SCHEME_PATTERN = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)
_IMAGE_PATTERN = re.compile(r"<img\b(?>(?:[^<>\"']++|\"[^\"]*+\"|'[^']*+')*)>", re.IGNORECASE)
_ALT_PATTERN = re.compile(r"""\balt\s*=\s*(?:"([^"]*+)"|'([^']*+)')""", re.IGNORECASE)
_TAG_PATTERN = re.compile(r"<(/?)([a-zA-Z][a-zA-Z0-9]*)")
_VOID_TAGS = frozenset({"br", "hr", "img", "col", "wbr", "input", "area", "embed", "link", "meta", "source", "track"})


def sanitize_html(html: str, anchors: frozenset[str], resolve: LinkResolver) -> str:
    """Return safe HTML. Ids are limited to `anchors`; links lead to previews, headings or external URLs."""

    def filter_attribute(tag: str, name: str, value: str) -> str | None:
        if name == "href":
            return resolve_link(value, resolve)
        if name == "id":
            return value if value in anchors else None
        if name == "class":
            return _filter_class(tag, value)
        return value

    return nh3.clean(
        _IMAGE_PATTERN.sub(_replace_image, html),
        tags=set(_ALLOWED_TAGS),
        clean_content_tags=set(_REMOVED_WITH_CONTENT),
        attributes=_ALLOWED_ATTRIBUTES,
        attribute_filter=filter_attribute,
        url_schemes={*_ALLOWED_SCHEMES, WIKI_SCHEME[:-1]},
        link_rel="noopener noreferrer nofollow",
    )


def resolve_link(target: str, resolve: LinkResolver) -> str | None:
    """Return the URL of a link to a preview, a heading or an external page; None if the target is not allowed."""
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
    return None if page_path is None else _format_preview_link(page_path, unquote(target.partition("#")[2]))


def measure_depth(html: str) -> int:
    """Return an upper bound of the nesting depth of elements."""
    deepest = depth = 0
    for closing, name in _TAG_PATTERN.findall(html):
        if name.lower() not in _VOID_TAGS:
            depth = max(depth - 1, 0) if closing else depth + 1
            deepest = max(deepest, depth)
    return deepest


def _format_preview_link(path: str, fragment: str) -> str:
    return f"?page={quote(path)}" + (f"#{quote(fragment)}" if fragment else "")


def _filter_class(tag: str, value: str) -> str | None:
    if tag == "code":
        return value if _LANGUAGE_CLASS_PATTERN.fullmatch(value) else None
    return value if value in _ALLOWED_CLASSES.get(tag, ()) else None


def _replace_image(image: re.Match[str]) -> str:
    """Replace an HTML image by its description; the result is sanitized with the rest."""
    alt = _ALT_PATTERN.search(image[0])
    description = (alt[1] or alt[2] or "") if alt else ""
    return f'<span class="picture">{description.replace("<", "&lt;")}</span>' if description.strip() else ""
