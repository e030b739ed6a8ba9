"""Servers on this machine's own address, for tests of remotes: git over HTTP, and others that behave badly."""

import os
import socketserver
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path

from tests.support.http_server import run_handler


@dataclass
class LocalServer:
    """A running HTTP server: where it is, and what it was asked."""

    port: int
    requested_paths: list[str] = field(default_factory=list)
    authorization: list[str | None] = field(default_factory=list)

    def get_url(self, path: str = "wiki", host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}/{path}"


RequestHandler = Callable[[BaseHTTPRequestHandler], None]


@contextmanager
def run_http_server(handler: RequestHandler) -> Iterator[LocalServer]:
    """Answer every request like this until the block is left."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.0"

        def do_GET(self) -> None:
            server.requested_paths.append(self.path)
            server.authorization.append(self.headers.get("Authorization"))
            with suppress(ConnectionError):  # a visitor that was ended does not listen any more
                handler(self)

        do_POST = do_GET  # noqa: N815

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    with run_handler(Handler) as port:
        server = LocalServer(port)
        yield server


def make_git_handler(root: Path, pause: Callable[[bytes], object] = lambda _: None) -> RequestHandler:
    """Serve the repositories below a directory as git's own CGI program does.

    `pause` is called with the content of each reply when a half of it has been sent.
    """
    program = Path(subprocess.check_output(["git", "--exec-path"], text=True).strip()) / "git-http-backend"

    def answer(request: BaseHTTPRequestHandler) -> None:
        path, _, query = request.path.partition("?")
        environment = {
            "PATH": os.environ["PATH"],
            "GIT_PROJECT_ROOT": str(root),
            "GIT_HTTP_EXPORT_ALL": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": "safe.directory",
            "GIT_CONFIG_VALUE_0": "*",
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "REQUEST_METHOD": request.command,
            "CONTENT_TYPE": request.headers.get("Content-Type", ""),
            "HTTP_CONTENT_ENCODING": request.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": request.headers.get("Git-Protocol", ""),
        }
        body = request.rfile.read(int(request.headers.get("Content-Length") or 0))
        done = subprocess.run([program], env=environment, input=body, capture_output=True, check=False)
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n") if ": " in line)
        request.send_response(int(fields.pop("Status", "200").split()[0]))
        for name, value in fields.items():
            request.send_header(name, value)
        request.end_headers()
        request.wfile.write(content[: len(content) // 2])
        pause(content)
        request.wfile.write(content[len(content) // 2 :])

    return answer


@contextmanager
def run_git_daemon(root: Path) -> Iterator[int]:
    """The port at which git's own daemon serves the repositories below a directory."""
    environment = os.environ | {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "safe.directory",
        "GIT_CONFIG_VALUE_0": "*",
    }

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            command = ["git", "daemon", "--inetd", "--export-all", f"--base-path={root}"]
            talk = self.request.fileno()
            subprocess.run(command, stdin=talk, stdout=talk, stderr=subprocess.DEVNULL, env=environment, check=False)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as daemon:
        thread = threading.Thread(target=daemon.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        yield daemon.server_address[1]
        daemon.shutdown()
        thread.join()


def make_redirect_handler(url: str) -> RequestHandler:
    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(302)
        request.send_header("Location", url + request.path)
        request.end_headers()

    return answer


def make_advertising_handler(then: Callable[[Callable[[bytes], object]], None]) -> RequestHandler:
    """Begin like a git server of protocol version 1, then continue as requested, with a function that sends."""

    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.send_header("Content-Type", "application/x-git-upload-pack-advertisement")
        request.end_headers()
        try:
            request.wfile.write(encode_packet(b"# service=git-upload-pack\n") + b"0000")
            then(request.wfile.write)
        except OSError:  # the visitor has had enough
            pass

    return answer


def encode_packet(line: bytes) -> bytes:
    return f"{len(line) + 4:04x}".encode() + line
