"""The markup of MediaWiki as Markdown."""

import pytest

from wikiholt.documents.exports.wikitext import ConvertedWikitext, convert_wikitext


class _Links:
    """Every page of the main namespace is in the wiki."""

    def find_kind(self, target: str) -> tuple[str, str]:
        prefix, _, name = target.partition(":")
        return {"File": ("file", name), "Category": ("category", name)}.get(prefix, ("page", target))

    def find_target(self, target: str) -> str:
        return "" if ":" in target else f"{target}.md"


def convert(text: str) -> ConvertedWikitext:
    return convert_wikitext(text, "Berlin", _Links())


@pytest.mark.parametrize(
    ("wikitext", "markdown"),
    [
        ("== History ==\nText", "## History\n\nText"),
        ("'''bold''' and ''italic'' and '''''both'''''", "**bold** and *italic* and ***both***"),
        ("'''''b''' i''", "***b** i*"),
        ("'''never closed", "**never closed**"),
        ("[[Germany]], [[Germany|the country]], [[Cat]]s",
         "[Germany](Germany.md), [the country](Germany.md), [Cats](Cat.md)"),
        ("[[de:Berlin]]end", "end"),
        ("[[wikipedia:Berlin|Berlin]]", "Berlin"),
        ("[http://a.org the ''site''] [http://a.org]", "[the *site*](http://a.org) <http://a.org>"),
        ("* one\n** two\n*# three\n# four", "- one\n  - two\n  1. three\n1. four"),
        ("; term : meaning", "**term**: meaning"),
        ("[[File:a.png|thumb|200px|See [[Link]] here]]", "See [Link](Link.md) here"),
        (" code [[A|b]]\n 'x'", "```\ncode b\n'x'\n```"),
        ('<syntaxhighlight lang="python">\nx = "[[a]]" # {{t}}\n</syntaxhighlight>',
         '```python\nx = "[[a]]" # {{t}}\n```'),
        ("<code>a|{{b}}</code> <nowiki>[[a]]</nowiki>", "`a|{{b}}` \\[\\[a\\]\\]"),
        ("a<!-- [[hidden]] --> b<br>c", "a b\nc"),
        ("{{lang|de|Haus}} {{PAGENAME}} {{clear}}.", "de Haus Berlin ."),
        ("{{Infobox\n| name = [[A]]\n| image_size = 9px\n}}\nText", "- name: [A](A.md)\n\nText"),
        ("{{a|{{b|[[c|d]]}}}}", "[d](c.md)"),
        ("{{unclosed [[A]]", "{{unclosed [A](A.md)"),
        ("2*3 `x` \\ <foo> __init__", "2\\*3 \\`x\\` \\\\ \\<foo> \\_\\_init\\_\\_"),
        ("> a\n===", "\\> a\n\\==="),
        ("x<ref name=a>See [[A]].</ref> y<ref name=a />", "x[^1] y[^1]\n\n[^1]: See [A](A.md)."),
    ],
)  # fmt: skip
def test_markup_becomes_markdown(wikitext: str, markdown: str) -> None:
    assert convert(wikitext).text == f"{markdown}\n"


def test_a_table_keeps_its_cells() -> None:
    table = '{| class="wikitable"\n|+ Sizes\n! Name !! style="x" | Size\n'
    table += "|-\n| [[A|b]] || 3\n|-\n| two\nlines\n| x{{!}}y\n|}\nEnd"
    assert convert(table).text == (
        "**Sizes**\n\n| Name | Size |\n| --- | --- |\n| [b](A.md) | 3 |\n| two lines | x\\|y |\n\nEnd\n"
    )


def test_lists_in_a_table_stay_readable() -> None:
    assert convert("{|\n|- valign=top\n|\n* one\n* two\n|}").text == "- one\n- two\n"
    assert convert("{|\n|\n* one\n* two\n| three\n|}").text == "| one, two | three |\n| --- | --- |\n"


def test_categories_templates_and_files_are_counted() -> None:
    converted = convert("A {{b}} {{c|{{d}}}} [[File:x.png]] [[Category:Cities]] [[Category:Cities|B]]")
    assert (converted.categories, converted.templates, converted.files) == (["Cities"], 3, 1)


@pytest.mark.parametrize(
    "piece",
    [
        "{{",
        "{{a|",
        "[[",
        "[[a|",
        "<ref>",
        "<!--",
        "''",
        "'''",
        "{|\n",
        "[http://a ",
        "<nowiki>",
        "{{a}}",
        "<",
        "*",
        "\n|",
    ],
)
def test_a_page_of_repeated_markup_is_converted(piece: str) -> None:
    assert convert(piece * 20_000).text.endswith("\n")
