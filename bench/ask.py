"""How often the sentences of an answer contain it, and how often questions of another wiki get one: docs/adr/0050.

    python -m bench.ask WIKIS QUESTIONS [--report NAMES] [--fit NAMES] [--collections DIR] [--data DIR] [--write]

WIKIS and QUESTIONS are those of bench.own_words; XQuAD in English is asked too. NAMES are wikis, with commas between them. `--fit`
prints the weights of `search/answers.py` fitted to these wikis, which must not be among those of `--report`, and what limits of the
probability do with weights fitted to the others of them. Each wiki is also asked as
many questions of the other wikis of its list. An answer counts if a sentence of the right page has the answering words of XQuAD, or five
words in a row of an answering line.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import NamedTuple
from unittest.mock import patch

import numpy as np

from bench import collections
from bench.answers import make_pages
from bench.own_words import Question, Wikis, fit, fold_words, read_lines
from bench.quality import index_collection
from bench.report import make_head, make_parser, publish
from wikiholt.api.bootstrap import open_service
from wikiholt.domain.answer import Answer
from wikiholt.domain.search import Hit
from wikiholt.search import answers
from wikiholt.search.answers import ProbabilityFeatures, RatedSentence, SentenceFeatures
from wikiholt.search.request import SearchRequest
from wikiholt.wikis.handle import WikiHandle

REPORTED = "actual,madetech,nushell"
TIMED_QUESTIONS = 100
SEED = 1
CROSS_VALIDATED = 0.25, 0.3, 0.32, 0.34, 0.36, 0.38, 0.4
"""Values of ANSWER_PROBABILITY that a fit compares."""


@dataclass(frozen=True)
class AskedQuestion:
    """A question, the file that answers it (empty if it is foreign), and texts one of which an answer has."""

    text: str
    file: str = ""
    answers: frozenset[str] = frozenset()

    def is_in(self, file: str, text: str) -> bool:
        folded = fold_words(text)
        return file == self.file and any(fold_words(answer) in folded for answer in self.answers)


@dataclass(frozen=True)
class AskedWiki:
    """A wiki with its own questions and those of others."""

    name: str
    handle: WikiHandle
    own: Sequence[AskedQuestion]
    foreign: Sequence[AskedQuestion]


def main() -> None:
    parser = make_parser(__doc__, "ask", "collections", "data")
    parser.add_argument("wikis", type=Path)
    parser.add_argument("questions", type=Path)
    parser.add_argument("--report", default=REPORTED)
    parser.add_argument("--fit", default="")
    arguments = parser.parse_args()
    wikis = Wikis(arguments.data, arguments.wikis, {}, {})
    questions = read_lines(arguments.questions)
    if arguments.fit:
        print("\n".join(fit_weights(load_wikis(wikis, questions, arguments.fit.split(",")))))
        return
    asked = load_wikis(wikis, questions, arguments.report.split(","))
    asked.append(load_articles(arguments.collections, arguments.data, [q for each in asked for q in each.own]))
    publish("ask", __doc__, "\n".join(measure(asked)), write=arguments.write)


def load_wikis(wikis: Wikis, questions: Sequence[Question], names: Sequence[str]) -> list[AskedWiki]:
    own = {
        name: [
            AskedQuestion(str(each["q"]), str(each["page"]), wikis.find_answer_runs(each))
            for each in questions
            if each["wiki"] == name
        ]
        for name in names
    }
    return [
        AskedWiki(
            name,
            wikis.open(name),
            own[name],
            choose_foreign([q for n in names if n != name for q in own[n]], len(own[name])),
        )
        for name in names
    ]


def choose_foreign(questions: Sequence[AskedQuestion], count: int) -> list[AskedQuestion]:
    chosen = random.Random(SEED).sample(list(questions), min(count, len(questions)))
    return [AskedQuestion(each.text) for each in chosen]


def load_articles(directory: Path, data: Path, foreign: Sequence[AskedQuestion]) -> AskedWiki:
    """XQuAD as a wiki whose pages are articles."""
    pages, questions = make_pages(collections.read_articles(directory))
    repository = data / "collections" / "xquad.git"
    collections.write_pages(pages, repository)
    service = open_service(data / "quality")
    index_collection(service, "xquad", repository)
    own = [AskedQuestion(each.text, f"{each.page}.md", frozenset({each.answer})) for each in questions]
    return AskedWiki("XQuAD", service.get_handle("xquad"), own, choose_foreign(foreign, len(own)))


def measure(wikis: Sequence[AskedWiki]) -> Iterator[str]:
    yield make_head(
        "| wiki | questions | right page first, among three | snippet has the answer: first, among three | chosen sentences"
        " have it: first, among three | answered | … and has it | had it and was not answered | foreign | answered |"
    )
    totals = np.zeros(12, int)
    for wiki in wikis:
        counts = count_answers(wiki)
        totals += counts if wiki.name != "XQuAD" else 0
        yield format_row(wiki.name, counts)
    yield format_row("all wikis without XQuAD", totals)
    yield f"\n{format_times(wikis[0])} A limit of {answers.ANSWER_PROBABILITY} was chosen on other wikis."


def count_answers(wiki: AskedWiki) -> np.ndarray:
    """Questions; right page first, and among three; of each with the snippet, and the sentences; answered; right; right
    but not shown; foreign; answered."""
    counts = np.zeros(12, int)
    for question in wiki.own:
        pages = list(dict.fromkeys(hit.file for hit in wiki.handle.search(SearchRequest(question.text, 3)).hits))
        snippet = wiki.handle.search(SearchRequest(question.text, 1)).hits
        is_first, is_found = pages[:1] == [question.file], question.file in pages[:3]
        in_snippet = any(question.is_in(hit.file, hit.snippet.text) for hit in snippet)
        answer = ask_anyway(wiki.handle, question.text)
        has_it = any(question.is_in(each.file, each.text) for each in answer.sentences)
        is_shown = answer.probability >= answers.ANSWER_PROBABILITY
        counts += [
            *(True, is_first, is_found, in_snippet and is_first, in_snippet and is_found),
            *(has_it and is_first, has_it and is_found, is_shown, is_shown and has_it, has_it and not is_shown, 0, 0),
        ]
    for question in wiki.foreign:
        counts += [*[0] * 10, 1, ask_anyway(wiki.handle, question.text).probability >= answers.ANSWER_PROBABILITY]
    return counts


def ask_anyway(handle: WikiHandle, question: str) -> Answer:
    """The answer with its sentences, however unlikely."""
    limit = answers.ANSWER_PROBABILITY
    with patch.object(answers, "ANSWER_PROBABILITY", -1.0):
        answer = handle.ask(question)
    assert limit == answers.ANSWER_PROBABILITY
    return answer


def format_row(name: str, counts: np.ndarray) -> str:
    n, first, three, snippet, snippet_three, chosen, chosen_three, answered, right, hidden, foreign, shown = counts
    cells = (
        *(n, f"{first / n:.1%}, {three / n:.1%}", f"{snippet / first:.1%}, {snippet_three / three:.1%}"),
        *(
            f"{chosen / first:.1%}, {chosen_three / three:.1%}",
            f"{answered / n:.1%}",
            f"{right / max(answered, 1):.1%}",
            f"{hidden / n:.1%}",
        ),
        *(foreign, f"{shown / max(foreign, 1):.1%}"),
    )
    return f"| {name} | " + " | ".join(map(str, cells)) + " |"


def format_times(wiki: AskedWiki) -> str:
    """What an answer costs beside the search for it, in turns."""
    times: dict[str, list[float]] = {"search": [], "ask": []}
    for question in wiki.own[:TIMED_QUESTIONS]:
        for name, call in (("search", lambda q: wiki.handle.search(SearchRequest(q, 5))), ("ask", wiki.handle.ask)):
            start = perf_counter()
            call(question.text)
            times[name].append((perf_counter() - start) * 1000)
    search, ask = (median(times[name]) for name in ("search", "ask"))
    return f"Median of {TIMED_QUESTIONS} questions to {wiki.name}, in turns: an answer takes {ask / search:.2f} times a search."


def fit_weights(wikis: Sequence[AskedWiki]) -> Iterator[str]:
    """The weights of sentences and of the probability, and the probabilities with weights fitted to the other wikis."""
    kept = [each for wiki in wikis for each in rate_questions(wiki)]
    weights, slopes = fit_both(kept)
    yield f"SENTENCE_WEIGHTS = {SentenceFeatures(*weights.round(2).tolist())}"
    *rounded, bias = np.round(slopes, 3).tolist()
    yield f"PROBABILITY_WEIGHTS = {ProbabilityFeatures(*rounded)}, PROBABILITY_BIAS = {-bias:.2f}"
    own: list[tuple[float, bool]] = []
    foreign: list[tuple[float, bool]] = []
    for wiki in wikis:
        weights, slopes = fit_both([each for each in kept if each.wiki != wiki.name])
        for each in kept:
            if each.wiki == wiki.name:
                row, has_it = choose(each, weights)
                likely = 1 / (1 + np.exp(-np.append(row, 1.0) @ slopes))
                (foreign if each.is_foreign else own).append((likely, has_it))
    for limit in CROSS_VALIDATED:
        shown = [has_it for likely, has_it in own if likely >= limit]
        wrong = sum(likely >= limit for likely, _ in foreign) / len(foreign)
        yield f"{limit}: foreign {wrong:.1%}, own {len(shown) / len(own):.1%}, and right {np.mean(shown):.1%}"


class RatedQuestion(NamedTuple):
    """A question with the sentences that compete, and which of them are right."""

    wiki: str
    is_foreign: bool
    hits: Sequence[Hit]
    rated: Sequence[RatedSentence]
    right: np.ndarray


def rate_questions(wiki: AskedWiki) -> Iterator[RatedQuestion]:
    for question in (*wiki.own, *wiki.foreign):
        hits, rated = rate(wiki.handle, question.text)
        if rated:
            right = np.array([question.is_in(hits[each.hit].file, each.text) for each in rated])
            yield RatedQuestion(wiki.name, not question.file, hits, rated, right)


def fit_both(kept: Sequence[RatedQuestion]) -> tuple[np.ndarray, np.ndarray]:
    """The weights of sentences; with these, those of the probability and its constant."""
    judged = [
        (each.wiki, np.array([one.features for one in each.rated]), each.right) for each in kept if each.right.any()
    ]
    weights = fit(judged)
    rows, found = zip(*(choose(each, weights) for each in kept), strict=True)
    return weights, fit_logistic(np.array(rows), np.array(found, float))


def choose(question: RatedQuestion, weights: np.ndarray) -> tuple[list[float], bool]:
    """The features of the probability, and whether the chosen sentences have the answer."""
    places = {(each.hit, each.place): right for each, right in zip(question.rated, question.right, strict=True)}
    with patch.object(answers, "SENTENCE_WEIGHTS", SentenceFeatures(*weights.tolist())):
        chosen = answers.choose_sentences(question.rated)
        return [chosen[0].rank, question.hits[0].score], any(places[each.hit, each.place] for each in chosen)


def rate(handle: WikiHandle, question: str) -> tuple[Sequence[Hit], list[RatedSentence]]:
    """The hits and rated sentences of a question, as the product computes them."""
    rated: list[RatedSentence] = []

    def keep(sentences: Sequence[RatedSentence]) -> list[RatedSentence]:
        rated[:] = sentences
        return []

    with patch.object(answers, "choose_sentences", keep):
        answer = handle.ask(question)
    return answer.result.hits, rated


def fit_logistic(features: np.ndarray, right: np.ndarray, steps: int = 30) -> np.ndarray:
    """The weights of a logistic function and its constant, by Newton's method."""
    middle, spread = features.mean(axis=0), features.std(axis=0)
    scaled = np.column_stack([(features - middle) / spread, np.ones(len(features))])
    weights = np.zeros(scaled.shape[1])
    for _ in range(steps):
        likely = 1 / (1 + np.exp(-scaled @ weights))
        curvature = (scaled * (likely * (1 - likely))[:, None]).T @ scaled
        weights -= np.linalg.solve(curvature, scaled.T @ (likely - right))
    slopes = weights[:-1] / spread
    return np.append(slopes, weights[-1] - slopes @ middle)


if __name__ == "__main__":
    main()
