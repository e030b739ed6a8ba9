"""How the demo wikis came about: which page was written when, by whom. Dates are fixed, so commit ids are too."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Step:
    """One commit. A page in `until` still ended before that heading then; `renamed` pages got a new name."""

    moment: int
    author: str
    message: str
    pages: tuple[str, ...] = ()
    until: Mapping[str, str] = field(default_factory=dict)
    renamed: Mapping[str, str] = field(default_factory=dict)


# Package files keep to ASCII; these pages are called otherwise in their wiki, from the start or at first.
NAMES = {
    "Practices/handover-ja.md": "Practices/当番の引き継ぎ.md",
    "Growing/Crop rotation.md": "Growing/Rotation.md",
}

HISTORIES = {
    "allotment": (
        Step(
            1758358800,
            "Ines Okafor",
            "Begin the handbook",
            ("Home.md", "Site/Water.md", "Site/Tool shed.md", "Site/Keys and gate.md", "Rules/Bonfires.md"),
            until={"Home.md": "## Whom to call", "Site/Water.md": "## In a dry summer"},
        ),
        Step(
            1763197200,
            "Tomas Reiter",
            "Add what we know about growing things",
            ("Growing/Composting.md", "Growing/Kompost anlegen.md", "Growing/Pests.md", "Growing/Crop rotation.md"),
            until={"Growing/Composting.md": "## Not on the heap", "Growing/Pests.md": "## Blight"},
        ),
        Step(
            1768035600,
            "Ines Okafor",
            "Write down the rules of tenancy and help for new members",
            ("Rules/Tenancy.md", "First year on a plot.md", "Waiting list.md"),
        ),
        Step(
            1771578000,
            "Priya Nair",
            "Sowing calendar; give crop rotation its full name",
            ("Growing/Sowing calendar.md",),
            renamed={"Growing/Rotation.md": "Growing/Crop rotation.md"},
        ),
        Step(
            1773478800,
            "Ines Okafor",
            "After the March work day: dates, dry summers, blight, whom to call",
            ("Work days.md", "Home.md", "Site/Water.md", "Growing/Pests.md", "Growing/Composting.md"),
        ),
    ),
    "runbook": (
        Step(
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
            until={"Home.md": "## Everything else"},
        ),
        Step(
            1765441800,
            "Jonas Weidmann",
            "Describe ledger and gull",
            ("Services/Ledger.md", "Services/Gull.md", "Practices/Deploying.md"),
            until={"Services/Ledger.md": "## Error codes", "Practices/Deploying.md": "## Quiet times"},
        ),
        Step(
            1767861000,
            "Haruka Mori",
            "On-call, in two languages",
            ("Practices/On-call.md", "Practices/handover-ja.md"),
        ),
        Step(
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
        Step(
            1775118600,
            "Jonas Weidmann",
            "Backups, quiet times, a fuller front page",
            ("Practices/Backups.md", "Practices/Deploying.md", "Home.md"),
        ),
    ),
}
