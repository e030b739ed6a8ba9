"""Bugs found by malformed pages and fuzzing, each with its own test."""

import json
from pathlib import Path

import pytest

from tests.malformed.page_steps import STEPS, measure_seconds
from wikiholt.api.settings.definitions import SETTINGS
from wikiholt.api.settings.settings_loader import load_settings
from wikiholt.domain.page import Page
from wikiholt.errors import InvalidSetting
from wikiholt.interfaces.cli.output import format_json
from wikiholt.interfaces.web.renderer import render_markdown
from wikiholt.text.frontmatter import parse_datetime, split_frontmatter
from wikiholt.text.link_rewrite import PageMove, rewrite_links
from wikiholt.text.links import PageNameIndex, resolve_link_paths
from wikiholt.text.markdown import MAX_LINES, parse_outline
from wikiholt.text.model_text import to_plain_text
from wikiholt.text.page_names import get_page_path
from wikiholt.text.page_parser import parse_page


def parse_text(text: str) -> Page:
    page = parse_page("page.md", "0" * 40, text.encode(), None)
    assert isinstance(page, Page)
    return page


def test_escaped_brackets_are_read_once() -> None:
    assert measure_seconds(lambda data: to_plain_text(data.decode()), b"\\[" * 50_000) < 3
    assert to_plain_text(r"\[not a link\] and [a link](x)") == "[not a link] and a link"


def test_a_row_of_tildes_before_a_backtick_is_read_once() -> None:
    assert measure_seconds(lambda data: to_plain_text(data.decode()), b"~" * 50_000 + b"`~") < 3


def test_two_hundred_thousand_carriage_returns_are_read_once() -> None:
    assert measure_seconds(lambda data: parse_text(data.decode()), b"x\n" + b"\r" * 200_000) < 3
    assert parse_text("a\r\r\nb\rc\r\n").body == "a\nb c\n"


def test_a_very_long_heading_is_not_repeated_in_every_chunk() -> None:
    page = parse_text("word " * 5_000 + "\n===\n\n" + "A sentence. " * 5_000)
    assert len(page.headings[0].text) <= 500
    assert measure_seconds(STEPS["prepare_page"], page.body.encode()) < 20


@pytest.mark.slow
def test_lines_beyond_a_hundred_thousand_are_kept_without_headings() -> None:
    text = "# h\n" * MAX_LINES + "\n\n# beyond [x](y)\n" + "text\n" * 3_000
    page = parse_text(text)
    assert len(page.headings) == MAX_LINES
    assert page.links == ()
    assert "more than 100,000 lines" in page.warnings[0]
    covered = sum(block.end - block.start for block in page.blocks)
    assert covered >= len(page.body.replace("\n", ""))
    last = page.blocks[-1]
    assert page.body[last.start : last.end].endswith("text")
    assert last.last_line == MAX_LINES + 3_003
    assert all(a.end <= b.start for a, b in zip(page.blocks, page.blocks[1:], strict=False))


def test_a_page_with_the_maximum_number_of_lines_is_read_completely() -> None:
    for lines in (MAX_LINES - 1, MAX_LINES, MAX_LINES + 1):
        plan = parse_outline("\n" * (lines - 1) + "# last")
        assert len(plan.headings) == (lines <= MAX_LINES)
        assert (plan.blocks[0].first_line, plan.blocks[0].last_line) == (lines, lines)


def test_aliases_do_not_multiply_the_size_of_frontmatter() -> None:
    wide = f"a: &a {'x' * 9000}\nb: &b [{','.join(['*a'] * 1000)}]\nc: [{','.join(['*b'] * 1000)}]\n"
    front = split_frontmatter(f"---\ntitle: kept\n{wide}---\nbody\n")
    assert front.metadata.title == "kept"
    assert len(json.dumps(front.fields)) < 1_000_000
    assert "expands to too much data" in front.warnings[0]


def test_ten_thousand_spaces_in_a_date_or_a_tag_are_read_once() -> None:
    text = f"---\ntags: {chr(160) * 9_999}x\ndate: 2020-01-01{chr(160) * 9_000}+01\n---\n"
    # The least of three: any one may contain a collection of all garbage of the process.
    assert min(measure_seconds(lambda data: split_frontmatter(data.decode()), text.encode()) for _ in range(3)) < 0.4
    assert parse_datetime("2020-01-01" + " " * 200 + "+01") is None


@pytest.mark.slow
def test_a_preview_is_truncated_after_ten_thousand_lines() -> None:
    shown = render_markdown(parse_text("#\n" * 20_000), lambda target, wiki: None)
    assert shown.cut
    assert shown.html.count("<h1") <= 10_000
    assert not render_markdown(parse_text("line\n" * 9_000), lambda target, wiki: None).cut


def test_links_of_a_page_with_old_line_ends_follow_a_renamed_page() -> None:
    move = PageMove("b", "c", PageNameIndex(["a", "b"]), PageNameIndex(["a", "c"]))
    assert (
        rewrite_links(b"# One\r\rsee [x](b)\rand [[b]]\r", "a.md", "a.md", move) == b"# One\r\rsee [x](c)\rand [[c]]\r"
    )


@pytest.mark.parametrize("char", ["\x7f", "\x85", "\x9b", "\u202e", "\u2066", "\u2028"])
def test_json_on_a_terminal_contains_no_control_characters(char: str) -> None:
    shown = format_json({"path": f"a{char}b"})
    assert char not in shown
    assert json.loads(shown) == {"path": f"a{char}b"}


@pytest.mark.parametrize("file", ["..md", "...md", "a/...md", "a/..md"])
def test_no_page_path_refers_to_another_directory(file: str) -> None:
    assert (get_page_path(file),) == resolve_link_paths((f"/{file}",), False, "x.md") == (file,)
    assert (get_page_path("....md"),) == resolve_link_paths(("/....md",), False, "x.md") == ("...",)


def test_a_number_of_five_thousand_digits_is_refused_as_a_setting() -> None:
    for setting in SETTINGS.values():
        if setting.kind in (int, float):
            with pytest.raises(InvalidSetting):
                setting.parse("9" * 5_000, "here")


def test_a_deeply_nested_settings_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "wikiholt.toml").write_text("serve.hosts = " + "[" * 20_000 + "]" * 20_000)
    with pytest.raises(InvalidSetting):
        load_settings(tmp_path)


def test_links_on_a_page_with_a_nul_are_rewritten() -> None:
    move = PageMove("b", "c", PageNameIndex(["a", "b"]), PageNameIndex(["a", "c"]))
    assert rewrite_links(b"nul \0 and [[b]]\n", "a.md", "a.md", move) == b"nul \0 and [[c]]\n"
    for encoding in ("utf-16", "utf-16-le", "utf-16-be", "utf-32"):
        wide = "see [[b]] and [x](b)\n".encode(encoding)
        assert rewrite_links(wide, "a.md", "a.md", move) == wide


@pytest.mark.parametrize("before", ["- ", "1. ", "> - ", "* + 12) "])
def test_a_definition_in_a_list_follows_a_renamed_page(before: str) -> None:
    move = PageMove("b", "c", PageNameIndex(["a", "b"]), PageNameIndex(["a", "c"]))
    assert (
        rewrite_links(f"{before}[x]: b\n\n[x]\n".encode(), "a.md", "a.md", move) == f"{before}[x]: c\n\n[x]\n".encode()
    )


def test_brackets_after_a_rewritten_path_do_not_end_the_link() -> None:
    move = PageMove("d(e)", "c", PageNameIndex(["a", "d(e)"]), PageNameIndex(["a", "c"]))
    written = rewrite_links(b"[x](d%28e%29#f(g)) [[a]]\n", "a.md", "a.md", move)
    assert written == b"[x](c#f%28g%29) [[a]]\n"


def test_a_date_of_spaces_is_no_date_and_no_warning() -> None:
    assert split_frontmatter('---\ndate: " "\n---\nx').warnings == ()
