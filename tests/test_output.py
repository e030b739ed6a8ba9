"""What is printed: page text as it was written, and nothing in it that could drive a terminal."""

import io
import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wikiholt.errors import SourceBroken
from wikiholt.handle import Status
from wikiholt.keeper import Activity, Job, JobState
from wikiholt.keeper.jobs import read_job, write_job
from wikiholt.model import Answer, Confidence, Hit, Mode, Problem, Snippet, Span, SyncReport, Wiki
from wikiholt.stores.sqlite.store import SqliteStore
from wikiholt.surfaces.cli import working
from wikiholt.surfaces.cli.output import Style, answer_lines, bear_any_text, line, safe, status_lines, sync_lines

NASTY = "a\x1b]0;owned\x07\nb\u202ec\x9b31m\r\u2028d\u2066e"
PLAIN = Style(coloured=False)


def answer(text: str, matches: tuple[Span, ...] = (), name: str = "Page", notes: tuple[str, ...] = ()) -> Answer:
    hit = Hit(
        name, "p", "p", Snippet(text, matches), 0.5, 0.9, Confidence.HIGH, (), (name,), "", 1, 2, 0, None, (), None
    )
    return Answer("q", Mode.HYBRID, (hit,), 1, 1.0, "r" * 40, "r" * 40, False, False, False, notes)


def harmless(lines: list[str]) -> bool:
    return all(char.isprintable() for row in lines for char in row)


@pytest.mark.parametrize(
    "text",
    [
        "می\u200cخواهم",
        "👩\u200d👩\u200d👧\u200d👦 ❤\ufe0f",
        "全角\u3000空白",
        "10\u00a0km\u202fh",
        "«été» 《紅樓夢》",
        "של\u200fום\u200e",
        "two\nlines\tand a tab",
    ],
)
def test_honest_text_is_left_as_it_is(text: str) -> None:
    assert safe(text) == text


@pytest.mark.parametrize(
    "char",
    [*map(chr, range(0x202A, 0x202F)), *map(chr, range(0x2066, 0x206A)), *"\x00\x07\x08\r\x1b\x7f\x85\x9b\ud800\u2028"],
)
def test_what_could_drive_or_deceive_a_terminal_is_replaced(char: str) -> None:
    assert safe(f"a{char}b") == "a\N{REPLACEMENT CHARACTER}b"


@given(st.text())
def test_a_line_is_one_line_and_safe_keeps_every_place(text: str) -> None:
    assert len(safe(text)) == len(text)
    assert len(line(text).splitlines()) <= 1
    assert safe(line(text)) == line(text)


def test_brackets_of_a_book_title_are_shown_and_matches_are_coloured() -> None:
    rows = answer_lines(answer("讀《紅樓夢》 again", (Span(2, 5),)), Style(coloured=True))
    assert any("讀《\x1b[1m\x1b[32m紅樓夢\x1b[0m》 again" in row for row in rows)
    assert any("讀《紅樓夢》 again" in row for row in answer_lines(answer("讀《紅樓夢》 again", (Span(2, 5),)), PLAIN))


def test_text_cannot_bring_its_own_highlights() -> None:
    rows = answer_lines(answer("x\x01y\x02z", (Span(0, 1),)), Style(coloured=True))
    assert any("\x1b[1m\x1b[32mx\x1b[0m\N{REPLACEMENT CHARACTER}y\N{REPLACEMENT CHARACTER}z" in row for row in rows)


def test_nothing_foreign_is_printed_as_it_came() -> None:
    problem = Problem("f" + NASTY, "b", "binary", NASTY)
    wiki = Wiki("i", "slug", "/repo" + NASTY, datetime.now(UTC))
    error = SourceBroken(NASTY, hint=NASTY)
    assert harmless(answer_lines(answer(NASTY, (), NASTY, (NASTY,)), PLAIN))
    assert harmless(status_lines(Status(wiki, None, None, True, (problem,), 0, error), PLAIN))
    assert harmless(sync_lines("slug", SyncReport("r", problems=(problem,)), PLAIN))


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_any_text_can_be_written_in_any_encoding_and_json_stays_json(encoding: str) -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding)
    bear_any_text(stream, io.StringIO())
    document = {"name": "café 東京 👩\u200d👧 \udcff"}
    stream.write(json.dumps(document, ensure_ascii=False))
    stream.flush()
    assert json.loads(raw.getvalue().decode(encoding)) == document


def test_what_is_at_work_or_was_left_is_told() -> None:
    now = datetime(2026, 11, 16, 3, 24, tzinfo=UTC)
    job = Job(JobState.RUNNING, "j", now, pages_done=96, pages_total=400)
    at_work = working.Work(Activity("reindex", now, 96, 400, 665), job)
    assert working.lines(at_work, PLAIN) == ["  reindex at work since 2026-11-16 03:24 UTC: 96 of 400 pages"]
    assert working.document(at_work)["unfinished_reindex"] is None
    left = working.Work(None, job)
    assert "not finished (begun 2026-11-16 03:24 UTC, 96 of 400 pages)" in working.lines(left, PLAIN)[0]
    assert working.document(left) == {
        "activity": None,
        "unfinished_reindex": {"started_at": now.isoformat(), "pages_done": 96, "pages_total": 400},
    }
    failed = working.Work(None, Job(JobState.FAILED, error=NASTY))
    assert harmless(working.lines(failed, PLAIN))
    assert working.lines(working.Work(None, Job()), PLAIN) == []


def test_a_reindexing_that_was_cut_off_is_done_once_another_came_to_its_end(tmp_path: Path) -> None:
    report = SyncReport("r" * 40, 0, 0, 0, 0, 3, 3, 0, ())
    store, wiki = SqliteStore(tmp_path), "somewikiid"
    working.finish(store, wiki, report)
    assert read_job(store, wiki) == Job(), "there was none"
    begun = Job(JobState.RUNNING, "j", datetime(2026, 11, 16, tzinfo=UTC), pages_done=1, pages_total=3)
    write_job(store, wiki, begun, make=True)
    working.finish(store, wiki, report)
    assert (read_job(store, wiki).state, read_job(store, wiki).revision) == (JobState.COMPLETE, "r" * 40)
    assert working.lines(working.work_at(store, wiki), PLAIN) == []
