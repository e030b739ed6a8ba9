"""How the demo wikis came about: which page was written when, by whom. Dates are fixed, so commit ids are too."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class DemoCommit:
    """One commit. A page in `until` still ended before that heading then; `renamed` pages got a new name."""

    timestamp: int
    author: str
    message: str
    pages: tuple[str, ...] = ()
    ends_before: Mapping[str, str] = field(default_factory=dict)
    renamed: Mapping[str, str] = field(default_factory=dict)


# Package files keep to ASCII; these pages are called otherwise in their wiki, from the start or at first.
PATHS_IN_WIKI = {
    "Practices/handover-ja.md": "Practices/当番の引き継ぎ.md",
    "Growing/Crop rotation.md": "Growing/Rotation.md",
}

HISTORIES = {
    "allotment": (
        DemoCommit(
            1758358800,
            "Ines Okafor",
            "Begin the handbook",
            ("Home.md", "Site/Water.md", "Site/Tool shed.md", "Site/Keys and gate.md", "Rules/Bonfires.md"),
            ends_before={"Home.md": "## Whom to call", "Site/Water.md": "## In a dry summer"},
        ),
        DemoCommit(
            1763197200,
            "Tomas Reiter",
            "Add what we know about growing things",
            ("Growing/Composting.md", "Growing/Kompost anlegen.md", "Growing/Pests.md", "Growing/Crop rotation.md"),
            ends_before={"Growing/Composting.md": "## Not on the heap", "Growing/Pests.md": "## Blight"},
        ),
        DemoCommit(
            1768035600,
            "Ines Okafor",
            "Write down the rules of tenancy and help for new members",
            ("Rules/Tenancy.md", "First year on a plot.md", "Waiting list.md"),
        ),
        DemoCommit(
            1771578000,
            "Priya Nair",
            "Sowing calendar; give crop rotation its full name",
            ("Growing/Sowing calendar.md",),
            renamed={"Growing/Rotation.md": "Growing/Crop rotation.md"},
        ),
        DemoCommit(
            1773478800,
            "Ines Okafor",
            "After the March work day: dates, dry summers, blight, whom to call",
            ("Work days.md", "Home.md", "Site/Water.md", "Growing/Pests.md", "Growing/Composting.md"),
        ),
    ),
    "runbook": (
        DemoCommit(
            1758100200,
            "Marit Solheim",
            "Start the runbook with what broke last summer",
            (
                "Home.md",
                "Services/Overview.md",
                "Incidents/Certificate expired.md",
                "Incidents/Database disk full.md",
                "Practices/Postmortems.md",
            ),
            ends_before={"Home.md": "## Everything else"},
        ),
        DemoCommit(
            1765441800,
            "Jonas Weidmann",
            "Describe ledger and gull",
            ("Services/Ledger.md", "Services/Gull.md", "Practices/Deploying.md"),
            ends_before={"Services/Ledger.md": "## Error codes", "Practices/Deploying.md": "## Quiet times"},
        ),
        DemoCommit(
            1767861000,
            "Haruka Mori",
            "On-call, in two languages",
            ("Practices/On-call.md", "Practices/handover-ja.md"),
        ),
        DemoCommit(
            1772008200,
            "Marit Solheim",
            "Duplicate payments, slow checkout, error codes, secrets",
            (
                "Incidents/Duplicate payments.md",
                "Incidents/Slow or failing checkout.md",
                "Services/Ledger.md",
                "Practices/Keys and secrets.md",
            ),
        ),
        DemoCommit(
            1775118600,
            "Jonas Weidmann",
            "Backups, quiet times, a fuller front page",
            ("Practices/Backups.md", "Practices/Deploying.md", "Home.md"),
        ),
    ),
}
