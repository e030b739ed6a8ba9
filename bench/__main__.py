"""All ratios of bench/results on one page, beside their goals and peers.

    python -m bench [--write]

Reads what the benchmarks have written; measures nothing. `--write` also writes the plot docs/images/figures.svg.
"""

from collections.abc import Sequence
from pathlib import Path

from bench.figures import Figure, read_figures
from bench.plot import render
from bench.report import make_parser

PLOT = Path(__file__).parent.parent / "docs" / "images" / "figures.svg"


def format_page(figures: Sequence[tuple[Figure, float | None]]) -> str:
    """The page as text."""
    lines = [f"{'figure':36} {'measured':>12} {'goal':>12}  {'':8} {'compared with':26} repeat with python -m"]
    for figure, value in figures:
        sign = "≤" if figure.lower_is_better else "≥"
        goal = f"{sign} {figure.format(figure.goal)}"
        measured = figure.format(value) if value is not None else "-"
        state = "" if value is None else "reached" if figure.compute_reach(value) >= 1 else "missed"
        lines.append(f"{figure.name:36} {measured:>12} {goal:>12}  {state:8} {figure.peer:26} {figure.command}")
    reached = sum(value is not None and figure.compute_reach(value) >= 1 for figure, value in figures)
    lines += ["", f"{reached} of {len(figures)} figures reach their goal."]
    return "\n".join(lines)


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--write", action="store_true", help="write docs/images/figures.svg")
    arguments = parser.parse_args()
    figures = read_figures()
    print(format_page(figures))
    if arguments.write:
        PLOT.write_text(render(figures))


if __name__ == "__main__":
    main()
