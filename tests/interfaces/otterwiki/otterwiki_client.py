"""A client for the API of a running Otterwiki, with a key or a session."""

import json
import subprocess
from typing import Any

import httpx

from tests.interfaces.otterwiki.otterwiki_server import NO_KEEPALIVE, OtterwikiServer
from tests.support.paths import PYTHON_PATH
from tests.support.wait import TIMEOUT_S
from wikiholt.api.bootstrap import open_service
from wikiholt.domain.wiki import Scope

SHARED_KEY = "the-key-of-otterwiki-api"
HELPER_PATH = {"PYTHONPATH": PYTHON_PATH}
PRIVATE_SETTINGS = {
    "READ_ACCESS": "REGISTERED",
    "WRITE_ACCESS": "REGISTERED",
    "ATTACHMENT_ACCESS": "REGISTERED",
    "EMAIL_NEEDS_CONFIRMATION": False,
}
PAGES = {
    "home.md": "# Home\n\nSee [[Actors/Iran]].\n",
    "sea.md": "Boats and ships sail the sea. privatecanary\n",
    "actors/iran.md": "---\ntitle: Iran\ncategory: actor\ntags: [gulf, oil]\n---\n"
    "# Iran\n\nA country.\n\n## Past\n\nOld.\n",
}


class ApiClient:
    """Sends requests below /api/v1 with one kind of authentication."""

    def __init__(
        self, otter: OtterwikiServer, key: str | None = None, client: httpx.Client | None = None, **headers: str
    ) -> None:
        self.server = otter
        # Connections are not kept alive, so they need no closing.
        self.client = client or httpx.Client(base_url=otter.url, timeout=TIMEOUT_S, limits=NO_KEEPALIVE)
        self.headers = headers | ({"Authorization": f"Bearer {key}"} if key else {})

    def __call__(self, method: str, path: str, body: Any = None, **headers: str) -> httpx.Response:
        return self.client.request(method, f"/api/v1/{path}", json=body, headers=self.headers | headers)

    def get_json(self, path: str, **params: Any) -> Any:
        """The JSON of a GET that must succeed."""
        answer = self.client.get(f"/api/v1/{path}", params=params, headers=self.headers)
        assert answer.status_code == 200, (path, answer.status_code, answer.text, self.server.read_log()[-2000:])
        return answer.json()

    def make_csrf_header(self) -> dict[str, str]:
        """The CSRF header that a session needs for changes."""
        return {"X-CSRFToken": self.server.get_csrf_token(self.client)}


def create_registry_key(otter: OtterwikiServer, scope: Scope, slug: str | None = None) -> str:
    """Create a key of the wiki in its registry."""
    service = open_service(otter.data)
    try:
        wiki = service.registry.get(slug) if slug else service.list_wikis()[0]
        return service.registry.keys.create(wiki.id, scope, f"{scope} of {wiki.slug}")[1]
    finally:
        service.close()


def run_git(otter: OtterwikiServer, *arguments: str) -> str:
    command = ["git", "-c", "core.quotePath=false", "-C", str(otter.repository), *arguments]
    return subprocess.run(command, capture_output=True, check=True, text=True).stdout.strip()


def read_probe_events(otter: OtterwikiServer) -> list[dict[str, Any]]:
    """The hook calls of the other plugin since the last call of this function."""
    file = otter.place / "probe.jsonl"
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    file.unlink(missing_ok=True)
    return [json.loads(line) for line in lines]
