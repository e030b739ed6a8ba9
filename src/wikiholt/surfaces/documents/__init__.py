"""Values as JSON documents: the same names and forms on every surface."""

from wikiholt.surfaces.documents.answers import AnswerDocument, HitDocument, answer_document, hit_document
from wikiholt.surfaces.documents.wikis import (
    ErrorDocument,
    ProblemDocument,
    StatusDocument,
    SyncDocument,
    WikiDocument,
    error_document,
    problem_document,
    status_document,
    sync_document,
    wiki_document,
)

__all__ = [
    "AnswerDocument",
    "ErrorDocument",
    "HitDocument",
    "ProblemDocument",
    "StatusDocument",
    "SyncDocument",
    "WikiDocument",
    "answer_document",
    "error_document",
    "hit_document",
    "problem_document",
    "status_document",
    "sync_document",
    "wiki_document",
]
