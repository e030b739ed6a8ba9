"""parse_page: any committed content becomes a page or a problem with its reason."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.text.markdown_samples import MALFORMED_TEXTS, markdown_texts, parse_text
from wikiholt.domain.page import Page, PageProblem
from wikiholt.text.page_names import get_page_path
from wikiholt.text.page_parser import parse_page

COMMITTED = datetime(2024, 5, 6, 7, 8, tzinfo=timezone(timedelta(hours=2)))


def collect_texts(page: Page) -> str:
    links = [text for link in page.links for text in (link.target, link.text)]
    return "\n".join(
        [page.name, page.body, *page.metadata.tags, page.metadata.title or "", page.metadata.category or "", *links]
        + [text for heading in page.headings for text in (heading.text, heading.anchor)]
        + list(page.warnings)
    )


@given(st.binary(max_size=400) | markdown_texts.map(lambda text: text.encode("utf-8", "replace")))
def test_any_bytes_give_a_page_or_a_problem(data: bytes) -> None:
    page = parse_page("a.md", "b", data, COMMITTED)
    if isinstance(page, Page):
        collect_texts(page).encode("utf-8")
        assert "\0" not in collect_texts(page)
        assert page.name.strip()
        assert page.metadata.last_updated is not None
        assert page.metadata.last_updated.utcoffset() == timedelta(0)
    else:
        assert page.reason in {"binary", "lfs-pointer"}


@given(st.text(max_size=200))
def test_any_frontmatter_gives_a_page_that_can_be_stored(inside: str) -> None:
    for fence in ("---", "+++"):
        page = parse_text(f"{fence}\ntitle: {inside}\n{fence}\n\nBody\n")
        collect_texts(page).encode("utf-8")
        assert "Body" in page.body


@pytest.mark.parametrize("name", MALFORMED_TEXTS)
def test_malformed_text_is_read_and_its_blocks_cover_it(name: str) -> None:
    page = parse_text(MALFORMED_TEXTS[name])
    covered = bytearray(len(page.body))
    before = 0
    for block in page.blocks:
        assert before <= block.start < block.end
        before = block.end
        covered[block.start : block.end] = b"\1" * (block.end - block.start)
    assert all(held or char.isspace() for held, char in zip(covered, page.body, strict=True))


@given(markdown_texts)
def test_blocks_cover_every_line_and_know_their_lines(text: str) -> None:
    page = parse_text(text)
    lines = page.body.split("\n")
    held = set()
    for block in page.blocks:
        held.update(range(block.first_line, block.last_line + 1))
        first, last = block.first_line - page.body_line, block.last_line - page.body_line
        assert page.body[block.start : block.end] == "\n".join(lines[first : last + 1])
    assert held.issuperset(page.body_line + at for at, line in enumerate(lines) if line.strip())


@pytest.mark.parametrize(
    ("data", "body", "warned"),
    [
        ("naïve".encode(), "naïve", False),
        (b"\xef\xbb\xbfbom", "bom", False),
        ("wide ☃".encode("utf-16"), "wide ☃", False),
        ("wide ☃".encode("utf-16-be"), "wide ☃", False),
        ("plain text, no mark".encode("utf-16-le"), "plain text, no mark", True),
        ("caf\xe9 \u2013 it\u2019s fine".encode("cp1252"), "café – it’s fine", True),
        (b"nul\x00 in \x07 text", "nul in  text", True),
        (b"one\r\ntwo\r\n", "one\ntwo\n", False),
        (b"one\rtwo\r", "one\ntwo\n", False),
        (b"one\r\r\ntwo\rstill\n", "one\ntwo still\n", False),
    ],
)
def test_encodings_and_line_ends(data: bytes, body: str, warned: bool) -> None:
    if data.startswith(b"\x00w"):
        data = b"\xfe\xff" + data
    page = parse_text(data)
    assert page.body == body
    assert bool(page.warnings) is warned


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12\n", "lfs-pointer"),
        (b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 20, "binary"),
        (b"\x7fELF" + b"\x00\x01\x02\x03" * 100, "binary"),
    ],
)
def test_content_without_text_is_a_problem(data: bytes, reason: str) -> None:
    problem = parse_page("a.md", "blob", data, None)
    assert isinstance(problem, PageProblem)
    assert (problem.file, problem.blob, problem.reason) == ("a.md", "blob", reason)


@pytest.mark.parametrize(
    ("file", "text", "name", "in_content"),
    [
        ("x.md", "---\ntitle: 2024\n---\n# Other\n", "2024", True),
        ("x.md", "# The `first` *heading*\n", "The first heading", True),
        ("x.md", "text\n\n# Later\n", "Later", True),
        ("docs/postgres.md", "# Operations\n\n## Start\n\n# Backups\n", "postgres", False),
        ("docs/postgres/README.md", "# Operations\n\n# Backups\n", "postgres", False),
        ("docs/postgres.md", "---\ntitle: Database\n---\n# Operations\n\n# Backups\n", "Database", True),
        ("docs/postgres.md", "# Operations\n\n```\n# no heading\n```\n", "Operations", True),
        ("dir/getting_started-Now.md", "## Two\n# One\n", "getting started Now", False),
        ("journals/2026_01_05-notes.md", "text", "2026-01-05 notes", False),
        ("dir/home.md", "", "home", False),
        ("x.markdown", "#\n", "x", False),
        ("_.md", "", "_.md", False),
    ],
)
def test_the_name_comes_from_title_then_heading_then_file(file: str, text: str, name: str, in_content: bool) -> None:
    page = parse_text(text, file)
    assert (page.name, page.name_in_content) == (name, in_content)


@pytest.mark.parametrize(
    ("file", "path"),
    [
        ("Home.md", "Home"),
        ("a/b c.md", "a/b c"),
        ("a.MD", "a.MD"),
        ("a.markdown", "a.markdown"),
        ("a.markdown.md", "a.markdown.md"),
        ("a.md.md", "a.md.md"),
        (".md", ".md"),
        ("a/.md", "a/.md"),
        ("v1.2.md", "v1.2"),
    ],
)
def test_a_path_is_the_file_without_its_ending(file: str, path: str) -> None:
    assert get_page_path(file) == path


@given(
    st.sets(
        st.text("ab./", max_size=5).map(lambda stem: stem + ".md")
        | st.text("ab.", max_size=4).map(lambda s: s + ".markdown")
    )
)
def test_no_two_files_share_a_path(files: set[str]) -> None:
    assert len({get_page_path(file) for file in files}) == len(files)


def test_dates_in_the_frontmatter_override_the_commit() -> None:
    said = parse_page("a.md", "b", b"---\nupdated: 2020-01-02\n---\nx", COMMITTED)
    silent = parse_page("a.md", "b", b"x", COMMITTED)
    absurd = parse_page("a.md", "b", b"---\nupdated: 99999-01-02\n---\nx", COMMITTED)
    assert isinstance(said, Page)
    assert isinstance(silent, Page)
    assert isinstance(absurd, Page)
    assert said.metadata.last_updated == datetime(2020, 1, 2, tzinfo=UTC)
    assert silent.metadata.last_updated == COMMITTED
    assert absurd.metadata.last_updated == COMMITTED
    assert absurd.warnings


def test_lines_count_in_the_file_and_not_in_the_body() -> None:
    page = parse_text("---\r\ntitle: x\r\n---\r\n\r\n# One\r\ntext [a](b)\r\n")
    assert page.body_line == 4
    assert page.headings[0].line == 5
    assert page.links[0].line == 6
