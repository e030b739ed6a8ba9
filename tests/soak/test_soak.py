"""The soak test: a correct service passes, injected faults are found, and growth is distinguished from noise."""

import random
import subprocess
import sys
from pathlib import Path

import pytest

from bench.soak.client import Ledger, Reply, Session
from bench.soak.disk import check_files
from bench.soak.growth import TOLERANCES, Point, compute_trends
from bench.soak.plan import Plan, Step
from bench.soak.process import ServiceProcess

ROOT = Path(__file__).parents[2]


def run_soak(home: Path, minutes: float, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "bench.soak", "--home", str(home), "--minutes", str(minutes), "--wikis", "8"]
    command += ["--interval", "2", "--points", "6", "--collections", str(home / "none"), *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=280)


@pytest.mark.long
@pytest.mark.model
def test_a_correct_service_passes_a_short_soak_with_both_kinds_of_restart(tmp_path: Path) -> None:
    done = run_soak(tmp_path / "soak", 1 / 3, "--restarts", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("**Passed.** 8 wikis")
    for text in ("| SIGTERM | ", "| SIGKILL | ", "with a notif", "without a notif", "Unexplained: 0.", "8 indexes"):
        assert text in done.stdout


@pytest.mark.long
@pytest.mark.model
def test_injected_leaks_and_errors_are_found(tmp_path: Path) -> None:
    program = f"{sys.executable} {Path(__file__).with_name('faulty_server.py')}"
    done = run_soak(tmp_path / "soak", 0.25, "--restarts", "0", "--program", program)
    assert done.returncode == 1, done.stdout + done.stderr
    findings = [line for line in done.stdout.splitlines() if line.startswith("- ")]
    for injected in ("own memory MB grew", "descriptors grew", ": 500 null"):
        assert any(injected in finding for finding in findings), findings
    known = (": 500 null", "memory MB grew", "descriptors grew")
    assert [finding for finding in findings if not any(text in finding for text in known)] == []


def test_a_directory_that_is_not_of_a_soak_is_not_emptied(tmp_path: Path) -> None:
    (tmp_path / "letters").write_text("mine")
    done = run_soak(tmp_path, 0.1)
    assert done.returncode == 2
    assert "would be emptied" in done.stderr
    assert (tmp_path / "letters").read_text() == "mine"


# ── growth ───────────────────────────────────────────────────────────────────────────────────────


def make_points(life: int, count: int, **slopes: float) -> list[Point]:
    """Measurements that warm up and then rise by a slope per point, with noise."""
    rng, found = random.Random(7), []
    for number in range(count):
        figures = {name: 100 + slopes.get(name.replace(" ", "_"), 0.0) * number for name in TOLERANCES}
        noisy = {name: figure - 50 / (number + 1) ** 3 + rng.uniform(-0.5, 0.5) for name, figure in figures.items()}
        found.append(Point(life, 10.0 * number, noisy))
    return found


def test_warm_up_and_noise_are_not_growth() -> None:
    assert not [trend.name for trend in compute_trends(make_points(0, 12)) if trend.grows]


def test_only_a_steady_rise_is_growth() -> None:
    risen = compute_trends(make_points(0, 3) + make_points(1, 12, descriptors=3.0, memory_MB=4.0))
    assert [trend.name for trend in risen if trend.grows] == ["memory MB", "descriptors"]


def test_too_few_points_are_an_error() -> None:
    with pytest.raises(ValueError, match="a trend needs four"):
        compute_trends(make_points(0, 3))


# ── files on the disk ────────────────────────────────────────────────────────────────────────────


def make_data_directory(directory: Path, *files: str) -> Path:
    for name in files:
        file = directory / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"x" * 10)
    return directory


VALID_FILES = ("registry.sqlite", "wikis/a/CURRENT", "wikis/a/g000002.sqlite", "wikis/a/g000002.sqlite-wal")
VALID_FILES += (
    "wikis/a/write.lock",
    "wikis/a/vectors-g000002-v7.exact",
    "wikis/a/reindex.json",
    "backups/a/one.sqlite",
)


def test_all_files_of_a_wiki_are_counted(tmp_path: Path) -> None:
    disk = check_files(make_data_directory(tmp_path, *VALID_FILES), {"a"}, 3)
    assert disk.unexpected == []
    assert disk.files == {"registry": 1, "index": 3, "log": 1, "cache": 1, "job": 1, "backup": 1}
    assert disk.bytes["index"] == 30


@pytest.mark.parametrize(
    ("leftover", "message"),
    [
        ("wikis/a/g000001.sqlite", "more than 1"),
        ("wikis/a/vectors-g000002-v6.exact", "more than 1"),
        ("wikis/a/.writing-8f.exact", ".writing"),
        ("wikis/a/broken-20261116-checksum/g000001.sqlite", "broken"),
        ("wikis/gone/CURRENT", "(no wiki)"),
        ("backups/gone/one.sqlite", "(no wiki)"),
        ("something", "something"),
    ],
)
def test_leftover_files_are_reported(tmp_path: Path, leftover: str, message: str) -> None:
    unexpected = check_files(make_data_directory(tmp_path, *VALID_FILES, leftover), {"a"}, 3).unexpected
    assert len(unexpected) == 1
    assert message in unexpected[0]


def test_too_many_backups_are_reported(tmp_path: Path) -> None:
    many = [f"backups/a/{number}.sqlite" for number in range(5)]
    assert check_files(make_data_directory(tmp_path, *many), {"a"}, 3).unexpected == ["backups: 5 where 3 are kept"]


# ── which answers are explained ──────────────────────────────────────────────────────────────────


class ScriptedSession(Session):
    """A session that returns one scripted reply, of a service that was restarting or not."""

    def __init__(self, reply: Reply, raw: bytes = b"", *, away: bool = False) -> None:
        service = ServiceProcess(["none"], {}, Path("none"))
        service.has_been_away = lambda since: away  # type: ignore[method-assign]
        super().__init__(service, Ledger())
        self._reply, self._raw = reply, raw

    def _exchange(self, *_: object) -> tuple[Reply, bytes, str]:
        return self._reply, self._raw, "" if self._reply.status else "ConnectionRefusedError: "

    def check_response(self, **allows: str) -> tuple[list[str], list[str]]:
        allowed = {code.replace("_", "-"): reason for code, reason in allows.items()}
        self.send("ask", None, "GET", "/", key="k", allows=allowed)
        return list(self.ledger.explained), self.ledger.unexplained


def make_problem(status: int, code: str = "") -> Reply:
    return Reply(status, {"code": code}, {}, 0.01)


def test_an_expected_response_is_neither_explained_nor_reported() -> None:
    assert ScriptedSession(make_problem(200)).check_response() == ([], [])


def test_a_lost_connection_is_explained_only_by_a_restart() -> None:
    assert ScriptedSession(make_problem(0), away=True).check_response() == (["no connection during a restart"], [])
    assert "ConnectionRefusedError" in ScriptedSession(make_problem(0)).check_response()[1][0]


def test_an_error_is_explained_only_by_its_code() -> None:
    assert ScriptedSession(make_problem(409, "busy")).check_response(busy="at work")[0] == ["409 busy: at work"]
    assert len(ScriptedSession(make_problem(409, "busy")).check_response()[1]) == 1
    assert len(ScriptedSession(make_problem(500, "internal"), away=True).check_response()[1]) == 1
    assert ScriptedSession(make_problem(503, "index-missing"), away=True).check_response()[0] == [
        "503 during a restart"
    ]


def test_a_canary_of_another_wiki_in_a_response_is_reported_for_any_status() -> None:
    explained, unexplained = ScriptedSession(make_problem(200), b"so sings kanariabcdefghij").check_response()
    assert explained == []
    assert "kanariabcdefghij" in unexplained[0]


# ── the plan ─────────────────────────────────────────────────────────────────────────────────────


def test_a_plan_restarts_early_and_measures_the_last_process_evenly() -> None:
    steps = Plan(300, 200, restarts=4, points=12).make_steps()
    done = [(at, step) for at, step in steps if step is not Step.MEASURE]
    assert [step for _, step in done] == [Step.TERMINATE, Step.KILL] * 2 + [Step.WARM]
    assert done[-2][0] == pytest.approx(120)
    assert [at for at, step in steps if at > 120 and step is Step.MEASURE] == pytest.approx(
        [120 + 15 * n for n in range(1, 13)]
    )
