"""Search in twelve languages, and across languages: multilingual-e5-small beside the default model and beside words alone.

    python -m bench.multilingual [--questions 40] [--languages de zh …] [--write]
    python -m bench.multilingual --scale        # how the scale on the card was chosen

XQuAD has the same 240 paragraphs and 1,190 questions in each language. A paragraph is a page of a real wiki without a
title, with the wiki's `language` set where there is a stemmer (not for Thai, Vietnamese and Chinese). Questions about
articles with even numbers are for choosing; the tables use questions about the other articles, at most `--questions`
per language, chosen by hash. Every question is sent to all searches in turn. In the tables across languages the wiki is
English and the question is in the language of the row. Indexes are kept in bench/data/multilingual.
"""

import re
import subprocess
import sys
import time
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from unittest import mock

import numpy as np

from bench import collections
from bench.measures import read_memory_mb
from bench.quality import make_search, run_queries
from bench.report import make_head, make_parser, publish
from wikiholt.api import bootstrap
from wikiholt.domain.index import CosineScale
from wikiholt.domain.search import Confidence, PageFilter, SearchMode
from wikiholt.models import DEFAULT_MODEL, identify_model, load_embedder
from wikiholt.search import searcher
from wikiholt.search.ranking import (
    Candidates,
    QueryShape,
    judge_answer,
    make_candidates,
    rank_candidates,
    rate_candidates,
    with_likelihoods,
)
from wikiholt.search.request import SearchRequest
from wikiholt.wikis.evaluation.quality_metrics import RANKING_DEPTH, compute_ndcg
from wikiholt.wikis.evaluation.questions import Question, QuestionKind, sample_questions
from wikiholt.wikis.evaluation.runner import EvaluationRun
from wikiholt.wikis.handle import WikiHandle
from wikiholt.wikis.service import WikiService

MODEL = "multilingual-e5-small"
DATA = Path("bench/data/multilingual")
LANGUAGES = {
    "ar": "arabic", "de": "german", "el": "greek", "en": "english", "es": "spanish", "hi": "hindi", "ro": "romanian",
    "ru": "russian", "th": "", "tr": "turkish", "vi": "", "zh": "",
}  # fmt: skip
PARAGRAPHS_PER_ARTICLE = 5
SENTENCE_END = re.compile(r"[.!?؟۔।]\s+|。")
CHOOSING = ("en", "de", "ar", "ru", "zh")
SCALES = ((0.0, 1.0), *((low, high) for low in (0.65, 0.7, 0.72, 0.74, 0.76) for high in (0.9, 0.95, 1.0)))
HEADS = ("words", "granite hybrid", "e5", "e5 hybrid")
PARTS = ("same", "across", "sentences", "costs")
ROUNDS = 5
CHINESE_CHARS = 150


@dataclass(frozen=True)
class LanguageCollection:
    """XQuAD in one language: the text of each paragraph, and the questions about each."""

    language: str
    texts: list[str]
    asked: list[list[tuple[str, str]]]
    answers: dict[str, int]
    """Where the answer to each question begins in its paragraph."""

    @classmethod
    def read(cls, directory: Path, language: str) -> "LanguageCollection":
        articles = collections.read_articles(directory, language)
        paragraphs = [paragraph for article in articles for paragraph in article["paragraphs"]]
        asked = [[(each["id"], each["question"]) for each in paragraph["qas"]] for paragraph in paragraphs]
        rows = [each for paragraph in paragraphs for each in paragraph["qas"]]
        answers = {each["id"]: each["answers"][0]["answer_start"] for each in rows}
        return cls(language, [paragraph["context"] for paragraph in paragraphs], asked, answers)

    def make_pages(self, *, half: bool = False) -> dict[str, str]:
        return {
            f"{number}.md": f'---\ntitle: "{number}"\n---\n\n{text}\n'
            for number, text in enumerate(self.texts)
            if not (half and is_measured(number))
        }

    def get_questions(self, limit: int, *, measured: bool) -> list[Question]:
        """The same questions in every language: they are chosen by their ids."""
        rows = [
            Question(name, QuestionKind.LABELLED, "", {str(number): 1})
            for number, asked in enumerate(self.asked)
            if is_measured(number) == measured
            for name, _ in asked
        ]
        texts = {name: text for asked in self.asked for name, text in asked}
        return [
            Question(each.id, each.kind, texts[each.id], each.relevant) for each in sample_questions(rows, limit, 0)
        ]


def is_measured(paragraph: int) -> bool:
    return paragraph // PARAGRAPHS_PER_ARTICLE % 2 == 1


def main() -> None:
    parser = make_parser(__doc__, "multilingual", "collections")
    parser.add_argument("--languages", nargs="*", default=list(LANGUAGES), choices=LANGUAGES)
    parser.add_argument("--questions", type=int, default=40, help="limit per language")
    parser.add_argument("--parts", nargs="*", default=list(PARTS), choices=PARTS, help="only these")
    parser.add_argument("--scale", action="store_true", help="only try scales, on the questions for choosing")
    parser.add_argument("--memory", metavar="MODEL", help="only print the memory that a process with this model needs")
    arguments = parser.parse_args()
    if arguments.memory:
        print(" ".join(map(str, measure_memory(arguments.memory))))
        return
    read = {language: LanguageCollection.read(arguments.collections, language) for language in LANGUAGES}
    if arguments.scale:
        print("\n".join(format_scales(read, arguments.questions)))
        return
    parts = {
        "same": lambda: run_searches(read, arguments.languages, arguments.questions, across=False),
        "across": lambda: run_searches(read, arguments.languages, arguments.questions, across=True),
        "sentences": lambda: check_sentences(read, arguments.languages),
        "costs": lambda: measure_costs(read),
    }
    lines = [line for part in arguments.parts for line in parts[part]()]
    publish("multilingual", __doc__, lines, write=arguments.write)


def open_wiki(service: WikiService, collection: LanguageCollection, *, half: bool = False) -> WikiHandle:
    """The wiki of one language, indexed."""
    name = f"{collection.language}-half" if half else collection.language
    repository = DATA / f"{name}.git"
    collections.write_pages(collection.make_pages(half=half), repository)
    if name not in [wiki.slug for wiki in service.list_wikis()]:
        language = LANGUAGES[collection.language]
        service.add(name, str(repository.resolve()), {"language": language} if language else {})
    wiki = service.get_handle(name)
    report = wiki.sync()
    wiki.wait_for_caches(600)
    print(f"{name}: {report.chunks_embedded} chunks embedded", file=sys.stderr, flush=True)
    return wiki


def run_searches(
    read: dict[str, LanguageCollection], languages: Sequence[str], limit: int, *, across: bool
) -> Iterator[str]:
    """Success@1 and nDCG@10 in each language, or of questions in each language about an English wiki."""
    with ExitStack() as stack:
        services = []
        for model in (DEFAULT_MODEL, MODEL):
            service = bootstrap.open_service(DATA / model, overrides={"model": model})
            stack.callback(service.close)
            services.append(service)
        yield "\n## English wiki\n" if across else "\n## Wiki and question in one language\n"
        found = {}
        for language in languages:
            if not (across and language == "en"):
                wikis = [open_wiki(service, read["en" if across else language]) for service in services]
                found[language] = run_questions(wikis, read[language].get_questions(limit, measured=True))
        yield from format_table(found)


def run_questions(wikis: Sequence[WikiHandle], questions: Sequence[Question]) -> list[EvaluationRun]:
    default, other = wikis
    ways = [
        make_search(HEADS[0], default, SearchMode.KEYWORD),
        make_search(HEADS[1], default, SearchMode.HYBRID),
        make_search(HEADS[2], other, SearchMode.SEMANTIC),
        make_search(HEADS[3], other, SearchMode.HYBRID),
    ]
    named = {each.id: each.text for each in questions}
    relevant = {each.id: dict(each.relevant) for each in questions}
    return run_queries(collections.Queries("xquad", "", named, relevant, {}), ways)


def format_table(found: dict[str, list[EvaluationRun]]) -> Iterator[str]:
    """Success@1 and nDCG@10 of every way, by language, with the mean of all languages."""
    yield make_head(f"| success@1, nDCG@10 | {' | '.join(HEADS)} |")
    rows = {}
    for language, runs in found.items():
        metrics = [run.compute_metrics() for run in runs]
        rows[language] = [(each["success@1"].mean, each["ndcg@10"].mean) for each in metrics]
    for language, cells in [*rows.items(), ("mean", np.mean(list(rows.values()), axis=0).tolist())]:
        yield f"| {language} | {' | '.join(f'{first:.3f}, {gain:.3f}' for first, gain in cells)} |"
    counts = {len(run.outcomes) for runs in found.values() for run in runs}
    yield f"\n{min(counts)} questions per language."


# The scale of cosines on the card.


@dataclass(frozen=True)
class QuestionCandidates:
    """The candidates of hybrid search for one question, before they are ranked, and the ids of the right pages."""

    candidates: Candidates
    shape: QueryShape
    right: frozenset[int]


def format_scales(read: dict[str, LanguageCollection], limit: int) -> Iterator[str]:
    """Ranking and confidence by scale, on wikis of the articles with even numbers; other questions have no answer there."""
    yield (
        "| model, languages | scale | semantic nDCG@10 | hybrid nDCG@10 | on the common scale: right page | best wrong page "
        "| best foreign page | high, right of high | nothing relevant | foreign: nothing relevant |"
    )
    yield "|---|---|---|---|---|---|---|---|---|---|"
    english = {"en": find_candidates(read["en"], DEFAULT_MODEL, limit)}
    yield format_scale(f"{DEFAULT_MODEL}, en", identify_model(DEFAULT_MODEL, None).scale, english)
    asked = {language: find_candidates(read[language], MODEL, limit) for language in CHOOSING}
    for low, high in SCALES:
        yield format_scale(f"{MODEL}, en", CosineScale(low, high), {"en": asked["en"]})
        yield format_scale(f"{MODEL}, {' '.join(asked)}", CosineScale(low, high), asked)


def find_candidates(
    collection: LanguageCollection, model: str, limit: int
) -> tuple[list[QuestionCandidates], list[QuestionCandidates]]:
    """The candidates of questions that the wiki answers, and of questions that it does not."""
    kept: list[tuple[Candidates, QueryShape]] = []

    def rank_and_keep(mode: SearchMode, candidates: Candidates, shape: QueryShape, scale: CosineScale) -> Candidates:
        kept.append((candidates, shape))
        return rank_candidates(mode, candidates, shape, scale)

    service = bootstrap.open_service(DATA / model, overrides={"model": model})
    wiki = open_wiki(service, collection, half=True)
    index = service.components.store.open(wiki.wiki.id)
    ids = {page.path: page.page_id for page in index.list_pages(PageFilter(), None)[1]}
    index.close()
    found: list[list[QuestionCandidates]] = []
    with mock.patch.object(searcher, "rank_candidates", rank_and_keep):
        for measured in (False, True):
            found.append([])
            for question in collection.get_questions(limit, measured=measured):
                kept.clear()
                wiki.search(SearchRequest(question.text))
                right = frozenset(ids[path] for path in question.relevant if path in ids)
                found[-1].append(QuestionCandidates(*(kept[0] if kept else (make_candidates([]), QueryShape())), right))
    service.close()
    return found[0], found[1]


def format_scale(
    name: str, scale: CosineScale, asked: dict[str, tuple[list[QuestionCandidates], list[QuestionCandidates]]]
) -> str:
    own, foreign = ([each for pair in asked.values() for each in pair[part]] for part in (0, 1))
    gains = [
        np.mean([compute_gain(mode, each, scale) for each in own]) for mode in (SearchMode.SEMANTIC, SearchMode.HYBRID)
    ]
    near = [compute_meaning(each, scale) for each in own]
    levels = [np.median([pair[0] for pair in near]), np.median([pair[1] for pair in near])]
    levels.append(np.median([compute_meaning(each, scale)[1] for each in foreign]))
    rated, unrated = ([rate(each, scale) for each in part] for part in (own, foreign))
    high = [right for right, level in rated if level is Confidence.HIGH]
    nothing = [np.mean([level is Confidence.LOW for _, level in part]) for part in (rated, unrated)]
    cells = [f"{each:.3f}" for each in gains] + [f"{each:.2f}" for each in levels]
    cells += [f"{len(high) / len(rated):.0%}, {np.mean(high or [0]):.0%}", *(f"{each:.1%}" for each in nothing)]
    return f"| {name} | {scale.unrelated:.2f} to {scale.related:.2f} | {' | '.join(cells)} |"


def rank_on_scale(asked: QuestionCandidates, mode: SearchMode, scale: CosineScale) -> Candidates:
    found = asked.candidates
    if mode is not SearchMode.HYBRID:
        found = found[np.isfinite(found["distance"])]
    return rank_candidates(mode, found, asked.shape, scale)


def compute_gain(mode: SearchMode, asked: QuestionCandidates, scale: CosineScale) -> float:
    pages = [str(page_id) for page_id in rank_on_scale(asked, mode, scale)["page_id"].tolist()]
    return compute_ndcg(pages[:RANKING_DEPTH], {str(page): 1 for page in asked.right})


def compute_meaning(asked: QuestionCandidates, scale: CosineScale) -> tuple[float, float]:
    """The nearness of the right page and of the nearest other one, on the common scale."""
    found = asked.candidates[np.isfinite(asked.candidates["distance"])]
    columns = (found[name].tolist() for name in ("page_id", "distance"))
    near = [(page_id in asked.right, 1 - distance) for page_id, distance in zip(*columns, strict=True)]
    best = [max((cosine for right, cosine in near if right is wanted), default=0.0) for wanted in (True, False)]
    return scale.normalize(best[0]), scale.normalize(best[1])


def rate(asked: QuestionCandidates, scale: CosineScale) -> tuple[bool, Confidence]:
    """Whether the first hit is right, and its confidence."""
    mode = SearchMode.HYBRID
    ranked = rank_on_scale(asked, mode, scale)
    if not len(ranked):  # a phrase in the question is on no page
        return False, Confidence.LOW
    verdict = judge_answer(mode, ranked, asked.shape, scale)
    (first,) = rate_candidates(with_likelihoods(ranked[:1], verdict), verdict)
    return first.page_id in asked.right, first.confidence


# The closest sentence.


def check_sentences(read: dict[str, LanguageCollection], languages: Sequence[str]) -> Iterator[str]:
    """How often the sentence that word vectors choose contains the answer, in the first paragraph of each article."""
    models = {model: load_embedder(model, threads=1) for model in (DEFAULT_MODEL, MODEL)}
    yield "\n## Closest sentence\n"
    yield "The share of questions whose answer begins in the sentence that word vectors choose.\n"
    yield make_head(f"| | questions | first sentence | {' | '.join(models)} |")
    for language in languages:
        found = []
        for number in range(0, len(read[language].texts), PARAGRAPHS_PER_ARTICLE):
            text = read[language].texts[number]
            ends = [0, *(match.end() for match in SENTENCE_END.finditer(text)), len(text)]
            parts = [text[start:end] for start, end in pairwise(ends)]
            for name, question in read[language].asked[number] if len(parts) > 2 else ():
                right = bisect_right(ends, read[language].answers[name]) - 1
                scorers = [embedder.make_sentence_scorer(question) for embedder in models.values()]
                found.append([right == 0, *(int(np.argmax(score(parts))) == right for score in scorers)])
        if found:
            cells = " | ".join(f"{share:.2f}" for share in np.mean(found, axis=0))
            yield f"| {language} | {len(found)} | {cells} |"


# Costs.


def measure_costs(read: dict[str, LanguageCollection]) -> Iterator[str]:
    """CPU time on one thread, in turns, and the memory of a process."""
    models = {model: load_embedder(model, threads=1) for model in (DEFAULT_MODEL, MODEL)}
    yield "\n## Costs\n"
    yield make_head(f"| CPU time on one thread, median of {ROUNDS} turns | {DEFAULT_MODEL} | {MODEL} | ratio |")
    for language in ("en", "de", "zh"):
        # A Chinese paragraph has more tokens than the default model reads.
        passages = [text[:CHINESE_CHARS] if language == "zh" else text for text in read[language].texts[:24]]
        queries = [text for asked in read[language].asked[:24] for _, text in asked[:2]]
        for what, texts in (("paragraph", passages), ("question", queries)):
            turns = np.array(
                [[measure_cpu(embedder, what, texts) for embedder in models.values()] for _ in range(ROUNDS)]
            )
            first, second = np.median(turns, axis=0) / len(texts) * 1e3
            ratio = np.median(turns[:, 1] / turns[:, 0])
            yield f"| {language}, {what} | {first:.1f} ms | {second:.1f} ms | {ratio:.2f} |"
    yield "\n| a new process | memory before loading | after loading and embedding | CPU time of loading |"
    yield "|---|---|---|---|"
    for model in models:
        command = [sys.executable, "-m", "bench.multilingual", "--memory", model]
        done = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
        yield f"| {model} | {done[0]} MB | {done[1]} MB | {float(done[2]):.1f} s |"


def measure_cpu(embedder: object, what: str, texts: Sequence[str]) -> float:
    began = time.process_time()
    if what == "paragraph":
        embedder.embed_passages(texts)
    else:
        for text in texts:
            embedder.embed_query(text)
    return time.process_time() - began


def measure_memory(model: str) -> tuple[int, int, float]:
    """Resident megabytes before and after loading, with the libraries imported before, and seconds of CPU time."""
    import onnxruntime  # noqa: F401
    import tokenizers  # noqa: F401

    before, began = read_memory_mb(), time.process_time()
    embedder = load_embedder(model, threads=1)
    took = time.process_time() - began
    embedder.embed_passages(["The cat sleeps on the sofa. " * 20])
    return round(before), round(read_memory_mb()), took


if __name__ == "__main__":
    main()
