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
from git_repository import Repository
from servers import git_backend
from servers import serving as git_serving
from web_server import until

pytestmark = pytest.mark.real_model

MAIN = [sys.executable, "-c", "from wikiholt.surfaces.cli.main import main; raise SystemExit(main())"]
HOOK = "canaryhooksecret7163"
PASSWORD = "canarypassword8254"
WRONG = "wh_aaaaaaaaaaaa_" + "canary" + "a" * 34
SETTINGS = ["log.level=debug", "remote.allow_private=true", "remote.schemes=http", "sync.interval=1"]


@dataclass
class Place:
    """A data directory, and everything that was ever said about it."""

    data: Path
    said: dict[str, str] = field(default_factory=dict)
    tokens: list[str] = field(default_factory=list)

    def run(self, *arguments: str) -> str:
        """Run a command; what it says is kept under its words."""
        done = subprocess.run(
            [*self.command(), *arguments], capture_output=True, text=True, timeout=120, check=False, env=environment()
        )
        self.said[" ".join(arguments[:2]) + str(len(self.said))] = done.stderr + (
            "" if "create" in arguments else done.stdout
        )
        return done.stdout

    def command(self) -> list[str]:
        chosen = [part for setting in SETTINGS for part in ("--set", setting)]
        return [*MAIN, "--data", str(self.data), *chosen]

    def key(self, *arguments: str) -> str:
        token: str = json.loads(self.run("key", "create", *arguments, "--json"))["token"]
        self.tokens.append(token)
        return token

    def heard(self, name: str, answer: httpx.Response) -> None:
        self.said[f"{name}{len(self.said)}"] = f"{answer.headers} {answer.text}"


def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("WIKIHOLT_")}


@contextmanager
def service(place: Place, log: Path) -> Iterator[str]:
    with (
        log.open("w") as err,
        subprocess.Popen(
            [*place.command(), "serve", "--port", "0", "--json"],
            stdout=subprocess.PIPE,
            stderr=err,
            text=True,
            env=environment(),
        ) as process,
    ):
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())["listening"]
        finally:
            arguments = Path(f"/proc/{process.pid}/cmdline").read_text() if sys.platform == "linux" else ""
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
    place.said["service"] = log.read_text() + arguments


def ask_for_everything(place: Place, url: str, key: str, source: str) -> None:
    """Good requests and bad ones, each with secrets in it."""
    for token in (key, WRONG, WRONG + "x" * 300, f"{key}\t{key}", "é"):
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
                place.heard(path, client.get(f"w/far/api/v1/{path}"))
                place.heard(path, client.get(f"api/v1/{path}"))
            place.heard("metrics", client.get("metrics"))
            place.heard("read", client.get("w/far/read", params={"page": "x"}))
            for settings in ({"webhook_secret": HOOK}, {"webhook_secret": HOOK, "public": "perhaps"}):
                place.heard("set", client.patch("api/v1/wikis/far", json={"settings": settings}))
            for bad in (source, source + "?x", source.replace("http:", "ftp:"), source.replace("/wiki", "/none")):
                place.heard("add", client.post("api/v1/wikis", json={"slug": "second", "source": bad}))
                place.heard("remove", client.delete("api/v1/wikis/second"))
    signed = {"X-Gitlab-Token": HOOK}
    place.heard("hook", httpx.post(f"{url}w/far/api/v1/webhook", headers=signed, content=b"{}"))
    place.heard("hook", httpx.post(f"{url}w/none/api/v1/webhook", headers=signed, content=b"{}"))


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """A service that has lived: a remote wiki with a password, keys, webhooks, backups, failures."""
    ground = tmp_path_factory.mktemp("secrets")
    place = Place(ground / "data")
    repository = Repository(ground / "git" / "wiki")
    repository.commit({"Home.md": "# Home\n\nHello.\n"})
    with git_serving(git_backend(ground / "git")) as server:
        source = server.url("wiki/.git").replace("://", f"://reader:{PASSWORD}@")
        place.run("add", "far", source)
        place.run("set", "far", f"webhook_secret={HOOK}")
        place.run("set", "far", f"webhook_secret={HOOK}", "interval=never")
        key = place.key("--operator")
        place.key("far", "--scope", "write", "--label", "writer")
        for command in (["sync", "far"], ["status"], ["list", "--json"], ["key", "list", "--json"], ["doctor"]):
            place.run(*command)
        place.run("key", "revoke", place.tokens[-1])  # the token, where an id belongs
        with service(place, ground / "log") as url:
            far = {"Authorization": f"Bearer {key}"}
            until(lambda: httpx.get(f"{url}w/far/api/v1/status", headers=far).json()["pages"] == 1)
            ask_for_everything(place, url, key, source)
            place.heard("reindex", httpx.post(f"{url}w/far/api/v1/reindex", headers=far))
            place.heard("backup", httpx.post(f"{url}w/far/api/v1/backup", headers=far, timeout=60))
        assert any(header and "Basic" in header for header in server.authorization), "the password was used"
    # The server is gone: now every fetch fails.
    place.run("add", "gone", source)
    place.run("sync", "far")
    place.run("status", "far", "--json")
    with service(place, ground / "log2") as url:
        far = {"Authorization": f"Bearer {key}"}
        until(lambda: httpx.get(f"{url}w/far/api/v1/status", headers=far).json()["error"] is not None, 60)
        place.heard("status", httpx.get(f"{url}w/far/api/v1/status", headers=far))
    return place


def test_no_secret_is_in_what_was_logged_printed_or_answered(lived: Place) -> None:
    assert len(lived.said) > 100
    secrets = [HOOK, PASSWORD, *(token.rpartition("_")[2] for token in lived.tokens)]
    told = {name: secret for name, text in lived.said.items() for secret in secrets if secret in text}
    assert told == {}
    assert not any("canary" + "a" * 34 in text for text in lived.said.values()), "nor one that somebody tried"


def test_secrets_lie_in_the_registry_alone_and_keys_nowhere(lived: Place) -> None:
    holding = {secret: set() for secret in (HOOK, PASSWORD, *lived.tokens)}
    for file in (each for each in lived.data.rglob("*") if each.is_file()):
        content = file.read_bytes()
        for secret, places in holding.items():
            if secret.encode() in content or secret.rpartition("_")[2].encode() in content:
                places.add(file.relative_to(lived.data).as_posix().split("/2")[0].removesuffix("-wal"))
    assert all(holding[token] == set() for token in lived.tokens)
    assert holding[PASSWORD] == holding[HOOK] == {"registry.sqlite", "backups/registry"}


def test_what_holds_secrets_is_its_owners_alone(lived: Place) -> None:
    open_to_others = [
        str(path.relative_to(lived.data))
        for path in (lived.data, *lived.data.iterdir(), *lived.data.glob("*/*"), *lived.data.glob("backups/registry/*"))
        if path.stat().st_mode & 0o077 and path.name not in ("wikis", "backups")
    ]
    assert open_to_others == []
    assert lived.data.stat().st_mode & 0o777 == 0o700
