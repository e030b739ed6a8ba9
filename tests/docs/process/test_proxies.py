"""nginx, HAProxy and Caddy with the files of deploy/ and TLS, on loopback, before a real service."""

import asyncio
import base64
import os
import re
import shutil
import ssl
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any

import httpx
import pytest
from starlette.responses import StreamingResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from tests.interfaces.mcp.mcp_client import call_tool, get_document
from tests.support.paths import ROOT
from tests.support.programs import find_free_port, run_program
from tests.support.served_application import ServedApplication, serve_application
from tests.support.uvicorn_server import run_server
from wikiholt.interfaces.cli.http_server import add_proxy_headers
from wikiholt.wikis.rate_limit import MAX_FAILURES_PER_MINUTE

DEPLOY = ROOT / "deploy"
DOMAIN = "wiki.example.org"
MEBIBYTE = 1024**2


@dataclass(frozen=True)
class Proxy:
    """A running proxy: its ports, the certificate it shows, and the service behind it."""

    https_port: int
    http_port: int
    certificate: Path
    served: ServedApplication
    node: str
    release: Event

    @contextmanager
    def open_client(
        self, key: str | None = None, *, host: str = DOMAIN, address: str = "127.0.0.1"
    ) -> Iterator["ProxyClient"]:
        headers = {"Host": host} | ({"Authorization": f"Bearer {self.served.tokens[key]}"} if key else {})
        context = ssl.create_default_context(cafile=self.certificate)
        transport = httpx.HTTPTransport(verify=context, local_address=address)
        base_url = f"https://127.0.0.1:{self.https_port}"
        with ProxyClient(base_url=base_url, headers=headers, transport=transport, timeout=60) as client:
            yield client


class ProxyClient(httpx.Client):
    """A client that expects the certificate of the host it names."""

    def send(self, request: httpx.Request, **options: Any) -> httpx.Response:
        request.extensions["sni_hostname"] = request.headers["Host"]
        return super().send(request, **options)


def stream_before(app: ASGIApp, release: Event) -> ASGIApp:
    """The service, with one more address that sends an event, waits for `release`, and sends another."""

    async def send_events() -> Any:
        yield "data: first\n\n"
        while not release.is_set():
            await asyncio.sleep(0.01)
        yield "data: second\n\n"

    async def choose(scope: Scope, receive: Receive, send: Send) -> None:
        if scope.get("path") == "/w/events/mcp":
            await StreamingResponse(send_events(), media_type="text/event-stream")(scope, receive, send)
        else:
            await app(scope, receive, send)

    return choose


def make_certificate(place: Path) -> Path:
    names = f"subjectAltName=DNS:localhost,DNS:{DOMAIN},DNS:*.{DOMAIN}"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    command += ["-subj", f"/CN={DOMAIN}", "-addext", names]
    files = ["-keyout", str(place / "tls.key"), "-out", str(place / "tls.crt")]
    subprocess.run([*command, *files], check=True, capture_output=True, timeout=120)
    return place / "tls.crt"


def write_nginx_file(place: Path, node: str, https_port: int, http_port: int) -> list[str]:
    text = (DEPLOY / "nginx.conf").read_text(encoding="utf-8")
    text = text.replace("/tmp/", f"{place}/").replace("/run/secrets", str(place))
    text = re.sub(r"server node\d:8765", f"server {node}", text).replace("/dev/stdout", f"{place}/access.log")
    text = text.replace("listen 8443", f"listen 127.0.0.1:{https_port}").replace(
        "listen 8080", f"listen 127.0.0.1:{http_port}"
    )
    text = text.replace("127.0.0.1:8081", f"127.0.0.1:{find_free_port()}")
    text = text.replace(f"*.{DOMAIN};", f"*.{DOMAIN} localhost;")
    if os.geteuid() == 0:  # a worker of another user cannot write to the directory of the test
        text = f"user root;\n{text}"
    (place / "nginx.conf").write_text(text)
    return ["nginx", "-c", str(place / "nginx.conf"), "-e", "stderr", "-g", "daemon off;"]


def write_caddy_file(place: Path, node: str, https_port: int, http_port: int) -> list[str]:
    text = (DEPLOY / "Caddyfile").read_text(encoding="utf-8")
    text = text.replace("127.0.0.1:8765", node).replace("/etc/caddy", str(place))
    text = text.replace(f"*.{DOMAIN} {{", f"*.{DOMAIN}, localhost {{")
    ports = f"https_port {https_port}\nhttp_port {http_port}"
    (place / "Caddyfile").write_text(f"{{\nadmin off\ndefault_bind 127.0.0.1\n{ports}\n}}\n{text}")
    return ["caddy", "run", "--config", str(place / "Caddyfile"), "--adapter", "caddyfile"]


def write_haproxy_file(place: Path, node: str, https_port: int, http_port: int) -> list[str]:
    text = (DEPLOY / "haproxy.cfg").read_text(encoding="utf-8").replace("/run/secrets", str(place))
    text = re.sub(r"node\d:8765", node, text)
    text = text.replace("bind :8443", f"bind 127.0.0.1:{https_port}").replace(
        "bind :8080", f"bind 127.0.0.1:{http_port}"
    )
    (place / "haproxy.cfg").write_text(text)
    (place / "tls.pem").write_bytes((place / "tls.crt").read_bytes() + (place / "tls.key").read_bytes())
    return ["haproxy", "-db", "-f", str(place / "haproxy.cfg")]


WRITERS = {"nginx": write_nginx_file, "haproxy": write_haproxy_file, "caddy": write_caddy_file}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ServedApplication, str, Event]]:
    release = Event()
    settings = {
        "serve.domain": DOMAIN,
        "serve.hosts": ("localhost",),
        "serve.trusted_proxies": ("127.0.0.1",),
        "people.proxy_user_header": "Remote-User",
        "people.proxy_groups_header": "Remote-Groups",
        "people.groups": ("*=alpha:read", "admins=operator"),
    }
    with (
        serve_application(tmp_path_factory.mktemp("service"), settings) as served,
        run_server(add_proxy_headers(stream_before(served.app, release), ["127.0.0.1"]), proxy_headers=False) as url,
    ):
        served.stop_refilling()
        yield served, url.removeprefix("http://"), release


@pytest.fixture(scope="module", params=WRITERS)
def proxy(
    request: pytest.FixtureRequest,
    service: tuple[ServedApplication, str, Event],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Proxy]:
    if shutil.which(request.param) is None:
        pytest.skip(f"there is no {request.param}")
    served, node, release = service
    place = tmp_path_factory.mktemp(request.param)
    certificate = make_certificate(place)
    ports = [find_free_port(), find_free_port()]
    command = WRITERS[request.param](place, node, *ports)
    with run_program(command, place, ports):
        release.clear()
        yield Proxy(*ports, certificate, served, node, release)


def test_hosts_and_paths_lead_to_their_wiki(proxy: Proxy) -> None:
    with proxy.open_client("read", host=f"alpha.{DOMAIN}") as client:
        found = client.get("/api/v1/search", params={"q": "worn out drum"})
        assert (found.status_code, found.json()["results"][0]["path"]) == (200, "Equipment/Printer")
        assert found.headers["Strict-Transport-Security"]
        assert "text/html" in client.get("/").headers["Content-Type"]
    with proxy.open_client("read") as client:
        by_path = client.get("/w/alpha/api/v1/search", params={"q": "worn out drum"})
        assert by_path.json()["results"] == found.json()["results"]
        assert [client.get(f"/w/{slug}/api/v1/status").status_code for slug in ("beta", "gamma")] == [403, 403]
    with proxy.open_client(host="other.example") as client, pytest.raises((httpx.ConnectError, httpx.ReadError)):
        client.get("/")


def test_plain_http_is_redirected(proxy: Proxy) -> None:
    answer = httpx.get(f"http://127.0.0.1:{proxy.http_port}/w/alpha/?q=drum", headers={"Host": DOMAIN}, timeout=60)
    assert answer.status_code == 308
    assert re.fullmatch(rf"https://{DOMAIN}(:\d+)?/w/alpha/\?q=drum", answer.headers["Location"])


def test_metrics_stay_inside(proxy: Proxy) -> None:
    with proxy.open_client("operator") as client:
        assert [client.get(path).status_code for path in ("/metrics", "/w/alpha/metrics")] == [404, 404]
        assert client.get("/healthz").status_code == client.get("/readyz").status_code == 200


def test_an_agent_searches(proxy: Proxy) -> None:
    url = f"https://localhost:{proxy.https_port}/w/alpha/mcp"
    document = get_document(call_tool(url, proxy.served.tokens["read"], "search", query="worn out drum"))
    assert "Equipment/Printer" in str(document)


def test_events_arrive_before_the_stream_ends(proxy: Proxy) -> None:
    with proxy.open_client() as client, client.stream("GET", "/w/events/mcp") as response:
        lines = (line for line in response.iter_lines() if line)
        assert next(lines) == "data: first"
        proxy.release.set()
        assert next(lines) == "data: second"


def test_large_bodies_pass_up_to_the_limit(proxy: Proxy) -> None:
    content = base64.b64encode(bytes(9 * MEBIBYTE)).decode()
    file = {"filename": f"{proxy.https_port}.bin", "content": content}
    with proxy.open_client("write") as client:
        assert client.post("/w/alpha/api/v1/pages/Coffee/attachments", json=file).status_code == 201
        try:
            code = client.post("/w/alpha/api/v1/pages/Coffee/attachments", content=bytes(17 * MEBIBYTE)).status_code
        except (httpx.NetworkError, httpx.RemoteProtocolError):  # the proxy closes before it has read everything
            code = 413
    assert code == 413


def test_visitors_keep_their_address_and_cannot_choose_another(proxy: Proxy) -> None:
    def send_wrong_key(client: httpx.Client, number: int) -> int:
        headers = {"Authorization": f"Bearer wrong-{number}", "X-Forwarded-For": f"203.0.113.{number}"}
        return client.get("/w/alpha/api/v1/status", headers=headers).status_code

    network = f"127.0.{proxy.https_port % 250}"
    with proxy.open_client(address=f"{network}.2") as client:
        codes = [send_wrong_key(client, number) for number in range(MAX_FAILURES_PER_MINUTE + 10)]
    assert (codes[0], codes[-1]) == (401, 429)
    with proxy.open_client(address=f"{network}.3") as client:
        assert send_wrong_key(client, 1) == 401


def test_visitors_cannot_name_themselves(proxy: Proxy) -> None:
    headers = {"Remote-User": "mallory", "Remote-Groups": "admins"}
    behind = httpx.get(f"http://{proxy.node}/w/alpha/api/v1/status", headers=headers, timeout=60)
    assert behind.status_code == 200, "the service trusts its proxy"
    with proxy.open_client() as client:
        assert client.get("/w/alpha/api/v1/status", headers=headers).status_code == 401


class NamedNode(BaseHTTPRequestHandler):
    """A node that answers with its port."""

    def do_GET(self) -> None:
        body = str(self.server.server_port).encode()  # type: ignore[attr-defined]
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def run_named_nodes(count: int) -> Iterator[list[ThreadingHTTPServer]]:
    with ExitStack() as stack:
        nodes = [stack.enter_context(ThreadingHTTPServer(("127.0.0.1", 0), NamedNode)) for _ in range(count)]
        for node in nodes:
            Thread(target=node.serve_forever, daemon=True).start()
            stack.callback(node.shutdown)
        yield nodes


@pytest.mark.parametrize("name", ["nginx", "haproxy"])
def test_the_requests_for_a_wiki_go_to_one_node_and_to_another_while_it_is_down(name: str, tmp_path: Path) -> None:
    if shutil.which(name) is None:
        pytest.skip(f"there is no {name}")
    certificate, ports = make_certificate(tmp_path), [find_free_port(), find_free_port()]
    with run_named_nodes(3) as nodes, ExitStack() as stack:
        command = WRITERS[name](tmp_path, "NODE", *ports)
        file = next(file for file in tmp_path.iterdir() if name in file.name)
        first, second, third = (f"127.0.0.1:{node.server_port}" for node in nodes)
        lines = file.read_text().replace("NODE", first, 1).replace("NODE", second, 1).splitlines()
        position = next(number for number, line in enumerate(lines) if second in line)
        # A third node, as an operator adds it.
        lines.insert(position + 1, lines[position].replace(second, third).replace("node2", "node3"))
        file.write_text("\n".join([*lines, ""]))
        stack.enter_context(run_program(command, tmp_path, ports))
        context = ssl.create_default_context(cafile=certificate)
        client = stack.enter_context(ProxyClient(base_url=f"https://127.0.0.1:{ports[0]}", verify=context, timeout=60))

        def ask(path: str, host: str = DOMAIN, **headers: str) -> str:
            answer = client.get(path, headers={"Host": host} | headers)
            assert answer.status_code == 200, answer.text
            return answer.text

        slugs = [f"wiki-{number}" for number in range(60)]
        owners = {slug: ask(f"/w/{slug}/api/v1/search?q=a") for slug in slugs}
        shares = Counter(owners.values())
        assert len(shares) == 3
        assert min(shares.values()) >= 8, "each node has its share"
        for slug in slugs:
            assert ask("/api/v1/search?q=b", f"{slug}.{DOMAIN}") == ask(f"/w/{slug}/mcp") == owners[slug]
        for number in range(20):
            key = {"Authorization": f"Bearer wh_{number}"}
            assert len({ask(path, **key) for path in ("/api/v1/search?q=a", "/api/v1/pages", "/mcp")}) == 1
        down = nodes[0]
        down.shutdown()
        down.server_close()
        after = {slug: ask(f"/w/{slug}/api/v1/search?q=c") for slug in slugs}
        moved = {slug for slug in slugs if after[slug] != owners[slug]}
        assert moved == {slug for slug in slugs if owners[slug] == str(down.server_port)}
        assert len({after[slug] for slug in moved}) == 2, "what it did is shared by the others"
