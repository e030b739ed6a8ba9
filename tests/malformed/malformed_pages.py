"""Malformed pages, as committed by accident or on purpose. They are generated here."""

import base64
import random
from itertools import islice

from tests.support.hostile_text import HOSTILE_PIECES
from tests.support.tiers import choose

_SAMPLE_LINE = "The kettle is descaled every month, and the filter beside it is changed in spring.\n"
_PAGE_BYTES = 24_000


def make_prose(size: int) -> bytes:
    """An ordinary page of about this size: sentences, headings and links."""
    parts: list[str] = []
    length = 0
    for number in range(size):
        if length >= size:
            break
        part = f"## Part {number}\n\n" + _SAMPLE_LINE * 4 + f"See [the manual](manual-{number}.md).\n\n"
        parts.append(part)
        length += len(part)
    return "".join(parts)[:size].encode()


def _make_frontmatter(inside: str) -> bytes:
    return f"---\n{inside}\n---\n\n# Below the matter\n\nordinary text\n".encode()


def _nest(opening: str, closing: str, depth: int) -> str:
    return opening * depth + "deep" + closing * depth


def _make_frontmatter_pages() -> dict[str, bytes]:
    bomb = "\n".join(f"{chr(98 + n)}: &{chr(98 + n)} [{', '.join(['*' + chr(97 + n)] * 9)}]" for n in range(9))
    wide = f"a: &a {'x' * 9000}\nb: &b [{','.join(['*a'] * 1000)}]\nc: [{','.join(['*b'] * 1000)}]"
    return {
        "broken-yaml": _make_frontmatter("title: [unclosed\ntags: {a: b\n\tx: 'y"),
        "yaml-tab": _make_frontmatter("title:\ttabbed\n\ttags: a"),
        "year-title": _make_frontmatter("title: 2024"),
        "float-title": _make_frontmatter("title: 1.10\ncategory: 007\ntags: [1, 2.0, 0x1F, yes, no, null, ~]"),
        "list-title": _make_frontmatter("title: [a, b]\ncategory: {a: b}\ndescription: [x]"),
        "null-title": _make_frontmatter("title: null\ntags: ~\ncategory:\ndate: null"),
        "date-title": _make_frontmatter("title: 2024-01-01\ndate: 2024-13-45\nupdated: 99999-01-01T00:00:00Z"),
        "nested-title": _make_frontmatter("title:\n  en: {deep: {deeper: {deepest: [1, [2, [3, [4]]]]}}}"),
        "duplicate-keys": _make_frontmatter("title: one\ntitle: two\ntags: a\ntags: b\nTitle: three"),
        "yaml-bomb": _make_frontmatter(f"a: &a [lol, lol]\n{bomb}"),
        "yaml-wide-bomb": _make_frontmatter(wide),
        "yaml-self": _make_frontmatter("a: &a [*a, *a]\ntitle: &t {x: *t}"),
        "yaml-merge": _make_frontmatter("a: &a {x: y}\nb: {<<: *a}\n<<: [*a, *a]\ntitle: merged"),
        "yaml-tags": _make_frontmatter(
            "title: !!python/object/apply:os.system ['echo x']\ntags: !!binary aGk=\na: !<x> b"
        ),
        "yaml-deep": _make_frontmatter("a: " + "[" * 2000 + "]" * 2000),
        "yaml-deep-map": _make_frontmatter("".join("  " * n + f"k{n}:\n" for n in range(400))),
        "yaml-dashes": _make_frontmatter("a: " + "- " * 4000 + "x"),
        "yaml-documents": b"---\na: 1\n---\nb: 2\n---\nc: 3\n",
        "yaml-directives": b"---\n%YAML 1.2\n%TAG ! x:\ntitle: t\n---\ntext\n",
        "yaml-unclosed": b"---\ntitle: never closed\n" + make_prose(2000),
        "yaml-only": b"---\ntitle: nothing but matter\n---",
        "yaml-controls": b"---\ntitle: a\x00b\x1b[31mc\x07\ntags: ['\x08', \x7f, \xc2\x85]\n---\ntext\n",
        "yaml-anchor-name": _make_frontmatter("title: &" + "x" * 5000 + " t"),
        "yaml-100-kilobytes": _make_frontmatter("x: " + "y" * 100_000 + "\ntitle: far"),
        "huge-tags": _make_frontmatter("tags: [" + ", ".join("t" * 900 + str(n) for n in range(60)) + "]"),
        "many-tags": _make_frontmatter("tags: [" + ", ".join(f"tag{n}" for n in range(5000)) + "]"),
        "comma-tags": _make_frontmatter(
            "tags: ['a,b', \",,\", 'c, d', '#e', ' f ', \"g\\nh\", '\"', '%', '_', '\\\\']"
        ),
        "space-tags": _make_frontmatter("tags: " + "\u00a0" * 9000 + "#a"),
        "space-date": _make_frontmatter("date: 2020-01-01" + "\u00a0" * 9000 + "+01"),
        "toml": b"+++\ntitle = 2024\ntags = [1, [2], {a = 3}]\ndate = 1979-05-27T07:32:00Z\n+++\ntext\n",
        "toml-deep": b"+++\na = " + b"[" * 3000 + b"]" * 3000 + b"\n+++\ntext\n",
        "toml-number": b"+++\ntitle = " + b"9" * 6000 + b"\n+++\ntext\n",
        "toml-broken": b"+++\ntitle = = =\n+++\ntext\n",
    }


def _make_encoding_pages() -> dict[str, bytes]:
    noise = random.Random(4).randbytes(_PAGE_BYTES)
    return {
        "latin-1": "caf\xe9 d\xe9j\xe0 vu, na\xefve\n".encode("latin-1") * 50,
        "cp1252-holes": b"a \x81\x8d\x8f\x90\x9d hole\n" * 40,
        "utf-16": ("# Wide\n\n" + _SAMPLE_LINE * 20).encode("utf-16"),
        "utf-16-no-mark": ("# Wide\n\n" + _SAMPLE_LINE * 20).encode("utf-16-le"),
        "utf-32": ("# Wider\n\n" + _SAMPLE_LINE * 20).encode("utf-32"),
        "utf-16-halved": ("# Wide\n\n" + _SAMPLE_LINE * 20).encode("utf-16")[:-1],
        "mark-alone": b"\xef\xbb\xbf",
        "mark-and-matter": b"\xef\xbb\xbf---\ntitle: marked\n---\ntext\n",
        "two-marks": b"\xef\xbb\xbf\xef\xbb\xbf# Two\n",
        "not-utf-8": b"fine \xff\xfe\xfa not fine \xc3\x28\n" * 30,
        "cut-character": "…".encode()[:2],
        "overlong": b"\xc0\xaf\xe0\x80\xaf\xf0\x80\x80\xaf" * 20,
        "lone-surrogates": b"a \xed\xa0\x80 b \xed\xbf\xbf c\n" * 30,
        "surrogates-utf-16": b"\xff\xfea\x00\x00\xd8b\x00\x00\xdc",
        "nul": b"before\x00after\n# Head\x00ing\n" * 20,
        "nothing-but-nul": b"\x00" * _PAGE_BYTES,
        "controls": bytes(range(32)) * 10 + _SAMPLE_LINE.encode() * 50,
        "escapes": b"\x1b[2J\x1b]0;title\x07\x1b[31mred\x1b[0m " * 40,
        "c1-controls": "\x80\x9b31m\x9d0;x\x9c \x85".encode() * 40,
        "noise": noise,
        "noise-with-head": b"# Text at first\n\n" + noise,
        "png": b"\x89PNG\r\n\x1a\n" + noise[:2000],
        "windows": (b"---\r\ntitle: CRLF\r\n---\r\n# One\r\n\r\n- a\r\n- b\r\n" + _SAMPLE_LINE.encode()[:-1] + b"\r\n")
        * 3,
        "old-mac": b"---\rtitle: CR\r---\r# One\r\rtext\r",
        "mixed-ends": b"# One\r\ntext\rmore\n\r\n\n\r```\r\ncode\r```\n",
        "separators": "a\u2028b\u2029c\u0085d\x0be\x0cf\x1cg\x1dh\x1ei\n".encode() * 30,
        "empty": b"",
        "blank": b" \n\t\n \n",
        "one-byte": b"x",
        "lfs": b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 12345\n",
        "lfs-like": b"version https://git-lfs.github.com/spec/v1\n" + make_prose(3000),
    }


def _make_script_pages() -> dict[str, bytes]:
    texts = {
        "right-to-left": "# עברית\n\nשלום עולם، مرحبا بالعالم؟ سلام دنیا۔ " * 60,
        "bidi-overrides": "# \u202egnp.exe\u202c\n\n\u2066a\u2069 \u202b\u202d\u200f[\u202elink](a\u202e.md) " * 60,
        "bidi-unclosed": "\u202e" * 3000 + "text" + "\u2067" * 3000,
        "emoji": "👩‍👩‍👧‍👦🏳️‍🌈🇩🇪👍🏽 # ❤️\n" * 300,
        "joiners": "\u200d" * 6000 + "a" + "\u200c" * 6000,
        "zero-width": "\u200b\ufeff\u2060" * 4000 + "# hidden",
        "marks": "Z" + "\u0353\u0347\u0334" * 4000,
        "marks-alone": "\u0301" * 9000,
        "han": "漢字かな交じり文。" * 1500,
        "hangul-jamo": "\u1112\u1161\u11ab" * 3000,
        "thai": "ภาษาไทยไม่มีช่องว่าง" * 600,
        "devanagari": "क्षत्रिय ज्ञान " * 900,
        "expanding": "ﷺ" * 4000 + "ŉ" * 2000 + "İ" * 2000 + "ß" * 2000,
        "astral": "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 \U000e0067\U0010fffd " * 700,
        "private-and-none": "\ue000\uffff\ufffe\U0001fffe \ufdd0 " * 900,
        "tags-block": "\U000e0001" + "".join(chr(0xE0000 + n) for n in range(32, 127)) * 60,
    }
    return {name: text.encode() for name, text in texts.items()}


def _make_structure_pages() -> dict[str, bytes]:
    texts = {
        "deep-list": "".join("  " * n + "- a\n" for n in range(200)),
        "deep-quotes": ">" * 9000 + " deep",
        "deep-quote-list": "> - " * 3000 + "deep",
        "deep-brackets": _nest("[", "]", 9000),
        "deep-links": _nest("[a](", ")", 4000),
        "deep-pictures": _nest("![a](", ")", 4000),
        "deep-emphasis": _nest("*a ", "*", 5000) + _nest("**a_", "_**", 3000),
        "deep-html": _nest("<div>", "</div>", 4000),
        "deep-html-open": "<b><i>" * 4000,
        "deep-parentheses": "[a](" + "(" * 9000 + ")" * 9000 + ")",
        "backticks": "".join("`" * n + " " for n in range(1, 200)),
        "fence-unclosed": "# Before\n\n```\n" + "# no heading\n" * 1500,
        "fence-in-fence": "`````\n````\n```\n# no\n```\n````\n`````\n# yes\n" * 100,
        "headings": "# h\n" * 6000,
        "headings-empty": "#\n" * 6000,
        "headings-alike": "## Same\n\ntext\n\n" * 1500 + "## Same-1\n\n## Same-1\n",
        "heading-endless": "a\n" * 9000 + "===\n\n" + _SAMPLE_LINE * 100,
        "heading-long": "# " + "long " * 6000 + "\n\n" + _SAMPLE_LINE * 200,
        "duplicate-ids": "<h2 id='x'>a</h2>\n\n<p id='x' name='x'>b</p>\n\n## x\n\n## x\n" * 200,
        "rules": "---\n\n***\n\n___\n\n" * 1200,
        "giant-table": "| a | b |\n|---|---|\n" + "| cell *x* | [y](z) |\n" * 1500,
        "wide-table": "|" + "a|" * 5000 + "\n|" + "-|" * 5000 + "\n|" + "b|" * 5000 + "\n",
        "ragged-table": "|a|\n|-|-|-|\n||||||||\n|\\||`|`|\n" * 500,
        "base64": "![x](data:image/png;base64,"
        + base64.b64encode(random.Random(5).randbytes(_PAGE_BYTES)).decode()
        + ")\n",
        "base64-bare": base64.encodebytes(random.Random(6).randbytes(_PAGE_BYTES)).decode(),
        "hex": random.Random(7).randbytes(_PAGE_BYTES).hex(),
        "minified": "function(a,b){return a?b:c};" * 1000,
        "one-word": "x" * 100_000,
        "one-line": "word " * 20_000,
        "spaces": "a" + " " * 60_000 + "b",
        "tabs": "a" + "\t" * 60_000 + "b",
        "newlines": "a" + "\n" * 60_000 + "b",
        "dots": "." * 60_000,
        "definitions": "".join(f"[{n}]: http://x.example/{n}\n" for n in range(1500)) + "[1] [2][3] [1499][]",
        "definitions-alike": "[a]: b\n" * 3000 + "[a] " * 3000,
        "footnotes": "[^a] " * 4000 + "\n\n" + "[^a]: x\n\n" * 1000,
        "link-of-a-megabyte": "[x](" + "a/" * choose(500_000, 100_000) + "b.md)",
        "wiki-link-of-a-megabyte": "[[" + "a" * choose(1_000_000, 200_000) + "]]",
        "url-of-a-megabyte": "https://x.example/" + "%2e" * choose(330_000, 66_000),
        "links-by-the-thousand": "".join(f"[l{n}](p{n}.md) [[p{n}]] " for n in range(8000)),
        "links-out": "[a](../../../../etc/passwd) [[../../x]] [b](//x.example) [c](\\\\x\\y) [d](file:///etc/passwd)"
        * 90,
        "links-odd": "[a](%00) [b](%ff%fe) [c](%) [d](\\)) [e](<>) [f]() [[|]] [[ | ]] [[#]] [[^]] [[a|b|c]] [[a\\|b]]"
        * 90,
        "comments": "<!--" * 5000,
        "comment-unclosed": _SAMPLE_LINE + "<!-- " + _SAMPLE_LINE * 200,
        "tags-unclosed": "<a " * 6000,
        "entities": "&#0;&#xD800;&#x110000;&amp;&lt;script&gt;&NotAnEntity;&" * 400,
        "instructions": "<?php system('x'); ?><![CDATA[x]]><!DOCTYPE x [<!ENTITY y 'z'>]>&y;" * 200,
        "templates": "{{ 7*7 }} {% include '/etc/passwd' %} ${7*7} #{7*7} <%= x %> $(id) `id`" * 200,
        "sql": "'; DROP TABLE pages; -- \" OR 1=1 NEAR(a b) * ^ body:x col : {a b} : c" * 200,
    }
    return {name: text.encode() for name, text in texts.items()}


def _make_hostile_pages() -> dict[str, bytes]:
    """Pages with forty repeated pieces each that make bad regular expressions slow."""
    pieces = iter(HOSTILE_PIECES)
    pages: dict[str, bytes] = {}
    while group := list(islice(pieces, 40)):
        text = "\n\n".join(piece * (600 // len(piece) + 1) for piece in group)
        pages[f"hostile-{len(pages)}"] = text.encode("utf-8", "replace")
    return pages


MALFORMED_PAGES: dict[str, bytes] = (
    _make_frontmatter_pages()
    | _make_encoding_pages()
    | _make_script_pages()
    | _make_structure_pages()
    | _make_hostile_pages()
)
"""Malformed pages by name of their defect."""

LARGE_PAGES: dict[str, bytes] = {
    "fifty-megabytes": b"fifty million times nothing\n" * choose(1_872_458, 380_000),
    "ten-megabyte-line": b"x" * 10 * 1024 * 1024,
    "headings-by-the-hundred-thousand": b"# h\n" * choose(100_000, 20_000),
    "a-million-newlines": b"\n" * choose(1_000_000, 300_000) + b"# end\n",
}
"""Pages that are only large."""

ODD_NAMES: tuple[bytes, ...] = (
    b"Case.md",
    b"case.md",
    b"CASE.md",
    b"CASE.MD",
    "caf\u00e9.md".encode(),
    "cafe\u0301.md".encode(),
    "\ufb01sh.md".encode(),
    b"fish.md",
    b"new\nline.md",
    b"tab\tand\x01control.md",
    b"'single' \"double\" `back`.md",
    b" leading.md",
    b"trailing .md",
    b" /inner / spaces .md",
    b"-rf.md",
    b"--output=x.md",
    b"--/--.md",
    b"n" * 252 + b".md",
    b"/".join([b"deep"] * 60) + b"/page.md",
    b"invalid-\xff\xfe.md",
    b"invalid-\\xff\\xfe.md",
    b"invalid-\xed\xa0\x80.md",
    b"back\\slash.md",
    b"colon:name.md",
    b"star*question?.md",
    b"hash#tag.md",
    b"per%cent%20%2F.md",
    b"a.md.md",
    b"a.md",
    b"a",
    b"x.markdown",
    b"...md",
    b"....md",
    b"~.md",
    b"con.md",
    b"$(id).md",
    b"; rm -rf x;.md",
    b"[[link]].md",
    b"<script>alert(1)<.md",
    "\u202egnp.md".encode(),
    "👩‍👩‍👧.md".encode(),
    "\u200b.md".encode(),
    "\u2028.md".encode(),
    b"history/history.md",
    b"rename.md",
    b"pages/api/v1.md",
    b":(glob)**.md",
    b"HEAD.md",
    b"HEAD:x.md",
    b"@{-1}.md",
    b"\xc2\x85.md",
)
"""Unusual file names that git accepts."""
