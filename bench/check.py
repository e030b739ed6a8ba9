"""What `wikiholt check` reports for the last commits of a repository, each compared with the one before.

    python -m bench.check REPOSITORY [--commits 50] [--path DIR] [--data DIR] [--write]

Every finding is printed, so that a person can count the false alarms. The index is kept in bench/data/check.
"""

import sys
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from bench.corpus import run_git
from bench.report import make_head, make_parser, publish
from wikiholt.api.settings.settings_loader import load_settings
from wikiholt.git.pinned_repository import PinnedRepository
from wikiholt.interfaces.cli.check_command import open_check_service, register_wiki
from wikiholt.wikis.check import wiki_check
from wikiholt.wikis.check.findings import RULES
from wikiholt.wikis.check.wiki_check import QUESTIONS_FILE, CheckReport, WikiCheck
from wikiholt.wikis.check.wiki_state import WikiState
from wikiholt.wikis.handle import WikiHandle


def main() -> None:
    parser = make_parser(__doc__, "check", "data")
    parser.add_argument("repository", type=Path)
    parser.add_argument("--commits", type=int, default=50)
    parser.add_argument("--path", default="")
    arguments = parser.parse_args()
    publish("check", __doc__, "\n".join(measure(arguments)), write=arguments.write)


def measure(arguments: Namespace) -> Iterator[str]:
    root = arguments.repository.resolve()
    commits = run_git(root, "rev-list", "--first-parent", f"-{arguments.commits + 1}", "HEAD").split()[::-1]
    directory = (arguments.data / "check").resolve()
    repository = PinnedRepository(directory / "pages.git", root)
    service = open_check_service(load_settings(directory / "none"), directory / "data")
    service.load_embedder()
    settings = {"subdirectory": arguments.path} if arguments.path else {}
    wiki = register_wiki(service, directory / "pages.git", settings)
    embedded: list[int] = []

    def open_at(commit: str) -> WikiHandle:
        repository.pin(commit)
        handle = service.get_handle(wiki.slug)
        embedded.append(handle.sync().chunks_embedded)
        return handle

    states: dict[str, WikiState] = {}

    def read_once(handle: WikiHandle) -> WikiState:
        """The state that was read last, if it is of this commit: each commit is a head, and then a base."""
        revision = handle.get_indexed_revision() or ""
        if revision not in states:
            states.clear()
            states[revision] = read_state(handle)
        return states[revision]

    read_state, wiki_check._read_state = wiki_check._read_state, read_once
    check = WikiCheck(open_at, service.get_source(wiki), QUESTIONS_FILE, ())
    base = check.check_base(commits[0], [])
    reports: list[CheckReport] = []
    seconds: list[float] = []
    embedded.clear()
    for commit in commits[1:]:
        began = time.monotonic()
        report = check.check_head(base, commit, [], ())
        assert (report.base, report.head) == (base.state.revision, commit)
        base = check.check_base(commit, [])
        seconds.append(time.monotonic() - began)
        reports.append(report)
        print(
            f"{commit[:10]} {len(report.findings)} findings, {seconds[-1]:.1f} s",
            *report.findings,
            file=sys.stderr,
            flush=True,
        )
    service.close()
    yield from format_reports(reports, seconds, sum(embedded))


def format_reports(reports: list[CheckReport], seconds: list[float], embedded: int) -> Iterator[str]:
    last = reports[-1]
    mined = sum(report.mined for report in reports) / len(reports)
    yield (
        f"{len(reports)} commits, {last.pages} pages and {last.links} links at the last one, {mined:.0f} questions per "
        f"commit, {embedded} chunks embedded, median {sorted(seconds)[len(seconds) // 2]:.1f} s per commit.\n"
    )
    findings = [(report, each) for report in reports for each in report.findings]
    yield make_head("| rule | findings | commits with one |")
    for rule in RULES:
        of_rule = [(report.head, each) for report, each in findings if each.rule == rule]
        yield f"| {rule} | {len(of_rule)} | {len({head for head, _ in of_rule})} |"
    yield ""
    counts = Counter(report.head for report, _ in findings)
    for report in reports:
        if report.findings:
            yield f"- {report.head[:10]}: {counts[report.head]}"
            yield from (
                f"  - {each.severity} {each.rule} {each.file}:{each.line}: {each.message}" for each in report.findings
            )


if __name__ == "__main__":
    main()
