"""Two wikis behind the real application, with keys of every kind."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from fastapi import FastAPI
from fastapi.testclient import TestClient

from tests.support.git_repository import Repository
from tests.support.wait import TIMEOUT_S, wait_until
from wikiholt.api.bootstrap import Application, build_service, open_application
from wikiholt.api.settings.settings_loader import load_settings
from wikiholt.domain.wiki import Scope
from wikiholt.interfaces.http.app import create_app
from wikiholt.testing import FakeEmbedder

ALPHA = {
    "Home.md": "# Home\n\nWelcome. The [printer](Equipment/Printer.md) and [[Coffee]] are upstairs.\n",
    "Equipment/Printer.md": "---\ntitle: Printer\ncategory: Equipment\ntags: [paper, repair]\n---\n"
    "# Printer\n\nA jam is behind the rear flap.\n\n## Drum\n\nError 0x6100 means that the drum is worn out.\n",
    "Coffee.md": "---\ntags: [kitchen]\n---\n# Coffee\n\nDescale the machine every month. alphacanary\n",
}
BETA = {"Home.md": "# Beta\n\nbetacanary lives here, far from any printer.\n"}
_FAST_EMBEDDER = FakeEmbedder()
UNLIMITED = {"limit.key_per_minute": 0, "limit.address_per_minute": 0}
DEFAULT_SETTINGS = {
    **UNLIMITED,
    "sync.interval": 3600.0,
    "backup.interval": 0.0,
    "check.interval": 0.0,
    "search.fresh_timeout": TIMEOUT_S,
    "lock.timeout": TIMEOUT_S,
}


@dataclass
class ServedApplication:
    """The application, its repositories and its tokens by name."""

    application: Application
    app: FastAPI
    alpha: Repository
    beta: Repository
    tokens: dict[str, str] = field(default_factory=dict)

    def make_client(self, key: str | None = None, host: str = "127.0.0.1", **options: object) -> TestClient:
        headers = {"Authorization": f"Bearer {self.tokens[key]}"} if key else {}
        return TestClient(self.app, base_url=f"http://{host}", headers=headers, **options)  # type: ignore[arg-type]

    def stop_refilling(self) -> None:
        """Stop the clock of the rate limits, so that no bucket gets a token while a test runs."""
        now = time.monotonic()
        self.application.rate_limiter._keys._table._clock = lambda: now

    def make_keys(self) -> None:
        registry = self.application.service.registry
        for scope in Scope:
            _, token = registry.keys.create(registry.get("alpha").id, scope, f"alpha {scope}")
            self.tokens[str(scope)] = token
        _, self.tokens["other"] = registry.keys.create(registry.get("beta").id, Scope.ADMIN, "beta's")
        _, self.tokens["operator"] = registry.keys.create(None, Scope.ADMIN, "operator")


@contextmanager
def serve_application(
    place: Path,
    settings: Mapping[str, object] | None = None,
    *,
    keys: bool = True,
    embedder: FakeEmbedder | None = _FAST_EMBEDDER,
) -> Iterator[ServedApplication]:
    """Serve alpha and beta, indexed, with a running scheduler. Rate limits are off by default, the model is fake."""
    alpha, beta = Repository(place / "alpha"), Repository(place / "beta")
    alpha.commit(dict(ALPHA))
    beta.commit(dict(BETA))
    chosen = load_settings(place / "data", overrides={**DEFAULT_SETTINGS, **(settings or {})})
    service = build_service(chosen)
    if embedder is not None:
        service.components = replace(service.components, embedder=lambda: embedder, identity=None)
    application = open_application(chosen, service=service)
    for repository in (alpha, beta):
        slug = repository.path.name
        service.add(slug, str(repository.path), {})
        service.get_handle(slug).sync()
    served = ServedApplication(application, create_app(application), alpha, beta)
    if keys:
        served.make_keys()
    application.scheduler.start()
    try:
        # Otherwise the first checks may index what a test commits and expects to be missing in the index.
        wait_until(lambda: application.scheduler.get_progress().synced == 2, "the first checks of the scheduler")
        yield served
    finally:
        assert application.scheduler.stop(TIMEOUT_S)
        service.close()
