"""A real Prometheus with the files of deploy/ scrapes a real service; it evaluates every alert and every panel."""

import json
import shutil
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.support.paths import ROOT
from tests.support.programs import find_free_port, run_program
from tests.support.served_application import serve_application
from tests.support.uvicorn_server import run_server
from tests.support.wait import wait_until

DEPLOY = ROOT / "deploy"
VALUES = {"$__rate_interval": "1m", "$job": "wikiholt", "$instance": ".*"}
SEARCHES = 'sum(rate(wikiholt_request_seconds_count{route=~"/api/v1/(semantic-)?search"}[5m]))'


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A client of Prometheus, which has scraped the service at least twice."""
    if shutil.which("prometheus") is None:
        pytest.skip("there is no prometheus")
    place = tmp_path_factory.mktemp("prometheus")
    port = find_free_port()
    with serve_application(tmp_path_factory.mktemp("service")) as served, run_server(served.app) as url:
        key = place / "wikiholt.key"
        key.write_text(served.tokens["operator"])
        text = (DEPLOY / "prometheus" / "prometheus.yml").read_text(encoding="utf-8")
        text = text.replace("interval: 15s", "interval: 1s").replace("/etc/prometheus/wikiholt.key", str(key))
        text = text.replace('"node1:8765", "node2:8765"', f'"{url.removeprefix("http://")}"')
        (place / "prometheus.yml").write_text(text)
        shutil.copy(DEPLOY / "prometheus" / "wikiholt-rules.yml", place)
        command = ["prometheus", f"--config.file={place}/prometheus.yml", f"--storage.tsdb.path={place}/data"]
        command += [f"--web.listen-address=127.0.0.1:{port}"]
        url_of_api = f"http://127.0.0.1:{port}/api/v1"
        with run_program(command, place, [port]), httpx.Client(base_url=url_of_api, timeout=60) as client:

            def has_searches() -> bool:
                for path in ("/w/alpha/api/v1/search", "/w/alpha/api/v1/semantic-search"):
                    served.make_client("read").get(path, params={"q": "printer"})
                found = client.get("/query", params={"query": SEARCHES}).json().get("data", {}).get("result")
                return bool(found) and float(found[0]["value"][1]) > 0

            wait_until(has_searches)
            yield client


def evaluate(client: httpx.Client, expression: str) -> list[Any]:
    for name, value in VALUES.items():
        expression = expression.replace(name, value)
    answer = client.get("/query", params={"query": expression}).json()
    assert answer["status"] == "success", (expression, answer)
    result = answer["data"]["result"]
    assert isinstance(result, list)
    return result


def test_the_service_is_scraped_with_its_key(prometheus: httpx.Client) -> None:
    def get_last_scrape() -> tuple[str, str]:
        (target,) = prometheus.get("/targets").json()["data"]["activeTargets"]
        return target["health"], target["lastError"]

    # On a busy machine, a scrape may take more than its second; the next one does not.
    assert wait_until(lambda: get_last_scrape() == ("up", ""), lambda: str(get_last_scrape()))


def test_no_alert_fires_on_a_healthy_service(prometheus: httpx.Client) -> None:
    def list_rules() -> list[dict[str, Any]]:
        (group,) = prometheus.get("/rules").json()["data"]["groups"]
        return list(group["rules"])

    wait_until(lambda: all(rule["health"] != "unknown" for rule in list_rules()))
    rules = list_rules()
    assert {rule["health"] for rule in rules} == {"ok"}
    # On a busy machine searches are slow, and that alert waits: it fires only after minutes.
    assert [rule["name"] for rule in rules if rule["state"] == "firing"] == []


def test_every_panel_shows_values(prometheus: httpx.Client) -> None:
    dashboard = json.loads((DEPLOY / "grafana" / "wikiholt.json").read_text(encoding="utf-8"))
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    for expression in expressions:
        if "wikiholt_database_" not in expression:
            assert wait_until(lambda query=expression: evaluate(prometheus, query), expression)  # type: ignore[misc]
