"""After any change that Otterwiki makes to its repository, the index soon equals the tree at HEAD.

Every test uses a real Otterwiki over HTTP, under gunicorn with four workers of four threads.
"""

import hashlib
import hmac
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.interfaces.otterwiki.otterwiki_server import OtterwikiServer
from tests.support.git_repository import Repository
from tests.support.wait import TIMEOUT_S

pytestmark = pytest.mark.model


@pytest.fixture(scope="module")
def otter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OtterwikiServer]:
    place = tmp_path_factory.mktemp("otter")
    settings = {
        "GIT_WEB_SERVER": True,
        "GIT_REMOTE_PULL_ENABLED": True,
        "GIT_REMOTE_PULL_URL": str(place / "elsewhere.git"),
        "GIT_REMOTE_PULL_URL_SECURE": True,
        "WIKIHOLT_SYNC_INTERVAL": 2,
    }
    with OtterwikiServer.start(place, "gunicorn", settings) as running:
        yield running


def _clone(otter: OtterwikiServer, place: Path) -> Repository:
    subprocess.run(["git", "clone", "--quiet", f"{otter.url}/.git", str(place)], check=True)
    return Repository(place)


def test_a_page_written_before_plugin_setup_is_found(otter: OtterwikiServer) -> None:
    otter.wait_until_found("otter wiki", "home")
    assert list(otter.wait_until_equal()) == ["home.md"]


def test_a_page_saved_under_two_casings_is_one_page_with_its_last_text(otter: OtterwikiServer) -> None:
    otter.save_page("MY page", "# Mine\n\nFirst about lanterns.\n")
    otter.wait_until_found("lanterns", "my page")
    otter.save_page("my PAGE", "# Mine\n\nThen about compasses.\n")
    otter.wait_until_found("compasses", "my page")
    assert otter.find_paths("lanterns") == []
    assert [path for path in otter.find_paths("mine") if "page" in path.lower()] == ["my page"]
    otter.wait_until_equal()


def test_a_rename_moves_subpages_and_updates_links(otter: OtterwikiServer) -> None:
    otter.save_page("Boats", "# Boats\n\nWhat floats.\n")
    otter.save_page("Boats/Canoe", "# Canoe\n\nPaddled with gusto.\n")
    otter.save_page("Boats/Canoe/Paddle", "# Paddle\n\nCarved from ash wood.\n")
    otter.save_page("Harbour", "# Harbour\n\nHere lie [[Boats]] and [a canoe](/Boats/Canoe).\n")
    otter.wait_until_found("carved ash", "boats/canoe/paddle")
    otter.rename_page("Boats", "Vessels/Small")
    otter.wait_until_found("carved ash", "vessels/small/canoe/paddle")
    files = otter.wait_until_equal()
    assert not [file for file in files if file.startswith("boats")]
    assert otter.find_paths("gusto") == ["vessels/small/canoe"]
    assert "Boats" not in (otter.repository / "harbour.md").read_text()


def test_a_recursive_delete_removes_all_subpages_from_the_index(otter: OtterwikiServer) -> None:
    for path in ("Trees", "Trees/Oak", "Trees/Oak/Acorn"):
        otter.save_page(path, f"# {path}\n\nIn the forest of Arden.\n")
    otter.wait_until_found("arden", "trees/oak/acorn")
    otter.delete_page("Trees", recursive=True)
    otter.wait_until_gone("arden", "trees/oak/acorn")
    otter.wait_until_equal()
    assert otter.find_paths("arden") == []


def test_a_reverted_commit_brings_the_old_text_back(otter: OtterwikiServer) -> None:
    otter.save_page("Recipe", "# Recipe\n\nWith cinnamon.\n")
    otter.save_page("Recipe", "# Recipe\n\nWith cardamom.\n")
    otter.wait_until_found("cardamom", "recipe")
    otter.revert_commit(otter.get_head())
    otter.wait_until_found("cinnamon", "recipe")
    assert otter.find_paths("cardamom") == []
    otter.wait_until_equal()


def test_after_an_attachment_its_page_is_found_and_the_index_is_at_head(otter: OtterwikiServer) -> None:
    otter.save_page("Album", "# Album\n\nPictures of herons.\n")
    otter.upload_attachment("Album", "heron.txt", b"a heron, standing")
    assert (otter.repository / "album" / "heron.txt").is_file()
    otter.wait_until_equal()
    assert otter.find_paths("herons") == ["album"]


def test_saving_the_same_text_changes_nothing(otter: OtterwikiServer) -> None:
    otter.save_page("Still", "# Still\n\nWater runs deep.\n")
    before, head = otter.wait_until_equal(), otter.get_head()
    otter.save_page("Still", "# Still\n\nWater runs deep.\n")
    assert otter.get_head() == head
    assert otter.wait_until_equal() == before


def test_a_push_of_three_commits_is_indexed_completely(otter: OtterwikiServer, tmp_path: Path) -> None:
    clone = _clone(otter, tmp_path / "clone")
    for name in ("One", "Two", "Three"):
        clone.commit({f"pushed {name.lower()}.md": f"# {name}\n\nPushed as number {name}, quixotic.\n"})
    clone.run_git("push", "--quiet", f"{otter.url}/.git", "HEAD")
    for name in ("one", "two", "three"):
        otter.wait_until_found("quixotic", f"pushed {name}")
    assert {f"pushed {name}.md" for name in ("one", "two", "three")} <= set(otter.wait_until_equal())
    assert otter.get_head() == clone.run_git("rev-parse", "HEAD").decode().strip()


def test_commits_pulled_by_a_webhook_thread_are_found(otter: OtterwikiServer, tmp_path: Path) -> None:
    remote = otter.place / "elsewhere.git"
    subprocess.run(["git", "clone", "--quiet", "--bare", str(otter.repository), str(remote)], check=True)
    clone = _clone(otter, tmp_path / "clone")
    clone.commit({"pulled one.md": "# Pulled\n\nMarzipan.\n", "pulled two.md": "# Two\n\nMarzipan too.\n"})
    clone.run_git("push", "--quiet", str(remote), "HEAD")
    secret = hmac.new(b"a-secret-of-at-least-16-characters", str(remote).encode(), hashlib.sha256).hexdigest()
    answer = otter.client.post(f"/-/api/v1/pull/{secret}")
    assert answer.status_code == 200, answer.text
    otter.wait_until_found("marzipan", "pulled two")
    assert {"pulled one.md", "pulled two.md"} <= set(otter.wait_until_equal())


def test_a_commit_made_outside_otterwiki_is_noticed(otter: OtterwikiServer) -> None:
    Repository(otter.repository).commit({"behind its back.md": "# Behind\n\nSurreptitious.\n"})
    otter.wait_until_found("surreptitious", "behind its back")
    assert "behind its back.md" in otter.wait_until_equal()


def test_saves_in_quick_succession_by_different_sessions_are_all_found(otter: OtterwikiServer) -> None:
    # Sequential, because Otterwiki itself hangs when several threads of a process save at the same time.
    for number in range(12):
        with otter.make_client() as client:
            otter.save_page(f"Crowd {number}", f"# Crowd {number}\n\nSimultaneous.\n", client=client)
    files = otter.wait_until_equal()
    assert {f"crowd {number}.md" for number in range(12)} <= set(files)
    assert len(otter.find_paths("simultaneous")) == 12


def test_a_page_saved_by_one_worker_is_found_by_every_worker(otter: OtterwikiServer) -> None:
    otter.save_page("Lighthouse", "# Lighthouse\n\nIts lamp is phosphorescent.\n")
    otter.wait_until_found("phosphorescent", "lighthouse")
    for _ in range(12):
        # A new connection every time, so that any free worker takes it.
        response = httpx.get(
            f"{otter.url}/api/v1/search", params={"q": "phosphorescent", "mode": "keyword"}, timeout=TIMEOUT_S
        )
        assert [hit["path"].lower() for hit in response.json()["results"]] == ["lighthouse"]


def test_workers_killed_right_after_a_save_lose_nothing(otter: OtterwikiServer) -> None:
    *most, _ = otter.get_worker_pids()
    otter.save_page("Last Words", "# Last Words\n\nIndefatigable.\n")
    for pid in most:
        os.kill(pid, signal.SIGKILL)
    otter.wait_until_found("indefatigable", "last words")
    assert "last words.md" in otter.wait_until_equal()


def test_all_page_views_succeeded_and_no_error_was_logged(otter: OtterwikiServer) -> None:
    assert otter.client.get("/Home").status_code == 200
    assert "Traceback" not in otter.read_log()
