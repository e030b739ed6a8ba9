"""From an index that many wikis shared to one index a wiki: what `wikiholt import` does.

Nothing of a foreign row gets into an index but its vector, and that only for a text which the wiki's own pages at HEAD
have word for word. So whatever a shared collection holds, no wiki can receive another's text.
"""

from wikiholt.importing.importer import Importer, Options
from wikiholt.importing.owners import Rules
from wikiholt.importing.report import Agreement, Dropped, ImportReport, Proof, Unclear, WikiImport
from wikiholt.importing.shared import Shared, SharedRow

__all__ = [
    "Agreement",
    "Dropped",
    "ImportReport",
    "Importer",
    "Options",
    "Proof",
    "Rules",
    "Shared",
    "SharedRow",
    "Unclear",
    "WikiImport",
]
