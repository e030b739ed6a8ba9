"""Values as JSON documents: the same names and forms on every surface."""

from wikiholt.surfaces.documents.answers import AnswerDocument, HitDocument, answer_document, hit_document
from wikiholt.surfaces.documents.keys import KeyDocument, NewKeyDocument, key_document, new_key_document
from wikiholt.surfaces.documents.wikis import (
    ErrorDocument,
    ProblemDocument,
    StatusDocument,
    SyncDocument,
    WikiDocument,
    error_document,
    problem_document,
    shown_settings,
    status_document,
    sync_document,
    wiki_document,
)

__all__ = [
    "AnswerDocument",
    "ErrorDocument",
    "HitDocument",
    "KeyDocument",
    "NewKeyDocument",
    "ProblemDocument",
    "StatusDocument",
    "SyncDocument",
    "WikiDocument",
    "answer_document",
    "error_document",
    "hit_document",
    "key_document",
    "new_key_document",
    "problem_document",
    "shown_settings",
    "status_document",
    "sync_document",
    "wiki_document",
]
