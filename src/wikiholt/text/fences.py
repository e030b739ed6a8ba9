"""Finds code fences, line by line."""

import re
from collections.abc import Iterator

_FENCE = re.compile(r"[ \t>]*+(?:[-*+][ \t]++)?(`{3,}+|~{3,}+)([^`\n]*+)$")


def find_fence(line: str, fence: str) -> str:
    """The open fence after this line, given the open fence before it; empty if there is none."""
    match = _FENCE.match(line) if "```" in line or "~~~" in line else None
    if match is None:
        return fence
    if not fence:
        return match[1]
    return "" if match[1].startswith(fence) and not match[2].strip() else fence


def split_fences(body: str) -> Iterator[tuple[bool, str]]:
    """The parts of a body inside and outside of code fences, which together are the body."""
    part: list[str] = []
    fence = ""
    for line in body.split("\n"):
        after = find_fence(line, fence)
        if bool(after) != bool(fence) and part:
            yield bool(fence), "\n".join([*part, ""])
            part = []
        part.append(line)
        fence = after
    yield bool(fence), "\n".join(part)
