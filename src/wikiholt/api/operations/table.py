"""The table of all operations: those of a wiki, and those of the service."""

from wikiholt.api.operations.ask import ASK_OPERATIONS
from wikiholt.api.operations.attachments import ATTACHMENT_OPERATIONS
from wikiholt.api.operations.index import BACKUP_OPERATIONS, INDEX_OPERATIONS
from wikiholt.api.operations.keys import KEY_OPERATIONS
from wikiholt.api.operations.page_edits import EDIT_OPERATIONS
from wikiholt.api.operations.page_parts import PART_OPERATIONS
from wikiholt.api.operations.page_writes import WRITE_OPERATIONS
from wikiholt.api.operations.pages import LINK_OPERATIONS, PAGE_OPERATIONS
from wikiholt.api.operations.past import PAST_OPERATIONS
from wikiholt.api.operations.search import SEARCH_OPERATIONS
from wikiholt.api.operations.wikis import WIKI_OPERATIONS

OPERATIONS_OF_WIKI = (
    *SEARCH_OPERATIONS,
    *PAST_OPERATIONS,
    *ASK_OPERATIONS,
    *ATTACHMENT_OPERATIONS,
    *PAGE_OPERATIONS,
    *PART_OPERATIONS,
    *WRITE_OPERATIONS,
    *EDIT_OPERATIONS,
    *LINK_OPERATIONS,
    *INDEX_OPERATIONS,
    *BACKUP_OPERATIONS,
    *KEY_OPERATIONS,
)
"""Attachments and history come before the page itself, whose path can be any text."""
OPERATIONS_OF_SERVICE = WIKI_OPERATIONS
