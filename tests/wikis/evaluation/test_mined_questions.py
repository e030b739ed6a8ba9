"""Questions mined from real repositories: links, former titles, descriptions."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.support.indexed_wiki import IndexedWiki, PageFiles
from wikiholt.domain.search import PageFilter, SearchMode
from wikiholt.errors import InvalidEvaluation, NothingIndexed
from wikiholt.index.keywords.keyword_cache import build_patched_cache
from wikiholt.text.keyword_query import parse_query
from wikiholt.wikis.evaluation.mined_questions import (
    MinedQuestions,
    build_terms_without,
    mine_questions,
    to_query_text,
)
from wikiholt.wikis.evaluation.questions import MINED_KINDS, Question, QuestionKind, sample_questions
from wikiholt.wikis.evaluation.runner import run_evaluation

FILLER = "Nothing of note stands in this sentence about whatever there may be to say of it here, nor in the next one."
HEAP = f"# Heap\n\nTurn the compost so that air gets into it. {FILLER}\n"
PAGES: PageFiles = {
    "heap.md": HEAP,
    "Home.md": "# Home\n\nSee [rotting kitchen waste](heap.md), [heap](heap.md), [click here](heap.md), [[heap]], "
    f"[boats and harbours](sea/ferry.md) and [feeding the worms](worms.md#food). {FILLER}\n",
    "sea/ferry.md": f"# Ferry\n\nBoats leave at nine. [boats and harbours](quay.md). {FILLER}\n",
    "sea/quay.md": f"# Quay\n\nWhere the ferry stops. {FILLER}\n",
    "worms.md": "---\ntitle: Worms\ndescription: What earthworms like to eat during cold winter months\n---\n"
    f"# Worms\n\n## Food\n\nPeelings. {FILLER}\n",
    "copied.md": "---\ndescription: Sharpen the blade of a spade with a flat file every spring\n---\n# Spade\n\n"
    f"Sharpen the blade of a spade with a flat file every spring. {FILLER}\n",
    "short.md": "# Short\n\nToo short.\n",
    "secret.md": f"---\nhidden: true\n---\n# Secret\n\n{FILLER}\n",
    "list.md": f"# List\n\n[tiny remark](short.md), [hidden treasure chest](secret.md). {FILLER}\n",
}


@pytest.fixture
def notes(tmp_path: Path) -> Iterator[IndexedWiki]:
    made = IndexedWiki(tmp_path, PAGES).sync()
    yield made
    made.close()


def mine(wiki: IndexedWiki, kinds: Sequence[QuestionKind] = MINED_KINDS) -> MinedQuestions:
    with wiki.handle.open_contents() as contents:
        return mine_questions(*contents, kinds)


def filter_kind(mined: MinedQuestions, kind: QuestionKind) -> dict[str, Question]:
    return {question.text: question for question in mined.questions if question.kind is kind}


def test_a_link_text_is_a_question_for_its_page_and_excludes_pages_with_that_link(notes: IndexedWiki) -> None:
    links = filter_kind(mine(notes), QuestionKind.LINKS)
    assert set(links) == {"rotting kitchen waste", "feeding the worms"}
    question = links["rotting kitchen waste"]
    assert (dict(question.relevant), question.excluded) == ({"heap": 1}, {"Home"})


def test_titles_generic_texts_and_hidden_pages_give_no_questions(notes: IndexedWiki) -> None:
    texts = filter_kind(mine(notes), QuestionKind.LINKS)
    for left_out in ("heap", "click here", "tiny remark", "hidden treasure chest"):
        assert left_out not in texts
    # A relevant page that has the same link text cannot be judged.
    assert "boats and harbours" not in texts


def test_former_titles_come_from_renames_and_from_retitled_pages(notes: IndexedWiki) -> None:
    notes.repository.commit({"tools.md": f"# Implements\n\nForks, rakes and spades. {FILLER}\n"})
    notes.repository.commit({"tools.md": f"# Garden tools\n\nForks, rakes and spades. {FILLER}\n"})
    plain = f"Untitled text that only its file gives a name to, and then some more words. {FILLER}\n"
    notes.repository.commit({"shed/old_barn.md": plain})
    notes.repository.commit({"shed/old_barn.md": None, "shed/lodge.md": plain})
    notes.repository.commit({"shed/lodge.md": None, "house.md": plain + "One more line.\n"})
    mined = mine(notes.sync(), [QuestionKind.FORMER_TITLES])
    questions = {
        text: dict(question.relevant) for text, question in filter_kind(mined, QuestionKind.FORMER_TITLES).items()
    }
    # A page with two former names gives one question, the same in every run.
    assert questions == {"Implements": {"tools": 1}, "lodge": {"house": 1}}
    assert mined == mine(notes, [QuestionKind.FORMER_TITLES])


def test_a_former_title_that_another_page_has_now_gives_no_question(notes: IndexedWiki) -> None:
    notes.repository.commit({"pier.md": f"# Ferry\n\nPlanks over water, at first. {FILLER}\n"})
    notes.repository.commit({"pier.md": f"# Pier\n\nPlanks over water, at first. {FILLER}\n"})
    with pytest.raises(InvalidEvaluation):
        mine(notes.sync(), [QuestionKind.FORMER_TITLES])


def test_a_description_gives_a_question_unless_the_page_contains_it(notes: IndexedWiki) -> None:
    mined = mine(notes, [QuestionKind.DESCRIPTIONS])
    assert list(filter_kind(mined, QuestionKind.DESCRIPTIONS)) == [
        "What earthworms like to eat during cold winter months"
    ]


def test_a_description_does_not_answer_itself(notes: IndexedWiki) -> None:
    (question,) = mine(notes, [QuestionKind.DESCRIPTIONS]).questions
    with notes.handle.open_contents() as contents:
        words = build_terms_without(*contents, [question])
    with notes.handle._open_index() as index:
        revised = build_patched_cache(index, words)
        seeing = run_evaluation("", SearchMode.KEYWORD, [question], lambda _, request: notes.handle.search(request))
        assert seeing.outcomes[0].returned[0].path == "worms"
        word = parse_query("earthworms")
        assert index.search_keywords(word, 5, PageFilter())
        assert not revised.search(word, 5, None), "the word is only in the description"
        assert [hit.page_id for hit in revised.search(parse_query("peelings"), 5, None)] == list(words)


def test_a_sample_is_the_same_for_a_seed_and_keeps_to_its_limit() -> None:
    many = [
        Question(f"{kind}-{n}", kind, f"text {n}", {"a": 1})
        for kind in (QuestionKind.LINKS, QuestionKind.LABELLED)
        for n in range(50)
    ]
    chosen = sample_questions(many, 10, 1)
    assert chosen == sample_questions(reversed(many), 10, 1)
    assert [question.kind for question in chosen] == [QuestionKind.LINKS] * 10 + [QuestionKind.LABELLED] * 10
    assert chosen != sample_questions(many, 10, 2)
    # Most of a sample stays when the wiki grows.
    more = [*many, Question("links-new", QuestionKind.LINKS, "a new one", {"a": 1})]
    assert len({question.id for question in sample_questions(more, 10, 1)} - {question.id for question in chosen}) <= 1


def test_query_operators_are_removed_from_a_question() -> None:
    assert to_query_text('the "best" -worst **bold** `--no-rerank`\n way') == "the best worst bold no-rerank way"


def test_a_wiki_without_questions_is_an_error_with_a_hint(tmp_path: Path) -> None:
    made = IndexedWiki(tmp_path, {"one.md": HEAP}).sync()
    with pytest.raises(InvalidEvaluation, match="no test questions found in this wiki") as caught:
        mine(made)
    assert "--queries" in caught.value.hint
    made.close()


def test_an_incomplete_index_is_not_evaluated(tmp_path: Path) -> None:
    made = IndexedWiki(tmp_path, PAGES)
    with made.store.write_lock("cccccccccccccccccccc", 1):
        made.store.create(
            "cccccccccccccccccccc", made.handle._config.pipeline.build_recipe(made.handle._components.embedder())
        )
    with pytest.raises(NothingIndexed):
        mine(made)
    made.close()
