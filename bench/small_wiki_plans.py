"""Which pages and questions the small wikis of bench.small_wikis have."""

import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from bench import codes, collections
from bench.calibration import FOREIGN, NEAR, OWN

USER_QUESTIONS = Path("bench/user_questions.tsv")
USER_WIKI_PAGES, USER_FOREIGN = 50, 200
PAGES_PER_QUESTION = 6
"""A wiki has a question for this many pages, as many near ones, and twice as many foreign ones."""
MAX_ANSWERS = 2
"""Relevant pages of a question that are put into a wiki; cranfield has dozens for some."""


class Question(NamedTuple):
    """A question of a collection, the pages that answer it, and the pages that must not be in a wiki."""

    collection: str
    kind: str
    text: str
    relevant: frozenset[str] = frozenset()
    excluded: frozenset[str] = frozenset()

    @property
    def is_code(self) -> bool:
        return self.kind.endswith("(codes)")


class SmallWiki(NamedTuple):
    """The paths of a wiki's pages, and the questions that are asked there by sort."""

    pages: Sequence[str]
    questions: Mapping[int, Sequence[Question]]


def read_questions(directory: Path, held: dict[str, set[str]]) -> list[Question]:
    """The judged questions of a collection, and codes of its pages."""
    return [
        Question(kind.collection, kind.name, text, frozenset(kind.relevant[number]), frozenset(excluded))
        for kind in (*collections.read_queries(directory), codes.make_queries(directory.name, held))
        for number, text in kind.texts.items()
        for excluded in (kind.exclude.get(number, ()),)
    ]


def plan_wikis(
    paths: Sequence[str], own: Sequence[Question], foreign: Sequence[Question], size: int
) -> Iterator[SmallWiki]:
    """Wikis of this size, so that every question that has an answer is asked in one of them."""
    rng = random.Random(f"{own[0].collection} {size}")
    existing = set(paths)
    left = rng.sample(own, len(own))
    count = size // PAGES_PER_QUESTION
    for start in range(0, len(left), count):
        asked = left[start : start + count]
        pages: dict[str, None] = {}
        for question in asked:
            answers = sorted(question.relevant & existing)
            pages |= dict.fromkeys(rng.sample(answers, min(MAX_ANSWERS, len(answers))))
        left_out = frozenset[str]().union(*(question.excluded for question in asked))
        others = [path for path in rng.sample(paths, len(paths)) if path not in pages and path not in left_out]
        chosen = [*pages, *others][:size]
        asked = [each for each in asked if not each.relevant.isdisjoint(chosen) and each.excluded.isdisjoint(chosen)]
        near = [each for each in own if (each.relevant | each.excluded).isdisjoint(chosen)]
        near = rng.sample(near, min(count, len(near)))
        yield SmallWiki(chosen, {OWN: asked, NEAR: near, FOREIGN: rng.sample(foreign, 2 * count)})


def read_user_questions() -> list[Question]:
    rows = [line.split("\t") for line in USER_QUESTIONS.read_text(encoding="utf-8").splitlines()]
    return [Question(wiki, "user", text, frozenset((page,))) for wiki, page, text in rows]


def plan_user_wikis(
    paths: Sequence[str], own: Sequence[Question], foreign: Sequence[Question], judged: Sequence[Question]
) -> Iterator[SmallWiki]:
    """A wiki with all questions, and for each question the wiki without its page."""
    rng = random.Random(own[0].collection)
    pages = dict.fromkeys(page for question in own for page in sorted(question.relevant))
    others = [path for path in rng.sample(paths, len(paths)) if path not in pages]
    chosen = [*pages, *others][:USER_WIKI_PAGES]
    yield SmallWiki(chosen, {OWN: own, FOREIGN: [*foreign, *rng.sample(judged, USER_FOREIGN)]})
    for question in own:
        yield SmallWiki([path for path in chosen if path not in question.relevant], {NEAR: [question]})
