"""Keys, webhook secrets and passwords in URLs: they are used in every way and stored only in the registry."""

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

from tests.support.fork_server import run_forked
from tests.support.git_repository import Repository
from tests.support.git_servers import make_git_handler, run_http_server
from tests.support.wait import wait_until

pytestmark = pytest.mark.model

MAIN = [sys.executable, "-c", "from wikiholt.interfaces.cli.main import main; raise SystemExit(main())"]
WEBHOOK_SECRET = "canaryhooksecret7163"
PASSWORD = "canarypassword8254"
WRONG_KEY = "wh_aaaaaaaaaaaa_" + "canary" + "a" * 34
SETTINGS = ["log.level=debug", "remote.allow_private=true", "remote.schemes=http", "sync.interval=1"]


@dataclass
class SecretsFixture:
    """A data directory, and all output about it."""

    data: Path
    outputs: dict[str, str] = field(default_factory=dict)
    tokens: list[str] = field(default_factory=list)

    def run_command(self, *arguments: str) -> str:
        """Run a command and record its output."""
        command = [*self.get_command(), *arguments]
        done = run_forked(command, text=True, timeout=120, check=False, env=make_environment())
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
def run_service(fixture: SecretsFixture, log: Path) -> Iterator[str]:
    with (
        log.open("w") as err,
        subprocess.Popen(
            [*fixture.get_command(), "serve", "--port", "0", "--json"],
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
    fixture.outputs["service"] = log.read_text() + arguments


def get_status(url: str, key: str) -> httpx.Response:
    return httpx.get(f"{url}w/far/api/v1/status", headers={"Authorization": f"Bearer {key}"}, timeout=60)


def request_everything(fixture: SecretsFixture, url: str, key: str, source: str) -> None:
    """Send valid and invalid requests that contain secrets."""
    for token in (key, WRONG_KEY, WRONG_KEY + "x" * 300, f"{key}\t{key}", "é"):
        with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {token}".encode()}, timeout=60) as client:
            # A key in a URL is a common mistake. Proxies log it, Wikiholt does not.
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
                fixture.record_response(path, client.get(f"w/far/api/v1/{path}"))
                fixture.record_response(path, client.get(f"api/v1/{path}"))
            fixture.record_response("metrics", client.get("metrics"))
            fixture.record_response("read", client.get("w/far/read", params={"page": "x"}))
            for settings in (
                {"webhook_secret": WEBHOOK_SECRET},
                {"webhook_secret": WEBHOOK_SECRET, "public": "perhaps"},
            ):
                fixture.record_response("set", client.patch("api/v1/wikis/far", json={"settings": settings}))
            for bad in (source, source + "?x", source.replace("http:", "ftp:"), source.replace("/wiki", "/none")):
                fixture.record_response("add", client.post("api/v1/wikis", json={"slug": "second", "source": bad}))
                fixture.record_response("remove", client.delete("api/v1/wikis/second"))
    signed = {"X-Gitlab-Token": WEBHOOK_SECRET}
    fixture.record_response("hook", httpx.post(f"{url}w/far/api/v1/webhook", headers=signed, content=b"{}", timeout=60))
    fixture.record_response(
        "hook", httpx.post(f"{url}w/none/api/v1/webhook", headers=signed, content=b"{}", timeout=60)
    )


@pytest.fixture(scope="module")
def used_service(tmp_path_factory: pytest.TempPathFactory) -> SecretsFixture:
    """A used service: a remote wiki with a password, keys, webhooks, backups, failures."""
    directory = tmp_path_factory.mktemp("secrets")
    fixture = SecretsFixture(directory / "data")
    repository = Repository(directory / "git" / "wiki")
    repository.commit({"Home.md": "# Home\n\nHello.\n"})
    with run_http_server(make_git_handler(directory / "git")) as server:
        source = server.get_url("wiki/.git").replace("://", f"://reader:{PASSWORD}@")
        fixture.run_command("add", "far", source)
        fixture.run_command("set", "far", f"webhook_secret={WEBHOOK_SECRET}")
        fixture.run_command("set", "far", f"webhook_secret={WEBHOOK_SECRET}", "interval=never")
        key = fixture.create_key("--operator")
        fixture.create_key("far", "--scope", "write", "--label", "writer")
        for command in (["sync", "far"], ["status"], ["list", "--json"], ["key", "list", "--json"], ["doctor"]):
            fixture.run_command(*command)
        fixture.run_command("key", "revoke", fixture.tokens[-1])  # the token instead of the id
        with run_service(fixture, directory / "log") as url:
            far = {"Authorization": f"Bearer {key}"}
            wait_until(lambda: get_status(url, key).json()["pages"] == 1)
            request_everything(fixture, url, key, source)
            fixture.record_response("reindex", httpx.post(f"{url}w/far/api/v1/reindex", headers=far, timeout=60))
            fixture.record_response("backup", httpx.post(f"{url}w/far/api/v1/backup", headers=far, timeout=60))
        assert any(header and "Basic" in header for header in server.authorization), "the password was used"
    # The server is stopped: every fetch fails.
    fixture.run_command("add", "gone", source)
    fixture.run_command("sync", "far")
    fixture.run_command("status", "far", "--json")
    with run_service(fixture, directory / "log2") as url:
        wait_until(lambda: get_status(url, key).json()["error"] is not None)
        fixture.record_response("status", get_status(url, key))
    return fixture


def test_no_secret_is_in_logs_output_or_responses(used_service: SecretsFixture) -> None:
    assert len(used_service.outputs) > 100
    secrets = [WEBHOOK_SECRET, PASSWORD, *(token.rpartition("_")[2] for token in used_service.tokens)]
    leaked = {name: secret for name, text in used_service.outputs.items() for secret in secrets if secret in text}
    assert leaked == {}
    assert not any("canary" + "a" * 34 in text for text in used_service.outputs.values()), (
        "a wrong key is in the output"
    )


def test_secrets_are_stored_only_in_the_registry_and_keys_nowhere(used_service: SecretsFixture) -> None:
    files_with = {secret: set() for secret in (WEBHOOK_SECRET, PASSWORD, *used_service.tokens)}
    for file in (path for path in used_service.data.rglob("*") if path.is_file()):
        content = file.read_bytes()
        for secret, places in files_with.items():
            if secret.encode() in content or secret.rpartition("_")[2].encode() in content:
                places.add(file.relative_to(used_service.data).as_posix().split("/2")[0].removesuffix("-wal"))
    assert all(files_with[token] == set() for token in used_service.tokens)
    assert files_with[PASSWORD] == files_with[WEBHOOK_SECRET] == {"registry.sqlite", "backups/registry"}


def test_files_with_secrets_are_readable_only_by_their_owner(used_service: SecretsFixture) -> None:
    open_to_others = [
        str(path.relative_to(used_service.data))
        for path in (
            used_service.data,
            *used_service.data.iterdir(),
            *used_service.data.glob("*/*"),
            *used_service.data.glob("backups/registry/*"),
        )
        if path.stat().st_mode & 0o077 and path.name not in ("wikis", "backups")
    ]
    assert open_to_others == []
    assert used_service.data.stat().st_mode & 0o777 == 0o700
