"""`key`, `set` and the options of `add`, as text and as JSON."""

import io
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.interfaces.cli.cli_fixtures import CommandRunner
from tests.support.git_repository import Repository
from wikiholt.domain.wiki import Scope
from wikiholt.errors import Unauthorized
from wikiholt.wikis.access import AccessPolicy, RequestIdentity
from wikiholt.wikis.registry import Registry


@pytest.fixture
def run(data: Path, capsys: pytest.CaptureFixture[str]) -> CommandRunner:
    return CommandRunner(data, capsys)


# ── key ──


def test_key_create_prints_only_the_token_and_it_works(
    run: CommandRunner, garden: Repository, registry: Registry
) -> None:
    code, out, err = run("key", "create", "garden", "--scope", "write", "--label", "nightly import", "--expires", "30d")
    token = out.strip()
    key = registry.keys.find_by_token(token)
    assert code == 0
    assert key is not None
    assert (key.wiki_id, key.scope, key.label) == (registry.get("garden").id, Scope.WRITE, "nightly import")
    assert key.expires_at is not None
    assert abs(key.expires_at - datetime.now(UTC) - timedelta(days=30)) < timedelta(hours=1)
    assert key.id in err
    assert "not shown again" in err
    assert token not in err


def test_a_key_is_read_only_by_default_and_the_operator_key_allows_everything(
    run: CommandRunner, garden: Repository, registry: Registry
) -> None:
    assert registry.keys.find_by_token(run("key", "create", "garden", "--json").parse()["token"]).scope is Scope.READ  # type: ignore[union-attr]
    document = run("key", "create", "--operator", "--json").parse()
    assert document.items() >= {"wiki": None, "scope": "admin", "expires_at": None, "expired": False}.items()
    operator = registry.keys.find_by_token(document["token"])
    assert operator is not None
    assert operator.wiki_id is None


def test_an_operator_key_can_be_created_before_the_first_wiki(run: CommandRunner) -> None:
    code, out, _ = run("key", "create", "--operator")
    assert code == 0
    assert out.startswith("wh_")


def test_the_first_key_names_the_wikis_that_it_closes(run: CommandRunner, garden: Repository) -> None:
    run("add", "open", str(garden.path), "--public")
    run("add", "pond", str(garden.path))
    _, out, err = run("key", "create", "garden")
    assert out.startswith("wh_")
    assert out.count("\n") == 1
    assert "This is the first key. From now on, reading needs a key in: garden, pond\n" in err
    assert f"hint: to keep a wiki open to everyone: {run.program} set SLUG public=true\n" in err
    assert "first key" not in run("key", "create", "garden")[2], "it was closed before"
    assert run("key", "create", "garden", "--json").parse()["closed_wikis"] == []


@pytest.mark.parametrize(("all_public", "closed"), [("false", ["garden"]), ("true", [])])
def test_json_names_the_wikis_that_the_first_key_closes(
    run: CommandRunner, garden: Repository, all_public: str, closed: list[str]
) -> None:
    document = run("--set", f"serve.public={all_public}", "key", "create", "--operator", "--json").parse()
    assert document["closed_wikis"] == closed


@pytest.mark.parametrize("when", ["2099-01-31", "2099-01-31T12:00", "2099-01-31T12:00+09:00"])
def test_an_expiry_may_be_a_date(run: CommandRunner, garden: Repository, when: str) -> None:
    expires = datetime.fromisoformat(run("key", "create", "garden", "--expires", when, "--json").parse()["expires_at"])
    expected = datetime.fromisoformat(when)
    assert expires == (expected if expected.tzinfo else expected.replace(tzinfo=UTC))


def test_keys_are_listed_without_their_secrets(run: CommandRunner, garden: Repository) -> None:
    assert "No keys yet" in run("key", "list")[1]
    token = run("key", "create", "garden", "--label", "nightly import", "--expires", "8w")[1].strip()
    operator = run("key", "create", "--operator")[1].strip()
    for answer in (run("key", "list"), run("key", "list", "--json"), run("key", "list", "garden")):
        assert token.split("_")[1] in answer[1]
        assert "nightly import" in answer[1]
        assert token.split("_")[2] not in answer[1]
    assert re.search(r"\(operator\) +admin +never expires", run("key", "list")[1])
    assert operator.split("_")[1] not in run("key", "list", "garden")[1]
    displayed = run("key", "list", "--json").parse()["keys"]
    assert [(key["wiki"], key["scope"]) for key in displayed] == [("garden", "read"), (None, "admin")]
    assert not any("token" in key for key in displayed)


@pytest.mark.parametrize("by_token", [True, False])
def test_a_key_is_revoked_by_id_or_token(
    run: CommandRunner, garden: Repository, registry: Registry, by_token: bool
) -> None:
    token = run("key", "create", "garden")[1].strip()
    code, out, err = run("key", "revoke", token if by_token else token.split("_")[1])
    assert (code, err) == (0, "")
    assert token.split("_")[1] in out
    assert token.split("_")[2] not in out
    assert registry.keys.find_by_token(token) is None
    assert run("key", "revoke", token.split("_")[1])[0] == 3


def test_a_key_takes_effect_in_a_running_process(run: CommandRunner, garden: Repository, registry: Registry) -> None:
    access = AccessPolicy(registry, domain="", public=False, own_hosts=())
    visit = RequestIdentity(slug="garden", host="localhost", loopback=True)
    assert access.authorize(visit, Scope.READ).wiki.slug == "garden"
    token = run("key", "create", "garden")[1].strip()
    with pytest.raises(Unauthorized):
        access.authorize(visit, Scope.READ)
    assert access.authorize(RequestIdentity(token=token), Scope.READ).wiki.slug == "garden"


INVALID_COMMANDS = [
    (["key", "create"], 2),
    (["key", "create", "garden", "--operator"], 2),
    (["key", "create", "--operator", "--scope", "read"], 2),
    (["key", "create", "absent"], 3),
    (["key", "create", "../garden"], 3),
    (["key", "create", "garden", "--expires", "tomorrow"], 2),
    (["key", "create", "garden", "--expires", "2001-01-01"], 2),
    (["key", "create", "garden", "--expires", "0d"], 2),
    (["key", "create", "garden", "--expires", "9999-12-31T23:59-23:59"], 2),
    (["key", "create", "garden", "--label", "x" * 201], 2),
    (["key", "create", "garden", "--label", "two\nlines"], 2),
    (["key", "list", "absent"], 3),
    (["key", "revoke", "absent"], 3),
    (["key", "revoke", "\0"], 3),
    (["key", "revoke", "x" * 9999], 3),
    (["key", "create", "garden", "--scope", "everything"], 2),
    (["key"], 2),
]


def test_an_invalid_key_is_not_created(run: CommandRunner, garden: Repository) -> None:
    for arguments, code in INVALID_COMMANDS:
        got, out, err = run(*arguments)
        assert (got, out) == (code, ""), arguments
        assert err.strip().splitlines()[-1].startswith(("hint: ", "wikiholt"))
        assert run("key", "list", "--json").parse()["keys"] == [], arguments


# ── add and set ──


def test_a_wiki_is_added_as_public_with_hosts_and_its_own_interval(
    run: CommandRunner, tmp_path: Path, registry: Registry
) -> None:
    Repository(tmp_path / "r").commit({"a.md": "alpha"})
    options = ("--public", "--host", "a.example.org", "--host", "B.example.org", "--interval", "300")
    added = run("add", "one", str(tmp_path / "r"), *options, "--json").parse()
    assert added["settings"] == {"public": "true", "hosts": "a.example.org, B.example.org", "interval": "300"}
    assert registry.find_by_host("b.example.org") == registry.get("one")
    assert run("add", "two", str(tmp_path / "r"), "--host", "a.example.org")[0] == 4
    for bad in (("--host", "not a host"), ("--interval", "often"), ("--interval", "-1")):
        assert run("add", "two", str(tmp_path / "r"), *bad)[0] == 2
    assert [wiki.slug for wiki in registry.list_wikis()] == ["one"]


def test_settings_are_changed_in_place_and_shown(run: CommandRunner, garden: Repository, registry: Registry) -> None:
    assert "no settings" in run("set", "garden")[1]
    before = registry.get("garden")
    code, out, _ = run("set", "garden", "public=true", "hosts=garden.example.org", "language=german")
    assert code == 0
    assert re.findall(r"^(\w+) +(\S+)$", out, re.MULTILINE) == [
        ("hosts", "garden.example.org"),
        ("language", "german"),
        ("public", "true"),
    ]
    displayed = run("set", "garden", "language=", "hosts=", "--json").parse()
    assert displayed["settings"] == {"public": "true"}
    assert registry.get("garden").id == before.id
    assert registry.find_by_host("garden.example.org") is None


def test_a_secret_is_read_from_standard_input_and_never_shown(
    run: CommandRunner, garden: Repository, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("capercaillie\nmore\n"))
    outputs = [run("set", "garden", "webhook_secret=-")]
    assert registry.get("garden").settings["webhook_secret"] == "capercaillie"
    outputs += [run("set", "garden"), run("set", "garden", "--json"), run("list", "--json"), run("status", "--json")]
    outputs += [run("status"), run("list"), run("doctor", "--json"), run("set", "garden", "public=true", "--json")]
    assert "(hidden)" in outputs[0][1]
    assert not any("capercaillie" in text for _, *texts in outputs for text in texts)
    run("set", "garden", "webhook_secret=")
    assert "webhook_secret" not in registry.get("garden").settings


INVALID_PAIRS = [
    (["nope=1"], 2),
    (["nope="], 2),
    (["public"], 2),
    (["public=maybe"], 2),
    (["interval=often"], 2),
    (["hosts=https://x.example"], 2),
    (["hosts=other.example.org"], 4),
    (["subdirectory=absent"], 2),
    (["language=german", "language=english"], 2),
    (["language=german", "url=nowhere"], 2),
    (["language=ger\udcffman"], 2),
    (["=x"], 2),
]


def test_invalid_settings_change_nothing(run: CommandRunner, garden: Repository, registry: Registry) -> None:
    assert run("add", "other", str(garden.path), "--host", "other.example.org")[0] == 0
    run("set", "garden", "public=true")
    before = registry.get("garden")
    for pairs, code in INVALID_PAIRS:
        got, out, err = run("set", "garden", *pairs)
        assert (got, out) == (code, ""), pairs
        assert err.strip().splitlines()[-1].startswith("hint: ")
        assert registry.get("garden") == before, pairs
    assert run("set", "absent", "public=true")[0] == 3


def test_the_backup_of_the_registry_after_a_command_is_not_called_scheduled(
    run: CommandRunner, garden: Repository
) -> None:
    assert run("key", "create", "garden").code == 0
    listed = run("restore", "--registry", "--list", "--json").parse()["registry"]
    assert {backup["reason"] for backup in listed} == {"after-change"}
