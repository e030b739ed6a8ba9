"""From an index that many wikis shared to one index a wiki: what `wikiholt import` does.

Nothing of a foreign row gets into an index but its vector, and that only for a text which the wiki's own pages at HEAD
have word for word. So whatever a shared collection holds, no wiki can receive another's text.
"""

from wikiholt.importing.importer import Importer, ImportOptions
from wikiholt.importing.owners import OwnershipRules
from wikiholt.importing.report import ModelAgreement, DroppedRows, ImportReport, ImportProof, UnclearOwnership, WikiImport
from wikiholt.importing.shared import SharedIndex, SharedRow

__all__ = [
    "ModelAgreement",
    "DroppedRows",
    "ImportReport",
    "Importer",
    "ImportOptions",
    "ImportProof",
    "OwnershipRules",
    "SharedIndex",
    "SharedRow",
    "UnclearOwnership",
    "WikiImport",
]
