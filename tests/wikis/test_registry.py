import multiprocessing
import os
import re
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.support.wait import TIMEOUT_S
from wikiholt.errors import (
    Busy,
    InvalidSetting,
    InvalidSlug,
    WikiExists,
    WikiNotFound,
)
from wikiholt.wikis import small_store
from wikiholt.wikis.registry import Registry


def test_a_wiki_that_was_added_is_found_again(registry: Registry, path: Path) -> None:
    added = registry.add("garden", "/srv/garden", {"language": "german"})
    assert registry.get("garden") == added
    assert (added.slug, added.source, added.settings) == ("garden", "/srv/garden", {"language": "german"})
    assert datetime.now(UTC) - added.created_at < timedelta(minutes=1)
    registry.close()
    with closing(Registry(path)) as again:
        assert again.list_wikis() == [added]


def test_wikis_are_listed_by_slug(registry: Registry) -> None:
    for slug in ("b", "c", "a"):
        registry.add(slug, f"/srv/{slug}")
    assert [wiki.slug for wiki in registry.list_wikis()] == ["a", "b", "c"]


def test_ids_are_opaque_and_a_slug_that_returns_gets_a_new_one(registry: Registry) -> None:
    ids = set()
    for _ in range(20):
        ids.add(registry.add("garden", "/srv/garden").id)
        registry.remove("garden")
    assert len(ids) == 20
    assert all(re.fullmatch("[a-z2-7]{20}", wiki_id) for wiki_id in ids)


def test_a_slug_is_unique(registry: Registry) -> None:
    first = registry.add("garden", "/srv/garden")
    with pytest.raises(WikiExists, match="already a wiki 'garden'"):
        registry.add("garden", "/srv/other")
    assert registry.list_wikis() == [first]


def test_a_removed_wiki_is_gone(registry: Registry) -> None:
    wiki = registry.add("garden", "/srv/garden")
    assert registry.remove("garden").wiki == wiki
    assert registry.list_wikis() == []
    with pytest.raises(WikiNotFound):
        registry.get("garden")
    with pytest.raises(WikiNotFound):
        registry.remove("garden")


def test_settings_are_set_and_unset(registry: Registry) -> None:
    wiki = registry.add("garden", "/srv/garden", {"language": "german"})
    updated = registry.update_settings("garden", {"language": "", "url": "https://example.org/{path}"})
    assert updated.settings == {"url": "https://example.org/{path}"}
    assert updated.id == wiki.id
    assert registry.get("garden") == updated
    with pytest.raises(WikiNotFound):
        registry.update_settings("other", {})


def test_reading_before_the_first_wiki_creates_no_file(registry: Registry, path: Path) -> None:
    assert registry.list_wikis() == []
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
    message = f"{caught.value} {caught.value.hint}".replace(odd if odd else "\0", "")
    assert "garden" not in message
    assert "canary" not in message
    assert len(message) < 300


def test_similar_slugs_are_suggested_on_request(registry: Registry) -> None:
    for slug in ("garden", "runbook", "kitchen"):
        registry.add(slug, f"/srv/{slug}")
    assert registry.suggest_slugs("gardem") == ("garden",)
    assert registry.suggest_slugs("Runbok") == ("runbook",)
    assert registry.suggest_slugs("zzz") == ()


def test_a_wiki_is_found_by_its_id(registry: Registry) -> None:
    wiki = registry.add("garden", "/srv/garden")
    assert registry.get_by_id(wiki.id) == wiki
    for odd in ("garden", "", "a" * 20, "\0", "é"):
        with pytest.raises(WikiNotFound) as caught:
            registry.get_by_id(odd)
        assert "garden" not in f"{caught.value} {caught.value.hint}"


def test_the_only_wiki_is_known_as_such(registry: Registry) -> None:
    assert registry.get_only() is None
    wiki = registry.add("garden", "/srv/garden")
    assert registry.get_only() == wiki
    registry.add("other", "/srv/other")
    assert registry.get_only() is None


def test_some_settings_change_and_the_others_stay(registry: Registry) -> None:
    registry.add("garden", "/srv/garden", {"language": "german", "public": "true"})
    changed = registry.update_settings("garden", {"public": "", "url": "{path}.html"})
    assert changed.settings == {"language": "german", "url": "{path}.html"}
    assert registry.get("garden") == changed
    with pytest.raises(WikiNotFound):
        registry.update_settings("other", {"public": "true"})


def test_concurrent_changes_of_different_settings_are_not_lost(registry: Registry, path: Path) -> None:
    registry.add("garden", "/srv/garden")

    def change(number: int) -> None:
        with closing(Registry(path, timeout_s=TIMEOUT_S)) as own:
            own.update_settings("garden", {f"setting-{number}": "set"})

    threads = [threading.Thread(target=change, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(registry.get("garden").settings) == 8


# ── many at once ──


def test_adding_many_wikis_skips_existing_slugs(registry: Registry) -> None:
    first = registry.add("b", "/srv/first")
    added = registry.add_many([("a", "/srv/a", {"public": "true"}), ("b", "/srv/other", {}), ("c", "/srv/c", {})])
    assert [wiki.slug for wiki in added] == ["a", "c"]
    assert registry.get("b") == first
    assert registry.list_wikis() == [added[0], first, added[1]]


def test_of_two_with_one_slug_the_first_is_added(registry: Registry) -> None:
    (added,) = registry.add_many([("a", "/srv/one", {}), ("a", "/srv/two", {})])
    assert registry.get("a").source == added.source == "/srv/one"


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        (("../x", "/srv", {}), InvalidSlug),
        (("x", "/srv", {"hosts": "a.example"}), WikiExists),
        (("x", "/srv", {"hosts": "not a host"}), InvalidSetting),
    ],
)
def test_adding_many_wikis_is_atomic(
    registry: Registry, bad: tuple[str, str, dict[str, str]], error: type[Exception]
) -> None:
    before = registry.add("before", "/srv", {"hosts": "a.example"})
    with pytest.raises(error):
        registry.add_many([("a", "/srv/a", {"hosts": "b.example"}), bad])
    assert registry.list_wikis() == [before]
    assert registry.find_by_host("b.example") is None
    registry.close()
    assert registry.list_wikis() == [before]


def test_ten_thousand_wikis_are_registered_in_seconds_and_one_more_is_not_slower(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    began = time.process_time()
    registry.add_many((f"wiki-{number}", f"/srv/{number}", {}) for number in range(10_000))
    assert time.process_time() - began < 10
    assert registry.get_only() is None  # the first use checks every row
    statements: list[str] = []
    connect = small_store.connect

    def trace(*arguments: object) -> sqlite3.Connection:
        connection = connect(*arguments)  # type: ignore[arg-type]
        connection.set_trace_callback(statements.append)
        return connection

    monkeypatch.setattr(small_store, "connect", trace)
    registry.add("one-more", "/srv/one-more")
    read = [statement for statement in statements if statement.startswith("SELECT")]
    assert read
    assert all("WHERE" in statement for statement in read)


# ── hosts ──


def test_a_wiki_is_found_by_each_of_its_hosts(registry: Registry) -> None:
    wiki = registry.add(
        "garden", "/srv/garden", {"hosts": "Garden.Example.org., plants.example.org\nplants.example.org"}
    )
    for host in ("garden.example.org", "GARDEN.example.ORG", "garden.example.org.", "plants.example.org:8080"):
        assert registry.find_by_host(host) == wiki
    for host in ("example.org", "x.garden.example.org", "", "garden", "\0", "gärten.example", "x" * 9999):
        assert registry.find_by_host(host) is None


def test_hosts_follow_the_settings(registry: Registry) -> None:
    registry.add("garden", "/srv/garden", {"hosts": "old.example"})
    registry.update_settings("garden", {"hosts": "new.example"})
    assert registry.find_by_host("old.example") is None
    assert registry.find_by_host("new.example") == registry.get("garden")
    registry.update_settings("garden", {"hosts": ""})
    assert registry.find_by_host("new.example") is None
    registry.update_settings("garden", {"hosts": "new.example"})
    assert registry.remove("garden").hosts == ("new.example",)
    assert registry.find_by_host("new.example") is None
    assert registry.add("other", "/srv", {"hosts": "new.example"}) == registry.find_by_host("new.example")


def test_a_host_belongs_to_one_wiki_and_the_error_does_not_name_it(registry: Registry) -> None:
    registry.add("garden", "/srv/canary", {"hosts": "wiki.example.org"})
    with pytest.raises(WikiExists) as caught:
        registry.add("other", "/srv/other", {"hosts": "b.example, Wiki.Example.Org"})
    message = f"{caught.value} {caught.value.hint}"
    assert "garden" not in message
    assert "canary" not in message
    other = registry.add("other", "/srv/other", {"hosts": "b.example"})
    with pytest.raises(WikiExists):
        registry.update_settings("other", {"hosts": "wiki.example.org"})
    assert registry.get("other") == registry.find_by_host("b.example") == other


@pytest.mark.parametrize(
    "host",
    [
        *(
            "https://wiki.example",
            "wiki.example:80",
            "wiki.example/x",
            "a b",
            "-a.example",
            "a..b",
            "*.example",
            "_x.y",
        ),
        *("gärten.example", "wіki.example", "x" * 64 + ".example", "a." * 130 + "b", "a\0b", "[2001:db8::1]"),
        *("localhost", "LOCALHOST.", "127.0.0.1", "[::1]"),
    ],
    ids=lambda host: ascii(host)[:30],
)
def test_an_invalid_host_is_refused_and_nothing_changes(registry: Registry, host: str) -> None:
    wiki = registry.add("garden", "/srv/garden", {"hosts": "good.example"})
    with pytest.raises(InvalidSetting) as caught:
        registry.update_settings("garden", {"hosts": f"other.example, {host}"})
    assert caught.value.hint
    assert len(caught.value.message) < 300
    assert registry.get("garden") == registry.find_by_host("good.example") == wiki
    assert registry.find_by_host("other.example") is None


# ── together ──


def test_another_writer_makes_writes_wait_and_then_busy(registry: Registry, path: Path) -> None:
    registry.add("garden", "/srv/garden")
    with (
        closing(sqlite3.connect(path, isolation_level=None)) as other,
        closing(Registry(path, timeout_s=0.05)) as hasty,
    ):
        other.execute("BEGIN IMMEDIATE")
        assert [wiki.slug for wiki in hasty.list_wikis()] == ["garden"]
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
    assert len(registry.list_wikis()) == 6 * 9


def _add_in_other_process(path: Path, name: str) -> None:
    with closing(Registry(path, timeout_s=TIMEOUT_S)) as registry:
        for number in range(10):
            registry.add(f"{name}{number}", "/srv")
        try:
            registry.add("same", f"/srv/{name}")
        except WikiExists:
            return


@pytest.mark.process
def test_many_processes_create_and_fill_one_registry(path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_add_in_other_process, args=(path, letter)) for letter in "abcd"]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * 4
    with closing(Registry(path)) as registry:
        assert len(registry.list_wikis()) == 41
    assert sorted(file.name for file in path.parent.iterdir()) == ["registry.db"]


_FORK_SCRIPT = """
import os, sys
from contextlib import closing
from pathlib import Path
from wikiholt.wikis import small_store
from wikiholt.wikis.registry import Registry

with closing(Registry(Path(sys.argv[1]))) as registry:
    registry.add("before", "/srv")
    child = os.fork()
    if child == 0:
        registry.add("child", "/srv")
        registry.close()
        os._exit(0)
    _, status = os.waitpid(child, 0)
    registry.add("parent", "/srv")
    print(status, *(wiki.slug for wiki in registry.list_wikis()))
"""


@pytest.mark.process
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_parent_and_child_of_a_fork_both_work(path: Path) -> None:
    command = [sys.executable, "-W", "error", "-c", _FORK_SCRIPT, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stdout.split(), done.stderr) == (["0", "before", "child", "parent"], "")


def test_of_concurrent_adds_of_one_slug_only_the_first_succeeds(registry: Registry) -> None:
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
    began = time.process_time()
    for _ in range(500):
        registry.get("garden")
    assert time.process_time() - began < 5


def test_a_bad_slug_is_not_registered(registry: Registry) -> None:
    with pytest.raises(InvalidSlug):
        registry.add("../x", "/srv")
    assert registry.list_wikis() == []
