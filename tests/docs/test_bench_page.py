"""`python -m bench`, the plot and docs/figures.md agree with the committed results."""

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from bench.__main__ import PLOT, format_page
from bench.figures import FIGURES, read_figures
from bench.plot import render
from bench.report import write_values
from tests.support.paths import ROOT

FIGURES_PAGE = (ROOT / "docs" / "figures.md").read_text()


def test_every_figure_is_in_the_committed_results() -> None:
    assert [figure.name for figure, value in read_figures() if value is None] == []


def test_the_committed_plot_is_the_one_of_the_committed_results() -> None:
    assert PLOT.read_text() == render(read_figures()), "run python -m bench --write"
    assert f"({PLOT.relative_to(ROOT / 'docs')})" in FIGURES_PAGE


def test_the_plot_needs_nothing_from_elsewhere_and_has_both_themes() -> None:
    text = PLOT.read_text()
    ElementTree.fromstring(text)
    assert not re.search(r"@import|url\(|href|<script|@font-face", text)
    assert "prefers-color-scheme: dark" in text


@pytest.mark.parametrize(
    ("name", "pattern"),
    [
        ("embedding, chunks a second", r"int8 ([\d.]+) ×"),
        ("nDCG@10, scifact", r"scifact \*\*(\.\d+)\*\*"),
        ("nDCG@10, cranfield", r"cranfield \*\*(\.\d+)\*\*"),
    ],
)
def test_the_page_of_figures_has_the_committed_results(name: str, pattern: str) -> None:
    (value,) = (value for figure, value in read_figures() if figure.name == name)
    assert value is not None
    found = re.search(pattern, FIGURES_PAGE)
    assert found is not None
    if name.startswith("nDCG"):
        peers = re.search(re.escape(found[0]) + r" \(([^)]*)\)", FIGURES_PAGE)
        assert peers is not None
        assert float(found[1]) / max(map(float, peers[1].split(", "))) == pytest.approx(value)
    else:
        assert float(found[1]) == value


def test_the_page_has_a_line_for_each_figure_and_says_what_is_not_measured(tmp_path: Path) -> None:
    page = format_page(read_figures())
    assert all(figure.name in page for figure in FIGURES)
    empty = tmp_path / "results"
    empty.mkdir()
    missing = format_page(read_figures(empty))
    assert "0 of" in missing
    assert missing.count(" - ") >= len(FIGURES)


def test_written_values_can_be_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.report.RESULTS", tmp_path)
    write_values("workers", {"throughput_ratio": 0.81234, "p99_to_p50": 3.0})
    figures = {figure.name: value for figure, value in read_figures(tmp_path) if value is not None}
    assert figures == {"HTTP, 64 clients, throughput": 0.8123, "HTTP at 80 % load, p99 ÷ p50": 3.0}
