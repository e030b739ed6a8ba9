"""The questions of a check: expected ones, and ones from links, former titles and searches, asked at two commits."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from wikiholt.domain.search import QueryRecord, SearchMode
from wikiholt.errors import InvalidEvaluation
from wikiholt.text.snippets import split_sentences
from wikiholt.wikis.check.expected_questions import ExpectedQuestion
from wikiholt.wikis.check.findings import Finding, Severity
from wikiholt.wikis.evaluation.mined_questions import make_path_resolver, mine_questions
from wikiholt.wikis.evaluation.questions import Question, QuestionKind
from wikiholt.wikis.evaluation.runner import run_question
from wikiholt.wikis.handle import WikiHandle
from wikiholt.wikis.query_report import drop_unfinished_queries

ANSWER_DEPTH = 3
"""A question is answered if its page is among the first hits, up to this rank."""
_MINED_KINDS = (QuestionKind.LINKS, QuestionKind.FORMER_TITLES)
_MAX_MINED_PER_KIND = 200
_MAX_VERSIONS = 1000
"""Former versions of pages whose titles are read: a check runs for every push, and parsing them is most of its time."""


@dataclass(frozen=True, slots=True)
class ExpectedOutcome:
    """An expected question at a commit: its page, if there is one, its rank, and whether it contains the sentence."""

    question: ExpectedQuestion
    path: str | None
    rank: int | None
    has_sentence: bool

    @property
    def is_answered(self) -> bool:
        return self.rank is not None and self.rank <= ANSWER_DEPTH


def ask_expected(
    handle: WikiHandle, questions: Sequence[ExpectedQuestion], questions_page: str
) -> list[ExpectedOutcome]:
    """Ask these questions. The page that contains them is not counted as a hit."""
    with handle.open_contents() as (index, *_):
        paths = list(map(make_path_resolver(index), (question.page for question in questions)))
    outcomes = []
    for question, path in zip(questions, paths, strict=True):
        rank = None
        if path is not None:
            asked = Question("", QuestionKind.LABELLED, question.text, {path: 1}, frozenset({questions_page}))
            rank = find_rank(handle, asked)
        has_sentence = not question.sentence or (path is not None and _has_sentence(handle, path, question.sentence))
        outcomes.append(ExpectedOutcome(question, path, rank, has_sentence))
    return outcomes


def _has_sentence(handle: WikiHandle, path: str, sentence: str) -> bool:
    with handle.open_contents() as (index, _, pipeline):
        page = index.find_page(path)
        chunks = index.get_page_chunks([page.page_id])[page.page_id] if page is not None else ()
    wanted = _fold(split_sentences(sentence, pipeline.dialect))
    return any(wanted in _fold(split_sentences(chunk.text, pipeline.dialect)) for chunk in chunks)


def _fold(sentences: Iterable[str]) -> str:
    return " ".join(" ".join(sentences).casefold().split())


def find_rank(handle: WikiHandle, question: Question) -> int | None:
    """The rank of the first relevant page among the first ten hits."""
    outcome = run_question(question, SearchMode.HYBRID, lambda _, request: handle.search(request))
    reciprocal = outcome.metrics["mrr"]
    return round(1 / reciprocal) if reciprocal else None


def mine_answered(handle: WikiHandle, records: Sequence[QueryRecord]) -> list[Question]:
    """Questions of the wiki itself, and searches that people made, which it answers."""
    with handle.open_contents() as contents:
        try:
            mined = mine_questions(*contents, _MINED_KINDS, _MAX_MINED_PER_KIND, 0, _MAX_VERSIONS).questions
        except InvalidEvaluation:  # it has few links and renames
            mined = ()
        index = contents[0]
        known = {path for record in records for path in record.pages[:1] if index.find_page(path) is not None}
    questions = [*mined, *build_logged_questions(records, known)]
    return [question for question in questions if (find_rank(handle, question) or ANSWER_DEPTH + 1) <= ANSWER_DEPTH]


def build_logged_questions(records: Sequence[QueryRecord], known: Iterable[str]) -> list[Question]:
    """Searches that were made more than once and found something relevant, each with the page that came first."""
    usable = [
        record
        for record in drop_unfinished_queries(records)
        if record.pages and not (record.nothing_relevant or record.degraded or record.filtered)
    ]
    counts = Counter(record.query.casefold() for record in usable)
    newest = {record.query.casefold(): record for record in usable}
    pages = set(known)
    return [
        Question(f"query-log-{number:04}", QuestionKind.LOGGED, newest[key].query, {newest[key].pages[0]: 1})
        for number, (key, count) in enumerate(counts.most_common(_MAX_MINED_PER_KIND))
        if count > 1 and newest[key].pages[0] in pages
    ]


# Findings.


def find_unanswered(
    outcomes: Sequence[ExpectedOutcome], file: str, before: Mapping[str, ExpectedOutcome]
) -> Iterator[Finding]:
    """Expected questions that are not answered. `before` has the outcomes at the base of those that it expected too;
    what was wrong there is only a warning."""
    for outcome in outcomes:
        question = outcome.question
        old = before.get(question.text)
        if not outcome.is_answered:
            severity = Severity.ERROR if old is None or old.is_answered else Severity.WARNING
            change = " any more" if old is not None and old.is_answered else ""
            place = f"it is hit {outcome.rank}" if outcome.rank else "it is not among the first ten"
            message = f"{question.text!r} does not find {outcome.path} among the first three hits{change}: {place}"
            if outcome.path is None:
                message = f"there is no page {question.page}, which answers {question.text!r}"
            yield Finding("unanswered-question", severity, file, question.line, message)
        if outcome.path is not None and not outcome.has_sentence:
            severity = Severity.ERROR if old is None or old.has_sentence else Severity.WARNING
            message = f"{outcome.path} does not contain the sentence {question.sentence!r}"
            yield Finding("missing-sentence", severity, file, question.line, message)


def find_lost(
    handle: WikiHandle, answered: Sequence[Question], old_paths: Mapping[str, str], files: Mapping[str, str]
) -> Iterator[Finding]:
    """Mined questions that were answered and whose page, which still exists, is not among the first ten hits now."""
    new_paths = {old: path for path, old in old_paths.items()}
    for question in answered:
        relevant = {new_paths[path]: grade for path, grade in question.relevant.items() if path in new_paths}
        excluded = frozenset(new_paths[path] for path in question.excluded if path in new_paths)
        if not relevant or find_rank(handle, replace(question, relevant=relevant, excluded=excluded)) is not None:
            continue
        origins = {QuestionKind.LINKS: "the text of a link", QuestionKind.LOGGED: "a search that people made"}
        origin = origins.get(question.kind, "a former title")
        for path in relevant:
            message = f"{question.text!r}, {origin}, found this page and does not any more"
            yield Finding("lost-question", Severity.WARNING, files[path], 1, message)
