"""Markdown on a terminal: structure is visible, lines fit, and page text controls nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wikiholt.interfaces.cli.output import TerminalStyle
from wikiholt.interfaces.cli.terminal_markdown import render_markdown
from wikiholt.text.dialect import GFM, GOLLUM, OBSIDIAN, Dialect

PLAIN, COLOR = TerminalStyle(use_color=False), TerminalStyle(use_color=True)


def render(text: str, width: int = 40) -> list[str]:
    return render_markdown(text, width, PLAIN)


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("# One\n\n## Two\n### Three", ["# One", "", "## Two", "", "### Three"]),
        ("- a\n- b\n  1. c\n", [" • a", " • b", "    1 c"]),
        ("3. a\n4. b\n", [" 3 a", " 4 b"]),
        ("- a\n\n- b\n", [" • a", " • b"]),
        ("> a\n>\n> b", ["▌ a", "▌ b"]),
        ("```py\nx  =  1\n\tif\n```", ["    x  =  1", "        if"]),
        ("a *b* **c** `d  e` ~~f~~", ["a b c d  e f"]),
        ("[t](u.md) <https://e.org/> ![alt](i.png)", ["t (u.md) https://e.org/ [image: alt]"]),
        ("[t][r]\n\n[r]: https://e.org/", ["t (https://e.org/)"]),
        ("a  \nb<br>c", ["a", "b", "c"]),
        ("a\n\n***\n\nb", ["a", "", "-" * 40, "", "b"]),
        ("a\n\n<!-- note -->\n\n<div>x</div>", ["a", "", "    <div>x</div>"]),
        ("- [ ] todo\n- [x] done", [" • [ ] todo", " • [x] done"]),
        ("a&#27;[31m&#x202e;b", ["a\N{REPLACEMENT CHARACTER}[31m\N{REPLACEMENT CHARACTER}b"]),
        ("", []),
    ],
)
def test_the_structure_is_visible_without_colors(text: str, lines: list[str]) -> None:
    assert render(text) == lines


@pytest.mark.parametrize(
    ("dialect", "text", "line"),
    [
        (OBSIDIAN, "[[Tea|a drink]] [[Tea#Green]] ![[Tea]]", "a drink Tea > Green Tea"),
        (OBSIDIAN, "![[plan.png|300]] `[[code]]`", "[image: plan.png] [[code]]"),
        (GOLLUM, "[[a drink|Tea]] [[Tea]]", "a drink Tea"),
        (GFM, "[[ [x](y) ]", "[[ x (y) ]"),
    ],
)
def test_wiki_links_show_their_text(dialect: Dialect, text: str, line: str) -> None:
    assert render_markdown(text, 60, PLAIN, dialect) == [line]


def test_paragraphs_and_list_items_are_wrapped_to_the_width() -> None:
    for text in ("word " * 30, "- " + "word " * 20, "漢" * 50):
        lines = render(text)
        assert len(lines) > 1
        assert all(sum(1 + (char == "漢") for char in line) <= 40 for line in lines)


def test_tables_are_aligned_and_shrunk_to_the_width() -> None:
    lines = render("| Name | Text |\n|---|---|\n| a | short |\n| 漢字 | " + "long " * 15 + "|\n")
    assert lines[0].split() == ["Name", "Text"]
    assert lines[2:4] == [" a     short", " 漢字  long long long long long long"]
    assert len(lines) > 5
    assert all(len(line) <= 40 for line in lines)


def test_every_colored_line_is_complete() -> None:
    lines = render_markdown("**" + "bold word " * 20 + "end**\n\n> *x* `y`", 40, COLOR)
    assert "\x1b[1m" in lines[1]
    for line in lines:
        assert line.count("\x1b[0m") == line.replace("\x1b[0m", "").count("\x1b["), "each style ends on its line"


@given(st.text())
def test_any_text_is_rendered_without_control_characters(text: str) -> None:
    for line in render(text):
        assert not any(char < " " or "\x7f" <= char < "\xa0" or "\u202a" <= char <= "\u202e" for char in line)


def test_a_very_long_paragraph_is_shown_as_written() -> None:
    lines = render("*a " * 30_000, 100)
    assert lines[0].startswith("*a *a")
    assert sum(line.count("*a") for line in lines) == 30_000


def test_deep_nesting_loses_no_text() -> None:
    for depth in (15, 300):
        assert any("deep" in line for line in render("> " * depth + "deep"))
