"""Converts the markup that generators of static sites add to Markdown, line by line, and finds the routes of a page.

Templates of Liquid, Nunjucks, Hugo and mdBook are replaced by the words they display; in the target of a link, by the
path in them. Nothing is executed. Any input takes linear time.
"""

import re
from collections.abc import Iterator, Mapping

from wikiholt.domain.page import FrontmatterValue
from wikiholt.text.dialect_markup import replace_in_prose
from wikiholt.text.fences import find_fence, split_fences
from wikiholt.text.links import get_folder, get_last_part
from wikiholt.text.page_names import is_folder_page, strip_page_extension

# Templates.

_TEMPLATE = r"\{\{(?>(?:[^{}]++|\{[^{}]*+\}){0,200})\}\}|\{%(?>(?:[^%{}]++|%(?!\})|\{[^{}]*+\}){0,200})%\}"
_ANY_TEMPLATE = re.compile(_TEMPLATE)
_COMMENT_START = re.compile(r"\{%-?\s*+comment\s*+-?%\}")
_COMMENT_END = re.compile(r"\{%-?\s*+endcomment\s*+-?%\}")
_CODE_TAG = re.compile(
    r"(?!.*/[%>]\}\})[ \t]*+(?:\{%-?|\{\{[<%])[ \t]*+(?P<end>/[ \t]*+|end)?(?:highlight|codeblock|code-toggle|code)\b"
    r"[ \t]*+[\"']?(?:(?P<info>[\w+-]++)(?!=))?[^{}]*+(?<!/)[%>}]\}\}?[ \t]*+"
)
_CODE_MARKUP = re.compile(r"\{%-?\s*+(?:end)?raw\s*+-?%\}|\{\{#[\w-]++[^{}\n]*+\}\}")
_ESCAPED_SHORTCODE = re.compile(r"(\{\{[<%])/\*|\*/([>%]\}\})")
_SNIPPET_LINE = re.compile(r"[ \t]*+(?:-{1,3}8<-{1,3}.*|<<< ?@?[^\s<].*|\[\[toc\]\])[ \t]*+", re.IGNORECASE)
_TARGET = rf"(?:[^\s()<>{{}}]++|{_TEMPLATE}){{1,9}}"
_TARGET_WITH_TEMPLATE = re.compile(
    rf"(?:(?<=\]\()|(?<=\]:[ \t]))[ \t]*+(?=[^\s()<>{{}}]*+\{{[{{%])(?P<target>{_TARGET})(?=[\s)]|$)", re.MULTILINE
)
_ARGUMENT = re.compile(
    r"\{[{%][-<%#]*+\s*+(?:(?P<name>[\w-]++)\s++)?(?:\"(?P<double>[^\"]*+)\"|'(?P<single>[^']*+)'"
    r"|(?P<bare>[\w./#-]++)(?=\s*+[-/>]*+[%}]))"
)
_SITE_VARIABLE = re.compile(
    r"\{\{[-\s]*+(?>(?:[\w-]++\.){0,9})(?:base_?url|base_?path|base|root|url|path_?prefix)\b[^{}]*+\}\}", re.IGNORECASE
)
_RELATIVE_TARGET = re.compile(r"[/#.?]|[\w+.-]++:")
_WORDS_ARGUMENT = re.compile(
    r"""\{(?:\{[<%]?|%)-?\s*+(?P<name>[\w-]++\s++)?(?:"(?P<double>[^"/\\=<>]{1,100}+)"|'(?P<single>[^'/\\=<>]{1,100}+)')"""
)
_NAMED_WORDS = re.compile(r"""\b(?:text|label|title)=(?:"([^"]*+)"|'([^']*+)')""")
_FILE_NAME = re.compile(r"\S+\.\w{1,8}")
_SILENT_TAGS = frozenset(
    "assign block capture case cycle elif else elsif extends figure for from if image img import include"  # noqa: SIM905
    " include-cached include_cached include_relative layout macro partial render renderfile set unless when".split()
)
"""Tags whose first argument is no text."""


def convert_templates(body: str) -> str:
    """The body without templates; code keeps those that are part of it."""
    if "{{" not in body and "{%" not in body and "<<<" not in body and "8<" not in body:
        return body
    lines = _remove_comments(body).split("\n")
    fence = ""
    for number, line in enumerate(lines):
        tag = _CODE_TAG.fullmatch(line) if "{" in line else None
        if tag and bool(tag["end"]) == bool(fence) and not fence.endswith(("`", "~")):
            # a longer fence than any in the code
            fence = "" if fence else "open"
            lines[number] = "``````" + ("" if tag["end"] else tag["info"] or "")
            continue
        if fence != "open":
            fence = find_fence(line, fence)
        if not fence and _SNIPPET_LINE.fullmatch(line):
            lines[number] = ""
    return "".join(
        _clean_code(text) if is_code else replace_in_prose(convert_link_targets(text), _replace_templates, _clean_code)
        for is_code, text in split_fences("\n".join(lines))
    )


def _remove_comments(body: str) -> str:
    parts: list[str] = []
    position = 0
    while start := _COMMENT_START.search(body, position):
        end = _COMMENT_END.search(body, start.end())
        if end is None:
            break
        parts += body[position : start.start()], "\n" * body.count("\n", start.start(), end.end())
        position = end.end()
    return "".join((*parts, body[position:]))


def _clean_code(code: str) -> str:
    if "{{" not in code and "{%" not in code:
        return code
    return _ESCAPED_SHORTCODE.sub(lambda match: match[1] or match[2], _CODE_MARKUP.sub("", code))


def _replace_templates(text: str) -> str:
    if "{{" not in text and "{%" not in text:
        return text
    return _ANY_TEMPLATE.sub(_render_template, text)


def _render_template(match: re.Match[str]) -> str:
    template = match[0]
    words = ""
    if named := _NAMED_WORDS.search(template):
        words = named[1] or named[2] or ""
    elif found := _WORDS_ARGUMENT.match(template):
        text = found["double"] or found["single"]
        is_silent = (found["name"] or "").strip().lower() in _SILENT_TAGS or _FILE_NAME.fullmatch(text)
        words = "" if is_silent else text
    return words.replace("\n", " ") + "\n" * template.count("\n")


def convert_link_targets(text: str) -> str:
    """The text with the templates in targets of links replaced by their paths, at the same offsets where possible."""
    if "{{" not in text and "{%" not in text:
        return text
    return _TARGET_WITH_TEMPLATE.sub(_convert_target, text)


def _convert_target(match: re.Match[str]) -> str:
    raw = match["target"]
    target = ""
    offset = -1
    position = 0
    for template in (*_ANY_TEMPLATE.finditer(raw), None):
        between = raw[position : template.start() if template else len(raw)]
        if between:
            offset = position if offset < 0 else offset
            target += between
        if template is None:
            break
        position = template.end()
        argument = _ARGUMENT.match(template[0])
        kind = argument.lastgroup if argument else None
        if argument is None or kind is None or (kind == "bare" and not argument["name"]):
            if not _SITE_VARIABLE.fullmatch(template[0]):
                return " " * len(match[0])  # nobody knows where it leads
            continue
        path = argument[kind]
        at = template.start() + argument.start(kind)
        if not target and not _RELATIVE_TARGET.match(path):
            path, at = f"/{path}", at - 1
        offset = at if offset < 0 else offset
        target += path
    lead = match.start("target") - match.start() + max(offset, 0)
    return (" " * lead + target).ljust(len(match[0]))[: max(len(match[0]), lead + len(target))]


# Boxes between lines of colons.

_CONTAINER = re.compile(
    r"(?P<indent>[ \t]{0,40}+)(?P<colons>:{3,}+)[ \t]*+(?:(?P<kind>[A-Za-z][\w-]*+)(?P<rest>[^\n]*+))?"
)
_BRACKETED_TITLE = re.compile(r"[ \t]*+\[([^\[\]]*+(?>(?:\[[^\[\]]*+\][^\[\]]*+){0,99}))\]")
_TITLE_ATTRIBUTE = re.compile(r"""title=(?:"([^"]*+)"|'([^']*+)')""")
_CONTAINER_ATTRIBUTES = re.compile(r"\{[^{}]*+\}")
_BOXES = frozenset(
    {"tip", "note", "info", "warning", "danger", "caution", "important", "details", "success", "secondary", "alert"}
)
_MAX_DEPTH = 20


def convert_containers(body: str) -> str:
    """The body with `:::tip Title` boxes as callouts; the lines that open and close other containers are removed."""
    if ":::" not in body:
        return body
    open_boxes: list[tuple[str, str]] = []  # the indentation, and the mark of a quote or nothing
    fence = ""
    lines: list[str] = []
    for line in body.split("\n"):
        fence, was_in_code = find_fence(line, fence), bool(fence)
        if fence or was_in_code:
            lines.append(line)
            continue
        match = _CONTAINER.fullmatch(line)
        if match is None or (len(open_boxes) > _MAX_DEPTH if match["kind"] else not open_boxes):
            lines.append(_quote(line, open_boxes))
        elif match["kind"]:
            is_box = match["kind"].lower() in _BOXES
            open_boxes.append((match["indent"], "> " if is_box else ""))
            title = f"[!{match['kind'].lower()}] {_get_container_title(match['rest'])}" if is_box else ""
            lines.append(_quote(match["indent"] + title, open_boxes).rstrip())
        else:
            open_boxes.pop()
            lines.append("")
    return "\n".join(lines)


def _get_container_title(rest: str) -> str:
    if match := _TITLE_ATTRIBUTE.search(rest):
        return match[1] or match[2] or ""
    if match := _BRACKETED_TITLE.match(rest):
        return match[1].strip()
    return _CONTAINER_ATTRIBUTES.sub("", rest).strip()


def _quote(line: str, boxes: list[tuple[str, str]]) -> str:
    marks = "".join(mark for _, mark in boxes)
    if not marks:
        return line
    indent = boxes[-1][0]
    text = line[len(indent) :] if line.startswith(indent) else line.lstrip(" \t")
    return f"{indent}{marks}{text}".rstrip() if not text.strip() else f"{indent}{marks}{text}"


# Routes: the addresses of a page that its path does not have.

_ORDER_PREFIX = re.compile(r"(?<![^/])\d{1,3}(?:[-_.]|[ ]-[ ])[ ]?(?=[^\W\d])")
_POST = re.compile(
    r"(?P<folder>.*?/?)(?:_posts|_drafts)?/?(?P<year>\d{4})-(?P<month>\d{2})-(?P<day>\d{2})-(?P<name>[^/]+)"
)
_POST_FOLDER = re.compile(r"(?<![^/])_(?:posts|drafts)/\Z")
_COLLECTION = re.compile(r"(?<![^/])_(?=[^/]+/)")
_ROUTE_KEYS = ("permalink", "url", "slug", "redirect_from")
_PLAIN_ROUTE = re.compile(r"[^{}:*<>\s]+")
_MAX_ROUTES = 20


def find_routes(file: str, fields: Mapping[str, FrontmatterValue], *, has_ids: bool = False) -> tuple[str, ...]:
    """Routes of a page by its frontmatter and the conventions for its file name, without slashes at their ends.

    `has_ids`: a page's `id` takes the place of its file name (Docusaurus).
    """
    path = strip_page_extension(file)
    is_folder = is_folder_page(file)
    own = get_folder(path) if is_folder else path
    folder = get_folder(own)
    routes = dict.fromkeys(_iter_conventional_routes(path, own, _get_category(fields)))
    for key in (*_ROUTE_KEYS, "id") if has_ids and not is_folder else _ROUTE_KEYS:
        value = fields.get(key)
        for route in value if isinstance(value, list) else [value]:
            if isinstance(route, str) and _PLAIN_ROUTE.fullmatch(route) and route not in ("true", "false", "null"):
                plain = re.sub(r"(?:/index)?\.html?\Z", "", route).strip("/")
                if "/" not in plain and folder:
                    routes[f"{folder}/{plain}"] = None
                routes[plain] = None
                if key == "slug":
                    routes[get_last_part(plain)] = None
    return tuple(route for route in routes if route and route not in (path, own))[:_MAX_ROUTES]


def _iter_conventional_routes(path: str, own: str, category: str) -> Iterator[str]:
    if get_folder(path) and get_last_part(path) == get_last_part(get_folder(path)):
        yield get_folder(path)
    yield (site_path := _COLLECTION.sub("", own))
    yield _ORDER_PREFIX.sub("", site_path)
    if post := _POST.fullmatch(own):
        folder = _POST_FOLDER.sub("", post["folder"])
        dated = f"{post['year']}/{post['month']}/{post['day']}/{post['name']}"
        yield f"{folder}{dated}"
        yield f"{folder}{post['name']}"
        if category:
            yield f"{folder}{category}/{dated}"


def _get_category(fields: Mapping[str, FrontmatterValue]) -> str:
    value = fields.get("categories") or fields.get("category")
    parts = value if isinstance(value, list) else str(value or "").split()
    return "/".join(part for part in parts if isinstance(part, str))
