"""Test texts: random Markdown, and inputs that have broken other programs."""

import re
from collections.abc import Sequence

from hypothesis import strategies as st

from wikiholt.domain.page import Page
from wikiholt.text.page_parser import parse_page

_TOKEN = re.compile(r"[^\W_]{1,7}|[^\w\s]|_")


def get_token_spans(text: str) -> Sequence[tuple[int, int]]:
    """A small tokenizer: pieces of words and single marks. A cut never makes more tokens than its length."""
    return [found.span() for found in _TOKEN.finditer(text)]


def parse_text(text: str | bytes, file: str = "page.md") -> Page:
    page = parse_page(file, "b", text.encode("utf-8", "replace") if isinstance(text, str) else text, None)
    assert isinstance(page, Page)
    return page


_word = st.one_of(
    st.sampled_from(
        ["alpha", "Beta", "gamma", "delta.", "End!", "kubectl_apply", "`code`", "**bold**", "[a](b)", "東京都。"]
    ),
    st.text(min_size=1, max_size=12),
)
_line = st.lists(_word, min_size=1, max_size=40).map(" ".join)
_block = st.one_of(
    _line,
    st.builds(lambda n, t: "#" * n + " " + t, st.integers(1, 6), st.text("abc XYZ*`é", max_size=12)),
    st.builds(lambda t, c: f"{t}\n{c * 4}", st.text("abc d", min_size=1, max_size=12), st.sampled_from("=-")),
    st.builds(lambda t: f"```py\n{t}\n```", st.lists(_line, max_size=20).map("\n".join)),
    st.builds(lambda t: f"~~~\n# not a heading\n{t}", _line),
    st.lists(_line, min_size=1, max_size=8).map(
        lambda rows: "| a | b |\n|---|---|\n" + "\n".join(f"| {r} | x |" for r in rows)
    ),
    st.lists(_line, min_size=1, max_size=8).map(lambda rows: "\n".join(f"- {r}" for r in rows)),
    st.builds(lambda t: f"> {t}\n> {t}", _line),
    st.sampled_from(
        ["<div>\nx\n</div>", "---", "[a]: http://x", "<!-- hidden -->", "    indented code", "x" * 400, "。" * 9]
    ),
)
markdown_texts = st.lists(st.tuples(_block, st.sampled_from(["\n", "\n\n", "\n\n\n", " "])), max_size=14).map(
    lambda parts: "".join(block + gap for block, gap in parts)
)

MALFORMED_TEXTS: dict[str, str] = {
    "empty": "",
    "blank": " \n\t\n ",
    "headings only": "# h\n\n" * 300,
    "setext without end": "a\n" * 200 + "===",
    "unclosed fence": "```\n" + "x = 1\n" * 300,
    "fence with longer close": "````\n```\n# no\n```\n````\n# yes\n",
    "deep quotes": ">" * 2000 + " x",
    "deep list": "".join("  " * n + "- a\n" for n in range(120)),
    "dashes": "- " * 2000 + "x",
    "brackets": "[" * 2000 + "]" * 2000,
    "link openers": "[a](" * 2000,
    "stars": "*" * 3000 + "a" + "_" * 3000,
    "backticks": "".join("`" * n + " " for n in range(1, 90)),
    "one word": "x" * 20_000,
    "one base64 word": "aB3/" * 5_000,
    "cjk": "漢字かな交じり文" * 700,
    "thai": "ภาษาไทย" * 700,
    "emoji": "👩‍👩‍👧‍👦" * 500,
    "zero width": "\u200b" * 5000 + "a",
    "marks": "e" + "\u0301" * 5000,
    "spaces": "a" + " " * 20_000 + "b",
    "blank lines": "a" + "\n" * 20_000 + "b",
    "giant table": "|a|b|\n|-|-|\n" + "|x y|z|\n" * 2_000,
    "wide table": "|" * 5_000 + "\n" + "|-" * 5_000,
    "comments": "<!--" * 2_000,
    "tags": "<a " * 3_000,
    "entities": "&#0;&#xD800;&amp;&lt;script&gt;" * 50,
    "dots": "." * 20_000,
    "sentence": "word " * 3_000,
    "separators": "a\u2028b\u2029c\u0085d\x0be\x0cf\x1cg",
    "right to left": "\u202eabc\u202c שלום " * 50,
    "definitions": "[a]: x\n" * 500,
}
