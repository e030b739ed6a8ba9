"""Keys, secrets of webhooks and passwords in URLs: all is done with them, and they are only where they belong."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest

from tests.support.git_repository import Repository
from tests.support.git_servers import make_git_handler
from tests.support.git_servers import run_http_server as git_serving
from tests.support.web_server import wait_until

pytestmark = pytest.mark.model

MAIN = [sys.executable, "-c", "from wikiholt.interfaces.cli.main import main; raise SystemExit(main())"]
WEBHOOK_SECRET = "canaryhooksecret7163"
PASSWORD = "canarypassword8254"
WRONG_KEY = "wh_aaaaaaaaaaaa_" + "canary" + "a" * 34
SETTINGS = ["log.level=debug", "remote.allow_private=true", "remote.schemes=http", "sync.interval=1"]


@dataclass
class SecretsFixture:
    """A data directory, and everything that was ever said about it."""

    data: Path
    outputs: dict[str, str] = field(default_factory=dict)
    tokens: list[str] = field(default_factory=list)

    def run_command(self, *arguments: str) -> str:
        """Run a command; what it says is kept under its words."""
        done = subprocess.run(
            [*self.get_command(), *arguments],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            env=make_environment(),
        )
        self.outputs[" ".join(arguments[:2]) + str(len(self.outputs))] = done.stderr + (
            "" if "create" in arguments else done.stdout
        )
        return done.stdout

    def get_command(self) -> list[str]:
        chosen = [part for setting in SETTINGS for part in ("--set", setting)]
        return [*MAIN, "--data", str(self.data), *chosen]

    def create_key(self, *arguments: str) -> str:
        token: str = json.loads(self.run_command("key", "create", *arguments, "--json"))["token"]
        self.tokens.append(token)
        return token

    def record_response(self, name: str, answer: httpx.Response) -> None:
        self.outputs[f"{name}{len(self.outputs)}"] = f"{answer.headers} {answer.text}"


def make_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("WIKIHOLT_")}


@contextmanager
def run_service(place: SecretsFixture, log: Path) -> Iterator[str]:
    with (
        log.open("w") as err,
        subprocess.Popen(
            [*place.get_command(), "serve", "--port", "0", "--json"],
            stdout=subprocess.PIPE,
            stderr=err,
            text=True,
            env=make_environment(),
        ) as process,
    ):
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())["listening"]
        finally:
            arguments = Path(f"/proc/{process.pid}/cmdline").read_text() if sys.platform == "linux" else ""
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
    place.outputs["service"] = log.read_text() + arguments


def request_everything(place: SecretsFixture, url: str, key: str, source: str) -> None:
    """Good requests and bad ones, each with secrets in it."""
    for token in (key, WRONG_KEY, WRONG_KEY + "x" * 300, f"{key}\t{key}", "é"):
        with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {token}".encode()}, timeout=60) as client:
            # A key in an address is a mistake people make; proxies log those, Wikiholt does not.
            for path in (
                "wikis",
                "wikis/far",
                "keys",
                "search?q=x",
                "status",
                "pages/none",
                "backups",
                f"x?{quote(token)}",
            ):
                place.record_response(path, client.get(f"w/far/api/v1/{path}"))
                place.record_response(path, client.get(f"api/v1/{path}"))
            place.record_response("metrics", client.get("metrics"))
            place.record_response("read", client.get("w/far/read", params={"page": "x"}))
            for settings in (
                {"webhook_secret": WEBHOOK_SECRET},
                {"webhook_secret": WEBHOOK_SECRET, "public": "perhaps"},
            ):
                place.record_response("set", client.patch("api/v1/wikis/far", json={"settings": settings}))
            for bad in (source, source + "?x", source.replace("http:", "ftp:"), source.replace("/wiki", "/none")):
                place.record_response("add", client.post("api/v1/wikis", json={"slug": "second", "source": bad}))
                place.record_response("remove", client.delete("api/v1/wikis/second"))
    signed = {"X-Gitlab-Token": WEBHOOK_SECRET}
    place.record_response("hook", httpx.post(f"{url}w/far/api/v1/webhook", headers=signed, content=b"{}"))
    place.record_response("hook", httpx.post(f"{url}w/none/api/v1/webhook", headers=signed, content=b"{}"))


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> SecretsFixture:
    """A service that has lived: a remote wiki with a password, keys, webhooks, backups, failures."""
    ground = tmp_path_factory.mktemp("secrets")
    place = SecretsFixture(ground / "data")
    repository = Repository(ground / "git" / "wiki")
    repository.commit({"Home.md": "# Home\n\nHello.\n"})
    with git_serving(make_git_handler(ground / "git")) as server:
        source = server.get_url("wiki/.git").replace("://", f"://reader:{PASSWORD}@")
        place.run_command("add", "far", source)
        place.run_command("set", "far", f"webhook_secret={WEBHOOK_SECRET}")
        place.run_command("set", "far", f"webhook_secret={WEBHOOK_SECRET}", "interval=never")
        key = place.create_key("--operator")
        place.create_key("far", "--scope", "write", "--label", "writer")
        for command in (["sync", "far"], ["status"], ["list", "--json"], ["key", "list", "--json"], ["doctor"]):
            place.run_command(*command)
        place.run_command("key", "revoke", place.tokens[-1])  # the token, where an id belongs
        with run_service(place, ground / "log") as url:
            far = {"Authorization": f"Bearer {key}"}
            wait_until(lambda: httpx.get(f"{url}w/far/api/v1/status", headers=far).json()["pages"] == 1)
            request_everything(place, url, key, source)
            place.record_response("reindex", httpx.post(f"{url}w/far/api/v1/reindex", headers=far))
            place.record_response("backup", httpx.post(f"{url}w/far/api/v1/backup", headers=far, timeout=60))
        assert any(header and "Basic" in header for header in server.authorization), "the password was used"
    # The server is gone: now every fetch fails.
    place.run_command("add", "gone", source)
    place.run_command("sync", "far")
    place.run_command("status", "far", "--json")
    with run_service(place, ground / "log2") as url:
        far = {"Authorization": f"Bearer {key}"}
        wait_until(lambda: httpx.get(f"{url}w/far/api/v1/status", headers=far).json()["error"] is not None, 60)
        place.record_response("status", httpx.get(f"{url}w/far/api/v1/status", headers=far))
    return place


def test_no_secret_is_in_what_was_logged_printed_or_answered(lived: SecretsFixture) -> None:
    assert len(lived.outputs) > 100
    secrets = [WEBHOOK_SECRET, PASSWORD, *(token.rpartition("_")[2] for token in lived.tokens)]
    told = {name: secret for name, text in lived.outputs.items() for secret in secrets if secret in text}
    assert told == {}
    assert not any("canary" + "a" * 34 in text for text in lived.outputs.values()), "nor one that somebody tried"


def test_secrets_lie_in_the_registry_alone_and_keys_nowhere(lived: SecretsFixture) -> None:
    holding = {secret: set() for secret in (WEBHOOK_SECRET, PASSWORD, *lived.tokens)}
    for file in (each for each in lived.data.rglob("*") if each.is_file()):
        content = file.read_bytes()
        for secret, places in holding.items():
            if secret.encode() in content or secret.rpartition("_")[2].encode() in content:
                places.add(file.relative_to(lived.data).as_posix().split("/2")[0].removesuffix("-wal"))
    assert all(holding[token] == set() for token in lived.tokens)
    assert holding[PASSWORD] == holding[WEBHOOK_SECRET] == {"registry.sqlite", "backups/registry"}


def test_what_holds_secrets_is_its_owners_alone(lived: SecretsFixture) -> None:
    open_to_others = [
        str(path.relative_to(lived.data))
        for path in (lived.data, *lived.data.iterdir(), *lived.data.glob("*/*"), *lived.data.glob("backups/registry/*"))
        if path.stat().st_mode & 0o077 and path.name not in ("wikis", "backups")
    ]
    assert open_to_others == []
    assert lived.data.stat().st_mode & 0o777 == 0o700
