"""Evaluation questions: sampling, and parsing of judged questions (JSON lines and tab-separated judgements)."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import blake2b

from wikiholt.errors import InvalidEvaluation
from wikiholt.search.request import MAX_QUERY_CHARS


class QuestionKind(StrEnum):
    """The origin of a question."""

    LINKS = "links"
    FORMER_TITLES = "former-titles"
    DESCRIPTIONS = "descriptions"
    LABELLED = "labelled"
    LOGGED = "query-log"


MINED_KINDS = (QuestionKind.LINKS, QuestionKind.FORMER_TITLES, QuestionKind.DESCRIPTIONS)
_MAX_GRADE = 100


@dataclass(frozen=True, slots=True)
class Question:
    """A query and its relevant pages, by path. `excluded` pages are removed from a ranking before it is scored."""

    id: str
    kind: QuestionKind
    text: str
    relevant: Mapping[str, int]
    excluded: frozenset[str] = field(default_factory=frozenset)


def sample_questions(questions: Iterable[Question], limit: int, seed: int) -> list[Question]:
    """At most `limit` of each kind, chosen by hash of text and seed, so that a growing wiki keeps most of them."""
    kept: dict[QuestionKind, list[Question]] = {}
    for question in sorted(questions, key=lambda item: _hash_question(item, seed)):
        of_kind = kept.setdefault(question.kind, [])
        if len(of_kind) < limit:
            of_kind.append(question)
    return [question for kind in QuestionKind for question in sorted(kept.get(kind, ()), key=lambda item: item.id)]


def _hash_question(question: Question, seed: int) -> bytes:
    text = f"{seed}\0{question.kind}\0{question.id}\0{question.text}"
    return blake2b(text.encode("utf-8", "replace"), digest_size=8).digest()


def parse_judged_questions(
    queries: Iterable[str], judgements: Iterable[str], resolve_path: Callable[[str], str | None]
) -> list[Question]:
    """The queries with at least one relevant page. `resolve_path` maps any name of a page to its path.

    Raises InvalidEvaluation, with the line number, for invalid input.
    """
    texts = _parse_queries(queries)
    relevant: dict[str, dict[str, int]] = {}
    for number, line in enumerate(judgements, 1):
        if not line.strip() or (number == 1 and line.split("\t")[0] in ("query-id", "query_id", "query")):
            continue
        query, name, grade = _parse_judgement(line, number)
        if query not in texts:
            raise _build_error(
                "qrels", number, f"judges the query {query!r}, which is not in the queries", "add it to --queries"
            )
        path = resolve_path(name)
        if path is None:
            raise _build_error(
                "qrels",
                number,
                f"names {name!r}, which is not an indexed page",
                "name pages as in the output of `wikiholt search`",
            )
        if grade > 0:
            pages = relevant.setdefault(query, {})
            pages[path] = max(grade, pages.get(path, 0))
    return [Question(query, QuestionKind.LABELLED, texts[query], pages) for query, pages in relevant.items()]


def _parse_queries(lines: Iterable[str]) -> dict[str, str]:
    texts: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        query, text = _parse_query(line, number)
        if query in texts:
            raise _build_error("queries", number, f"repeats the id {query!r}", "give every query its own id")
        texts[query] = text
    return texts


def _parse_query(line: str, number: int) -> tuple[str, str]:
    hint = 'write one query per line: {"id": "q1", "text": "how to …"}'
    try:
        row = json.loads(line)
    except ValueError as error:
        raise _build_error("queries", number, f"is not JSON ({str(error)[:100]})", hint) from None
    query = row.get("id", row.get("_id")) if isinstance(row, dict) else None
    text = row.get("text") if isinstance(row, dict) else None
    if not isinstance(query, str | int) or isinstance(query, bool) or not isinstance(text, str) or not text.strip():
        raise _build_error("queries", number, "has no id or no text", hint)
    if len(text) > MAX_QUERY_CHARS:
        raise _build_error("queries", number, f"has a text of {len(text)} characters", f"use at most {MAX_QUERY_CHARS}")
    return str(query), text


def _parse_judgement(line: str, number: int) -> tuple[str, str, int]:
    """Query, page and grade. The TREC form (query, 0, page, grade) is accepted too."""
    columns = [column.strip() for column in line.rstrip("\r\n").split("\t")]
    if len(columns) == 4:
        del columns[1]
    try:
        query, name, grade = columns
        level = int(grade)
    except ValueError:
        hint = "write query, page and grade, separated by tabs; the grade is an integer, 0 for irrelevant"
        raise _build_error("qrels", number, "is not a judgement", hint) from None
    if not query or not name or level > _MAX_GRADE:
        raise _build_error(
            "qrels", number, "is not a judgement", f"name a query and a page; the highest grade is {_MAX_GRADE}"
        )
    return query, name, level


def _build_error(file: str, number: int, problem: str, hint: str) -> InvalidEvaluation:
    return InvalidEvaluation(f"line {number} of the {file} {problem}", hint=hint)
