"""A real Otterwiki with the plugin in a separate process, used over HTTP like from a browser."""

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

import httpx

from tests.support.fork_server import OTTERWIKI_MODULES, ForkedPopen
from tests.support.git_repository import Repository
from tests.support.wait import TIMEOUT_S, wait_until
from wikiholt.api.bootstrap import open_service
from wikiholt.domain.search import SearchMode
from wikiholt.errors import WikiholtError
from wikiholt.search.request import SearchRequest
from wikiholt.wikis.service import WikiService

_CREATE_SCRIPT = (
    "from otterwiki.plugins import plugin_manager\nplugin_manager.unregister(name='wikiholt')\nimport otterwiki.server"
)
"""Creates database and first page before the workers start, which could otherwise block each other."""
ADMIN_LOGIN = ("otto@example.org", "holt-and-river")
NO_KEEPALIVE = httpx.Limits(max_keepalive_connections=0)
"""A client must not reuse a connection that the server closes at that moment; gunicorn does so after two seconds."""


class OtterwikiServer:
    """One running Otterwiki. `place` contains repository/, db.sqlite, settings.cfg, wiki.log and the data directory."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.repository = place / "repository"
        self.data = place / "wikiholt"
        self.url = ""
        self.client = httpx.Client()
        self._process: subprocess.Popen[bytes] | None = None
        self._service: WikiService | None = None

    @classmethod
    def start(
        cls,
        place: Path,
        kind: str = "dev",
        settings: Mapping[str, object] | None = None,
        data: Path | None = None,
        environ: Mapping[str, str] | None = None,
        pages: Mapping[str, str] | None = None,
        workers: int = 4,
        options: tuple[str, ...] = (),
        app: str = "otterwiki.server",
        python: str = sys.executable,
    ) -> Self:
        """Start a server and wait until it answers. `kind` is dev or gunicorn; `pages` (file → text) are committed."""
        otter = cls(place)
        place.mkdir(parents=True, exist_ok=True)
        if not otter.repository.exists():
            repository = Repository(otter.repository)
            if pages:
                repository.commit(dict(pages))
        if data is not None:
            otter.data = data
        otter.run_server(kind, settings or {}, environ or {}, workers, options, app, python)
        return otter

    def run_server(
        self,
        kind: str = "dev",
        settings: Mapping[str, object] | None = None,
        environ: Mapping[str, str] | None = None,
        workers: int = 4,
        options: tuple[str, ...] = (),
        app: str = "otterwiki.server",
        python: str = sys.executable,
    ) -> None:
        """Start the server if none runs, also again after `stop`."""
        # The open socket is passed on, because another process could take a port that is only looked up.
        listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        port, number = listener.getsockname()[1], listener.fileno()
        lines = {
            "REPOSITORY": str(self.repository),
            "SQLALCHEMY_DATABASE_URI": f"sqlite:///{self.place / 'db.sqlite'}",
            "SECRET_KEY": "a-secret-of-at-least-16-characters",
            "WIKIHOLT_DATA": str(self.data),
        } | dict(settings or {})
        (self.place / "settings.cfg").write_text("".join(f"{name} = {value!r}\n" for name, value in lines.items()))
        flask = [python, "-m", "flask", "run", "--port", str(port), "--no-reload"]
        gunicorn = [python, "-m", "gunicorn", "-w", str(workers), "-k", "gthread", "--threads", "4"]
        gunicorn += (
            ["--config", str(Path(__file__).with_name("gunicorn_config.py"))] if python == sys.executable else []
        )
        limits = ["--timeout", str(int(TIMEOUT_S)), "--graceful-timeout", "5"]
        gunicorn += ["--bind", f"fd://{number}", *limits, *options, f"{app}:app"]
        clean = {name: text for name, text in os.environ.items() if not name.startswith(("WIKIHOLT_", "OTTERWIKI_"))}
        surroundings = {"OTTERWIKI_SETTINGS": str(self.place / "settings.cfg"), "FLASK_APP": app} | dict(environ or {})
        handed = {"WERKZEUG_RUN_MAIN": "true", "WERKZEUG_SERVER_FD": str(number)} if kind == "dev" else {}
        start = subprocess.Popen if python != sys.executable else partial(ForkedPopen, modules=OTTERWIKI_MODULES)
        if kind != "dev" and not (self.place / "db.sqlite").exists():
            with start([python, "-c", _CREATE_SCRIPT], cwd=self.place, env=clean | surroundings) as creation:
                assert creation.wait(TIMEOUT_S) == 0
        with (self.place / "wiki.log").open("ab") as log:
            self._process = start(
                flask if kind == "dev" else gunicorn,
                cwd=self.place,
                env=clean | surroundings | handed,
                stdout=log,
                stderr=log,
                pass_fds=(number,),
            )
        listener.close()
        self.url = f"http://127.0.0.1:{port}"
        self.client = self.make_client()
        wait_until(self._is_up, lambda: f"the wiki does not answer:\n{self.read_log()}")

    def make_client(self, **headers: str) -> httpx.Client:
        """A client without a session."""
        return httpx.Client(base_url=self.url, timeout=TIMEOUT_S, limits=NO_KEEPALIVE, headers=headers)

    def _is_up(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self.read_log()
        try:
            return self.client.get("/-/healthz", timeout=2).status_code == 200
        except httpx.TransportError:
            return False

    def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        """Stop the server and return its exit code."""
        self.client.close()
        if self._service is not None:
            self._service.close()
            self._service = None
        if self._process is None:
            return 0
        self._process.send_signal(how)
        try:
            return self._process.wait(TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise AssertionError(f"the wiki does not end:\n{self.read_log()}") from None
        finally:
            self._process = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def get_worker_pids(self) -> list[int]:
        """The process ids of gunicorn's workers; empty under the development server."""
        booted = [int(pid) for pid in re.findall(r"Booting worker with pid: (\d+)", self.read_log())]
        return [pid for pid in booted if Path(f"/proc/{pid}").exists()]

    def read_log(self) -> str:
        return (self.place / "wiki.log").read_text(errors="replace")

    def get_csrf_token(self, client: httpx.Client | None = None) -> str:
        """The CSRF token for forms of this session."""
        match = re.search(r'name="?csrf-token"? content="?([^">\s]+)', (client or self.client).get("/-/about").text)
        assert match is not None, self.read_log()
        return match[1]

    def post_form(
        self, path: str, client: httpx.Client | None = None, files: Any = None, **fields: str
    ) -> httpx.Response:
        """Submit a form like a browser, with the CSRF token. Fails if the wiki rejects it."""
        session = client or self.client
        answer = session.post(path, data={**fields, "csrf_token": self.get_csrf_token(session)}, files=files)
        assert answer.status_code in (200, 302, 303), (answer.status_code, answer.text[:500], self.read_log()[-4000:])
        return answer

    def save_page(
        self, path: str, text: str, message: str = "Write", client: httpx.Client | None = None
    ) -> httpx.Response:
        return self.post_form(f"/{quote(path)}/save", client, content=text, commit=message)

    def delete_page(self, path: str, *, recursive: bool = False) -> httpx.Response:
        extra = {"recursive": "recursive"} if recursive else {}
        return self.post_form(f"/{quote(path)}/delete", message="Delete", **extra)

    def rename_page(self, path: str, new: str, *, backlinks: bool = True) -> httpx.Response:
        extra = {"update_backlinks": "on"} if backlinks else {}
        return self.post_form(f"/{quote(path)}/rename", new_pagename=new, message="Rename", **extra)

    def revert_commit(self, revision: str) -> httpx.Response:
        return self.post_form(f"/-/revert/{revision}", message="Revert")

    def upload_attachment(self, path: str, name: str, data: bytes) -> httpx.Response:
        return self.post_form(f"/{quote(path)}/attachments", files={"file": (name, data)}, message="Attach")

    def login(
        self, email: str = ADMIN_LOGIN[0], password: str = ADMIN_LOGIN[1], *, register: bool = True
    ) -> httpx.Client:
        """Return a new signed-in session. The first user who registers is the administrator."""
        session = self.make_client()
        if register:
            fields = {"email": email, "name": email.partition("@")[0].title()}
            self.post_form("/-/register", session, password1=password, password2=password, **fields)
        self.post_form("/-/login", session, email=email, password=password)
        return session

    def get_head(self) -> str:
        command = ["git", "-C", str(self.repository), "rev-parse", "HEAD"]
        return subprocess.run(command, capture_output=True, check=True, text=True).stdout.strip()

    def find_paths(self, query: str, mode: SearchMode = SearchMode.KEYWORD, slug: str | None = None) -> list[str]:
        """The paths that the index on disk gives for a query; empty while there is no index."""
        if self._service is None:
            self._service = open_service(self.data)
        try:
            wiki = slug or self._service.list_wikis()[0].slug
            return [
                hit.path for hit in self._service.get_handle(wiki).search(SearchRequest(query, n=50, mode=mode)).hits
            ]
        except (WikiholtError, IndexError):
            return []

    def list_head_files(self) -> dict[str, str]:
        """Every page file at HEAD with its blob id."""
        command = ["git", "-C", str(self.repository), "ls-tree", "-r", "-z", "HEAD"]
        lines = subprocess.run(command, capture_output=True, check=True, text=True).stdout.split("\0")
        entries = [line.partition("\t") for line in lines if line.endswith(".md")]
        return {file: meta.split()[2] for meta, _, file in entries}

    def list_indexed_files(self, slug: str | None = None) -> dict[str, str]:
        """Every page file in the index on disk with its blob id; empty while there is no index."""
        if self._service is None:
            self._service = open_service(self.data)
        try:
            wiki = self._service.registry.get(slug) if slug else self._service.list_wikis()[0]
            index = self._service.components.store.open(wiki.id)
        except (WikiholtError, IndexError):
            return {}
        try:
            return dict(index.get_page_blobs())
        finally:
            index.close()

    def wait_until_equal(self) -> dict[str, str]:
        """Wait until the index equals the tree at HEAD, blob for blob, and return it."""
        wait_until(
            lambda: self.list_indexed_files() == self.list_head_files(),
            lambda: (
                f"the index does not follow:\n{self.list_indexed_files()}\n{self.list_head_files()}\n{self.read_log()}"
            ),
        )
        return self.list_indexed_files()

    def wait_until_found(self, query: str, path: str, slug: str | None = None) -> None:
        wait_until(
            lambda: path in self.find_paths(query, slug=slug), lambda: f"{path} is not found:\n{self.read_log()}"
        )

    def wait_until_gone(self, query: str, path: str, slug: str | None = None) -> None:
        wait_until(lambda: path not in self.find_paths(query, slug=slug), lambda: f"{path} stays:\n{self.read_log()}")
