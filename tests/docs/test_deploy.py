"""Checks the files of deploy/ against each other and against the service, without running them."""

import re
import shlex
import shutil
import subprocess
import tomllib
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docs.deploy_files import (
    find_image_faults,
    list_requirements,
    parse_hashes,
    parse_nginx,
    parse_unit,
)
from tests.support.paths import ROOT
from wikiholt import __version__
from wikiholt.api.settings.settings_loader import load_settings
from wikiholt.interfaces.cli import http_server
from wikiholt.interfaces.cli.parser import parse_arguments

DEPLOY = ROOT / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
PORT = 8765


def read_text(name: str) -> str:
    return (DEPLOY / name).read_text(encoding="utf-8")


def load_compose(name: str = "compose.yaml") -> dict[str, Any]:
    document = yaml.safe_load(read_text(name))
    assert isinstance(document, dict)
    return document


def check_variables(variables: dict[str, str]) -> None:
    """Load the variables like the service; an unknown name or an invalid value is an error."""
    ours = {name: value for name, value in variables.items() if name.startswith("WIKIHOLT_")}
    assert ours
    config = DEPLOY / "wikiholt.toml" if ours.pop("WIKIHOLT_CONFIG", None) else None
    load_settings(config=config, environ=ours)


# ── systemd ──────────────────────────────────────────────────────────────────────────────────────

units = pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)


@units
def test_a_unit_starts_the_service_with_settings_that_exist(path: Path) -> None:
    unit = parse_unit(path.read_text(encoding="utf-8"))
    assert parse_arguments(shlex.split(unit.get_one("ExecStart"))[1:]).command == "serve"
    variables = unit.get_environment("8765")
    check_variables(variables)
    assert variables["WIKIHOLT_DATA"] == f"/state/{unit.get_one('StateDirectory')}".replace("%i", "8765")
    assert ("WIKIHOLT_CONFIG" in variables) == ("@" in path.name)
    patience = http_server._SHUTDOWN_TIMEOUT_S + http_server.STOP_TIMEOUT_S
    assert float(unit.get_one("TimeoutStopSec")) > patience, "a clean shutdown is not killed"


@units
def test_a_unit_restricts_the_service_to_what_it_needs(path: Path) -> None:
    unit = parse_unit(path.read_text(encoding="utf-8"))
    assert unit.get_one("User") == "wikiholt"
    assert unit.get_one("ProtectSystem") == "strict"
    assert unit.get_one("CapabilityBoundingSet") == unit.get_one("AmbientCapabilities") == ""
    assert unit.get_all("SystemCallFilter") == ["@system-service", "~@privileged"]
    names = {name for name, value in unit.lines if value == "yes"}
    assert names >= {"NoNewPrivileges", "ProtectHome", "PrivateTmp", "PrivateDevices", "MemoryDenyWriteExecute"}


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze")
@units
def test_systemd_finds_nothing_wrong_with_a_unit(path: Path, tmp_path: Path) -> None:
    copy = tmp_path / path.name
    text = path.read_text(encoding="utf-8")
    copy.write_text(text.replace("/usr/local/lib/wikiholt/bin/wikiholt", shutil.which("true") or ""))
    verified = subprocess.run(
        ["systemd-analyze", "verify", copy], check=False, capture_output=True, text=True, timeout=120
    )
    assert (verified.returncode, verified.stderr) == (0, "")
    looked = ["systemd-analyze", "security", "--offline=true", "--threshold=20", copy]
    assert not subprocess.run(looked, check=False, capture_output=True, timeout=120).returncode, "exposed above 2.0"


# ── containers ───────────────────────────────────────────────────────────────────────────────────


def test_the_image_is_pinned_and_runs_without_root() -> None:
    assert find_image_faults(read_text("Containerfile")) == []
    assert f"wikiholt:{__version__} " in read_text("Containerfile")
    assert f"EXPOSE {PORT}" in read_text("Containerfile")


def test_the_image_contains_the_locked_requirements_of_the_extras() -> None:
    ours, all_ = (
        parse_hashes(read_text("requirements.lock")),
        parse_hashes((ROOT / "requirements.lock").read_text(encoding="utf-8")),
    )
    assert ours.items() <= all_.items(), "run `make lock`"
    assert list_requirements("wikiholt", {"postgres", "mcp"}) <= {name for name, _ in ours}
    assert not {"pytest", "chromadb", "playwright"} & {name for name, _ in ours}


@pytest.mark.parametrize("file", ["compose.yaml", "compose-one.yaml"])
def test_every_container_is_restricted(file: str) -> None:
    document = load_compose(file)
    for name, service in document["services"].items():
        image, _, tag = service["image"].rpartition(":")
        assert image, name
        assert re.match(r"\d+\.\d+\.\d+", tag), f"the image of {name} is not pinned"
        user = service["user"].partition(":")[0]
        assert user.isdecimal(), name
        assert int(user) > 0, name
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service["healthcheck"]["test"][0] == "CMD", name
        assert "privileged" not in service
        assert "network_mode" not in service


def test_the_database_is_on_an_internal_network() -> None:
    document = load_compose()
    assert document["services"]["database"]["networks"] == ["back"]
    assert document["networks"]["back"] == {"internal": True}
    assert "ports" not in document["services"]["database"]


def test_one_container_serves_the_mounted_wikis_to_this_machine_only() -> None:
    (container,) = load_compose("compose-one.yaml")["services"].values()
    node = load_compose()["services"]["node1"]
    same = ("image", "build", "user", "tmpfs", "stop_grace_period", "healthcheck")
    assert {name: container[name] for name in same} == {name: node[name] for name in same}
    data, wikis = container["volumes"]
    assert data == "data:/data"
    assert wikis.endswith(f":{parse_arguments(container['command']).directories[0]}:ro")
    assert container["ports"] == [f"127.0.0.1:{PORT}:{PORT}"]


def test_secrets_come_from_files_outside_git() -> None:
    document = load_compose()
    used = {secret for service in document["services"].values() for secret in service.get("secrets", ())}
    assert used == set(document["secrets"])
    for name, secret in document["secrets"].items():
        assert secret["file"] == f"./secrets/{name}"
    assert "/deploy/secrets/" in (ROOT / ".gitignore").read_text().split()
    for service in document["services"].values():
        for name, value in service.get("environment", {}).items():
            assert not re.search("PASSWORD|TOKEN|SECRET|KEY", name) or value.startswith("/run/secrets/"), name


def test_nodes_of_compose_have_settings_that_exist_and_know_their_proxy() -> None:
    document = load_compose()
    services, subnet = document["services"], document["networks"]["front"]["ipam"]["config"][0]["subnet"]
    addresses = {name: services[name]["networks"]["front"]["ipv4_address"] for name in ("node1", "node2", "proxy")}
    assert len(set(addresses.values())) == 3
    assert all(ip_address(address) in ip_network(subnet) for address in addresses.values())
    for name in ("node1", "node2"):
        node = services[name]
        check_variables(node["environment"])
        assert node["environment"]["WIKIHOLT_SERVE_TRUSTED_PROXIES"] == addresses["proxy"]
        assert node["environment"]["WIKIHOLT_CONFIG"].removeprefix("/run/secrets/") in node["secrets"]
        assert node["image"] == f"wikiholt:{__version__}"
        assert (DEPLOY / node["build"]["context"] / node["build"]["dockerfile"]).samefile(DEPLOY / "Containerfile")
        assert f"USER {node['user']}" in read_text("Containerfile")
        assert node["volumes"] == [f"{name}:/data"]
        assert (
            int(node["stop_grace_period"].removesuffix("s"))
            > http_server._SHUTDOWN_TIMEOUT_S + http_server.STOP_TIMEOUT_S
        )


def test_the_settings_of_a_node_point_to_the_database_of_compose() -> None:
    settings = tomllib.loads(read_text("wikiholt.toml"))
    database = load_compose()["services"]["database"]["environment"]
    where = f"@database/{database['POSTGRES_DB']}"
    assert settings["store"] == f"postgresql://{database['POSTGRES_USER']}:PASSWORD{where}"
    assert load_settings(config=DEPLOY / "wikiholt.toml").store == settings["store"]


# ── nginx ────────────────────────────────────────────────────────────────────────────────────────


def test_nginx_forwards_to_the_nodes_with_trusted_headers() -> None:
    tree = parse_nginx(read_text("nginx.conf"))
    http = tree.get_block("http")
    nodes = [line[1] for line in http.get_block("upstream wikiholt").get_lines("server")]
    assert nodes == [f"{name}:{PORT}" for name in load_compose()["services"] if name.startswith("node")]
    sent = {line[1]: line[2] for line in http.get_lines("proxy_set_header")}
    assert sent["Host"] == "$host"
    assert sent["X-Forwarded-For"] == "$remote_addr", "the header of the client is replaced"
    assert sent["X-Forwarded-Proto"] == "$scheme"
    inner = [place for server in http.get_blocks("server") for _, place in server.inner]
    assert not any(place.get_lines("proxy_set_header") for place in inner), (
        "one in an inner block would remove the outer ones"
    )
    (size,) = http.get_lines("client_max_body_size")
    assert int(size[1].removesuffix("m")) * 1024**2 == load_settings().limit_body_bytes
    (caddy_size,) = re.findall(r"max_size (\d+)MiB", read_text("Caddyfile"))
    assert caddy_size == size[1].removesuffix("m")
    assert "$request " not in read_text("nginx.conf"), "queries are not logged"
    assert "$args" not in read_text("nginx.conf")


def test_nginx_answers_for_the_domain_and_on_the_ports_that_are_published() -> None:
    http = parse_nginx(read_text("nginx.conf")).get_block("http")
    domain = tomllib.loads(read_text("wikiholt.toml"))["serve"]["domain"]
    names = {
        name for server in http.get_blocks("server") for line in server.get_lines("server_name") for name in line[1:]
    }
    assert names == {domain, f"*.{domain}"}
    proxy = load_compose()["services"]["proxy"]
    published = {port.split(":")[2] for port in proxy["ports"]}
    listened = {line[1] for server in http.get_blocks("server") for line in server.get_lines("listen")}
    assert {port for port in listened if ":" not in port} == published
    (health_address,) = re.findall(r"http://([\d.:]+)/healthz", str(proxy["healthcheck"]["test"]))
    assert health_address in listened
    files = {
        line[1] for server in http.get_blocks("server") for line in server.entries if line[0].startswith("ssl_cert")
    }
    assert files == {f"/run/secrets/{secret}" for secret in proxy["secrets"]}


@pytest.mark.skipif(shutil.which("nginx") is None, reason="there is no nginx")
def test_nginx_accepts_the_file(tmp_path: Path) -> None:
    key, certificate = tmp_path / "tls.key", tmp_path / "tls.crt"
    openssl = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=wiki.example.org"]
    subprocess.run([*openssl, "-keyout", key, "-out", certificate], check=True, capture_output=True, timeout=120)
    text = re.sub(r"server node\d:", "server 127.0.0.1:", read_text("nginx.conf"))
    text = text.replace("/tmp/", f"{tmp_path}/").replace("/run/secrets", str(tmp_path))
    (tmp_path / "nginx.conf").write_text(text)
    tried = subprocess.run(
        ["nginx", "-t", "-c", tmp_path / "nginx.conf"], check=False, capture_output=True, text=True, timeout=120
    )
    assert tried.returncode == 0, tried.stderr


# ── the manual ───────────────────────────────────────────────────────────────────────────────────


def test_the_manual_mentions_every_file() -> None:
    manual = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")
    for file in (path for path in DEPLOY.rglob("*") if path.is_file() and "secrets" not in path.parts):
        assert f"(../deploy/{file.relative_to(DEPLOY)})" in manual, f"docs/deploy.md does not speak of {file.name}"


def test_ports_in_the_manual_are_those_of_the_service() -> None:
    assert load_settings().serve_port == PORT
    assert f"wikiholt@{PORT}" in (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")
