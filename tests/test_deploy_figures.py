"""Alerts and dashboard of deploy/ ask for figures that the service really has."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from deployed import metric_uses
from pg_server import PgServer
from served_farm import served

DEPLOY = Path(__file__).parents[1] / "deploy"


def text_of(name: str) -> str:
    return (DEPLOY / name).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def figures(pg: PgServer, tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """What services really tell Prometheus, with all that they may lean on: metrics, each with its labels."""
    address = pg.new_database()
    place = tmp_path_factory.mktemp("figures")
    leaning: dict[str, object] = {"vectors": "chroma", "chroma.url": "http://127.0.0.1:9"}
    told = told_by(place / "files", leaning) + told_by(place / "nodes", {"store": address})
    pg.drop_database(address)
    known: dict[str, set[str]] = {"up": set()}
    for name, labels in re.findall(r"^([a-z_]+)(?:\{(.*)\})? \S+$", told, re.MULTILINE):
        known.setdefault(name, set()).update(re.findall(r'(\w+)="', labels))
    assert known["wikiholt_requests_total"] == {"route", "method", "status"}
    return known


def told_by(place: Path, settings: dict[str, object]) -> str:
    with served(place, settings) as found:
        assert found.client("read").get("/api/v1/search", params={"q": "printer"}).status_code == 200
        for path in ("/healthz", "/readyz"):
            assert found.client().get(path).status_code == 200, "health checks have no key"
        return found.client("operator").get("/metrics").text


def rules() -> Iterator[dict[str, Any]]:
    for group in yaml.safe_load(text_of("prometheus/wikiholt-rules.yml"))["groups"]:
        yield from group["rules"]


def dashboard() -> dict[str, Any]:
    found = json.loads(text_of("grafana/wikiholt.json"))
    assert isinstance(found, dict)
    return found


def asks_for_what_there_is(expression: str, figures: dict[str, set[str]]) -> None:
    uses = metric_uses(expression)
    assert uses, expression
    for name, labels in uses:
        assert name in figures, f"the service has no {name}"
        assert labels <= figures[name] | {"job", "instance"}, f"{name} has no such label: {expression}"


def test_every_alert_asks_for_figures_that_the_service_has(figures: dict[str, set[str]]) -> None:
    for rule in rules():
        asks_for_what_there_is(rule["expr"], figures)
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert {"summary", "action"} == set(rule["annotations"]), rule["alert"]
    names = [rule["alert"] for rule in rules()]
    assert len(names) == len(set(names)) >= 10


def test_every_panel_asks_for_figures_that_the_service_has(figures: dict[str, set[str]]) -> None:
    expressions = [target["expr"] for panel in dashboard()["panels"] for target in panel.get("targets", ())]
    for expression in expressions:
        asks_for_what_there_is(expression, figures)
    assert len(expressions) > 20
    for variable in dashboard()["templating"]["list"][1:]:
        asks_for_what_there_is(variable["definition"], figures)


@pytest.mark.parametrize(
    "wrong", ["rate(wikiholt_requets_total[5m])", 'wikiholt_keeper_wikis{slug="a"}', "looks_total"]
)
def test_a_figure_that_the_service_does_not_have_is_noticed(wrong: str, figures: dict[str, set[str]]) -> None:
    with pytest.raises(AssertionError, match="has no"):
        asks_for_what_there_is(wrong, figures)


def test_panels_lie_beside_each_other_and_name_their_source() -> None:
    panels = dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for at in (panel["gridPos"] for panel in panels)
        for x in range(at["x"], at["x"] + at["w"])
        for y in range(at["y"], at["y"] + at["h"])
    ]
    assert len(cells) == len(set(cells)), "two panels lie upon each other"
    assert max(x for x, _ in cells) < 24
    variables = {variable["name"] for variable in dashboard()["templating"]["list"]}
    used = set(re.findall(r"\$\{?([a-z]\w*)", json.dumps(dashboard())))
    assert used == variables


def test_prometheus_asks_every_node_with_a_key_from_a_file() -> None:
    document = yaml.safe_load(text_of("prometheus/prometheus.yml"))
    (job,) = document["scrape_configs"]
    nodes = [name for name in yaml.safe_load(text_of("compose.yaml"))["services"] if name.startswith("node")]
    assert job["static_configs"] == [{"targets": [f"{name}:8765" for name in nodes]}]
    assert job["metrics_path"] == "/metrics"
    assert set(job["authorization"]) == {"credentials_file"}
    assert all((DEPLOY / "prometheus" / file).exists() for file in document["rule_files"])
    assert all(f'job="{job["job_name"]}"' in rule["expr"] for rule in rules())


@pytest.mark.skipif(shutil.which("promtool") is None, reason="there is no promtool")
def test_prometheus_itself_takes_the_rules() -> None:
    checked = ["promtool", "check", "rules", DEPLOY / "prometheus" / "wikiholt-rules.yml"]
    told = subprocess.run(checked, check=False, capture_output=True, text=True, timeout=60)
    assert told.returncode == 0, told.stderr
