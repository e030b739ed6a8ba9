"""An import as JSON."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from wikiholt.importing import ImportReport


def build_import_document(report: ImportReport) -> Mapping[str, Any]:
    """What was found and done; `proof` is null in a dry run."""
    return {
        "source": report.source,
        "dry_run": report.dry_run,
        "rows": report.rows,
        "dropped": {
            why: {"rows": count, "pages": list(report.dropped.examples[why])}
            for why, count in report.dropped.counts.items()
        },
        "unclear": {
            "pages": [{"page": page, "wikis": list(wikis)} for page, wikis in report.unclear.pages.items()],
            "tenants": [{"tenant": tenant, "rows": rows} for tenant, rows in report.unclear.tenants.items()],
        },
        "agreements": [asdict(each) for each in report.agreements],
        "wikis": [
            {"wiki" if name == "slug" else name: value for name, value in asdict(each).items()} for each in report.wikis
        ],
        "failed": [
            {"wiki": slug, "error": {"code": code, "message": message}}
            for slug, (code, message) in report.failed.items()
        ],
    }
