"""Terminal output: page text is unchanged except for characters that could control a terminal."""

import io
import json
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.services import build_test_service
from wikiholt.api.documents.search_documents import build_result_document
from wikiholt.domain.index import IndexState, Recipe, SyncReport
from wikiholt.domain.page import PageProblem, PageWarnings
from wikiholt.domain.search import Confidence, Facet, Hit, PropertyFacets, SearchMode, SearchResult, Snippet, Span
from wikiholt.domain.wiki import Wiki
from wikiholt.errors import SourceCorrupt, SourceMissing
from wikiholt.interfaces.cli import index_commands
from wikiholt.interfaces.cli.hit_output import format_result
from wikiholt.interfaces.cli.output import (
    TerminalStyle,
    configure_streams,
    format_json,
    format_status,
    format_sync,
    to_safe_line,
    to_safe_text,
)
from wikiholt.sync.reindex_job import (
    ReindexJob,
    ReindexState,
    WikiWork,
    finish_reindex_job,
    read_job,
    read_wiki_work,
    write_job,
)
from wikiholt.sync.wiki_records import WikiActivity
from wikiholt.wikis.status import WikiStatus

HOSTILE_TEXT = "a\x1b]0;owned\x07\nb\u202ec\x9b31m\r\u2028d\u2066e"
PLAIN = TerminalStyle(use_color=False)


def make_result(
    text: str, matches: tuple[Span, ...] = (), name: str = "Page", notes: tuple[str, ...] = ()
) -> SearchResult:
    hit = Hit(
        name, "p", "p", Snippet(text, matches), 0.5, 0.9, Confidence.HIGH, (), (name,), "", 1, 2, 0, None, (), None
    )
    return SearchResult("q", SearchMode.HYBRID, (hit,), 1, 1.0, "r" * 40, "r" * 40, False, False, False, notes)


def show(result: SearchResult, style: TerminalStyle = PLAIN) -> list[str]:
    return format_result(build_result_document(result), style)


def assert_harmless(lines: list[str]) -> bool:
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
def test_normal_text_is_unchanged(text: str) -> None:
    assert to_safe_text(text) == text


@pytest.mark.parametrize(
    "char",
    [*map(chr, range(0x202A, 0x202F)), *map(chr, range(0x2066, 0x206A)), *"\x00\x07\x08\r\x1b\x7f\x85\x9b\ud800\u2028"],
)
def test_characters_that_control_or_deceive_a_terminal_are_replaced(char: str) -> None:
    assert to_safe_text(f"a{char}b") == "a\N{REPLACEMENT CHARACTER}b"


@given(st.text())
def test_escaping_keeps_one_line_and_every_offset(text: str) -> None:
    assert len(to_safe_text(text)) == len(text)
    assert len(to_safe_line(text).splitlines()) <= 1
    assert to_safe_text(to_safe_line(text)) == to_safe_line(text)


def test_brackets_are_shown_and_matches_are_coloured() -> None:
    rows = show(make_result("讀《紅樓夢》 again", (Span(2, 5),)), TerminalStyle(use_color=True))
    assert any("讀《\x1b[1m\x1b[32m紅樓夢\x1b[0m》 again" in row for row in rows)
    assert any("讀《紅樓夢》 again" in row for row in show(make_result("讀《紅樓夢》 again", (Span(2, 5),))))


def make_heading_result(*headings: str) -> SearchResult:
    result = make_result("text", name="Coffee machine")
    hit = replace(
        result.hits[0],
        heading_path=("Coffee machine", *headings),
        name_matches=(Span(7, 14),),
        heading_matches=((Span(7, 14),), *((Span(0, 2),) for _ in headings)),
    )
    return replace(result, hits=(hit,))


def test_matches_of_name_and_headings_are_coloured() -> None:
    head, where, *_ = show(make_heading_result("Descaling"), TerminalStyle(use_color=True))
    assert "\x1b[1mCoffee \x1b[0m\x1b[1m\x1b[32mmachine\x1b[0m  " in head
    assert where.endswith("\x1b[2m › \x1b[0m\x1b[1m\x1b[32mDe\x1b[0m\x1b[2mscaling\x1b[0m")
    head, where, *_ = show(make_heading_result("Descaling"))
    assert (head.split("  ")[0], where) == ("1. Coffee machine", "   p:1 › Descaling")


def test_the_headings_fit_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    _, where, *_ = show(make_heading_result("A" * 30, "B" * 30, "Last"))
    assert where == f"   p:1 › … › {'B' * 30} › Last"
    _, where, *_ = show(make_heading_result("A" * 30, "B" * 80))
    assert where == f"   p:1 › {'B' * 50}…"
    assert len(where) == 60
    result = make_heading_result("B" * 80)
    _, where, *_ = show(replace(result, hits=(replace(result.hits[0], path="p" * 40),)))
    assert where == f"   {'p' * 40}:1 › …"


def test_page_text_cannot_contain_highlight_markers() -> None:
    rows = show(make_result("x\x01y\x02z", (Span(0, 1),)), TerminalStyle(use_color=True))
    assert any("\x1b[1m\x1b[32mx\x1b[0m\N{REPLACEMENT CHARACTER}y\N{REPLACEMENT CHARACTER}z" in row for row in rows)


def test_facets_follow_the_hits_and_numbers_continue() -> None:
    facets = (
        PropertyFacets("status", (Facet("draft", 3), Facet(HOSTILE_TEXT, 1))),
        PropertyFacets("owner", ()),
    )
    rows = show(replace(make_result("text", ()), offset=20, facets=facets))
    assert rows[0].startswith("21. ")
    assert rows[-2].startswith("status: draft (3), ")
    assert rows[-1] == "owner: no page has it"
    assert assert_harmless(rows)


def test_all_foreign_text_is_escaped_before_printing() -> None:
    problem = PageProblem("f" + HOSTILE_TEXT, "b", "binary", HOSTILE_TEXT)
    wiki = Wiki("i", "slug", "/repo" + HOSTILE_TEXT, datetime.now(UTC))
    error = SourceCorrupt(HOSTILE_TEXT, hint=HOSTILE_TEXT)
    assert assert_harmless(show(make_result(HOSTILE_TEXT, (), HOSTILE_TEXT, (HOSTILE_TEXT,))))
    assert assert_harmless(format_status(WikiStatus(wiki, None, None, True, (problem,), 0, error), PLAIN))
    warnings = (PageWarnings("f" + HOSTILE_TEXT, (HOSTILE_TEXT,)),)
    report = SyncReport("r", problems=(problem,), pages_with_warnings=1, warnings=warnings)
    assert assert_harmless(format_sync("slug", report, {f".{HOSTILE_TEXT}": 1}, PLAIN))


def test_the_status_says_that_the_source_cannot_be_read() -> None:
    wiki = Wiki("i", "slug", "/repo", datetime.now(UTC))
    state = IndexState(1, 1, Recipe("m", 4, "p"), "r" * 40, None, 3, 3, 0)
    status = WikiStatus(wiki, state, None, True, error=SourceMissing("it is gone", hint="mount it"))
    assert format_status(status, PLAIN)[1].endswith(" · rrrrrrrrrr, its source cannot be read")
    status = WikiStatus(wiki, state, "s" * 40, True)
    assert format_status(status, PLAIN)[1].endswith(" · rrrrrrrrrr, behind HEAD")


def test_skipped_files_are_counted_by_extension() -> None:
    skipped = {".png": 300, ".docx": 12, "": 1}
    line = "  313 files skipped: 300 .png, 12 .docx, 1 without extension"
    assert format_sync("slug", SyncReport("r"), skipped, PLAIN)[-1] == line
    wiki = Wiki("i", "slug", "/repo", datetime.now(UTC))
    assert line in format_status(WikiStatus(wiki, None, None, True, skipped=skipped), PLAIN)
    many = {f".e{n}": 1 for n in range(20)}
    assert format_sync("slug", SyncReport("r"), many, PLAIN)[-1].endswith("1 .e7, …")
    assert "skipped" not in "".join(format_sync("slug", SyncReport("r"), {}, PLAIN))


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_any_text_can_be_written_in_any_encoding_and_json_stays_json(
    encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = io.TextIOWrapper(raw := io.BytesIO(), encoding=encoding)
    configure_streams(stream, io.StringIO())
    monkeypatch.setattr(sys, "stdout", stream)
    document = {"name": "café 東京 👩\u200d👧 \udcff"}
    stream.write(f"{document['name']}\n{format_json(document)}")
    stream.flush()
    text, _, written = raw.getvalue().decode(encoding).partition("\n")
    assert text.startswith("caf")
    assert json.loads(written) == document


def test_running_and_interrupted_work_is_shown() -> None:
    now = datetime(2026, 11, 16, 3, 24, tzinfo=UTC)
    job = ReindexJob(ReindexState.RUNNING, "j", now, pages_done=96, pages_total=400)
    at_work = WikiWork(WikiActivity("reindex", now, 96, 400, 665), job)
    assert index_commands.format_work(at_work, PLAIN) == [
        "  reindex running since 2026-11-16 03:24 UTC: 96 of 400 pages"
    ]
    assert index_commands.build_work_document(at_work)["unfinished_reindex"] is None
    left = WikiWork(None, job)
    assert (
        "a reindex is unfinished (started 2026-11-16 03:24 UTC, 96 of 400 pages)"
        in index_commands.format_work(left, PLAIN)[0]
    )
    assert index_commands.build_work_document(left) == {
        "activity": None,
        "unfinished_reindex": {"started_at": now.isoformat(), "pages_done": 96, "pages_total": 400},
    }
    failed = WikiWork(None, ReindexJob(ReindexState.FAILED, error=HOSTILE_TEXT))
    assert assert_harmless(index_commands.format_work(failed, PLAIN))
    assert index_commands.format_work(WikiWork(None, ReindexJob()), PLAIN) == []


def test_an_interrupted_reindex_is_cleared_by_a_later_complete_one(tmp_path: Path) -> None:
    report = SyncReport("r" * 40, 0, 0, 0, 0, 3, 3, 0, ())
    service, wiki = build_test_service(tmp_path), "somewikiid"
    store = service.components.store
    finish_reindex_job(service, wiki, report)
    assert read_job(store, wiki) == ReindexJob(), "there was no interrupted reindex"
    begun = ReindexJob(ReindexState.RUNNING, "j", datetime(2026, 11, 16, tzinfo=UTC), pages_done=1, pages_total=3)
    write_job(store, wiki, begun, create=True)
    finish_reindex_job(service, wiki, report)
    assert (read_job(store, wiki).state, read_job(store, wiki).revision) == (ReindexState.COMPLETE, "r" * 40)
    assert index_commands.format_work(read_wiki_work(service, wiki), PLAIN) == []
