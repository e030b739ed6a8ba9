"""The outline of a page: headings, links and blocks, and its time limit."""

import time

import pytest

from wikiholt.text.markdown import parse_outline


def test_headings_of_both_kinds_outside_code() -> None:
    body = "Top\n===\n\n# A `b` [c](d)\n\n```\n# no\n```\n\n    # nor this\n\n"
    body += "Sub\nline\n---\n\n> ## quoted\n\n- # listed\n\n#no\n####### no\n"
    found = parse_outline(body, 11).headings
    assert [(h.level, h.text, h.line) for h in found] == [
        (1, "Top", 11),
        (1, "A b c", 14),
        (2, "Sub line", 22),
        (2, "quoted", 26),
        (1, "listed", 28),
    ]


def test_links_of_every_kind_outside_code() -> None:
    body = """[a](b.md) ![img](i.png "title") [[Wiki Page]] [[Shown|/target]] <https://auto.link>
`[no](no)` [ref][r] [short] [r][] https://bare.link/x_(y). and \\[not](alink)
```
[no](no)
```
[![badge](b.svg)](https://target) [sp](<with space>) [`code`](c)

[r]: /reference "t"
[short]: s.md
"""
    links = [(link.target, link.text, link.line) for link in parse_outline(body).links]
    assert links == [
        ("b.md", "a", 1),
        ("i.png", "img", 1),
        ("Wiki Page", "Wiki Page", 1),
        ("/target", "Shown", 1),
        ("https://auto.link", "https://auto.link", 1),
        ("/reference", "ref", 2),
        ("s.md", "short", 2),
        ("/reference", "r", 2),
        ("https://bare.link/x_(y)", "https://bare.link/x_(y)", 2),
        ("https://target", "badge", 6),
        ("b.svg", "badge", 6),
        ("with space", "sp", 6),
        ("c", "code", 6),
    ]


def test_blocks_have_their_kind() -> None:
    body = "para\n\n# h\n\n```\nx\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n- i\n- j\n\n> q\n\n"
    body += "<div>\n</div>\n\n---\n\n    code\n\n[a]: b\n"
    kinds = [block.kind for block in parse_outline(body).blocks]
    assert kinds == [
        "paragraph",
        "heading",
        "fence",
        "table",
        "list",
        "list",
        "quote",
        "html",
        "rule",
        "code",
        "definition",
    ]


HOSTILE_TEXTS = {
    "headings": "# h\n\n" * 100_000,
    "table": "|a|b|\n|-|-|\n" + "|x|y|\n" * 100_000,
    "unclosed fence": "```\n" + "# x\n" * 200_000,
    "quotes": ">" * 200_000,
    "brackets": "[a](" * 100_000,
    "open brackets": "[" * 200_000,
    "backticks": "`` ` " * 100_000,
    "code spans": "`a` [x](y) " * 50_000,
    "nested list": "".join("  " * n + "- a\n" for n in range(1_000)),
    "comments": "<!-- " * 100_000,
    "one line": "word " * 400_000,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", HOSTILE_TEXTS)
def test_large_and_hostile_pages_take_seconds(name: str) -> None:
    began = time.process_time()
    found = parse_outline(HOSTILE_TEXTS[name])
    assert time.process_time() - began < 20
    assert found.blocks
