"""What `serve` says while it starts."""

import logging
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.interfaces.cli.cli_fixtures import CommandRunner
from tests.support.wait import wait_until
from wikiholt.interfaces.cli import serve_command
from wikiholt.interfaces.cli.log_output import configure_logging
from wikiholt.interfaces.cli.serve_command import ProgressReporter, log_start, report_progress, show_status
from wikiholt.sync.wiki_records import SchedulerProgress, WikiActivity

SYNC = WikiActivity("sync", datetime(2026, 11, 16, tzinfo=UTC), 120, 400, 700)


@pytest.fixture
def status_log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, logger="wikiholt.serve")
    return caplog


def test_progress_is_logged_every_ten_seconds_until_all_wikis_are_ready() -> None:
    lines: list[str] = []
    reporter = ProgressReporter(lines.append)
    assert not reporter.report(SchedulerProgress(2, 0, 0, ()), 0.5)
    assert lines == [], "a short sync needs no progress"
    assert not reporter.report(SchedulerProgress(2, 1, 0, (("garden", SYNC),)), 10)
    assert not reporter.report(SchedulerProgress(2, 1, 0, (("garden", SYNC),)), 15)
    assert not reporter.report(SchedulerProgress(2, 1, 0, (("garden", SYNC),)), 21)
    assert lines == ["syncing: 1 of 2 wikis at HEAD; sync of garden 120 of 400 pages"], "nothing new is not repeated"
    assert reporter.report(SchedulerProgress(2, 2, 0, ()), 22)
    assert reporter.report(SchedulerProgress(2, 2, 0, ()), 23)
    assert lines[1:] == ["ready: the index of 2 wikis is at HEAD"]


def test_wikis_that_fail_do_not_delay_readiness() -> None:
    lines: list[str] = []
    reporter = ProgressReporter(lines.append)
    assert reporter.report(SchedulerProgress(3, 1, 2, ()), 1)
    assert lines == ["ready: the index of 1 wiki is at HEAD; 2 wikis could not be synced"]


def test_a_new_wiki_is_reported_again() -> None:
    lines: list[str] = []
    reporter = ProgressReporter(lines.append)
    assert reporter.report(SchedulerProgress(0, 0, 0, ()), 1)
    assert lines == []
    reporter.report(SchedulerProgress(1, 1, 0, ()), 2)
    reporter.report(SchedulerProgress(2, 2, 0, ()), 30)
    assert lines == ["ready: the index of 1 wiki is at HEAD", "ready: the index of 2 wikis is at HEAD"]


def test_the_thread_reports_and_ends(status_log: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve_command, "_POLL_INTERVAL_S", 0.001)
    calls: list[int] = []

    def get_progress() -> SchedulerProgress:
        calls.append(1)
        return SchedulerProgress(1, 1, 0, ())

    with report_progress(get_progress):
        wait_until(lambda: "ready" in status_log.text)
    assert calls


def test_the_start_names_the_data_directory(status_log: pytest.LogCaptureFixture) -> None:
    log_start(2, "data", [])
    log_start(0, "data", [Path("/srv/wikis")])
    assert "serving 2 wikis from data" in status_log.text
    assert "looking for wikis in /srv/wikis" in status_log.text
    assert "no wikis yet" not in status_log.text
    log_start(0, "data", [])
    assert "add one with `wikiholt add SLUG PATH`" in status_log.text


@pytest.mark.parametrize(("level", "shown"), [("warning", True), ("error", False)])
def test_status_is_shown_unless_only_errors_are(level: str, shown: bool) -> None:
    logger = logging.getLogger("wikiholt.serve")
    previous = logger.level
    logger.setLevel(logging.NOTSET)
    try:
        show_status(level)
        assert (logger.level == logging.INFO) == shown
    finally:
        logger.setLevel(previous)


@pytest.mark.parametrize(
    ("with_time", "pattern"), [(True, r"20\d\d-\d\d-\d\dT[\d:]{8}Z WARNING x: a"), (False, "WARNING x: a")]
)
def test_log_lines_of_long_running_commands_have_times(
    with_time: bool, pattern: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    handlers: list[logging.Handler] = []
    monkeypatch.setattr(logging, "basicConfig", lambda **options: handlers.extend(options["handlers"]))
    configure_logging("WARNING", with_time=with_time)
    record = logging.LogRecord("x", logging.WARNING, str(Path()), 1, "a", (), None)
    assert re.fullmatch(pattern, handlers[0].format(record))


@pytest.mark.parametrize("arguments", [(".",), ("--host", "::1"), ("--port", "0"), ("--workers", "2")])
def test_the_process_in_the_background_takes_no_other_option(run: CommandRunner, arguments: tuple[str, ...]) -> None:
    done = run("serve", "--background", *arguments)
    assert (done.code, done.out) == (2, "")
    assert "--background takes no directory, --host, --port or --workers" in done.err
