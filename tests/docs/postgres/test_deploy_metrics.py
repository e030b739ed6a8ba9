"""Alerts and dashboard of deploy/ use only metrics that the service has."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docs.deploy_files import find_metric_names
from tests.support.paths import ROOT
from tests.support.postgres_server import PostgresServer
from tests.support.served_application import serve_application

DEPLOY = ROOT / "deploy"


def read_text(name: str) -> str:
    return (DEPLOY / name).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def service_metrics(pg: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """The metrics of real services with all optional components: metric → labels."""
    address = pg.create_database()
    place = tmp_path_factory.mktemp("figures")
    leaning: dict[str, object] = {"vectors": "chroma", "chroma.url": "http://127.0.0.1:9"}
    metrics = read_metrics(place / "files", leaning) + read_metrics(place / "nodes", {"store": address})
    pg.drop_database(address)
    known: dict[str, set[str]] = {"up": set()}
    for name, labels in re.findall(r"^([a-z_]+)(?:\{(.*)\})? \S+$", metrics, re.MULTILINE):
        known.setdefault(name, set()).update(re.findall(r'(\w+)="', labels))
    assert known["wikiholt_requests_total"] == {"route", "method", "status"}
    return known


def read_metrics(place: Path, settings: dict[str, object]) -> str:
    with serve_application(place, settings) as served:
        assert served.make_client("read").get("/api/v1/search", params={"q": "printer"}).status_code == 200
        for path in ("/healthz", "/readyz"):
            assert served.make_client().get(path).status_code == 200, "health checks need no key"
        return served.make_client("operator").get("/metrics").text


def load_rules() -> Iterator[dict[str, Any]]:
    for group in yaml.safe_load(read_text("prometheus/wikiholt-rules.yml"))["groups"]:
        yield from group["rules"]


def load_dashboard() -> dict[str, Any]:
    document = json.loads(read_text("grafana/wikiholt.json"))
    assert isinstance(document, dict)
    return document


def check_expression(expression: str, service_metrics: dict[str, set[str]]) -> None:
    uses = find_metric_names(expression)
    assert uses, expression
    for name, labels in uses:
        assert name in service_metrics, f"the service has no {name}"
        assert labels <= service_metrics[name] | {"job", "instance"}, f"{name} has no such label: {expression}"


def test_every_alert_uses_existing_metrics(service_metrics: dict[str, set[str]]) -> None:
    for rule in load_rules():
        check_expression(rule["expr"], service_metrics)
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert {"summary", "action"} == set(rule["annotations"]), rule["alert"]
    names = [rule["alert"] for rule in load_rules()]
    assert len(names) == len(set(names)) >= 10


def test_every_panel_uses_existing_metrics(service_metrics: dict[str, set[str]]) -> None:
    expressions = [target["expr"] for panel in load_dashboard()["panels"] for target in panel.get("targets", ())]
    for expression in expressions:
        check_expression(expression, service_metrics)
    assert len(expressions) > 20
    for variable in load_dashboard()["templating"]["list"][1:]:
        check_expression(variable["definition"], service_metrics)


@pytest.mark.parametrize(
    "wrong", ["rate(wikiholt_requets_total[5m])", 'wikiholt_scheduler_wikis{slug="a"}', "looks_total"]
)
def test_an_unknown_metric_is_noticed(wrong: str, service_metrics: dict[str, set[str]]) -> None:
    with pytest.raises(AssertionError, match="has no"):
        check_expression(wrong, service_metrics)


def test_panels_do_not_overlap_and_name_their_source() -> None:
    panels = load_dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for at in (panel["gridPos"] for panel in panels)
        for x in range(at["x"], at["x"] + at["w"])
        for y in range(at["y"], at["y"] + at["h"])
    ]
    assert len(cells) == len(set(cells)), "two panels overlap"
    assert max(x for x, _ in cells) < 24
    variables = {variable["name"] for variable in load_dashboard()["templating"]["list"]}
    used = set(re.findall(r"\$\{?([a-z]\w*)", json.dumps(load_dashboard())))
    assert used == variables


def test_prometheus_scrapes_every_node_with_a_key_from_a_file() -> None:
    document = yaml.safe_load(read_text("prometheus/prometheus.yml"))
    (job,) = document["scrape_configs"]
    nodes = [name for name in yaml.safe_load(read_text("compose.yaml"))["services"] if name.startswith("node")]
    assert job["static_configs"] == [{"targets": [f"{name}:8765" for name in nodes]}]
    assert job["metrics_path"] == "/metrics"
    assert set(job["authorization"]) == {"credentials_file"}
    assert all((DEPLOY / "prometheus" / file).exists() for file in document["rule_files"])
    assert all(f'job="{job["job_name"]}"' in rule["expr"] for rule in load_rules())


@pytest.mark.skipif(shutil.which("promtool") is None, reason="there is no promtool")
def test_prometheus_accepts_the_rules() -> None:
    checked = ["promtool", "check", "rules", DEPLOY / "prometheus" / "wikiholt-rules.yml"]
    completed = subprocess.run(checked, check=False, capture_output=True, text=True, timeout=120)
    assert completed.returncode == 0, completed.stderr
