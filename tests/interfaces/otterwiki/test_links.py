"""Links are what Otterwiki makes of them: compared with Otterwiki's own renderer and router on generated names."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from tests.support.fork_server import OTTERWIKI_MODULES, ForkedPopen
from tests.support.git_repository import Repository
from tests.support.indexed_wiki import ADA, IndexedWiki
from tests.support.paths import PYTHON_PATH
from tests.support.tiers import limit_examples
from wikiholt.domain.page import Link, Page
from wikiholt.domain.search import SearchMode
from wikiholt.index.pipeline import TextPipeline
from wikiholt.search.request import SearchRequest
from wikiholt.text.dialect import OTTERWIKI, OTTERWIKI_CASE, OTTERWIKI_LINK_TITLE, Dialect
from wikiholt.text.page_parser import parse_page

pytest.importorskip("otterwiki")

Resolve = Callable[..., list[str | None]]
NAME_PARTS = ["a", "B", "Green", "house", " ", "-", "_", "ß", "İ", "ﬁ", "é", "e\u0301", "日", "!", "$", "&", "+"]
NAME_PARTS += ["'", "(", ")", ",", "=", "@", "~", "^", ":", "1", ".", ".md", "%20", "%C3%BC", "%"]
NAMES = (
    st.lists(st.sampled_from(NAME_PARTS), min_size=1, max_size=5)
    .map("".join)
    .filter(lambda name: any(map(str.isalnum, name.replace("md", ""))))
)
PATHS = st.tuples(st.lists(NAMES | st.sampled_from(["..", ".", ""]), max_size=2), NAMES).map(
    lambda parts: "/".join((*parts[0], parts[1]))
)
TAILS = st.sampled_from(["", "#top", "#Two words", "?x=1"])
FILES = st.sampled_from(["home.md", "garden/beds/leek.md"])


@pytest.fixture(scope="module")
def resolve(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Resolve]:
    """Ask Otterwiki which files the links of a text open."""
    place = tmp_path_factory.mktemp("resolver")
    Repository(place / "repository").commit({"home.md": "Home"})
    settings_file = place / "settings.cfg"
    settings_file.write_text(
        f"REPOSITORY = {str(place / 'repository')!r}\nSECRET_KEY = 'a-secret-of-at-least-16-characters'\n"
        f"SQLALCHEMY_DATABASE_URI = 'sqlite:///{place / 'db.sqlite'}'\n"
    )
    environ = os.environ | {"OTTERWIKI_SETTINGS": str(settings_file), "PYTHONPATH": PYTHON_PATH}
    command = [sys.executable, "-m", "tests.interfaces.otterwiki.otterwiki_resolver"]
    with (
        (place / "log").open("wb") as log,
        ForkedPopen(
            command,
            modules=OTTERWIKI_MODULES,
            env=environ,
            cwd=place,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
        ) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None

        def ask(text: str, page_url: str, **config: object) -> list[str | None]:
            assert process.stdin is not None
            assert process.stdout is not None
            print(json.dumps({"text": text, "page_url": page_url, "config": config}), file=process.stdin, flush=True)
            answer = process.stdout.readline()
            assert answer, (place / "log").read_text()
            return [None if file is None else str(file) for file in json.loads(answer)]

        yield ask
        process.stdin.close()


def find_links(text: str, file: str, dialect: Dialect) -> Sequence[Link]:
    page = parse_page(file, "", text.encode("utf-8", "surrogatepass"), None, dialect=dialect)
    assert isinstance(page, Page)
    return page.links


def assert_same_file(opened: list[str | None], text: str, own_file: str, dialect: Dialect) -> None:
    """Compare what Otterwiki opens with our path; where it opens no page, ours may name one that cannot exist."""
    links = find_links(text, own_file, dialect)
    assert len(opened) == len(links), text
    for file, link in zip(opened, links, strict=True):
        is_within_page = file == own_file and not link.paths
        if file is not None and not is_within_page:
            assert [f"{path}.md" for path in link.paths[-1:]] == [file], link


@settings(max_examples=limit_examples(300), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(path=PATHS, tail=TAILS, text=NAMES, file=FILES, link_first=st.booleans(), retain_case=st.booleans())
@example("Green House", "", "b", "home.md", False, False)
@example("//other.example/x", "", "b", "home.md", False, False)
def test_a_wiki_link_opens_the_page_that_otterwiki_opens(
    resolve: Resolve, path: str, tail: str, text: str, file: str, link_first: bool, retain_case: bool
) -> None:
    from wikiholt.interfaces.otterwiki.plugin_config import get_dialect

    config = {"WIKILINK_STYLE": "LINK_TITLE" if link_first else "", "RETAIN_PAGE_NAME_CASE": retain_case}
    target = path + tail
    # Otterwiki opens `amd` for `a.md` with a space after it; ours opens the page that is meant.
    assume(not target.rstrip(" ").endswith(".md") or not target.endswith(" "))
    links = [f"[[{target}]]", f"[[{target}|{text}]]" if link_first else f"[[{text}|{target}]]"]
    page = "\n\n".join(f"see {link} now" for link in links)
    opened = resolve(page, "/" + file.removesuffix(".md"), **config)
    assert_same_file(opened, page, file, get_dialect(config))


@settings(max_examples=limit_examples(300), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    path=PATHS.filter(lambda path: ":" not in path),
    tail=TAILS,
    file=FILES,
    retain_case=st.booleans(),
    lead=st.sampled_from(["", "/"]),
)
def test_a_markdown_link_opens_the_page_that_otterwiki_opens(
    resolve: Resolve, path: str, tail: str, file: str, retain_case: bool, lead: str
) -> None:
    from wikiholt.interfaces.otterwiki.plugin_config import get_dialect

    config = {"WIKILINK_STYLE": "", "RETAIN_PAGE_NAME_CASE": retain_case}
    assume(not (lead + path).startswith("//"))
    page = f"see [text]({lead}{quote(path, safe='/.%~')}{tail.replace(' ', '%20')}) now"
    opened = resolve(page, "/" + file.removesuffix(".md"), **config)
    assert_same_file(opened, page, file, get_dialect(config))


PAGES = {
    "home.md": "[[Green House]], [[green-house]], [[Pests]], [x](/green-house#door), [y](/Green_House), [z](Pic.PNG)\n",
    "growing/pests.md": "# Pests\n\n[home](/home) ![p](Leaf.PNG)\n",
    "green-house.md": "# Green house\n",
}


def test_backlinks_and_renames_follow_only_links_to_that_page(tmp_path: Path) -> None:
    wiki = IndexedWiki(tmp_path, dict(PAGES), pipeline=TextPipeline(dialect=OTTERWIKI)).sync()
    assert [link.line for link in wiki.pages.get_links("green-house").linked_from] == [1, 1]
    assert wiki.pages.get_links("growing/pests").linked_from == ()
    assert wiki.pages.get_links("home").missing == ("green house", "pests", "green_house")
    assert [page.path for page in wiki.pages.find_orphans()] == ["growing/pests"]

    wiki.pages.rename("green-house", "conservatory", ADA, to_link_path=str.title)
    assert wiki.pages.read("home").content == PAGES["home.md"].replace("[[green-house]]", "[[Conservatory]]").replace(
        "(/green-house#door)", "(/Conservatory#door)"
    )
    wiki.pages.rename("growing/pests", "slugs", ADA, to_link_path=str.title)
    assert "![p](growing/Leaf.PNG)" in wiki.pages.read("slugs").content, "the name of an attachment keeps its case"
    wiki.close()


def test_with_the_target_first_the_text_of_a_link_is_no_target(tmp_path: Path) -> None:
    pages = {"home.md": "[[Coffee|Tea]]\n", "coffee.md": "# Coffee\n", "tea.md": "# Tea\n"}
    wiki = IndexedWiki(tmp_path, dict(pages), pipeline=TextPipeline(dialect=OTTERWIKI_LINK_TITLE)).sync()
    assert [link.path for link in wiki.pages.get_links("home").links_to] == ["coffee"]
    assert wiki.pages.rename("tea", "black tea", ADA, to_link_path=str.title).updated == ()
    wiki.pages.rename("coffee", "espresso", ADA, to_link_path=str.title)
    assert wiki.pages.read("home").content == "[[Espresso|Tea]]\n"
    wiki.close()


def test_hide_patterns_ignore_case_unless_otterwiki_retains_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pages = {
        "drafts/coffee plan.md": "Coffee beans\n",
        "my private notes.md": "Coffee filters\n",
        "open.md": "Coffee\n",
    }
    hide = ("Drafts/", "*Private*", "Secret/")
    hidden_pages = {OTTERWIKI: ["open"], OTTERWIKI_CASE: ["drafts/coffee plan", "my private notes", "open"]}
    for dialect, found in hidden_pages.items():
        caplog.clear()
        pipeline = TextPipeline(dialect=dialect, hide=hide)
        wiki = IndexedWiki(tmp_path / dialect.name, dict(pages), pipeline=pipeline).sync()
        hits = wiki.handle.search(SearchRequest("coffee", mode=SearchMode.KEYWORD)).hits
        assert sorted(hit.path for hit in hits) == found
        unused = [pattern for pattern in hide if f"the pattern {pattern!r}" in caplog.text]
        assert unused == (["Secret/"] if dialect is OTTERWIKI else list(hide))
        wiki.close()
