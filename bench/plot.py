"""An SVG plot of how much of its goal each figure reaches. Readable on light and dark pages, with the reader's own font."""

from collections.abc import Sequence
from xml.sax.saxutils import escape

from bench.figures import Figure

_ROW_PX, _TOP_PX, _LEFT_PX, _GOAL_PX, _RIGHT_PX = 22, 34, 240, 220, 160
_MAX_REACH = 2.0
"""Longer bars end here."""
_STYLE = """
text { font: 13px sans-serif; fill: #24292f; }
.note { fill: #57606a; }
.reached { fill: #1a7f37; }
.missed { fill: #bc4c00; }
.goal { stroke: #57606a; stroke-width: 1.5; stroke-dasharray: 4 3; }
@media (prefers-color-scheme: dark) {
 text { fill: #e6edf3; }
 .note { fill: #9198a1; }
 .reached { fill: #3fb950; }
 .missed { fill: #db6d28; }
 .goal { stroke: #9198a1; }
}"""


def render(figures: Sequence[tuple[Figure, float | None]]) -> str:
    """The plot as the text of an SVG file."""
    measured = [(figure, value) for figure, value in figures if value is not None]
    width = _LEFT_PX + int(_GOAL_PX * _MAX_REACH) + _RIGHT_PX
    height = _TOP_PX + _ROW_PX * len(measured) + 8
    goal = _LEFT_PX + _GOAL_PX
    reached = sum(figure.compute_reach(value) >= 1 for figure, value in measured)
    title = f"{reached} of {len(measured)} figures reach their goal"
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-label="{title}">',
        f"<style>{_STYLE}\n</style>",
        f'<text x="{goal}" y="16" text-anchor="middle" class="note">goal</text>',
        f'<line x1="{goal}" y1="22" x2="{goal}" y2="{height - 4}" class="goal"/>',
    ]
    for number, (figure, value) in enumerate(measured):
        lines += _render_row(figure, value, _TOP_PX + _ROW_PX * number)
    return "\n".join((*lines, "</svg>", ""))


def _render_row(figure: Figure, value: float, top: int) -> list[str]:
    reach = figure.compute_reach(value)
    length = max(2.0, _GOAL_PX * min(reach, _MAX_REACH))
    sign = "≤" if figure.lower_is_better else "≥"
    text = f"{figure.format(value)} ({sign} {figure.format(figure.goal)})"
    return [
        f'<text x="{_LEFT_PX - 8}" y="{top + 13}" text-anchor="end">{escape(figure.name)}</text>',
        f'<rect x="{_LEFT_PX}" y="{top + 2}" width="{length:.1f}" height="14" rx="2"'
        f' class="{"reached" if reach >= 1 else "missed"}"/>',
        f'<text x="{_LEFT_PX + _GOAL_PX * _MAX_REACH + 8:.0f}" y="{top + 13}" class="note">{escape(text)}</text>',
    ]
