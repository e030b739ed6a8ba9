import multiprocessing
import os
import re
import sqlite3
import string
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wikiholt.errors import Busy, IndexCorrupt, IndexTooNew, InvalidSlug, StorageRefused, WikiExists, WikiNotFound
from wikiholt.registry import Registry, validate_slug
from wikiholt.registry.slugs import RESERVED, propose_slug


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "registry.db"


@pytest.fixture
def registry(path: Path) -> Iterator[Registry]:
    registry = Registry(path)
    yield registry
    registry.close()


def test_a_wiki_that_was_added_is_found_again(registry: Registry, path: Path) -> None:
    added = registry.add("garden", "/srv/garden", {"language": "german"})
    assert registry.get("garden") == added
    assert (added.slug, added.source, added.settings) == ("garden", "/srv/garden", {"language": "german"})
    assert datetime.now(UTC) - added.created_at < timedelta(minutes=1)
    registry.close()
    with closing(Registry(path)) as again:
        assert again.list() == [added]


def test_wikis_are_listed_by_slug(registry: Registry) -> None:
    for slug in ("b", "c", "a"):
        registry.add(slug, f"/srv/{slug}")
    assert [wiki.slug for wiki in registry.list()] == ["a", "b", "c"]


def test_ids_are_opaque_and_a_slug_that_returns_gets_a_new_one(registry: Registry) -> None:
    ids = set()
    for _ in range(20):
        ids.add(registry.add("garden", "/srv/garden").id)
        registry.remove("garden")
    assert len(ids) == 20
    assert all(re.fullmatch("[a-z2-7]{20}", wiki_id) for wiki_id in ids)


def test_a_slug_is_given_once(registry: Registry) -> None:
    first = registry.add("garden", "/srv/garden")
    with pytest.raises(WikiExists, match="already a wiki 'garden'"):
        registry.add("garden", "/srv/other")
    assert registry.list() == [first]


def test_a_removed_wiki_is_gone(registry: Registry) -> None:
    wiki = registry.add("garden", "/srv/garden")
    assert registry.remove("garden").wiki == wiki
    assert registry.list() == []
    with pytest.raises(WikiNotFound):
        registry.get("garden")
    with pytest.raises(WikiNotFound):
        registry.remove("garden")


def test_settings_are_put_in_the_place_of_the_old_ones(registry: Registry) -> None:
    wiki = registry.add("garden", "/srv/garden", {"language": "german"})
    updated = registry.update("garden", {"url": "https://example.org/{path}"})
    assert updated.settings == {"url": "https://example.org/{path}"}
    assert updated.id == wiki.id
    assert registry.get("garden") == updated
    with pytest.raises(WikiNotFound):
        registry.update("other", {})


def test_reading_before_the_first_wiki_makes_no_file(registry: Registry, path: Path) -> None:
    assert registry.list() == []
    with pytest.raises(WikiNotFound):
        registry.get("garden")
    assert not path.parent.exists()


@pytest.mark.parametrize(
    "odd", ["", "gardem", "../garden", "gar\0den", "GARDEN", "x" * 10_000, "gärten", "' OR 1=1 --"]
)
def test_no_error_names_another_wiki(registry: Registry, odd: str) -> None:
    registry.add("garden", "/srv/canary")
    with pytest.raises(WikiNotFound) as caught:
        registry.get(odd)
    told = f"{caught.value} {caught.value.hint}".replace(odd if odd else "\0", "")
    assert "garden" not in told
    assert "canary" not in told
    assert len(told) < 300


def test_near_slugs_are_suggested_on_request(registry: Registry) -> None:
    for slug in ("garden", "runbook", "kitchen"):
        registry.add(slug, f"/srv/{slug}")
    assert registry.suggest("gardem") == ("garden",)
    assert registry.suggest("Runbok") == ("runbook",)
    assert registry.suggest("zzz") == ()


# ── damage ──


@pytest.mark.parametrize("content", [b"", b"not a database at all" * 100, b"SQLite format 3\0" + b"\0" * 5000])
def test_a_damaged_file_is_an_error_and_never_an_empty_list(path: Path, content: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(content)
    with closing(Registry(path)) as registry:
        for use in (registry.list, lambda: registry.get("garden"), lambda: registry.add("garden", "/srv")):
            with pytest.raises(IndexCorrupt, match="damaged") as caught:
                use()
            assert "backup" in caught.value.hint
    assert path.read_bytes() == content


def test_a_torn_file_is_an_error(registry: Registry, path: Path) -> None:
    for number in range(400):
        registry.add(f"wiki-{number}", "/srv/" + "x" * 100)
    registry.close()
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(IndexCorrupt):
        registry.list()


def test_another_database_is_not_taken_for_a_registry(registry: Registry, path: Path) -> None:
    path.parent.mkdir()
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE wikis (id)")
    with pytest.raises(IndexCorrupt, match="not a registry"):
        registry.list()


def test_a_newer_registry_is_refused(registry: Registry, path: Path) -> None:
    registry.add("garden", "/srv/garden")
    registry.close()
    with closing(sqlite3.connect(path)) as newer:
        newer.execute("PRAGMA user_version = 99")
    with pytest.raises(IndexTooNew, match="newer Wikiholt"):
        registry.list()


@pytest.mark.parametrize("settings", ["{", "[]", "null", '{"a": 1}'])
def test_a_row_that_makes_no_sense_is_damage(registry: Registry, path: Path, settings: str) -> None:
    registry.add("garden", "/srv/garden")
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("UPDATE wikis SET settings = ?", (settings,))
    with pytest.raises(IndexCorrupt, match="cannot be understood"):
        registry.list()


def test_a_directory_that_cannot_be_made_is_said_as_such(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with closing(Registry(tmp_path / "file" / "registry.db")) as registry, pytest.raises(StorageRefused):
        registry.add("garden", "/srv/garden")


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write everywhere")
def test_a_registry_in_a_read_only_directory_can_be_read(registry: Registry, path: Path) -> None:
    wiki = registry.add("garden", "/srv/garden")
    registry.close()
    path.chmod(0o444)
    path.parent.chmod(0o555)
    try:
        assert registry.list() == [wiki]
        with pytest.raises(StorageRefused):
            registry.add("other", "/srv/other")
    finally:
        path.parent.chmod(0o755)


def test_a_restored_file_is_read_and_not_the_one_before(registry: Registry, path: Path) -> None:
    registry.add("old", "/srv/old")
    registry.close()
    backup = path.read_bytes()
    registry.add("newer", "/srv/newer")
    (path.parent / "restored").write_bytes(backup)
    for leftover in path.parent.glob("registry.db-*"):
        leftover.unlink()
    (path.parent / "restored").replace(path)
    assert [wiki.slug for wiki in registry.list()] == ["old"]


# ── together ──


def test_a_writer_elsewhere_makes_the_others_wait_and_then_busy(registry: Registry, path: Path) -> None:
    registry.add("garden", "/srv/garden")
    with closing(sqlite3.connect(path, isolation_level=None)) as other, closing(Registry(path, timeout=0.05)) as hasty:
        other.execute("BEGIN IMMEDIATE")
        assert [wiki.slug for wiki in hasty.list()] == ["garden"]
        with pytest.raises(Busy):
            hasty.add("other", "/srv/other")
        other.execute("ROLLBACK")
        assert hasty.add("other", "/srv/other").slug == "other"


def test_many_threads_share_one_registry(registry: Registry) -> None:
    def work(name: str) -> None:
        for number in range(10):
            registry.add(f"{name}{number}", "/srv")
            registry.get(f"{name}{number}")
        registry.remove(f"{name}0")

    threads = [threading.Thread(target=work, args=(letter,)) for letter in "abcdef"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(registry.list()) == 6 * 9


def _add_from_elsewhere(path: Path, name: str) -> None:
    with closing(Registry(path)) as registry:
        for number in range(10):
            registry.add(f"{name}{number}", "/srv")
        try:
            registry.add("same", f"/srv/{name}")
        except WikiExists:
            return


def test_many_processes_make_and_fill_one_registry(path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_add_from_elsewhere, args=(path, letter)) for letter in "abcd"]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * 4
    with closing(Registry(path)) as registry:
        assert len(registry.list()) == 41
    assert sorted(file.name for file in path.parent.iterdir()) == ["registry.db"]


_FORK = """
import os, sys
from contextlib import closing
from pathlib import Path
from wikiholt.registry import Registry

with closing(Registry(Path(sys.argv[1]))) as registry:
    registry.add("before", "/srv")
    child = os.fork()
    if child == 0:
        registry.add("child", "/srv")
        registry.close()
        os._exit(0)
    _, status = os.waitpid(child, 0)
    registry.add("parent", "/srv")
    print(status, *(wiki.slug for wiki in registry.list()))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_parent_and_child_of_a_fork_both_go_on(path: Path) -> None:
    command = [sys.executable, "-W", "error", "-c", _FORK, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stdout.split(), done.stderr) == (["0", "before", "child", "parent"], "")


def test_the_last_of_racing_adds_of_one_slug_fail(registry: Registry) -> None:
    outcomes: list[str] = []

    def add() -> None:
        try:
            outcomes.append(registry.add("garden", "/srv").id)
        except WikiExists:
            outcomes.append("refused")

    threads = [threading.Thread(target=add) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes.count("refused") == 7


def test_finding_a_wiki_is_cheap(registry: Registry) -> None:
    registry.add("garden", "/srv/garden")
    began = time.perf_counter()
    for _ in range(500):
        registry.get("garden")
    assert time.perf_counter() - began < 1.0


# ── slugs ──


@pytest.mark.parametrize("slug", ["a", "7", "garden", "team-runbook", "a--b", "x" * 63, "2024"])
def test_good_slugs_pass_as_they_are(slug: str) -> None:
    assert validate_slug(slug) == slug


@pytest.mark.parametrize(
    ("text", "reason", "proposal"),
    [
        ("", "empty", "my-wiki"),
        ("Garden", "capital letter G", "garden"),
        ("my wiki", "space", "my-wiki"),
        ("../etc/passwd", "as paths do", "etc-passwd"),
        ("a/b", "as paths do", "a-b"),
        ("a.b", "as paths do", "a-b"),
        ("a\0b", "U\\+0000", "a-b"),
        ("garden\n", "U\\+000A", "garden"),
        ("gаrden", "cyrillic small letter a", "grden"),
        ("Ｇarden", "fullwidth latin", "garden"),
        ("gärten", "latin small letter a with diaeresis", "garten"),
        ("日本", "cjk", "my-wiki"),
        ("-garden", "hyphen", "garden"),
        ("garden-", "hyphen", "garden"),
        ("---", "hyphen", "my-wiki"),
        ("x" * 64, "64 characters", "x" * 63),
        ("api", "kept for Wikiholt", "api-pages"),
        ("w", "kept for Wikiholt", "w-pages"),
        ("xn--80ak6aa92e", "other letters", "xn-80ak6aa92e"),
        ("my_wiki", "low line", "my-wiki"),
        ("١٢", "arabic-indic", "my-wiki"),
    ],
)
def test_bad_slugs_are_refused_with_a_reason_and_a_proposal(text: str, reason: str, proposal: str) -> None:
    with pytest.raises(InvalidSlug, match=reason) as caught:
        validate_slug(text)
    assert caught.value.hint.endswith(f"such as {proposal!r}.")
    assert validate_slug(proposal) == proposal


@pytest.mark.parametrize("name", ["api", "w", "mcp", "admin", "healthz", "readyz", "metrics", "static", "docs"])
def test_names_of_our_own_addresses_are_reserved(name: str) -> None:
    assert name in RESERVED


@given(st.text(max_size=200))
def test_every_proposal_is_a_slug(text: str) -> None:
    proposal = propose_slug(text)
    assert validate_slug(proposal) == proposal


@given(st.text(alphabet=string.ascii_letters + string.digits + "-./_ é\0", max_size=70))
def test_what_passes_is_a_host_label(text: str) -> None:
    try:
        slug = validate_slug(text)
    except InvalidSlug:
        return
    assert re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", slug)
    assert slug == text


def test_a_bad_slug_is_not_registered(registry: Registry) -> None:
    with pytest.raises(InvalidSlug):
        registry.add("../x", "/srv")
    assert registry.list() == []
