"""`key`, `set` and the options of `add`, as text and as JSON. `remove` leaves nothing behind."""

import io
import json
import re
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.interfaces.cli.cli_fixtures import CommandRunner
from tests.support.git_repository import Repository
from wikiholt.app.bootstrap import open_service
from wikiholt.domain.wiki import Scope
from wikiholt.errors import Unauthorized
from wikiholt.interfaces.cli.wiki_commands import format_files
from wikiholt.wikis.access import AccessPolicy, RequestIdentity
from wikiholt.wikis.registry import Registry


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def run(data: Path, capsys: pytest.CaptureFixture[str]) -> CommandRunner:
    return CommandRunner(data, capsys)


@pytest.fixture
def garden(run: CommandRunner, tmp_path: Path) -> Repository:
    repository = Repository(tmp_path / "garden")
    repository.commit({"Home.md": "# Home\n\nThe heron stands by the pond."})
    assert run("add", "garden", str(repository.path))[0] == 0
    return repository


@pytest.fixture
def registry(data: Path) -> Iterator[Registry]:
    with closing(Registry(data / "registry.sqlite")) as opened:
        yield opened


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
    assert (document["wiki"], document["scope"], document["expires_at"], document["expired"]) == (
        None,
        "admin",
        None,
        False,
    )
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
    assert "hint: to keep a wiki open to everyone: wikiholt set SLUG public=true\n" in err
    assert "first key" not in run("key", "create", "garden")[2], "it was closed before"
    assert run("key", "create", "garden", "--json").parse()["closed_wikis"] == []


def test_the_first_key_closes_nothing_where_all_wikis_are_public(run: CommandRunner, garden: Repository) -> None:
    document = run("--set", "serve.public=true", "key", "create", "--operator", "--json").parse()
    assert document["closed_wikis"] == []


def test_json_names_the_closed_wikis(run: CommandRunner, garden: Repository) -> None:
    assert run("key", "create", "--operator", "--json").parse()["closed_wikis"] == ["garden"]


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


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
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
    ],
    ids=lambda value: " ".join(value)[:60].replace("\0", "NUL").replace("\n", " ") if isinstance(value, list) else "",
)
def test_an_invalid_key_is_not_created(run: CommandRunner, garden: Repository, arguments: list[str], code: int) -> None:
    got, out, err = run(*arguments)
    assert (got, out) == (code, "")
    assert err.strip().splitlines()[-1].startswith(("hint: ", "wikiholt"))
    assert run("key", "list", "--json").parse()["keys"] == []


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


@pytest.mark.parametrize(
    ("pairs", "code"),
    [
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
    ],
    ids=ascii,
)
def test_invalid_settings_change_nothing(
    run: CommandRunner, garden: Repository, registry: Registry, pairs: list[str], code: int
) -> None:
    assert run("add", "other", str(garden.path), "--host", "other.example.org")[0] == 0
    run("set", "garden", "public=true")
    before = registry.get("garden")
    got, out, err = run("set", "garden", *pairs)
    assert (got, out) == (code, "")
    assert err.strip().splitlines()[-1].startswith("hint: ")
    assert registry.get("garden") == before
    assert run("set", "absent", "public=true")[0] == 3


# ── slugs ──


@pytest.mark.parametrize(
    ("slug", "why"),
    [
        ("../garden", "paths"),
        ("..", "paths"),
        ("a/b", "paths"),
        ("a\\b", "paths"),
        ("gar\0den", "U+0000"),
        ("gаrden", "cyrillic"),
        ("ｇarden", "fullwidth"),
        ("gar\u200bden", "zero width"),
        ("g" * 64, "64 characters"),
        ("g" * 100_000, "characters"),
        ("Garden", "capital"),
        ("GARDEN", "capital"),
        ("xn--grden-6ve", "other letters"),
        ("api", "reserved"),
        ("", "empty"),
    ],
    ids=lambda text: ascii(text)[:24],
)
def test_an_invalid_slug_is_rejected_with_the_reason(
    run: CommandRunner, garden: Repository, registry: Registry, slug: str, why: str
) -> None:
    code, out, err = run("add", slug, str(garden.path))
    assert (code, out) == (2, "")
    assert why in err
    assert len(err) < 1000
    assert [wiki.slug for wiki in registry.list_wikis()] == ["garden"]


# ── remove ──


def read_all_files(directory: Path) -> bytes:
    """All file names and contents below a directory."""
    files = sorted(directory.rglob("*"))
    return b"\n".join(str(file).encode() + b"\n" + (file.read_bytes() if file.is_file() else b"") for file in files)


@pytest.mark.model
def test_nothing_of_a_removed_wiki_is_left_on_disk(run: CommandRunner, data: Path, tmp_path: Path) -> None:
    canaries = {"one": "zanzibarquagga", "two": "ouagadougouibis"}
    for slug, canary in canaries.items():
        repository = Repository(tmp_path / f"{slug}-{canary}")
        repository.commit(
            {f"{canary} page.md": f"# {canary}\n\nOnly here: {canary}.", "b.md": "---\ntitle: x\n---\nBeta."}
        )
        run(
            "add", f"wiki-{slug}", str(repository.path), "--host", f"{slug}.example.org", "--url", f"/{canary}/{{path}}"
        )
        assert run("sync", f"wiki-{slug}")[0] == 0
        assert json.loads(run("search", "-w", f"wiki-{slug}", canary, "--json")[1])
    keys = {
        slug: run("key", "create", f"wiki-{slug}", "--label", f"of {canaries[slug]}")[1].split("_")[1]
        for slug in canaries
    }
    with closing(Registry(data / "registry.sqlite")) as registry:
        ids = {slug: registry.get(f"wiki-{slug}").id for slug in canaries}
    traces = {slug: ("wiki-" + slug, canaries[slug], f"{slug}.example.org", keys[slug], ids[slug]) for slug in canaries}
    before = read_all_files(data)
    assert all(trace.encode() in before for found in traces.values() for trace in found)

    removed = run("remove", "wiki-one", "--json").parse()
    assert removed["keys"] == [keys["one"]]
    assert removed["hosts"] == ["one.example.org"]
    assert any(name.endswith(".sqlite") for name in removed["removed"])
    left = read_all_files(data)
    assert [trace for trace in traces["one"] if trace.encode() in left] == []
    assert [trace for trace in traces["two"] if trace.encode() not in left] == []
    assert run("search", "-w", "wiki-two", canaries["two"])[0] == 0


def test_remove_lists_the_revoked_keys(run: CommandRunner, garden: Repository) -> None:
    key_id = run("key", "create", "garden")[1].split("_")[1]
    code, out, _ = run("remove", "garden")
    assert code == 0
    assert f"key {key_id}" in out
    assert garden.path.exists()


# ── confirmation ──


class Terminal(io.StringIO):
    """Standard input or error that is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("answer", "removed"), [("y\n", True), ("YES\n", True), ("n\n", False), ("\n", False), ("", False)]
)
def test_remove_asks_on_a_terminal(
    run: CommandRunner,
    garden: Repository,
    registry: Registry,
    monkeypatch: pytest.MonkeyPatch,
    answer: str,
    removed: bool,
) -> None:
    run("key", "create", "garden")
    errors = Terminal()
    monkeypatch.setattr("sys.stdin", Terminal(answer))
    monkeypatch.setattr("sys.stderr", errors)
    code = run("remove", "garden")[0]
    assert (
        "Delete the index, the settings and 1 key of garden? The repository is not touched. [y/N]" in errors.getvalue()
    )
    assert code == (0 if removed else 130)
    assert ("Nothing was removed." in errors.getvalue()) == (not removed)
    assert [wiki.slug for wiki in registry.list_wikis()] == ([] if removed else ["garden"])


def test_remove_does_not_ask_with_yes_or_without_a_terminal(
    run: CommandRunner, garden: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO())
    assert run("remove", "garden")[0] == 0
    run("add", "garden", str(garden.path))
    errors = Terminal()
    monkeypatch.setattr("sys.stdin", Terminal(""))
    monkeypatch.setattr("sys.stderr", errors)
    assert run("remove", "garden", "--yes")[0] == 0
    assert errors.getvalue() == ""


def test_remove_of_an_unknown_wiki_asks_nothing(run: CommandRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    errors = Terminal()
    monkeypatch.setattr("sys.stdin", Terminal("y\n"))
    monkeypatch.setattr("sys.stderr", errors)
    assert run("remove", "nothing")[0] == 3
    assert "[y/N]" not in errors.getvalue()


# ── a wiki whose only copy Wikiholt stores ──


@pytest.fixture
def managed(run: CommandRunner, data: Path) -> Path:
    """The stored pages of a wiki that `create` made."""
    assert run("create", "notes")[0] == 0
    (head,) = data.rglob("HEAD")
    return head.parent


@pytest.mark.parametrize("options", [[], ["--yes"], ["--json"]])
def test_remove_without_a_terminal_keeps_the_only_copy_of_pages(
    run: CommandRunner, managed: Path, monkeypatch: pytest.MonkeyPatch, options: list[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO())
    code, out, err = run("remove", "notes", *options)
    assert (code, out) == (130, "")
    assert "error: This would delete the only copy of the pages of notes.\nhint: " in err
    assert "--delete-pages" in err
    assert managed.exists()
    assert "notes" in run("list", "--slugs")[1].split()


def test_remove_deletes_pages_with_delete_pages(
    run: CommandRunner, managed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO())
    code, out, err = run("remove", "notes", "--delete-pages")
    assert (code, err) == (0, "")
    assert "Its pages were deleted." in out
    assert not managed.exists()


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("n\n", 130)])
def test_remove_of_the_only_copy_asks_on_a_terminal(
    run: CommandRunner, managed: Path, monkeypatch: pytest.MonkeyPatch, answer: str, code: int
) -> None:
    errors = Terminal()
    monkeypatch.setattr("sys.stdin", Terminal(answer))
    monkeypatch.setattr("sys.stderr", errors)
    assert run("remove", "notes")[0] == code
    assert "Delete all pages, the index, the settings and 0 keys of notes? There is no other copy." in errors.getvalue()
    assert managed.exists() == (code != 0)


def test_remove_does_not_delete_another_wiki_that_got_the_name_meanwhile(
    run: CommandRunner, garden: Repository, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def replace_wiki(question: str) -> bool:
        assert "The repository is not touched." in question
        service = open_service(data)
        service.remove("garden")
        service.create("garden", {})
        service.close()
        return True

    monkeypatch.setattr("wikiholt.interfaces.cli.wiki_commands.confirm", replace_wiki)
    code, out, _ = run("remove", "garden")
    assert (code, out) == (3, "")
    assert list(data.rglob("HEAD")), "the pages of the new wiki stay"
    assert garden.path.exists()


def test_removed_folders_show_how_many_files_they_had() -> None:
    files = ["a.sqlite", "a/chunks", "a/vectors", "b/only", "c\x1b.lock"]
    assert format_files(files) == ["  a.sqlite", "  a/ (2 files)", "  b/ (1 file)", "  c\ufffd.lock"]


def test_delete_pages_does_not_touch_the_repository_of_the_user(run: CommandRunner, garden: Repository) -> None:
    code, out, _ = run("remove", "garden", "--delete-pages")
    assert code == 0
    assert "was not touched" in out
    assert garden.path.exists()
