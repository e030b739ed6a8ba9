import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.git_repository import Repository
from wikiholt.git.source import GitSource
from wikiholt.text.ignore_patterns import build_matcher

FILES = [
    "Home.md",
    "private.md",
    "private/a.md",
    "x/private/b.md",
    "drafts/a.md",
    "drafts/deep/b.md",
    "x/drafts/c.md",
    "x/y.tmp.md",
    "a[1].md",
    "a1.md",
    "notes/2024/may.md",
    "notes/may.md",
]


@pytest.mark.parametrize(
    ("patterns", "left_out"),
    [
        ([], set()),
        (["drafts/**"], {"drafts/a.md", "drafts/deep/b.md"}),
        (["drafts"], {"drafts/a.md", "drafts/deep/b.md", "x/drafts/c.md"}),
        (["drafts/"], {"drafts/a.md", "drafts/deep/b.md", "x/drafts/c.md"}),
        (["/drafts/"], {"drafts/a.md", "drafts/deep/b.md"}),
        (["Home.md/"], set()),
        (["*.tmp.md"], {"x/y.tmp.md"}),
        (["/private"], {"private/a.md"}),
        (["private*"], {"private.md", "private/a.md", "x/private/b.md"}),
        (["notes/*.md"], {"notes/may.md"}),
        (["notes/**/may.md"], {"notes/may.md", "notes/2024/may.md"}),
        (["**/may.md"], {"notes/may.md", "notes/2024/may.md"}),
        (["a?.md"], {"a1.md"}),
        (["a[0-9].md"], {"a1.md"}),
        (["a[!0-9].md"], set()),
        (["a\\[1\\].md"], {"a[1].md"}),
        (["home.md"], set()),
        (["# drafts", "", "  ", "!", "/"], set()),
        (["drafts", "!drafts/deep/"], {"drafts/a.md", "x/drafts/c.md"}),
        (["!drafts", "drafts"], {"drafts/a.md", "drafts/deep/b.md", "x/drafts/c.md"}),
        (["**"], set(FILES)),
    ],
)
def test_patterns_exclude_matching_files(patterns: list[str], left_out: set[str]) -> None:
    ignored = build_matcher(patterns)
    assert {file for file in FILES if ignored(file)} == left_out


def test_ignored_files_are_not_in_the_tree(repository: Repository) -> None:
    commit = repository.commit({"docs/Home.md": "a", "docs/drafts/x.md": "b", "drafts/y.md": "c"})
    source = GitSource(repository.path, subdirectory="docs", ignore=["/drafts"])
    assert list(source.read_tree(commit)) == ["Home.md"]


@given(st.text(max_size=30), st.text(alphabet="ab/.*[]!\\-^md", min_size=1, max_size=20))
def test_any_text_is_a_pattern_that_answers(pattern: str, path: str) -> None:
    assert build_matcher([pattern])(path) in (True, False)


@given(st.lists(st.text(alphabet="abc*?[]!\\ ü", min_size=1, max_size=6), min_size=1, max_size=4))
def test_an_escaped_path_is_left_out_and_nothing_beside_it(parts: list[str]) -> None:
    path = "/".join(part.strip() or "x" for part in parts) + ".md"
    escaped = "/" + re.sub(r"([\\*?\[\]!])", r"\\\1", path)
    ignored = build_matcher([escaped])
    assert ignored(path)
    assert not ignored(f"{path}x")
    assert not ignored(f"x{path}")


@pytest.mark.parametrize(
    "pattern", ["*a" * 40 + "*b", "*?" * 40 + "b", "/" + "**/a/" * 12 + "b", "**/*a*a*a*a*/" * 6 + "b"]
)
def test_every_pattern_ends_in_bounded_time(pattern: str) -> None:
    ignored = build_matcher([pattern])
    began = time.process_time()
    assert not ignored("a" * 252 + ".md")
    assert not ignored("a/" * 120 + "x.md")
    assert not ignored(("a" * 40 + "/") * 20 + "x.md")
    assert time.process_time() - began < 20


@given(st.text(alphabet="ab*?/", min_size=1, max_size=9), st.text(alphabet="ab/", min_size=1, max_size=10))
def test_wildcards_match_as_if_every_place_were_tried(pattern: str, path: str) -> None:
    path = "/".join(part for part in path.split("/") if part) or "a"
    body = pattern.rstrip("/")
    plain = re.escape(body.lstrip("/")).replace(r"\?", "[^/]")
    plain = re.sub(r"(?:(?<=/)|\A)\\\*\\\*\Z", ".+", plain)
    plain = re.sub(r"(?:(?<=/)|\A)\\\*\\\*/", "(?:[^/]+/)\x00", plain)
    plain = re.sub(r"(?:\\\*)+", "[^/]*", plain).replace("\x00", "*")
    start = "" if "/" in body else "(?:.*/)?"
    end = "/" if pattern.endswith("/") else r"(?:/|\Z)"
    expected = bool(body.strip("/")) and bool(re.match(start + plain + end, path))
    assert build_matcher([pattern])(path) == expected, (plain, path)
