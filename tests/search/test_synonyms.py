"""Synonyms of a wiki: what a query is also searched with, and what it then finds."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.indexed_wiki import IndexedWiki
from tests.wikis.query_log.query_log_fixtures import make_query_record
from wikiholt.domain.search import Hit, SearchMode
from wikiholt.search.request import SearchRequest
from wikiholt.search.synonyms import Synonyms
from wikiholt.text.keyword_query import MAX_BRANCHES
from wikiholt.text.synonym_rules import SYNONYM_PAGE, check_synonym_rule, read_synonym_rules
from wikiholt.wikis.query_report import SynonymProposal, propose_synonyms

RULES = ("PTO = vacation = annual leave", "k8s > kubernetes")


@pytest.fixture
def wiki(tmp_path: Path) -> Iterator[IndexedWiki]:
    pages: dict[str, str | bytes | None] = {
        "people/absence.md": "# Absence\n\nEveryone has thirty days of annual leave a year.\n",
        "people/vacation.md": "# Vacation\n\nAsk your lead three weeks before.\n",
        "people/leaving.md": "# Notice\n\nAn annual review comes first, then leave your laptop here.\n",
        "kubernetes.md": "# Kubernetes\n\nThe cluster runs in two halls.\n",
        "k8s.md": "# Old notes about k8s\n\nNothing here is right any more.\n",
    }
    pages |= {f"more/{i}.md": f"# More {i}\n\nAnother text about number {i}.\n" for i in range(8)}
    made = IndexedWiki(tmp_path, pages)
    made.handle._config = replace(made.handle._config, synonym_rules=RULES)
    made.sync()
    yield made
    made.close()


def find(wiki: IndexedWiki, query: str, mode: SearchMode = SearchMode.KEYWORD) -> list[Hit]:
    return list(wiki.handle.search(SearchRequest(query, 10, mode, explain=True)).hits)


def get_paths(wiki: IndexedWiki, query: str) -> list[str]:
    return [hit.path for hit in find(wiki, query)]


@pytest.mark.parametrize(
    ("query", "texts"),
    [
        ("PTO", ["PTO", " vacation ", ' "annual leave" ']),
        ("how many vacations", ["how many vacations", "how many  PTO ", 'how many  "annual leave" ']),
        ("annual leave rules", ["annual leave rules", " PTO  rules", " vacation  rules"]),
        ("k8s pto", ["k8s pto", "k8s  vacation ", 'k8s  "annual leave" ', " kubernetes  pto"]),
        ("kubernetes", ["kubernetes"]),
        ('"PTO"', ['"PTO"']),
        ("-PTO rules", ["-PTO rules"]),
        ("+PTO rules", ["+PTO rules"]),
        ('annual "x" leave', ['annual "x" leave']),
        ("leave", ["leave"]),
    ],
)
def test_a_query_is_searched_with_the_other_words(query: str, texts: list[str]) -> None:
    assert list(Synonyms(RULES).expand([query]))[: len(texts)] == texts


def test_a_query_has_at_most_eight_forms() -> None:
    assert len(Synonyms(("a1 = b1 = c1", "d1 = e1 = f1")).expand(["a1 d1"])) == 8


def test_pages_with_a_synonym_are_found_and_marked(wiki: IndexedWiki) -> None:
    assert set(get_paths(wiki, "PTO")) == {"people/absence", "people/vacation"}
    hits = {hit.path: hit for hit in find(wiki, "PTO")}
    marked = hits["people/absence"].snippet
    assert [marked.text[span.start : span.end] for span in marked.matches] == ["annual", "leave"]
    assert "synonyms: annual leave for PTO" in hits["people/absence"].explanation
    assert hits["people/vacation"].name_matches
    assert find(wiki, "pto", SearchMode.HYBRID)[0].path in hits


def test_one_direction_and_quoted_words_are_kept(wiki: IndexedWiki) -> None:
    assert set(get_paths(wiki, "k8s")) == {"k8s", "kubernetes"}
    assert get_paths(wiki, "kubernetes") == ["kubernetes"]
    assert get_paths(wiki, '"PTO"') == []
    assert get_paths(wiki, "vacation -absence") == ["people/vacation"]


PAGE = """# Synonyms

Words that mean the same here, one rule a line:

- bike = bicycle = cycle
- hut > shed, crate = box
* "quoted" = nothing
  1. dozen = twelve
"""


def test_a_page_of_the_wiki_has_rules_too(wiki: IndexedWiki) -> None:
    pages = {"shed.md": "# Shed\n\nTwelve bicycles stand here.\n", "box.md": "# Box\n\nFor apples.\n"}
    wiki.repository.commit({"_synonyms.md": PAGE, **pages})
    wiki.sync()
    for query in ("bike", "hut", "dozen"):
        assert get_paths(wiki, query) == ["shed"], query
    assert get_paths(wiki, "crate") == ["box"]
    assert "people/vacation" in get_paths(wiki, "PTO"), "the rules of the settings stay"
    assert get_paths(wiki, "quoted") == [], "the page of the rules is no answer"
    assert get_paths(wiki, "_synonyms") == ["_synonyms"], "it is found by its name"
    (hit,) = find(wiki, "bike")
    assert [hit.snippet.text[match.start : match.end] for match in hit.snippet.matches] == ["bicycles"]
    wiki.repository.commit({"_synonyms.md": "- bike = tricycle\n"})
    wiki.sync()
    assert get_paths(wiki, "bike") == []
    wiki.repository.commit({"_synonyms.md": None})
    wiki.sync()
    assert get_paths(wiki, "hut") == []


def test_rules_on_a_long_page_are_all_read(wiki: IndexedWiki) -> None:
    rules = [f"alias{number} = the other name number {number}" for number in range(400)]
    wiki.repository.commit({"_synonyms.md": "\n".join(rules), "last.md": "# Last\n\nThe other name number 399.\n"})
    wiki.sync()
    with wiki.handle.open_snapshot() as snapshot:
        index = snapshot.live_index.index
        page = index.find_page(SYNONYM_PAGE)
        assert page is not None
        assert set(rules) <= set(read_synonym_rules(index.get_page_chunks([page.page_id])[page.page_id]))
    assert get_paths(wiki, "alias399") == ["last"]


def test_the_model_reads_synonyms_instead_of_words_on_no_page(wiki: IndexedWiki) -> None:
    wiki.repository.commit({"_synonyms.md": "- PTO = furlough\n"})
    wiki.sync()
    with wiki.handle.open_snapshot() as snapshot:
        searcher = snapshot.live_index.searcher
        find(wiki, "PTO")
        make_text = searcher._interpreter.make_model_text
        assert make_text("how much PTO is left?") == "how much vacation annual leave is left?"
        assert make_text("kubernetes vacations") == "kubernetes vacations", "words of pages stay as they are"
        assert make_text("k8s") == "k8s"
        assert make_text('"PTO"') == "PTO", "a quoted word has no synonyms"


def test_a_word_with_a_synonym_is_no_typo(wiki: IndexedWiki) -> None:
    wiki.repository.commit({"more/9.md": "# More\n\nThe halfs are open.\n"})
    wiki.sync()
    assert not wiki.handle.search(SearchRequest("vacations", mode=SearchMode.KEYWORD)).did_you_mean


def test_a_wiki_without_rules_expands_nothing() -> None:
    assert Synonyms().expand(["PTO"]) == ("PTO",)


@pytest.mark.parametrize(
    "rule", ["PTO", "a =", "= b", "a > b > c", "a = !!", 'a = "b c"', "a=b=c=d=e=f=g", f"a={'b' * 61}"]
)
def test_a_bad_rule_says_what_to_write(rule: str) -> None:
    assert check_synonym_rule(rule)
    assert not any(map(check_synonym_rule, (*RULES, "a = b > c = d")))


def test_the_query_log_proposes_rules() -> None:
    records = [
        make_query_record("PTO rules", 100, nothing_relevant=True),
        make_query_record("vacation rules", 120),
        make_query_record("pump", 300, hits=0),
        make_query_record("heron", 330),
        make_query_record("late", 500, hits=0),
        make_query_record("late bus", 520, hits=0),
        make_query_record("sick bus", 600),
    ]
    assert propose_synonyms(records) == (SynonymProposal("pto = vacation", 1),)
    again = [make_query_record("pump", 800, hits=0), make_query_record("heron", 830)]
    assert propose_synonyms([*records, *again])[0] == SynonymProposal("pump = heron", 2)


def test_a_name_of_many_rules_has_few_synonyms() -> None:
    synonyms, asked = Synonyms([f"a1 = b{number} = c{number}" for number in range(500)]), list[str]()

    def is_on_page(name: str) -> bool:
        asked.append(name)
        return name != "a1"

    text = synonyms.rewrite("a1 " * 500, is_on_page)
    assert len(asked) == len(set(asked)) == len(text.split()) // 500 + 1 == MAX_BRANCHES + 1
