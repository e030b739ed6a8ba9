"""Worker processes: the prefork master starts nothing; every worker starts after the fork and stops cleanly."""

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.interfaces.otterwiki.otterwiki_server import OtterwikiServer
from tests.support.fork_server import OTTERWIKI_MODULES, run_forked
from tests.support.wait import wait_until
from wikiholt.api.bootstrap import open_service
from wikiholt.interfaces.otterwiki.plugin_runtime import Debouncer, is_prefork_master, register_after_fork
from wikiholt.interfaces.otterwiki.wiki_resolver import WikiLocation


def _list_open_files(pid: int) -> list[str]:
    """The open files of a process; a file that is closed in the meantime is skipped."""
    files = []
    for link in Path(f"/proc/{pid}/fd").iterdir():
        try:
            files.append(str(link.readlink()))
        except FileNotFoundError:
            continue
    return files


@pytest.mark.model
def test_a_prefork_master_opens_nothing_and_its_workers_index_and_stop_cleanly(
    tmp_path: Path,
) -> None:
    pages = {f"page-{number}.md": f"# Page {number}\n\nOf a preloaded wiki.\n" for number in range(20)}
    otter = OtterwikiServer.start(tmp_path / "wiki", "gunicorn", pages=pages, workers=2, options=("--preload",))
    with otter:
        # No page was viewed or saved yet: workers start by themselves.
        otter.wait_until_equal()
        assert not [file for file in _list_open_files(otter.pid) if file.startswith(str(otter.data))]
        otter.save_page("More", "# More\n\nWritten afterwards.\n")
        otter.wait_until_found("afterwards", "more")
        document = otter.client.get("/api/v1/search", params={"q": "afterwards"}).json()["results"]
        assert [hit["path"] for hit in document][:1] == ["More"]
        assert otter.stop() == 0
        assert "Traceback" not in otter.read_log()
        service = open_service(otter.data)
        before = service.get_handle(service.list_wikis()[0].slug).get_status().state
        service.close()
        otter.run_server("gunicorn", workers=1)
        otter.save_page("Again", "# Again\n\nAfter a restart.\n")
        otter.wait_until_found("restart", "again")
        service = open_service(otter.data)
        after = service.get_handle(service.list_wikis()[0].slug).get_status().state
        service.close()
        assert before is not None
        assert after is not None
        assert (after.generation, after.pages) == (before.generation, before.pages + 1)


def test_an_otterwiki_command_starts_no_background_work(tmp_path: Path) -> None:
    otter = OtterwikiServer(tmp_path)
    otter.repository.mkdir()
    subprocess.run(["git", "init", "--quiet", str(otter.repository)], check=True)
    settings = f"REPOSITORY = {str(otter.repository)!r}\nSECRET_KEY = 'a-secret-of-at-least-16-characters'\n"
    (tmp_path / "settings.cfg").write_text(settings)
    completed = run_forked(
        [sys.executable, "-m", "flask", "--app", "otterwiki.server", "routes"],
        modules=OTTERWIKI_MODULES,
        env={**os.environ, "OTTERWIKI_SETTINGS": str(tmp_path / "settings.cfg")},
        cwd=tmp_path,
        text=True,
        check=False,
    )
    assert completed.returncode == 0, completed.stderr
    assert not otter.data.exists()


def test_a_uwsgi_master_is_detected_and_its_workers_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not is_prefork_master()
    uwsgi = ModuleType("uwsgi")
    monkeypatch.setitem(sys.modules, "uwsgi", uwsgi)
    assert not is_prefork_master()
    monkeypatch.setattr(uwsgi, "worker_id", lambda: 0, raising=False)
    assert is_prefork_master()
    monkeypatch.setattr(uwsgi, "worker_id", lambda: 2)
    assert not is_prefork_master()


def test_the_post_fork_hook_of_uwsgi_is_extended(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    called: list[str] = []
    uwsgi = ModuleType("uwsgi")
    vars(uwsgi).update(post_fork_hook=lambda: called.append("theirs"), has_threads=0)
    monkeypatch.setitem(sys.modules, "uwsgi", uwsgi)
    monkeypatch.setattr(os, "register_at_fork", lambda **_: None)
    register_after_fork(lambda: called.append("ours"))
    vars(uwsgi)["post_fork_hook"]()
    assert called == ["theirs", "ours"]
    assert "enable-threads" in caplog.text


def test_a_debouncer_merges_notifications_and_does_nothing_once_stopped() -> None:
    answered: list[WikiLocation] = []

    def answer(place: WikiLocation) -> None:
        answered.append(place)
        if place.path == "/bad":
            raise RuntimeError("odd")

    debouncer = Debouncer(answer)
    debouncer.stop(1)
    debouncer.notify([WikiLocation("/never")])
    assert answered == []
    debouncer = Debouncer(answer)
    for _ in range(100):
        debouncer.notify([WikiLocation("/bad"), WikiLocation("/good")])
    wait_until(lambda: WikiLocation("/good") in answered)
    assert len(answered) < 100
    debouncer.stop(60)
    assert WikiLocation("/never") not in answered
