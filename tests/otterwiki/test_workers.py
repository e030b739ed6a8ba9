"""Workers: a process that only forks them starts nothing; each begins after the fork, and ends in good order."""

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from otter_ground import Otter, wait_until

from wikiholt.surfaces.otterwiki.bell import Bell
from wikiholt.surfaces.otterwiki.forking import call_in_children, stands_by
from wikiholt.surfaces.otterwiki.resolving import Place
from wikiholt.wiring import open_service


def _open_files(pid: int) -> list[str]:
    """What a process has open; a file that is closed meanwhile is left out."""
    found = []
    for link in Path(f"/proc/{pid}/fd").iterdir():
        try:
            found.append(str(link.readlink()))
        except FileNotFoundError:
            continue
    return found


@pytest.mark.real_model
def test_a_master_that_loads_the_wiki_to_fork_it_opens_nothing_and_its_workers_index_and_end_well(
    tmp_path: Path,
) -> None:
    pages = {f"page-{number}.md": f"# Page {number}\n\nOf a preloaded wiki.\n" for number in range(20)}
    otter = Otter.start(tmp_path / "wiki", "gunicorn", pages=pages, workers=2, options=("--preload",))
    with otter:
        # Nobody has viewed or saved anything yet: workers begin by themselves.
        otter.until_equal()
        assert not [file for file in _open_files(otter.pid) if file.startswith(str(otter.data))]
        otter.save("More", "# More\n\nWritten afterwards.\n")
        otter.until_found("afterwards", "more")
        found = otter.client.get("/api/v1/search", params={"q": "afterwards"}).json()["results"]
        assert [hit["path"] for hit in found][:1] == ["More"]
        assert otter.stop() == 0
        assert "Traceback" not in otter.log()
        service = open_service(otter.data)
        before = service.wiki(service.wikis()[0].slug).status().state
        service.close()
        otter.run("gunicorn", workers=1)
        otter.save("Again", "# Again\n\nAfter a restart.\n")
        otter.until_found("restart", "again")
        service = open_service(otter.data)
        after = service.wiki(service.wikis()[0].slug).status().state
        service.close()
        assert before is not None
        assert after is not None
        assert (after.generation, after.pages) == (before.generation, before.pages + 1)


def test_a_command_of_otterwikis_starts_nothing(tmp_path: Path) -> None:
    otter = Otter(tmp_path)
    otter.repository.mkdir()
    subprocess.run(["git", "init", "--quiet", str(otter.repository)], check=True)
    settings = f"REPOSITORY = {str(otter.repository)!r}\nSECRET_KEY = 'a-secret-of-at-least-16-characters'\n"
    (tmp_path / "settings.cfg").write_text(settings)
    done = subprocess.run(
        [sys.executable, "-m", "flask", "--app", "otterwiki.server", "routes"],
        env={**os.environ, "OTTERWIKI_SETTINGS": str(tmp_path / "settings.cfg")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not otter.data.exists()


def test_a_master_of_uwsgi_stands_by_and_its_workers_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not stands_by()
    uwsgi = ModuleType("uwsgi")
    monkeypatch.setitem(sys.modules, "uwsgi", uwsgi)
    assert not stands_by()
    monkeypatch.setattr(uwsgi, "worker_id", lambda: 0, raising=False)
    assert stands_by()
    monkeypatch.setattr(uwsgi, "worker_id", lambda: 2)
    assert not stands_by()


def test_uwsgi_which_forks_without_telling_python_is_asked_by_its_own_hook(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    called: list[str] = []
    uwsgi = ModuleType("uwsgi")
    vars(uwsgi).update(post_fork_hook=lambda: called.append("theirs"), has_threads=0)
    monkeypatch.setitem(sys.modules, "uwsgi", uwsgi)
    monkeypatch.setattr(os, "register_at_fork", lambda **_: None)
    call_in_children(lambda: called.append("ours"))
    vars(uwsgi)["post_fork_hook"]()
    assert called == ["theirs", "ours"]
    assert "enable-threads" in caplog.text


def test_a_bell_answers_each_place_once_a_moment_and_no_more_once_stopped() -> None:
    answered: list[Place] = []

    def answer(place: Place) -> None:
        answered.append(place)
        if place.path == "/bad":
            raise RuntimeError("odd")

    bell = Bell(answer)
    bell.stop(1)
    bell.ring([Place("/never")])
    assert answered == []
    bell = Bell(answer)
    for _ in range(100):
        bell.ring([Place("/bad"), Place("/good")])
    wait_until(lambda: Place("/good") in answered)
    assert len(answered) < 100
    bell.stop(60)
    assert Place("/never") not in answered
