"""Dialects: what is displayed, embedded and found, which tags and properties a page has, and how it is detected."""

import pytest
from hypothesis import given, settings

from tests.support.hostile_text import HOSTILE_PIECES
from tests.support.tiers import limit_examples
from tests.text import dialect_pages
from tests.text.markdown_samples import MALFORMED_TEXTS, markdown_texts
from wikiholt.domain.page import Page
from wikiholt.text.bm25 import build_page_terms
from wikiholt.text.dialect import DIALECTS, GFM, GOLLUM, MKDOCS, OBSIDIAN, OTTERWIKI_LINK_TITLE, Dialect, detect_dialect
from wikiholt.text.dialect_blocks import convert_blocks, convert_to_markdown
from wikiholt.text.dialect_markup import find_inline_metadata
from wikiholt.text.display_text import to_display_text
from wikiholt.text.model_text import to_plain_text
from wikiholt.text.page_parser import parse_page

_FILES = ("dir/page.md", "dir/page.mdx", "dir/page.rst", "dir/page.adoc", "dir/page.txt")


def parse(text: str, dialect: Dialect, file: str = "dir/page.md") -> Page:
    page = parse_page(file, "b", text.encode(), None, dialect=dialect)
    assert isinstance(page, Page)
    assert page.body.count("\n") == text.count("\n") - page.body_line + 1, "line numbers must stay the same"
    return page


def show(text: str, dialect: Dialect, file: str = "dir/page.md") -> str:
    return to_display_text(parse(text, dialect, file).body, dialect).text


@pytest.mark.parametrize(
    ("text", "dialect", "file", "shown"),
    [
        (dialect_pages.OBSIDIAN_PAGE, OBSIDIAN, "a.md", dialect_pages.OBSIDIAN_TEXT),
        (dialect_pages.MKDOCS_PAGE, MKDOCS, "a.md", dialect_pages.MKDOCS_TEXT),
        (dialect_pages.MDX_PAGE, GFM, "a.mdx", dialect_pages.MDX_TEXT),
        (dialect_pages.HUGO_PAGE, GFM, "a.md", "They are on from six to nine."),
    ],
)
def test_a_page_displays_and_embeds_its_text_without_markup(text: str, dialect: Dialect, file: str, shown: str) -> None:
    assert show(text, dialect, file) == shown
    embedded = to_plain_text(parse(text, dialect, file).body, dialect)
    if text is not dialect_pages.HUGO_PAGE:  # shortcodes are removed from what is displayed only
        plain = embedded.replace(" {#all-pumps}", "")
        without_marks = str.maketrans("·:;.", "    ")  # the marks between blocks and cells are displayed only
        assert plain.translate(without_marks).split() == shown.translate(without_marks).split()


def test_a_comment_is_never_found() -> None:
    for text, dialect, file in (
        (dialect_pages.OBSIDIAN_PAGE, OBSIDIAN, "a.md"),
        (dialect_pages.MDX_PAGE, GFM, "a.mdx"),
        (dialect_pages.ASCIIDOC_PAGE, GFM, "a.adoc"),
    ):
        page = parse(text, dialect, file)
        assert "secret" not in build_page_terms(page).body
        assert not [link for link in page.links if "Plan" in link.paths]


@pytest.mark.parametrize(
    ("text", "body"),
    [
        ("a %%x%% b %%y%%", "a  b "),
        ("a %%x\ny\n%% b", "a \n\n b"),
        ("`%%` a `%%`", "`%%` a `%%`"),
        ("```\n%%\n```\na %%b%%", "```\n%%\n```\na "),
        ("%%\n```\n%%\n```\n%% a", "\n\n\n\n a"),
    ],
)
def test_comments_end_where_obsidian_ends_them(text: str, body: str) -> None:
    page = parse(text, OBSIDIAN)
    assert (page.body, page.warnings) == (body, ())


def test_the_text_after_an_unclosed_comment_is_kept_with_a_warning() -> None:
    page = parse("Grows by %%a%% 50%% a year.\n\n# Next\n\n```\n%%\n```\n", OBSIDIAN)
    assert page.body.startswith("Grows by  50%% a year.\n\n# Next")
    assert page.warnings == ("a %% comment is not closed; the text after it is indexed",)


def test_tags_and_properties_are_part_of_the_metadata() -> None:
    page = parse(dialect_pages.OBSIDIAN_PAGE, OBSIDIAN)
    assert page.metadata.tags == ("garden", "vegetables", "year/2024", "beans")
    properties = {found.name: found.values for found in page.metadata.properties}
    assert properties["status"] == ("growing",)
    assert properties["Sown"] == ("2024-03-01",)
    assert properties["water"] == ("daily",)
    assert parse(dialect_pages.OBSIDIAN_PAGE, GFM).metadata.tags == ("garden",)
    found = find_inline_metadata(["status:: growing\nSown:: [[2024-03-01]]", "a [water:: `x` daily] (k:: v)"], OBSIDIAN)
    assert found.fields == (("status", "growing"), ("Sown", "2024-03-01"), ("water", "x daily"), ("k", "v"))


def test_logseq_aliases_and_namespaces_are_names() -> None:
    assert parse("alias:: Kaffee, Espresso\n\n- text", OBSIDIAN).metadata.aliases == ("Kaffee", "Espresso")
    page = parse("- text", OBSIDIAN, "pages/cooking___Hot drinks.md")
    assert (page.name, page.metadata.aliases) == ("cooking Hot drinks", ("cooking/Hot drinks",))
    assert parse("text", GFM, "pages/cooking___Hot drinks.md").metadata.aliases == ()


def test_the_table_of_contents_is_no_link() -> None:
    assert [link.target for link in parse("[[_TOC_]] [[_TOC_ | levels=2]] [[TOC]]", GOLLUM).links] == ["TOC"]


def test_the_boxes_of_tasks_are_shown_and_not_embedded() -> None:
    assert convert_to_markdown("- [x] done", OBSIDIAN) == "- [x] done"
    assert to_plain_text("- [x] done", OBSIDIAN) == "done"


def test_properties_at_the_beginning_of_a_page_are_like_frontmatter() -> None:
    page = parse(dialect_pages.LOGSEQ_PAGE, OBSIDIAN)
    assert (page.name, page.metadata.tags) == ("Water tank", ("water", "rain", "roof work"))
    assert page.metadata.aliases == ("Tank",)
    assert show(dialect_pages.LOGSEQ_PAGE, OBSIDIAN).endswith(
        "The tank holds 400 litres. #water · TODO clean it Autumn jobs #roof work · see this"
    )
    later = parse("Text.\n\ntitle:: Not the title\nhidden:: true\ncategory:: tanks\n", OBSIDIAN)
    assert (later.name, later.metadata.hidden, later.metadata.category) == ("page", False, "tanks")


@pytest.mark.parametrize(
    ("text", "tags"),
    [
        ("#a #a/b #2024-plan #été #日本", ("a", "a/b", "2024-plan", "été", "日本")),
        ("#123 #1/2 #- a#b [x](#c) https://a.b/#d [[e#f]] \\#g ## h `#i`", ()),
        ("> #quoted\n\n- #item\n\n# Heading #tagged\n", ("quoted", "item", "tagged")),
        ("```\n#a\n```\n\n    #b\n\n<!-- #c -->\n", ()),
    ],
)
def test_inline_tags(text: str, tags: tuple[str, ...]) -> None:
    assert parse(text, OBSIDIAN).metadata.tags == tags


def test_a_page_of_nothing_but_tags_has_a_limited_number_of_them() -> None:
    page = parse("".join(f"| #tag{n} | #same |\n" for n in range(3_000)), OBSIDIAN)
    assert len(page.metadata.tags) == 1_000
    assert "same" in page.metadata.tags


def test_names_that_are_no_properties_stay_text() -> None:
    page = parse("Use std::sort and `a:: b`.\n\n```\nkey:: value\n```\n", OBSIDIAN)
    assert show("Use std::sort here.", OBSIDIAN) == "Use std::sort here."
    assert find_inline_metadata([page.body[:30]], OBSIDIAN).fields == ()


@pytest.mark.parametrize(
    ("dialect", "paths", "text"),
    [
        (GFM, ("b", "a"), "a"),
        (GOLLUM, ("b",), "a"),
        (OBSIDIAN, ("a",), "b"),
        (OTTERWIKI_LINK_TITLE, ("a",), "b"),
    ],
)
def test_the_dialect_decides_which_side_of_a_link_is_its_target(
    dialect: Dialect, paths: tuple[str, ...], text: str
) -> None:
    page = parse("# See [[a|b]]\n\nThen [[a\\|b]].\n", dialect)
    assert [(link.paths, link.text) for link in page.links] == [(paths, text)] * 2
    assert page.headings[0].text == f"See {text}"
    assert to_display_text(page.body, dialect).text == f"See {text}: Then {text}."


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("[[Page#A#B]]", "Page > A > B"),
        ("[[Page^block]]", "Page"),
        ("[[#^block]]", ""),
        ("![[film.MP4]]", ""),
        ("![[pic.png|A pane]]", "A pane"),
        ("[[pic.png]]", "pic.png"),
        ("[[/help|/help]]", "/help"),
    ],
)
def test_the_text_of_an_obsidian_link(written: str, shown: str) -> None:
    assert show(f"{written}.", OBSIDIAN) == f"{shown}."


def test_a_custom_heading_id_is_the_anchor() -> None:
    assert parse(dialect_pages.MKDOCS_PAGE, MKDOCS).headings[0].anchor == "setup"
    (heading,) = parse(dialect_pages.MDX_PAGE, GFM, "a.mdx").headings
    assert (heading.text, heading.anchor) == ("Pumps", "all-pumps")
    assert parse("# A {#b}\n", GFM).headings[0].text == "A {#b}"


@pytest.mark.parametrize(
    ("text", "file"), [(dialect_pages.RST_PAGE, "a/index.rst"), (dialect_pages.ASCIIDOC_PAGE, "a/b.ADOC")]
)
def test_headings_of_other_formats_are_recognized(text: str, file: str) -> None:
    page = parse(text, GFM, file)
    found = [(heading.level, heading.text) for heading in page.headings]
    assert found[:2] == [(1, "Greenhouse"), (2, "Lamps")]
    assert (3, "Bulbs") in found
    assert page.name == "Greenhouse"
    assert "On from six." in to_display_text(page.body).text


def test_links_in_boxes_and_components_are_found() -> None:
    assert [link.paths[0] for link in parse(dialect_pages.MKDOCS_PAGE, MKDOCS).links] == ["dir/plan", "dir/next"]
    assert [link.paths for link in parse(dialect_pages.MDX_PAGE, GFM, "d/a.mdx").links] == [("d/valves.mdx",)]


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=lambda dialect: dialect.name)
@settings(max_examples=limit_examples(60), deadline=None)
@given(text=markdown_texts)
def test_plain_markdown_is_the_same_in_every_dialect(dialect: Dialect, text: str) -> None:
    if not any(mark in text for mark in ("%%", "==", "::", "[[", "{", "^", "!!!", "???", "===", "#", ":   ", "[!")):
        assert convert_blocks(text, "a.md", dialect) == (text, ())
        assert to_plain_text(text, dialect) == to_plain_text(text)
        assert to_display_text(text, dialect) == to_display_text(text)
    assert convert_blocks(text, "a.md", GFM) == (text, ())


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=lambda dialect: dialect.name)
def test_any_text_is_converted_line_by_line(dialect: Dialect) -> None:
    texts = [*MALFORMED_TEXTS.values(), *(piece * 40 for piece in HOSTILE_PIECES), dialect_pages.MKDOCS_PAGE]
    for text in texts:
        for file in _FILES:
            body, _ = convert_blocks(text, file, dialect)
            assert body.count("\n") == text.count("\n"), (file, text[:80])
        assert convert_to_markdown(text, dialect).count("\n") == text.count("\n")


# Detection.

_PATHS = ("Home", "guides/Soil", "Tool shed")


@pytest.mark.parametrize(
    ("files", "texts", "found"),
    [
        ([], [], "gfm"),
        ([".obsidian/app.json"], ["[[the soil|Soil]]"], "obsidian"),
        (["vault/.obsidian/app.json"], [], "obsidian"),
        (["logseq/config.edn"], [], "obsidian"),
        (["mkdocs.yml"], [], "mkdocs"),
        (["../mkdocs.yaml"], [], "mkdocs"),
        (["examples/mkdocs.yml", "obsidian/app.json", "pane.png"], [], "gfm"),
        ([], ["[[Soil|the soil]] and [[tool-shed|it]]", "[[x|Home]]"], "gfm"),
        ([], ["[[Soil|the soil]] and [[tool-shed|it]]", "[[x|y]] [[Home|Soil]]"], "obsidian"),
        ([], ["[[the soil|Soil]] and [[it|guides/soil#heap]]"], "gollum"),
    ],
)
def test_a_dialect_is_detected_by_files_and_links(files: list[str], texts: list[str], found: str) -> None:
    assert detect_dialect(_PATHS, files, texts).name == found


def test_a_detected_dialect_stays_without_evidence_for_another() -> None:
    mixed = ["[[Soil|a]] [[b|Home]]"]
    assert detect_dialect(_PATHS, [], mixed, GOLLUM) is GOLLUM
    assert detect_dialect(_PATHS, [], mixed, OBSIDIAN) is OBSIDIAN
    assert detect_dialect(_PATHS, [], [], MKDOCS) is GFM
