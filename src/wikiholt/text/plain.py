"""Markdown as plain text: what a reader would see, for snippets and for the model. Fragments are welcome."""

import re

from wikiholt.text.inline import strip_inline, without_comments

_FENCE = re.compile(r"^[ \t>]*+(`{3,}+|~{3,}+)([^`\n]*+)$", re.MULTILINE)
_RULE_LINE = re.compile(r"^(?=[^\n]*[-=*_|])[-=*_:|+> \t]{2,}$", re.MULTILINE)
_LINE_START = re.compile(
    r"^[ \t]*+(?:>[!|]?+[ \t]*+)*+(?:(?:[-*+]|\d{1,9}[.)])[ \t]++(?:\[[ xX]\][ \t]++)?)*+(?:#{1,6}[ \t]++)?+", re.M
)
_CLOSING_HASHES = re.compile(r"(?<=[^\s#])[ \t]++#++[ \t]*+$", re.MULTILINE)
_ALERT = re.compile(r"^[ \t]*\[!\w+\]", re.MULTILINE)
_DEFINITION = re.compile(r"^ {0,3}\[(?!\^)[^\[\]\n]++\]:[ \t]*+\S++[^\n]*+$", re.MULTILINE)
_PIPED_LINE = re.compile(r"^[ \t]*\|.*$|^.*\|[ \t]*$|^.* \| .*$", re.MULTILINE)
_BLANK_LINES = re.compile(r"\n[ \t]*(?:\n[ \t]*)+")


def plain_text(markdown: str) -> str:
    """The text without markup, line by line; code keeps its characters and loses its fences. May be empty."""
    parts: list[str] = []
    fences = list(_FENCE.finditer(markdown))
    fence = fences[0][1] if _begins_in_code(markdown, fences) else ""
    at = 0
    for found in fences:
        marker = found[1]
        if fence and not (marker.startswith(fence) and not found[2].strip()):
            continue
        segment = markdown[at : found.start()]
        parts.append(segment.strip("\n") if fence else _prose(segment))
        fence = "" if fence else marker
        at = found.end()
    parts.append(markdown[at:].strip("\n") if fence else _prose(markdown[at:]))
    return "\n".join(part for part in parts if part and not part.isspace())


def _begins_in_code(markdown: str, fences: list[re.Match[str]]) -> bool:
    """Whether a fragment was cut out of the middle of a code block: its first fence has no partner and ends one.

    A fence that ends a block names no language and is followed by a blank line or by nothing.
    """
    if len(fences) % 2 == 0 or fences[0][2].strip():
        return False
    rest = markdown[fences[0].end() :]
    return not rest.strip() or rest.startswith("\n\n")


def _prose(text: str) -> str:
    text = without_comments(text) if "<!--" in text else text
    text = _RULE_LINE.sub("", text)
    if "]:" in text:
        text = _DEFINITION.sub("", text)
    text = _LINE_START.sub("", text)
    if "#" in text:
        text = _CLOSING_HASHES.sub("", text)
    if "[!" in text:
        text = _ALERT.sub("", text)
    text = strip_inline(text)
    if "|" in text:
        text = _PIPED_LINE.sub(lambda line: " ".join(line[0].replace("|", " ").split()), text)
    return _BLANK_LINES.sub("\n", text).strip()
