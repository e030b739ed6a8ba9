"""Findings of `wikiholt check` as text, JSON, SARIF and GitHub annotations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from wikiholt import __version__
from wikiholt.interfaces.cli.output import TerminalStyle, format_count, format_json, to_safe_line
from wikiholt.wikis.check.findings import RULES, Finding, Severity

if TYPE_CHECKING:
    from wikiholt.wikis.check.wiki_check import CheckReport

FORMATS = ("text", "json", "sarif", "github")
_SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def format_report(report: CheckReport, output_format: str, prefix: str, style: TerminalStyle) -> list[str]:
    """The lines to print. `prefix` is the directory of the wiki in its repository, with a slash at its end."""
    if output_format == "json":
        return [format_json(build_check_document(report, prefix))]
    if output_format == "sarif":
        return [format_json(_build_sarif(report, prefix))]
    if output_format == "github":
        return [*(_format_annotation(each, prefix) for each in report.findings), _format_summary(report)]
    return list(_format_text(report, prefix, style))


def build_check_document(report: CheckReport, prefix: str) -> dict[str, Any]:
    return {
        "base": report.base,
        "head": report.head,
        "counts": _count_findings(report),
        "findings": [
            {
                "rule": each.rule,
                "severity": str(each.severity),
                "file": prefix + each.file,
                "line": each.line,
                "message": each.message,
            }
            for each in report.findings
        ],
        "checked": {
            "pages": report.pages,
            "links": report.links,
            "expected_questions": report.expected,
            "mined_questions": report.mined,
        },
        "notes": list(report.notes),
    }


def _count_findings(report: CheckReport) -> dict[str, int]:
    counts = Counter(each.severity for each in report.findings)
    return {str(severity): counts[severity] for severity in Severity}


def _format_text(report: CheckReport, prefix: str, style: TerminalStyle) -> Iterator[str]:
    for each in report.findings:
        place = to_safe_line(f"{prefix}{each.file}:{each.line}")
        # GitHub runs lines that begin with two colons as commands, also if they are printed as text.
        place = f"./{place}" if place.lstrip().startswith("::") else place
        severity = style.format_dim(each.severity) if each.severity is Severity.NOTE else f"{each.severity}"
        rule = style.format_dim(f"[{each.rule}]")
        yield f"{style.format_bold(place)}: {severity}: {to_safe_line(each.message)} {rule}"
    yield from (style.format_warning(f"note: {to_safe_line(note)}") for note in report.notes)
    yield _format_summary(report)


def _format_summary(report: CheckReport) -> str:
    counts = [format_count(count, name) for name, count in _count_findings(report).items() if count]
    commits = f"{report.base[:10]}..{report.head[:10]}" if report.base else report.head[:10]
    questions = format_count(report.expected + report.mined, "question")
    checked = f"{format_count(report.pages, 'page')}, {format_count(report.links, 'link')}, {questions}"
    return f"{commits}: {', '.join(counts) or 'no findings'} ({checked})"


def _build_sarif(report: CheckReport, prefix: str) -> dict[str, Any]:
    rules = list(RULES)
    driver = {
        "name": "wikiholt",
        "semanticVersion": __version__,
        "rules": [{"id": rule, "shortDescription": {"text": text}} for rule, text in RULES.items()],
    }
    results = [
        {
            "ruleId": each.rule,
            "ruleIndex": rules.index(each.rule),
            "level": str(each.severity),
            "message": {"text": each.message},
            "locations": [
                {
                    "physicalLocation": {
                        "artifactLocation": {"uri": quote(prefix + each.file), "uriBaseId": "%SRCROOT%"},
                        "region": {"startLine": each.line},
                    }
                }
            ],
        }
        for each in report.findings
    ]
    notes = [{"level": "note", "message": {"text": note}} for note in report.notes]
    invocation = {"executionSuccessful": True, "toolExecutionNotifications": notes}
    run = {"tool": {"driver": driver}, "invocations": [invocation], "results": results}
    return {"$schema": _SARIF_SCHEMA, "version": "2.1.0", "runs": [run]}


def _format_annotation(finding: Finding, prefix: str) -> str:
    """A workflow command, see https://docs.github.com/actions/reference/workflow-commands-for-github-actions."""
    kind = "notice" if finding.severity is Severity.NOTE else str(finding.severity)
    file = _escape_property(prefix + finding.file)
    return f"::{kind} file={file},line={finding.line},title={finding.rule}::{_escape(to_safe_line(finding.message))}"


def _escape(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _escape_property(text: str) -> str:
    return _escape(text).replace(":", "%3A").replace(",", "%2C")
