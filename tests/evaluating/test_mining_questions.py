"""Questions mined from real repositories: links, former titles, descriptions."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from wiki_contents import Notebook, Pages

from wikiholt.errors import InvalidEvaluation, NothingIndexed
from wikiholt.evaluating import Kind, Mined, Question, run, sampled
from wikiholt.evaluating.mining import asked_plainly
from wikiholt.model import Filter, Mode
from wikiholt.text.queries import parse_query
from wikiholt.words.revised import RevisedWords

FILLER = "Nothing of note stands in this sentence about whatever there may be to say of it here, nor in the next one."
HEAP = f"# Heap\n\nTurn the compost so that air gets into it. {FILLER}\n"
PAGES: Pages = {
    "heap.md": HEAP,
    "Home.md": "# Home\n\nSee [rotting kitchen waste](heap.md), [heap](heap.md), [click here](heap.md), [[heap]], "
    f"[boats and harbours](sea/ferry.md) and [feeding the worms](worms.md#food). {FILLER}\n",
    "sea/ferry.md": f"# Ferry\n\nBoats leave at nine. [boats and harbours](quay.md). {FILLER}\n",
    "sea/quay.md": f"# Quay\n\nWhere the ferry lies. {FILLER}\n",
    "worms.md": "---\ntitle: Worms\ndescription: What earthworms like to eat during cold winter months\n---\n"
    f"# Worms\n\n## Food\n\nPeelings. {FILLER}\n",
    "copied.md": "---\ndescription: Sharpen the blade of a spade with a flat file every spring\n---\n# Spade\n\n"
    f"Sharpen the blade of a spade with a flat file every spring. {FILLER}\n",
    "short.md": "# Short\n\nToo short.\n",
    "secret.md": f"---\nhidden: true\n---\n# Secret\n\n{FILLER}\n",
    "list.md": f"# List\n\n[tiny remark](short.md), [hidden treasure chest](secret.md). {FILLER}\n",
}


@pytest.fixture
def notes(tmp_path: Path) -> Iterator[Notebook]:
    made = Notebook(tmp_path, PAGES).sync()
    yield made
    made.close()


def of(mined: Mined, kind: Kind) -> dict[str, Question]:
    return {question.text: question for question in mined.questions if question.kind is kind}


def test_a_link_text_asks_for_its_page_and_leaves_out_every_page_that_links_so(notes: Notebook) -> None:
    links = of(notes.handle.mine(), Kind.LINKS)
    assert set(links) == {"rotting kitchen waste", "feeding the worms"}
    question = links["rotting kitchen waste"]
    assert (dict(question.relevant), question.excluded) == ({"heap": 1}, {"Home"})


def test_titles_generic_texts_and_unfindable_pages_are_not_asked_for(notes: Notebook) -> None:
    texts = of(notes.handle.mine(), Kind.LINKS)
    for left_out in ("heap", "click here", "tiny remark", "hidden treasure chest"):
        assert left_out not in texts
    # A page that is wanted and itself links by that text could not be judged.
    assert "boats and harbours" not in texts


def test_former_titles_come_from_renames_and_from_retitled_pages(notes: Notebook) -> None:
    notes.repository.commit({"tools.md": f"# Implements\n\nForks, rakes and spades. {FILLER}\n"})
    notes.repository.commit({"tools.md": f"# Garden tools\n\nForks, rakes and spades. {FILLER}\n"})
    plain = f"Untitled text that only its file gives a name to, and then some more words. {FILLER}\n"
    notes.repository.commit({"shed/old_barn.md": plain})
    notes.repository.commit({"shed/old_barn.md": None, "shed/lodge.md": plain})
    notes.repository.commit({"shed/lodge.md": None, "house.md": plain + "One more line.\n"})
    mined = notes.sync().handle.mine([Kind.FORMER_TITLES])
    asked = {text: dict(each.relevant) for text, each in of(mined, Kind.FORMER_TITLES).items()}
    # Of a page with two former names one is asked; which one does not change from run to run.
    assert asked == {"Implements": {"tools": 1}, "lodge": {"house": 1}}
    assert mined == notes.handle.mine([Kind.FORMER_TITLES])


def test_a_name_that_another_page_bears_today_is_not_asked(notes: Notebook) -> None:
    notes.repository.commit({"pier.md": f"# Ferry\n\nPlanks over water, at first. {FILLER}\n"})
    notes.repository.commit({"pier.md": f"# Pier\n\nPlanks over water, at first. {FILLER}\n"})
    with pytest.raises(InvalidEvaluation):
        notes.sync().handle.mine([Kind.FORMER_TITLES])


def test_a_description_is_asked_unless_the_page_says_it_anyway(notes: Notebook) -> None:
    mined = notes.handle.mine([Kind.DESCRIPTIONS])
    assert list(of(mined, Kind.DESCRIPTIONS)) == ["What earthworms like to eat during cold winter months"]


def test_a_description_does_not_answer_itself(notes: Notebook) -> None:
    (question,) = notes.handle.mine([Kind.DESCRIPTIONS]).questions
    words = notes.handle.words_without([question])
    with notes.handle._index() as index:
        revised = RevisedWords(index, words)
        seeing = run("", Mode.KEYWORD, [question], lambda _, request: notes.handle.search(request))
        assert seeing.outcomes[0].found[0].path == "worms"
        word = parse_query("earthworms")
        assert index.words(word, 5, Filter())
        assert not revised.search(word, 5, None), "the word stands in the description alone"
        assert [hit.page_id for hit in revised.search(parse_query("peelings"), 5, None)] == list(words)


def test_a_sample_is_the_same_for_a_seed_and_keeps_to_its_limit() -> None:
    many = [
        Question(f"{kind}-{n}", kind, f"text {n}", {"a": 1}) for kind in (Kind.LINKS, Kind.LABELLED) for n in range(50)
    ]
    chosen = sampled(many, 10, 1)
    assert chosen == sampled(reversed(many), 10, 1)
    assert [each.kind for each in chosen] == [Kind.LINKS] * 10 + [Kind.LABELLED] * 10
    assert chosen != sampled(many, 10, 2)
    # Most of a sample stays when the wiki grows.
    more = [*many, Question("links-new", Kind.LINKS, "a new one", {"a": 1})]
    assert len({each.id for each in sampled(more, 10, 1)} - {each.id for each in chosen}) <= 1


def test_a_text_is_asked_without_what_a_query_would_obey() -> None:
    assert asked_plainly('the "best" -worst **bold** `--no-rerank`\n way') == "the best worst bold no-rerank way"


def test_a_wiki_that_says_nothing_of_itself_is_an_error_with_a_way_out(tmp_path: Path) -> None:
    made = Notebook(tmp_path, {"one.md": HEAP}).sync()
    with pytest.raises(InvalidEvaluation, match="no questions could be mined") as caught:
        made.handle.mine()
    assert "--queries" in caught.value.hint
    made.close()


def test_an_index_that_was_never_finished_is_not_measured(tmp_path: Path) -> None:
    made = Notebook(tmp_path, PAGES)
    with made.store.writing("cccccccccccccccccccc", 1):
        made.store.create("cccccccccccccccccccc", made.handle._parts.pipeline.recipe(made.handle._workshop.embedder()))
    with pytest.raises(NothingIndexed):
        made.handle.mine()
    made.close()
