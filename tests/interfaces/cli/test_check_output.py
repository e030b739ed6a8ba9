import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from wikiholt.interfaces.cli.check_output import format_report
from wikiholt.interfaces.cli.output import TerminalStyle
from wikiholt.wikis.check.findings import RULES, Finding, Severity
from wikiholt.wikis.check.wiki_check import CheckReport

FINDING = Finding("broken-link", Severity.ERROR, "rules/fire, wood.md", 3, "100 % broken:\r\nthe page\x1b[31m is gone")
OTHER = Finding("orphaned-page", Severity.NOTE, "a.md", 1, "no page links to this page")
REPORT = CheckReport("a" * 40, "b" * 40, [FINDING, OTHER], 12, 1, 2, 3, ["no ancestor"])


def format_as(name: str, report: CheckReport = REPORT) -> Sequence[str]:
    return format_report(report, name, "docs/", TerminalStyle(use_color=False))


def test_text_has_a_line_for_each_finding_and_a_summary() -> None:
    assert format_as("text") == [
        "docs/rules/fire, wood.md:3: error: 100 % broken: the page\N{REPLACEMENT CHARACTER}[31m is gone [broken-link]",
        "docs/a.md:1: note: no page links to this page [orphaned-page]",
        "note: no ancestor",
        "aaaaaaaaaa..bbbbbbbbbb: 1 error, 1 note (12 pages, 1 link, 5 questions)",
    ]
    assert format_as("text", replace(REPORT, base=None, findings=[], notes=[])) == [
        "bbbbbbbbbb: no findings (12 pages, 1 link, 5 questions)"
    ]


def test_annotations_are_escaped() -> None:
    first, second, *_ = format_as("github")
    assert first == (
        "::error file=docs/rules/fire%2C wood.md,line=3,title=broken-link"
        "::100 %25 broken: the page\N{REPLACEMENT CHARACTER}[31m is gone"
    )
    assert second == "::notice file=docs/a.md,line=1,title=orphaned-page::no page links to this page"


@pytest.mark.parametrize("name", ["x\n::stop-commands::y.md", "a::b.md", "50%25.md"])
def test_a_file_name_cannot_end_an_annotation(name: str) -> None:
    (line, *_) = format_as("github", replace(REPORT, findings=[replace(FINDING, file=name)]))
    assert "\n" not in line
    properties = line.removeprefix("::error ").partition("::")[0]
    shown = dict(part.split("=", 1) for part in properties.split(","))["file"]
    for escape, character in (("%2C", ","), ("%3A", ":"), ("%0A", "\n"), ("%25", "%")):
        shown = shown.replace(escape, character)
    assert shown == f"docs/{name}"


def test_a_file_name_is_no_command_in_the_log_of_a_ci_job() -> None:
    report = replace(REPORT, findings=[replace(FINDING, file="::stop-commands::x.md")])
    (line, *_) = format_report(report, "text", "", TerminalStyle(use_color=False))
    assert line.startswith("./::stop-commands::x.md:3: error: ")


def test_json_has_every_field() -> None:
    document = json.loads("\n".join(format_as("json")))
    assert document["counts"] == {"error": 1, "warning": 0, "note": 1}
    assert document["checked"] == {"pages": 12, "links": 1, "expected_questions": 2, "mined_questions": 3}
    assert document["findings"][1] == {
        "rule": "orphaned-page",
        "severity": "note",
        "file": "docs/a.md",
        "line": 1,
        "message": "no page links to this page",
    }


def test_sarif_has_what_version_2_1_0_requires() -> None:
    document: Any = json.loads("\n".join(format_as("sarif")))
    assert document["version"] == "2.1.0"
    assert document["$schema"].endswith("sarif-2.1.0.json")
    (run,) = document["runs"]
    driver = run["tool"]["driver"]
    assert (driver["name"], [rule["id"] for rule in driver["rules"]]) == ("wikiholt", list(RULES))
    assert all(rule["shortDescription"]["text"] for rule in driver["rules"])
    for result, finding in zip(run["results"], REPORT.findings, strict=True):
        assert driver["rules"][result["ruleIndex"]]["id"] == result["ruleId"] == finding.rule
        assert result["level"] == finding.severity  # SARIF has the same names
        assert result["message"]["text"] == finding.message
    place = run["results"][0]["locations"][0]["physicalLocation"]
    assert place["artifactLocation"] == {"uri": "docs/rules/fire%2C%20wood.md", "uriBaseId": "%SRCROOT%"}
    assert place["region"] == {"startLine": 3}
    assert run["invocations"][0]["executionSuccessful"] is True
