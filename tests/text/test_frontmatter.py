"""Frontmatter: any YAML a person may write, and what to do when it is broken."""

import time
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wikiholt.text.frontmatter import split_frontmatter


def make_page(yaml: str) -> str:
    return f"---\n{yaml}\n---\nBody\n"


@pytest.mark.parametrize(
    ("yaml", "field", "value"),
    [
        ("title: 2024", "title", "2024"),
        ("title: 1.10", "title", "1.10"),
        ("title: 2024-01-02", "title", "2024-01-02"),
        ("title: true", "title", "true"),
        ("title: ~", "title", None),
        ("title: ''", "title", None),
        ('title: "a: b"', "title", "a: b"),
        ('title: "a\\0b\\nc"', "title", "ab c"),
        ("Title: Upper", "title", "Upper"),
        ("title: [a, b]", "title", None),
        ("title: >\n  folded\n  text", "title", "folded text"),
        ("title: !!python/object/apply:os.system [x]", "title", None),
        ("title: !custom tagged", "title", "tagged"),
        ("tags: a, b", "tags", ("a", "b")),
        ("tags: [2024, x, x]", "tags", ("2024", "x")),
        ("tags:\n  - one\n  - two words", "tags", ("one", "two words")),
        ("tags: '#a #b'", "tags", ("a", "b")),
        ("tags: single", "tags", ("single",)),
        ("tags:", "tags", ()),
        ("tags: [[a, b], c]", "tags", ("a", "b", "c")),
        ("keywords: x, y\ntags: [z]", "tags", ("z", "x", "y")),
        ("category: Guides", "category", "Guides"),
        ("categories: [A, B]", "category", "A"),
        ("desc: Short", "description", "Short"),
        ("summary: S", "description", "S"),
        ("lang: de", "language", "de"),
        ("search: false", "hidden", True),
        ("search: no", "hidden", True),
        ("search: true", "hidden", False),
        ("updated: 1657897588368", "last_updated", datetime(2022, 7, 15, 15, 6, 28, 368000, tzinfo=UTC)),
        ("updated: 1657897588", "last_updated", datetime(2022, 7, 15, 15, 6, 28, tzinfo=UTC)),
        ("last_updated: 2026-03-12", "last_updated", datetime(2026, 3, 12, tzinfo=UTC)),
        ("lastUpdated: 2026/3/2", "last_updated", datetime(2026, 3, 2, tzinfo=UTC)),
        ("modified: 2024-01-01T10:00:00+02:00", "last_updated", datetime(2024, 1, 1, 8, tzinfo=UTC)),
        ("date: 2024-01-01 10:00:00 -0500", "last_updated", datetime(2024, 1, 1, 15, tzinfo=UTC)),
        ("date: 2024-01-01 10:00:00 Z", "last_updated", datetime(2024, 1, 1, 10, tzinfo=UTC)),
        ("date: Mon, 01 Jan 2024 10:00:00 GMT", "last_updated", datetime(2024, 1, 1, 10, tzinfo=UTC)),
        ("date: 2019", "last_updated", datetime(2019, 1, 1, tzinfo=UTC)),
        ("date: 20190203", "last_updated", datetime(2019, 2, 3, tzinfo=UTC)),
        ("date: 1", "last_updated", None),
        ("date: 0001-01-01", "last_updated", None),
        ("date: 2024-13-45", "last_updated", None),
        ("date: soon", "last_updated", None),
        ("date: [2024]", "last_updated", None),
        ("updated: soon\ndate: 2024-01-01", "last_updated", datetime(2024, 1, 1, tzinfo=UTC)),
    ],
)
def test_fields_in_every_notation(yaml: str, field: str, value: object) -> None:
    read = split_frontmatter(make_page(yaml))
    assert getattr(read.metadata, field) == value
    assert read.body == "Body\n"


@pytest.mark.parametrize(
    "yaml",
    [
        "title: Kept\n\tbad: tab",
        "title: Kept\nfoo: [unclosed",
        "title: Kept\nfoo: bar: baz",
        "title: Kept\n{{ template }}",
        "title: 'Kept'\n- list in map",
        "title: Kept\nfoo: @at",
        "title: Kept\nfoo: *undefined",
        "title: Kept\na: " + "[" * 5_000,
        "title: Kept\na:\n  " + "- " * 5_000 + "x",
        "title: Kept\na: " + "[" * 30_000 + "]" * 30_000,
        "title: Kept\na: " + "{a: " * 12_000 + "}" * 12_000,
        "title: Kept\na: &a [*a]",
        "title: Kept\n" + "k: v\n" * 40_000,
        "title: Kept\n? [complex]\n: key",
    ],
)
def test_broken_yaml_keeps_the_title_and_stays_out_of_the_body(yaml: str) -> None:
    read = split_frontmatter(make_page(yaml))
    assert read.metadata.title == "Kept"
    assert read.body == "Body\n"
    assert read.warnings


def test_a_missing_closing_mark_is_not_part_of_the_value() -> None:
    front = split_frontmatter('---\ntags: [a, b\ntitle: "oops\n---\n# Body\n')
    assert (front.metadata.title, front.metadata.tags) == ("oops", ("a", "b"))
    assert "could not be read in full" in front.warnings[0]


@pytest.mark.parametrize("title", ["[WIP] Deploy guide", '"Foo" and bar', "[[Page]] and more"])
def test_marks_around_the_start_of_a_title_are_part_of_it(title: str) -> None:
    assert split_frontmatter(make_page(f"title: {title}\ntags: [a]")).metadata.title == title


def test_lists_survive_broken_yaml() -> None:
    read = split_frontmatter(make_page("title: {{ x }}\ntags:\n  - a\n  - 'b'\ncategory: \"C\"\nkeywords: [d, e]"))
    assert read.metadata.title == "{{ x }}"
    assert read.metadata.tags == ("a", "b", "d", "e")
    assert read.metadata.category == "C"


def test_yaml_bombs_are_harmless() -> None:
    levels = "a0: &a0 [x,x,x,x,x,x,x,x,x]\n" + "".join(
        f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 30)
    )
    began = time.process_time()
    read = split_frontmatter(make_page(f"title: Bomb\n{levels}tags: *a29"))
    assert read.metadata.title == "Bomb"
    merged = "m0: &m0 {x: 1}\n" + "".join(
        f"m{n}: &m{n}\n  <<: [{','.join([f'*m{n - 1}'] * 9)}]\n" for n in range(1, 12)
    )
    assert split_frontmatter(make_page(f"title: Merge\n{merged}")).metadata.title == "Merge"
    assert time.process_time() - began < 5


@pytest.mark.parametrize(
    "text",
    [
        "---\nno closing line\n",
        "---\n\nSome text between rules.\n\n---\n\nMore.\n",
        "--- \n# Heading\n\nProse: here, and\nmore prose\n",
        "text\n---\na: b\n---\n",
        "----\na: b\n----\n",
        "---\n- a list\n- of things\n---\nBody\n",
        "---",
        "",
    ],
)
def test_a_rule_at_the_start_is_not_frontmatter(text: str) -> None:
    read = split_frontmatter(text)
    assert read.body == text
    assert read.body_line == 1


def test_toml_is_read_too() -> None:
    read = split_frontmatter(
        '+++\ntitle = "T"\ntags = ["a", "b"]\ndate = 2024-01-02T03:04:05Z\nsearch = false\n+++\nBody'
    )
    assert read.metadata.title == "T"
    assert read.metadata.tags == ("a", "b")
    assert read.metadata.last_updated == datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert read.metadata.hidden
    assert (read.body, read.body_line) == ("Body", 7)
    assert split_frontmatter("+++\ntitle = 'T\nx\n+++\nBody").body == "Body"


def test_empty_frontmatter_and_other_closing_lines() -> None:
    assert split_frontmatter("---\n---\nBody").body == "Body"
    assert split_frontmatter("---\ntitle: x\n...\nBody").metadata.title == "x"
    assert split_frontmatter("---  \ntitle: x\n---\t\nBody").metadata.title == "x"
    assert split_frontmatter("---\ntitle: x\n---").body == ""


@given(st.text(st.sampled_from("ab:-[]{}&*!|>'\"#%@`,? \n\t0<"), max_size=60))
def test_nothing_between_the_fences_raises_or_leaks(inside: str) -> None:
    read = split_frontmatter(f"---\ntitle: T\n{inside}\n---\nBody")
    assert read.body.endswith("Body")
