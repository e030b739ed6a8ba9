"""What a check finds in a wiki that real commits change."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.indexed_wiki import IndexedWiki, PageFiles
from wikiholt.domain.search import QueryRecord
from wikiholt.errors import InvalidEvaluation, NoPages
from wikiholt.wikis.check.findings import RULES
from wikiholt.wikis.check.questions import build_logged_questions
from wikiholt.wikis.check.wiki_check import CheckReport, WikiCheck

HOME = "# Home\n\nSee [the rules](rules/fires.md) and [the key](shed/key.md).\n"
FIRES = "# Fires\n\nYou may light a fire on your plot from 1 October until the end of March.\n"
KEY = "# Key\n\nThe treasurer keeps the spare key of the tool shed.\n"
PAGES: PageFiles = {"Home.md": HOME, "rules/fires.md": FIRES, "shed/key.md": KEY}
TABLE = "# Questions\n\n| Question | Page | Sentence |\n|---|---|---|\n"
FOUND = "| Who keeps the spare key of the shed? | shed/key.md | The treasurer keeps the spare key of the tool shed. |\n"


@pytest.fixture
def wiki(tmp_path: Path) -> Iterator[IndexedWiki]:
    wiki = IndexedWiki(tmp_path, PAGES)
    yield wiki
    wiki.close()


def make_check(wiki: IndexedWiki, questions_file: str = "questions.md") -> WikiCheck:
    """A check whose commits are HEAD at the time."""
    return WikiCheck(lambda _: wiki.sync().handle, wiki.source, questions_file, ())


def compare(wiki: IndexedWiki, changes: PageFiles) -> CheckReport:
    """Check what these changes cause, with the questions that there are afterwards."""
    check, old = make_check(wiki), wiki.repository.get_head()
    wiki.sync()
    new = wiki.repository.commit(changes)
    questions = check.read_questions(new)
    wiki.repository.run_git("checkout", "--quiet", "--detach", old)
    base = check.check_base(old, questions)
    wiki.repository.run_git("checkout", "--quiet", "main")
    report = check.check_head(base, new, questions, ())
    assert (report.base, report.head) == (old, new)
    return report


def list_findings(report: CheckReport) -> list[tuple[str, str, str, int]]:
    assert all(each.rule in RULES for each in report.findings)
    return [(each.rule, str(each.severity), each.file, each.line) for each in report.findings]


def test_a_harmless_change_has_no_findings(wiki: IndexedWiki) -> None:
    report = compare(
        wiki, {"rules/water.md": "# Water\n\nWater the beds in the evening.\n", "Home.md": HOME + "\nHi.\n"}
    )
    assert list_findings(report) == []


def test_a_deleted_page_breaks_links_to_it(wiki: IndexedWiki) -> None:
    report = compare(wiki, {"shed/key.md": None})
    assert list_findings(report) == [("broken-link", "error", "Home.md", 3)]
    assert report.findings[0].message == "the link to shed/key leads nowhere: the page was deleted"


def test_a_renamed_page_breaks_links_that_were_not_changed(wiki: IndexedWiki) -> None:
    report = compare(wiki, {"shed/key.md": None, "shed/spare key.md": KEY})
    assert ("broken-link", "error", "Home.md", 3) in list_findings(report)
    assert report.findings[0].message.endswith("the page is shed/spare key now")


def test_a_rename_with_its_links_or_with_an_alias_breaks_nothing(wiki: IndexedWiki) -> None:
    moved = {"shed/key.md": None, "shed/spare.md": KEY, "Home.md": HOME.replace("shed/key", "shed/spare")}
    assert list_findings(compare(wiki, moved)) == []
    aliased = f"---\naliases: [shed/spare]\n---\n{KEY}"
    assert list_findings(compare(wiki, {"shed/spare.md": None, "shed/third.md": aliased})) == []


def test_a_page_that_moves_breaks_its_own_relative_links(wiki: IndexedWiki) -> None:
    wiki.repository.commit({"shed/key.md": KEY + "\n[Fires](../rules/fires.md)\n"})
    moved = {"shed/key.md": None, "a/b/key.md": KEY + "\n[Fires](../rules/fires.md)\n"}
    report = compare(wiki, moved | {"Home.md": HOME.replace("shed/", "a/b/")})
    assert list_findings(report) == [("broken-link", "error", "a/b/key.md", 5)]


def test_a_new_link_to_no_page_is_a_warning_once(wiki: IndexedWiki) -> None:
    report = compare(wiki, {"rules/fires.md": FIRES + "\n[Ash](ash.md) and [ash](ash.md)\n"})
    assert list_findings(report) == [("missing-page", "warning", "rules/fires.md", 5)]
    assert list_findings(compare(wiki, {"rules/fires.md": FIRES + "\n[Ash](ash.md) again\n"})) == []


def test_a_page_without_links_to_it_any_more_is_orphaned(wiki: IndexedWiki) -> None:
    report = compare(wiki, {"Home.md": "# Home\n\nSee [the rules](rules/fires.md).\n"})
    assert list_findings(report) == [("orphaned-page", "warning", "shed/key.md", 1)]


def test_pages_behind_an_orphaned_page_cannot_be_reached(wiki: IndexedWiki) -> None:
    wiki.repository.commit({"shed/key.md": KEY + "\n[Locks](locks.md)\n", "shed/locks.md": "# Locks\n\nOil them.\n"})
    report = compare(wiki, {"Home.md": "# Home\n\nSee [the rules](rules/fires.md).\n"})
    assert list_findings(report) == [
        ("orphaned-page", "warning", "shed/key.md", 1),
        ("unreachable-page", "warning", "shed/locks.md", 1),
    ]


def test_a_date_that_changes_in_one_of_two_places_is_found(wiki: IndexedWiki) -> None:
    wiki.repository.commit({"faq.md": f"# FAQ\n\nYes. {FIRES.splitlines()[2]}\n", "Home.md": HOME + "[faq](faq.md)\n"})
    report = compare(wiki, {"rules/fires.md": FIRES.replace("October", "November")})
    assert list_findings(report) == [("different-numbers", "warning", "rules/fires.md", 3)]
    assert "this says November, but faq.md:3 says October: Yes." in report.findings[0].message
    both = {"rules/fires.md": FIRES.replace("1 October", "5 May"), "faq.md": FIRES.replace("1 October", "5 May")}
    assert list_findings(compare(wiki, both)) == []


def test_values_that_have_always_differed_are_not_reported_again(wiki: IndexedWiki) -> None:
    other = FIRES.replace("1 October", "1 November")
    wiki.repository.commit({"faq.md": other, "Home.md": HOME + "[faq](faq.md)\n"})
    assert list_findings(compare(wiki, {"rules/fires.md": FIRES.replace("1 October", "2 October")})) == []


LONG = " ".join(
    f"Rule {word} of the site says what each of us must do with the {word}." for word in ("ash", "bin", "can")
)


def test_a_page_that_is_added_again_is_a_near_duplicate(wiki: IndexedWiki) -> None:
    wiki.repository.commit({"rules/site.md": f"# Site\n\n{LONG}\n"})
    added: PageFiles = {"copy.md": f"# Copy\n\n{LONG}\n"}
    report = compare(wiki, added)
    assert list_findings(report) == [("near-duplicate", "warning", "copy.md", 1)]
    assert report.findings[0].message == "this is nearly the same as rules/site.md:1"
    assert list_findings(compare(wiki, {"copy.md": f"# Copy\n\n{LONG} Yes.\n"})) == []


def test_two_new_pages_that_are_the_same_are_one_finding(wiki: IndexedWiki) -> None:
    report = compare(wiki, {f"{name}.md": f"# {name}\n\n{LONG}\n" for name in ("one", "two")})
    assert [each[:3] for each in list_findings(report)] == [("near-duplicate", "warning", "two.md")]


def test_a_text_that_many_pages_have_is_no_near_duplicate(wiki: IndexedWiki) -> None:
    own = {name: " ".join(f"{name}{number} grows here." for number in range(200)) for name in "abcdef"}
    wiki.repository.commit({f"{name}.md": f"# {name}\n\n{text}\n\n## Rules\n\n{LONG}\n" for name, text in own.items()})
    text = own["a"].replace("a", "g")
    assert list_findings(compare(wiki, {"g.md": f"# g\n\n{text}\n\n## Rules\n\n{LONG}\n"})) == []


def test_a_page_that_cannot_be_indexed_is_found(wiki: IndexedWiki) -> None:
    report = compare(wiki, {"photo.md": b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\xff\xfe\x00\x01"})
    assert list_findings(report) == [("unreadable-page", "warning", "photo.md", 1)]


def test_an_expected_question_that_loses_its_page_is_an_error(wiki: IndexedWiki) -> None:
    wiki.repository.commit({"questions.md": TABLE + FOUND})
    changed = {f"copy{number}.md": KEY for number in range(4)} | {"shed/key.md": "# Nothing\n\nIt moved elsewhere.\n"}
    report = compare(wiki, changed)
    assert [each[:3] for each in list_findings(report) if each[2] == "questions.md"] == [
        ("unanswered-question", "error", "questions.md"),
        ("missing-sentence", "error", "questions.md"),
    ]
    assert "any more" in report.findings[0].message
    assert {each.line for each in report.findings if each.file == "questions.md"} == {5}


def test_what_was_not_answered_before_is_a_warning(wiki: IndexedWiki) -> None:
    unanswered = "| spare key of the tool shed | rules/fires.md | Not there. |\n"
    wiki.repository.commit({"questions.md": TABLE + unanswered} | {f"key{number}.md": KEY for number in range(30)})
    report = compare(wiki, {"rules/water.md": "# Water\n\nWater in the evening.\n"})
    assert ("missing-sentence", "warning", "questions.md", 5) in list_findings(report)
    assert {each.severity for each in report.findings} == {"warning"}


def test_a_new_question_that_is_not_answered_is_an_error(wiki: IndexedWiki) -> None:
    wiki.repository.commit({f"key{number}.md": KEY for number in range(30)})
    report = compare(wiki, {"questions.md": TABLE + "| spare key of the tool shed | rules/fires.md | Not there. |\n"})
    rules = [(each.rule, str(each.severity)) for each in report.findings]
    assert rules == [("unanswered-question", "error"), ("missing-sentence", "error")]
    again = compare(wiki, {"more.md": "# More\n"})
    assert {str(each.severity) for each in again.findings} == {"warning"}


def test_a_question_for_a_page_that_does_not_exist_is_an_error(wiki: IndexedWiki) -> None:
    report = compare(wiki, {"questions.md": TABLE + "| Where is the pond? | pond.md |\n"})
    assert list_findings(report) == [("unanswered-question", "error", "questions.md", 5)]


def test_a_link_text_that_does_not_find_its_page_any_more_is_a_warning(wiki: IndexedWiki) -> None:
    long = "The person who has the money of the club also has it, on a hook behind the door of the office. " * 2
    link = "\n[where to find what opens our hut](shed/key.md)\n"
    wiki.repository.commit({"Home.md": HOME + link, "shed/key.md": f"# Key\n\nIt opens our hut. {long}\n"})
    filler = {f"hut{number}.md": f"# Hut {number}\n\nFind what opens our hut. {long}\n" for number in range(30)}
    report = compare(wiki, filler | {"shed/key.md": "# Key\n\nNothing.\n"})
    assert ("lost-question", "warning", "shed/key.md", 1) in list_findings(report)


def test_one_commit_alone_is_checked_for_faults(wiki: IndexedWiki) -> None:
    head = wiki.repository.commit(
        {"rules/ash.md": "# Ash\n\n[Pond](pond.md)\n", "questions.md": TABLE + FOUND + "| Who? | pond |\n"}
    )
    report = make_check(wiki).run(None, head)
    assert list_findings(report) == [
        ("unanswered-question", "error", "questions.md", 6),
        ("missing-page", "warning", "rules/ash.md", 3),
        ("orphaned-page", "note", "rules/ash.md", 1),
    ]


def test_questions_in_another_file_must_exist(wiki: IndexedWiki) -> None:
    with pytest.raises(InvalidEvaluation, match=r"there is no file asked\.md at "):
        make_check(wiki, "asked.md").run(None, wiki.repository.get_head())
    assert make_check(wiki).run(None, wiki.repository.get_head()).notes == [
        "there is no questions.md with questions that this wiki must answer"
    ]


def test_a_wiki_without_pages_is_an_error(tmp_path: Path) -> None:
    wiki = IndexedWiki(tmp_path, {"photo.png": b"png"})
    with pytest.raises(NoPages):
        make_check(wiki).run(None, wiki.repository.get_head())
    wiki.close()


def make_record(query: str, page: str, *, relevant: bool = True, filtered: bool = False) -> QueryRecord:
    return QueryRecord(0.0, "cli", query, "hybrid", filtered, 1, not relevant, False, 0.9, 1.0, "", (page,))


def test_searches_made_twice_are_questions_for_the_page_that_came_first() -> None:
    records = [make_record("Shed key", "old"), make_record("shed key", "shed/key"), make_record("once", "shed/key")]
    records += 2 * [make_record("odd", "shed/key", relevant=False), make_record("part", "shed/key", filtered=True)]
    records += 2 * [make_record("gone", "deleted")]
    questions = build_logged_questions(records, ["shed/key", "old"])
    assert [(question.text, dict(question.relevant)) for question in questions] == [("shed key", {"shed/key": 1})]
