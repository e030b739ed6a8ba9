"""`wikiholt eval` with the real model."""

import json
import re
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from tests.support.git_repository import Repository
from wikiholt.interfaces.cli.main import main

Run = Callable[..., tuple[int, str, str]]
FILLER = "It has been so for as long as anybody here can remember, and nobody has thought of changing it since then."
PAGES: dict[str, str | bytes | None] = {
    "Home.md": "# Home\n\n[lost files and how to get them back](ops/backup.md), [a hot drink in the "
    f"morning](ops/coffee.md), [who is awake at midnight](ops/rota.md). {FILLER}\n",
    "ops/backup.md": f"# Backups\n\nCopies of every disk are taken at midnight and kept for thirty days. {FILLER}\n",
    "ops/coffee.md": "---\ndescription: Descaling and cleaning of our espresso device\n---\n# Coffee machine\n\n"
    f"Water, beans, and a brush for the steam nozzle. {FILLER}\n",
    "ops/rota.md": f"# Rota\n\nAda on Monday, Grace on Tuesday; who swaps says so. {FILLER}\n",
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("eval")
    wiki = Repository(place / "wiki")
    wiki.commit({"ops/rota.md": f"# Night watch\n\nAda on Monday, Grace on Tuesday; who swaps says so. {FILLER}\n"})
    wiki.commit(PAGES)
    assert main(["--data", str(place / "data"), "add", "night", str(wiki.path)]) == 0
    assert main(["--data", str(place / "data"), "sync", "--quiet"]) == 0
    return place / "data"


@pytest.fixture
def evaluate(data: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main(["--data", str(data), "eval", *arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def hash_indexes(data: Path) -> dict[str, str]:
    return {str(file): sha256(file.read_bytes()).hexdigest() for file in sorted(data.rglob("*.sqlite"))}


def parse_document(result: tuple[int, str, str]) -> Any:
    code, out, err = result
    assert (code, err) == (0, "")
    return json.loads(out)


def test_a_wiki_is_measured_by_its_own_links_history_and_descriptions(evaluate: Run, data: Path) -> None:
    before = hash_indexes(data)
    document = parse_document(evaluate("night", "--json"))
    assert document["questions"]["asked"] == {"links": 3, "former-titles": 1, "descriptions": 1}
    assert [run["configuration"] for run in document["runs"]] == ["hybrid", "semantic", "keyword"]
    hybrid = document["runs"][0]
    assert set(hybrid["figures"]) == {"ndcg@10", "recall@10", "mrr", "success@1"}
    for figure in hybrid["figures"].values():
        assert 0 <= figure["low"] <= figure["mean"] <= figure["high"] <= 1
    assert hybrid["by_kind"]["links"]["recall@10"]["mean"] == 1.0
    assert any("only 5 questions" in note for note in document["notes"])
    assert hash_indexes(data) == before


def test_text_output_has_a_table_and_the_worst_answers(evaluate: Run) -> None:
    code, out, err = evaluate("night", "--mode", "keyword", "--kind", "descriptions")
    assert (code, err) == (0, "")
    assert "1 question at" in out
    assert "(1 of 1 descriptions)" in out
    assert re.search(r"Worst of keyword\n.*\n.*descriptions  ops/coffee  nDCG", out)


def test_two_configurations_are_compared_question_by_question(evaluate: Run) -> None:
    document = parse_document(evaluate("night", "--mode", "semantic", "--against", "keyword", "--json"))
    comparison = document["comparison"]
    assert (comparison["ours"], comparison["theirs"]["configuration"]) == ("semantic", "keyword")
    gap = comparison["differences"]["ndcg@10"]
    assert gap["better"] + gap["worse"] + gap["same"] == 5
    assert 0 < gap["p_value"] <= 1
    same = parse_document(evaluate("night", "--mode", "semantic", "--against", "search.stale_check=false", "--json"))
    assert same["comparison"]["theirs"]["configuration"] == "semantic search.stale_check=false"
    assert same["comparison"]["differences"]["mrr"]["p_value"] == 1.0
    assert any("HEAD was not checked" in note for note in same["notes"])


def test_an_index_in_another_directory_can_be_compared_with(evaluate: Run, data: Path) -> None:
    document = parse_document(evaluate("night", "--mode", "hybrid", "--against", f"data={data}", "--json"))
    assert document["comparison"]["differences"]["ndcg@10"]["same"] == 5


def test_the_html_report_escapes_wiki_text(evaluate: Run, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    queries, qrels = tmp_path / "q.jsonl", tmp_path / "q.tsv"
    queries.write_text('{"id": "1", "text": "<script>alert(1)</script>"}\n{"id": "2", "text": "espresso"}\n')
    qrels.write_text("1\tops/rota\t1\n2\tops/coffee.md\t1\n")
    code, out, _ = evaluate(
        "night", "--queries", str(queries), "--qrels", str(qrels), "--html", str(file), "--against", "keyword"
    )
    assert code == 0
    assert "2 of 2 labelled" in out
    page = file.read_text()
    assert "<script" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "http" not in page.replace("http-equiv", "")
    assert "hybrid against keyword" in page


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["nowhere"], 3, "nowhere"),
        (["night", "--queries", "q.jsonl"], 2, "require each other"),
        (["night", "--queries", "absent", "--qrels", "absent"], 2, "absent cannot be read"),
        (["night", "--queries", "bad.jsonl", "--qrels", "q.tsv"], 2, "line 2 of the queries is not JSON"),
        (["night", "--queries", "q.jsonl", "--qrels", "ghost.tsv"], 2, "line 1 of the qrels names 'ghost'"),
        (["night", "--queries", "q.jsonl", "--qrels", "nought.tsv"], 2, "no query has a relevant page"),
        (["night", "--queries", "bytes", "--qrels", "q.tsv"], 2, "it is not UTF-8"),
        (["night", "--queries", "q.jsonl", "--qrels", "q.tsv", "--kind", "links"], 2, "--kind"),
        (["night", "--limit", "0"], 2, "--limit is 0"),
        (["night", "--against", "fast"], 2, "'fast' is not a configuration"),
        (["night", "--against", "no.such=1"], 2, "no.such"),
        (["night", "--against", "model=bge-small-en-v1.5"], 2, "have to be rebuilt"),
        (["night", "--html", "no/such/directory.html"], 7, "cannot be written"),
    ],
    ids=range(13),
)
def test_invalid_arguments_are_reported_and_change_nothing(
    evaluate: Run,
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    code: int,
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    good = '{"id": "1", "text": "espresso"}\n'
    files = {"q.jsonl": good, "bad.jsonl": good + "{\n", "q.tsv": "1\tops/coffee\t1\n", "ghost.tsv": "1\tghost\t1\n"}
    for name, text in (files | {"nought.tsv": "1\tops/coffee\t0\n"}).items():
        Path(name).write_text(text)
    Path("bytes").write_bytes(b"\xff\xfe\xfa")
    before = hash_indexes(data)
    result = evaluate(*arguments)
    assert result[0] == code
    assert message in result[2]
    assert "hint: " in result[2]
    assert result[1] == ""
    assert hash_indexes(data) == before


def test_the_page_that_contains_a_link_is_not_an_answer_for_its_target(evaluate: Run) -> None:
    document = parse_document(evaluate("night", "--mode", "keyword", "--kind", "links", "--worst", "10", "--json"))
    worst = document["runs"][0]["worst"]
    assert worst, "keywords alone do not answer every question"
    # Home contains every word of these questions and would be the first result for all of them.
    assert "Home" not in [page["path"] for outcome in worst for page in outcome["found"]]
