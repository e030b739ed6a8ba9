"""The changes between two versions of a page as HTML."""

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from html import escape

_MAX_LINES = 3_000
"""Maximum number of lines that are compared; comparing takes quadratic time."""
_CONTEXT_LINES = 3


def render_changes(old: str, new: str) -> str:
    """Render removed and added lines with some lines around them."""
    before, after = old.splitlines(), new.splitlines()
    if max(len(before), len(after)) > _MAX_LINES:
        return '<p class="note">This page is too long to compare its versions here. Use git diff.</p>'
    lines = "".join(_render_diff(before, after))
    if not lines:
        return '<p class="hint">The text of the page did not change.</p>'
    return f'<div class="diff" tabindex="0" role="region" aria-label="Changes">{lines}</div>'


def _render_diff(before: Sequence[str], after: Sequence[str]) -> Iterator[str]:
    matcher = SequenceMatcher(None, before, after, autojunk=False)
    for group in matcher.get_grouped_opcodes(_CONTEXT_LINES):
        yield f'<p class="place">From line {group[0][3] + 1}</p>'
        for kind, old_start, old_end, new_start, new_end in group:
            if kind == "equal":
                yield from (f"<div>{escape(line) or '&nbsp;'}</div>" for line in after[new_start:new_end])
                continue
            yield from (f"<del>{escape(line) or '&nbsp;'}</del>" for line in before[old_start:old_end])
            yield from (f"<ins>{escape(line) or '&nbsp;'}</ins>" for line in after[new_start:new_end])
