"""Several processes look after the same wikis: one is at work, and the others can say how far it is."""

import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from wikiholt.errors import Busy
from wikiholt.keeper.desk import read_activity, sitting
from wikiholt.keeper.entries import Activity

_DONE = Activity("sync", datetime(2026, 11, 16, tzinfo=UTC), 3, 10, 42)


def test_what_is_told_at_a_desk_is_read_by_others_while_one_sits_there(tmp_path: Path) -> None:
    wiki = tmp_path / "wiki"
    assert read_activity(wiki) is None
    with sitting(wiki) as desk:
        assert read_activity(wiki) is None
        desk.tell(_DONE)
        assert read_activity(wiki) == _DONE
    assert read_activity(wiki) is None
    assert list(wiki.iterdir()) == []


def test_two_cannot_sit_at_one_desk_and_the_second_leaves_it_as_it_is(tmp_path: Path) -> None:
    with sitting(tmp_path) as desk:
        desk.tell(_DONE)
        with pytest.raises(Busy), sitting(tmp_path):
            pass
        assert read_activity(tmp_path) == _DONE


def test_the_desk_of_a_process_that_was_killed_is_free_and_says_nothing(tmp_path: Path) -> None:
    code = (
        "import os, pathlib\n"
        "from test_desk import _DONE, sitting\n"
        f"with sitting(pathlib.Path({str(tmp_path)!r})) as desk:\n"
        "    desk.tell(_DONE)\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    surroundings = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    assert subprocess.run([sys.executable, "-c", code], env=surroundings, check=False).returncode == -9
    assert (tmp_path / "activity.json").read_text().startswith("{")
    assert read_activity(tmp_path) is None
    with sitting(tmp_path) as desk:
        desk.tell(_DONE)
        assert read_activity(tmp_path) == _DONE


@pytest.mark.parametrize("text", ["", "{", "[]", '{"kind": "sync"}', '{"since": 7}', "\x00" * 5000])
def test_a_note_that_makes_no_sense_counts_as_none(tmp_path: Path, text: str) -> None:
    with sitting(tmp_path):
        (tmp_path / "activity.json").write_text(text)
        assert read_activity(tmp_path) is None
