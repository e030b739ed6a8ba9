"""Markdown as HTML: readable content without active content."""

import re
import time
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.html_attacks import ATTACKS
from tests.support.tiers import limit_examples
from wikiholt.domain.page import Page
from wikiholt.interfaces.web.markdown_rules import color_code
from wikiholt.interfaces.web.renderer import MAX_PAGE_CHARS, highlight_words, render_markdown
from wikiholt.interfaces.web.sanitizer import measure_depth
from wikiholt.text.dialect import GOLLUM, MKDOCS, OBSIDIAN, Dialect
from wikiholt.text.page_parser import parse_page

PAGES = {"Growing/Pests", "Home", "Other page"}
ALLOWED = {
    *("a", "abbr", "b", "bdi", "bdo", "blockquote", "br", "caption", "cite", "code", "col", "colgroup", "dd", "del"),
    *("details", "dfn", "div", "dl", "dt", "em", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "i", "img", "ins", "kbd"),
    *("li",),
    *("mark", "ol", "p", "pre", "q", "rp", "rt", "ruby", "s", "samp", "small", "span", "strong", "sub", "summary"),
    *("sup", "table", "tbody", "td", "tfoot", "th", "thead", "time", "tr", "u", "ul", "var", "wbr"),
    *("math", "menclose", "mfrac", "mi", "mn", "mo", "mover", "mpadded", "mphantom", "mroot", "mrow", "mspace"),
    *("msqrt", "mstyle", "msub", "msubsup", "msup", "mtable", "mtd", "mtext", "mtr", "munder", "munderover"),
}
ATTRIBUTES = {
    *("href", "title", "rel", "id", "class", "start", "colspan", "rowspan", "span", "open", "datetime", "dir"),
    *("src", "alt", "loading", "width", "height", "tabindex", "role", "aria-label"),
    *("accent", "columnalign", "depth", "display", "displaystyle", "fence", "form", "linethickness", "lspace"),
    *("mathvariant", "maxsize", "minsize", "movablelimits", "notation", "rspace", "scriptlevel", "separator"),
    *("stretchy", "voffset"),
}


def parse_text(text: str, file: str = "Growing/Crops.md") -> Page:
    page = parse_page(file, "0" * 40, text.encode("utf-8", "replace"), None)
    assert isinstance(page, Page)
    return page


def resolve_link(target: str, wiki: bool) -> str | None:
    place = target.partition("#")[0].removesuffix(".md").replace("%20", " ")
    return place if place in PAGES else None


def render_html(text: str) -> str:
    return render_markdown(parse_text(text), resolve_link).html


class ElementCollector(HTMLParser):
    """The elements and attributes that an HTML parser sees."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [(name, value or "") for name, value in attrs]


def assert_harmless(rendered: str) -> None:
    seen = ElementCollector()
    seen.feed(rendered)
    seen.close()
    assert seen.tags <= ALLOWED
    for name, value in seen.attributes:
        assert name in ATTRIBUTES, f"{name}={value}"
        if name == "href":
            assert re.match(r"(?:https?://|mailto:|\?page=|files/|#)", value, re.IGNORECASE) or value == "", value
        if name in {"width", "height", "depth", "voffset", "lspace"}:
            assert re.fullmatch(r"\d{1,4}|[a-z-]+|[+-]?\d{0,2}(?:\.\d+)?[a-z%]*", value), value
        if name == "src" or value.startswith("files/"):
            assert re.fullmatch(r"files/[^?#:\\]+\.\w+", value), value
            assert ".." not in value.split("/")
    assert "<!--" not in rendered


# ── content ────────────────────────────────────────────────────────────────────────────


def test_headings_have_the_anchors_that_hits_carry() -> None:
    page = parse_text(
        "---\ntitle: T\n---\n# Über *uns*\n\n## Same\n\nx\n\n## Same\n\nSet\next\n---\n\n> ## In a quote\n"
    )
    rendered = render_markdown(page, resolve_link).html
    assert re.findall(r'<h\d id="([^"]*)"', rendered) == [heading.anchor for heading in page.headings]
    assert {"über-uns", "same", "same-1"} <= {heading.anchor for heading in page.headings}


def test_headings_of_otterwiki_have_its_anchors() -> None:
    page = parse_page("a.md", "0" * 40, "# Über uns\n".encode(), None, "otterwiki")
    assert isinstance(page, Page)
    assert '<h1 id="uber-uns">' in render_markdown(page, resolve_link).html


@pytest.mark.parametrize(
    ("written", "href"),
    [
        ("[[Growing/Pests]]", "?page=Growing/Pests"),
        ("[[Growing/Pests#Slugs]]", "?page=Growing/Pests#Slugs"),
        ("[[our pests|Growing/Pests]]", "?page=Growing/Pests"),
        ("[[Growing/Pests|our pests]]", "?page=Growing/Pests"),
        ("![[Home]]", "?page=Home"),
        ("[x](Other%20page.md#a-b)", "?page=Other%20page#a-b"),
        ("[x](<Other page.md>)", "?page=Other%20page"),
        ('<a href="Home.md">x</a>', "?page=Home"),
        ("[x](#below)", "#below"),
        ("[x](https://wiki.example.org/a?b=c)", "https://wiki.example.org/a?b=c"),
        ("<https://wiki.example.org>", "https://wiki.example.org"),
        ("[x](mailto:a@wiki.example.org)", "mailto:a@wiki.example.org"),
    ],
)
def test_links_point_to_previews_headings_and_external_pages(written: str, href: str) -> None:
    assert f'href="{href}"' in render_html(written)


@pytest.mark.parametrize(
    "written", ["[[No such page]]", "[x](nowhere.md)", "[x](/etc/passwd)", "[x](../../../Home.md)"]
)
def test_a_link_to_a_missing_page_keeps_only_its_text(written: str) -> None:
    rendered = render_html(written)
    assert "href" not in rendered
    assert "<a" in rendered


def test_a_reversed_wiki_link_shows_its_text() -> None:
    assert ">our pests</a>" in render_html("[[Growing/Pests|our pests]]")
    assert ">our pests</a>" in render_html("[[our pests|Growing/Pests]]")


def render_in_dialect(text: str, dialect: Dialect) -> str:
    page = parse_page("Growing/Crops.md", "0" * 40, text.encode(), None, dialect=dialect)
    assert isinstance(page, Page)
    return render_markdown(page, resolve_link, dialect).html


def test_links_follow_the_dialect() -> None:
    assert ">our pests</a>" in render_in_dialect("[[Growing/Pests|our pests]]", OBSIDIAN)
    assert "href" not in render_in_dialect("[[our pests|Growing/Pests]]", OBSIDIAN)
    assert "href" not in render_in_dialect("[[Growing/Pests|our pests]]", GOLLUM)
    rendered = render_in_dialect("[[Home#Old Walls]] [[Home#^b1]] ![[pane.png|300]]", OBSIDIAN)
    assert re.findall('href="[^"]*?([#][^"]*|Home)"', rendered) == ["#old-walls", "Home"]
    assert (">Home &gt; Old Walls</a>" in rendered, ">Home</a>" in rendered, "pane.png" in rendered) == (
        True,
        True,
        True,
    )


def test_markup_of_a_dialect_is_not_shown() -> None:
    obsidian = render_in_dialect(
        "a ==b== %%c%% ^d1\n\n> [!tip]- Hoe\n> often\n\n`==x==` k\n\n```\n==y== %%\n```\n", OBSIDIAN
    )
    assert "<p>a b  </p>" in obsidian or "<p>a b</p>" in obsidian
    assert '<blockquote class="callout tip">\n<p class="callout-title">Hoe</p>' in obsidian
    assert "<code>==x==</code>" in obsidian
    assert "==y== %%" in obsidian
    mkdocs = render_in_dialect('# A {: #b }\n\n!!! note "Hoe"\n    often\n\n=== "Sand"\n    dry\n', MKDOCS)
    assert ('id="b"' in mkdocs, '<p class="callout-title">Hoe</p>' in mkdocs, "<strong>Sand</strong>" in mkdocs) == (
        True,
    ) * 3
    assert not re.search(r"!!!|===|\{|\[!", mkdocs)


def test_alerts_and_footnotes_of_github_are_shown() -> None:
    rendered = render_html(
        "> [!NOTE]\n> Hoe often.[^1]\n\n> [!BUG] *Leak*\n\nMore[^b].\n\n[^1]: Weekly.\n[^b]: Drip.\n"
    )
    assert '<blockquote class="callout note">\n<p class="callout-title">Note</p>\n<p>Hoe often.' in rendered
    assert '<blockquote class="callout caution">\n<p class="callout-title"><em>Leak</em></p>\n</blockquote>' in rendered
    for label in "1b":
        assert re.search(f'<sup id="fnref-{label}"><a href="#fn-{label}"[^>]*>{label}</a></sup>', rendered)
        assert re.search(f'<sup id="fn-{label}"><a href="#fnref-{label}"[^>]*>{label}</a></sup>', rendered)


def test_a_footnote_without_a_text_is_only_a_number() -> None:
    assert "<sup>9</sup>" in render_html("Nowhere.[^9]")


def test_tables_tasks_code_and_struck_text_are_shown() -> None:
    rendered = render_html("|a|b|\n|:-|-:|\n|1|2|\n\n- [ ] todo\n- [x] done\n\n~~old~~\n\n```py\nx < 1\n```\n")
    assert '<td class="right">2</td>' in rendered
    assert "style=" not in rendered
    assert "☐ todo" in rendered
    assert "☑ done" in rendered
    assert "<s>old</s>" in rendered
    assert '<code class="language-py">x &lt; <span class="number">1</span>' in rendered
    assert '<div class="wide" tabindex="0" role="region" aria-label="Table"><table>' in rendered


@pytest.mark.parametrize("quote", ['"', "'"])
def test_a_word_is_marked_in_text_but_not_in_an_attribute_with_an_angle_bracket(quote: str) -> None:
    tag = f"<a title={quote}x> printer onmouseover=alert(1) <b>{quote} href={quote}?page=a{quote}>"
    marked = highlight_words(f"<p>{tag}a printer</a> isn't > it</p>", "printer", "en")
    assert marked == f"<p>{tag}a <mark>printer</mark></a> isn't &gt; it</p>"


def test_the_sanitizer_escapes_angle_brackets_in_attributes() -> None:
    html = render_html('<a title="a>b<c" href="https://example.org/?q=a>b">text</a>')
    assert re.sub(r"<[^>]*>", "", html).strip() == "text"


@pytest.mark.parametrize(
    ("language", "code", "marked"),
    [
        (
            "python",
            'def f(): return "a" # b',
            {"keyword": ["def", "return"], "string": ['"a"'], "comment": ["# b"]},
        ),
        ("YAML", "key: 12 # why", {"name": ["key"], "number": ["12"], "comment": ["# why"]}),
        ("sql", "SELECT 1 -- all", {"keyword": ["SELECT"], "comment": ["-- all"]}),
        ("diff", "+new\n-old", {"inserted": ["+new"], "deleted": ["-old"]}),
        ("nonsense", "def f(): return 1", {}),
    ],
)
def test_code_is_coloured_by_its_language(language: str, code: str, marked: dict[str, list[str]]) -> None:
    rendered = render_html(f"```{language}\n{code}\n```")
    found: dict[str, list[str]] = {}
    for name, text in re.findall(r'<span class="(\w+)">([^<]*)</span>', rendered):
        found.setdefault(name, []).append(text)
    assert {name: texts for name, texts in found.items() if name in marked} == marked
    assert re.sub(r"<[^>]*>", "", rendered).strip() == code


@pytest.mark.parametrize(
    "language", ["python", "c", "js", "css", "sh", "sql", "yaml", "json", "html", "go", "docker", "diff"]
)
@pytest.mark.parametrize("part", ["/*", "//", '"', "'", "  ", "-", "a-", "<!-", "$(", "#\n", ": ", "1."])
def test_any_code_is_coloured_in_linear_time(language: str, part: str) -> None:
    began = time.process_time()
    assert color_code("a" + part * 10_000, language)
    assert time.process_time() - began < 1


def test_a_mermaid_diagram_is_shown_as_text() -> None:
    rendered = render_html("```mermaid\ngraph TD; A-->B\n```")
    assert "Mermaid diagram, as text" in rendered
    assert "graph TD; A--&gt;B" in rendered


@pytest.mark.parametrize(
    ("written", "image"),
    [
        ("![a *cat*](pics/cat.png)", 'src="files/Growing/pics/cat.png" alt="a cat"'),
        ("![](/up/a%20b.svg)", 'src="files/up/a%20b.svg" alt="image without a description"'),
        ("![x](../top.webp)", 'src="files/top.webp" alt="x"'),
        ("<img src='x.png' alt='dog' width=300 onerror=x>", 'src="files/Growing/x.png" alt="dog" width="300"'),
        ("![[pane.png|300]]", 'src="files/pane.png" alt="pane.png" width="300"'),
    ],
)
def test_images_of_the_wiki_are_shown(written: str, image: str) -> None:
    assert f'<img {image} loading="lazy">' in render_html(written)


def test_other_images_are_replaced_by_their_alt_text() -> None:
    rendered = render_html(
        '![a *cat*](http://x/y.gif) <img src="//x/x.png" alt="a <b>dog</b>"> <img src=x> ![up](../../a.png)'
    )
    assert '<span class="picture">a cat</span>' in rendered
    assert '<span class="picture">up</span>' in rendered
    assert "dog" in rendered
    assert "src" not in rendered
    assert "<img" not in rendered


def test_a_link_to_a_file_of_the_wiki_leads_there() -> None:
    assert 'href="files/Growing/a%20plan.pdf"' in render_html("[plan](<a plan.pdf>)")
    assert "href" not in render_html("[secret](../../plan.pdf) [other](file:///plan.pdf)")


def test_a_generated_paragraph_is_shown_unformatted() -> None:
    rendered = render_html("*a* <b>" * 5_000)
    assert "*a* &lt;b&gt;*a*" in rendered


@pytest.mark.slow
def test_a_long_page_is_cut_and_says_so() -> None:
    rendered = render_markdown(parse_text("A paragraph.\n\n" * 20_000), resolve_link)
    assert rendered.cut
    assert len(rendered.html) < 2 * MAX_PAGE_CHARS
    assert rendered.html.endswith("</p>\n")
    assert not render_markdown(parse_text("short"), resolve_link).cut


# ── formulas ────────────────────────────────────────────────────────────────────────────


def test_formulas_are_mathml() -> None:
    rendered = render_html("a $x_1^2$ b\n\n$$\n\\frac{1}{2}\n- y\n$$\n\n```math\n\\sqrt{x}\n```\n\n> $$z$$\n")
    assert '<p>a <math display="inline"><mrow><msubsup><mi>x</mi><mn>1</mn><mn>2</mn></msubsup>' in rendered
    assert '<div class="formula"><math display="block"><mrow><mfrac>' in rendered
    assert "<mo>−</mo><mi>y</mi>" in rendered
    assert "<msqrt>" in rendered
    assert "<mi>z</mi>" in rendered
    assert "$" not in rendered


@pytest.mark.parametrize(
    "text",
    [
        "$5 and $10",
        "from $5/mo to US$ 9",
        "$HOME/$USER",
        r"\$x$",
        "a$x$",
        "$x$y",
        "$ x $",
        "$$\nnot closed",
        "it costs 5$ or 6$",
    ],
)
def test_a_dollar_sign_in_prose_is_no_formula(text: str) -> None:
    assert "<math" not in render_html(text)


def test_code_contains_no_formula() -> None:
    assert "<math" not in render_html("`$x$` ``$`y`$``\n\n    $$\n    x\n    $$\n\n```\n$$x$$\n```\n")


@pytest.mark.parametrize(
    "formula",
    [
        r"\left(",
        "x" * 2_001,
        "{" * 100 + "x" + "}" * 100,
        r"\sideset{}{}{" * 40 + "x" + "}" * 40,
        r"\newcommand{\a}{\b\b}\newcommand{\b}{\c\c}\a",
        r"\def\a{\a\a}\a",
    ],
)
def test_a_formula_that_cannot_be_converted_is_shown_as_it_is_written(formula: str) -> None:
    rendered = render_html(f"```math\n{formula}\n```\n\n${formula}$")
    assert "<math" not in rendered
    assert f'<pre tabindex="0"><code>{formula}\n</code></pre>' in rendered


@pytest.mark.slow
def test_a_page_of_formulas_renders_quickly() -> None:
    began = time.process_time()
    paragraphs = (
        "$x_1$",
        r"$\frac{1}{2}$ " * 100,
        f"${'.' * 1_900}$",
        "$a_b " * 400,
        "$$x " * 4_000,
        r"$\frac{1}{" * 1_500,
    )
    for paragraph in paragraphs:
        render_html(f"{paragraph}\n\n" * (120_000 // len(paragraph)))
    assert time.process_time() - began < 20


def test_words_in_formulas_are_not_marked() -> None:
    html = render_html(r"speed $\text{speed} = 1$ speed")
    assert highlight_words(html, "speed", "english").count("<mark>") == 2


# ── no active content ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("written", ATTACKS)
def test_no_active_content_is_left(written: str) -> None:
    assert "before" in render_html(f"before {written}"), "the text around it is shown"
    for text in (
        written,
        f"words {written} words",
        f"> - {written}",
        f"<div>\n{written}\n</div>",
        f"*a* {written}\n\n# b",
    ):
        assert_harmless(render_html(text))


@settings(max_examples=limit_examples(300), deadline=None)
@given(st.lists(st.sampled_from([*ATTACKS, "\n", "\n\n", "<", ">", "`", "[", "]", "(", '"', "'", "&", "#", "|", "\\"])))
def test_no_combination_of_attacks_is_active(parts: list[str]) -> None:
    rendered = render_html("before " + "".join(parts)[:5_000])
    assert "before" in rendered, "the text around it is shown"
    assert_harmless(rendered)


@pytest.mark.slow
@settings(max_examples=limit_examples(200), deadline=None)
@given(st.text(max_size=2_000))
def test_any_text_has_harmless_html(text: str) -> None:
    page = parse_page("a.md", "0" * 40, text.encode("utf-8", "replace"), None)
    if isinstance(page, Page):
        rendered = render_markdown(page, resolve_link)
        assert not rendered.cut
        assert_harmless(rendered.html)


@pytest.mark.parametrize(
    "deep", ["<div>", "<b><i>", "> ", "- ", "[", "[[", "![", "*a **", "<a href=x>", "|", "`a``", "<!--"]
)
def test_deeply_nested_text_renders_quickly(deep: str) -> None:
    page = parse_text(deep * 40_000)
    began = time.process_time()
    rendered = render_markdown(page, resolve_link)
    assert time.process_time() - began < 4
    assert_harmless(rendered.html)


@pytest.mark.parametrize(
    ("html", "depth"),
    [("", 0), ("<p>a</p><br>" * 500, 1), ("<b>" * 9 + "</b>" * 5 + "<i>", 9), ("</p></p><p><b>", 2)],
)
def test_siblings_do_not_count_as_depth(html: str, depth: int) -> None:
    assert measure_depth(html) == depth
