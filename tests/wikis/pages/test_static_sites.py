"""Small sites of each generator: what is displayed, where links lead, and what a rename rewrites."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.indexed_wiki import ADA, IndexedWiki, PageFiles
from wikiholt.domain.page import Page
from wikiholt.index.pipeline import TextPipeline
from wikiholt.interfaces.web.browse_view import build_folder
from wikiholt.text.dialect import DIALECTS
from wikiholt.text.display_text import to_display_text
from wikiholt.text.page_parser import parse_page
from wikiholt.text.site_markup import convert_containers, convert_templates

DETECT = TextPipeline(detects_dialect=True)


@dataclass(frozen=True)
class Site:
    """The files of a site, the text that one of its pages displays, and the links between all pages."""

    files: PageFiles
    page: str
    text: str
    links: Mapping[str, set[str]]


JEKYLL = Site(
    {
        "docs/_config.yml": "title: Bees\n",
        "docs/index.md": "# Bees\n\n[Hives]({{ '/hives/' | relative_url }}) [Wax]({% link _docs/wax.md %}#melt)\n\n"
        "{% include secret.html %}\n[News][1] {{ page.title }}\n\n"
        "[1]: {% post_url 2024-05-01-swarm %}\n",
        "docs/_docs/hives.md": "---\npermalink: /hives/\n---\n{% comment %}\nsecret\n{% endcomment %}\n"
        "A hive. [Site]({{ site.baseurl }}/index.html)\n\n{% highlight ruby %}\n"
        "puts '{{ x }}'\n{% endhighlight %}\n",
        "docs/_docs/wax.md": "## Melt\n\n"
        '{% if page.a == "secret" %}Slowly.{% endif %} [repo]({{ site.github.url_of }}/x)\n',
        "docs/_posts/2024-05-01-swarm.md": "---\ncategories: news\n---\n[again](/news/2024/05/01/swarm.html)\n",
    },
    "docs/index",
    "Bees: Hives Wax · News",
    {
        "docs/index": {"docs/_docs/hives", "docs/_docs/wax", "docs/_posts/2024-05-01-swarm"},
    },
)
ELEVENTY = Site(
    {
        ".eleventy.js": "module.exports = {}\n",
        "pages/index.md": "# Handbook\n\n"
        "See [pay]({% page \"/pay/\" %}) and [rise]({% page \"/pay/rise/\" %}#when).\n\n"
        '{% alert %}\nAsk {% slack_channel "people" %} first.\n{% endalert %}\n',
        "pages/pay/index.md": "# Pay\n\nMonthly. [Rise](rise/)\n",
        "pages/pay/rise.md": "---\npermalink: /pay/rise/\n---\n# Rise\n\n[Pay]({%page '/pay/'%})\n",
    },
    "pages/index",
    "Handbook: See pay and rise. Ask people first.",
    {"pages/index": {"pages/pay/index", "pages/pay/rise"}, "pages/pay/index": {"pages/pay/rise"},
     "pages/pay/rise": {"pages/pay/index"}},
)  # fmt: skip
HUGO = Site(
    {
        "hugo.toml": "title = 'Sea'\n",
        "content/en/_index.md": "# Sea\n\n"
        '[Tides]({{< relref "/docs/tides.md#high" >}}) [Moon]({{< ref "moon.md" >}})\n',
        "content/en/docs/tides.md": '---\ntitle: Tides\nweight: 2\n---\n{{% alert title="Careful" %}}\nTwice a day.\n'
        "{{% /alert %}}\n{{< highlight go >}}\nx := `{{</* ref */>}}`\n{{< /highlight >}}\n[Moon](../moon/)\n",
        "content/en/docs/moon.md": "---\nslug: luna\n---\n# Moon\n\n[Tides](/docs/tides/) [self](/docs/luna/)\n",
        "content/en/docs/stars/_index.md": "# Stars\n\n[Moon](/docs/luna/)\n",
    },
    "content/en/docs/tides",
    "Careful Twice a day. x := `{{< ref >}}` · Moon",
    {
        "content/en/_index": {"content/en/docs/tides", "content/en/docs/moon"},
        "content/en/docs/tides": {"content/en/docs/moon"},
        "content/en/docs/moon": {"content/en/docs/tides"},
        "content/en/docs/stars/_index": {"content/en/docs/moon"},
    },
)
DOCUSAURUS = Site(
    {
        "website/docusaurus.config.js": "module.exports = {};\n",
        "website/docs/01-intro.md": "---\nslug: /start\n---\nimport Tabs from '@theme/Tabs';\n\n# Start\n\n"
        "<Tabs>Read [setup](./guides/setup.md) {props.secret}.</Tabs>\n\n"
        ":::tip[Mind *this*]\nUse [setup](guides/setup).\n:::\n",
        "website/docs/guides/setup.md": "# Setup\n\n[Start](/docs/start) [intro](@site/docs/01-intro.md)\n",
        "website/versioned_docs/version-1/guides/setup.md": "# Setup\n\n[new](/docs/next/guides/setup)\n",
        "website/docs/guides/building.md": "---\nid: build\n---\n# Build {#top}\n\n[faq](/docs/faq)\n",
        "website/docs/guides/answers.md": "---\nslug: /faq\n---\n# FAQ\n\n[build](/docs/guides/build)\n",
    },
    "website/docs/01-intro",
    "Start: Read setup . Mind this Use setup.",
    {
        "website/docs/01-intro": {"website/docs/guides/setup"},
        "website/docs/guides/setup": {"website/docs/01-intro"},
        "website/versioned_docs/version-1/guides/setup": {"website/docs/guides/setup"},
        "website/docs/guides/building": {"website/docs/guides/answers"},
        "website/docs/guides/answers": {"website/docs/guides/building"},
    },
)
VITEPRESS = Site(
    {
        "docs/.vitepress/config.mts": "export default {}\n",
        "docs/index.md": "# Home\n\n::: warning Wait {open}\nHello {{ 1 + 1 }}, see [guide](/guide/).\n:::\n\n"
        "<<< @/x.js{1}\n\n[[toc]]\n",
        "docs/guide/index.md": "# Guide\n\n::: code-group\n```js\na ::: b\n```\n:::\n"
        "[use](./use) [F](/guide/use.html#f)\n",
        "docs/guide/use.md": "# Use\n\n[up](../)\n",
    },
    "docs/index",
    "Home: Wait Hello , see guide.",
    {
        "docs/index": {"docs/guide/index"},
        "docs/guide/index": {"docs/guide/use"},
        "docs/guide/use": {"docs/guide/index"},
    },
)
STARLIGHT = Site(
    {
        "astro.config.mjs": "export default {};\n",
        "src/content/docs/index.mdx": "---\ntitle: Home\n---\nimport { Card } from 'x';\n\n"
        '<Card title="Begin">[a](/guides/a/#b)</Card>\n',
        "src/content/docs/guides/a.md": '---\ntitle: A\n---\n:::note{title="Hm"}\nText.\n:::\n[de](/de/guides/a/)\n',
        "src/content/docs/de/guides/a.md": "# A auf Deutsch\n\n[en](/guides/a/)\n",
    },
    "src/content/docs/guides/a",
    "Hm Text. de",
    {
        "src/content/docs/index.mdx": {"src/content/docs/guides/a"},
        "src/content/docs/guides/a": {"src/content/docs/de/guides/a"},
        "src/content/docs/de/guides/a": {"src/content/docs/guides/a"},
    },
)
MKDOCS = Site(
    {
        "mkdocs.yml": "site_name: Mill\n",
        "docs/index.md": '# Mill\n\n--8<-- "part.md"\n\n::: mill.wheel.Wheel\n\n'
        "[run](user/run.md#x) [abs](/user/run/)\n",
        "docs/user/run.md": "# Run\n\n{% raw %}Turn it.{% endraw %} [home](../../)\n",
    },
    "docs/index",
    "Mill: run abs",
    {"docs/index": {"docs/user/run"}, "docs/user/run": {"docs/index"}},
)
MDBOOK = Site(
    {
        "book.toml": "[book]\n",
        "src/SUMMARY.md": "# Summary\n\n- [One](one/README.md)\n  - [Two](one/two.md)\n",
        "src/one/README.md": "# One\n\n```rust\n{{#include ../x.rs}}\nfn main() {}\n```\n[Two](two.html)\n",
        "src/one/two.md": "# Two\n\n{{#title Two}}\nText. [One](index.html) [std](../../../std/index.html)\n",
    },
    "src/one/two",
    "Two: Text. One std",
    {
        "src/SUMMARY": {"src/one/README", "src/one/two"},
        "src/one/README": {"src/one/two"},
        "src/one/two": {"src/one/README"},
    },
)
SITES = {
    "jekyll": JEKYLL,
    "eleventy": ELEVENTY,
    "hugo": HUGO,
    "docusaurus": DOCUSAURUS,
    "vitepress": VITEPRESS,
    "starlight": STARLIGHT,
    "mkdocs": MKDOCS,
    "mdbook": MDBOOK,
}


def show(wiki: IndexedWiki, path: str, dialect: str) -> str:
    content = wiki.pages.read(path)
    page = parse_page(content.file, "b", content.content.encode(), None, dialect=DIALECTS[dialect])
    assert isinstance(page, Page)
    return to_display_text(page.body, DIALECTS[dialect]).text


@pytest.mark.parametrize("name", SITES)
def test_a_site_has_the_links_of_its_generator_and_no_markup_of_it(tmp_path: Path, name: str) -> None:
    site = SITES[name]
    wiki = IndexedWiki(tmp_path, site.files, pipeline=DETECT).sync()
    assert show(wiki, site.page, name) == site.text
    graph = wiki.pages.build_graph()
    found: dict[str, set[str]] = {}
    for source, target in graph.edges:
        found.setdefault(source, set()).add(target)
    assert found == site.links
    assert graph.missing == ()
    for source, targets in site.links.items():  # a single page resolves its links through keys in the index
        assert {link.path for link in wiki.pages.get_links(source).links_to} == targets
        for target in targets:
            assert source in {link.path for link in wiki.pages.get_links(target).linked_from}
    for file in wiki.list_files():
        if file.endswith(".md"):
            assert "secret" not in show(wiki, file, name)
    wiki.close()


@pytest.mark.parametrize(
    ("name", "old", "new", "rewritten"),
    [
        ("eleventy", "pages/pay/index", "pages/salary/index", {"pages/index.md": '({% page "/salary/" %})'}),
        ("jekyll", "docs/_docs/wax", "docs/_docs/honey", {"docs/index.md": "({% link _docs/honey.md %}#melt)"}),
        ("vitepress", "docs/guide/use", "docs/guide/apply", {"docs/guide/index.md": "(/guide/apply.html#f)"}),
        ("hugo", "content/en/docs/tides", "content/en/docs/ebb", {"content/en/docs/moon.md": "(/docs/ebb/)"}),
    ],
)
def test_a_rename_keeps_the_form_of_routes_and_templates(
    tmp_path: Path, name: str, old: str, new: str, rewritten: Mapping[str, str]
) -> None:
    wiki = IndexedWiki(tmp_path, SITES[name].files, pipeline=DETECT).sync()
    wiki.pages.rename(old, new, ADA)
    for file, target in rewritten.items():
        assert target in wiki.pages.read(file.removesuffix(".md")).content
    wiki.close()


@pytest.mark.parametrize(
    ("text", "converted"),
    [
        ("{{% note %}}a{{% /note %}}", "a"),
        ("{{< a\nb >}}x", "\nx"),
        ('{% set x = "y" %}{{ "Word" | upcase }}', "Word"),
        ("`{{#include x}}` {{", "`` {{"),
        ("{% comment %} open", " open"),
        ("{{< code-toggle config=x />}}\n{{< b >}}", "\n"),
        ("```\n{% raw %}{{ a }}{% endraw %}\n```", "```\n{{ a }}\n```"),
        ("[a]({{ unknown }}/b)", "[a](               )"),
        ("text {not a template} %}", "text {not a template} %}"),
    ],
)
def test_templates_are_replaced_by_the_words_they_display(text: str, converted: str) -> None:
    assert convert_templates(text) == converted


@pytest.mark.parametrize("name", ["docusaurus", "vitepress", "hugo", "mdbook", "mkdocs"])
def test_the_id_of_a_heading_is_its_anchor_and_not_displayed(name: str) -> None:
    page = parse_page(
        "a.md", "1" * 40, b"# Pump {#pump-1}\n\n## Valve {#v .wide}\n\n{ kept }\n", None, "github", DIALECTS[name]
    )
    assert isinstance(page, Page)
    assert page.name == "Pump"
    assert [(heading.text, heading.anchor) for heading in page.headings] == [("Pump", "pump-1"), ("Valve", "v")]
    assert to_display_text("## Valve {#v .wide}\n\n{ kept }", DIALECTS[name]).text == "Valve: { kept }"


def test_boxes_in_boxes_and_lists_are_quotes() -> None:
    text = "- a\n\n  :::note\n  b\n  ::::tip C\n  d\n  ::::\n  :::\n\n:::\nend"
    assert convert_containers(text) == "- a\n\n  > [!note]\n  > b\n  > > [!tip] C\n  > > d\n\n\n\n:::\nend"


def test_boxes_that_are_indented_or_nested_too_far_cost_and_change_nothing() -> None:
    indented = f"{' ' * 5000}:::tip A\n" + "b\n" * 1000
    assert convert_containers(indented) == indented
    nested = "::: tip\n" * 30 + "::: \n" * 30 + "end"
    assert convert_containers(nested).endswith("\nend")


@pytest.mark.parametrize(
    ("files", "order"),
    [
        (
            {
                "mkdocs.yml": "nav:\n  - Home: index.md\n  - 'First run': user/run.md\n"
                "  - About:\n    - about/licence.md\n",
                "docs/index.md": "# Mill",
                "docs/user/aim.md": "# Aim",
                "docs/user/run.md": "# Run",
                "docs/about/licence.md": "# Licence",
            },
            {"docs": ["Home"], "docs/user": ["First run", "Aim"], "": ["docs/user", "docs/about"]},
        ),
        (
            {
                "book.toml": "",
                "src/SUMMARY.md": "- [Two](b/two.md)\n- [One](b/one.md)\n",
                "src/b/one.md": "# 1",
                "src/b/two.md": "# 2",
            },
            {"src/b": ["Two", "One"]},
        ),
        (
            {
                "website/docusaurus.config.js": "",
                "website/sidebars.js": "module.exports = {docs: {Basics: ['setup',"
                " {type: 'doc', id: 'guides/b'}, 'guides/a']}};",
                "website/docs/about.md": "# About",
                "website/docs/setup.md": "# Setup",
                "website/docs/guides/a.md": "# A",
                "website/docs/guides/b.md": "# B",
            },
            {"website/docs": ["Setup", "About"], "website/docs/guides": ["B", "A"]},
        ),
        (
            {
                "_config.yml": "",
                "_data/docs_nav.yml": "- title: Start\n  docs:\n    - link: /docs/z/\n    - link: /docs/a/\n",
                "_docs/a.md": "# A",
                "_docs/z.md": "# Z",
            },
            {"_docs": ["Z", "A"]},
        ),
        (
            {
                "docs/.vitepress/config.mts": "export default { nav: [{ text: 'Guide', link: '/guide/start' }],"
                " sidebar: { '/guide/': { base: '/guide/', items: [{ text: 'Routes', link: 'routes' },"
                " { text: 'First steps', link: 'start' }, { text: 'Gone', link: 'gone' }] } } }",
                "docs/de/config.ts": "[{ text: 'Zwei', link: '/de/two' }, { text: 'Eins', link: '/de/one' }]",
                "docs/index.md": "# Home",
                "docs/guide/a.md": "# A",
                "docs/guide/routes.md": "# R",
                "docs/guide/start.md": "# S",
                "docs/de/one.md": "# 1",
                "docs/de/two.md": "# 2",
            },
            {"docs/guide": ["First steps", "Routes", "A"], "docs/de": ["Zwei", "Eins"], "": ["docs/guide", "docs/de"]},
        ),
        (
            {
                "astro.config.mjs": "starlight({ sidebar: [{ label: 'Start', items: [{ label: 'Two', slug: 'b/two' },"
                " 'b/one'] }, { autogenerate: { directory: 'c' } }] })",
                "src/content/docs/b/one.md": "# 1",
                "src/content/docs/b/two.md": "# 2",
                "src/content/docs/c/x.md": "---\nsidebar:\n  order: 2\n---\n# X",
                "src/content/docs/c/y.md": "---\nsidebar:\n  order: 1\n---\n# Y",
                "src/content/docs/c/a.md": "# A",
            },
            {"src/content/docs/b": ["Two", "1"], "src/content/docs/c": ["Y", "X", "A"]},
        ),
        (
            {
                "hugo.toml": "",
                "docs/one/_index.md": "---\nweight: 20\n---\n# One",
                "docs/one/a.md": "---\nweight: 2\n---\n# A",
                "docs/one/b.md": "---\nweight: -1\n---\n# B",
                "docs/one/c.md": "---\nweight: heavy\n---\n# C",
                "docs/two/_index.md": "---\nweight: 3\n---\n# Two",
                "docs/two/a.md": "# A",
            },
            {"docs/one": ["One", "B", "A", "C"], "": ["docs/two", "docs/one"]},
        ),
        (
            {
                "docusaurus.config.js": "",
                "docs/one/_category_.json": '{\n  "label": "1",\n  "position": 3.5\n}',
                "docs/one/index.md": "---\nsidebar_position: 1\n---\n# One",
                "docs/one/a.md": "---\nsidebar_position: 2\n---\n# A",
                "docs/two/_category_.yml": "label: 'Two'\nposition: 3 # of four\n",
                "docs/two/a.md": "# A",
                "docs/two/b.md": "---\nsidebar_position: 9\n---\n# B",
                "docs/zero/zero.mdx": "---\nsidebar_position: 1\n---\n# Zero",
                "docs/zero/a.md": "# A",
                "docs/not/_category_.json": "{ damaged",
                "docs/not/a.md": "# A",
                "docs/not/b.md": "# B",
            },
            {"": ["docs/zero", "docs/two", "docs/one", "docs/not"], "docs/two": ["B", "A"], "docs/one": ["One", "A"]},
        ),
        (
            {
                "_config.yml": "",
                "docs/a.md": "---\nnav_order: 10\n---\n# A",
                "docs/b.md": "---\nnav_order: 9\n---\n# B",
                "docs/c.md": "# C",
            },
            {"docs": ["B", "A", "C"]},
        ),
    ],
)
def test_the_navigation_of_a_site_gives_order_and_titles(
    tmp_path: Path, files: PageFiles, order: Mapping[str, list[str]]
) -> None:
    wiki = IndexedWiki(tmp_path, files, pipeline=DETECT).sync()
    navigation, pages = wiki.pages.read_navigation(), wiki.pages.list().pages
    for folder, names in order.items():
        if folder:
            assert [page.name for page in build_folder(folder, pages, navigation).pages] == names
        else:
            found = build_folder("docs", pages, navigation).folders
            assert [facet.value for facet in found] == names
    wiki.close()
