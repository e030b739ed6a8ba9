"""Values as JSON documents: the same names and forms on every surface."""

from wikiholt.surfaces.documents.answers import SearchResultDocument, HitDocument, build_result_document, build_hit_document
from wikiholt.surfaces.documents.keys import KeyDocument, NewKeyDocument, build_key_document, build_new_key_document
from wikiholt.surfaces.documents.wikis import (
    ErrorDocument,
    ProblemDocument,
    StatusDocument,
    SyncDocument,
    WikiDocument,
    build_error_document,
    build_problem_document,
    get_public_settings,
    build_status_document,
    build_sync_document,
    build_wiki_document,
)

__all__ = [
    "SearchResultDocument",
    "ErrorDocument",
    "HitDocument",
    "KeyDocument",
    "NewKeyDocument",
    "ProblemDocument",
    "StatusDocument",
    "SyncDocument",
    "WikiDocument",
    "build_result_document",
    "build_error_document",
    "build_hit_document",
    "build_key_document",
    "build_new_key_document",
    "build_problem_document",
    "get_public_settings",
    "build_status_document",
    "build_sync_document",
    "build_wiki_document",
]
